//! What each command prints: help, tables, JSON and errors, as recorded in `snapshots/`.
//!
//! `INSTA_UPDATE=always cargo test -p agentmine-tests --test it control::output` records it again.

use std::fmt::Write as _;

use regex::Regex;

use super::World;
use crate::rig::binary;

/// What differs from run to run.
struct Filters(Vec<(Regex, &'static str)>);

impl Filters {
    fn of(world: &World) -> Self {
        let home = regex::escape(&world.home.path().display().to_string());
        let program = regex::escape(&binary("agentmine").display().to_string());
        let list = [
            (program.as_str(), "agentmine"),
            (&home, "[HOME]"),
            (
                r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
                "[UUID]",
            ),
            (r"task-(\d+)-[0-9a-z]{6,}", "task-$1-[ID]"),
            (r"project-[0-9a-f]{8,}", "project-[DIGEST]"),
            (r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?Z?", "[TIME]"),
            (r"\d\d:\d\d:\d\d", "[TIME]"),
            (r"(external|[a-z0-9.-]+):\d+:[a-z-]+", "[WORKER]"),
            (r#""seconds": \d+"#, r#""seconds": [N]"#),
            (r#""oldestDueSeconds": \d+"#, r#""oldestDueSeconds": [N]"#),
            (r"agentmine \d+\.\d+\.\d+", "agentmine [VERSION]"),
            (r"  \d+s  ", "  [N]s  "),
            // The widths of columns follow what was replaced.
            (r"  +", "  "),
        ];
        let compiled = list.map(|(from, to)| (Regex::new(from).unwrap(), to));
        Self(compiled.to_vec())
    }

    fn apply(&self, text: &str) -> String {
        let lines = self.0.iter().fold(text.to_owned(), |text, (from, to)| {
            from.replace_all(&text, *to).into_owned()
        });
        let lines: Vec<&str> = lines.lines().map(str::trim_end).collect();
        lines.join("\n")
    }
}

/// The output of commands, one after another, with their exit codes.
fn recorded(world: &World, commands: &[&[&str]]) -> String {
    let filters = Filters::of(world);
    let mut text = String::new();
    for args in commands {
        let output = world.run(args);
        let shown = |bytes: &[u8]| {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            assert!(
                !text.contains('\x1b'),
                "{args:?} has colours without a terminal"
            );
            filters.apply(&text)
        };
        writeln!(text, "$ agentmine {}", args.join(" ")).unwrap();
        writeln!(text, "{}", shown(&output.stdout)).unwrap();
        let stderr = shown(&output.stderr);
        if !stderr.is_empty() {
            writeln!(text, "{stderr}").unwrap();
        }
        let code = output.status.code().unwrap();
        writeln!(text, "(exit {code})\n").unwrap();
    }
    text
}

/// The subcommands that a help text lists.
fn subcommands(help: &str) -> Vec<String> {
    let Some((_, list)) = help.split_once("Commands:\n") else {
        return Vec::new();
    };
    let names = list.lines().take_while(|line| !line.is_empty());
    let names = names.filter_map(|line| line.strip_prefix("  "));
    let names = names.filter(|line| !line.starts_with(' '));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|it| *it != "help")
        .map(ToOwned::to_owned)
        .collect()
}

#[test]
fn the_help_of_every_command_is_as_recorded() {
    let world = World::new();
    let filters = Filters::of(&world);
    let mut text = String::new();
    let mut waiting: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(command) = waiting.pop() {
        let args: Vec<&str> = command
            .iter()
            .map(String::as_str)
            .chain(["--help"])
            .collect();
        let help = world.shown(&args, 0);
        let below = subcommands(&help);
        for name in below.into_iter().rev() {
            waiting.push(command.iter().cloned().chain([name]).collect());
        }
        writeln!(
            text,
            "$ agentmine {}\n{}\n",
            args.join(" "),
            filters.apply(&help)
        )
        .unwrap();
    }
    insta::assert_snapshot!(text);
}

/// Tasks of people, a client's session, a memory record.
fn used() -> World {
    let world = World::new();
    let add = [
        "task",
        "add",
        "Fix the login",
        "--type",
        "bug",
        "--priority",
        "high",
        "--write-scope",
        "src",
    ];
    world.shown(&add, 0);
    let human = [
        "task",
        "add",
        "Decide",
        "--assignee",
        "maya",
        "--assignee-type",
        "human",
        "--depends-on",
        "1",
    ];
    world.shown(&human, 0);
    world.shown(&["worker", "run", "1", "--client", "codex", "--auto"], 0);
    let memory = [
        "memory",
        "add",
        "tests",
        "--category",
        "convention",
        "--title",
        "How to test",
        "--content",
        "Run `make test`.",
    ];
    world.shown(&memory, 0);
    world
}

#[test]
fn listings_are_as_recorded_for_people() {
    let world = used();
    insta::assert_snapshot!(recorded(
        &world,
        &[
            &["task", "list"],
            &["task", "list", "--status", "done"],
            &["task", "show", "1"],
            &["task", "why", "2"],
            &["session", "list"],
            &["session", "show", "1"],
            &["session", "logs", "1"],
            &["worker", "list"],
            &["queue", "status"],
            &["top", "--once"],
            &["agent", "list"],
            &["agent", "show", "default"],
            &["agent", "validate"],
            &["memory", "list"],
            &["memory", "show", "tests"],
            &["memory", "preview"],
            &["config", "check"],
            &["config", "show", "--origin"],
        ]
    ));
}

#[test]
fn listings_are_as_recorded_in_json() {
    let world = used();
    insta::assert_snapshot!(recorded(
        &world,
        &[
            &["task", "list", "--json"],
            &["task", "show", "2", "--json"],
            &["task", "why", "2", "--json"],
            &["session", "list", "--json"],
            &["session", "show", "1", "--json"],
            &["session", "logs", "1", "--json"],
            &["worker", "list", "--json"],
            &["queue", "status", "--json"],
            &["top", "--json"],
            &["agent", "list", "--json"],
            &["agent", "show", "default", "--json"],
            &["agent", "validate", "--json"],
            &["memory", "list", "--json"],
            &["memory", "show", "tests", "--json"],
            &["memory", "preview", "--json"],
        ]
    ));
}

#[test]
fn changes_are_as_recorded() {
    let world = used();
    insta::assert_snapshot!(recorded(
        &world,
        &[
            &["task", "add", "Write the manual"],
            &["task", "update", "3", "--status", "done", "--version", "1"],
            &["task", "retry", "3"],
            &["task", "cancel", "3", "--reason", "not needed"],
            &[
                "session",
                "end",
                "1",
                "--exit-code",
                "0",
                "--dod-result",
                "merged"
            ],
            &["worker", "remove", "1"],
            &["session", "start", "3"],
            &[
                "memory",
                "update",
                "tests",
                "--title",
                "How to run the tests"
            ],
            &["memory", "export"],
            &["memory", "import"],
        ]
    ));
}

#[test]
fn errors_are_as_recorded_and_name_commands_not_tools() {
    let world = used();
    let text = recorded(
        &world,
        &[
            &["task", "show", "99"],
            &["task", "show", "x"],
            &["task", "update", "1", "--version", "9", "--title", "x"],
            &["task", "update", "1"],
            &["task", "add", ""],
            &["task", "add", "x", "--priority", "urgent"],
            &["task", "list", "--status", "closed"],
            &["task", "pause", "1"],
            &["session", "show", "99"],
            &["session", "logs", "99"],
            &["session", "start", "1"],
            &["session", "start", "2"],
            &["session", "show", "x"],
            &["worker", "run", "99"],
            &["worker", "run", "1", "--client", "cursor"],
            &["worker", "remove", "1", "--force"],
            &["agent", "show", "nobody"],
            &["memory", "show", "nothing"],
            &[
                "memory",
                "update",
                "tests",
                "--title",
                "x",
                "--version",
                "7",
            ],
            &["--config", "/does/not/exist.yaml", "task", "list"],
            &["queue"],
            &["completions", "csh"],
        ],
    );
    for tool in agentmine_control::mcp::tools() {
        assert!(!text.contains(tool.name()), "{}: {text}", tool.name());
    }
    insta::assert_snapshot!(text);
}

#[test]
fn each_shell_has_completions_of_all_commands() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = world.shown(&["completions", shell], 0);
        for command in ["doctor", "queue", "worker", "memory"] {
            assert!(script.contains(command), "{shell}: no {command}");
        }
    }
}
