//! Where the command or the script is that a program is given to run. `programs.txt` lists how each program
//! receives it.

use std::sync::LazyLock;

use crate::value::{Value, listed, rows, short_options};

static PROGRAMS: LazyLock<Vec<[&str; 5]>> = LazyLock::new(|| rows(include_str!("programs.txt")));

/// What the words name that a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    /// Programs.
    Programs,
    /// Programs, or packages of npm.
    Packages,
}

/// `@scope/name`, with or without a version: a package of npm. Its last part is no program of the system.
pub(crate) fn is_scoped(text: &str) -> bool {
    let parts = text.strip_prefix('@').and_then(|it| it.split_once('/'));
    parts.is_some_and(|(scope, name)| !scope.is_empty() && !name.is_empty() && !name.contains('/'))
}

/// How a program receives what it runs: a row of `programs.txt`.
pub(crate) struct Wrapper {
    values: &'static str,
    flags: &'static str,
    scripts: &'static str,
    /// How many arguments of its own it has besides options.
    own: usize,
    pub(crate) how: &'static str,
}

impl Wrapper {
    pub(crate) fn find(name: &str) -> Option<Self> {
        let find = |name: &str| PROGRAMS.iter().find(|row| listed(row[0], name));
        // `python3.11` is `python`.
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let code = || find(plain).filter(|row| row[4] == "code");
        let &[_, values, flags, scripts, how] = find(name).or_else(code)?;
        let (own, rest) = how.split_once(' ').unwrap_or((how, how));
        let how = if own == "after" { how } else { rest };
        let own = own.parse().unwrap_or_default();
        Some(Self {
            values,
            flags,
            scripts,
            own,
            how,
        })
    }

    /// Whether the words of the command are a script together.
    pub(crate) fn joins(&self) -> bool {
        matches!(self.how, "joined" | "input both")
    }

