//! What the fleet has done since it began.

use agentmine_domain::{EndState, SessionEnd};

/// Sums over all sessions and tasks, exact at one moment. They survive the processes that did the work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// The sessions that ended, for each way to end.
    pub sessions: Vec<(SessionEnd, u64)>,
    /// The tasks that are over, for each outcome. One that is queued again is no longer among them.
    pub tasks: Vec<(EndState, u64)>,
    /// Tokens sent, including cached ones, also of sessions that run.
    pub input_tokens: u64,
    /// Tokens sent that the provider had cached.
    pub cached_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// Money, in millionths of a US dollar.
    pub cost_micros: u64,
    /// The rows that hold them: see [`FigureStore::fold_totals`](crate::FigureStore::fold_totals).
    pub rows: u64,
}
