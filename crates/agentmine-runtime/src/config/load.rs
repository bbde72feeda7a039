//! From the sources to a configuration, or to the list of all faults.

use super::check::check;
use super::fault::{ConfigErrors, SettingFault};
use super::schema::Config;
use super::sources::Sources;
use super::validate;

/// The faults of a configuration, and the rest of it.
#[derive(Debug)]
pub struct FaultyConfig {
    /// All faults of all sources.
    pub errors: ConfigErrors,
    /// What has no fault, with defaults in place of the values that cannot be read: to look for further faults, never to be used.
    /// `None` if the file was not read.
    pub rest: Option<Box<Config>>,
}

/// Reads the configuration.
///
/// # Errors
/// With all faults of all sources.
pub fn load(sources: &Sources) -> Result<Config, ConfigErrors> {
    load_despite_faults(sources).map_err(|faulty| faulty.errors)
}

/// The same; where there are faults, the rest can be looked at too.
///
/// # Errors
/// As [`load`].
pub fn load_despite_faults(sources: &Sources) -> Result<Config, FaultyConfig> {
    let mut faults = Vec::new();
    let schema = json_schema();
    let tree = sources.read(&schema, &mut faults);
    let is_read = !faults.iter().any(SettingFault::is_of_file);
    let checked = check(&schema, &tree, &mut faults);
    let config = match serde_json::from_value::<Config>(checked) {
        Ok(mut config) => {
            sources.follow_files(&mut config);
            config.complete(sources.home(), sources.config_home())
        }
        Err(_) => {
            // The error is not shown, since it may contain a value. Reached only if the schema allows
            // what the type refuses.
            if faults.is_empty() {
                faults.push(SettingFault::new(
                    &tree.place,
                    "",
                    "a value of a wrong type",
                    "the types in docs/config.schema.json",
                ));
            }
            return Err(FaultyConfig {
                errors: ConfigErrors::new(faults),
                rest: None,
            });
        }
    };
    validate::validate(&config, &tree, &mut faults);
    if faults.is_empty() {
        Ok(config)
    } else {
        sources.explain(&mut faults);
        Err(FaultyConfig {
            errors: ConfigErrors::new(faults),
            rest: is_read.then(|| Box::new(config)),
        })
    }
}

/// The place of a key such as `store.url` in the sources, for a fault that shows only when the value is used.
#[must_use]
pub fn place_of(sources: &Sources, key: &str) -> String {
    let tree = sources.read(&json_schema(), &mut Vec::new());
    tree.place_of(key).to_string()
}

/// The JSON Schema of `config.yaml`.
#[must_use]
pub fn json_schema() -> serde_json::Value {
    schemars::schema_for!(Config).to_value()
}
