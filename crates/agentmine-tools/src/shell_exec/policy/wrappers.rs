//! Programs that run what they are given: what that is, and the verdict on it.

use super::code::{commands_in, is_interpreter};
use super::programs::{RUNNERS, SCRIPT_OPTIONS, SHELLS, WRAPPERS, Wrapper};
use super::rule::short_options;
use super::word::Value;
use super::{Effort, Policy, Reading, Verdict};

/// Judges what a command is given to run.
pub(super) fn judge(
    policy: &Policy,
    name: &str,
    args: &[Value],
    reading: &Reading,
    effort: Effort<'_>,
) -> Verdict {
    let judge = Judge {
        policy,
        reading,
        effort,
    };
    if SHELLS.contains(&name) {
        return judge.shell(name, args);
    }
    if is_interpreter(name) {
        return judge.code(args);
    }
    let mut verdict = Verdict::Allow;
    if let Some((_, options)) = SCRIPT_OPTIONS.iter().find(|(program, _)| *program == name) {
        verdict = verdict.or(judge.script_options(args, options));
    }
    if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
        return verdict.or(judge.wrapped(wrapper, args));
    }
    verdict.or(match name {
        "eval" | "watch" => judge.joined(args),
        "find" => judge.find(args),
        "flock" => judge.suffixes(args),
        "trap" => {
            let script = args.iter().find(|arg| arg.text != "--");
            script.map_or(Verdict::Allow, |arg| judge.script(arg))
        }
        "." | "source" => match args.first() {
            Some(file) if is_standard_input(&file.text) => judge.standard_input(name),
            _ => Verdict::Allow,
        },
        "git" => judge.git(args),
        _ if RUNNERS.contains(&name) => judge.suffixes(args),
        "alias" => judge.aliases(args),
        "ssh" => judge.remote(args),
        _ => Verdict::Allow,
    })
}

struct Judge<'a> {
    policy: &'a Policy,
    reading: &'a Reading,
    effort: Effort<'a>,
}

