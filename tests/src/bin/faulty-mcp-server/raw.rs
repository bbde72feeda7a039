//! Raw output, and the faults that need system calls.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

/// Standard output, shared by several threads, one message at a time.
#[derive(Clone, Default)]
pub(crate) struct Out(Arc<Mutex<()>>);

impl Out {
    pub(crate) fn send(&self, message: &Value) -> std::io::Result<()> {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        self.bytes(&line)
    }

    pub(crate) fn bytes(&self, bytes: &[u8]) -> std::io::Result<()> {
        let _whole = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = std::io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }

    /// A message of this many bytes.
    pub(crate) fn line_of(&self, size: usize) -> std::io::Result<()> {
        let _whole = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = std::io::stdout().lock();
        out.write_all(br#"{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":""#)?;
        for _ in 0..size / 8192 {
            out.write_all(&[b'x'; 8192])?;
        }
        out.write_all(b"\"}]}}\n")?;
        out.flush()
    }
}

pub(crate) fn sleep_for_ever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

pub(crate) fn ignore_sigterm() {
    // SAFETY: no handler is installed; the signal is only ignored.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
    }
}

pub(crate) fn close_stdout_and_live() -> ! {
    // SAFETY: the number is that of standard output, which nothing uses after this.
    unsafe {
        libc::close(1);
    }
    sleep_for_ever()
}

/// A child in the server's group that keeps running; with `stdout`, it holds that open.
pub(crate) fn leave_a_child(stdout: Inherit) -> std::io::Result<()> {
    let mut child = Command::new("sleep");
    child.arg("3600").stdin(Stdio::null());
    if stdout == Inherit::No {
        child.stdout(Stdio::null());
    }
    child.spawn().map(drop)
}

/// Whether a child gets our stdout.
#[derive(PartialEq)]
pub(crate) enum Inherit {
    Yes,
    No,
}
