//! The operator's rules.
//!
//! `git push --force` matches each command whose program is `git` and whose arguments include `push` and
//! `--force`, in any order. A word such as `-rf` matches wherever both letters are given as options. A
//! program may end in `*`. Since words match in any order, an exception cannot be distinguished from an evasion: a rule
//! that allows is no exception from one that denies.

use crate::value::{Value, base_name, names, short_options};
use crate::verdict::{Refusal, ShellVerdict};

/// A rule that has no word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a rule is empty: write a program, or a program and words, such as \"git push\"")]
pub struct EmptyRule;

#[derive(Debug)]
pub(crate) struct Rule {
    text: String,
}

impl Rule {
    pub(crate) fn parse_all(texts: &[String]) -> Result<Vec<Self>, EmptyRule> {
        let parse = |text: &String| match text.trim().is_empty() {
            true => Err(EmptyRule),
            false => Ok(Self { text: text.clone() }),
        };
        texts.iter().map(parse).collect()
    }

    /// The most specific rule that matches a command: the one with the most words.
    pub(crate) fn find<'a>(rules: &'a [Self], name: &str, args: &[Value]) -> Option<&'a Self> {
        let named = rules.iter().filter(|rule| rule.names(name));
        let matching = named.filter(|rule| rule.words().skip(1).all(|word| has(word, args)));
        matching.max_by_key(|rule| rule.specificity())
    }

    /// How many words it has.
    pub(crate) fn specificity(&self) -> usize {
        self.words().count()
    }

    /// The program that a text mentions and that this rule names alone. A text that cannot be parsed is
    /// searched for it, since a shell may run its first lines all the same.
    pub(crate) fn mentioned<'a>(&self, text: &'a str) -> Option<&'a str> {
        let ends = |c: char| c.is_whitespace() || ";|&()`{}!<>\"'\\$=".contains(c);
        let mut mentioned = text.split(ends).map(base_name);
        let is_bare = self.specificity() == 1;
        mentioned.find(|name| is_bare && self.names(name))
    }

    pub(crate) fn refusal(&self, program: &str) -> ShellVerdict {
        ShellVerdict::Deny(Refusal::Rule {
            rule: self.text.clone(),
            program: program.to_owned(),
        })
    }

    pub(crate) fn question(&self) -> ShellVerdict {
        ShellVerdict::Ask(format!(
            "the operator's rule {:?} asks for a person's agreement",
            self.text
        ))
    }

    fn names(&self, name: &str) -> bool {
        let program = self.words().next().unwrap_or_default();
        names(base_name(program), name)
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.text.split_whitespace()
    }
}

fn has(word: &str, args: &[Value]) -> bool {
    let letters = short_options(word);
    let options = args.iter().map(|arg| short_options(&arg.text));
    match letters.is_empty() {
        true => args.iter().any(|arg| arg.text == word),
        false => letters
            .chars()
            .all(|letter| options.clone().any(|given| given.contains(letter))),
    }
}
