//! The keywords of each type, as model APIs know them.

use serde_json::{Map, Value, json};

use super::{MAX_BRANCHES, Schema, branches_value, node, strings};
use crate::output::head_of;

/// Values of one `enum`.
const MAX_VALUES: usize = 500;
const MAX_PATTERN: usize = 1_000;
/// Bytes of values that are told in words.
const MAX_NOTE: usize = 1_000;

/// The keywords of one type.
pub(super) fn typed(schema: &Schema, one: &'static str, out: &mut Schema, notes: &mut Vec<String>) {
    out.insert("type".into(), one.into());
    match one {
        "object" => object(schema, out),
        "array" => array(schema, out, notes),
        "string" => {
            keep(schema, out, &["minLength", "maxLength"], Value::is_u64);
            keep(schema, out, &["pattern"], |it| {
                it.as_str().is_some_and(|text| text.len() <= MAX_PATTERN)
            });
            format(schema, out, notes, &["date-time"]);
        }
        "number" | "integer" => {
            number(schema, out, notes);
            format(schema, out, notes, &["int32", "int64", "float", "double"]);
        }
        _ => {}
    }
    enumerated(schema, Some(one), out, notes);
}

fn object(schema: &Schema, out: &mut Schema) {
    if let Some(Value::Object(properties)) = schema.get("properties") {
        let mut cleaned = Schema::new();
        for (name, property) in properties {
            let property = match property {
                Value::Bool(false) => continue,
                Value::Object(property) => node(property.clone()),
                _ => Schema::new(),
            };
            cleaned.insert(name.clone(), Value::Object(property));
        }
        let mut required = strings(schema.get("required"));
        required.retain(|name| cleaned.contains_key(name));
        out.insert("properties".into(), Value::Object(cleaned));
        if !required.is_empty() {
            out.insert("required".into(), required.into());
        }
    }
    match schema.get("additionalProperties") {
        Some(Value::Object(more)) => {
            out.insert(
                "additionalProperties".into(),
                Value::Object(node(more.clone())),
            );
        }
        // `false` would refuse what the patterns that are gone allow.
        Some(Value::Bool(false)) if !schema.contains_key("patternProperties") => {
            out.insert("additionalProperties".into(), false.into());
        }
        Some(Value::Bool(true)) => {
            out.insert("additionalProperties".into(), true.into());
        }
        _ => {}
    }
    keep(
        schema,
        out,
        &["minProperties", "maxProperties"],
        Value::is_u64,
    );
}

fn array(schema: &Schema, out: &mut Schema, notes: &mut Vec<String>) {
    let one = |item: &Value| match item {
        Value::Object(item) => node(item.clone()),
        _ => Schema::new(),
    };
    let tuple = match (schema.get("prefixItems"), schema.get("items")) {
        (Some(Value::Array(tuple)), rest) => tuple
            .iter()
            .chain(rest.filter(|rest| rest.is_object()))
            .collect(),
        (_, Some(Value::Array(tuple))) => tuple.iter().collect(),
        (_, items) => items.into_iter().collect::<Vec<_>>(),
    };
    let mut items: Vec<Schema> = Vec::new();
    for item in tuple.into_iter().map(one) {
        if !items.contains(&item) {
            items.push(item);
        }
    }
    let open = items.is_empty() || items.len() > MAX_BRANCHES || items.iter().any(Map::is_empty);
    let items = match (open, items.len()) {
        (true, _) => json!({}),
        (false, 1) => items.into_iter().next().unwrap_or_default().into(),
        // Through `node`, so that an `anyOf` among them has its place.
        (false, _) => Value::Object(node(Schema::from_iter([(
            "anyOf".to_owned(),
            branches_value(items),
        )]))),
    };
    out.insert("items".into(), items);
    keep(schema, out, &["minItems", "maxItems"], Value::is_u64);
    if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
        notes.push("no item twice".into());
    }
}

fn number(schema: &Schema, out: &mut Schema, notes: &mut Vec<String>) {
    keep(schema, out, &["minimum", "maximum"], Value::is_number);
    for (key, bound, words) in [
        ("exclusiveMinimum", "minimum", "more than"),
        ("exclusiveMaximum", "maximum", "less than"),
    ] {
        match schema.get(key) {
            Some(limit @ Value::Number(_)) => notes.push(format!("{words} {limit}")),
            // As the fourth draft says it: the bound itself is out.
            Some(Value::Bool(true)) => {
                if let Some(limit) = out.get(bound) {
                    notes.push(format!("{words} {limit}"));
                }
            }
            _ => {}
        }
    }
    if let Some(step @ Value::Number(_)) = schema.get("multipleOf") {
        notes.push(format!("a multiple of {step}"));
    }
}

fn format(schema: &Schema, out: &mut Schema, notes: &mut Vec<String>, taken: &[&str]) {
    if let Some(format) = schema.get("format").and_then(Value::as_str) {
        if taken.contains(&format) {
            out.insert("format".into(), format.into());
        } else {
            notes.push(format!("format: {}", head_of(format, 80)));
        }
    }
}

pub(super) fn values(schema: &Schema) -> Vec<Value> {
    match (schema.get("enum"), schema.get("const")) {
        (Some(Value::Array(values)), _) => values.clone(),
        (_, Some(value)) => vec![value.clone()],
        _ => Vec::new(),
    }
}

/// The values that a schema allows, of one type.
pub(super) fn enumerated(
    schema: &Schema,
    one: Option<&str>,
    out: &mut Schema,
    notes: &mut Vec<String>,
) {
    let mut values = values(schema);
    values.retain(|value| match one {
        None => true,
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        // The type says it all.
        Some(_) => false,
    });
    let mut kept: Vec<Value> = Vec::new();
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
        if kept.len() > MAX_VALUES {
            return;
        }
    }
    if kept.iter().all(Value::is_string) {
        if !kept.is_empty() {
            out.insert("enum".into(), kept.into());
        }
    } else {
        let kept: Vec<String> = kept.iter().map(Value::to_string).collect();
        notes.push(format!("one of: {}", head_of(&kept.join(", "), MAX_NOTE)));
    }
}

fn keep(schema: &Schema, out: &mut Schema, keys: &[&str], right: impl Fn(&Value) -> bool) {
    for key in keys {
        if let Some(value) = schema.get(*key).filter(|value| right(value)) {
            out.insert((*key).to_owned(), value.clone());
        }
    }
}
