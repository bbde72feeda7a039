//! The verdict on what a program is given to run.

use crate::decide::{Judge, Reading};
use crate::programs::{INTERPRETERS, RUNNERS, SCRIPT_OPTIONS, SHELLS, Wrapper, listed};
use crate::rule::short_options;
use crate::script::is_script;
use crate::word::Value;
use crate::{ShellVerdict, ask};

/// Judges what a command is given to run.
pub(crate) fn judge(
    judge: Judge<'_>,
    name: &str,
    args: &[Value],
    reading: &Reading,
) -> ShellVerdict {
    let given = Given { judge, reading };
    if listed(SHELLS, name) {
        return given.shell(name, args);
    }
    if listed(
        INTERPRETERS,
        name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'),
    ) {
        return given.code(args);
    }
    let options = SCRIPT_OPTIONS.iter().find(|(program, _)| *program == name);
    let verdict = options.map_or(ShellVerdict::Allow, |(_, options)| {
        given.script_options(args, options)
    });
    if let Some(wrapper) = Wrapper::find(name) {
        return verdict.or(given.wrapped(&wrapper, args));
    }
    verdict.or(match name {
        "eval" | "watch" => given.joined(args),
        "find" => given.find(args),
        "flock" => given.suffixes(args),
        "trap" => {
            let script = args.iter().find(|arg| arg.text != "--");
            script.map_or(ShellVerdict::Allow, |arg| given.script(arg))
        }
        "." | "source" => match args.first() {
            Some(file) if is_standard_input(&file.text) => given.standard_input(name),
            _ => ShellVerdict::Allow,
        },
        "git" => given.git(args),
        _ if listed(RUNNERS, name) => given.suffixes(args),
        "alias" => given.aliases(args),
        "ssh" => given.remote(args),
        _ => ShellVerdict::Allow,
    })
}

struct Given<'a> {
    judge: Judge<'a>,
    reading: &'a Reading,
}

