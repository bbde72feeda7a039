//! Finds the commands that a command runs: `programs.txt` lists how each program receives them.

use std::sync::LazyLock;

use crate::value::{Value, listed, rows, short_options, unversioned};

/// What a program is given to run.
#[derive(Debug)]
pub(crate) enum Given {
    /// A program with its arguments.
    Argv(Vec<Value>),
    /// A program with its arguments that begins somewhere among these.
    Anywhere(Vec<Value>),
    Script(Value),
    /// A text that may be no script at all: only a refusal counts, or a rule of the operator where no
    /// built-in rules apply.
    Perhaps(String),
}

static PROGRAMS: LazyLock<Vec<[&str; 5]>> = LazyLock::new(|| rows(include_str!("programs.txt")));

/// What a program with these arguments is given to run.
pub(crate) fn given(name: &str, args: &[Value], stdin: &Value) -> Vec<Given> {
    let find = |name: &str| PROGRAMS.iter().find(|row| listed(row[0], name));
    let code = || find(unversioned(name)).filter(|row| row[4] == "code");
    let Some(&[_, values, flags, options, how]) = find(name).or_else(code) else {
        return Vec::new();
    };
    let mut given = scripts(option_values(options, args));
    given.extend(match how {
        "shell" => scripts(shell(args, stdin)),
        "code" => texts(args.iter().chain([stdin])),
        "exec" => executed(args),
        "script" => scripts(args.iter().find(|arg| arg.text != "--").cloned()),
        "aliases" => scripts(aliases(args)),
        "settings" => settings(args),
        "stdin" if args.first().is_some_and(is_standard_input) => scripts([stdin.clone()]),
        "anywhere" => vec![Given::Anywhere(args.to_vec())],
        _ => match how.strip_prefix("input ") {
            Some(how) => Options { values, flags }.command(name, how, &with_input(args)),
            None => Options { values, flags }.command(name, how, args),
        },
    });
    given
}

fn scripts(values: impl IntoIterator<Item = Value>) -> Vec<Given> {
    values.into_iter().map(Given::Script).collect()
}

/// The script that a shell runs: `sh -c script`, or its standard input.
fn shell(args: &[Value], stdin: &Value) -> Option<Value> {
    let (mut rest, mut script_follows) = (args.iter(), false);
    let first = loop {
        let Some(arg) = rest.next() else { break None };
        let letters = short_options(&arg.text);
        match arg.text.as_str() {
            _ if arg.begins_unknown() => return Some(Value::unknown()),
            "--" => break rest.next(),
            "-" if script_follows => break rest.next(),
            "-" => break Some(arg),
            "-o" | "+o" | "-O" | "+O" | "--rcfile" | "--init-file" => drop(rest.next()),
            "--command" => script_follows = true,
            _ if letters.contains('c') => script_follows = true,
            _ if letters.contains('s') => return Some(stdin.clone()),
            text if text.starts_with(['-', '+']) => {}
            _ => break Some(arg),
        }
    };
    match first {
        Some(script) if script_follows => Some(script.clone()),
        Some(file) if !is_standard_input(file) => None,
        _ => Some(stdin.clone()),
    }
}

/// Whether a file's name stands for what is read from elsewhere.
fn is_standard_input(file: &Value) -> bool {
    let names = "- /dev/stdin /dev/fd/0 /proc/self/fd/0 /proc/thread-self/fd/0";
    listed(names, &file.text)
}

/// The texts in the quotes of code, one by one and joined, which finds `os.system("rm -rf x")` and
/// `["rm", "-rf", "x"]`.
fn texts<'a>(codes: impl Iterator<Item = &'a Value>) -> Vec<Given> {
    let mut found = Vec::new();
    for code in codes {
        let mut texts = Vec::new();
        let mut chars = code.text.chars();
        while let Some(quote) = chars.find(|c| matches!(c, '\'' | '"' | '`')) {
            let mut text = String::new();
            while let Some(c) = chars.next().filter(|c| *c != quote) {
                text.extend(if c == '\\' { chars.next() } else { Some(c) });
            }
            texts.push(text);
        }
        texts.push(texts.join(" "));
        found.extend(texts.into_iter().map(Given::Perhaps));
    }
    found
}

/// The commands of `find -exec`. `{}` stands for a path that begins like the folder where it starts.
fn executed(args: &[Value]) -> Vec<Given> {
    let mut commands: Vec<Given> = Vec::new();
    for (at, arg) in args.iter().enumerate() {
        if listed("-exec -execdir -ok -okdir", &arg.text) {
            let mut words = args[at + 1..].to_vec();
            let end = words.iter().position(|arg| listed("; +", &arg.text));
            words.truncate(end.unwrap_or(words.len()));
            for word in words.iter_mut().filter(|word| word.text.contains("{}")) {
                *word = Value::known(word.text.replace("{}", "./found"));
            }
            commands.push(Given::Argv(words));
        }
    }
    commands
}

