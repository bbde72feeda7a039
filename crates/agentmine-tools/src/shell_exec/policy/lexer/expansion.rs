//! What begins with `$` or a backtick: variables, and the commands in substitutions.

use std::iter::Peekable;
use std::str::Chars;

use super::super::word::{Part, Word};
use super::{Command, End, Lexer, MAX_DEPTH, Unclear, Until, parse};

impl<'a> Lexer<'a> {
    /// Text in which only `$`, backticks and backslashes mean something.
    pub(super) fn expanded(&mut self, text: &str) -> Result<Word, Unclear> {
        if self.depth > MAX_DEPTH {
            return Err(Unclear("it is nested too deeply"));
        }
        let mut inner = Lexer {
            chars: text.chars().peekable(),
            dialect: self.dialect,
            depth: self.depth + 1,
            found: Vec::new(),
            heredocs: Vec::new(),
        };
        let mut word = Word::default();
        inner.double_quoted(&mut word, None)?;
        self.found.append(&mut inner.found);
        Ok(word)
    }

    pub(super) fn dollar(&mut self, word: &mut Word, quoted: bool) -> Result<(), Unclear> {
        match self.chars.peek().copied() {
            Some('(') => {
                self.chars.next();
                self.nested_parens()?;
                word.push_part(Part::Unknown);
            }
            Some('{') => {
                self.chars.next();
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(Unclear("it is nested too deeply"));
                }
                let inner = self.word(End::Brace { quoted })?;
                self.depth -= 1;
                self.chars.next();
                let name = inner.literal_unquoted().filter(|name| is_name(name));
                if name.is_none() {
                    // `${a:=b}` sets a variable.
                    self.found.push(Command {
                        assignments: inner.assigned_within().into_iter().collect(),
                        ..Command::default()
                    });
                }
                word.push_part(name.map_or(Part::Unknown, |name| Part::Variable { name, quoted }));
            }
            Some('\'') if !quoted => {
                self.chars.next();
                loop {
                    match self.chars.next() {
                        Some('\'') => break,
                        // dash and bash end such a quote at different places.
                        Some('\\') if self.chars.peek() == Some(&'\'') => {
                            return Err(Unclear("a $'…' holds an escaped quote"));
                        }
                        Some(_) => {}
                        None => return Err(Unclear("a quote is not closed")),
                    }
                }
                word.push_part(Part::Unknown);
            }
            Some('"') if !quoted => {}
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let mut name = String::new();
                while let Some(c) = self
                    .chars
                    .next_if(|c| c.is_ascii_alphanumeric() || *c == '_')
                {
                    name.push(c);
                }
                word.push_part(Part::Variable { name, quoted });
            }
            // These are numbers.
            Some('?' | '#' | '$' | '!') => {
                self.chars.next();
                word.push_quoted('0');
            }
            Some(c) if c.is_ascii_digit() || matches!(c, '@' | '*' | '-') => {
                self.chars.next();
                word.push_part(Part::Unknown);
            }
            // `$[…]` calculates in bash.
            Some('[') => word.push_part(Part::Unknown),
            _ => word.push_quoted('$'),
        }
        Ok(())
    }

    /// The inside of `(…)`, up to and with the closing one.
    pub(super) fn nested_parens(&mut self) -> Result<(), Unclear> {
        if self.chars.peek() == Some(&'(')
            && let Some((text, rest)) = self.calculation()
        {
            self.chars = rest;
            return self.expanded(&text).map(|_| ());
        }
        let outer = std::mem::take(&mut self.heredocs);
        self.depth += 1;
        self.list(Until::Paren)?;
        self.depth -= 1;
        self.heredocs = outer;
        match self.chars.next() {
            Some(')') => Ok(()),
            _ => Err(Unclear("a parenthesis is not closed")),
        }
    }

    /// The text of `((…))` if only numbers, names and operators are in it.
    fn calculation(&self) -> Option<(String, Peekable<Chars<'a>>)> {
        let mut ahead = self.chars.clone();
        ahead.next();
        let mut text = String::new();
        let mut depth = 0_usize;
        loop {
            let c = ahead.next()?;
            match c {
                '(' => depth += 1,
                ')' if depth == 0 => {
                    ahead.next_if_eq(&')')?;
                    return Some((text, ahead));
                }
                ')' => depth -= 1,
                c if c.is_ascii_alphanumeric() => {}
                ' ' | '_' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '!' | '&' | '|'
                | '^' | '~' | '?' | ':' | ',' | '$' | '{' | '}' | '#' => {}
                _ => return None,
            }
            text.push(c);
        }
    }

    pub(super) fn backticks(&mut self, word: &mut Word, quoted: bool) -> Result<(), Unclear> {
        let mut text = String::new();
        loop {
            match self.chars.next() {
                Some('`') => break,
                Some('\\') => match self.chars.next() {
                    Some(c @ ('`' | '\\' | '$')) => text.push(c),
                    // Within double quotes the backslash goes, within a here-document it may not.
                    Some('"') if quoted => {
                        return Err(Unclear("there are escaped quotes in quoted backticks"));
                    }
                    Some(other) => {
                        text.push('\\');
                        text.push(other);
                    }
                    None => return Err(Unclear("a backtick is not closed")),
                },
                Some(c) => text.push(c),
                None => return Err(Unclear("a backtick is not closed")),
            }
        }
        let mut inner = parse(&text, self.dialect, self.depth + 1)?;
        self.found.append(&mut inner.commands);
        word.push_part(Part::Unknown);
        Ok(())
    }
}

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}
