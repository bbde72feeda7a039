//! Whether a tool's result matches its `outputSchema`.
//!
//! A mismatch is noted at the end of the text and does not turn the result into an error: the tool has done
//! its work, and a model that reads "failed" would repeat the call.
//!
//! The check covers `type`, `enum`, `required`, `properties`, `additionalProperties`, `items` and references
//! within the schema; every other keyword is ignored. Schema and result come from the server, so they are
//! hostile: each value of the result is compared with one schema, and the work is limited by [`MAX_WORK`].

use serde_json::{Map, Value};

use crate::schema::{TYPES, is_of, kind};
use crate::text::shortened;

/// Bytes of a schema.
const MAX_SCHEMA: usize = 64 * 1024;
/// Schemas within each other.
const MAX_DEPTH: usize = 32;
/// References to references that are followed.
const MAX_HOPS: usize = 16;
/// Comparisons. The rest is not checked.
const MAX_WORK: usize = 1_000_000;
/// Mismatches in a note.
const MAX_NOTED: usize = 3;

/// Why a schema cannot be used; the error continues "its outputSchema".
pub(crate) fn usable(schema: &Value) -> Result<(), String> {
    if !schema.is_object() {
        return Err("is not an object".into());
    }
    if schema.to_string().len() > MAX_SCHEMA {
        return Err(format!("has more than {MAX_SCHEMA} bytes"));
    }
    usable_at(schema, 0)
}

fn usable_at(schema: &Value, depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("is nested more than {MAX_DEPTH} deep"));
    }
    let known = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    let good = match &schema["type"] {
        Value::Null => true,
        Value::Array(names) => names.iter().all(known),
        name => known(name),
    };
    if !good {
        return Err("cannot be used: it names a type that JSON Schema does not have".into());
    }
    let named = schema["properties"].as_object().into_iter();
    let named = named.flat_map(Map::values);
    named
        .chain([&schema["items"], &schema["additionalProperties"]])
        .filter(|part| part.is_object())
        .try_for_each(|part| usable_at(part, depth + 1))
}

/// How a result differs from its tool's schema, for the end of its text.
pub(crate) fn note(schema: &Value, structured: Option<&Value>) -> Option<String> {
    let Some(structured) = structured else {
        return Some("[note: the tool promises structured output and gave none]".into());
    };
    let mut check = Check {
        root: schema,
        path: String::new(),
        mismatches: Vec::new(),
        work: 0,
    };
    check.value(schema, structured);
    if check.mismatches.is_empty() {
        return None;
    }
    let mismatches = check.mismatches.join("; ");
    Some(format!(
        "[note: structuredContent is not what the tool's outputSchema promises: {mismatches}]"
    ))
}

struct Check<'a> {
    root: &'a Value,
    /// Where it is, as a JSON pointer.
    path: String,
    mismatches: Vec<String>,
    work: usize,
}

