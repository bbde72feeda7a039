//! The first process of a container, where no other program such as `tini` is.
//!
//! The kernel makes the first process of a pid namespace the parent of every process whose own parent has ended, and
//! each of these counts against the limits of processes until it is waited for. A program cannot wait for all of them: it would
//! take the results of those that it waits for elsewhere. So the first process only does this and passes signals on, and
//! the program is its child.
//!
//! Accepted: a signal that arrives twice before it is passed on is passed on once.

use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this process is the program below the first one.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Whether the first process of the container only waits for this one.
#[must_use]
pub fn is_watched() -> bool {
    IS_WATCHED.load(Ordering::Relaxed)
}

/// To be called first in a program, while it has one thread. In the first process of a pid namespace it returns the program's
/// exit code, once its child, which is the program, has ended. There, and everywhere else, it returns `None` at once.
#[must_use]
pub fn watch_as_first_process() -> Option<u8> {
    if std::process::id() != 1 {
        return None;
    }
    let (all, mut before) = (all_signals(), all_signals());
    // SAFETY: both sets are this function's own. There is no other thread, so the child may do anything after `fork`.
    let program = unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        libc::fork()
    };
    if program > 0 {
        return Some(watch(program, &all));
    }
    // The program; or no process can be started, and it works without a parent.
    // SAFETY: the set was filled above, and the other call takes plain integers.
    unsafe {
        if program == 0 {
            IS_WATCHED.store(true, Ordering::Relaxed);
            // Ctrl-C in a terminal reaches the whole group of the first process, which passes it on.
            libc::setpgid(0, 0);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
    None
}

fn all_signals() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call initializes the whole set.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// Waits for the end of the program and returns its exit code. The signals have to be blocked.
fn watch(program: i32, signals: &libc::sigset_t) -> u8 {
    loop {
        let mut signal = 0;
        // SAFETY: the set is initialized, and `signal` is this function's own.
        let failed = unsafe { libc::sigwait(&raw const *signals, &raw mut signal) } != 0;
        match signal {
            _ if failed => {}
            libc::SIGCHLD => {
                if let Some(code) = reap_ended(program) {
                    return code;
                }
            }
            // The kernel spares a first process these stops; the program would never continue.
            libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {}
            // SAFETY: takes plain integers. The program was not waited for yet, so the pid is its own.
            other => unsafe {
                libc::kill(program, other);
            },
        }
    }
}

/// Waits for every child that has ended. Returns the program's exit code if it is one of them.
fn reap_ended(program: i32) -> Option<u8> {
    let mut code = None;
    loop {
        let mut status = 0;
        // SAFETY: `status` is this function's own; WNOHANG does not block.
        match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
            ended if ended == program => code = Some(exit_code(status)),
            1.. => {}
            _ => return code,
        }
    }
}

/// As a shell reports it: 128 and the number of the signal, for a program that a signal ended.
fn exit_code(status: i32) -> u8 {
    let status = ExitStatus::from_raw(status);
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_exit_code_is_the_one_that_a_shell_reports() {
        for (script, code) in [("exit 3", 3), ("exit 0", 0), ("kill -KILL $$", 137)] {
            let status = Command::new("sh").args(["-c", script]).status().unwrap();
            assert_eq!(exit_code(status.into_raw()), code, "{script}");
        }
    }

    #[test]
    fn a_process_that_is_not_the_first_one_starts_none() {
        assert_eq!(watch_as_first_process(), None);
    }
}
