//! Long output through a pager, on a terminal: `$PAGER`, else `less`.
//!
//! Guaranteed: without a terminal, with `PAGER` empty or `cat`, or if there is no such pager, the output is printed as it
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
        if matches!(named.trim(), "" | "cat") || !is_found(&named) {
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

/// Whether the shell finds the program with which a line begins. Many small systems have no `less`: a shell that reports this
/// has started, and takes the output with it. A line that begins with something else, such as an assignment, is the shell's.
fn is_found(line: &str) -> bool {
    let program = line.split_whitespace().next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if !program.chars().all(is_plain) {
        return true;
    }
    let found = Command::new("sh")
        .args(["-c", "command -v \"$1\"", "sh", program])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    found.is_ok_and(|status| status.success())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pager_that_is_not_installed_is_not_found() {
        assert!(is_found("cat -n"));
        assert!(is_found("/bin/sh -c cat"));
        assert!(!is_found("no-such-pager-anywhere -R"));
        assert!(is_found("LESS=F less"));
        assert!(is_found("\"$HOME/pager\" -R"));
    }
}
