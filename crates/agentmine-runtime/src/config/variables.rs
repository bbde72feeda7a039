//! Environment variables that a configuration names: `${NAME}` as the whole of a value.
//!
//! Only where a key says so, since elsewhere such a text may be meant as it is.

use super::fault::SettingFault;
use super::tree::{Node, Value};

const LIST: &str = "command_executor.docker.network.registry_credentials";
const KEYS: [&str; 2] = ["authorization", "token"];

/// Puts the values of variables in place of their names.
pub(super) fn expand<'a>(
    tree: &mut Node,
    value_of: impl Fn(&str) -> Option<&'a str>,
    faults: &mut Vec<SettingFault>,
) {
    let list = LIST.split('.').try_fold(tree, |node, key| entry(node, key));
    let Some(Value::List(items)) = list.map(|node| &mut node.value) else {
        return;
    };
    for (at, item) in items.iter_mut().enumerate() {
        for key in KEYS {
            let Some(node) = entry(item, key) else {
                continue;
            };
            let Value::Text(text) = &node.value else {
                continue;
            };
            let Some(name) = text.strip_prefix("${").and_then(|it| it.strip_suffix('}')) else {
                continue;
            };
            match value_of(name) {
                Some(value) => node.value = Value::Text(value.to_owned()),
                None => faults.push(SettingFault::new(
                    &node.place,
                    &format!("{LIST}.{at}.{key}"),
                    format!("`${{{name}}}`, an environment variable that is not set"),
                    "an environment variable that is set, or the value itself",
                )),
            }
        }
    }
}

fn entry<'a>(node: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    let Value::Map(entries) = &mut node.value else {
        return None;
    };
    let found = entries.iter_mut().find(|entry| entry.key == key)?;
    Some(&mut found.node)
}
