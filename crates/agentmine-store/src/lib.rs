//! Tasks, sessions, steps, effects, checkpoints and the outbox, in Postgres or SQLite.
//!
//! The row is the task. Every write of a worker takes its [`Lease`](agentmine_domain::Lease) and is refused with
//! [`StoreError::Fenced`] once the row has another epoch or is no longer leased. Time is the database's clock,
//! never the worker's.
//!
//! Every operation may be repeated: with the same nonce, token or key it finds what it did before.

mod capacity;
mod connect;
#[cfg(test)]
mod contract;
mod dashboards;
mod error;
mod held;
mod inspect;
mod inspection;
mod memory;
mod metrics;
mod migrations;
mod model;
mod people;
mod retention;
mod rounds;
mod sql;
mod store;
mod totals;
pub mod why;

pub use capacity::{
    Admitted, CapacityStore, OpenedPullRequest, RepositoryLoad, Room, Turn, WaitingRequest,
};
pub use connect::{check, connect, connect_heartbeat, migrate};
pub use dashboards::{Dashboard, DashboardStore, ShownDashboard};
pub use error::{RelayError, StoreError};
pub use held::{Held, HeldRequest, HeldStore};
pub use inspect::inspect;
pub use inspection::{Existing, Inspection, Migrated};
pub use memory::{MemoryAdded, MemoryFilter, MemoryStore, MemoryUpdated};
pub use model::{
    Attempt, Backlog, Checkpoint, Claim, EffectState, Enqueued, Figures, LeaseEnd, LeaseRequest,
    NamedBranch, NewStep, Publish, ScanTime, SessionFilter, StepToken, SweepPolicy, SweepReport,
    TaskCount, TaskFilter, TaskStanding, WhichSessions,
};
pub use people::{
    Begun, Dependency, Edited, ExternalEnd, ExternalFinish, NewExternal, NewPersonTask,
    ScopeConflict, TaskEdit,
};
pub use retention::{Prunable, Pruned, Restored, RetentionKind, RetentionStore, TableSize};
pub use rounds::RoundStore;
pub use store::{
    EffectStore, EnqueueStore, ExternalStore, FigureStore, JournalStore, LeaseStore, PeopleStore,
    ReportStore, Store, SweepStore, TaskStore,
};
pub use totals::Totals;
