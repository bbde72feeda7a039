//! The check of the tree against the JSON Schema: unknown and duplicate keys, wrong types.
//!
//! It reads only the parts of JSON Schema that schemars generates from the structs in [`super::schema`].
//! Wrong values are reported and left out of the result, and the rest is checked further.

use serde_json::{Map, Value as Json, json};

use super::fault::SettingFault;
use super::size::{self, ByteSize};
use super::tree::{ConfigEntry, ConfigPlace, Node, Value};

/// Characters of a wrong text that a message shows.
const SHOWN: usize = 60;

/// The type of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Number,
    Text,
    List,
    Map,
}

/// The parts of `tree` that fit the schema, as JSON.
pub fn check(schema: &Json, tree: &Node, faults: &mut Vec<SettingFault>) -> Json {
    let mut walk = Walk { schema, faults };
    walk.node(schema, tree, "").unwrap_or_else(|| json!({}))
}

/// The type of a key such as `store.url`.
pub(super) fn kind_of(schema: &Json, key: &str) -> Option<Kind> {
    let mut here = Shape::of(schema, schema);
    for part in key.split('.') {
        here = Shape::of(schema, here.schema.get("properties")?.get(part)?);
    }
    here.kind()
}

/// A schema with its references followed.
#[derive(Clone, Copy)]
pub(super) struct Shape<'a> {
    pub(super) schema: &'a Json,
    /// `null` is a value of it.
    optional: bool,
    /// Its value must not be shown.
    pub(super) secret: bool,
}

impl<'a> Shape<'a> {
    pub(super) fn of(root: &'a Json, schema: &'a Json) -> Self {
        let mut shape = Self {
            schema,
            optional: false,
            secret: false,
        };
        loop {
            if let Some(name) = shape.schema["$ref"].as_str() {
                shape.secret |= name.ends_with("/Secret");
                shape.schema = &root["$defs"][name.rsplit('/').next().unwrap_or(name)];
            } else if let Some(choices) = shape.schema["anyOf"].as_array() {
                let is_null = |choice: &&Json| choice["type"] == "null";
                shape.optional |= choices.iter().any(|choice| is_null(&choice));
                let Some(choice) = choices.iter().find(|choice| !is_null(choice)) else {
                    return shape;
                };
                shape.schema = choice;
            } else {
                let types = shape.schema["type"].as_array();
                shape.optional |= types.is_some_and(|types| types.contains(&json!("null")));
                return shape;
            }
        }
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        let name = match &self.schema["type"] {
            Json::Array(names) => names.iter().find(|name| **name != "null")?,
            name => name,
        };
        Some(match name.as_str() {
            Some("boolean") => Kind::Bool,
            Some("integer") => Kind::Int,
            Some("number") => Kind::Number,
            Some("array") => Kind::List,
            Some("object") => Kind::Map,
            Some("string") => Kind::Text,
            _ if !self.choices().is_empty() => Kind::Text,
            _ => return None,
        })
    }

    /// The only strings that it accepts, if it is an enum.
    fn choices(&self) -> Vec<&'a str> {
        let listed = self.schema["enum"].as_array().into_iter().flatten();
        let documented = self.schema["oneOf"].as_array().into_iter().flatten();
        listed
            .filter_map(Json::as_str)
            .chain(documented.flat_map(|choice| {
                let many = choice["enum"].as_array().into_iter().flatten();
                choice["const"]
                    .as_str()
                    .into_iter()
                    .chain(many.filter_map(Json::as_str))
            }))
            .collect()
    }

    /// What it accepts, in words.
    fn words(&self) -> String {
        let choices = self.choices();
        if !choices.is_empty() {
            return format!("`{}`", choices.join("` or `"));
        }
        match self.kind() {
            Some(Kind::Bool) => "`true` or `false`".into(),
            Some(Kind::Int) => format!("a whole number{}", self.range_words()),
            Some(Kind::Number) => "a number".into(),
            Some(Kind::Text) if self.schema["format"] == "uri" => "a URL".into(),
            Some(Kind::Text) if self.schema["format"] == size::FORMAT => size::EXPECTED.into(),
            Some(Kind::Text) => "a string".into(),
            Some(Kind::List) => "a list".into(),
            Some(Kind::Map) | None => "a mapping of keys".into(),
        }
    }

    fn range_words(&self) -> String {
        let (least, most) = self.range();
        match (least > i64::MIN.into(), most < i64::MAX.into()) {
            (true, true) => format!(" from {least} to {most}"),
            (true, false) => format!(" of at least {least}"),
            (false, _) => String::new(),
        }
    }

    fn range(&self) -> (i128, i128) {
        let (least, most): (i128, i128) = match self.schema["format"].as_str() {
            Some("uint8") => (0, u8::MAX.into()),
            Some("uint16") => (0, u16::MAX.into()),
            Some("uint32") => (0, u32::MAX.into()),
            Some("int32") => (i32::MIN.into(), i32::MAX.into()),
            // Databases and engines store it as i64.
            Some("uint" | "uint64") => (0, i64::MAX.into()),
            _ => (i64::MIN.into(), i64::MAX.into()),
        };
        let bound = |name: &str| self.schema[name].as_i64().map(i128::from);
        (
            bound("minimum").map_or(least, |bound| bound.max(least)),
            bound("maximum").map_or(most, |bound| bound.min(most)),
        )
    }
}

