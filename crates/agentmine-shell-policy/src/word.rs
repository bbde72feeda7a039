//! Words of a script, and what is known of their values before it runs.

use std::collections::HashMap;

use crate::script::Unclear;

/// Longest value of a variable that is followed, in bytes: variables in variables double it.
const MAX_VALUE: usize = 4096;
/// Longest word that is followed, in bytes.
const MAX_WORD: usize = 128 * 1024;

/// A word as it is written.
#[derive(Debug, Default, Clone)]
pub(crate) struct Word {
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
pub(crate) enum Part {
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
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Value {
    /// What is known of it; the rest is left out.
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

    pub(crate) fn is_known(&self) -> bool {
        self.unknown_at.is_none()
    }

    /// Whether nothing is known of its beginning, so that it may be an option.
    pub(crate) fn begins_unknown(&self) -> bool {
        self.unknown_at == Some(0)
            || (self.pattern && self.text.chars().all(|c| matches!(c, '*' | '?')))
    }
}

impl Word {
    pub(crate) fn unknown() -> Self {
        Self {
            parts: vec![Part::Unknown],
        }
    }

    pub(crate) fn quoted(text: String) -> Self {
        Self {
            parts: vec![Part::Text { text, quoted: true }],
        }
    }

    pub(crate) fn push_unquoted(&mut self, text: &str) {
        self.push_text(text, false);
    }

    pub(crate) fn push_quoted(&mut self, text: &str) {
        self.push_text(text, true);
    }

    pub(crate) fn push_part(&mut self, part: Part) {
        self.parts.push(part);
    }

    /// `$name` and `${name}`, where that is all.
    pub(crate) fn push_parameter(&mut self, name: &str, plain: bool, quoted: bool) {
        match name {
            "" => self.push_quoted("$"),
            // These are numbers.
            "?" | "#" | "$" | "!" if plain => self.push_quoted("0"),
            name if plain && is_name(name) => self.parts.push(Part::Variable {
                name: name.to_owned(),
                quoted,
            }),
            _ => self.parts.push(Part::Unknown),
        }
    }

    /// Reads text with its quotes up to a `$(`, or all of it; how many bytes that is. `double` says
    /// whether double quotes are open at its beginning and its end.
    pub(crate) fn push_raw(&mut self, raw: &str, double: &mut bool) -> Result<usize, Unclear> {
        let mut chars = raw.chars();
        let push = |word: &mut Self, c: char, quoted| {
            word.push_text(c.encode_utf8(&mut [0; 4]), quoted);
        };
        while let Some(c) = chars.next() {
            match c {
                '"' => {
                    *double = !*double;
                    self.push_quoted("");
                }
                '\'' if !*double => {
                    self.push_quoted("");
                    for c in chars.by_ref().take_while(|c| *c != '\'') {
                        push(self, c, true);
                    }
                }
                '\\' => match chars.next() {
                    Some('\n') => {}
                    Some(c) if !*double || matches!(c, '$' | '`' | '"' | '\\') => {
                        push(self, c, true)
                    }
                    other => {
                        self.push_quoted("\\");
                        other.into_iter().for_each(|c| push(self, c, true));
                    }
                },
                '`' => return Err(Unclear("there are backticks that cannot be followed")),
                '$' if chars.as_str().starts_with('(') => {
                    return Ok(raw.len() - chars.as_str().len() - 1);
                }
                '$' if chars.as_str().starts_with('{') => {
                    return Err(Unclear("a substitution cannot be followed"));
                }
                '$' if chars.as_str().starts_with('[') => self.push_part(Part::Unknown),
                '$' => self.push_quoted("$"),
                c => push(self, c, *double),
            }
        }
        Ok(raw.len())
    }

    fn push_text(&mut self, text: &str, quoted: bool) {
        match self.parts.last_mut() {
            Some(Part::Text {
                text: last,
                quoted: same,
            }) if *same == quoted => last.push_str(text),
            _ => self.parts.push(Part::Text {
                text: text.to_owned(),
                quoted,
            }),
        }
    }

