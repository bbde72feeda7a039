//! Configuration: `config.yaml`, then environment, then flags.
//!
//! Guaranteed: [`load`] reports every fault at once, each with its place, what was found and what was
//! expected; no message contains the value of a [`Secret`].
//!
//! It works in three steps. All sources become one tree whose values know where they came from. The tree
//! is checked against the JSON Schema of [`Config`] (unknown keys, types), and wrong values are omitted.
//! The rest becomes a [`Config`], whose values are then validated.

mod agent_file;
mod branch;
mod capacity;
mod check;
mod conversion;
mod document;
mod effective;
mod effective_agent;
mod environment;
mod executor;
mod exposed;
mod fault;
mod labels;
mod load;
mod log_filter;
mod mcp;
mod outbound_proxy;
mod project_file;
mod retention;
pub(crate) mod rotation;
mod rounds;
mod schema;
mod secret;
mod secret_files;
mod secret_texts;
mod secrets;
mod size;
mod sources;
mod telemetry;
mod trackers;
pub mod tree;
mod unread;
mod validate;
mod variables;
mod who;

pub use agent_file::{
    AgentClient, AgentDefinition, AgentEnvironment, AgentLimits, AgentTools, NamedCheck,
    is_agent_name, read_agent,
};
pub use branch::{BranchField, BranchPattern, InvalidBranchPattern};
pub use capacity::{Capacity, PriorityLabels};
pub use check::{check, nearest};
pub use conversion::IssueToMrConversion;
pub use document::{Document, document};
pub use effective::{Setting, SettingOrigin, SettingValue, effective};
pub use effective_agent::{BUILT_IN, EffectiveAgent, is_allowed_image};
pub use executor::*;
pub use exposed::warn_of_open_file;
pub use fault::{ConfigErrors, SettingFault};
pub use labels::{Labels, has_label, same_label, share_scope};
pub use load::{FaultyConfig, json_schema, load, load_despite_faults, place_of};
pub(crate) use log_filter::log_filter;
pub use mcp::*;
pub use outbound_proxy::OutboundProxy;
pub use project_file::{PROJECT_FILE, ProjectFile};
pub use retention::{KeepDays, RetentionConfig};
pub use rotation::follow_secret_files;
pub use rounds::{BaseConflictRule, BranchRemovalRule, RoundsConfig};
pub use schema::*;
pub use secret::Secret;
pub use size::{ByteSize, InvalidByteSize};
pub use sources::Sources;
pub use telemetry::{Http, Log, LogFormat, Traces};
pub use trackers::*;
pub use unread::{unread_variables, warn_of_unread_variables};
pub use who::*;

#[cfg(test)]
mod tests;
