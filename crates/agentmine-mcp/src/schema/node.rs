//! One schema, and the schemas within it, in the keywords that model APIs know.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::value::{TYPES, is_of};
use crate::text::head_of;

pub(super) type Schema = Map<String, Value>;

pub(super) const MAX_DESCRIPTION: usize = 8 * 1024;
/// Branches of one `anyOf`. More of them allow anything.
pub(super) const MAX_BRANCHES: usize = 50;
/// Values of one `enum`.
const MAX_VALUES: usize = 500;
const MAX_PATTERN: usize = 1_000;
/// Bytes of values in a description.
const MAX_NOTE: usize = 1_000;

/// Rewrites a schema without references.
pub(super) fn node(schema: &Schema) -> Schema {
    let types = types(schema);
    let mut branches = branches(schema);
    let mut node = Node::new(schema);
    match (types.as_slice(), branches.len()) {
        ([one], _) => node.typed(one),
        ([], 0) | (_, 2..) => node.values(None),
        (_, 1) => {}
        (several, 0) => branches.extend(several.iter().map(|one| {
            let mut branch = Node::new(schema);
            branch.typed(one);
            branch.described("")
        })),
    }
    match branches.len() {
        0 => {}
        1 => {
            for (key, value) in branches.into_iter().flatten() {
                node.out.entry(key).or_insert(value);
            }
        }
        _ => node.set("anyOf", list(branches)),
    }
    node.keep(&["title"], Value::is_string);
    node.keep(&["default"], |_| true);
    let description = schema.get("description").filter(|it| it.is_string());
    let description = description.or_else(|| node.out.get("description")).cloned();
    node.described(description.as_ref().and_then(Value::as_str).unwrap_or(""))
}

/// The strings of a list, each once.
pub(super) fn strings(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    let mut seen = HashSet::new();
    let list = list.filter_map(Value::as_str);
    list.filter(|text| seen.insert(*text))
        .map(str::to_owned)
        .collect()
}

fn list(schemas: Vec<Schema>) -> Value {
    schemas.into_iter().map(Value::Object).collect()
}

/// The schema of a value; anything but an object allows everything.
fn node_of(schema: &Value) -> Schema {
    schema.as_object().map(node).unwrap_or_default()
}

/// The branches of `anyOf` or `oneOf`. None if one of them allows everything.
fn branches(schema: &Schema) -> Vec<Schema> {
    let listed = schema.get("anyOf").or_else(|| schema.get("oneOf"));
    let listed = listed.and_then(Value::as_array).map_or(&[][..], |it| it);
    if listed.len() > MAX_BRANCHES {
        return Vec::new();
    }
    let listed = listed.iter().filter(|it| **it != Value::Bool(false));
    let branches = each_once(listed.map(node_of));
    match branches.iter().any(Schema::is_empty) {
        true => Vec::new(),
        false => branches,
    }
}

fn each_once<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// The types that a schema allows, by `type` or by its other keywords. Empty: all.
pub(super) fn types(schema: &Schema) -> Vec<&'static str> {
    let known = |name: &Value| {
        let name = name.as_str()?.to_ascii_lowercase();
        TYPES.iter().copied().find(|known| *known == name)
    };
    let mut types: Vec<&'static str> = match schema.get("type") {
        Some(Value::Array(names)) => names.iter().filter_map(known).collect(),
        Some(name) => known(name).into_iter().collect(),
        None => Vec::new(),
    };
    if types.is_empty() {
        types.extend(implied(schema));
    }
    if !types.is_empty() && schema.get("nullable") == Some(&Value::Bool(true)) {
        types.push("null");
    }
    // A number may be whole.
    if types.contains(&"number") {
        types.retain(|name| *name != "integer");
    }
    each_once(types.into_iter())
}

/// The type of a schema that does not name one.
fn implied(schema: &Schema) -> Option<&'static str> {
    let has = |keys: &[&str]| keys.iter().any(|key| schema.contains_key(*key));
    if has(&["properties", "required"]) {
        return Some("object");
    }
    if has(&["items", "prefixItems"]) {
        return Some("array");
    }
    let values = schema.get("enum")?.as_array().filter(|it| !it.is_empty())?;
    let scalars = ["string", "boolean", "integer", "number"];
    let mut scalars = scalars.into_iter();
    scalars.find(|one| values.iter().all(|value| is_of(value, one)))
}

/// A schema that is being written.
struct Node<'a> {
    from: &'a Schema,
    out: Schema,
    /// What only words can say.
    notes: Vec<String>,
}

impl<'a> Node<'a> {
    fn new(from: &'a Schema) -> Self {
        Self {
            from,
            out: Schema::new(),
            notes: Vec::new(),
        }
    }

    /// The keywords of one type.
    fn typed(&mut self, one: &'static str) {
        self.set("type", one);
        match one {
            "object" => self.object(),
            "array" => self.array(),
            "string" => {
                self.keep(&["minLength", "maxLength"], Value::is_u64);
                let short = |text: &str| text.len() <= MAX_PATTERN;
                self.keep(&["pattern"], |it| it.as_str().is_some_and(short));
                self.format(&["date-time"]);
            }
            "number" | "integer" => {
                self.number();
                self.format(&["int32", "int64", "float", "double"]);
            }
            _ => {}
        }
        self.values(Some(one));
    }

