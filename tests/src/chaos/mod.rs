//! The chaos suite: a fleet of real programs, in which everything fails while an oracle counts.
//!
//! A run is decided by its seed: which issues are opened when, which faults happen when, and what people do
//! meanwhile. After the last fault everything is healed; once the fleet has settled, the oracle compares what
//! the forge recorded with what was promised. The order of events between processes is the machine's, so a seed
//! repeats the faults, not the interleaving; `chaos shrink` therefore tries each shorter list several times.

mod clock;
mod engine;
mod fault;
mod fleet;
mod guards;
mod link;
mod oracle;
mod people;
mod plan;
mod program;
mod progress;
mod recovery;
mod report;
mod run;
mod scenario;
pub(crate) mod services;
mod walk;

pub use fleet::{ForgeKind, Rhythm, SandboxKind, Services, Setup, StoreKind, binaries};
pub use guards::{GUARDS, Noticed, notice};
pub use oracle::{Broken, Finding};
pub use plan::{Outcome, Plan};
pub use report::Table;
pub use run::run_seed;
pub use walk::walk;
