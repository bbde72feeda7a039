//! The verdict on a command and on all that it is given to run.
//!
//! Judging is bounded in time and stack. Accepted: a line made to deceive the parser's bounds can keep
//! one thread busy.

use crate::builtin;
use crate::parse::{Parser, Unclear};
use crate::rule::{Action, EmptyRule, Rule};
use crate::script;
use crate::value::{Value, base_name};
use crate::verdict::{Refusal, ShellVerdict};
use crate::wrappers::{self, Runs, Wrapper, is_scoped, is_standard_input};

/// Enough for the deepest nesting that the parser accepts, in a debug build.
const STACK: usize = 64 * 1024 * 1024;
/// Deepest nesting of scripts in commands in scripts.
const MAX_DEPTH: usize = 12;
/// What the examination of a word costs, compared to that of a byte of a script.
const WORD: usize = 4;

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
    rules: Vec<Rule>,
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
        let lists = [
            (Action::Deny, deny),
            (Action::Ask, ask),
            (Action::Allow, allow),
        ];
        let parse = |(action, texts): (_, &[String])| -> Vec<_> {
            texts.iter().map(|text| Rule::parse(action, text)).collect()
        };
        let rules = lists
            .into_iter()
            .flat_map(parse)
            .collect::<Result<_, _>>()?;
        Ok(Self { builtin, rules })
    }

    /// Judges a command. Never panics, whatever the command is.
    #[must_use]
    pub fn judge(&self, command: ShellCommand<'_>) -> ShellVerdict {
        let judged = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK);
            let judging = thread.spawn_scoped(scope, || Judge::judge(self, command));
            judging.ok().and_then(|judging| judging.join().ok())
        });
        judged.unwrap_or_else(|| self.unclear(Unclear("the parser failed")))
    }

    /// The verdict on a command by itself.
    fn own(&self, name: &str, args: &[Value]) -> ShellVerdict {
        let matching = self.rules.iter().filter(|rule| rule.matches(name, args));
        match matching.max_by_key(|rule| rule.precedence()) {
            Some(rule) => rule.verdict(name),
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

    /// The verdict on what is not clear.
    fn unclear(&self, why: Unclear) -> ShellVerdict {
        self.undecided(ShellVerdict::Deny(Refusal::Unclear(why.0.to_owned())))
    }

    /// The verdict on a text that cannot be parsed.
    fn unparsed(&self, text: &str, why: Unclear) -> ShellVerdict {
        let rules = self.rules.iter();
        let mentions = rules.filter_map(|rule| Some(rule.verdict(rule.mentioned(text)?)));
        mentions.fold(self.unclear(why), ShellVerdict::max)
    }
}

/// A judgement under way.
struct Judge<'a> {
    policy: &'a ShellPolicy,
    parser: Parser,
    depth: usize,
    /// The strictest verdict up to now.
    verdict: ShellVerdict,
}

impl<'a> Judge<'a> {
    fn judge(policy: &'a ShellPolicy, command: ShellCommand<'_>) -> ShellVerdict {
        let mut judge = Self {
            policy,
            parser: Parser::default(),
            depth: 0,
            verdict: ShellVerdict::Allow,
        };
        match command {
            ShellCommand::Script(text) => judge.script(text),
            ShellCommand::Program { name, args } => {
                let words = std::iter::once(name).chain(args.iter().map(String::as_str));
                let argv: Vec<Value> = words.map(Value::known).collect();
                judge.argv(&argv, &Value::unknown(), Runs::Programs);
            }
        }
        judge.verdict
    }

    fn add(&mut self, verdict: ShellVerdict) {
        self.verdict = std::mem::take(&mut self.verdict).max(verdict);
    }

    /// Asks about something that is not known.
    fn ask(&mut self, what: &str) {
        let why = format!("{what} will only be known when it runs");
        self.add(self.policy.undecided(ShellVerdict::Ask(why)));
    }

    fn script(&mut self, text: &str) {
        let spent = self.spend(text.len() + 1);
        match spent.and_then(|()| script::commands(text, &self.parser)) {
            Ok(commands) => {
                self.add(self.policy.undecided(builtin::shape(&commands)));
                for command in commands {
                    self.argv(&command.argv, &command.stdin, Runs::Programs);
                }
            }
            Err(why) => self.add(self.policy.unparsed(text, why)),
        }
    }

    /// Judges the script that a program is given.
    fn given_script(&mut self, name: &str, script: &Value) {
        self.script(&script.text);
        if !script.is_known() {
            self.ask(&format!("what {name} runs"));
        }
    }

