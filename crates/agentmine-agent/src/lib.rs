//! The agent: works with tools until the task is done, has the result measured, and continues if the
//! measurement asks for it.
//!
//! The loop knows no sandbox, broker, database or tracker. It owns three narrow traits: [`Tools`]
//! (call a tool), [`Journal`] (record an entry) and [`Gather`] (measure the result); the worker
//! implements them, with an error type of its own that the loop passes through. Every entry is recorded
//! before the next thing begins, so that another worker can continue from the last one.

mod execute;
mod facts;
mod history;
pub mod journal;
mod prompt;
mod report;
mod run;
mod seam;
mod start;
mod verify;

pub use execute::{Finished, RunLimits};
pub use facts::{ChangedFile, Check, Facts, WebRequest};
pub use history::History;
pub use prompt::{Brief, Prompt, TextEditor, correction, system_prompt, task_prompt};
pub use report::{PullRequestText, pull_request};
pub use run::{Agent, RunOutcome};
pub use seam::{AgentError, Gather, Journal, ToolResult, Tools};
pub use start::{Project, Start};
pub use verify::{Verdict, judge, placeholders};

#[cfg(test)]
mod tests;