impl Judge<'_> {
    fn argv(&self, argv: &[Value]) -> Verdict {
        self.policy.argv(argv, self.reading, self.effort)
    }

    fn script(&self, script: &Value) -> Verdict {
        let verdict = self.policy.script(&script.text, self.effort);
        match (&verdict, script.is_known()) {
            (Verdict::Deny(_), _) | (_, true) => verdict,
            _ => Verdict::Ask("it runs a script that is only known once it runs".to_owned()),
        }
    }

    fn joined(&self, args: &[Value]) -> Verdict {
        let texts: Vec<_> = args.iter().map(|arg| arg.text.as_str()).collect();
        self.script(&Value {
            text: texts.join(" "),
            unknown_at: args.iter().find_map(|arg| arg.unknown_at),
            pattern: false,
        })
    }

    /// `sh -c script`, `sh file`, `sh` that reads its script.
    fn shell(&self, name: &str, args: &[Value]) -> Verdict {
        let mut rest = args.iter();
        let mut script_follows = false;
        while let Some(arg) = rest.next() {
            if arg.begins_unknown() {
                return Verdict::Ask(format!(
                    "{name} is given words that are only known once it runs"
                ));
            }
            let text = arg.text.as_str();
            match text {
                _ if !text.starts_with(['-', '+']) || text == "-" || text == "--" => {
                    let first = match text == "--" || (text == "-" && script_follows) {
                        true => rest.next(),
                        false => Some(arg),
                    };
                    return match first {
                        Some(script) if script_follows => self.script(script),
                        Some(file) if !is_standard_input(&file.text) => Verdict::Allow,
                        _ => self.standard_input(name),
                    };
                }
                "-o" | "+o" | "-O" | "+O" | "--rcfile" | "--init-file" => {
                    rest.next();
                }
                "--command" => script_follows = true,
                _ if short_options(text).contains('c') => script_follows = true,
                _ if short_options(text).contains('s') => return self.standard_input(name),
                _ => {}
            }
        }
        match script_follows {
            true => Verdict::Allow,
            false => self.standard_input(name),
        }
    }

    fn standard_input(&self, name: &str) -> Verdict {
        match self.reading {
            Reading::Text(text) => self.script(text),
            Reading::File => Verdict::Allow,
            Reading::Unseen => Verdict::Ask(format!(
                "{name} runs a script that comes from another command and is only known once it runs"
            )),
        }
    }

    fn code(&self, args: &[Value]) -> Verdict {
        let texts = args.iter().map(|arg| &arg.text);
        let read = match self.reading {
            Reading::Text(text) => Some(&text.text),
            Reading::Unseen | Reading::File => None,
        };
        let commands = texts.chain(read).flat_map(|code| commands_in(code));
        for command in commands {
            // What is not a command at all may be anything: only what would be refused by name counts.
            let parsed = super::lexer::parse(&command, super::Dialect::Posix, 0);
            if parsed.is_ok()
                && let verdict @ Verdict::Deny(_) = self.policy.script(&command, self.effort)
            {
                return verdict;
            }
        }
        Verdict::Allow
    }

    fn script_options(&self, args: &[Value], options: &[&str]) -> Verdict {
        let mut verdict = Verdict::Allow;
        for (at, arg) in args.iter().enumerate() {
            for option in options {
                let rest = arg.text.strip_prefix(option);
                verdict = verdict.or(match rest {
                    Some("") => args
                        .get(at + 1)
                        .map_or(Verdict::Allow, |next| self.script(next)),
                    Some(attached) => {
                        let script = attached.strip_prefix('=').unwrap_or(attached);
                        self.script(&Value {
                            text: script.to_owned(),
                            ..arg.clone()
                        })
                    }
                    // `-vS`, `-lc`: the letter stands last.
                    None if option.len() == 2
                        && short_options(&arg.text).ends_with(&option[1..]) =>
                    {
                        args.get(at + 1)
                            .map_or(Verdict::Allow, |next| self.script(next))
                    }
                    None => Verdict::Allow,
                });
            }
        }
        verdict
    }

    fn wrapped(&self, wrapper: &Wrapper, args: &[Value]) -> Verdict {
        let mut args = args.to_vec();
        if matches!(wrapper.name, "xargs" | "parallel") {
            stand_in(&mut args);
        }
        let mut at = 0;
        let mut own = wrapper.own;
        while let Some(arg) = args.get(at) {
            let text = arg.text.as_str();
            if arg.begins_unknown() {
                return self.suffixes(&args[at..]).or(Verdict::Ask(format!(
                    "{} is given words that are only known once it runs",
                    wrapper.name
                )));
            }
            if text == "--" {
                at += 1;
                continue;
            }
            if text.starts_with('-') && text.len() > 1 || wrapper.flags.contains(&text) {
                let attached = wrapper
                    .values
                    .iter()
                    .any(|option| text.len() > option.len() && text.starts_with(option));
                at += match wrapper.values.contains(&text) {
                    true => 2,
                    false if attached || wrapper.flags.contains(&text) => 1,
                    false if is_number(text) => 1,
                    false => return self.suffixes(&args[at + 1..]),
                };
                continue;
            }
            let assignment = matches!(wrapper.name, "env" | "sudo" | "doas") && text.contains('=');
            match (assignment, own) {
                (true, _) => at += 1,
                (false, 0) => break,
                (false, _) => {
                    own -= 1;
                    at += 1;
                }
            }
        }
        let inner = args.get(at..).unwrap_or_default();
        let verdict = self.argv(inner);
        match wrapper.name {
            // What it runs goes through a shell.
            "parallel" => verdict.or(self.joined(inner)),
            _ => verdict,
        }
    }

    /// Every rest of the arguments, where it is not known which of them is the command.
    fn suffixes(&self, args: &[Value]) -> Verdict {
        let starts = (0..args.len()).filter(|at| args[*at].is_known());
        starts.fold(Verdict::Allow, |verdict, at| {
            let script = match args[at].text.contains(' ') {
                true => self.script(&args[at]),
                false => Verdict::Allow,
            };
            verdict.or(self.argv(&args[at..])).or(script)
        })
    }

    fn find(&self, args: &[Value]) -> Verdict {
        let mut verdict = Verdict::Allow;
        let mut rest = args;
        while let Some(at) = rest
            .iter()
            .position(|arg| matches!(arg.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir"))
        {
            let after = &rest[at + 1..];
            let end = after
                .iter()
                .position(|arg| matches!(arg.text.as_str(), ";" | "+"))
                .unwrap_or(after.len());
            let inner: Vec<Value> = after[..end].iter().map(found).collect();
            verdict = verdict.or(self.argv(&inner));
            rest = &after[end..];
        }
        verdict
    }

    fn aliases(&self, args: &[Value]) -> Verdict {
        args.iter().fold(Verdict::Allow, |verdict, arg| {
            let Some((_, script)) = arg.text.split_once('=') else {
                return verdict;
            };
            // What `alias r=rm` makes of later words is not followed.
            let verdict = verdict.or(Verdict::Ask(
                "an alias changes what the words after it mean".to_owned(),
            ));
            verdict.or(self.script(&Value {
                text: script.to_owned(),
                ..arg.clone()
            }))
        })
    }

    /// `git -c core.pager=…`, `git -c alias.x='!…'`, `git config alias.x '!…'`: only what would be
    /// refused by name counts, since most settings are no commands.
    fn git(&self, args: &[Value]) -> Verdict {
        let mut after = "";
        let configures = args.iter().any(|arg| arg.text == "config");
        for arg in args {
            let text = arg.text.as_str();
            let setting = match after == "-c" {
                true => text.split_once('=').map(|(_, value)| value),
                false => Some(text).filter(|_| configures),
            };
            after = text;
            let Some(script) = setting else { continue };
            let script = script.strip_prefix('!').unwrap_or(script);
            if super::lexer::parse(script, super::Dialect::Posix, 0).is_ok()
                && let verdict @ Verdict::Deny(_) = self.policy.script(script, self.effort)
            {
                return verdict;
            }
        }
        Verdict::Allow
    }

    fn remote(&self, args: &[Value]) -> Verdict {
        let mut at = 0;
        while let Some(arg) = args.get(at).filter(|arg| arg.text.starts_with('-')) {
            let takes_value =
                arg.text.len() == 2 && "BbcDEeFIiJLlmOopQRSWw".contains(&arg.text[1..]);
            at += 1 + usize::from(takes_value);
        }
        match args.get(at + 1..) {
            Some(command) if !command.is_empty() => self.joined(command),
            _ => Verdict::Allow,
        }
    }
}

/// `{}` stands for a path that `find` made: it begins like the folder where it starts.
fn found(arg: &Value) -> Value {
    match arg.text.contains("{}") {
        true => Value::known(arg.text.replace("{}", "./found")),
        false => arg.clone(),
    }
}

/// What `xargs` reads comes last, or in place of the word that `-I` names.
fn stand_in(args: &mut Vec<Value>) {
    let named = args.iter().enumerate().find_map(|(at, arg)| {
        let rest = arg.text.strip_prefix("-I")?;
        match rest.is_empty() {
            true => args.get(at + 1).map(|next| (at + 2, next.text.clone())),
            false => Some((at + 1, rest.to_owned())),
        }
    });
    let Some((from, name)) = named.filter(|(_, name)| !name.is_empty()) else {
        if !args.is_empty() {
            args.push(Value::unknown());
        }
        return;
    };
    for arg in args.iter_mut().skip(from) {
        if let Some(at) = arg.text.find(&name) {
            arg.text = arg.text.replace(&name, "");
            arg.unknown_at = Some(arg.unknown_at.map_or(at, |known| known.min(at)));
        }
    }
}

/// Whether a file's name stands for what is read from elsewhere.
fn is_standard_input(file: &str) -> bool {
    matches!(
        file,
        "-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0" | "/proc/thread-self/fd/0"
    )
}

/// `nice -10`.
fn is_number(text: &str) -> bool {
    text.len() > 1 && text[1..].chars().all(|c| c.is_ascii_digit())
}