struct Walk<'a> {
    schema: &'a Json,
    faults: &'a mut Vec<SettingFault>,
}

impl Walk<'_> {
    /// The valid part of the node; `None` leaves the default.
    fn node(&mut self, schema: &Json, node: &Node, path: &str) -> Option<Json> {
        // Borrowed separately from `self`, which is borrowed mutably below.
        let root = self.schema;
        let shape = Shape::of(root, schema);
        let fitting = match (shape.kind()?, &node.value) {
            (Kind::Map, Value::Map(entries)) => return self.map(shape, node, entries, path),
            // A section with all its keys commented out.
            (Kind::Map | Kind::List, Value::Null) => return None,
            (_, Value::Null) if shape.optional => return None,
            (Kind::List, Value::List(items)) => return Some(self.list(shape, items, path)),
            (Kind::Bool, Value::Bool(value)) => Some(json!(value)),
            (Kind::Int, Value::Int(value)) => {
                let (least, most) = shape.range();
                let number = i64::try_from(*value).ok();
                number
                    .filter(|_| (least..=most).contains(value))
                    .map(Json::from)
            }
            (Kind::Number, Value::Int(value)) => Some(json!(*value as f64)),
            (Kind::Number, Value::Float(value)) if value.is_finite() => Some(json!(value)),
            (Kind::Text, Value::Text(text)) => text_fits(shape, text).then(|| json!(text)),
            _ => None,
        };
        if fitting.is_none() {
            self.misfit(shape, node, path);
        }
        fitting
    }

    fn misfit(&mut self, shape: Shape<'_>, node: &Node, path: &str) {
        let mut fault =
            SettingFault::new(&node.place, path, seen(node, shape.secret), shape.words());
        let in_file = matches!(node.place, ConfigPlace::File { .. });
        fault.hint = match (shape.kind(), &node.value) {
            (Some(Kind::Text), Value::Text(text)) => nearest(text, &shape.choices())
                .filter(|_| !shape.secret)
                .map(|near| format!("did you mean `{near}`?")),
            (Some(Kind::Text), Value::Bool(_) | Value::Int(_) | Value::Float(_)) if in_file => {
                Some("put it in quotes".into())
            }
            (Some(Kind::Bool | Kind::Int | Kind::Number), Value::Text(text))
                if in_file
                    && (["true", "false"].contains(&text.as_str())
                        || text.parse::<f64>().is_ok()) =>
            {
                Some("remove the quotes".into())
            }
            (Some(Kind::List), Value::Text(_)) => {
                Some("write it as `- item` lines or `[item]`".into())
            }
            _ => None,
        };
        self.faults.push(fault);
    }

    fn list(&mut self, shape: Shape<'_>, items: &[Node], path: &str) -> Json {
        let fitting = items
            .iter()
            .enumerate()
            .filter_map(|(at, item)| {
                self.node(&shape.schema["items"], item, &join(path, &at.to_string()))
            })
            .collect();
        Json::Array(fitting)
    }

    fn map(
        &mut self,
        shape: Shape<'_>,
        node: &Node,
        entries: &[ConfigEntry],
        path: &str,
    ) -> Option<Json> {
        let mut fitting = Map::new();
        let mut seen: Vec<&ConfigEntry> = Vec::new();
        for entry in entries {
            let here = join(path, &entry.key);
            if let Some(first) = seen.iter().find(|first| first.key == entry.key) {
                self.faults.push(
                    SettingFault::new(&entry.place, &here, "a duplicate key", "each key once")
                        .hint(format!("the first is at {}", first.place)),
                );
                continue;
            }
            seen.push(entry);
            let known = shape.schema["properties"].get(&entry.key);
            let free = shape
                .schema
                .get("additionalProperties")
                .filter(|free| free.is_object());
            match known.or(free) {
                Some(schema) => {
                    if let Some(value) = self.node(schema, &entry.node, &here) {
                        fitting.insert(entry.key.clone(), value);
                    }
                }
                None => self.unknown(shape, entry, path),
            }
        }
        let required = shape.schema["required"].as_array().into_iter().flatten();
        let missing: Vec<&str> = required
            .filter_map(Json::as_str)
            .filter(|name| !seen.iter().any(|entry| entry.key == *name))
            .collect();
        for name in &missing {
            let fault = SettingFault::new(
                &node.place,
                path,
                "an incomplete section",
                format!("the key `{name}`"),
            );
            self.faults.push(fault);
        }
        // A section without a required key cannot be deserialised; its fault is reported already.
        let whole = shape.schema["required"].as_array().is_none_or(|required| {
            required
                .iter()
                .filter_map(Json::as_str)
                .all(|name| fitting.contains_key(name))
        });
        whole.then_some(Json::Object(fitting))
    }

    fn unknown(&mut self, shape: Shape<'_>, entry: &ConfigEntry, path: &str) {
        let mut known: Vec<&str> = shape.schema["properties"]
            .as_object()
            .map(|properties| properties.keys().map(String::as_str).collect())
            .unwrap_or_default();
        known.sort_unstable();
        let expected = match known.is_empty() {
            true => "another key: AgentMine sets this one itself".to_owned(),
            false => format!("one of `{}`", known.join("`, `")),
        };
        let seen = format!("unknown key `{}`", cut(&entry.key));
        let mut fault = SettingFault::new(&entry.place, path, seen, expected);
        fault.hint = nearest(&entry.key, &known).map(|near| format!("did you mean `{near}`?"));
        self.faults.push(fault);
    }
}

