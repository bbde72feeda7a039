//! The consumer: claims tasks, prepares a sandbox for each, runs the agent in it, measures the result,
//! and reports.
//!
//! A slot holds no message while it works: it takes one, claims the row, acknowledges the message, and
//! only then begins (ARCHITECTURE.md). A session writes to the outside world only through effects, each
//! of which happens once, and records its steps in the journal under its lease.

mod claim;
mod error;
mod metrics;
mod mode;
mod one;
mod prepare;
mod presence;
mod record;
mod report;
mod run;
mod session;
mod slots;
mod sweep;
#[cfg(test)]
mod testing;
mod verify;
mod warm;
mod wiring;

pub use mode::ConsumerMode;
pub use one::{RunOne, run_one};
pub use prepare::templates::WorkspaceTemplates;
pub use prepare::traffic::Traffic;
pub use record::live::Progress;
pub use record::secret::operator_secrets;
pub use run::servers::launcher::SandboxLauncher;
pub use session::deps::ConsumerDeps;
pub use slots::run;
pub use wiring::{ConsumerArgs, ConsumerCommand, connect, main};
