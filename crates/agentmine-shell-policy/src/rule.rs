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

/// What a rule does with a command that it matches. A greater one is stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Action {
    Allow,
    Ask,
    Deny,
}

#[derive(Debug)]
pub(crate) struct Rule {
    action: Action,
    text: String,
}

impl Rule {
    pub(crate) fn parse(action: Action, text: &str) -> Result<Self, EmptyRule> {
        let text = text.to_owned();
        match text.trim().is_empty() {
            true => Err(EmptyRule),
            false => Ok(Self { action, text }),
        }
    }

    pub(crate) fn matches(&self, name: &str, args: &[Value]) -> bool {
        self.names(name) && self.words().skip(1).all(|word| has(word, args))
    }

    /// The order of the rules that match a command: the greatest decides. One that denies comes before all
    /// others, then the one with the most words, then the stricter one.
    pub(crate) fn precedence(&self) -> (bool, usize, Action) {
        let denies = self.action == Action::Deny;
        (denies, self.words().count(), self.action)
    }

    /// The program of this rule, if a text mentions it and all other words of the rule. A text that cannot be parsed is
    /// searched for them, since a shell may run its first lines all the same.
    pub(crate) fn mentioned<'a>(&self, text: &'a str) -> Option<&'a str> {
        let ends = |c: char| c.is_whitespace() || ";|&()`{}!<>\"'\\$=".contains(c);
        let all: Vec<Value> = text.split(ends).map(Value::known).collect();
        let has_rest = self.words().skip(1).all(|word| has(word, &all));
        let mut mentioned = text.split(ends).map(base_name);
        mentioned.find(|name| has_rest && self.names(name))
    }

    /// The verdict on a program that it matches.
    pub(crate) fn verdict(&self, program: &str) -> ShellVerdict {
        let rule = self.text.clone();
        let program = program.to_owned();
        match self.action {
            Action::Allow => ShellVerdict::Allow,
            Action::Ask => ShellVerdict::Ask(format!(
                "the operator's rule {rule:?} asks for a person's agreement"
            )),
            Action::Deny => ShellVerdict::Deny(Refusal::Rule { rule, program }),
        }
    }

    fn names(&self, name: &str) -> bool {
        let program = self.words().next().unwrap_or_default();
        // A package such as `@scope/name` has a name of its own.
        names(base_name(program), name) || names(program, name)
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.text.split_whitespace()
    }
}

fn has(word: &str, args: &[Value]) -> bool {
    let given = |letter| {
        args.iter()
            .any(|arg| short_options(&arg.text).contains(letter))
    };
    match short_options(word) {
        "" => args.iter().any(|arg| arg.text == word),
        letters => letters.chars().all(given),
    }
}
