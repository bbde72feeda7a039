//! The verdict on a command and on all that it is given to run.
//!
//! Judging is bounded in time and stack. Accepted: a line made to deceive the parser's bounds can keep
//! one thread busy.

use std::collections::BTreeSet;

use crate::builtin;
use crate::parse::Unclear;
use crate::rule::{EmptyRule, Rule};
use crate::script::{self, Command};
use crate::value::{Value, base_name};
use crate::verdict::{Refusal, ShellVerdict};
use crate::wrappers::{self, Given};

/// Enough for the deepest nesting that the parser accepts, in a debug build.
const STACK: usize = 64 * 1024 * 1024;
/// Deepest nesting of scripts in commands in scripts.
const MAX_DEPTH: usize = 12;
/// Limit on the words and bytes that are examined: nested wrappers can be read in very many ways.
const MAX_EFFORT: usize = 500_000;
/// Longest chain of functions that call each other.
const MAX_CALLS: usize = 100;

/// Whether the built-in lists apply besides the operator's rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BuiltinRules {
    /// They apply.
    #[default]
    Apply,
    /// They do not, since a sandbox confines what runs. The operator's rules alone decide, and what no rule
    /// decides is allowed: also what only a running shell knows, and what cannot be parsed.
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
    /// A rule of `deny` decides before all others. Between `ask` and `allow` the rule with more words
    /// decides, and `ask` where both have as many. A rule of `allow` decides before the built-in rules.
    ///
    /// # Errors
    /// When a rule has no word.
    pub fn new(
        builtin: BuiltinRules,
        deny: &[String],
        ask: &[String],
        allow: &[String],
    ) -> Result<Self, EmptyRule> {
        Ok(Self {
            builtin,
            deny: Rule::parse_all(deny)?,
            ask: Rule::parse_all(ask)?,
            allow: Rule::parse_all(allow)?,
        })
    }

    /// Judges a command. Never panics, whatever the command is.
    #[must_use]
    pub fn judge(&self, command: ShellCommand<'_>) -> ShellVerdict {
        let judged = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK);
            let judging = thread.spawn_scoped(scope, || Judge::judge(self, command));
            judging.ok().and_then(|judging| judging.join().ok())
        });
        judged.unwrap_or_else(|| self.undecided(unclear(Unclear("the parser failed"))))
    }

    /// The verdict on a command by itself.
    fn own(&self, name: &str, args: &[Value]) -> ShellVerdict {
        if let Some(rule) = Rule::find(&self.deny, name, args) {
            return rule.refusal(name);
        }
        let allow = Rule::find(&self.allow, name, args).map(Rule::specificity);
        let asks = |rule: &&Rule| allow.is_none_or(|words| words <= rule.specificity());
        match Rule::find(&self.ask, name, args).filter(asks) {
            Some(rule) => rule.question(),
            None if allow.is_some() => ShellVerdict::Allow,
            None => self.undecided(builtin::judge(name, args)),
        }
    }

    /// The verdict of no rule of the operator, but of a built-in one, or of what cannot be known or parsed.
    fn undecided(&self, verdict: ShellVerdict) -> ShellVerdict {
        match self.builtin {
            BuiltinRules::Apply => verdict,
            BuiltinRules::Ignore => ShellVerdict::Allow,
        }
    }

    /// The verdict on a text that cannot be parsed.
    fn unparsed(&self, text: &str, why: Unclear) -> ShellVerdict {
        let denied = |rule: &Rule| Some(rule.refusal(rule.mentioned(text)?));
        let asked = |rule: &Rule| rule.mentioned(text).map(|_| rule.question());
        let asked = self.ask.iter().find_map(asked).unwrap_or_default();
        let mention = self.deny.iter().find_map(denied);
        mention.unwrap_or_else(|| self.undecided(unclear(why)).max(asked))
    }

    /// The verdict on a script apart from what its commands run.
    fn shape(&self, commands: &[Command]) -> ShellVerdict {
        if self.builtin == BuiltinRules::Ignore {
            return ShellVerdict::Allow;
        }
        if let Some(name) = endless_call(commands) {
            let why = format!("the function {name} calls itself, as a fork bomb does");
            return ShellVerdict::Deny(Refusal::Builtin(why));
        }
        let files = commands.iter().flat_map(|command| &command.files);
        files.map(builtin::file).max().unwrap_or_default()
    }
}

fn unclear(why: Unclear) -> ShellVerdict {
    ShellVerdict::Deny(Refusal::Unclear(why.0.to_owned()))
}

