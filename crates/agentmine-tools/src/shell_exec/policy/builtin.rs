//! The built-in lists: what is refused and what is asked for, by program and arguments.

use super::rule::short_options;
use super::word::Value;
use super::{Verdict, shortened};

/// Refused whatever the arguments.
const DENIED: [&str; 22] = [
    "shutdown",
    "reboot",
    "halt",
    "poweroff",
    "format",
    "mkfs",
    "mke2fs",
    "mkswap",
    "mkdosfs",
    "mkntfs",
    "fdisk",
    "sfdisk",
    "cfdisk",
    "gdisk",
    "sgdisk",
    "parted",
    "wipefs",
    "blkdiscard",
    "killall5",
    "kexec",
    "hdparm",
    "cryptsetup",
];

/// Asked for whatever the arguments.
const ASKED: [&str; 34] = [
    "sudo",
    "su",
    "doas",
    "pkexec",
    "runuser",
    "chroot",
    "mount",
    "umount",
    "insmod",
    "modprobe",
    "rmmod",
    "iptables",
    "nft",
    "ufw",
    "useradd",
    "userdel",
    "usermod",
    "groupadd",
    "groupdel",
    "passwd",
    "chpasswd",
    "visudo",
    "crontab",
    "at",
    "shred",
    "killall",
    "pkill",
    "swapoff",
    "swapon",
    "sysctl",
    "losetup",
    "update-alternatives",
    "docker",
    "podman",
];

/// Package managers, asked for unless they only look.
const PACKAGES: [&str; 17] = [
    "apt", "apt-get", "aptitude", "yum", "dnf", "microdnf", "zypper", "pacman", "apk", "brew",
    "snap", "flatpak", "dpkg", "rpm", "emerge", "port", "nix-env",
];
const LOOKING: [&str; 14] = [
    "list",
    "search",
    "show",
    "info",
    "policy",
    "help",
    "depends",
    "rdepends",
    "madison",
    "provides",
    "repolist",
    "--version",
    "--help",
    "-h",
];

/// Package managers of languages: asked for where they change more than the project.
const INSTALLERS: [(&str, &[&str]); 14] = [
    ("pip", &["install", "uninstall"]),
    ("pip3", &["install", "uninstall"]),
    ("pipx", &["install", "uninstall", "upgrade"]),
    ("gem", &["install", "uninstall"]),
    ("cpan", &[]),
    ("cpanm", &[]),
    ("cargo", &["install", "uninstall", "publish"]),
    ("go", &["install"]),
    ("conda", &["install", "remove", "update"]),
    ("mamba", &["install", "remove", "update"]),
    ("luarocks", &["install", "remove"]),
    ("twine", &["upload"]),
    ("composer", &["global"]),
    ("uv", &["publish"]),
];

/// Judges a command by itself; what it runs is judged elsewhere.
pub(super) fn judge(name: &str, args: &[Value]) -> Verdict {
    if DENIED.contains(&name) || name.starts_with("mkfs.") {
        return deny(&format!("{name} can destroy the system"));
    }
    if ASKED.contains(&name) {
        return ask(&format!("{name} reaches beyond the project"));
    }
    if PACKAGES.contains(&name) {
        return packages(name, args);
    }
    match name {
        "rm" => remove(args),
        "find" => find_delete(args),
        "chmod" | "chown" | "chgrp" | "setfacl" => change_mode(name, args),
        "mv" | "cp" | "tee" | "install" | "ln" | "truncate" | "shred" | "sponge" => {
            critical_arguments(name, args)
        }
        "dd" => disk_dump(args),
        "kill" => kill(args),
        "init" | "telinit" => runlevel(args),
        "systemctl" | "loginctl" => system_control(name, args),
        "npm" | "pnpm" | "yarn" | "bun" => node_packages(name, args),
        _ => installers(name, args),
    }
}

/// Judges a file that is written to or read from by redirection.
pub(super) fn written(file: &Value) -> Verdict {
    match is_device(&file.text) {
        true => deny(&format!("{} is a device", shortened(&file.text))),
        false => Verdict::Allow,
    }
}

fn remove(args: &[Value]) -> Verdict {
    let (mut recursive, mut force, mut unseen, mut options) = (false, false, false, true);
    let mut targets = Vec::new();
    for arg in args {
        let text = arg.text.as_str();
        match options {
            true if text == "--" && arg.is_known() => options = false,
            true if arg.begins_unknown() => unseen = true,
            true if text.starts_with('-') && (text.len() > 1 || !arg.is_known()) => {
                unseen |= !arg.is_known() || arg.pattern;
                let long = text.strip_prefix("--").unwrap_or("");
                let is = |name: &str| !long.is_empty() && name.starts_with(long);
                let short = short_options(text);
                recursive |= is("recursive") || short.contains(['r', 'R']);
                force |= is("force") || short.contains('f');
                if !long.is_empty() && "no-preserve-root".starts_with(long) {
                    return deny("rm --no-preserve-root removes the whole system");
                }
            }
            true | false => targets.push(arg),
        }
    }
    if recursive && force {
        return deny(
            "rm with both -r and -f removes folders without asking: name the files to remove, or \
             use rm -r on a folder of the project",
        );
    }
    if recursive && targets.iter().any(|target| is_critical(&target.text)) {
        return deny("rm -r of a folder of the system, the home folder or a folder above");
    }
    match unseen {
        true => ask(
            "rm is given words that are only known once it runs, which may be options: put -- \
             before them",
        ),
        false => Verdict::Allow,
    }
}

