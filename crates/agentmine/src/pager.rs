//! Long output through a pager, on a terminal: `$PAGER`, else `less`.
//!
//! Guaranteed: without a terminal, with `PAGER` empty or `cat`, or if the pager cannot be started, the output is printed as it
//! is. Ctrl-C belongs to the pager while it runs.

use std::io::{IsTerminal as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Where lines go instead of stdout.
static INPUT: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// A pager that shows what is printed until it is dropped, which waits for the person to leave it.
pub(crate) struct Pager(Child);

impl Pager {
    /// Starts the pager, if there is somebody to use it.
    pub(crate) fn start() -> Option<Self> {
        if !std::io::stdout().is_terminal() {
            return None;
        }
        let named = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
        if matches!(named.trim(), "" | "cat") {
            return None;
        }
        let mut command = Command::new("sh");
        command.args(["-c", &named]).stdin(Stdio::piped());
        // Leaves if all fits on one screen, shows colours, and leaves the text on the screen; as git has it.
        if std::env::var_os("LESS").is_none() {
            command.env("LESS", "FRX");
        }
        let mut child = command.spawn().ok()?;
        *input() = child.stdin.take();
        // The terminal sends Ctrl-C to both; the pager decides what it means.
        tokio::spawn(async { while tokio::signal::ctrl_c().await.is_ok() {} });
        Some(Self(child))
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        // The end of its input.
        *input() = None;
        let _ = self.0.wait();
    }
}

/// Writes a line to the pager. `false`: there is none.
pub(crate) fn write(line: &str) -> bool {
    match input().as_mut() {
        // A pager that was left early has closed its input.
        Some(input) => {
            let _ = writeln!(input, "{line}");
            true
        }
        None => false,
    }
}

fn input() -> std::sync::MutexGuard<'static, Option<ChildStdin>> {
    INPUT.lock().unwrap_or_else(PoisonError::into_inner)
}
