//! The operator's rules.
//!
//! `git push --force` matches each command whose program is `git` and whose arguments include `push` and
//! `--force`, in any order. A word such as `-rf` matches wherever both letters are given as options. A
//! program may end in `*`.

use crate::EmptyRule;
use crate::word::Value;

#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) text: String,
    program: String,
    words: Vec<String>,
}

impl Rule {
    pub(crate) fn parse(text: &str) -> Result<Self, EmptyRule> {
        let mut words = text.split_whitespace().map(str::to_owned);
        let program = words.next().ok_or(EmptyRule)?;
        Ok(Self {
            text: text.to_owned(),
            program: base_name(&program).to_owned(),
            words: words.collect(),
        })
    }

    pub(crate) fn matches(&self, name: &str, args: &[Value]) -> bool {
        self.names(name) && self.words.iter().all(|word| has(word, args))
    }

    /// Whether the rule is the bare name of a program that the text mentions. For text that cannot be
    /// parsed.
    pub(crate) fn is_mentioned(&self, text: &str) -> Option<String> {
        let ends = |c: char| c.is_whitespace() || ";|&()`{}!<>\"'\\$=".contains(c);
        let mut names = text.split(ends).map(base_name);
        let name = names.find(|name| self.words.is_empty() && self.names(name))?;
        Some(name.to_owned())
    }

    fn names(&self, name: &str) -> bool {
        match self.program.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == self.program,
        }
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
pub(crate) fn short_options(text: &str) -> &str {
    match text.strip_prefix('-') {
        Some(letters) if !letters.starts_with('-') => letters,
        _ => "",
    }
}

/// A program's name without its folders.
pub(crate) fn base_name(program: &str) -> &str {
    let trimmed = program.trim_end_matches('/');
    trimmed.rsplit('/').next().unwrap_or(trimmed)
}
