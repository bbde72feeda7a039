//! Words of a script, and what is known of their values before it runs.

use std::collections::HashMap;

/// Longest value of a variable that is followed, in bytes: variables in variables double it.
const MAX_VALUE: usize = 4096;
/// Longest word that is followed, in bytes.
const MAX_WORD: usize = 128 * 1024;

/// A word as it stands.
#[derive(Debug, Default, Clone)]
pub(super) struct Word {
    parts: Vec<Part>,
    quotes: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Part {
    Text {
        text: String,
        quoted: bool,
    },
    Variable {
        name: String,
        quoted: bool,
    },
    /// A substitution, or an expansion that is not followed.
    Unknown,
}

/// What a word will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Value {
    /// What is known of it; what is not is left out.
    pub(super) text: String,
    /// Where in `text` the first thing stands that is not known.
    pub(super) unknown_at: Option<usize>,
    /// The shell may put other names in its place.
    pub(super) pattern: bool,
}

impl Value {
    pub(super) fn known(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            unknown_at: None,
            pattern: false,
        }
    }

    pub(super) fn unknown() -> Self {
        Self {
            text: String::new(),
            unknown_at: Some(0),
            pattern: false,
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.unknown_at.is_none()
    }

    /// Whether nothing is known of how it begins, so that it may be an option.
    pub(super) fn begins_unknown(&self) -> bool {
        self.unknown_at == Some(0)
            || (self.pattern && self.text.chars().all(|c| matches!(c, '*' | '?')))
    }
}

impl Word {
    pub(super) fn unknown() -> Self {
        Self {
            parts: vec![Part::Unknown],
            quotes: false,
        }
    }

    pub(super) fn quoted(text: String) -> Self {
        Self {
            parts: vec![Part::Text { text, quoted: true }],
            quotes: true,
        }
    }

    pub(super) fn open_quotes(&mut self) {
        self.quotes = true;
        self.push_text(None, true);
    }

    pub(super) fn push(&mut self, c: char) {
        self.push_text(Some(c), false);
    }

    pub(super) fn push_quoted(&mut self, c: char) {
        self.quotes = true;
        self.push_text(Some(c), true);
    }

    pub(super) fn push_part(&mut self, part: Part) {
        self.parts.push(part);
    }

    fn push_text(&mut self, c: Option<char>, quoted: bool) {
        match self.parts.last_mut() {
            Some(Part::Text { text, quoted: last }) if *last == quoted => text.extend(c),
            _ => self.parts.push(Part::Text {
                text: c.into_iter().collect(),
                quoted,
            }),
        }
    }

    /// The text, if nothing in it is expanded.
    pub(super) fn literal(&self) -> Option<String> {
        let texts = self.parts.iter().map(|part| match part {
            Part::Text { text, .. } => Some(text.as_str()),
            Part::Variable { .. } | Part::Unknown => None,
        });
        texts.collect()
    }

    /// The text, if nothing in it is quoted or expanded.
    pub(super) fn literal_unquoted(&self) -> Option<String> {
        self.literal().filter(|_| !self.quotes)
    }

    /// `NAME=value`, `NAME+=value`, `NAME[…]=value`: what the latter two make is not followed.
    pub(super) fn assignment(&self) -> Option<(String, Self)> {
        let (first, rest) = self.parts.split_first()?;
        let Part::Text {
            text,
            quoted: false,
        } = first
        else {
            return None;
        };
        let (left, right) = text.split_once('=')?;
        let end = left.find(['+', '[']).unwrap_or(left.len());
        let (name, suffix) = left.split_at(end);
        if name.is_empty()
            || name.starts_with(|c: char| c.is_ascii_digit())
            || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            || !(suffix.is_empty() || suffix == "+" || suffix.starts_with('['))
        {
            return None;
        }
        if !suffix.is_empty() {
            return Some((name.to_owned(), Self::unknown()));
        }
        let mut value = Self {
            parts: Vec::new(),
            quotes: self.quotes,
        };
        value.parts.push(Part::Text {
            text: right.to_owned(),
            quoted: false,
        });
        value.parts.extend(rest.iter().cloned());
        Some((name.to_owned(), value))
    }

