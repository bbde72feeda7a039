//! The values of a word, and the scripts that its substitutions run.
//!
//! The parser finds where words begin and end. What is in them is read here from their source, since the
//! parser follows substitutions only two levels deep, and neither in arithmetic nor in here-documents.

use crate::parse::{Parser, Unclear};
use crate::value::{Value, Variables};

/// How a text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Words of a command: unquoted variables are split.
    Words,
    /// One word, as in an assignment.
    One,
    /// As in a here-document: only `$`, backticks and backslashes mean something.
    Document,
}

/// What a text expands to.
pub(crate) struct Expansion<'a> {
    variables: &'a Variables,
    parser: &'a Parser,
    mode: Mode,
    /// Double quotes are open.
    double: bool,
    open: Option<Value>,
    pub(crate) values: Vec<Value>,
    /// The scripts in its substitutions.
    pub(crate) scripts: Vec<String>,
    /// The variables that it assigns.
    pub(crate) assigned: Vec<String>,
}

impl<'a> Expansion<'a> {
    pub(crate) fn of(
        text: &str,
        mode: Mode,
        variables: &'a Variables,
        parser: &'a Parser,
    ) -> Result<Self, Unclear> {
        let mut expansion = Self {
            variables,
            parser,
            mode,
            double: false,
            open: None,
            values: Vec::new(),
            scripts: Vec::new(),
            assigned: Vec::new(),
        };
        expansion.read(text)?;
        expansion.values.extend(expansion.open.take());
        Ok(expansion)
    }

    fn read(&mut self, text: &str) -> Result<(), Unclear> {
        let (mut rest, mut after_backticks) = (text, false);
        while let Some(c) = rest.chars().next() {
            let after = &rest[c.len_utf8()..];
            let read = match c {
                '\\' => self.escape(after),
                '\'' if !self.quoted() => {
                    let end = after.find('\'').ok_or(OPEN_QUOTE)?;
                    self.literal(&after[..end]);
                    end + 2
                }
                '"' if self.mode != Mode::Document => {
                    self.double = !self.double;
                    self.literal("");
                    1
                }
                '`' => {
                    after_backticks = true;
                    self.backticks(after)?
                }
                '<' | '>' if !self.quoted() && after.starts_with('(') => self.substitution(rest)?,
                '$' => self.dollar(rest)?,
                ';' | '&' | '|' | '\n' if after_backticks && !self.quoted() => {
                    // The parser lets quotes in backticks hide where they end. Shells do not.
                    return Err(BACKTICKS);
                }
                _ => {
                    let special = ['\\', '$', '`', '\'', '"', '<', '>', ';', '&', '|', '\n'];
                    let end = after.find(special).unwrap_or(after.len()) + c.len_utf8();
                    self.plain(&rest[..end]);
                    end
                }
            };
            rest = &rest[read..];
        }
        Ok(())
    }

    fn quoted(&self) -> bool {
        self.double || self.mode == Mode::Document
    }

    fn plain(&mut self, text: &str) {
        match self.quoted() {
            true => self.literal(text),
            false => self.open.get_or_insert_default().push_unquoted(text),
        }
    }

    fn literal(&mut self, text: &str) {
        self.open.get_or_insert_default().text.push_str(text);
    }

    fn unknown(&mut self) {
        self.open.get_or_insert_default().push_unknown();
    }

    /// A backslash and the character after it.
    fn escape(&mut self, after: &str) -> usize {
        let c = after.chars().next();
        if c.is_none() || (self.quoted() && !"\n$`\"\\".contains(c.unwrap_or_default())) {
            self.literal("\\");
        }
        if let Some(c) = c.filter(|c| *c != '\n') {
            self.literal(c.encode_utf8(&mut [0; 4]));
        }
        1 + c.map_or(0, char::len_utf8)
    }

