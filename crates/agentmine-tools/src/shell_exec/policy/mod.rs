//! What may be run (spec 004 §3): a guard rail against mistakes, and no sandbox.
//!
//! A command is parsed before it is judged, so spacing, quotes, paths, wrappers (`env`, `xargs`,
//! `sh -c`) and substitutions do not hide what it runs. What cannot be parsed is refused. A program or
//! an option that only a running shell could know is asked for.
//!
//! It does not follow what a command reads from files: a script that was written before, a makefile, or
//! a program of any kind can do everything that the user can. Who needs more than a guard rail runs the
//! server in a sandbox.

mod builtin;
mod code;
mod lexer;
mod programs;
mod rule;
#[cfg(test)]
mod tests;
mod word;
mod wrappers;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use lexer::{Command, Dialect, Script, Stdin};
use rule::Rule;
use word::{Value, Variables, Word};

/// Deepest nesting of scripts in commands in scripts.
const MAX_DEPTH: usize = 12;
/// Most words and bytes that are looked at, since wrappers in wrappers can be read in very many ways.
const MAX_EFFORT: usize = 1_000_000;
/// Most words of one command.
const MAX_WORDS: usize = 10_000;

/// What has gone into a judgement.
#[derive(Debug, Clone, Copy)]
struct Effort<'a> {
    depth: usize,
    left: &'a Cell<usize>,
}

impl Effort<'_> {
    fn deeper(self) -> Self {
        Self {
            depth: self.depth + 1,
            ..self
        }
    }

    /// Takes something on, or tells why that would be too much.
    fn take(self, amount: usize) -> Result<(), Verdict> {
        if self.depth > MAX_DEPTH {
            return Err(Verdict::Deny(
                "it is nested too deeply to be understood".to_owned(),
            ));
        }
        match self.left.get().checked_sub(amount) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => {
                // Nothing that is still open is worth its time.
                self.left.set(0);
                Err(Verdict::Deny(
                    "it can be read in too many ways to be understood".to_owned(),
                ))
            }
        }
    }
}

/// What is to be done with a command. The later is the stricter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// Run it.
    Allow,
    /// Run it if the user agrees; why it is asked for.
    Ask(String),
    /// Do not run it; why.
    Deny(String),
}

impl Verdict {
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

/// The built-in lists, and those of the operator.
#[derive(Debug, Default)]
pub(super) struct Policy {
    deny: Vec<Rule>,
    ask: Vec<Rule>,
    allow: Vec<Rule>,
}

impl Policy {
    /// Takes the operator's lists.
    ///
    /// # Errors
    /// When a rule has no word.
    pub(super) fn new(deny: &[String], ask: &[String], allow: &[String]) -> anyhow::Result<Self> {
        let rules = |texts: &[String]| -> anyhow::Result<Vec<Rule>> {
            texts.iter().map(|text| Rule::parse(text)).collect()
        };
        Ok(Self {
            deny: rules(deny)?,
            ask: rules(ask)?,
            allow: rules(allow)?,
        })
    }

    /// Judges what is run by `/bin/sh -c`.
    pub(super) fn judge_script(&self, script: &str) -> Verdict {
        let left = Cell::new(MAX_EFFORT);
        self.script(
            script,
            Effort {
                depth: 0,
                left: &left,
            },
        )
    }

    /// Judges a program with its arguments, run without a shell.
    pub(super) fn judge_argv(&self, program: &str, args: &[String]) -> Verdict {
        let argv: Vec<Value> = std::iter::once(program)
            .chain(args.iter().map(String::as_str))
            .map(Value::known)
            .collect();
        let left = Cell::new(MAX_EFFORT);
        let effort = Effort {
            depth: 0,
            left: &left,
        };
        self.argv(&argv, &Reading::default(), effort)
    }

    fn script(&self, text: &str, effort: Effort<'_>) -> Verdict {
        if let Err(verdict) = effort.take(text.len() + 1) {
            return verdict;
        }
        let mut verdict = self.parsed(lexer::parse(text, Dialect::Posix, 0), effort);
        if text.contains("&>") {
            verdict = verdict.or(self.parsed(lexer::parse(text, Dialect::Bash, 0), effort));
        }
        verdict
    }

    fn parsed(&self, script: Result<Script, lexer::Unclear>, effort: Effort<'_>) -> Verdict {
        let script = match script {
            Ok(script) => script,
            Err(unclear) => {
                return Verdict::Deny(format!(
                    "it cannot be understood ({unclear}), and what is not understood is not run: \
                     write it more simply, or in several calls"
                ));
            }
        };
        if let Some(name) = calls_itself(&script) {
            return Verdict::Deny(format!(
                "the function {name} calls itself, as a fork bomb does"
            ));
        }
        let variables = variables(&script);
        let mut verdict = Verdict::Allow;
        let mut case = false;
        for command in &script.commands {
            let first = command.words.first().and_then(Word::literal_unquoted);
            case |= first.as_deref() == Some("case");
            // `*)` and `[Yy]*)` are patterns of a `case`, and no programs whose names are not known.
            let pattern =
                first.is_some_and(|word| word.contains(['*', '?', '[']) && !word.contains('/'));
            if case && command.may_be_pattern && command.words.len() == 1 && pattern {
                continue;
            }
            verdict = verdict.or(self.command(command, &variables, effort));
        }
        verdict
    }

