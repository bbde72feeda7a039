//! Logs go to stderr; stdout is for the output of commands.
//!
//! A message is readable by itself; facts are dotted fields (`task.id`, `epoch`, `duration_ms`). No
//! secret, no issue text and no file content is logged.
//!
//! Guaranteed at every level, whichever library writes: an event is one line without control characters, so nothing
//! that a server, a repository or a model wrote can pass for another event; and it shows none of the secrets of
//! [`redact::hide`].

use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::panic::PanicHookInfo;

use anyhow::Result;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::{Log, LogFormat, Secret, log_filter};
use crate::redact;

/// Starts logging for the process, and keeps `secrets` out of it. A panic is reported in the same way, and a crash
/// leaves no core file, which would hold all secrets.
///
/// # Errors
/// If `log.level` cannot be parsed, or logging was started before.
pub fn init(log: &Log, secrets: impl IntoIterator<Item = Secret>) -> Result<()> {
    redact::hide(secrets);
    std::panic::set_hook(Box::new(report_panic));
    leave_no_core();
    let filter = log_filter(&log.level)?;
    let may_color = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let colors = match log.format {
        LogFormat::Text if may_color => Colors::Yes,
        LogFormat::Text | LogFormat::Json => Colors::No,
    };
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // Otherwise it prints that an event could not be written, to where it could not be written, and panics.
        .log_internal_errors(false)
        .with_writer(EventLines(colors));
    let started = match log.format {
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .try_init(),
        LogFormat::Text => lines
            .with_ansi(colors == Colors::Yes)
            .with_target(false)
            .compact()
            .try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}

/// Whether the formatter writes escape sequences. It escapes those of values itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colors {
    Yes,
    No,
}

/// Writes each event to stderr. The formatter passes an event as a whole.
#[derive(Debug, Clone, Copy)]
struct EventLines(Colors);

impl<'a> MakeWriter<'a> for EventLines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

impl Write for EventLines {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        // On a full disk, or after the reader of a pipe has ended, the line is lost and nothing else.
        let _ = io::stderr().write_all(line(event, self.0).as_bytes());
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An event as one line.
fn line(event: &[u8], colors: Colors) -> String {
    let event = redact::without_hidden(event);
    let event = String::from_utf8_lossy(&event);
    let event = event.strip_suffix('\n').unwrap_or(&event);
    let mut line = on_one_line(event, colors).into_owned();
    line.push('\n');
    line
}

/// Replaces what would end the line, steer a terminal, or show the text in another order.
fn on_one_line(text: &str, colors: Colors) -> Cow<'_, str> {
    let is_plain = |c: char| match c {
        '\t' => true,
        '\u{1b}' => colors == Colors::Yes,
        '\u{2028}' | '\u{2029}' => false,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => false,
        c => !c.is_control(),
    };
    if text.chars().all(is_plain) {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if is_plain(c) => plain.push(c),
            '\n' => plain.push_str("\\n"),
            '\r' => plain.push_str("\\r"),
            // Valid in JSON too.
            c => plain.push_str(&format!("\\u{:04x}", u32::from(c))),
        }
    }
    plain.into()
}

/// As the standard library does it, but on one line and redacted.
fn report_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let place = panic.location().map(ToString::to_string);
    let place = place.unwrap_or_default();
    let message = panic.payload_as_str().unwrap_or("(no text)");
    let mut text = line(
        format!("thread '{name}' panicked at {place}: {message}").as_bytes(),
        Colors::No,
    );
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        let trace = format!("{backtrace}\n");
        text.push_str(&String::from_utf8_lossy(&redact::without_hidden(
            trace.as_bytes(),
        )));
    }
    // If stderr is closed, nobody can be informed.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Only the soft limit: what this process starts may raise it again for itself.
fn leave_no_core() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both take a pointer to a limit that lives for the call.
    let failed = unsafe {
        libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit) != 0 || {
            limit.rlim_cur = 0;
            libc::setrlimit(libc::RLIMIT_CORE, &raw const limit) != 0
        }
    };
    if failed {
        tracing::debug!("a crash of this process may leave a core file");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let event = "INFO refused: no\r\nERROR forged \u{1b}[31m\u{202e}\u{2028}\tend\n";
        assert_eq!(
            line(event.as_bytes(), Colors::No),
            "INFO refused: no\\r\\nERROR forged \\u001b[31m\\u202e\\u2028\tend\n"
        );
        let colored = "\u{1b}[32mINFO\u{1b}[0m a\nb\n";
        assert_eq!(
            line(colored.as_bytes(), Colors::Yes),
            "\u{1b}[32mINFO\u{1b}[0m a\\nb\n"
        );
    }

    #[test]
    fn an_event_shows_no_secret_in_either_format() {
        redact::hide([Secret::new("canary\"of the log")]);
        for event in [
            "INFO said: canary\"of the log\n",
            "{\"said\":\"canary\\\"of the log\"}\n",
            "said: Y2FuYXJ5Im9mIHRoZSBsb2c=\n",
        ] {
            let line = line(event.as_bytes(), Colors::No);
            assert!(line.contains("***") && !line.contains("canary"), "{line}");
        }
    }
}
