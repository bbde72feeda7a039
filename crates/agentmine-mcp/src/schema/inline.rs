//! Resolves the references of a JSON Schema, and merges the schemas that apply to the same value.
//!
//! A schema comes from a server, and a few hundred bytes of references to references can expand to more
//! than fits in memory. So depth, parts and bytes of the result are limited, and a schema beyond a limit is
//! rejected. Only references within the schema are followed, and nothing is ever fetched. A reference to
//! nothing or to a schema that contains it allows anything.

use serde_json::{Value, json};

use super::node::{MAX_BRANCHES, Schema};

/// Schemas within each other.
const MAX_DEPTH: usize = 32;
/// Schemas in total.
const MAX_PARTS: usize = 5_000;
/// Bytes of names and values in total.
const MAX_BYTES: usize = 256 * 1024;

/// The schema without `$ref`, `allOf`, `const` and conditions. An error continues "its inputSchema".
pub(super) fn inline(schema: &Value) -> Result<Value, String> {
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
    /// References that are being resolved.
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
                "has more than {MAX_PARTS} parts with its references resolved"
            ));
        }
        let map = match schema {
            Value::Object(map) => map,
            Value::Bool(_) => return Ok(schema.clone()),
            _ => return Ok(json!({})),
        };
        let mut own = Schema::new();
        for (key, value) in map {
            if let Some(value) = self.keyword(key, value, depth)? {
                self.copied(key.len())?;
                own.insert(key.clone(), value);
            }
        }
        if let (None, Some(value)) = (own.get("enum"), map.get("const")) {
            own.insert("enum".into(), json!([self.value(value)?]));
        }
        // Schemas whose properties apply only under a condition.
        let mut sometimes = Vec::new();
        for part in map
            .get("allOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let mut inner = self.schema(part, depth + 1)?;
            if is_conditional(part)
                && let Value::Object(inner) = &mut inner
                && let Some(properties) = inner.shift_remove("properties")
            {
                sometimes.push(Schema::from_iter([("properties".to_owned(), properties)]));
            }
            merge(&mut own, inner);
        }
        let dependent = map.get("dependentSchemas").and_then(Value::as_object);
        let dependent = dependent.into_iter().flat_map(Schema::values);
        for part in dependent.chain(map.get("then")).chain(map.get("else")) {
            if let Value::Object(part) = self.schema(part, depth + 1)? {
                sometimes.push(part);
            }
        }
        merge_any(&mut own, sometimes);
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            let target = self.target(reference, depth)?;
            if own.is_empty() {
                return Ok(target);
            }
            merge(&mut own, target);
        }
        Ok(Value::Object(own))
    }

    /// The value of a keyword that is neither merged nor invalid.
    fn keyword(
        &mut self,
        key: &str,
        value: &'a Value,
        depth: usize,
    ) -> Result<Option<Value>, String> {
        Ok(Some(match (key, value) {
            ("properties", Value::Object(named)) => {
                let mut schemas = Schema::new();
                for (name, schema) in named {
                    self.copied(name.len())?;
                    schemas.insert(name.clone(), self.schema(schema, depth + 1)?);
                }
                Value::Object(schemas)
            }
            ("anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(listed)) => {
                let schemas = listed.iter().map(|schema| self.schema(schema, depth + 1));
                Value::Array(schemas.collect::<Result<_, _>>()?)
            }
            ("items" | "additionalProperties", schema) => self.schema(schema, depth + 1)?,
            // Only whether there are patterns matters.
            ("patternProperties", _) => Value::Bool(true),
            ("enum", Value::Array(_)) => self.value(value)?,
            ("properties" | "anyOf" | "oneOf" | "prefixItems" | "enum", _) => return Ok(None),
            ("const" | "allOf" | "dependentSchemas" | "then" | "else", _) => return Ok(None),
            (key, _) if key.starts_with('$') || key == "definitions" => return Ok(None),
            _ => self.value(value)?,
        }))
    }

    fn value(&mut self, value: &Value) -> Result<Value, String> {
        self.copied(value.to_string().len())?;
        Ok(value.clone())
    }

    fn copied(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes += bytes;
        if self.bytes > MAX_BYTES {
            return Err(format!(
                "has more than {MAX_BYTES} bytes with its references resolved"
            ));
        }
        Ok(())
    }

    fn target(&mut self, reference: &'a str, depth: usize) -> Result<Value, String> {
        let Some(target) = self.find(reference) else {
            return Ok(json!({}));
        };
        if self.within.contains(&reference) {
            let is_object = target.get("properties").is_some() || target["type"] == "object";
            return Ok(match is_object {
                true => json!({"type": "object"}),
                false => json!({}),
            });
        }
        self.within.push(reference);
        let schema = self.schema(target, depth + 1);
        self.within.pop();
        schema
    }

    fn find(&self, reference: &str) -> Option<&'a Value> {
        let pointer = reference.strip_prefix('#')?;
        let found = self.root.pointer(pointer);
        let found = found.or_else(|| self.root.pointer(&percent_decoded(pointer)?));
        found.filter(|found| found.is_object() || found.is_boolean())
    }
}

