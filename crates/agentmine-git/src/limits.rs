//! What one git process may use.

use std::io;
use std::os::unix::process::CommandExt as _;
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
    /// Sets the limits in the process, before git starts. Its children inherit them.
    pub(crate) fn apply(self, command: &mut Command) {
        command.env("GIT_ALLOC_LIMIT", self.allocation.to_string());
        let of_child = move || {
            at_most(libc::RLIMIT_AS, self.space)?;
            at_most(libc::RLIMIT_CPU, self.cpu_seconds)?;
            at_most(libc::RLIMIT_CORE, 0)?;
            killed_first();
            Ok(())
        };
        // SAFETY: between fork and exec the closure makes system calls on local values; it neither
        // allocates nor takes a lock.
        unsafe { command.pre_exec(of_child) };
    }
}

/// Limits the calling process, unless it already has a lower limit.
fn at_most(resource: libc::__rlimit_resource_t, most: libc::rlim_t) -> io::Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls take a pointer to the local struct and keep none.
    unsafe {
        if libc::getrlimit(resource, &raw mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        limit.rlim_max = limit.rlim_max.min(most);
        limit.rlim_cur = limit.rlim_cur.min(limit.rlim_max);
        if libc::setrlimit(resource, &raw const limit) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// A host without memory kills this process before the worker. Where that cannot be set, the limits hold still.
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