impl Given<'_> {
    fn argv(&self, argv: &[Value]) -> ShellVerdict {
        self.judge.argv(argv, self.reading)
    }

    fn script(&self, script: &Value) -> ShellVerdict {
        let verdict = self.judge.script(&script.text);
        match (&verdict, script.is_known()) {
            (ShellVerdict::Deny(_), _) | (_, true) => verdict,
            _ => ask("the script that it runs will only be known when it runs"),
        }
    }

    /// What is refused in a text that may be no script at all.
    fn denied(&self, text: &str) -> ShellVerdict {
        match is_script(text).then(|| self.judge.script(text)) {
            Some(verdict @ ShellVerdict::Deny(_)) => verdict,
            _ => ShellVerdict::Allow,
        }
    }

    fn joined(&self, args: &[Value]) -> ShellVerdict {
        let texts: Vec<_> = args.iter().map(|arg| arg.text.as_str()).collect();
        self.script(&Value {
            text: texts.join(" "),
            unknown_at: args.iter().find_map(|arg| arg.unknown_at),
            pattern: false,
        })
    }

    /// `sh -c script`, `sh file`, `sh` that reads its script.
    fn shell(&self, name: &str, args: &[Value]) -> ShellVerdict {
        let mut rest = args.iter();
        let mut script_follows = false;
        while let Some(arg) = rest.next() {
            if arg.begins_unknown() {
                return ask(format!(
                    "some arguments of {name} will only be known when it runs"
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
                        Some(file) if !is_standard_input(&file.text) => ShellVerdict::Allow,
                        _ => self.standard_input(name),
                    };
                }
                "-o" | "+o" | "-O" | "+O" | "--rcfile" | "--init-file" => drop(rest.next()),
                "--command" => script_follows = true,
                _ if short_options(text).contains('c') => script_follows = true,
                _ if short_options(text).contains('s') => return self.standard_input(name),
                _ => {}
            }
        }
        match script_follows {
            true => ShellVerdict::Allow,
            false => self.standard_input(name),
        }
    }

    fn standard_input(&self, name: &str) -> ShellVerdict {
        match self.reading {
            Reading::Text(text) => self.script(text),
            Reading::File => ShellVerdict::Allow,
            Reading::Unseen => ask(format!(
                "{name} runs a script that another command writes and that will only be known when it runs"
            )),
        }
    }

    /// Code for an interpreter is not understood. The texts in its quotes are judged as commands, one by
    /// one and joined, which finds `os.system("rm -rf x")` and `["rm", "-rf", "x"]`.
    fn code(&self, args: &[Value]) -> ShellVerdict {
        let read = match self.reading {
            Reading::Text(text) => Some(text),
            Reading::Unseen | Reading::File => None,
        };
        let mut commands = args
            .iter()
            .chain(read)
            .flat_map(|code| quoted_texts(&code.text));
        let denied = commands.find_map(|command| match self.denied(&command) {
            ShellVerdict::Allow => None,
            verdict => Some(verdict),
        });
        denied.unwrap_or(ShellVerdict::Allow)
    }

    fn script_options(&self, args: &[Value], options: &str) -> ShellVerdict {
        let mut scripts = Vec::new();
        for (at, arg) in args.iter().enumerate() {
            for option in options.split_whitespace() {
                match arg.text.strip_prefix(option) {
                    Some("") => scripts.extend(args.get(at + 1).cloned()),
                    Some(attached) => scripts.push(Value {
                        text: attached.strip_prefix('=').unwrap_or(attached).to_owned(),
                        ..arg.clone()
                    }),
                    // `-vS`, `-lc`: the letter is the last one.
                    None if option.len() == 2
                        && short_options(&arg.text).ends_with(&option[1..]) =>
                    {
                        scripts.extend(args.get(at + 1).cloned());
                    }
                    None => {}
                }
            }
        }
        scripts.iter().fold(ShellVerdict::Allow, |verdict, script| {
            verdict.or(self.script(script))
        })
    }

    fn wrapped(&self, wrapper: &Wrapper, args: &[Value]) -> ShellVerdict {
        let name = wrapper.name;
        let mut args = args.to_vec();
        if listed("xargs parallel", name) {
            stand_in(&mut args);
        }
        let (mut at, mut own) = (0, wrapper.own);
        while let Some(arg) = args.get(at) {
            let text = arg.text.as_str();
            if arg.begins_unknown() {
                let why = format!("some arguments of {name} will only be known when it runs");
                return self.suffixes(&args[at..]).or(ask(why));
            }
            if text == "--" {
                at += 1;
            } else if wrapper.is_option(text) {
                match wrapper.option(text) {
                    Some(taken) => at += taken,
                    None => return self.suffixes(&args[at + 1..]),
                }
            } else if listed("env sudo doas", name) && text.contains('=') {
                at += 1;
            } else if own > 0 {
                own -= 1;
                at += 1;
            } else {
                break;
            }
        }
        let inner = args.get(at..).unwrap_or_default();
        match name {
            // What it runs goes through a shell.
            "parallel" => self.argv(inner).or(self.joined(inner)),
            _ => self.argv(inner),
        }
    }

    /// Every rest of the arguments, where it is not known which of them is the command.
    fn suffixes(&self, args: &[Value]) -> ShellVerdict {
        let starts = (0..args.len()).filter(|at| args[*at].is_known());
        starts.fold(ShellVerdict::Allow, |verdict, at| {
            let script = match args[at].text.contains(' ') {
                true => self.script(&args[at]),
                false => ShellVerdict::Allow,
            };
            verdict.or(self.argv(&args[at..])).or(script)
        })
    }

    fn find(&self, args: &[Value]) -> ShellVerdict {
        let mut verdict = ShellVerdict::Allow;
        let mut rest = args;
        while let Some(at) = rest
            .iter()
            .position(|arg| listed("-exec -execdir -ok -okdir", &arg.text))
        {
            let after = &rest[at + 1..];
            let end = after.iter().position(|arg| listed("; +", &arg.text));
            let end = end.unwrap_or(after.len());
            let inner: Vec<Value> = after[..end].iter().map(found).collect();
            verdict = verdict.or(self.argv(&inner));
            rest = &after[end..];
        }
        verdict
    }

    fn aliases(&self, args: &[Value]) -> ShellVerdict {
        args.iter().fold(ShellVerdict::Allow, |verdict, arg| {
            let Some((_, script)) = arg.text.split_once('=') else {
                return verdict;
            };
            // What `alias r=rm` makes of later words is not followed.
            verdict
                .or(ask("an alias changes what the words after it mean"))
                .or(self.script(&Value {
                    text: script.to_owned(),
                    ..arg.clone()
                }))
        })
    }

    /// `git -c core.pager=…`, `git -c alias.x='!…'`, `git config alias.x '!…'`: only what is refused
    /// counts, since most settings are no commands.
    fn git(&self, args: &[Value]) -> ShellVerdict {
        let configures = args.iter().any(|arg| arg.text == "config");
        let settings = args.iter().enumerate().filter_map(|(at, arg)| {
            let after_c = at > 0 && args[at - 1].text == "-c";
            match arg.text.split_once('=') {
                _ if !after_c => Some(arg.text.as_str()).filter(|_| configures),
                pair => pair.map(|(_, value)| value),
            }
        });
        settings.fold(ShellVerdict::Allow, |verdict, setting| {
            verdict.or(self.denied(setting.strip_prefix('!').unwrap_or(setting)))
        })
    }

    fn remote(&self, args: &[Value]) -> ShellVerdict {
        let mut at = 0;
        while let Some(arg) = args.get(at).filter(|arg| arg.text.starts_with('-')) {
            let takes_value =
                arg.text.len() == 2 && "BbcDEeFIiJLlmOopQRSWw".contains(&arg.text[1..]);
            at += 1 + usize::from(takes_value);
        }
        match args.get(at + 1..) {
            Some(command) if !command.is_empty() => self.joined(command),
            _ => ShellVerdict::Allow,
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
    listed(
        "- /dev/stdin /dev/fd/0 /proc/self/fd/0 /proc/thread-self/fd/0",
        file,
    )
}

/// The texts in quotes, and all of them joined.
fn quoted_texts(code: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut chars = code.chars();
    while let Some(quote) = chars.find(|c| matches!(c, '\'' | '"' | '`')) {
        let mut text = String::new();
        while let Some(c) = chars.next().filter(|c| *c != quote) {
            match c {
                '\\' => text.extend(chars.next()),
                c => text.push(c),
            }
        }
        texts.push(text);
    }
    if texts.len() > 1 {
        texts.push(texts.join(" "));
    }
    texts
}