    /// Backticks as shells read them: up to the next one, and without the escapes.
    fn backticks(&mut self, after: &str) -> Result<usize, Unclear> {
        let mut script = String::new();
        let mut chars = after.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '`' => {
                    self.unknown();
                    self.scripts.push(script);
                    return Ok(at + 2);
                }
                '\\' => match chars.next() {
                    // Whether the backslash goes here depends on what is around.
                    Some((_, '"')) if self.quoted() => return Err(BACKTICKS),
                    Some((_, c @ ('`' | '\\' | '$'))) => script.push(c),
                    other => {
                        script.push('\\');
                        script.extend(other.map(|(_, c)| c));
                    }
                },
                c => script.push(c),
            }
        }
        Err(BACKTICKS)
    }

    fn dollar(&mut self, text: &str) -> Result<usize, Unclear> {
        let after = &text[1..];
        match after.chars().next() {
            Some('(') => return self.substitution(text),
            Some('{') => return self.parameter(text),
            Some('\'') if !self.quoted() && after.contains("\\'") => {
                // dash and bash end such a quote at different places.
                return Err(Unclear("a $'…' has an escaped quote"));
            }
            Some('\'') if !self.quoted() => {
                self.unknown();
                let end = after[1..].find('\'');
                return end.map(|end| end + 3).ok_or(OPEN_QUOTE);
            }
            Some('[') => {
                self.unknown();
                let inner = after
                    .split(']')
                    .next()
                    .filter(|_| self.mode != Mode::Document);
                self.document(inner.unwrap_or_default())?;
                return Ok(1);
            }
            // What is in `$"…"` is read next.
            Some('"') if !self.quoted() => {
                self.unknown();
                return Ok(1);
            }
            // These are numbers.
            Some('?' | '#' | '$' | '!') => self.literal("0"),
            Some('@' | '*' | '-' | '0'..='9') => self.unknown(),
            _ => {
                let name = &after[..name_length(after)];
                match name {
                    "" => self.literal("$"),
                    name => self.variable(name)?,
                }
                return Ok(1 + name.len());
            }
        }
        Ok(2)
    }

    fn variable(&mut self, name: &str) -> Result<(), Unclear> {
        let whole = self.quoted() || self.mode == Mode::One;
        match self.variables.get(name) {
            Some(text) if whole => {
                self.parser.spend(text.len())?;
                self.literal(text);
            }
            Some(text) if self.variables.split_usually() => {
                self.parser.spend(text.len())?;
                for piece in text.split_inclusive(char::is_whitespace) {
                    let word = piece.trim_end();
                    if !word.is_empty() {
                        self.plain(word);
                    }
                    if word != piece {
                        self.values.extend(self.open.take());
                    }
                }
            }
            _ => self.unknown(),
        }
        Ok(())
    }

    /// `${…}`. In other than the plain form, its argument may run something.
    fn parameter(&mut self, text: &str) -> Result<usize, Unclear> {
        let end = self.parser.end(text, '{', '}')?;
        let inner = &text[2..end - 1];
        let (name, operation) = inner.split_at(name_length(inner));
        if inner.is_empty() {
            return Err(Unclear("a ${…} is empty"));
        }
        if operation.is_empty() {
            self.variable(name)?;
            return Ok(end);
        }
        if self.double && inner.contains(['\'', '"']) {
            // Shells disagree on what such a quote does.
            return Err(Unclear("there are quotes in a quoted ${…}"));
        }
        if operation.starts_with('=') || operation.starts_with(":=") {
            self.assigned.push(name.to_owned());
        }
        self.unknown();
        self.document(inner)?;
        Ok(end)
    }

    /// `$(…)`, `<(…)` or `>(…)`, or arithmetic.
    fn substitution(&mut self, text: &str) -> Result<usize, Unclear> {
        self.unknown();
        let Some(inner) = text.strip_prefix("$((") else {
            let end = self.parser.end(text, '(', ')')?;
            self.scripts.push(text[2..end - 1].to_owned());
            return Ok(end);
        };
        if let Some(end) = calculation(text) {
            self.document(&text[3..end])?;
            return Ok(end);
        }
        // A substitution that begins with a subshell looks the same, and the parser may not see that.
        // After a subshell comes an operator.
        let end = self.parser.end(text, '(', ')');
        let is_arithmetic =
            |end: &usize| text[..*end].ends_with("))") && !text[..*end].contains('\n');
        let end = end.ok().filter(is_arithmetic);
        let operator = |end: &usize| text[..*end].contains([';', '|', '&', '<', '>']);
        let spaced = format!("$( ({inner}");
        if (self.mode != Mode::One || end.as_ref().is_none_or(operator))
            && let Ok(end) = self.parser.end(&spaced, '(', ')')
        {
            self.scripts.push(spaced[2..end - 1].to_owned());
            return Ok(end - 1);
        }
        let end = end.ok_or(Unclear("there is arithmetic that cannot be followed"))?;
        self.document(&text[3..end])?;
        Ok(end)
    }

    /// Reads what a text runs and assigns; its value does not matter.
    fn document(&mut self, text: &str) -> Result<(), Unclear> {
        let inner = Self::of(text, Mode::Document, self.variables, self.parser)?;
        self.scripts.extend(inner.scripts);
        self.assigned.extend(inner.assigned);
        Ok(())
    }
}

const OPEN_QUOTE: Unclear = Unclear("a quote is not closed");
const BACKTICKS: Unclear = Unclear("there are backticks that cannot be followed");

/// How many bytes of a text are a variable's name.
pub(crate) fn name_length(text: &str) -> usize {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.find(|c| !is_name(c)).unwrap_or(text.len())
}

/// The length of `$((…))` that has only numbers, names and operators.
fn calculation(text: &str) -> Option<usize> {
    let mut open = 2;
    for (at, c) in text.char_indices().skip(3) {
        match c {
            // Before other than the last bracket, `$((…` was a subshell.
            c if open == 1 && c != ')' => return None,
            '(' if text[..at].ends_with('$') => return None,
            '(' => open += 1,
            ')' => open -= 1,
            c if c.is_ascii_alphanumeric() || " _+-*/%<>=!&|^~?:,${}#".contains(c) => {}
            _ => return None,
        }
        if open == 0 {
            return Some(at + 1);
        }
    }
    None
}
