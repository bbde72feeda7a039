//! The thread that starts servers.
//!
//! The kernel sends the death signal when the *thread* ends that started a process, and threads of an
//! async runtime come and go. This one stays as long as this process does.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, mpsc};

use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

static THREAD: LazyLock<Option<mpsc::Sender<Job>>> = LazyLock::new(|| {
    let (jobs, next) = mpsc::channel::<Job>();
    std::thread::Builder::new()
        .name("mcp-spawner".into())
        .spawn(move || {
            for job in next {
                // A job of a runtime that is being shut down may panic; the next one's is another.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        })
        .ok()
        .map(|_| jobs)
});

/// Starts a command as the leader of a session, to be killed when this process ends.
pub(super) async fn spawn(mut command: Command) -> io::Result<Child> {
    let ours = std::process::id().cast_signed();
    // SAFETY: between fork and exec only system calls with plain integers are made.
    unsafe {
        command.pre_exec(move || {
            // A session, not only a group: no terminal to read from, to be stopped by, or to write to.
            if libc::setsid() == -1 {
                return Err(io::Error::last_os_error());
            }
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == -1 {
                return Err(io::Error::last_os_error());
            }
            // We may have ended before the signal was asked for.
            if libc::getppid() != ours {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
    let (tell, told) = oneshot::channel();
    let runtime = Handle::current();
    let job = Box::new(move || {
        let _inside = runtime.enter();
        // Where nobody waits any longer, the child is dropped, and so killed.
        let _ = tell.send(command.spawn());
    });
    let thread = THREAD.as_ref().ok_or(io::ErrorKind::OutOfMemory)?;
    thread.send(job).map_err(|_| io::ErrorKind::BrokenPipe)?;
    told.await.map_err(|_| io::ErrorKind::BrokenPipe)?
}
