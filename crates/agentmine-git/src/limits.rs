//! What one git process may use.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::launcher::Launcher;

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
    /// them. A host that runs out of memory kills it before the worker. It has a process group of its own, so that Ctrl-C in
    /// a terminal ends the worker alone, which decides what becomes of git.
    ///
    /// Without git or a launcher, the error is that of a program that is not there.
    pub(crate) fn git(self) -> Command {
        let mut git = match Launcher::of_this_process() {
            Ok(launcher) => self.git_by(launcher),
            Err(_) => Command::new("/nonexistent/agentmine-launcher"),
        };
        git.process_group(0);
        git
    }

    fn git_by(self, launcher: &Launcher) -> Command {
        let Some(git) = program("git") else {
            return Command::new("git");
        };
        let mut command = Command::new(launcher.path());
        command.arg0("agentmine-launcher");
        command.arg(at_most(libc::RLIMIT_AS, self.space).to_string());
        command.arg(at_most(libc::RLIMIT_CPU, self.cpu_seconds).to_string());
        command.arg(git);
        command
    }
}

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

/// Where a program is.
fn program(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let is_program = |path: &PathBuf| {
        let metadata = std::fs::metadata(path);
        path.is_absolute()
            && metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(is_program)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    use crate::launcher::Launcher;
    use crate::{Errand, GitHome};

    #[test]
    fn git_is_limited_by_a_launcher_in_memory_and_by_one_in_a_file() {
        for launcher in [Launcher::in_memory(), Launcher::in_a_file()] {
            let launcher = launcher.unwrap();
            let mut git = Errand::Untrusted.limits().git_by(&launcher);
            git.args(["hash-object", "--stdin"]);
            git.stdin(Stdio::piped()).stdout(Stdio::null());
            let mut child = git.spawn().unwrap();
            let of_child =
                |name| std::fs::read_to_string(format!("/proc/{}/{name}", child.id())).unwrap();
            let begun = Instant::now();
            while of_child("comm") != "git\n" {
                assert!(begun.elapsed() < Duration::from_secs(20), "{launcher:?}");
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
                assert_eq!(values, [expected, expected], "{launcher:?}: {name}");
            }
            assert_eq!(score, "1000\n", "{launcher:?}");
        }
    }

    #[test]
    fn git_gets_its_arguments_environment_and_exit_code_unchanged() {
        let home = GitHome::new().unwrap();
        let mut git = home.git(Errand::Untrusted);
        git.args(["-c", "alias.x=!printf '%s|' \"$A\"; exit 7;", "x"]);
        git.args(["", "two words", "$A `b` \\"]);
        let output = git
            .env("A", "'\n\" $0")
            .stdout(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(output.stdout, b"'\n\" $0|");
        assert_eq!(output.status.code(), Some(7));
    }

    #[test]
    fn a_terminals_ctrl_c_does_not_reach_git() {
        let home = GitHome::new().unwrap();
        let mut git = home.git(Errand::Trusted);
        git.args(["hash-object", "--stdin"]);
        git.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = git.spawn().unwrap();
        let pid = child.id().cast_signed();
        // SAFETY: takes a plain integer.
        let group = unsafe { libc::getpgid(pid) };
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(group, pid);
    }

    #[test]
    fn nobody_changes_the_launcher() {
        let launcher = Launcher::in_memory().unwrap();
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).open(launcher.path()).unwrap();
        let written = (&file).write_all(b"#!");
        assert_eq!(
            written.unwrap_err().kind(),
            std::io::ErrorKind::PermissionDenied
        );
        assert!(file.set_len(0).is_err());
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
