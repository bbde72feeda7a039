//! The operator's rules: a program and words that must be among its arguments.
//!
//! `git push --force` matches each command whose program is `git` and whose arguments hold `push` and
//! `--force`, in any order. A word such as `-rf` matches wherever both letters are given as options. A
//! program may end in `*`.

use std::fmt;

use super::base_name;
use super::word::Value;

#[derive(Debug)]
pub(super) struct Rule {
    text: String,
    program: String,
    words: Vec<String>,
}

impl Rule {
    /// Reads a rule.
    ///
    /// # Errors
    /// When it has no word.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut words = text.split_whitespace().map(str::to_owned);
        let program = words.next().ok_or_else(|| {
            anyhow::anyhow!(
                "a rule is empty: write a program, or a program and words, such as \"git push\""
            )
        })?;
        Ok(Self {
            text: text.to_owned(),
            program: base_name(&program).to_owned(),
            words: words.collect(),
        })
    }

    pub(super) fn matches(&self, name: &str, args: &[Value]) -> bool {
        let program = match self.program.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == self.program,
        };
        program && self.words.iter().all(|word| has(word, args))
    }
}

fn has(word: &str, args: &[Value]) -> bool {
    let letters = short_options(word);
    if letters.is_empty() {
        return args.iter().any(|arg| arg.text == word);
    }
    letters.chars().all(|letter| {
        args.iter()
            .any(|arg| short_options(&arg.text).contains(letter))
    })
}

/// The letters of `-abc`.
pub(super) fn short_options(text: &str) -> &str {
    match text.strip_prefix('-') {
        Some(letters) if !letters.starts_with('-') => letters,
        _ => "",
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}
