//! How a command ends: its exit code and its error message.
//!
//! An error is a lowercase fragment (what was found, what was expected), followed by a line `hint:` with
//! the next action. Errors without an exit code of their own end with [`Exit::Other`].

use std::borrow::Cow;
use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use crate::config::ConfigErrors;
use crate::{redact, terminal};

/// Exit codes of every program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success.
    Done = 0,
    /// Any other failure.
    Other = 1,
    /// An argument or a value is wrong.
    Validation = 2,
    /// The configuration is wrong.
    Config = 3,
    /// Something that was named does not exist, or git failed.
    NotFound = 5,
    /// The task or session is in a state that does not allow this.
    WrongState = 6,
}

impl Exit {
    /// The exit code of an error: that of the outermost error in its chain that has one.
    #[must_use]
    pub fn of(error: &anyhow::Error) -> Self {
        error
            .chain()
            .find_map(|part| {
                if let Some(failure) = part.downcast_ref::<Failure>() {
                    return Some(failure.exit);
                }
                part.is::<ConfigErrors>().then_some(Self::Config)
            })
            .unwrap_or(Self::Other)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error with an exit code and an optional hint.
///
/// ```
/// use agentmine_runtime::exit::{Exit, Failure};
///
/// fn find(number: i64) -> anyhow::Result<()> {
///     Err(Failure::new(Exit::NotFound, format!("no task {number}"))
///         .hint("`agentmine task list` shows what there is")
///         .into())
/// }
/// assert_eq!(Exit::of(&find(7).unwrap_err()), Exit::NotFound);
/// ```
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    message: Cow<'static, str>,
    hint: Option<Cow<'static, str>>,
    source: Option<anyhow::Error>,
}

impl Failure {
    /// A failure with `message`, a lowercase fragment.
    pub fn new(exit: Exit, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            exit,
            message: message.into(),
            hint: None,
            source: None,
        }
    }

    /// Adds a hint: the next action.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<anyhow::Error>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(AsRef::as_ref)
    }
}

/// Prints an error to stderr, without secrets and escape sequences. Returns the exit code.
#[must_use]
pub fn report(error: &anyhow::Error) -> Exit {
    // If stderr is closed, nobody can be informed.
    let _ = std::io::stderr().write_all(shown(error).as_bytes());
    Exit::of(error)
}

/// An error may quote the name of a file in a hostile repository, or what a server answered.
fn shown(error: &anyhow::Error) -> String {
    let text = render(error);
    let redacted = redact::without_hidden(text.as_bytes());
    terminal::clean(&String::from_utf8_lossy(&redacted))
}

/// The text of an error with its causes and its hints.
#[must_use]
pub fn render(error: &anyhow::Error) -> String {
    let mut text = String::from("error: ");
    let mut last = String::new();
    for part in error.chain().map(ToString::to_string) {
        // Many libraries repeat the cause in their own message.
        if last.contains(&part) {
            continue;
        }
        if !last.is_empty() {
            text.push_str(": ");
        }
        text.push_str(part.trim_end());
        last = part;
    }
    text.push('\n');
    let hints = error
        .chain()
        .filter_map(|part| part.downcast_ref::<Failure>()?.hint.as_deref());
    for hint in hints {
        text.push_str(&format!("hint: {hint}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn an_error_shows_its_chain_once_and_its_hint() {
        let source = std::io::Error::other("disk is full");
        let error = Err::<(), _>(
            Failure::new(Exit::WrongState, "task 7 is running")
                .hint("stop it first: `agentmine task stop 7`")
                .because(source),
        )
        .context("cannot delete the task")
        .unwrap_err();
        insta::assert_snapshot!(render(&error), @r"
        error: cannot delete the task: task 7 is running: disk is full
        hint: stop it first: `agentmine task stop 7`
        ");
        assert_eq!(Exit::of(&error), Exit::WrongState);
    }

    #[test]
    fn an_error_brings_no_escape_sequence_to_the_terminal() {
        let error = anyhow::anyhow!("uncommitted: a\x1b]0;x\x07\nb.txt");
        assert_eq!(
            shown(&error),
            "error: uncommitted: a\u{fffd}]0;x\u{fffd}\nb.txt\n"
        );
    }

    #[test]
    fn an_error_without_a_code_ends_with_one() {
        assert_eq!(Exit::of(&anyhow::anyhow!("broken")), Exit::Other);
        assert_eq!(Exit::Other as u8, 1);
    }
}
