//! Commands to the fleet, which people write in comments: `/agentmine stop`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::markdown::{cell, line};
use crate::names::{UnknownName, named};

named!(
    /// What a person may command in a comment.
    CommentCommand, "command" {
        /// Ends the task.
        Stop = "stop",
        /// Pauses the task.
        Pause = "pause",
        /// Continues a paused task.
        Resume = "resume",
        /// Begins a task that is over once more, or one that waits for a delay at once.
        Retry = "retry",
        /// Answers how far the task is.
        Status = "status",
    }
);

/// With this word begins a comment that is a command.
const PREFIX: &str = "/agentmine";
/// Characters of an unknown command that are shown.
const MAX_SHOWN: usize = 40;

/// A comment that addresses the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addressed {
    /// A command.
    Known(CommentCommand),
    /// The word after `/agentmine` is no command.
    Unknown(String),
}

impl Addressed {
    /// What a comment commands by its first line; `None` if it is for people.
    #[must_use]
    pub fn by(text: &str) -> Option<Self> {
        let first = text.trim_start().lines().next()?;
        let rest = first.strip_prefix(PREFIX)?;
        if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
            return None;
        }
        let word = rest.split_whitespace().next().unwrap_or_default();
        let bare = word.trim_end_matches(['.', ',', '!', ':']);
        Some(match bare.to_lowercase().parse() {
            Ok(command) => Self::Known(command),
            Err(UnknownName { .. }) => Self::Unknown(cell(&line(word, MAX_SHOWN))),
        })
    }
}

impl fmt::Display for Addressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(command) => write!(f, "{PREFIX} {command}"),
            Self::Unknown(word) => f.write_str(format!("{PREFIX} {word}").trim_end()),
        }
    }
}

/// What a command asks of the row of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order<'a> {
    /// Stop it, with the reason.
    Stop(&'a str),
    /// Pause it, with the reason.
    Pause(&'a str),
    /// Queue it, if it is paused.
    Resume,
    /// Make it due, if it waits for the end of a delay.
    SkipDelay,
    /// Nothing: the command is only remembered.
    Remember,
}

/// What came of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obeyed {
    /// It was obeyed now.
    Now {
        /// Whether the row was changed.
        changed: bool,
    },
    /// The task had obeyed it before.
    Before {
        /// Whether the row was changed then.
        changed: bool,
    },
    /// Another task of the same item had.
    ByAnother,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_the_first_line_of_a_comment() {
        for text in ["/agentmine stop", "\n  /agentmine  STOP, please\nthanks"] {
            let stop = Addressed::Known(CommentCommand::Stop);
            assert_eq!(Addressed::by(text), Some(stop), "{text}");
        }
        assert_eq!(
            Addressed::by("/agentmine retry now"),
            Some(Addressed::Known(CommentCommand::Retry))
        );
        for text in [
            "",
            "please\n/agentmine stop",
            "> /agentmine stop",
            "`/agentmine stop`",
            "/agentminer stop",
            "@agentmine stop",
        ] {
            assert_eq!(Addressed::by(text), None, "{text}");
        }
    }

    #[test]
    fn an_unknown_command_is_shown_without_what_it_could_do_to_a_comment() {
        let shown = |text| Addressed::by(text).unwrap().to_string();
        assert_eq!(shown("/agentmine"), "/agentmine");
        assert_eq!(shown("/agentmine de`ploy|x"), "/agentmine de'ploy\\|x");
        assert_eq!(shown("/agentmine status"), "/agentmine status");
    }
}
