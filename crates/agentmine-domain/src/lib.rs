//! The words of AgentMine as types: what a task is, what states it passes through, what is recorded.
//!
//! Nothing here does I/O and nothing knows of an adapter. Wire, row and API shapes live at the
//! boundaries and become these types there.

mod blame;
mod budget;
mod effect;
mod ids;
mod item;
pub mod markdown;
mod names;
mod sandbox_fate;
mod session;
mod step;
mod task;

pub use blame::Blame;
pub use budget::{Budget, Usage};
pub use effect::{EffectKey, EffectKind, TaskLabel};
pub use ids::{Epoch, ParseIdError, Seq, SessionId, TaskId, TaskNumber, WorkerId};
pub use item::{ItemKind, ItemRef, TrackerKind};
pub use names::UnknownName;
pub use sandbox_fate::SandboxFate;
pub use session::{Session, SessionEnd};
pub use step::{Step, StepKind, StepPayload};
pub use task::{EndState, Lease, NewTask, Phase, Priority, PublicStatus, Task, TaskState, WakeUp};
