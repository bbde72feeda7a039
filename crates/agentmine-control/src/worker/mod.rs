//! Starting work: the fleet's own workers, and clients outside of the fleet in work trees of their own.

mod blocking;
mod client;
mod place;
mod run;
mod trees;

pub(crate) use blocking::blocking;
pub use client::{Approval, ClientProgram, command_line};
pub use place::Place;
pub use run::{TaskRef, WorkBy, WorkerCommand, WorkerStart, start};
pub use trees::{WorkerList, WorkerPage, WorkerRemove, WorkerView, list, remove};
