//! The effective configuration, key by key, with where each value came from.
//!
//! Guaranteed: no secret is in it. A secret is shown as set or unset, and what else holds one (a URL with a password)
//! is redacted.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json, json};

use super::check::{Kind, Shape, check};
use super::fault::ConfigErrors;
use super::load::{json_schema, load};
use super::sources::Sources;
use super::tree::{ConfigPlace, Node, Value};
use crate::redact::Redactor;

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Setting {
    /// The key, as `consumer.concurrency`.
    pub key: String,
    /// The value.
    pub value: SettingValue,
    /// Where the value came from.
    pub origin: SettingOrigin,
}

/// What is shown of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum SettingValue {
    /// The value itself, as JSON.
    Shown(Json),
    /// A secret that is set.
    Set,
    /// Neither set nor with a default.
    Unset,
}

impl Serialize for SettingValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Shown(value) => value.serialize(serializer),
            Self::Set => serializer.serialize_str("set"),
            Self::Unset => serializer.serialize_none(),
        }
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum SettingOrigin {
    /// It is a default.
    Default,
    /// A file.
    File {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: u64,
    },
    /// An environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
    /// A flag of the command line.
    Flag {
        /// Its name.
        flag: String,
    },
}

impl std::fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Environment { variable } => write!(f, "variable {variable}"),
            Self::Flag { flag } => write!(f, "flag {flag}"),
        }
    }
}

impl From<&ConfigPlace> for SettingOrigin {
    fn from(place: &ConfigPlace) -> Self {
        match place {
            ConfigPlace::Default => Self::Default,
            ConfigPlace::File { name, line, .. } => Self::File {
                file: name.to_string(),
                line: *line,
            },
            ConfigPlace::Env(name) => Self::Environment {
                variable: (*name).to_owned(),
            },
            ConfigPlace::Flag(flag) => Self::Flag { flag: flag.clone() },
        }
    }
}

/// Every key of the configuration.
///
/// # Errors
/// As [`load`].
pub fn effective(sources: &Sources) -> Result<Vec<Setting>, ConfigErrors> {
    let config = load(sources)?;
    let schema = json_schema();
    let tree = sources.read(&schema, &mut Vec::new());
    let checked = check(&schema, &tree, &mut Vec::new());
    let redactor = Redactor::new(config.secrets());
    let mut walk = Walk {
        schema: &schema,
        redactor: &redactor,
        settings: Vec::new(),
    };
    walk.section(&schema, Some(&checked), Some(&tree), "");
    let mut settings = walk.settings;
    // What `Config::complete` fills in.
    let (command, editor) = (
        &config.command_executor.mcp_server,
        &config.text_editor_mcp.mcp_server,
    );
    let (address, default) = (&config.model.base_url, config.model.provider.base_url());
    let default_address = (*address == default).then_some(default.as_str());
    let completed = [
        ("command_executor.mcp_server.name", json!(command.name)),
        (
            "command_executor.mcp_server.command",
            json!(command.command),
        ),
        ("text_editor_mcp.mcp_server.name", json!(editor.name)),
        ("text_editor_mcp.mcp_server.command", json!(editor.command)),
        ("mcp.config_file", json!(config.mcp.config_file)),
        ("model.base_url", json!(default_address)),
    ];
    for setting in &mut settings {
        let known = completed.iter().find(|(key, _)| *key == setting.key);
        if let Some((_, value)) = known.filter(|(_, value)| !value.is_null()) {
            setting.value = SettingValue::Shown(value.clone());
        }
        // Secrets have no default in the schema, but these do in the structs.
        if ["queue.url", "store.url"].contains(&setting.key.as_str()) {
            setting.value = SettingValue::Set;
        }
    }
    Ok(settings)
}

struct Walk<'a> {
    schema: &'a Json,
    redactor: &'a Redactor,
    settings: Vec<Setting>,
}

