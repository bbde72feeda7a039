//! The verdict on a command and on all that it is given to run.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use crate::rule::{Rule, base_name};
use crate::script::{self, Command, Stdin};
use crate::word::{Value, Variables, Word};
use crate::{
    BuiltinRules, Refusal, ShellCommand, ShellPolicy, ShellVerdict, ask, builtin, deny, unclear,
    wrappers,
};

/// Deepest nesting of scripts in commands in scripts.
const MAX_DEPTH: usize = 12;
/// Most words and bytes that are looked at, since wrappers in wrappers can be read in very many ways.
const MAX_EFFORT: usize = 500_000;
/// Most words of one command.
const MAX_WORDS: usize = 10_000;

pub(crate) fn decide(policy: &ShellPolicy, command: ShellCommand<'_>) -> ShellVerdict {
    let judge = Judge {
        policy,
        depth: 0,
        left: &Cell::new(MAX_EFFORT),
    };
    match command {
        ShellCommand::Script(text) => judge.script(text),
        ShellCommand::Program { name, args } => {
            let words = std::iter::once(name).chain(args.iter().map(String::as_str));
            let argv: Vec<Value> = words.map(Value::known).collect();
            judge.argv(&argv, &Reading::Unseen)
        }
    }
}

/// What a command reads, as far as that is known.
#[derive(Debug)]
pub(crate) enum Reading {
    Unseen,
    File,
    Text(Value),
}

/// A judgement under way.
#[derive(Clone, Copy)]
pub(crate) struct Judge<'a> {
    policy: &'a ShellPolicy,
    depth: usize,
    left: &'a Cell<usize>,
}

impl Judge<'_> {
    pub(crate) fn script(self, text: &str) -> ShellVerdict {
        if let Err(verdict) = self.take(text.len() + 1) {
            return verdict;
        }
        match script::commands(text) {
            Ok(commands) => self.commands(&commands),
            Err(why) => self
                .mentioned(text)
                .unwrap_or_else(|| unclear(why.to_string())),
        }
    }

    /// Judges one command and what it is given to run.
    pub(crate) fn argv(self, argv: &[Value], reading: &Reading) -> ShellVerdict {
        if let Err(verdict) = self.take(argv.len() + 10) {
            return verdict;
        }
        let Some((program, args)) = argv.split_first() else {
            return ShellVerdict::Allow;
        };
        let pattern = program.pattern && !matches!(program.text.as_str(), "[" | "[[");
        if !program.is_known() || pattern || program.text.is_empty() {
            let shown: String = program.text.chars().take(80).collect();
            return ask(format!(
                "which program {shown:?} is will only be known when it runs"
            ));
        }
        let name = base_name(&program.text);
        let inner = Self {
            depth: self.depth + 1,
            ..self
        };
        self.own(name, args)
            .or(wrappers::judge(inner, name, args, reading))
    }

    /// The verdict on a command by itself.
    fn own(self, name: &str, args: &[Value]) -> ShellVerdict {
        let find = |rules: &'_ [Rule]| -> Option<String> {
            let rule = rules.iter().find(|rule| rule.matches(name, args))?;
            Some(rule.text.clone())
        };
        if let Some(rule) = find(&self.policy.deny) {
            let program = name.to_owned();
            return ShellVerdict::Deny(Refusal::Rule { rule, program });
        }
        if find(&self.policy.allow).is_some() {
            return ShellVerdict::Allow;
        }
        match (find(&self.policy.ask), self.policy.builtin) {
            (Some(rule), _) => ask(format!("the operator's rule {rule:?} asks for it")),
            (None, BuiltinRules::Apply) => builtin::judge(name, args),
            (None, BuiltinRules::Ignore) => ShellVerdict::Allow,
        }
    }

    /// The rule that refuses a program which a text mentions. The text cannot be parsed, but a shell may
    /// run its first lines all the same.
    fn mentioned(self, text: &str) -> Option<ShellVerdict> {
        self.policy.deny.iter().find_map(|rule| {
            let program = rule.is_mentioned(text)?;
            let rule = rule.text.clone();
            Some(ShellVerdict::Deny(Refusal::Rule { rule, program }))
        })
    }

    fn commands(self, commands: &[Command]) -> ShellVerdict {
        if self.policy.builtin == BuiltinRules::Apply
            && let Some(name) = calls_itself(commands)
        {
            return deny(format!(
                "the function {name} calls itself, as a fork bomb does"
            ));
        }
        let variables = variables(commands);
        commands
            .iter()
            .fold(ShellVerdict::Allow, |verdict, command| {
                verdict.or(self.command(command, &variables))
            })
    }

    fn command(self, command: &Command, variables: &Variables) -> ShellVerdict {
        let mut verdict = ShellVerdict::Allow;
        if self.policy.builtin == BuiltinRules::Apply {
            for file in &command.files {
                verdict = verdict.or(builtin::written(&variables.one(file)));
            }
        }
        let words = command.words.iter().flat_map(|word| variables.expand(word));
        let argv: Vec<Value> = words.take(MAX_WORDS + 1).collect();
        if argv.len() > MAX_WORDS {
            return unclear(format!("a command has more than {MAX_WORDS} words"));
        }
        if let Some(program) = argv.first()
            && command.inside.contains(&program.text)
            && self.policy.builtin == BuiltinRules::Apply
        {
            let name = &program.text;
            return deny(format!(
                "the function {name} calls itself, as a fork bomb does"
            ));
        }
        let reading = match &command.stdin {
            Stdin::Unseen => Reading::Unseen,
            Stdin::File => Reading::File,
            Stdin::Text(word) => Reading::Text(variables.one(word)),
        };
        verdict.or(self.argv(&argv, &reading))
    }

    /// Spends effort, or says that it would be too much.
    fn take(self, amount: usize) -> Result<(), ShellVerdict> {
        if self.depth > MAX_DEPTH {
            return Err(unclear("it is nested too deeply"));
        }
        let left = self.left.get().checked_sub(amount);
        // After that nothing that is still open is worth its time.
        self.left.set(left.unwrap_or(0));
        match left {
            Some(_) => Ok(()),
            None => Err(unclear("it can be read in too many ways")),
        }
    }
}

/// A function that comes to itself again through other functions of the script.
fn calls_itself(commands: &[Command]) -> Option<&str> {
    let mut calls: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for command in commands {
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

/// What a script says about its variables, wherever it says it.
fn variables(commands: &[Command]) -> Variables {
    let mut variables = Variables::default();
    for command in commands {
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
            "read" | "printf" | "getopts" | "mapfile" | "readarray" | "unset" | "let" => {
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