    fn command(&self, command: &Command, variables: &Variables, effort: Effort<'_>) -> Verdict {
        let mut verdict = Verdict::Allow;
        for file in &command.files {
            verdict = verdict.or(builtin::written(&variables.one(file)));
        }
        let argv: Vec<Value> = command
            .words
            .iter()
            .flat_map(|word| variables.expand(word))
            .take(MAX_WORDS + 1)
            .collect();
        if argv.len() > MAX_WORDS {
            return Verdict::Deny(format!(
                "a command has more than {MAX_WORDS} words: use xargs or several calls"
            ));
        }
        if let Some(program) = argv.first()
            && command.inside.contains(&program.text)
        {
            return Verdict::Deny(format!(
                "the function {} calls itself, as a fork bomb does",
                program.text
            ));
        }
        let reading = match &command.stdin {
            Stdin::Unseen => Reading::Unseen,
            Stdin::File => Reading::File,
            Stdin::Text(word) => Reading::Text(variables.one(word)),
        };
        verdict.or(self.argv(&argv, &reading, effort))
    }

    /// Judges one command and what it is given to run.
    fn argv(&self, argv: &[Value], reading: &Reading, effort: Effort<'_>) -> Verdict {
        if let Err(verdict) = effort.take(argv.len() + 1) {
            return verdict;
        }
        let Some((program, args)) = argv.split_first() else {
            return Verdict::Allow;
        };
        let pattern = program.pattern && !matches!(program.text.as_str(), "[" | "[[");
        if !program.is_known() || pattern || program.text.is_empty() {
            return Verdict::Ask(format!(
                "the program that {:?} stands for is only known once it runs",
                shortened(&program.text)
            ));
        }
        let name = base_name(&program.text);
        if let Some(rule) = find(&self.deny, name, args) {
            return Verdict::Deny(format!("the operator's rule {rule} refuses it"));
        }
        let own = match find(&self.allow, name, args) {
            Some(_) => Verdict::Allow,
            None => match find(&self.ask, name, args) {
                Some(rule) => Verdict::Ask(format!("the operator's rule {rule} asks for it")),
                None => builtin::judge(name, args),
            },
        };
        own.or(wrappers::judge(self, name, args, reading, effort.deeper()))
    }
}

/// What a command reads, as far as that is known.
#[derive(Debug, Default)]
enum Reading {
    #[default]
    Unseen,
    File,
    Text(Value),
}

fn find<'a>(rules: &'a [Rule], name: &str, args: &[Value]) -> Option<&'a Rule> {
    rules.iter().find(|rule| rule.matches(name, args))
}

/// A program's name without its folders.
fn base_name(program: &str) -> &str {
    let trimmed = program.trim_end_matches('/');
    trimmed.rsplit('/').next().unwrap_or(trimmed)
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

/// A function that comes to itself again through other functions of the script.
fn calls_itself(script: &Script) -> Option<&str> {
    let mut calls: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for command in &script.commands {
        let Some(called) = command.words.first().and_then(Word::literal) else {
            continue;
        };
        for function in &command.inside {
            calls.entry(function).or_default().insert(called.clone());
        }
    }
    calls.keys().copied().find(|name| {
        let mut seen = BTreeSet::new();
        let mut ahead = vec![*name];
        while let Some(at) = ahead.pop() {
            for next in calls.get(at).into_iter().flatten() {
                if next == name {
                    return true;
                }
                if seen.insert(next.as_str()) {
                    ahead.push(next);
                }
            }
        }
        false
    })
}

/// What a script says of its variables, wherever it says it.
fn variables(script: &Script) -> Variables {
    let mut variables = Variables::default();
    for command in &script.commands {
        for (name, value) in &command.assignments {
            // `IFS= read` holds for that one command.
            if name != "IFS" || command.words.is_empty() {
                variables.assign(name, value);
            }
        }
        let mut words = command.words.iter();
        let Some(program) = words.next().and_then(Word::literal) else {
            continue;
        };
        match base_name(&program) {
            "export" | "readonly" | "local" | "declare" | "typeset" => {
                for (name, value) in words.filter_map(Word::assignment) {
                    variables.assign(&name, &value);
                }
            }
            "read" | "for" | "select" | "printf" | "getopts" | "mapfile" | "readarray"
            | "unset" | "let" => {
                for name in words.filter_map(Word::literal) {
                    variables.forget(&name);
                }
            }
            "eval" | "." | "source" => variables.forget_all(),
            _ => {}
        }
    }
    variables
}
