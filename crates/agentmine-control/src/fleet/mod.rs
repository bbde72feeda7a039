//! What the configuration says of the fleet: its trackers, and what a task gets of it.

mod environment;
mod trackers;

pub use environment::{Environment, EnvironmentLimits};
pub(crate) use environment::{Subject, environment, has_agent};
pub use trackers::Fleet;
pub(crate) use trackers::{Found, in_time};