/// Adds the keywords of a schema that applies too. Where both have a keyword, `schema` keeps its own;
/// properties and required names are those of both.
pub(super) fn merge(schema: &mut Schema, part: Value) {
    let Value::Object(part) = part else {
        return;
    };
    for (key, value) in part {
        match (schema.get_mut(&key), value) {
            (Some(Value::Object(own)), Value::Object(more)) if key == "properties" => {
                for (name, property) in more {
                    own.entry(name).or_insert(property);
                }
            }
            (Some(Value::Array(own)), Value::Array(more)) if key == "required" => own.extend(more),
            (Some(_), _) => {}
            (None, value) => drop(schema.insert(key, value)),
        }
    }
}

/// Adds the properties of schemas of which not all apply: a property of several of them allows what any of them
/// allows, as the `action` of a tool does that has one branch for each action. One that `schema` has already keeps
/// its own form.
pub(super) fn merge_any(schema: &mut Schema, parts: Vec<Schema>) {
    let mut found = Schema::new();
    for mut part in parts {
        let Some(Value::Object(properties)) = part.shift_remove("properties") else {
            continue;
        };
        for (name, property) in properties {
            if let Value::Array(allowed) = found.entry(name).or_insert_with(|| json!([])) {
                allow(allowed, property);
            }
        }
    }
    let any = |allowed: Value| match allowed {
        Value::Array(mut one) if one.len() == 1 => one.swap_remove(0),
        several => json!({ "anyOf": several }),
    };
    let found = found.into_iter();
    let found: Schema = found.map(|(name, all)| (name, any(all))).collect();
    if !found.is_empty() {
        merge(schema, json!({ "properties": found }));
    }
}

/// Adds a schema to those that a value may fit. Of two that differ only in the values that they list, one is made.
fn allow(allowed: &mut Vec<Value>, more: Value) {
    let rest = |schema: &Value| {
        let mut rest = schema.as_object().cloned()?;
        rest.shift_remove("enum").map(|_| rest)
    };
    // The same in other words is no other branch.
    let bare = |schema: &Value| {
        let mut bare = schema.as_object().cloned()?;
        bare.shift_remove("description");
        (!bare.contains_key("enum")).then_some(bare)
    };
    let (own, own_bare) = (rest(&more), bare(&more));
    let is_twin = |known: &Value| {
        *known == more
            || (own.is_some() && rest(known) == own)
            || (own_bare.is_some() && bare(known) == own_bare)
    };
    if let Some(twin) = allowed.iter_mut().find(|known| is_twin(known)) {
        if let (Some(Value::Array(values)), Some(Value::Array(others))) =
            (twin.get_mut("enum"), more.get("enum"))
        {
            values.extend(others.iter().cloned());
        }
    } else if allowed.len() <= MAX_BRANCHES {
        // With more than that, anything is allowed.
        allowed.push(more);
    }
}

/// Whether a schema has parts that apply only sometimes.
fn is_conditional(schema: &Value) -> bool {
    let has = |key: &str| schema.get(key).is_some();
    has("then") || has("else") || has("dependentSchemas")
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