impl Walk<'_> {
    /// `default`: of a section that is not written.
    fn section(&mut self, schema: &Json, value: Option<&Json>, node: Option<&Node>, path: &str) {
        let root = self.schema;
        let shape = Shape::of(root, schema);
        let properties = shape.schema["properties"].as_object();
        for (key, of_key) in properties.into_iter().flatten() {
            let path = match path {
                "" => key.clone(),
                path => format!("{path}.{key}"),
            };
            let value = value.and_then(|value| value.get(key));
            let node = node.and_then(|node| node.get(key));
            let is_section = !Shape::of(root, of_key).schema["properties"].is_null();
            // A tracker that is not configured has no keys.
            let is_absent = value.is_none() && of_key.get("anyOf").is_some();
            match is_section && !is_absent {
                true => self.section(of_key, value, node, &path),
                false => self.leaf(of_key, value, node, path),
            }
        }
    }

    fn leaf(&mut self, schema: &Json, value: Option<&Json>, node: Option<&Node>, key: String) {
        let written = value.and(node);
        let written = written.filter(|node| !matches!(node.value, Value::Null));
        let origin = written.map_or(SettingOrigin::Default, |node| (&node.place).into());
        let shape = Shape::of(self.schema, schema);
        // What may hold secrets has no default in the schema, and is empty.
        let empty = match shape.kind() {
            Some(Kind::List) => Some(json!([])),
            Some(Kind::Map) if schema.get("anyOf").is_none() => Some(json!({})),
            _ => None,
        };
        let default = schema.get("default").or(empty.as_ref());
        let value = match value.or(default) {
            None | Some(Json::Null) => SettingValue::Unset,
            Some(_) if shape.secret => SettingValue::Set,
            Some(value) => SettingValue::Shown(self.shown(schema, value)),
        };
        self.settings.push(Setting { key, value, origin });
    }

    /// The value with all secrets redacted, however deep they are.
    fn shown(&self, schema: &Json, value: &Json) -> Json {
        let shape = Shape::of(self.schema, schema);
        if shape.secret {
            return json!("set");
        }
        match value {
            Json::String(text) => Json::String(self.redactor.redact(text.clone())),
            Json::Array(items) => {
                let item = |item| self.shown(&shape.schema["items"], item);
                Json::Array(items.iter().map(item).collect())
            }
            Json::Object(entries) => {
                let of_key = |key: &str| {
                    let known = shape.schema["properties"].get(key);
                    known.unwrap_or(&shape.schema["additionalProperties"])
                };
                let entry =
                    |(key, value): (&String, &Json)| (key.clone(), self.shown(of_key(key), value));
                Json::Object(entries.iter().map(entry).collect::<Map<_, _>>())
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, env: &[(&str, &str)]) -> Vec<Setting> {
        let sources = Sources::from_text("config.yaml", text).with_env(env.iter().copied());
        effective(&sources).unwrap()
    }

    fn of<'a>(settings: &'a [Setting], key: &str) -> &'a Setting {
        settings.iter().find(|it| it.key == key).unwrap()
    }

    #[test]
    fn each_value_has_its_origin() {
        let text = "consumer:\n  concurrency: 3\nmodel:\n  name: small\n";
        let settings = shown(text, &[("AGENTMINE_MODEL_NAME", "large"), ("HOME", "/h")]);
        let setting = of(&settings, "consumer.concurrency");
        assert_eq!(setting.value, SettingValue::Shown(json!(3)));
        assert_eq!(setting.origin.to_string(), "config.yaml:2");
        let setting = of(&settings, "model.name");
        assert_eq!(setting.value, SettingValue::Shown(json!("large")));
        assert_eq!(setting.origin.to_string(), "variable AGENTMINE_MODEL_NAME");
        let setting = of(&settings, "agent.max_rounds");
        assert_eq!(setting.value, SettingValue::Shown(json!(3)));
        assert_eq!(setting.origin, SettingOrigin::Default);
        let setting = of(&settings, "mcp.config_file");
        let file = json!("/h/.agentmine/mcp_config.json");
        assert_eq!(setting.value, SettingValue::Shown(file));
    }

    #[test]
    fn no_secret_is_shown() {
        let text = "
trackers: {github: {token: hunter2hunter2, repositories: [a/b]}}
store: {url: 'postgres://u:hunter2hunter2@h/db'}
model: {headers: {x: hunter2hunter2}}
command_executor: {docker: {network: {registry_credentials: [{host: r.example.com, token: hunter2hunter2}]}}}
";
        let settings = shown(text, &[("OPENAI_API_KEY", "hunter2hunter2")]);
        let json = serde_json::to_string(&settings).unwrap();
        assert!(!json.contains("hunter2"), "{json}");
        assert_eq!(
            of(&settings, "trackers.github.token").value,
            SettingValue::Set
        );
        assert_eq!(of(&settings, "model.api_key").value, SettingValue::Set);
        assert_eq!(
            of(&settings, "store.url").origin.to_string(),
            "config.yaml:3"
        );
    }

    #[test]
    fn a_section_that_is_not_configured_is_one_line() {
        let settings = shown("", &[]);
        assert_eq!(of(&settings, "trackers.github").value, SettingValue::Unset);
        assert_eq!(of(&settings, "model.api_key").value, SettingValue::Unset);
    }
}
