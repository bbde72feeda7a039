//! Puts the references of a JSON Schema in their places.
//!
//! A schema comes from a server, and a few hundred bytes of references to references can stand for
//! more than fits in memory: depth, parts and bytes of the outcome are bounded, and what is past them
//! is refused. Only references within the schema are followed, nothing is ever fetched; one that leads
//! nowhere here, or back into itself, is left open.

use serde_json::{Map, Value, json};

/// Schemas within each other.
pub(crate) const MAX_DEPTH: usize = 32;
/// Schemas in all.
const MAX_PARTS: usize = 5_000;
/// Bytes of what is copied beside them: names, descriptions, values.
const MAX_BYTES: usize = 256 * 1024;

/// Keywords with a schema for each name.
const NAMED: &[&str] = &["properties", "patternProperties", "dependentSchemas"];
/// Keywords with one schema or a list of them.
const LISTED: &[&str] = &[
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords that only say where a schema stands, or hold what references lead to.
const PLACES: &[&str] = &[
    "$anchor",
    "$comment",
    "$defs",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$recursiveAnchor",
    "$recursiveRef",
    "$ref",
    "$vocabulary",
    "definitions",
    "id",
];

/// The schema without references. An error reads on from "its inputSchema".
pub(crate) fn inline(schema: &Value) -> Result<Value, String> {
    let mut walk = Walk {
        root: schema,
        parts: 0,
        bytes: 0,
        within: Vec::new(),
    };
    walk.schema(schema, 0)
}

struct Walk<'a> {
    root: &'a Value,
    parts: usize,
    bytes: usize,
    /// References that are being put in.
    within: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    fn schema(&mut self, schema: &'a Value, depth: usize) -> Result<Value, String> {
        self.parts += 1;
        if depth > MAX_DEPTH {
            return Err(format!("is nested more than {MAX_DEPTH} deep"));
        }
        if self.parts > MAX_PARTS {
            return Err(format!(
                "has more than {MAX_PARTS} parts once its references are put in"
            ));
        }
        let map = match schema {
            Value::Object(map) => map,
            Value::Bool(_) => return Ok(schema.clone()),
            _ => return Ok(json!({})),
        };
        let mut own = Map::new();
        for (key, value) in map {
            if PLACES.contains(&key.as_str()) {
                continue;
            }
            self.copied(key.len())?;
            let value = match value {
                Value::Object(named) if NAMED.contains(&key.as_str()) => {
                    let mut schemas = Map::new();
                    for (name, schema) in named {
                        self.copied(name.len())?;
                        schemas.insert(name.clone(), self.schema(schema, depth + 1)?);
                    }
                    Value::Object(schemas)
                }
                Value::Array(listed) if LISTED.contains(&key.as_str()) => {
                    let schemas = listed.iter().map(|schema| self.schema(schema, depth + 1));
                    Value::Array(schemas.collect::<Result<_, _>>()?)
                }
                schema if LISTED.contains(&key.as_str()) => self.schema(schema, depth + 1)?,
                _ if NAMED.contains(&key.as_str()) => continue,
                data => {
                    self.copied(data.to_string().len())?;
                    data.clone()
                }
            };
            own.insert(key.clone(), value);
        }
        match map.get("$ref").and_then(Value::as_str) {
            Some(reference) => Ok(beside(self.target(reference, depth)?, own)),
            None => Ok(Value::Object(own)),
        }
    }

    fn target(&mut self, reference: &'a str, depth: usize) -> Result<Value, String> {
        let Some(target) = self.find(reference) else {
            return Ok(json!({}));
        };
        if self.within.contains(&reference) {
            let object = target.get("properties").is_some() || target["type"] == "object";
            return Ok(if object {
                json!({"type": "object"})
            } else {
                json!({})
            });
        }
        self.within.push(reference);
        let schema = self.schema(target, depth + 1);
        self.within.pop();
        schema
    }

    fn find(&self, reference: &str) -> Option<&'a Value> {
        let pointer = reference.strip_prefix('#')?;
        let found = self.root.pointer(pointer).or_else(|| {
            let decoded = percent_decoded(pointer)?;
            self.root.pointer(&decoded)
        })?;
        (found.is_object() || found.is_boolean()).then_some(found)
    }

    fn copied(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes += bytes;
        if self.bytes > MAX_BYTES {
            return Err(format!(
                "has more than {MAX_BYTES} bytes once its references are put in"
            ));
        }
        Ok(())
    }
}

/// What stands beside a reference holds too.
fn beside(target: Value, own: Map<String, Value>) -> Value {
    const WORDS: &[&str] = &["title", "description", "default", "examples", "deprecated"];
    if own.is_empty() {
        return target;
    }
    let Value::Object(mut target) = target else {
        return json!({"allOf": [target, own]});
    };
    let clashes = |key: &String| target.contains_key(key) && !WORDS.contains(&key.as_str());
    if own.keys().any(clashes) {
        return json!({"allOf": [own, target]});
    }
    target.extend(own);
    Value::Object(target)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}