impl<'a> Check<'a> {
    fn value(&mut self, schema: &'a Value, value: &Value) {
        let schema = self.resolved(schema);
        if !self.may_go_on(1) {
            return;
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            name => name.as_str().into_iter().collect(),
        };
        if !types.is_empty() && !types.iter().any(|name| is_of(value, name)) {
            return self.mismatch(&format!(
                "expected {}, got {}",
                types.join(" or "),
                kind(value)
            ));
        }
        if let Value::Array(allowed) = &schema["enum"]
            && self.may_go_on(allowed.len())
            && !allowed.iter().any(|one| equal(one, value))
        {
            self.mismatch("not one of the values of `enum`");
        }
        match value {
            Value::Object(entries) => self.object(schema, entries),
            Value::Array(items) if schema["items"].is_object() => {
                for (number, item) in items.iter().enumerate() {
                    self.within(&number.to_string(), &schema["items"], item);
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, schema: &'a Value, entries: &Map<String, Value>) {
        let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
        if self.may_go_on(required.len()) {
            for name in required.iter().filter_map(Value::as_str) {
                if !entries.contains_key(name) {
                    self.mismatch(&format!("{name:?} is missing"));
                }
            }
        }
        let more = &schema["additionalProperties"];
        for (name, value) in entries {
            match &schema["properties"][name] {
                property @ Value::Object(_) => self.within(name, property, value),
                Value::Null if more.is_object() => self.within(name, more, value),
                // A pattern, which is not checked, may allow it.
                Value::Null if *more == false && schema["patternProperties"].is_null() => {
                    self.mismatch(&format!("{name:?} is not expected"));
                }
                _ => {}
            }
        }
    }

    fn within(&mut self, step: &str, schema: &'a Value, value: &Value) {
        let length = self.path.len();
        self.path.push('/');
        self.path.push_str(step);
        self.value(schema, value);
        self.path.truncate(length);
    }

    fn resolved(&self, mut schema: &'a Value) -> &'a Value {
        for _ in 0..MAX_HOPS {
            let pointer = schema["$ref"].as_str().and_then(|it| it.strip_prefix('#'));
            match pointer.and_then(|pointer| self.root.pointer(pointer)) {
                Some(target) => schema = target,
                None => break,
            }
        }
        schema
    }

    fn may_go_on(&mut self, work: usize) -> bool {
        self.work += work;
        self.work <= MAX_WORK && self.mismatches.len() < MAX_NOTED
    }

    fn mismatch(&mut self, what: &str) {
        if self.mismatches.len() < MAX_NOTED {
            let place = if self.path.is_empty() {
                "the whole"
            } else {
                &self.path
            };
            let mismatch = format!("{}: {}", shortened(place), shortened(what));
            self.mismatches.push(mismatch);
        }
    }
}

/// `1` and `1.0` are the same number.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64()
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mismatches(schema: Value, result: Value) -> String {
        let note = note(&schema, Some(&result)).unwrap_or_default();
        let note = note.split_once("promises: ").map_or("", |(_, rest)| rest);
        note.trim_end_matches(']').to_owned()
    }

    #[test]
    fn each_keyword_is_checked_and_its_place_named() {
        let schema = json!({
            "type": "object",
            "required": ["id", "tags"],
            "additionalProperties": false,
            "properties": {
                "id": {"type": "integer"},
                "tags": {"type": ["array", "null"], "items": {"enum": ["a", 1]}},
                "more": {"additionalProperties": {"type": "boolean"}},
                "any": true,
            },
        });
        let good = json!({"id": 2.0, "tags": ["a", 1.0], "more": {"x": true}, "any": [{}]});
        assert_eq!(mismatches(schema.clone(), good), "");
        let none = json!({"id": 1, "tags": null});
        assert_eq!(mismatches(schema.clone(), none), "");
        for (result, expected) in [
            (json!([]), "the whole: expected object, got array"),
            (json!({"id": 1}), "the whole: \"tags\" is missing"),
            (
                json!({"id": 1.5, "tags": null}),
                "/id: expected integer, got number",
            ),
            (
                json!({"id": 1, "tags": ["b"]}),
                "/tags/0: not one of the values of `enum`",
            ),
            (
                json!({"id": 1, "tags": 7}),
                "/tags: expected array or null, got number",
            ),
            (
                json!({"id": 1, "tags": [], "more": {"x": 1}}),
                "/more/x: expected boolean, got number",
            ),
            (
                json!({"id": 1, "tags": [], "x": 1}),
                "the whole: \"x\" is not expected",
            ),
        ] {
            assert_eq!(mismatches(schema.clone(), result), expected);
        }
    }

    #[test]
    fn other_keywords_allow_everything() {
        let schema = json!({"pattern": "(", "minLength": 9, "anyOf": [false], "format": "uri"});
        assert_eq!(mismatches(schema, json!("x")), "");
        let schema = json!({"patternProperties": {"^x": {}}, "additionalProperties": false});
        assert_eq!(mismatches(schema, json!({"x": 1})), "");
        let elsewhere = json!({"$ref": "http://127.0.0.1:1/x"});
        assert_eq!(mismatches(elsewhere, json!(1)), "");
    }

    #[test]
    fn hostile_schema_and_result_cost_little() {
        let began = std::time::Instant::now();
        // Each of very many values against each of very many others.
        let long: Vec<Value> = (0..5_000).map(Value::from).collect();
        let schema = json!({"items": {"enum": long, "required": long}});
        let result: Vec<i64> = (0..200_000).map(|it| it % 5_000).collect();
        assert_eq!(mismatches(schema, json!(result)), "");
        let mut deep = json!(1);
        for _ in 0..120 {
            deep = json!({"a": [deep]});
        }
        let circle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}});
        assert_eq!(mismatches(circle, deep.clone()), "");
        let tree = json!({"properties": {"a": {"items": {"$ref": "#"}}}, "type": "object"});
        let end = mismatches(tree, deep);
        assert!(end.ends_with("expected object, got number"), "{end}");
        let many = mismatches(
            json!({"items": {"type": "string"}}),
            json!(vec![1; 100_000]),
        );
        assert_eq!(many.matches("expected").count(), 3);
        assert!(began.elapsed() < std::time::Duration::from_secs(5));
    }
}
