//! The agent: works with tools until the task is done, measures the result, and continues if the
//! result is not sufficient.
//!
//! The loop has no access to a sandbox, broker, database or tracker. It defines three narrow traits:
//! [`Tools`] (call a tool), [`Journal`] (record an entry) and [`Gather`] (measure the result). The worker
//! implements them with its own error type, which the loop passes through. Every entry is recorded
//! before anything else begins, so that another worker can continue from the last one.

mod branch;
mod check;
mod discussion;
mod execute;
mod facts;
mod history;
mod incoming;
pub mod journal;
mod memory;
mod note;
mod prompt;
mod reasoning;
mod repeats;
mod report;
mod resumed;
mod round;
mod run;
mod seam;
mod start;
mod text;
mod unusable;
mod verify;
mod window;
mod worked;

pub use branch::{BranchWords, branch_question, branch_words, described_by};
pub use check::{Check, CheckFailure, Standing};
pub use discussion::{Discussion, Remark, RemarkOrder, hidden_text};
pub use execute::{Finished, RunLimits};
pub use facts::{ChangedFile, Facts, WebRequest};
pub use history::{History, Texts};
pub use incoming::Hidden;
pub use memory::{
    GivenMemory, MemoryChoice, MemoryReason, MemoryShare, as_shown, estimated_tokens, given_memory,
};
pub use note::{NoteFact, Resumed, Unsaved};
pub use prompt::{
    Brief, Prompt, TextEditor, correction, remarks_prompt, system_prompt, task_prompt,
};
pub use report::{Asked, PullRequestText, begun_pull_request, pull_request, pull_request_comment};
pub use round::{FailedCheck, RoundBrief, Solution, thread_answers, without_answers};
pub use run::{AgentRun, RunOutcome};
pub use seam::{AgentError, Gather, Inbox, Journal, NoInbox, ToolResult, Tools};
pub use start::{Absent, DoneCheck, Project, Start};
pub use verify::{completes, missing, placeholders};
pub use worked::time_worked;

#[cfg(test)]
mod tests;