fn find_delete(args: &[Value]) -> Verdict {
    let starts: Vec<_> = args
        .iter()
        .take_while(|arg| !arg.text.starts_with(['-', '(', '!']))
        .collect();
    let tests = &args[starts.len()..];
    if !tests.iter().any(|arg| arg.text == "-delete") {
        return Verdict::Allow;
    }
    if starts.iter().any(|start| is_critical(&start.text)) {
        return deny("find -delete in a folder of the system, the home folder or a folder above");
    }
    if starts.iter().any(|start| !start.is_known()) {
        return ask("find -delete starts in a folder that is only known once it runs");
    }
    const CHOOSING: [&str; 12] = [
        "-name",
        "-iname",
        "-path",
        "-ipath",
        "-regex",
        "-mtime",
        "-mmin",
        "-size",
        "-empty",
        "-newer",
        "-wholename",
        "-atime",
    ];
    match tests
        .iter()
        .any(|arg| CHOOSING.contains(&arg.text.as_str()))
    {
        true => Verdict::Allow,
        false => deny("find -delete without a choice such as -name removes everything, as rm -rf"),
    }
}

fn change_mode(name: &str, args: &[Value]) -> Verdict {
    let recursive = args.iter().any(|arg| {
        short_options(&arg.text).contains('R')
            || (arg.text.len() > 2 && "--recursive".starts_with(&arg.text))
    });
    match recursive && args.iter().any(|arg| is_critical(&arg.text)) {
        true => deny(&format!(
            "{name} -R of a folder of the system, the home folder or a folder above"
        )),
        false => Verdict::Allow,
    }
}

fn critical_arguments(name: &str, args: &[Value]) -> Verdict {
    if let Some(device) = args.iter().find(|arg| is_device(&arg.text)) {
        return deny(&format!("{name} writes to the device {}", device.text));
    }
    let files: Vec<_> = args
        .iter()
        .filter(|arg| !arg.text.starts_with('-'))
        .collect();
    let Some((last, sources)) = files.split_last() else {
        return Verdict::Allow;
    };
    let lost = name == "mv"
        && (last.text == "/dev/null" || sources.iter().any(|file| is_critical(&file.text)));
    match lost {
        true => {
            deny("mv of a folder of the system, the home folder or a folder above, or to /dev/null")
        }
        false => Verdict::Allow,
    }
}

fn disk_dump(args: &[Value]) -> Verdict {
    for arg in args {
        let Some(file) = arg.text.strip_prefix("of=") else {
            continue;
        };
        if is_device(file) {
            return deny(&format!("dd writes to the device {file}"));
        }
        if !arg.is_known() {
            return ask("dd writes to a file that is only known once it runs");
        }
    }
    match args.iter().any(Value::begins_unknown) {
        true => ask("dd is given words that are only known once it runs"),
        false => Verdict::Allow,
    }
}

fn kill(args: &[Value]) -> Verdict {
    // The first may be a signal.
    let signal = args
        .first()
        .is_some_and(|arg| arg.text.starts_with('-') && arg.text != "--");
    let rest = args.iter().skip(usize::from(signal));
    let all = |arg: &&Value| matches!(arg.text.as_str(), "-1" | "1") && arg.is_known();
    match rest.filter(all).count() {
        0 => Verdict::Allow,
        _ => deny("kill of process 1, or of every process (-1)"),
    }
}

fn runlevel(args: &[Value]) -> Verdict {
    match args.is_empty()
        || args
            .iter()
            .any(|arg| matches!(arg.text.as_str(), "--help" | "--version"))
    {
        true => Verdict::Allow,
        false => deny("init changes the state of the whole system"),
    }
}

fn system_control(name: &str, args: &[Value]) -> Verdict {
    const ENDING: [&str; 12] = [
        "poweroff",
        "reboot",
        "halt",
        "kexec",
        "suspend",
        "hibernate",
        "hybrid-sleep",
        "rescue",
        "emergency",
        "soft-reboot",
        "exit",
        "isolate",
    ];
    const LOOKS: [&str; 6] = [
        "status",
        "show",
        "cat",
        "is-active",
        "is-enabled",
        "list-units",
    ];
    let has = |words: &[&str]| args.iter().any(|arg| words.contains(&arg.text.as_str()));
    if has(&ENDING) {
        return deny(&format!("{name} ends or suspends the system"));
    }
    match has(&LOOKS) {
        true => Verdict::Allow,
        false => ask(&format!("{name} changes services of the system")),
    }
}