    /// The variable that `${name=…}` or `${name:=…}` sets, given what is between the braces.
    pub(super) fn assigned_within(&self) -> Option<(String, Self)> {
        let Some(Part::Text {
            text,
            quoted: false,
        }) = self.parts.first()
        else {
            return None;
        };
        let (name, _) = text.split_once('=')?;
        let name = name.trim_end_matches(':').to_owned();
        Some((name, Self::unknown()))
    }
}

/// What is known of the variables of a script.
#[derive(Debug, Default)]
pub(super) struct Variables {
    known: HashMap<String, Option<String>>,
    /// Nothing is known any more of any.
    lost: bool,
    /// Words are not split where they usually are.
    split_changed: bool,
}

impl Variables {
    /// Notes an assignment. A second value makes it unknown which of them holds where.
    pub(super) fn assign(&mut self, name: &str, value: &Word) {
        if name == "IFS" {
            self.split_changed = true;
        }
        let value = self.one(value);
        let value =
            Some(value.text).filter(|text| value.unknown_at.is_none() && text.len() <= MAX_VALUE);
        self.known
            .entry(name.to_owned())
            .and_modify(|known| {
                if *known != value {
                    *known = None;
                }
            })
            .or_insert(value);
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.known.insert(name.to_owned(), None);
    }

    pub(super) fn forget_all(&mut self) {
        self.lost = true;
    }

    fn get(&self, name: &str) -> Option<&str> {
        match self.known.get(name) {
            _ if self.lost => None,
            Some(value) => value.as_deref(),
            None if name == "HOME" => Some("~"),
            None => None,
        }
    }

    /// The value of a word that is not split, as in an assignment.
    pub(super) fn one(&self, word: &Word) -> Value {
        let mut values = Fields::default();
        for part in &word.parts {
            match part {
                Part::Text { text, quoted } => values.text(text, *quoted),
                Part::Variable { name, .. } => match self.get(name) {
                    Some(text) => values.text(text, true),
                    None => values.unknown(),
                },
                Part::Unknown => values.unknown(),
            }
        }
        values.open.unwrap_or_else(|| Value::known(""))
    }

    /// The values of a word: none, one or, where a variable is split, several.
    pub(super) fn expand(&self, word: &Word) -> Vec<Value> {
        let mut fields = Fields::default();
        for part in &word.parts {
            match part {
                Part::Text { text, quoted } => fields.text(text, *quoted),
                Part::Variable { name, quoted } => match self.get(name) {
                    Some(text) if *quoted => fields.text(text, true),
                    Some(text) if !self.split_changed => fields.split(text),
                    _ => fields.unknown(),
                },
                Part::Unknown => fields.unknown(),
            }
        }
        fields.done.extend(fields.open);
        fields.done
    }
}

#[derive(Default)]
struct Fields {
    done: Vec<Value>,
    open: Option<Value>,
}

impl Fields {
    fn open(&mut self) -> &mut Value {
        self.open.get_or_insert_with(|| Value::known(""))
    }

    fn text(&mut self, text: &str, quoted: bool) {
        if self.open().text.len() + text.len() > MAX_WORD {
            return self.unknown();
        }
        let value = self.open();
        if !quoted {
            value.pattern |= text.contains(['*', '?', '[', '{']);
            let braces = text.find('{').filter(|at| !text[*at..].starts_with("{}"));
            if let (Some(at), None) = (braces, value.unknown_at) {
                value.unknown_at = Some(value.text.len() + at);
            }
        }
        value.text.push_str(text);
    }

    fn unknown(&mut self) {
        let value = self.open();
        value.unknown_at.get_or_insert(value.text.len());
    }

    fn split(&mut self, text: &str) {
        if text.starts_with(char::is_whitespace) {
            self.done.extend(self.open.take());
        }
        let mut first = true;
        for piece in text.split_whitespace() {
            if !first {
                self.done.extend(self.open.take());
            }
            self.text(piece, false);
            first = false;
        }
        if text.ends_with(char::is_whitespace) {
            self.done.extend(self.open.take());
        }
    }
}
