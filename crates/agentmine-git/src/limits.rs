//! What one git process may use.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Address space of a process that reads what a sandbox sent, in bytes. Large files are streamed and packs
/// are mapped in small windows, so that ordinary pushes of any size fit.
const UNTRUSTED_SPACE: libc::rlim_t = 768 << 20;
/// Address space of a process that reads upstream's repository, in bytes.
const TRUSTED_SPACE: libc::rlim_t = 4 << 30;
/// CPU time of a process that reads what a sandbox sent, in seconds.
const UNTRUSTED_CPU: libc::rlim_t = 300;
/// CPU time of a process that reads upstream's repository, in seconds.
const TRUSTED_CPU: libc::rlim_t = 1800;

/// Upper limit of one allocation by git, in bytes: a few kilobytes of a push may expand to any size.
const ALLOC_LIMIT: u64 = 128 << 20;

/// Whose objects a git process reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// Those that a sandbox sent.
    Untrusted,
    /// Those of the operator's own repository.
    Trusted,
}

/// What one git process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Address space, in bytes.
    pub space: u64,
    /// CPU time, in seconds.
    pub cpu_seconds: u64,
    /// One allocation, in bytes.
    pub allocation: u64,
}

impl Errand {
    /// What a process may use.
    #[must_use]
    pub fn limits(self) -> Limits {
        let (space, cpu_seconds) = match self {
            Self::Untrusted => (UNTRUSTED_SPACE, UNTRUSTED_CPU),
            Self::Trusted => (TRUSTED_SPACE, TRUSTED_CPU),
        };
        Limits {
            space,
            cpu_seconds,
            allocation: ALLOC_LIMIT,
        }
    }
}

impl Limits {
    /// A command that sets the limits and becomes git, with the arguments that the caller adds. Its children inherit
    /// them.
    ///
    /// A shell does it, since whatever else runs between fork and exec needs a copy of the worker's page tables, which
    /// takes longer than git and a shell together. A program with a path, and nothing to be run before it, is started
    /// without one. The consumer's image has no shell; there the worker forks.
    pub(crate) fn git(self) -> Command {
        self.git_by(SHELL)
    }

    fn git_by(self, shell: &str) -> Command {
        // Without git, the error is that of a program that is not there.
        let Some(git) = program("git") else {
            return Command::new("git");
        };
        let space = at_most(libc::RLIMIT_AS, self.space);
        let cpu_seconds = at_most(libc::RLIMIT_CPU, self.cpu_seconds);
        if !is_program(Path::new(shell)) {
            let mut command = Command::new(git);
            let of_child = move || {
                limit(libc::RLIMIT_AS, space)?;
                limit(libc::RLIMIT_CPU, cpu_seconds)?;
                limit(libc::RLIMIT_CORE, 0)?;
                killed_first();
                Ok(())
            };
            // SAFETY: between fork and exec the closure makes system calls on local values; it neither allocates nor takes
            // a lock.
            unsafe { command.pre_exec(of_child) };
            return command;
        }
        let mut command = Command::new(shell);
        command.args(["-c", BECOME]).arg(git);
        command.arg((space / 1024).to_string());
        command.arg(cpu_seconds.to_string());
        command
    }
}

const SHELL: &str = "/bin/sh";

/// A host that runs out of memory kills this process before the worker. Where that cannot be set, the limits still hold.
const BECOME: &str = r#"ulimit -v "$1" && ulimit -t "$2" && ulimit -c 0 || exit 126
{ echo 1000 > /proc/self/oom_score_adj; } 2> /dev/null
shift 2
exec "$0" "$@""#;

/// The limit, unless that of this process is already lower.
fn at_most(resource: libc::__rlimit_resource_t, most: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: the call takes a pointer to the local struct and keeps none; after an error it is as it was.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    most.min(limit.rlim_cur).min(limit.rlim_max)
}

/// Limits the calling process.
fn limit(resource: libc::__rlimit_resource_t, most: libc::rlim_t) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: the call takes a pointer to the local struct and keeps none.
    match unsafe { libc::setrlimit(resource, &raw const limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// As the shell's `echo` in [`BECOME`].
fn killed_first() {
    const SCORE: &[u8] = b"1000";
    // SAFETY: the path is a constant that ends with a zero; the descriptor is closed here.
    unsafe {
        let file = libc::open(
            c"/proc/self/oom_score_adj".as_ptr(),
            libc::O_WRONLY | libc::O_CLOEXEC,
        );
        if file >= 0 {
            libc::write(file, SCORE.as_ptr().cast(), SCORE.len());
            libc::close(file);
        }
    }
}

fn is_program(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    path.is_absolute()
        && metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// Where a program is.
fn program(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    use super::SHELL;
    use crate::{Errand, GitHome};

    /// The consumer's image has no shell.
    #[test]
    fn git_is_limited_with_a_shell_and_without_one() {
        for shell in [SHELL, "/nowhere/sh"] {
            let mut git = Errand::Untrusted.limits().git_by(shell);
            git.args(["hash-object", "--stdin"]);
            git.stdin(Stdio::piped()).stdout(Stdio::null());
            let mut child = git.spawn().unwrap();
            let of_child =
                |name| std::fs::read_to_string(format!("/proc/{}/{name}", child.id())).unwrap();
            let begun = Instant::now();
            while of_child("comm") != "git\n" {
                assert!(begun.elapsed() < Duration::from_secs(20), "{shell}");
                std::thread::yield_now();
            }
            let (limits, score) = (of_child("limits"), of_child("oom_score_adj"));
            child.kill().unwrap();
            child.wait().unwrap();
            for (name, expected) in [
                ("Max address space", "805306368"),
                ("Max cpu time", "300"),
                ("Max core file size", "0"),
            ] {
                let line = limits.lines().find_map(|line| line.strip_prefix(name));
                let values: Vec<&str> = line.unwrap().split_whitespace().take(2).collect();
                assert_eq!(values, [expected, expected], "{shell}: {name}");
            }
            assert_eq!(score, "1000\n", "{shell}");
        }
    }

    /// Faults of this thread that needed no disk.
    fn faults() -> i64 {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the call fills the local struct, which zeroes also make valid.
        unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init().ru_minflt
        }
    }

    #[test]
    fn git_starts_without_a_copy_of_the_workers_memory() {
        let home = GitHome::new().unwrap();
        let mut memory = vec![1_u8; 64 << 20];
        let mut git = home.git(Errand::Untrusted);
        let mut child = git.arg("version").spawn().unwrap();
        let before = faults();
        // After a fork, each page is copied by the first write.
        for page in memory.chunks_mut(4096) {
            page[0] = 2;
        }
        let faults = faults() - before;
        assert!(child.wait().unwrap().success());
        assert_eq!(std::hint::black_box(memory)[0], 2);
        assert!(faults < 16, "{faults} pages were copied");
    }
}