    fn object(&mut self) {
        if let Some(Value::Object(properties)) = self.from.get("properties") {
            let properties = properties.iter();
            let properties: Schema = properties
                .filter(|(_, property)| **property != Value::Bool(false))
                .map(|(name, property)| (name.clone(), node_of(property).into()))
                .collect();
            let mut required = strings(self.from.get("required"));
            required.retain(|name| properties.contains_key(name));
            self.set("properties", properties);
            if !required.is_empty() {
                self.set("required", required);
            }
        }
        match self.from.get("additionalProperties") {
            Some(Value::Object(more)) => self.set("additionalProperties", node(more)),
            // `false` would reject what the dropped patterns allow.
            Some(Value::Bool(false)) if self.from.contains_key("patternProperties") => {}
            Some(more @ Value::Bool(_)) => self.set("additionalProperties", more.clone()),
            _ => {}
        }
        self.keep(&["minProperties", "maxProperties"], Value::is_u64);
    }

    fn array(&mut self) {
        let items = self.from.get("items");
        let items: Vec<&Value> = match (self.from.get("prefixItems"), items) {
            (Some(Value::Array(tuple)), rest) => {
                let rest = rest.filter(|rest| rest.is_object());
                tuple.iter().chain(rest).collect()
            }
            (_, Some(Value::Array(tuple))) => tuple.iter().collect(),
            (_, items) => items.into_iter().collect(),
        };
        let mut items = each_once(items.into_iter().map(node_of));
        let is_open = items.len() > MAX_BRANCHES || items.iter().any(Schema::is_empty);
        let items = match items.len() {
            0 | 1 => items.pop().unwrap_or_default(),
            _ if is_open => Schema::new(),
            // Through `node`, since one of them may be an `anyOf` itself.
            _ => node(&Schema::from_iter([("anyOf".to_owned(), list(items))])),
        };
        self.set("items", items);
        self.keep(&["minItems", "maxItems"], Value::is_u64);
        if self.from.get("uniqueItems") == Some(&Value::Bool(true)) {
            self.notes.push("no item twice".into());
        }
    }

    fn number(&mut self) {
        self.keep(&["minimum", "maximum"], Value::is_number);
        for (key, bound, words) in [
            ("exclusiveMinimum", "minimum", "more than"),
            ("exclusiveMaximum", "maximum", "less than"),
        ] {
            let limit = match self.from.get(key) {
                Some(limit @ Value::Number(_)) => Some(limit),
                // Draft 4: the bound itself is excluded.
                Some(Value::Bool(true)) => self.out.get(bound),
                _ => None,
            };
            self.notes.extend(limit.map(|it| format!("{words} {it}")));
        }
        if let Some(step @ Value::Number(_)) = self.from.get("multipleOf") {
            self.notes.push(format!("a multiple of {step}"));
        }
    }

    fn format(&mut self, known: &[&str]) {
        match self.from.get("format").and_then(Value::as_str) {
            Some(format) if known.contains(&format) => self.set("format", format),
            Some(format) => {
                let format = head_of(format, 80);
                self.notes.push(format!("format: {format}"));
            }
            None => {}
        }
    }

    /// The values that the schema lists, those of one type only.
    fn values(&mut self, one: Option<&str>) {
        let values = self.from.get("enum").and_then(Value::as_array);
        let values = values.into_iter().flatten().filter(|value| match one {
            // Its type allows nothing else.
            Some("null") => false,
            Some(one) => is_of(value, one),
            None => true,
        });
        let mut seen = HashSet::new();
        let values = values.filter(|value| seen.insert(value.to_string()));
        let values: Vec<&Value> = values.take(MAX_VALUES + 1).collect();
        if values.is_empty() || values.len() > MAX_VALUES {
            return;
        }
        if values.iter().all(|value| value.is_string()) {
            self.set("enum", values.into_iter().cloned().collect::<Value>());
        } else {
            let values: Vec<String> = values.into_iter().map(Value::to_string).collect();
            let values = values.join(", ");
            let values = head_of(&values, MAX_NOTE);
            self.notes.push(format!("one of: {values}"));
        }
    }

    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.out.insert(key.to_owned(), value.into());
    }

    fn keep(&mut self, keys: &[&str], is_valid: impl Fn(&Value) -> bool) {
        for key in keys {
            if let Some(value) = self.from.get(*key).filter(|value| is_valid(value)) {
                self.set(key, value.clone());
            }
        }
    }

    /// The schema, described by these words and the notes.
    fn described(mut self, words: &str) -> Schema {
        let notes = self.notes.iter().map(|note| format!("({note})"));
        let all = Some(words.to_owned()).filter(|it| !it.is_empty());
        let all: Vec<String> = all.into_iter().chain(notes).collect();
        if !all.is_empty() {
            let all = all.join(" ");
            self.set("description", head_of(&all, MAX_DESCRIPTION));
        }
        self.out
    }
}