/// A judgement under way.
struct Judge<'a> {
    policy: &'a ShellPolicy,
    depth: usize,
    left: usize,
    /// The strictest verdict up to now.
    verdict: ShellVerdict,
}

impl<'a> Judge<'a> {
    fn judge(policy: &'a ShellPolicy, command: ShellCommand<'_>) -> ShellVerdict {
        let mut judge = Self {
            policy,
            depth: 0,
            left: MAX_EFFORT,
            verdict: ShellVerdict::Allow,
        };
        match command {
            ShellCommand::Script(text) => judge.script(text),
            ShellCommand::Program { name, args } => {
                let words = std::iter::once(name).chain(args.iter().map(String::as_str));
                let argv: Vec<Value> = words.map(Value::known).collect();
                judge.argv(&argv, &Value::unknown());
            }
        }
        judge.verdict
    }

    fn add(&mut self, verdict: ShellVerdict) {
        self.verdict = std::mem::take(&mut self.verdict).max(verdict);
    }

    fn script(&mut self, text: &str) {
        let spent = self.spend(text.len() + 1);
        match spent.and_then(|()| script::commands(text)) {
            Ok(commands) => {
                self.add(self.policy.shape(&commands));
                for command in commands {
                    self.argv(&command.argv, &command.stdin);
                }
            }
            Err(why) => self.add(self.policy.unparsed(text, why)),
        }
    }

    /// Judges one command and what it is given to run.
    fn argv(&mut self, argv: &[Value], stdin: &Value) {
        if let Err(why) = self.spend(argv.len() + 10) {
            return self.add(self.policy.undecided(unclear(why)));
        }
        let Some((program, args)) = argv.split_first() else {
            return;
        };
        let text = program.text.as_str();
        let pattern = program.pattern && !matches!(text, "[" | "[[");
        if !program.is_known() || pattern || text.is_empty() {
            let shown: String = text.chars().take(80).collect();
            let why = format!("which program {shown:?} is will only be known when it runs");
            return self.add(self.policy.undecided(ShellVerdict::Ask(why)));
        }
        let name = base_name(text);
        self.add(self.policy.own(name, args));
        self.depth += 1;
        for given in wrappers::given(name, args, stdin) {
            self.given(name, &given, stdin);
        }
        self.depth -= 1;
    }

    fn given(&mut self, name: &str, given: &Given, stdin: &Value) {
        match given {
            Given::Argv(argv) => self.argv(argv, stdin),
            Given::Anywhere(args) => {
                for at in (0..args.len()).filter(|at| args[*at].is_known()) {
                    self.argv(&args[at..], stdin);
                    if args[at].text.contains(' ') {
                        self.script(&args[at].text);
                    }
                }
            }
            Given::Script(script) => {
                self.script(&script.text);
                if !script.is_known() {
                    let why = format!("what {name} runs will only be known when it runs");
                    self.add(self.policy.undecided(ShellVerdict::Ask(why)));
                }
            }
            Given::Perhaps(text) if script::is_script(text) => {
                let before = std::mem::take(&mut self.verdict);
                self.script(text);
                let asked = matches!(self.verdict, ShellVerdict::Ask(_));
                if asked && self.policy.builtin == BuiltinRules::Apply {
                    self.verdict = ShellVerdict::Allow;
                }
                self.add(before);
            }
            Given::Perhaps(_) => {}
        }
    }

    /// Spends effort, or fails when too little is left.
    fn spend(&mut self, amount: usize) -> Result<(), Unclear> {
        if self.depth > MAX_DEPTH {
            return Err(Unclear("it is nested too deeply"));
        }
        let left = self.left.checked_sub(amount);
        // Once it is spent, everything that follows is refused too.
        self.left = left.unwrap_or(0);
        let spent = left.map(drop);
        spent.ok_or(Unclear("it can be read in too many ways"))
    }
}

/// A function from which calls never come to an end, or only after very many.
fn endless_call(commands: &[Command]) -> Option<&str> {
    let mut calls: Vec<(&str, &str)> = Vec::new();
    for command in commands {
        let called = command.argv.first().map(|program| program.text.as_str());
        let callers = command.inside.iter().map(String::as_str);
        calls.extend(callers.zip(called.into_iter().cycle()));
    }
    for _ in 0..MAX_CALLS {
        let before = calls.len();
        let callers: BTreeSet<&str> = calls.iter().map(|(caller, _)| *caller).collect();
        calls.retain(|(_, called)| callers.contains(called));
        if calls.len() == before {
            break;
        }
    }
    calls.first().map(|(caller, _)| *caller)
}
