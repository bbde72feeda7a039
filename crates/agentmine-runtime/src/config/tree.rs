//! Values that know where they came from.

use std::fmt;
use std::sync::Arc;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigPlace {
    /// Nowhere: it is a default.
    Default,
    /// In a file, counted from 1.
    File {
        /// The file.
        name: Arc<str>,
        /// 0 for the file as a whole.
        line: u64,
        /// In characters.
        column: u64,
    },
    /// In an environment variable.
    Env(&'static str),
    /// In a flag of the command line.
    Flag(String),
}

impl fmt::Display for ConfigPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("defaults"),
            Self::File { name, line: 0, .. } => f.write_str(name),
            Self::File { name, line, column } => write!(f, "{name}:{line}:{column}"),
            Self::Env(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A value and its place.
#[derive(Debug, Clone)]
pub struct Node {
    /// Where it begins.
    pub place: ConfigPlace,
    /// The value.
    pub value: Value,
}

/// A value of YAML, and so of JSON.
#[derive(Debug, Clone)]
pub enum Value {
    /// Nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// Another number.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// The entries in their order, duplicate keys included, so that these can be reported.
    Map(Vec<ConfigEntry>),
}

/// One entry of a map.
#[derive(Debug, Clone)]
pub struct ConfigEntry {
    /// The key.
    pub key: String,
    /// Where the key is.
    pub place: ConfigPlace,
    /// The value.
    pub node: Node,
}

impl Node {
    /// A map without entries.
    pub(super) fn empty(place: ConfigPlace) -> Self {
        Self {
            place,
            value: Value::Map(Vec::new()),
        }
    }

    /// The entry's node, if this is a map that has it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else {
            return None;
        };
        let entry = entries.iter().find(|entry| entry.key == key)?;
        Some(&entry.node)
    }

    /// The place of `path`, or of the nearest section around it that was written.
    #[must_use]
    pub fn place_of(&self, path: &str) -> ConfigPlace {
        let mut here = self;
        for key in path.split('.') {
            let next = match &here.value {
                Value::List(items) => key.parse().ok().and_then(|at: usize| items.get(at)),
                _ => here.get(key),
            };
            match next {
                Some(node) => here = node,
                None => break,
            }
        }
        here.place.clone()
    }

    /// Sets `path` and creates the sections on the way. Anything else than a map on the way is left as it
    /// is: it is reported as a fault of the file.
    pub(super) fn set(&mut self, path: &str, node: Node) {
        let (key, rest) = path
            .split_once('.')
            .map_or((path, None), |(k, r)| (k, Some(r)));
        if matches!(self.value, Value::Null) {
            self.value = Value::Map(Vec::new());
        }
        let Value::Map(entries) = &mut self.value else {
            return;
        };
        let index = match entries.iter().position(|entry| entry.key == key) {
            Some(index) => index,
            None => {
                entries.push(ConfigEntry {
                    key: key.to_owned(),
                    place: node.place.clone(),
                    node: Self::empty(node.place.clone()),
                });
                entries.len() - 1
            }
        };
        let entry = &mut entries[index];
        match rest {
            Some(rest) => entry.node.set(rest, node),
            None => entry.node = node,
        }
    }
}

/// Reads YAML.
///
/// # Errors
/// A place and a message, which contains no part of the text.
pub fn parse(name: &Arc<str>, text: &str) -> Result<Node, (ConfigPlace, String)> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        strict_booleans: true,
    };
    let raw: Spanned<Raw> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let place = error.location().unwrap_or(serde_saphyr::Location::UNKNOWN);
            let message = error.without_snippet().to_string();
            (place_in(name, place), message)
        })?;
    Ok(node(name, raw))
}

fn place_in(name: &Arc<str>, location: serde_saphyr::Location) -> ConfigPlace {
    ConfigPlace::File {
        name: name.clone(),
        line: location.line(),
        column: location.column(),
    }
}

/// A value as the parser returns it.
#[derive(Debug)]
enum Raw {
    Scalar(Value),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

fn node(name: &Arc<str>, raw: Spanned<Raw>) -> Node {
    let value = match raw.value {
        Raw::Scalar(value) => value,
        Raw::List(items) => Value::List(items.into_iter().map(|item| node(name, item)).collect()),
        Raw::Map(entries) => Value::Map(
            entries
                .into_iter()
                .map(|(key, value)| ConfigEntry {
                    place: place_in(name, key.referenced),
                    key: key.value,
                    node: node(name, value),
                })
                .collect(),
        ),
    };
    Node {
        place: place_in(name, raw.referenced),
        value,
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Null))
    }

    fn visit_none<E: de::Error>(self) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Int(value.into())))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Int(value.into())))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Int(value)))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Int(
            i128::try_from(value).unwrap_or(i128::MAX),
        )))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Float(value)))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Text(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Raw::Map(map))
    }
}
