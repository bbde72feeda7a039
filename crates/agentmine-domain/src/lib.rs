//! The domain types of AgentMine: tasks and their states, sessions, steps, effects, budgets.
//!
//! This crate does no I/O and has no knowledge of adapters. Wire, row and API types are defined at the
//! boundaries and converted to these types there.

mod asked_by;
mod blame;
mod branch;
mod budget;
mod card;
mod command;
mod effect;
mod effect_record;
mod ids;
mod item;
pub mod markdown;
pub mod memory;
mod names;
mod partial;
mod project;
mod round;
mod sandbox_fate;
mod scope;
mod session;
mod step;
mod task;

pub use asked_by::{AskedBy, COMMAND_TRIGGER};
pub use blame::Blame;
pub use branch::{BranchType, slug};
pub use budget::{Budget, Usage};
pub use card::{AssigneeType, TaskCard, TaskHome, TaskOrigin, TaskType, WaitsFor};
pub use command::{Addressed, CommentCommand, Obeyed, Order};
pub use effect::{EffectKey, EffectKind, TaskLabel};
pub use effect_record::{CommandRecord, LabelRecord, PullRequestRecord};
pub use ids::{Epoch, ParseIdError, Seq, SessionId, TaskId, TaskNumber, WorkerId};
pub use item::{ItemKind, ItemRef, PEOPLE_HOST, RepositoryKey, RepositoryRef, TrackerKind};
pub use memory::{
    Confidence, MemoryEntry, MemoryFault, MemoryId, MemoryRecord, MemorySource, MemoryStatus,
};
pub use names::UnknownName;
pub use partial::{Completion, PARTIAL_WARNING, not_done};
pub use project::ProjectName;
pub use round::{RedCheck, Round, RoundCause, RoundResult, ThreadAnswer};
pub use sandbox_fate::SandboxFate;
pub use scope::{ScopeError, WriteScope};
pub use session::{DodResult, External, Session, SessionEnd};
pub use step::{Step, StepKind, StepPayload};
pub use task::{
    EndState, Lease, NewTask, Phase, Priority, PublicStatus, Task, TaskState, Urgency, WakeUp,
    credentials_reason, label_of_pause, partial_reason, pause_label_reason,
};
