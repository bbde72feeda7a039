//! The attack suite: what an injected model would try, in real sandboxes and against the real gateway.
//!
//! Each attack is a script that runs in a sandbox, and says what it saw. It is not believed alone: files, a
//! process, listeners, repositories and a neighbour are around the sandbox, and notice when they were reached;
//! secrets are looked for in what it printed. An attack that could not be carried out counts as not run, never as
//! blocked.

mod arena;
mod bait;
mod builds;
mod canaries;
mod catalogue;
mod cell;
mod controls;
mod differential;
mod entry;
mod family;
mod fence;
mod finding;
mod hostile_guest;
mod injection;
mod known_open;
mod memory;
mod operator;
mod price;
mod registry;
mod report;
mod run;
mod worker_git;

pub use builds::{Built, build_all};
pub use canaries::Canaries;
pub use catalogue::all;
pub use cell::Cell;
pub use controls::{Demonstration, Ended, Lacking, Rights, Table, demonstrate, demonstrate_here};
pub use differential::{Difference, differential};
pub use entry::{Attack, Recorded};
pub use family::Family;
pub use finding::{Finding, Verdict};
pub use price::{Part, price};
pub use report::Report;
pub use run::{Selection, build_apart, run_apart, run_here};