    /// Judges a text that may be no script at all: only a refusal counts, or a rule of the operator where no
    /// built-in rules apply.
    fn possible_script(&mut self, text: &str) {
        if Parser::default().parse(text).is_err() {
            return;
        }
        let before = std::mem::take(&mut self.verdict);
        self.script(text);
        let asked = matches!(self.verdict, ShellVerdict::Ask(_));
        if asked && self.policy.builtin == BuiltinRules::Apply {
            self.verdict = ShellVerdict::Allow;
        }
        self.add(before);
    }

    /// Judges one command and what it is given to run.
    fn argv(&mut self, argv: &[Value], stdin: &Value, runs: Runs) {
        if let Err(why) = self.spend(WORD * (argv.len() + 10)) {
            return self.add(self.policy.unclear(why));
        }
        let Some((program, args)) = argv.split_first() else {
            return;
        };
        let text = program.text.as_str();
        let pattern = program.pattern && !matches!(text, "[" | "[[");
        if !program.is_known() || pattern || text.is_empty() {
            let shown: String = text.chars().take(80).collect();
            return self.ask(&format!("which program {shown:?} is"));
        }
        let name = match runs {
            Runs::Packages if is_scoped(text) => text,
            Runs::Packages | Runs::Programs => base_name(text),
        };
        self.add(self.policy.own(name, args));
        if let Some(wrapper) = Wrapper::find(name) {
            self.depth += 1;
            self.given(name, &wrapper, args, stdin);
            self.depth -= 1;
        }
    }

    /// Judges what a program is given to run.
    fn given(&mut self, name: &str, wrapper: &Wrapper, args: &[Value], stdin: &Value) {
        let mut scripts = wrapper.option_scripts(args);
        let runs = wrapper.runs(name, args);
        match wrapper.how {
            "none" => {}
            "anywhere" => self.anywhere(args, stdin, runs),
            "exec" => {
                let commands = wrapper.executed(args);
                commands
                    .iter()
                    .for_each(|argv| self.argv(argv, stdin, runs));
            }
            "code" => {
                // Where a sandbox confines what runs, a text such as "service worker" that an edit writes is no command.
                let policy = self.policy;
                let is_judged = |code: &&Value| match policy.builtin {
                    BuiltinRules::Apply => true,
                    BuiltinRules::Ignore => wrappers::may_run_programs(name, code),
                };
                let codes = args.iter().chain([stdin]).filter(is_judged);
                let texts = codes.flat_map(wrappers::texts);
                texts.for_each(|text| self.possible_script(&text));
            }
            "settings" => wrappers::settings(args).for_each(|text| self.possible_script(text)),
            "aliases" => scripts.extend(wrappers::aliases(args)),
            "script" => scripts.extend(args.iter().find(|arg| arg.text != "--").cloned()),
            // What is in a file is not examined.
            "source" => {
                let file = args.first().filter(|file| is_standard_input(file));
                scripts.extend(file.and(Some(stdin)).cloned());
            }
            "shell" => scripts.extend(wrapper.shell(args, stdin)),
            how if how.starts_with("after ") => {
                self.wrapped(name, wrapper, wrapper.after(args), stdin, runs);
            }
            how if how.contains("input") => {
                self.wrapped(name, wrapper, &wrappers::with_input(args), stdin, runs);
            }
            _ => self.wrapped(name, wrapper, args, stdin, runs),
        }
        for script in scripts {
            self.given_script(name, &script);
        }
    }

    /// Judges the command that comes after a program's own arguments.
    fn wrapped(
        &mut self,
        name: &str,
        wrapper: &Wrapper,
        args: &[Value],
        stdin: &Value,
        runs: Runs,
    ) {
        let (at, is_certain) = wrapper.command(name, args);
        let command = args.get(at..).unwrap_or_default();
        if wrapper.joins() {
            self.given_script(name, &wrappers::joined(command));
        }
        if !is_certain {
            self.anywhere(command, stdin, runs);
            if command.first().is_some_and(Value::begins_unknown) {
                self.given_script(name, &Value::unknown());
            }
        } else if wrapper.how != "joined" {
            self.argv(command, stdin, runs);
        }
    }

    /// Judges a command that begins somewhere among these arguments.
    fn anywhere(&mut self, args: &[Value], stdin: &Value, runs: Runs) {
        for at in (0..args.len()).filter(|at| args[*at].is_known()) {
            self.argv(&args[at..], stdin, runs);
            if args[at].text.contains(' ') {
                self.script(&args[at].text);
            }
        }
    }

    /// Spends effort, or fails when too little is left or the nesting is too deep.
    fn spend(&self, amount: usize) -> Result<(), Unclear> {
        match self.depth > MAX_DEPTH {
            true => Err(Unclear("it is nested too deeply")),
            false => self.parser.spend(amount),
        }
    }
}