fn node_packages(name: &str, args: &[Value]) -> Verdict {
    let global = args.iter().any(|arg| {
        matches!(
            arg.text.as_str(),
            "-g" | "--global" | "--location=global" | "global" | "publish"
        )
    });
    match global {
        true => ask(&format!(
            "{name} changes packages outside of the project, or publishes one"
        )),
        false => Verdict::Allow,
    }
}

fn packages(name: &str, args: &[Value]) -> Verdict {
    let first = args
        .iter()
        .find(|arg| !arg.text.starts_with('-') || LOOKING.contains(&arg.text.as_str()));
    let looks = match (name, args.first().map(|arg| arg.text.as_str())) {
        ("dpkg", Some("-l" | "-L" | "-s" | "-S" | "--list" | "--listfiles" | "--status")) => true,
        ("rpm", Some(option)) => option.starts_with("-q"),
        _ => first.is_some_and(|arg| arg.is_known() && LOOKING.contains(&arg.text.as_str())),
    };
    match looks {
        true => Verdict::Allow,
        false => ask(&format!("{name} changes the packages of the system")),
    }
}

fn installers(name: &str, args: &[Value]) -> Verdict {
    let python_module = name.starts_with("python")
        && args
            .windows(2)
            .any(|pair| pair[0].text == "-m" && pair[1].text == "pip");
    let versioned_pip = name
        .strip_prefix("pip")
        .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'));
    let listed = match python_module || versioned_pip {
        true => "pip",
        false => name,
    };
    let Some((_, commands)) = INSTALLERS
        .iter()
        .find(|(installer, _)| *installer == listed)
    else {
        return Verdict::Allow;
    };
    let asked = commands.is_empty() || args.iter().any(|arg| commands.contains(&arg.text.as_str()));
    match asked {
        true => ask(&format!("{name} installs, removes or publishes packages")),
        false => Verdict::Allow,
    }
}

/// A folder whose loss is the loss of the system, of the user's files, or of more than the project.
fn is_critical(text: &str) -> bool {
    const FOLDERS: [&str; 25] = [
        "/",
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/home",
        "/lib",
        "/lib32",
        "/lib64",
        "/media",
        "/mnt",
        "/opt",
        "/proc",
        "/root",
        "/run",
        "/sbin",
        "/srv",
        "/sys",
        "/usr",
        "/usr/bin",
        "/usr/lib",
        "/usr/local",
        "/var",
        "/var/lib",
        "/Users",
    ];
    let path = plain_path(text);
    FOLDERS.contains(&path.as_str())
        || (path.starts_with('~') && !path.contains('/'))
        || path.split('/').all(|step| step == "..")
}

/// A path without what does not matter in it, and without a last `*`.
fn plain_path(text: &str) -> String {
    let mut steps: Vec<&str> = Vec::new();
    let absolute = text.starts_with('/');
    for step in text.split('/') {
        match step {
            "" | "." => {}
            ".." => match steps.last() {
                Some(&last) if last != ".." => {
                    steps.pop();
                }
                None if absolute => {}
                _ => steps.push(".."),
            },
            step => steps.push(step),
        }
    }
    let all = |step: &&str| matches!(*step, "*" | ".*" | "{*,.*}" | ".[!.]*");
    if steps.len() + usize::from(absolute) > 1 && steps.last().is_some_and(all) {
        steps.pop();
    }
    let joined = steps.join("/");
    match (absolute, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

/// A disk, memory, or a switch of the kernel.
fn is_device(text: &str) -> bool {
    const BEGINNINGS: [&str; 22] = [
        "/dev/sd",
        "/dev/hd",
        "/dev/vd",
        "/dev/xvd",
        "/dev/nvme",
        "/dev/mmcblk",
        "/dev/dm-",
        "/dev/mapper/",
        "/dev/disk/",
        "/dev/loop",
        "/dev/md",
        "/dev/mem",
        "/dev/kmem",
        "/dev/port",
        "/dev/nbd",
        "/dev/sr",
        "/dev/ram",
        "/dev/mtd",
        "/dev/block/",
        "/proc/sysrq-trigger",
        "/proc/sys/",
        "/sys/",
    ];
    let path = match text.starts_with('/') {
        true => plain_path(text),
        false => return false,
    };
    BEGINNINGS
        .iter()
        .any(|beginning| path.starts_with(beginning))
}

fn ask(why: &str) -> Verdict {
    Verdict::Ask(why.to_owned())
}

fn deny(why: &str) -> Verdict {
    Verdict::Deny(why.to_owned())
}
