//! The built-in rules: `rules.txt` lists the commands that are refused, and those for which the user is asked.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use crate::script::Command;
use crate::value::{Value, listed, names, rows, short_options};
use crate::verdict::{Refusal, ShellVerdict};

static RULES: LazyLock<Vec<[&str; 4]>> = LazyLock::new(|| rows(include_str!("rules.txt")));

/// Longest chain of functions that call each other.
const MAX_CALLS: usize = 100;
/// Folders whose loss is the loss of the system or of all files of a user.
const FOLDERS: &str = "/ /bin /boot /dev /etc /home /lib /lib32 /lib64 /media /mnt /opt /proc /root /run \
    /sbin /srv /sys /usr /usr/bin /usr/lib /usr/local /var /var/lib /Users";
/// Beginnings of the paths of disks, memory and switches of the kernel.
const DEVICES: &str = "/dev/sd /dev/hd /dev/vd /dev/xvd /dev/nvme /dev/mmcblk /dev/dm- /dev/mapper/ \
    /dev/disk/ /dev/loop /dev/md /dev/mem /dev/kmem /dev/port /dev/nbd /dev/sr /dev/ram /dev/mtd \
    /dev/block/ /proc/sysrq-trigger /proc/sys/ /sys/";

/// Judges a command by itself; what it runs is judged elsewhere.
pub(crate) fn judge(name: &str, args: &[Value]) -> ShellVerdict {
    let matching = RULES.iter().filter(|[_, programs, conditions, _]| {
        let mut programs = programs.split_whitespace();
        let mut conditions = conditions.split_whitespace();
        programs.any(|program| names(program, name))
            && conditions.all(|condition| holds(condition, name, args))
    });
    let verdicts = matching.map(|[action, _, _, why]| match *action {
        "deny" => ShellVerdict::Deny(Refusal::Builtin(format!("{name} {why}"))),
        _ => ShellVerdict::Ask(format!("{name} {why}")),
    });
    verdicts.max().unwrap_or_default()
}

/// Judges a script apart from what its commands run.
pub(crate) fn shape(commands: &[Command]) -> ShellVerdict {
    let mut files = commands.iter().flat_map(|command| &command.files);
    let why = match (endless_call(commands), files.find(|file| is_device(file))) {
        (Some(name), _) => format!("the function {name} calls itself, as a fork bomb does"),
        (None, Some(file)) => format!("{} is a device", file.text),
        (None, None) => return ShellVerdict::Allow,
    };
    ShellVerdict::Deny(Refusal::Builtin(why))
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

fn holds(condition: &str, name: &str, args: &[Value]) -> bool {
    // `rm` reads options up to `--`. An argument with an unknown beginning counts for `@unseen` only.
    let ends = |arg: &Value| name == "rm" && arg.text == "--" && arg.is_known();
    let end = args.iter().position(ends).unwrap_or(args.len());
    let (before, after) = args.split_at(end);
    let seen = |arg: &&Value| name != "rm" || arg.unknown_at != Some(0);
    let has = |words: &str| before.iter().filter(seen).any(|arg| is_one_of(words, arg));
    let operand = |arg: &&Value| !arg.text.starts_with('-');
    let targets: Vec<&Value> = match name {
        "find" => {
            let is_test = |arg: &Value| arg.text.starts_with(['-', '(', '!']);
            args.iter().take_while(|arg| !is_test(arg)).collect()
        }
        "mv" => args.iter().filter(operand).rev().skip(1).collect(),
        // The first may be a signal.
        "kill" => {
            let signal = args.first().filter(|arg| !operand(arg) && arg.text != "--");
            args.iter().skip(usize::from(signal.is_some())).collect()
        }
        _ => before.iter().filter(seen).chain(after).collect(),
    };
    let is_listed = |words: &str, arg: &Value| {
        arg.is_known() && words.split(',').any(|word| names(word, &arg.text))
    };
    match condition {
        "@critical" => targets.iter().any(|target| is_critical(&target.text)),
        "@unknown" => targets.iter().any(|target| !target.is_known()),
        "@known" => targets.iter().all(|target| target.is_known()),
        "@device" => args.iter().any(is_device),
        "@unseen" => before.iter().any(|arg| {
            let matters = arg.text.starts_with('-') || arg.text.starts_with("of=");
            arg.begins_unknown() || (matters && (!arg.is_known() || arg.pattern))
        }),
        "@any" => !args.is_empty(),
        _ => match condition.split_at(1) {
            ("!", words) => !has(words),
            ("=", words) => targets.iter().any(|target| is_listed(words, target)),
            ("^", words) => {
                let mut firsts = args.first().into_iter().chain(args.iter().find(operand));
                !firsts.any(|arg| is_listed(words, arg))
            }
            _ => has(condition),
        },
    }
}

/// Whether an argument is one of some words, a letter of short options, or a long option, maybe shortened.
fn is_one_of(words: &str, arg: &Value) -> bool {
    let text = arg.text.as_str();
    words.split(',').any(|word| match word.strip_prefix('-') {
        Some(long) if long.starts_with('-') => text.len() > 2 && word.starts_with(text),
        Some(letter) if letter.len() == 1 => short_options(text).contains(letter),
        _ => text == word,
    })
}

fn is_critical(path: &str) -> bool {
    let path = plain_path(path);
    listed(FOLDERS, &path)
        || (path.starts_with('~') && !path.contains('/'))
        || Path::new(&path).ends_with("..")
}

/// Whether a file, also one that `of=` names, is a device.
fn is_device(file: &Value) -> bool {
    let path = plain_path(file.text.strip_prefix("of=").unwrap_or(&file.text));
    DEVICES
        .split_whitespace()
        .any(|start| path.starts_with(start))
}

/// A path without `.`, `..`, repeated slashes and a last `*`.
fn plain_path(text: &str) -> String {
    let mut path = PathBuf::new();
    for step in Path::new(text).components() {
        match step {
            Component::ParentDir if path.has_root() || path.file_name().is_some() => {
                path.pop();
            }
            Component::CurDir => {}
            step => path.push(step),
        }
    }
    let all = ["*", ".*", "{*,.*}", ".[!.]*"];
    if all.iter().any(|all| path.ends_with(all)) && path.components().count() > 1 {
        path.pop();
    }
    path.display().to_string()
}
