//! The requests of a server to the client, and the traits that answer them.
//!
//! A capability is declared to a server only if it is implemented: sampling by a [`SamplingHandler`] if the
//! configuration allows it, elicitation by an [`Elicitation`] that takes questions. Other requests get the
//! protocol's error.

use async_trait::async_trait;
use serde_json::Value;

/// Makes model calls for a server.
#[async_trait]
pub trait SamplingHandler: Send + Sync + 'static {
    /// Answers `sampling/createMessage`: its params, as the server sent them, to its result. The request is
    /// hostile, and so may be the server's use of the answer.
    ///
    /// # Errors
    /// The message of the error that the server gets.
    async fn create(&self, server: &str, request: Value) -> Result<Value, String>;
}

/// Asks a person a server's question, or answers it by a rule.
#[async_trait]
pub trait Elicitation: Send + Sync + 'static {
    /// Answers a question. In the meantime only the total time limit of the server's call applies.
    async fn ask(&self, server: &str, question: Question) -> Answer;

    /// Whether a person can answer. `false`: the capability is not declared.
    fn takes_questions(&self) -> bool {
        true
    }
}

/// A server's question.
#[derive(Debug, Clone, PartialEq)]
pub enum Question {
    /// A form to fill in.
    Form {
        /// The server's words; hostile, shortened.
        message: String,
        /// A flat JSON Schema of the answer.
        schema: Value,
    },
    /// A page to visit. It is never opened for the user.
    Url {
        /// The server's words; hostile, shortened.
        message: String,
        /// The page.
        url: String,
    },
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The filled-in form; for a page, anything.
    Accept(Value),
    /// The user refuses.
    Decline,
    /// The question was dismissed.
    Cancel,
}

/// Declines every question, as the fleet does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Declining;

#[async_trait]
impl Elicitation for Declining {
    async fn ask(&self, _server: &str, _question: Question) -> Answer {
        Answer::Decline
    }

    fn takes_questions(&self) -> bool {
        false
    }
}