/// `git -c core.pager=…`, `git -c alias.x='!…'`, `git config alias.x '!…'`: most settings are no commands.
fn settings(args: &[Value]) -> Vec<Given> {
    let configures = args.iter().any(|arg| arg.text == "config");
    let mut commands = Vec::new();
    for (at, arg) in args.iter().enumerate() {
        let setting = match at > 0 && args[at - 1].text == "-c" {
            true => arg.text.split_once('=').map(|(_, value)| value),
            false => configures.then_some(arg.text.as_str()),
        };
        let command = setting.map(|setting| setting.strip_prefix('!').unwrap_or(setting));
        commands.extend(command.map(|command| Given::Perhaps(command.to_owned())));
    }
    commands
}

/// The scripts of aliases. What an alias does to later words is not followed, so each adds an unknown one.
fn aliases(args: &[Value]) -> impl Iterator<Item = Value> {
    let scripts = args
        .iter()
        .filter_map(|arg| Some(arg.with(arg.text.split_once('=')?.1)));
    scripts.flat_map(|script| [script, Value::unknown()])
}

/// The values of the options that are scripts.
fn option_values(options: &str, args: &[Value]) -> Vec<Value> {
    let mut values = Vec::new();
    for (at, arg) in args.iter().enumerate() {
        for option in options.split_whitespace() {
            // `-vS`, `-lc`: the letter is the last one.
            let last = option.len() == 2 && short_options(&arg.text).ends_with(&option[1..]);
            match arg.text.strip_prefix(option) {
                Some(value) if !value.is_empty() => {
                    values.push(arg.with(value.strip_prefix('=').unwrap_or(value)));
                }
                value if last || value.is_some() => values.extend(args.get(at + 1).cloned()),
                _ => {}
            }
        }
    }
    values
}

/// The options of a program before the command that it runs.
struct Options {
    values: &'static str,
    flags: &'static str,
}

impl Options {
    /// The command among the arguments, if it comes after a number of others.
    fn command(&self, name: &str, how: &str, args: &[Value]) -> Vec<Given> {
        let (own, how) = how.split_once(' ').unwrap_or((how, ""));
        let Ok(mut own) = own.parse::<usize>() else {
            return Vec::new();
        };
        let mut at = 0;
        while let Some(arg) = args.get(at) {
            let text = arg.text.as_str();
            let is_option = (text.starts_with('-') && text.len() > 1) || listed(self.flags, text);
            let assigns = listed("env sudo doas", name) && text.contains('=');
            if arg.begins_unknown() && !(how == "joined" && own > 0) {
                let mut given = somewhere(how, &args[at..]);
                given.push(Given::Script(Value::unknown()));
                return given;
            } else if is_option && text != "--" {
                match self.taken(text) {
                    0 => return somewhere(how, &args[at + 1..]),
                    taken => at += taken,
                }
            } else if text == "--" || assigns {
                at += 1;
            } else if own > 0 {
                own -= 1;
                at += 1;
            } else {
                break;
            }
        }
        let command = args.get(at..).unwrap_or_default().to_vec();
        match how {
            "joined" => vec![Given::Script(joined(&command))],
            "both" => vec![Given::Script(joined(&command)), Given::Argv(command)],
            _ => vec![Given::Argv(command)],
        }
    }

    /// How many arguments an option takes with its value; 0 for one that is not known.
    fn taken(&self, text: &str) -> usize {
        let attached = |option: &str| text.starts_with(option);
        let number = text[1..].chars().all(|c| c.is_ascii_digit());
        match listed(self.values, text) {
            true => 2,
            false if listed(self.flags, text) || number => 1,
            false => self.values.split_whitespace().any(attached).into(),
        }
    }
}

/// A command that begins somewhere among these arguments.
fn somewhere(how: &str, args: &[Value]) -> Vec<Given> {
    let script = listed("joined both", how).then(|| Given::Script(joined(args)));
    let anywhere = Given::Anywhere(args.to_vec());
    script.into_iter().chain([anywhere]).collect()
}

/// A command that goes through a shell: its words are a script together.
fn joined(command: &[Value]) -> Value {
    let texts: Vec<_> = command.iter().map(|arg| arg.text.as_str()).collect();
    Value {
        text: texts.join(" "),
        unknown_at: command.iter().find_map(|arg| arg.unknown_at),
        pattern: false,
    }
}

/// What `xargs` reads comes last, or in place of the word that `-I` names.
fn with_input(args: &[Value]) -> Vec<Value> {
    let mut args = args.to_vec();
    let option = args.iter().position(|arg| arg.text.starts_with("-I"));
    let name = option.and_then(|at| match &args[at].text[2..] {
        "" => args.get(at + 1).map(|name| (at + 2, name.text.clone())),
        name => Some((at + 1, name.to_owned())),
    });
    let Some((from, name)) = name.filter(|(_, name)| !name.is_empty()) else {
        args.extend((!args.is_empty()).then(Value::unknown));
        return args;
    };
    for arg in args.iter_mut().skip(from) {
        if let Some(at) = arg.text.find(&name) {
            arg.text = arg.text.replace(&name, "");
            arg.unknown_at = Some(arg.unknown_at.map_or(at, |known| known.min(at)));
        }
    }
    args
}
