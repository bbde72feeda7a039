//! Starts a server's process.

use std::io;

use agentmine_process::{die_with_parent, run_on_spawner_thread};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Starts a command as the leader of a session. The kernel kills it when this process ends.
pub(super) async fn spawn(mut command: Command) -> io::Result<Child> {
    let ours = std::process::id().cast_signed();
    // SAFETY: between fork and exec only system calls with plain integers are made.
    unsafe {
        command.pre_exec(move || {
            // A session, not only a group: no terminal to read from, write to, or be stopped by.
            match libc::setsid() {
                -1 => Err(io::Error::last_os_error()),
                _ => die_with_parent(ours),
            }
        });
    }
    let (reply, spawned) = oneshot::channel();
    let runtime = Handle::current();
    run_on_spawner_thread(move || {
        let _inside = runtime.enter();
        // If nobody waits any longer, the child is dropped and so killed.
        let _ = reply.send(command.spawn());
    })?;
    spawned.await.map_err(|_| io::ErrorKind::BrokenPipe)?
}
