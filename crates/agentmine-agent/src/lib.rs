//! The agent: works with tools until the task is done, has the result measured, and works again if
//! the measurement says so.
//!
//! The loop knows no sandbox, broker, database or tracker. It owns three narrow traits: [`Tools`]
//! (call a tool), [`Journal`] (record a step) and [`Gather`] (measure the result); the worker
//! implements them. Whatever is recorded is recorded before the next thing begins, so that another
//! worker can go on from the last step.

mod execute;
mod history;
mod prompt;
mod report;
mod run;
mod seam;
mod verify;

pub use execute::{Finished, Limits};
pub use history::{History, HistoryError};
pub use prompt::{Brief, TextEditor, correction, system_prompt, task_prompt};
pub use report::{PullRequestText, failure_comment, progress_comment, pull_request};
pub use run::{Outcome, Session, run};
pub use seam::{Gather, Halt, Journal, Record, ToolFault, ToolResult, Tools};
pub use verify::{ChangedFile, Check, Facts, Verdict, WebRequest, judge, placeholders};

#[cfg(test)]
mod tests;
