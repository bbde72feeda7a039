//! Environment variables that a configuration names: `${NAME}` as the whole of a value.
//!
//! Only in secrets, since elsewhere such a text may be meant as it is: the credentials of registries, the proxy of the
//! sandboxes' network, the key and the headers of the model, and the secrets of the trackers. For the trackers that have
//! names, which no variable of AgentMine can name, the file that `NAME_FILE` names will do too.

use std::path::Path;

use super::fault::SettingFault;
use super::rotation::content;
use super::tree::{Node, Value};

const MODEL: &str = "model";
const HEADERS: &str = "model.headers";
const NETWORK: &str = "command_executor.docker.network";
const REGISTRIES: &str = "command_executor.docker.network.registry_credentials";
const OF_REGISTRIES: [&str; 2] = ["authorization", "token"];
const FORGES: [&str; 2] = ["trackers.github", "trackers.gitlab"];
const MORE_FORGES: [&str; 2] = ["trackers.more.github", "trackers.more.gitlab"];
const OF_FORGES: [&str; 5] = [
    "token",
    "app.key",
    "webhook_secret",
    "webhook_secret_token",
    "webhook_signing_token",
];

/// Puts the values of variables in place of their names.
pub(super) fn expand<'a>(
    tree: &mut Node,
    value_of: impl Fn(&str) -> Option<&'a str>,
    faults: &mut Vec<SettingFault>,
) {
    let of_env = |name: &str| value_of(name).map(|value| value.trim().to_owned());
    if let Some(network) = below(tree, NETWORK) {
        one(network, (NETWORK, "proxy"), &of_env, faults);
    }
    if let Some(Value::List(items)) = below(tree, REGISTRIES).map(|node| &mut node.value) {
        for (at, item) in items.iter_mut().enumerate() {
            for key in OF_REGISTRIES {
                one(item, (&format!("{REGISTRIES}.{at}"), key), &of_env, faults);
            }
        }
    }
    if let Some(model) = below(tree, MODEL) {
        one(model, (MODEL, "api_key"), &of_env, faults);
    }
    if let Some(Value::Map(headers)) = below(tree, HEADERS).map(|node| &mut node.value) {
        for header in headers {
            let key = format!("{HEADERS}.{}", header.key);
            of_node(&mut header.node, &key, &of_env, faults);
        }
    }
    for forge in FORGES {
        let Some(section) = below(tree, forge) else {
            continue;
        };
        for key in OF_FORGES {
            one(section, (forge, key), &of_env, faults);
        }
    }
    let of_file = |name: &str| {
        let file = value_of(&format!("{name}_FILE"));
        of_env(name).or_else(|| content(Path::new(file?)).ok())
    };
    for forge in MORE_FORGES {
        let Some(Value::Map(entries)) = below(tree, forge).map(|node| &mut node.value) else {
            continue;
        };
        for entry in entries {
            let section = format!("{forge}.{}", entry.key);
            for key in OF_FORGES {
                one(&mut entry.node, (&section, key), &of_file, faults);
            }
        }
    }
}

fn one(
    section: &mut Node,
    (path, key): (&str, &str),
    value_of: &dyn Fn(&str) -> Option<String>,
    faults: &mut Vec<SettingFault>,
) {
    if let Some(node) = below(section, key) {
        of_node(node, &format!("{path}.{key}"), value_of, faults);
    }
}

fn of_node(
    node: &mut Node,
    key: &str,
    value_of: &dyn Fn(&str) -> Option<String>,
    faults: &mut Vec<SettingFault>,
) {
    let Value::Text(text) = &node.value else {
        return;
    };
    let Some(name) = text.strip_prefix("${").and_then(|it| it.strip_suffix('}')) else {
        if text.contains("${") {
            let fault = SettingFault::new(
                &node.place,
                key,
                "`${…}` as a part of the value".to_owned(),
                "`${NAME}` as the whole value, of a variable with all of it (such as `Bearer …`)",
            );
            faults.push(fault.keeping_value());
        }
        return;
    };
    match value_of(name) {
        Some(value) => node.value = Value::Text(value),
        None => {
            let fault = SettingFault::new(
                &node.place,
                key,
                format!("`${{{name}}}`, an environment variable that is not set, or is empty"),
                "an environment variable that is set, or the value itself",
            );
            faults.push(fault.keeping_value());
        }
    }
}

fn below<'a>(node: &'a mut Node, path: &str) -> Option<&'a mut Node> {
    path.split('.').try_fold(node, |node, key| entry(node, key))
}

fn entry<'a>(node: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    let Value::Map(entries) = &mut node.value else {
        return None;
    };
    let found = entries.iter_mut().find(|entry| entry.key == key)?;
    Some(&mut found.node)
}
