//! The worker's end of the tunnel for outgoing traffic: git for one repository, and the web by policy.
//! The token is added here and nowhere else.
//!
//! Each stream handed to a [`Gateway`] is one connection of a sandbox, and hostile: what it may ask
//! for, how much and for how long is bounded here. A faulty stream ends; it never fails the gateway.
//! [`facts`] is how the worker itself finds out what was pushed.

mod accepted_faults;
mod config;
mod egress;
mod error;
mod events;
pub mod facts;
mod gateway;
mod git;
mod git_process;
mod http;
mod metrics;
mod mirror;
mod printable;
mod stream;
mod upstream;
mod web;
mod wire;
mod write_timeout;

pub use config::{BranchBefore, GatewayConfig, GitAccess, PushFence, Rewrite, Upstream};
pub use error::GatewayError;
pub use events::TrafficEvent;
pub use gateway::Gateway;
pub use git::{branch_in_the_way, not_obeyed, without_secrets, without_skips};
pub use metrics::describe as describe_metrics;
pub use mirror::Mirrors;
pub use mirror::refs::CloneRefs;
pub use stream::GatewayStream;