    /// The arguments after the subcommand that runs a command, such as `run`.
    pub(crate) fn after<'v>(&self, args: &'v [Value]) -> &'v [Value] {
        let words = self.how.strip_prefix("after").unwrap_or_default();
        let subcommand = args.iter().position(|arg| listed(words, &arg.text));
        args.get(subcommand.map_or(args.len(), |at| at + 1)..)
            .unwrap_or_default()
    }

    /// What the words name that it runs. `pnpm exec` takes a path, and `pnpm dlx` a package.
    pub(crate) fn runs(&self, name: &str, args: &[Value]) -> Runs {
        let words = self.how.strip_prefix("after").unwrap_or_default();
        let subcommand = args.iter().find(|arg| listed(words, &arg.text));
        let is_dlx = subcommand.is_some_and(|arg| arg.text == "dlx");
        match is_dlx || listed("npx pnpx bunx npm", name) {
            true => Runs::Packages,
            false => Runs::Programs,
        }
    }

    /// The commands of `find -exec` or `fd -x`. `{}` stands for a path that begins like the folder where it starts.
    pub(crate) fn executed(&self, args: &[Value]) -> Vec<Vec<Value>> {
        let found = |word: &Value| match word.text.contains("{}") {
            true => Value::known(word.text.replace("{}", "./found")),
            false => word.clone(),
        };
        // `-Hx` is `-H -x`.
        let is_start = |arg: &Value| {
            let mut options = self.values.split_whitespace();
            options.any(|option| match option.len() {
                2 => short_options(&arg.text).ends_with(&option[1..]),
                _ => arg.text == option,
            })
        };
        let is_end = |arg: &&Value| listed("; +", &arg.text);
        let mut rest = args.iter();
        let mut commands = Vec::new();
        while rest.any(is_start) {
            let words = rest.clone().take_while(|arg| !is_end(arg));
            commands.push(words.map(found).collect());
        }
        commands
    }

    /// Where the command begins, and whether it is certain that it begins there and not later.
    pub(crate) fn command(&self, name: &str, args: &[Value]) -> (usize, bool) {
        let (mut own, mut at) = (self.own, 0);
        while let Some(arg) = args.get(at) {
            let text = arg.text.as_str();
            let is_option = (text.starts_with('-') && text.len() > 1) || listed(self.flags, text);
            let assigns = listed("env sudo doas", name) && text.contains('=');
            if arg.begins_unknown() && !(self.how == "joined" && own > 0) {
                return (at, false);
            } else if text == "--" || (assigns && !is_option) {
                at += 1;
            } else if is_option {
                match self.taken(text) {
                    0 => return (at + 1, false),
                    taken => at += taken,
                }
            } else if own > 0 {
                own -= 1;
                at += 1;
            } else {
                break;
            }
        }
        (at, true)
    }

    /// The values of the options that are scripts.
    pub(crate) fn option_scripts(&self, args: &[Value]) -> Vec<Value> {
        let mut values = Vec::new();
        for (at, arg) in args.iter().enumerate() {
            for option in self.scripts.split_whitespace() {
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

    /// How many arguments an option takes with its value; 0 for one that is not known.
    fn taken(&self, text: &str) -> usize {
        // `-oL`, `--signal=KILL`; `--python-preference` is not `--python`.
        let attached = |option: &str| {
            let value = text.strip_prefix(option);
            value.is_some_and(|value| value.starts_with('=') || !option.starts_with("--"))
        };
        let number = text[1..].chars().all(|c| c.is_ascii_digit());
        match listed(self.values, text) {
            true => 2,
            false if listed(self.flags, text) || number => 1,
            false => self.values.split_whitespace().any(attached).into(),
        }
    }

    /// The scripts that a shell runs: `sh -c script`, or its standard input.
    pub(crate) fn shell(&self, args: &[Value], stdin: &Value) -> Vec<Value> {
        let is_option = |arg: &&Value| {
            arg.text != "-" && arg.text.starts_with(['-', '+']) && !arg.begins_unknown()
        };
        let (mut at, mut operands) = (0, Vec::new());
        while let Some(arg) = args.get(at).filter(is_option) {
            // In `-euo pipefail`, the letter `o` takes the next argument, but some shells read `-opipefail`.
            let takes_next = !arg.text.starts_with("--") && arg.text.contains(['o', 'O']);
            if takes_next && arg.text.len() > 2 {
                operands.extend(args.get(at + 1));
            }
            at += 1 + usize::from(takes_next || listed(self.values, &arg.text));
            if arg.text == "--" {
                break;
            }
        }
        let (options, rest) = args.split_at(at.min(args.len()));
        let letters = options.iter().map(|arg| short_options(&arg.text));
        let has = |letter: char| letters.clone().any(|given| given.contains(letter));
        let runs = has('c') || options.iter().any(|arg| arg.text == "--command");
        let is_operand = |arg: &&Value| !runs || arg.text != "-" || arg.begins_unknown();
        let operands = operands.into_iter().map(Some);
        let operands = operands.chain([rest.iter().find(is_operand)]);
        let scripts = operands.flat_map(|operand| match operand {
            _ if has('s') && !runs => vec![stdin.clone()],
            Some(arg) if arg.begins_unknown() => vec![Value::unknown()],
            // dash runs both.
            Some(script) if has('s') => vec![script.clone(), stdin.clone()],
            Some(script) if runs => vec![script.clone()],
            Some(file) if !is_standard_input(file) => Vec::new(),
            _ => vec![stdin.clone()],
        });
        scripts.collect()
    }
}

/// Whether a file's name stands for what is read from elsewhere.
pub(crate) fn is_standard_input(file: &Value) -> bool {
    let names = "- /dev/stdin /dev/fd/0 /proc/self/fd/0 /proc/thread-self/fd/0";
    listed(names, &file.text)
}

/// Parts of the functions by which code runs programs, in lower case.
const RUNS: [&str; 15] = [
    "system",
    "process",
    "popen",
    "exec",
    "spawn",
    "command",
    "shell",
    "passthru",
    "proc_open",
    "open3",
    "qx",
    "%x",
    "deno.run",
    "`",
    "|",
];

/// The same for Python and JavaScript, in which neither a backtick nor a word such as `process` runs a program.
const CALLS: [&str; 10] = [
    "system(",
    "import system",
    "from os import",
    "subprocess",
    "child_process",
    "popen",
    "exec",
    "spawn",
    "deno.",
    "$`",
];

/// Whether code for this interpreter may run programs, as far as its text shows.
pub(crate) fn may_run_programs(interpreter: &str, code: &Value) -> bool {
    let language = interpreter.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let parts: &[&str] = match listed("python pypy node nodejs deno bun", language) {
        true => &CALLS,
        false => &RUNS,
    };
    let lower = code.text.to_lowercase();
    parts.iter().any(|part| lower.contains(part))
}

/// The texts in the quotes of code, one by one and joined, which finds `os.system("rm -rf x")` and
/// `["rm", "-rf", "x"]`. Where code runs no programs, a single word is a key or a mode: `options["halt"]`.
pub(crate) fn texts(code: &Value) -> Vec<String> {
    let mut texts = Vec::new();
    let mut chars = code.text.chars();
    while let Some(quote) = chars.find(|c| matches!(c, '\'' | '"' | '`')) {
        let mut text = String::new();
        while let Some(c) = chars.next().filter(|c| *c != quote) {
            text.extend(if c == '\\' { chars.next() } else { Some(c) });
        }
        texts.push(text);
    }
    let lower = code.text.to_lowercase();
    match RUNS.iter().any(|part| lower.contains(part)) {
        true => texts.push(texts.join(" ")),
        false => texts.retain(|text| text.contains(char::is_whitespace)),
    }
    texts
}

/// `git -c core.pager=…`, `git -c alias.x='!…'`, `git config alias.x '!…'`: most settings are no commands.
pub(crate) fn settings(args: &[Value]) -> impl Iterator<Item = &str> {
    let configures = args.iter().any(|arg| arg.text == "config");
    args.iter().enumerate().filter_map(move |(at, arg)| {
        let setting = match at > 0 && args[at - 1].text == "-c" {
            true => arg.text.split_once('=')?.1,
            false => configures.then_some(arg.text.as_str())?,
        };
        Some(setting.strip_prefix('!').unwrap_or(setting))
    })
}

/// The scripts of aliases. What an alias does to later words is not followed, so each is unknown.
pub(crate) fn aliases(args: &[Value]) -> impl Iterator<Item = Value> {
    let scripts = args.iter().filter_map(|arg| arg.text.split_once('='));
    scripts.map(|(_, script)| Value {
        text: script.to_owned(),
        ..Value::unknown()
    })
}

/// A command that goes through a shell: its words are a script together.
pub(crate) fn joined(command: &[Value]) -> Value {
    let texts: Vec<_> = command.iter().map(|arg| arg.text.as_str()).collect();
    Value {
        text: texts.join(" "),
        unknown_at: command.iter().find_map(|arg| arg.unknown_at),
        pattern: false,
    }
}

/// What `xargs` reads comes last, or in place of the word that `-I` names.
pub(crate) fn with_input(args: &[Value]) -> Vec<Value> {
    let mut args = args.to_vec();
    let option = args.iter().position(|arg| arg.text.starts_with("-I"));
    let name = option.and_then(|at| match &args[at].text[2..] {
        "" => Some((at + 2, args.get(at + 1)?.text.clone())),
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
