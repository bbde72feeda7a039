//! Reading the keys of one entry: each at most once, each of its kind, every fault told.

use std::collections::BTreeMap;
use std::path::Path;

use crate::ConfigFault;

use super::json::{Node, Prop, Value};

/// Faults of one file that are told one by one. A hostile file may have any number.
const MOST_FAULTS: usize = 100;
/// The longest part of a foreign text that a message shows.
const SHOWN: usize = 60;

/// The faults of one file, in the order in which they were found.
pub(super) struct Faults<'a> {
    file: &'a Path,
    found: Vec<ConfigFault>,
    more: usize,
}

impl<'a> Faults<'a> {
    pub(super) fn new(file: &'a Path) -> Self {
        Self {
            file,
            found: Vec::new(),
            more: 0,
        }
    }

    pub(super) fn push(
        &mut self,
        line: Option<usize>,
        field: &str,
        detail: impl Into<String>,
        server: Option<&str>,
    ) {
        if self.found.len() == MOST_FAULTS {
            self.more += 1;
            return;
        }
        self.found.push(ConfigFault {
            file: self.file.to_owned(),
            line,
            field: field.to_owned(),
            detail: detail.into(),
            server: server.map(str::to_owned),
        });
    }

    /// All of them, by line.
    pub(super) fn into_vec(mut self) -> Vec<ConfigFault> {
        self.found.sort_by_key(|fault| fault.line);
        if self.more > 0 {
            self.found.push(ConfigFault {
                file: self.file.to_owned(),
                line: None,
                field: String::new(),
                detail: format!("and {} more faults", self.more),
                server: None,
            });
        }
        self.found
    }
}

/// The keys of one entry.
pub(super) struct Fields<'a, 'f> {
    /// The server's name.
    name: &'a str,
    path: String,
    props: BTreeMap<&'a str, &'a Prop>,
    /// Keys that were meant by others that are nearly the same.
    meant: Vec<String>,
    faults: &'a mut Faults<'f>,
    good: bool,
}

impl<'a, 'f> Fields<'a, 'f> {
    /// The keys of `props` that are `known`; the others are told with what `elsewhere` says of them.
    pub(super) fn new(
        name: &'a str,
        props: &'a [Prop],
        known: &[&str],
        elsewhere: &[(&str, &str)],
        faults: &'a mut Faults<'f>,
    ) -> Self {
        let mut fields = Self {
            name,
            path: format!("mcpServers.{name}"),
            props: BTreeMap::new(),
            meant: Vec::new(),
            faults,
            good: true,
        };
        for prop in props {
            let key = prop.key.as_str();
            if let Some(first) = fields.props.get(key) {
                let first = first.line;
                fields.fault(
                    prop.line,
                    key,
                    format!("written twice, first on line {first}"),
                );
            } else if known.contains(&key) {
                fields.props.insert(key, prop);
            } else if let Some((_, hint)) = elsewhere.iter().find(|(name, _)| *name == key) {
                fields.fault(prop.line, key, format!("not a key here: {hint}"));
            } else {
                fields.meant.extend(near(key, known).map(str::to_owned));
                fields.fault(
                    prop.line,
                    key,
                    format!("unknown key{}", nearest(key, known)),
                );
            }
        }
        fields
    }

    /// Whether this key is there, or one that was meant to be it and is told of already.
    pub(super) fn meant(&self, key: &str) -> bool {
        self.props.contains_key(key) || self.meant.iter().any(|meant| meant == key)
    }

    /// Whether no fault was found so far.
    pub(super) fn good(&self) -> bool {
        self.good
    }

    /// Leaves the entry out. `field` is a key of ours, or a foreign one, followed by what stands in it.
    pub(super) fn fault(&mut self, line: usize, field: &str, detail: impl Into<String>) {
        self.good = false;
        let path = self.field(field);
        self.faults.push(Some(line), &path, detail, Some(self.name));
    }

