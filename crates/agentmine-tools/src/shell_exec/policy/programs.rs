//! Programs that run what they are given, and how each of them is given it.

/// A program that runs the rest of its arguments.
pub(super) struct Wrapper {
    pub(super) name: &'static str,
    /// Options that take the next argument.
    pub(super) values: &'static [&'static str],
    /// Options that stand alone.
    pub(super) flags: &'static [&'static str],
    /// Arguments of its own before the command.
    pub(super) own: usize,
}

const fn wrapper(
    name: &'static str,
    values: &'static [&'static str],
    flags: &'static [&'static str],
    own: usize,
) -> Wrapper {
    Wrapper {
        name,
        values,
        flags,
        own,
    }
}

pub(super) const WRAPPERS: [Wrapper; 44] = [
    wrapper(
        "env",
        &["-u", "--unset", "-C", "--chdir"],
        &["-i", "-0", "-", "-v"],
        0,
    ),
    wrapper("nohup", &[], &[], 0),
    wrapper("setsid", &[], &["-f", "-w", "-c"], 0),
    wrapper("nice", &["-n", "--adjustment"], &[], 0),
    wrapper("ionice", &["-c", "-n", "--class"], &["-t"], 0),
    wrapper("chrt", &[], &["-b", "-f", "-i", "-o", "-r"], 1),
    wrapper("taskset", &[], &["-c", "-a"], 1),
    wrapper(
        "timeout",
        &["-s", "-k", "--signal", "--kill-after"],
        &["-v", "--foreground", "--preserve-status"],
        1,
    ),
    wrapper("stdbuf", &["-i", "-o", "-e"], &[], 0),
    wrapper("time", &["-f", "-o"], &["-p", "-v"], 0),
    wrapper("command", &[], &["-p"], 0),
    wrapper("builtin", &[], &[], 0),
    wrapper("exec", &["-a"], &["-c", "-l"], 0),
    wrapper("nocorrect", &[], &[], 0),
    wrapper("noglob", &[], &[], 0),
    wrapper(
        "sudo",
        &[
            "-u", "-g", "-h", "-p", "-C", "-r", "-t", "-T", "-U", "-D", "-R", "--user", "--group",
        ],
        &["-n", "-E", "-H", "-S", "-b", "-i", "-s", "-k"],
        0,
    ),
    wrapper("doas", &["-u", "-C"], &["-n", "-s"], 0),
    wrapper("pkexec", &["--user"], &[], 0),
    wrapper("runuser", &["-u", "-g"], &["-l"], 0),
    wrapper("busybox", &[], &[], 0),
    wrapper("toybox", &[], &[], 0),
    wrapper(
        "xargs",
        &[
            "-n",
            "-P",
            "-L",
            "-d",
            "-s",
            "-E",
            "-a",
            "-I",
            "--max-args",
            "--max-procs",
            "--delimiter",
        ],
        &["-0", "-r", "-t", "-p", "-x", "--null", "--no-run-if-empty"],
        0,
    ),
    wrapper(
        "parallel",
        &["-j", "--jobs", "-I", "-a"],
        &["-0", "-k", "--bar"],
        0,
    ),
    wrapper("chroot", &[], &[], 1),
    wrapper("unshare", &[], &[], 0),
    wrapper("nsenter", &["-t"], &[], 0),
    wrapper("setpriv", &[], &[], 0),
    wrapper("capsh", &[], &[], 0),
    wrapper(
        "strace",
        &["-e", "-o", "-p", "-s", "-E", "-u"],
        &["-f", "-c", "-q", "-v", "-y"],
        0,
    ),
    wrapper("ltrace", &["-e", "-o", "-p", "-s"], &["-f", "-c"], 0),
    wrapper("catchsegv", &[], &[], 0),
    wrapper("setarch", &[], &["-R"], 1),
    wrapper("linux32", &[], &[], 0),
    wrapper("linux64", &[], &[], 0),
    wrapper("fakeroot", &["-l", "-i", "-s"], &["--"], 0),
    wrapper("faketime", &[], &["-f"], 1),
    wrapper("proot", &[], &[], 0),
    wrapper("firejail", &[], &[], 0),
    wrapper("bwrap", &[], &[], 0),
    wrapper("systemd-run", &[], &["--user", "--scope"], 0),
    wrapper("cgexec", &["-g"], &[], 0),
    wrapper("dbus-run-session", &[], &["--"], 0),
    wrapper("xvfb-run", &["-s", "-n"], &["-a"], 0),
    wrapper("unbuffer", &[], &["-p"], 0),
];

/// Programs that run what stands somewhere among their arguments.
pub(super) const RUNNERS: [&str; 24] = [
    "cpulimit",
    "chpst",
    "eatmydata",
    "entr",
    "fd",
    "fdfind",
    "gosu",
    "hyperfine",
    "i386",
    "nocache",
    "numactl",
    "perf",
    "prlimit",
    "s6-setuidgid",
    "setuidgid",
    "sg",
    "softlimit",
    "start-stop-daemon",
    "su-exec",
    "trickle",
    "tsocks",
    "valgrind",
    "x86_64",
    "chronic",
];

pub(super) const SHELLS: [&str; 17] = [
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "ksh93",
    "mksh",
    "ash",
    "fish",
    "csh",
    "tcsh",
    "rbash",
    "yash",
    "posh",
    "lksh",
    "hush",
    "sh.distrib",
];

/// Programs with an option whose value is a script.
pub(super) const SCRIPT_OPTIONS: [(&str, &[&str]); 14] = [
    ("su", &["-c", "--command", "--session-command"]),
    ("runuser", &["-c", "--command"]),
    ("script", &["-c", "--command"]),
    ("flock", &["-c", "--command"]),
    ("env", &["-S", "--split-string"]),
    ("sg", &["-c"]),
    (
        "tar",
        &[
            "-I",
            "--use-compress-program",
            "--to-command",
            "--checkpoint-action=exec",
            "--rsh-command",
        ],
    ),
    ("npm", &["-c", "--call"]),
    ("npx", &["-c", "--call"]),
    ("rsync", &["-e", "--rsh", "--rsync-path"]),
    ("rg", &["--pre"]),
    ("man", &["-P", "--pager"]),
    ("pwsh", &["-c", "-Command"]),
    (
        "ssh",
        &[
            "ProxyCommand",
            "-oProxyCommand",
            "LocalCommand",
            "-oLocalCommand",
        ],
    ),
];
