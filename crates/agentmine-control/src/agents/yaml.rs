//! An answer as YAML, for the resource `agent://{name}`.

use serde::Serialize;
use serde_json::Value;

/// The value as a YAML document. Every string is in quotes: a JSON string is a YAML string.
///
/// # Errors
/// For a value that JSON cannot hold.
pub fn yaml<T: Serialize>(value: &T) -> serde_json::Result<String> {
    let mut text = String::new();
    write(&mut text, &serde_json::to_value(value)?, 0);
    Ok(text)
}

fn write(text: &mut String, value: &Value, indent: usize) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                text.push_str(&format!("{pad}{key}:"));
                after(text, value, indent);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                text.push_str(&format!("{pad}-"));
                after(text, item, indent);
            }
        }
        other => text.push_str(&format!("{pad}{other}\n")),
    }
}

/// What follows a key or a dash: on the same line, or below and deeper.
fn after(text: &mut String, value: &Value, indent: usize) {
    let is_block = match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    match is_block {
        true => {
            text.push('\n');
            write(text, value, indent + 2);
        }
        false => text.push_str(&format!(" {value}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let value = serde_json::json!({
            "name": "fix", "text": "a: b\n# c", "none": null, "empty": [], "map": {},
            "list": ["yes", 1, {"a": [true], "b": {"c": 1.5}}],
        });
        let text = yaml(&value).unwrap();
        let file = "x.yaml".into();
        let read = agentmine_runtime::config::tree::parse(&file, &text).unwrap();
        assert_eq!(plain(&read), value, "{text}");
    }

    fn plain(node: &agentmine_runtime::config::tree::Node) -> Value {
        use agentmine_runtime::config::tree::Value as Yaml;
        match &node.value {
            Yaml::Null => Value::Null,
            Yaml::Bool(it) => (*it).into(),
            Yaml::Int(it) => i64::try_from(*it).unwrap().into(),
            Yaml::Float(it) => (*it).into(),
            Yaml::Text(it) => it.as_str().into(),
            Yaml::List(items) => items.iter().map(plain).collect(),
            Yaml::Map(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), plain(&entry.node)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }
}
