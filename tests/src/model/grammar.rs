//! Calls as a server lets a model write them that constrains it by a grammar made of each tool's schema.

use serde_json::{Map, Value};

use super::script::Call;

/// Rewrites the arguments of each call whose tool is among `tools`.
pub(super) fn constrain(calls: &mut [Call], tools: &Value) {
    let tools = tools.as_array().map_or(&[][..], Vec::as_slice);
    for call in calls {
        let tool = tools.iter().find(|it| it["function"]["name"] == *call.name);
        if let (Some(tool), Some(wanted)) = (tool, call.arguments.as_object()) {
            call.arguments = written(wanted, &tool["function"]["parameters"]).into();
        }
    }
}

/// The required properties in the order of the schema, then the optional ones that the model still can
/// write after that, in the model's order.
fn written(wanted: &Map<String, Value>, schema: &Value) -> Map<String, Value> {
    let Some(properties) = schema["properties"].as_object() else {
        return wanted.clone();
    };
    let required = schema["required"].as_array();
    let is_required =
        |name: &str| required.is_some_and(|all| all.iter().any(|one| one.as_str() == Some(name)));
    let mut written = Map::new();
    for name in properties.keys().filter(|name| is_required(name)) {
        let value = wanted.get(name).cloned().unwrap_or_else(|| "".into());
        written.insert(name.clone(), value);
    }
    let mut optional = properties.keys().filter(|name| !is_required(name));
    for (name, value) in wanted.iter().filter(|(name, _)| !is_required(name)) {
        let mut rest = optional.clone();
        if rest.any(|one| one == name) {
            optional = rest;
            written.insert(name.clone(), value.clone());
        }
    }
    written
}
