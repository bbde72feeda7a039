//! The values of words and variables, as far as they are known before a script runs.

use std::collections::HashMap;

/// Longest value of a variable that is followed, in bytes: variables in variables double it.
const MAX_VALUE: usize = 4096;

/// What a word will be.
#[derive(Debug, Default, Clone)]
pub(crate) struct Value {
    /// What is known of it; the rest is ignored.
    pub(crate) text: String,
    /// The place in `text` of the first thing that is not known.
    pub(crate) unknown_at: Option<usize>,
    /// The shell may put other names in its place.
    pub(crate) pattern: bool,
}

impl Value {
    pub(crate) fn known(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    pub(crate) fn unknown() -> Self {
        Self {
            unknown_at: Some(0),
            ..Self::default()
        }
    }

    /// The same with another text, such as a part of it.
    pub(crate) fn with(&self, text: &str) -> Self {
        Self {
            text: text.to_owned(),
            ..self.clone()
        }
    }

    pub(crate) fn is_known(&self) -> bool {
        self.unknown_at.is_none()
    }

    /// Whether nothing is known of its beginning, so that it may be an option.
    pub(crate) fn begins_unknown(&self) -> bool {
        self.unknown_at == Some(0)
            || (self.pattern && self.text.chars().all(|c| matches!(c, '*' | '?')))
    }

    /// Adds text in which the shell expands patterns and braces.
    pub(crate) fn push_unquoted(&mut self, text: &str) {
        self.pattern |= text.contains(['*', '?', '[', '{']);
        let brace = text.find('{').filter(|at| !text[*at..].starts_with("{}"));
        if let Some(at) = brace {
            self.unknown_at.get_or_insert(self.text.len() + at);
        }
        self.text.push_str(text);
    }

    pub(crate) fn push_unknown(&mut self) {
        self.unknown_at.get_or_insert(self.text.len());
    }
}

/// What is known of the variables of a script, wherever it assigns them.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    known: HashMap<String, Option<String>>,
    /// A script that is not known may have assigned any of them.
    pub(crate) lost: bool,
}

impl Variables {
    /// Notes an assignment. With a second value it is unknown which of them holds where.
    pub(crate) fn assign(&mut self, name: &str, value: Value) {
        let value = (value.is_known() && value.text.len() <= MAX_VALUE).then_some(value.text);
        let known = self.known.entry(name.to_owned());
        let known = known.or_insert_with(|| value.clone());
        if *known != value {
            *known = None;
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        match self.known.get(name) {
            _ if self.lost => None,
            Some(value) => value.as_deref(),
            None => (name == "HOME").then_some("~"),
        }
    }

    /// Whether words are split where they usually are.
    pub(crate) fn split_usually(&self) -> bool {
        !self.known.contains_key("IFS")
    }
}

/// Whether a list names a word.
pub(crate) fn listed(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|item| item == word)
}

/// Whether a name is the one that a pattern gives, which may end in `*`.
pub(crate) fn names(pattern: &str, name: &str) -> bool {
    let prefix = pattern.strip_suffix('*');
    prefix.map_or(pattern == name, |prefix| name.starts_with(prefix))
}

/// The rows of a table, with their fields between bars.
pub(crate) fn rows<const N: usize>(table: &str) -> Vec<[&str; N]> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    rows.filter_map(|row| row.try_into().ok()).collect()
}

/// The letters of `-abc`.
pub(crate) fn short_options(text: &str) -> &str {
    let letters = text.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    letters.unwrap_or_default()
}

/// A program's name without its folders.
pub(crate) fn base_name(program: &str) -> &str {
    let trimmed = program.trim_end_matches('/');
    trimmed.rsplit('/').next().unwrap_or(trimmed)
}