    /// Whether nothing in it comes from another command.
    pub(crate) fn is_text(&self) -> bool {
        !self.parts.iter().any(|part| matches!(part, Part::Unknown))
    }

    /// The text, if nothing in it is expanded.
    pub(crate) fn literal(&self) -> Option<String> {
        let texts = self.parts.iter().map(|part| match part {
            Part::Text { text, .. } => Some(text.as_str()),
            Part::Variable { .. } | Part::Unknown => None,
        });
        texts.collect()
    }

    /// `NAME=value`, `NAME+=value`, `NAME[…]=value`, `NAME=(…)`: only the first is followed.
    pub(crate) fn assignment(&self) -> Option<(String, Self)> {
        let Some(Part::Text {
            text,
            quoted: false,
        }) = self.parts.first()
        else {
            return None;
        };
        let end = text.find(['=', '+', '['])?;
        let (name, rest) = text.split_at(end);
        let value = match rest.strip_prefix('=') {
            Some(value) if !value.starts_with('(') => value,
            _ if rest.contains('=') || rest.starts_with('[') => {
                return is_name(name).then(|| (name.to_owned(), Self::unknown()));
            }
            _ => return None,
        };
        let mut word = Self::default();
        word.push_unquoted(value);
        word.parts.extend(self.parts[1..].iter().cloned());
        is_name(name).then(|| (name.to_owned(), word))
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// What is known of the variables of a script.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    known: HashMap<String, Option<String>>,
    /// Nothing is known any more of any.
    lost: bool,
    /// Words are not split where they usually are.
    split_changed: bool,
}

impl Variables {
    /// Notes an assignment. With a second value it is unknown which of them holds where.
    pub(crate) fn assign(&mut self, name: &str, value: &Word) {
        self.split_changed |= name == "IFS";
        let value = self.one(value);
        let value = Some(value)
            .filter(|value| value.is_known() && value.text.len() <= MAX_VALUE)
            .map(|value| value.text);
        self.known
            .entry(name.to_owned())
            .and_modify(|known| {
                if *known != value {
                    *known = None;
                }
            })
            .or_insert(value);
    }

    pub(crate) fn forget(&mut self, name: &str) {
        self.known.insert(name.to_owned(), None);
    }

    pub(crate) fn forget_all(&mut self) {
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
    pub(crate) fn one(&self, word: &Word) -> Value {
        let fields = self.fields(word, false);
        fields.open.unwrap_or_default()
    }

    /// The values of a word: none, one or, where a variable is split, several.
    pub(crate) fn expand(&self, word: &Word) -> Vec<Value> {
        let fields = self.fields(word, true);
        fields.done.into_iter().chain(fields.open).collect()
    }

    fn fields(&self, word: &Word, split: bool) -> Fields {
        let mut fields = Fields::default();
        for part in &word.parts {
            match part {
                Part::Text { text, quoted } => fields.text(text, *quoted),
                Part::Variable { name, quoted } => match self.get(name) {
                    Some(text) if *quoted || !split => fields.text(text, true),
                    Some(text) if !self.split_changed => fields.split(text),
                    _ => fields.unknown(),
                },
                Part::Unknown => fields.unknown(),
            }
        }
        fields
    }
}

#[derive(Default)]
struct Fields {
    done: Vec<Value>,
    open: Option<Value>,
}

impl Fields {
    fn open(&mut self) -> &mut Value {
        self.open.get_or_insert_default()
    }

    fn text(&mut self, text: &str, quoted: bool) {
        let value = self.open();
        if value.text.len() + text.len() > MAX_WORD {
            return self.unknown();
        }
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
        for (at, piece) in text.split_whitespace().enumerate() {
            if at > 0 {
                self.done.extend(self.open.take());
            }
            self.text(piece, false);
        }
        if text.ends_with(char::is_whitespace) {
            self.done.extend(self.open.take());
        }
    }
}
