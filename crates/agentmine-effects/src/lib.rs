//! Writes to a tracker, each of which happens once: labels, the one comment on an item, the pull request and the draft before it.
//!
//! Producer, consumer and sweep all write through [`Effects`]; nothing else writes to a tracker. Each
//! write is an effect: its intent is recorded under a key that is unique within the task, then the
//! tracker is read and written, then the effect is recorded as done. If the process is killed in
//! between, the next caller reads the tracker before it writes. With a lease, recording the intent is
//! fenced.
//!
//! Accepted: if a tracker applies a write but does not show it afterwards, the write is repeated.

mod announce;
mod answer;
mod assignment;
mod branch;
mod completion;
mod confirm;
mod dashboard;
mod draft;
mod effects;
mod error;
mod item_labels;
mod label;
mod moved;
mod orphan;
mod pull_request;
mod pushed;
mod report;
mod rounds;
mod status;
#[cfg(test)]
mod tests;
mod text;

pub use announce::announce;
pub use dashboard::{
    BoxAction, BoxSubject, DASHBOARD_ENTRIES, DashboardBox, DashboardEntry, DashboardIssue,
    DashboardRewrite, DashboardState, DashboardView, dashboard_text, is_dashboard,
};
pub use draft::{DraftState, draft_number};
pub use effects::Effects;
pub use error::{EffectError, is_final, may_be_of_comments};
pub use orphan::{Orphan, is_live};
pub use pull_request::{EarlierPullRequest, Pushers, ReportedCommit};
pub use pushed::PushRecord;
pub use report::{EndReport, Reporter};
pub use text::{
    held_comment, progress_comment, transferred_comments, used, work_comment, working_comment,
};
