//! Configuration: `config.yaml`, then environment, then flags.
//!
//! [`load`] reports every fault at once, each with its place, what was seen and what was expected.
//! It works in three steps: all sources become one tree whose values know where they came from;
//! the tree is walked against the JSON Schema of [`Config`] (unknown keys, types), and what is wrong
//! is cut out; the rest becomes a [`Config`], whose values are then checked for sense. No message
//! holds the value of a [`Secret`].

mod check;
mod executor;
mod fault;
mod mcp;
mod schema;
mod secret;
mod secrets;
mod size;
mod sources;
mod tree;
mod validate;

pub use executor::*;
pub use fault::{ConfigErrors, ConfigFault};
pub use mcp::*;
pub use schema::*;
pub use secret::Secret;
pub use size::bytes;
pub use sources::Sources;

/// Reads the configuration.
///
/// # Errors
/// With all faults of all sources.
pub fn load(sources: &Sources) -> Result<Config, ConfigErrors> {
    let mut faults = Vec::new();
    let schema = json_schema();
    let tree = sources.read(&schema, &mut faults);
    let checked = check::check(&schema, &tree, &mut faults);
    let config = match serde_json::from_value::<Config>(checked) {
        Ok(config) => config.with_server_names().with_mcp_file(sources.home()),
        Err(_) => {
            // The message is left out, since it may hold a value. Reached only when the schema
            // allows what the type refuses.
            if faults.is_empty() {
                faults.push(ConfigFault::new(
                    &tree.place,
                    "",
                    "a value that does not fit",
                    "the types that docs/config.schema.json gives",
                ));
            }
            return Err(ConfigErrors::new(faults));
        }
    };
    validate::validate(&config, &tree, &mut faults);
    if faults.is_empty() {
        Ok(config)
    } else {
        Err(ConfigErrors::new(faults))
    }
}

/// The JSON Schema of `config.yaml`.
#[must_use]
pub fn json_schema() -> serde_json::Value {
    schemars::schema_for!(Config).to_value()
}

#[cfg(test)]
mod tests;
