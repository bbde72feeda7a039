//! What a server may ask of us, and who answers.
//!
//! A server is told of a capability only where somebody stands behind it: sampling with a
//! [`SamplingHandler`] and the configuration's word, elicitation with an [`Elicitation`] that takes
//! questions at all. What is asked without that is answered with the protocol's own error.

use async_trait::async_trait;
use serde_json::Value;

/// Makes model calls on a server's behalf.
#[async_trait]
pub trait SamplingHandler: Send + Sync + 'static {
    /// Answers `sampling/createMessage`: its params as the server sent them, its result as the
    /// protocol wants it. The request is hostile; so is the use that a server makes of the answer.
    ///
    /// # Errors
    /// What the server is told instead of a result.
    async fn create(&self, server: &str, request: Value) -> Result<Value, String>;
}

/// Puts a server's question to a person, or answers it by a rule.
#[async_trait]
pub trait Elicitation: Send + Sync + 'static {
    /// Answers a question. A call that waits for it is not timed meanwhile, but for its limit in all.
    async fn ask(&self, server: &str, question: Question) -> Answer;

    /// Whether questions reach anybody. `false`: servers are not told that they may ask.
    fn takes_questions(&self) -> bool {
        true
    }
}

/// What a server wants to know.
#[derive(Debug, Clone, PartialEq)]
pub enum Question {
    /// A form to fill in.
    Form {
        /// The server's words; hostile, shortened.
        message: String,
        /// A flat JSON Schema of the answer.
        schema: Value,
    },
    /// A page to visit. It is never opened without a person's word.
    Url {
        /// The server's words; hostile, shortened.
        message: String,
        /// The page.
        url: String,
    },
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The filled-in form; for a page, anything.
    Accept(Value),
    /// A no.
    Decline,
    /// Neither: the question was dismissed.
    Cancel,
}

/// Declines everything: the fleet's answer.
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