fn text_fits(shape: Shape<'_>, text: &str) -> bool {
    let choices = shape.choices();
    if shape.schema["format"] == "uri" {
        return url::Url::parse(text).is_ok();
    }
    if shape.schema["format"] == size::FORMAT {
        return text.parse::<ByteSize>().is_ok();
    }
    choices.is_empty() || choices.contains(&text)
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// A value in words. Neither a secret nor what may be a URL with a password is shown.
fn seen(node: &Node, secret: bool) -> String {
    let what = match &node.value {
        Value::Null => return "nothing".into(),
        Value::List(_) => return "a list".into(),
        Value::Map(_) => return "a mapping of keys".into(),
        Value::Bool(value) => format!("`{value}`"),
        Value::Int(value) => format!("the number {value}"),
        Value::Float(value) => format!("the number {value}"),
        Value::Text(text) if text.contains('@') => "a string that is not shown".into(),
        Value::Text(text) => format!("`{}`", cut(text)),
    };
    if secret {
        "a value that is not shown".into()
    } else {
        what
    }
}

/// A text for a message: on one line, and capped.
pub(super) fn cut(text: &str) -> String {
    let mut short: String = text
        .chars()
        .take(SHOWN)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(SHOWN).is_some() {
        short.push('…');
    }
    short
}

/// The nearest of the known names, if it is similar enough.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |known: &&&str| strsim::damerau_levenshtein(name, known);
    let best = *known.iter().min_by_key(distance)?;
    let near = strsim::damerau_levenshtein(name, best) <= 1 + best.len() / 4;
    (near || strsim::jaro_winkler(name, best) > 0.9).then_some(best)
}
