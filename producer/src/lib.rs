//! The producer: scans trackers, records a task for each item that requests work, announces it on the
//! queue when its repository has room for it, corrects items that are marked as worked on without a task, ends paused tasks, and
//! those that wait for a worker, whose item was closed, continues those whose credentials are accepted again, obeys commands in
//! comments, keeps dashboards, and removes stale sandboxes
//! and what the store keeps no longer.
//!
//! Any number of producers may run. The row and its outbox entry are written in one transaction, and
//! the announcement is confirmed before the item's label changes. A producer that is killed anywhere
//! leaves either nothing or a task that another process will announce.

mod capacity;
mod cleanup;
mod commands;
mod dashboards;
mod deps;
mod figures;
mod items;
mod loops;
mod orphans;
mod paused;
mod retention;
mod rounds;
mod scan;
mod waits;
mod webhooks;
mod wiring;

pub use commands::SeenCommands;
pub use dashboards::SeenDashboards;
pub use deps::ProducerDeps;
pub use loops::{ProducerMode, run};
pub use rounds::SeenPulls;
pub use scan::{Scan, scan};
pub use wiring::{ProducerArgs, ProducerCommand, connect, main};