    /// Tells of something that does not leave the entry out.
    pub(super) fn remark(&mut self, line: usize, field: &str, detail: impl Into<String>) {
        let path = self.field(field);
        self.faults.push(Some(line), &path, detail, None);
    }

    fn field(&self, field: &str) -> String {
        match field {
            "" => self.path.clone(),
            field => format!("{}.{}", self.path, shown(field)),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Prop> {
        self.props.get(key).copied()
    }

    fn wrong(&mut self, key: &str, node: &Node, expected: &str) {
        self.fault(
            node.line,
            key,
            format!("{}, expected {expected}", node.kind()),
        );
    }

    pub(super) fn boolean(&mut self, key: &str) -> Option<bool> {
        let node = &self.get(key)?.node;
        if let Value::Bool(value) = node.value {
            return Some(value);
        }
        self.wrong(key, node, "`true` or `false`");
        None
    }

    pub(super) fn text(&mut self, key: &str) -> Option<&'a str> {
        let node = &self.get(key)?.node;
        if let Value::Text(text) = &node.value {
            return Some(text);
        }
        self.wrong(key, node, "a text");
        None
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, key: &str) -> Option<Vec<String>> {
        let node = &self.get(key)?.node;
        let Value::List(items) = &node.value else {
            self.wrong(key, node, "a list of texts");
            return None;
        };
        let mut texts = Vec::new();
        for (index, item) in items.iter().enumerate() {
            match &item.value {
                Value::Text(text) if text.contains('\0') => {
                    self.fault(item.line, &format!("{key}[{index}]"), "it has a NUL in it");
                }
                Value::Text(text) => texts.push(text.clone()),
                _ => self.wrong(&format!("{key}[{index}]"), item, "a text"),
            }
        }
        Some(texts)
    }

    /// The properties of an object, each key once.
    pub(super) fn object(&mut self, key: &str) -> Vec<&'a Prop> {
        let Some(prop) = self.get(key) else {
            return Vec::new();
        };
        let Value::Map(props) = &prop.node.value else {
            self.wrong(key, &prop.node, "an object");
            return Vec::new();
        };
        let mut seen: BTreeMap<&str, &'a Prop> = BTreeMap::new();
        for prop in props {
            if let Some(first) = seen.get(prop.key.as_str()) {
                let first = first.line;
                self.fault(
                    prop.line,
                    &format!("{key}.{}", prop.key),
                    format!("written twice, first on line {first}"),
                );
            } else {
                seen.insert(&prop.key, prop);
            }
        }
        seen.into_values().collect()
    }

    /// The properties of an object whose values are texts.
    pub(super) fn text_map(&mut self, key: &str) -> Vec<(&'a Prop, &'a str)> {
        let mut texts = Vec::new();
        for prop in self.object(key) {
            match &prop.node.value {
                Value::Text(text) => texts.push((prop, text.as_str())),
                _ => {
                    let field = format!("{key}.{}", prop.key);
                    self.wrong(&field, &prop.node, "a text; put it in quotes");
                }
            }
        }
        texts
    }
}

/// `; did you mean …` for a key that is nearly one of `known`, else all of them.
pub(super) fn nearest(key: &str, known: &[&str]) -> String {
    match near(key, known) {
        Some(name) => format!("; did you mean `{name}`?"),
        None => format!("; expected one of `{}`", known.join("`, `")),
    }
}

fn near<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let lower = key.to_lowercase();
    let distances = known
        .iter()
        .map(|name| (strsim::osa_distance(&lower, &name.to_lowercase()), *name));
    let (distance, name) = distances.min()?;
    (distance <= 2.max(name.len() / 3)).then_some(name)
}

/// A foreign text in a message: short, on one line, without control characters.
pub(super) fn shown(text: &str) -> String {
    let strange = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut out: String = text
        .chars()
        .take(SHOWN)
        .map(|c| if strange(c) { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(SHOWN).is_some() {
        out.push('…');
    }
    out
}
