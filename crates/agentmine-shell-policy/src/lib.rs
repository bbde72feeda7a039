//! What a shell command line would run, and whether it may (spec 004 §3).
//!
//! A line is parsed before it is judged, so spacing, quotes, paths, wrappers (`env`, `xargs`, `sh -c`)
//! and substitutions do not hide a program. `shell_exec` refuses what cannot be parsed and asks the user
//! about a program or an option that only a running shell knows. The fleet's command tool applies the
//! operator's rules alone.
//!
//! This is a guard rail against mistakes and not a sandbox: scripts, makefiles and programs that a line
//! runs from files are not examined.
//!
//! Judging is bounded in time and stack. A line is hostile input, so its length and nesting are limited
//! before it is parsed (`nesting`), and it is parsed on a thread with a large stack. Accepted: a line
//! made to deceive the nesting scan can keep one thread busy.

mod builtin;
mod decide;
mod nesting;
mod programs;
mod rule;
mod script;
#[cfg(test)]
mod tests;
mod word;
mod wrappers;

use rule::Rule;

/// Enough for the deepest nesting that the parser accepts, in a debug build.
const STACK: usize = 64 * 1024 * 1024;

/// Whether the built-in lists apply besides the operator's rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BuiltinRules {
    /// They apply.
    #[default]
    Apply,
    /// They do not: a sandbox confines what runs.
    Ignore,
}

/// A command to be judged.
#[derive(Debug, Clone, Copy)]
pub enum ShellCommand<'a> {
    /// A line or a script for `sh -c`.
    Script(&'a str),
    /// A program with its arguments, run without a shell.
    Program {
        /// The program.
        name: &'a str,
        /// Its arguments.
        args: &'a [String],
    },
}

/// What to do with a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShellVerdict {
    /// Run it.
    Allow,
    /// Run it if the user agrees; the reason for asking.
    Ask(String),
    /// Do not run it.
    Deny(Refusal),
}

/// Why a command is not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// One of the operator's rules matches.
    #[error("the operator's rule {rule:?} refuses {program}")]
    Rule {
        /// The rule as it was written.
        rule: String,
        /// The program that it matched.
        program: String,
    },
    /// A built-in rule matches; its reason.
    #[error("{0}")]
    Builtin(String),
    /// It cannot be understood; what is in the way.
    #[error(
        "it cannot be understood ({0}), and what is not understood is not run: write it more simply, or in several calls"
    )]
    Unclear(String),
}

/// A rule that has no word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a rule is empty: write a program, or a program and words, such as \"git push\"")]
pub struct EmptyRule;

/// The operator's rules, and whether the built-in ones apply.
#[derive(Debug, Default)]
pub struct ShellPolicy {
    builtin: BuiltinRules,
    deny: Vec<Rule>,
    ask: Vec<Rule>,
    allow: Vec<Rule>,
}

impl ShellPolicy {
    /// Reads the operator's rules. A rule is a program and words that must be among its arguments.
    ///
    /// # Errors
    /// When a rule has no word.
    pub fn new(
        builtin: BuiltinRules,
        deny: &[String],
        ask: &[String],
        allow: &[String],
    ) -> Result<Self, EmptyRule> {
        let rules = |texts: &[String]| -> Result<Vec<Rule>, EmptyRule> {
            texts.iter().map(|text| Rule::parse(text)).collect()
        };
        Ok(Self {
            builtin,
            deny: rules(deny)?,
            ask: rules(ask)?,
            allow: rules(allow)?,
        })
    }

    /// Judges a command. Never panics, whatever the command is.
    #[must_use]
    pub fn judge(&self, command: ShellCommand<'_>) -> ShellVerdict {
        let judged = std::thread::scope(|scope| {
            std::thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, || decide::decide(self, command))
                .ok()
                .and_then(|thread| thread.join().ok())
        });
        judged.unwrap_or_else(|| unclear("the parser failed"))
    }
}

impl ShellVerdict {
    /// The stricter of two; of two alike the first.
    fn or(self, other: Self) -> Self {
        let rank = |verdict: &Self| match verdict {
            Self::Allow => 0,
            Self::Ask(_) => 1,
            Self::Deny(_) => 2,
        };
        match rank(&other) > rank(&self) {
            true => other,
            false => self,
        }
    }
}

fn ask(why: impl Into<String>) -> ShellVerdict {
    ShellVerdict::Ask(why.into())
}

fn deny(why: impl Into<String>) -> ShellVerdict {
    ShellVerdict::Deny(Refusal::Builtin(why.into()))
}

fn unclear(why: impl Into<String>) -> ShellVerdict {
    ShellVerdict::Deny(Refusal::Unclear(why.into()))
}
