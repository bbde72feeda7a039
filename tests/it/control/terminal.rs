//! The command line in a real terminal: tmux.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use agentmine_tests::model::{Fault, Scenario, ScriptedModel, commit_and_push, say, shell};
use serde_json::json;

use super::World;
use crate::rig::binary;

/// A terminal with a shell in the project's folder.
struct Terminal {
    socket: std::path::PathBuf,
    /// Commands that were run.
    commands: std::cell::Cell<u32>,
}

impl Terminal {
    fn open(world: &World, columns: u16, rows: u16) -> Self {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let socket = world.home.path().join(format!("tmux-{number}"));
        let commands = std::cell::Cell::new(0);
        let terminal = Self { socket, commands };
        let folder = binary("agentmine").parent().unwrap().display().to_string();
        let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
        let home = world.home.path().display().to_string();
        let project = world.project().display().to_string();
        let (columns, rows) = (columns.to_string(), rows.to_string());
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &columns,
            "-y",
            &rows,
            "-c",
            &project,
            "env",
            "-i",
            &format!("PATH={path}"),
            &format!("HOME={home}"),
            "TERM=screen",
            "PS1=ready> ",
            "LANG=C.UTF-8",
            "sh",
        ]);
        terminal.wait("ready>");
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let done = Command::new("tmux")
            .arg("-S")
            .arg(&self.socket)
            .args(args)
            .output();
        let done = done.expect("tmux is missing; run tests/run");
        assert!(done.status.success(), "{args:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    fn key(&self, name: &str) {
        self.tmux(&["send-keys", name]);
    }

    /// Runs a command and returns the screen when the next prompt is there.
    fn run(&self, command: &str) -> String {
        let number = self.commands.get() + 1;
        self.commands.set(number);
        // The shell computes the mark, so that the line that is typed does not show it.
        self.types(&format!("clear; {command}; echo end-of-$(({number}+0))"));
        self.key("Enter");
        let screen = self.wait(&format!("end-of-{number}"));
        let end = screen.find("end-of-").unwrap_or(screen.len());
        screen[..end].to_owned()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The screen as soon as it shows this.
    #[track_caller]
    fn wait(&self, text: &str) -> String {
        self.wait_until(text, |screen| screen.contains(text))
    }

    /// Waits until the shell waits for a command. Earlier prompts are on the screen too.
    #[track_caller]
    fn wait_for_prompt(&self) {
        self.wait_until("prompt", |screen| screen.trim_end().ends_with("ready>"));
    }

    #[track_caller]
    fn wait_until(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if is_there(&screen) {
                self.record(&screen);
                return screen;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "no {what:?}:\n{screen}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Keeps the captures for people to look at.
    fn record(&self, screen: &str) {
        use std::io::Write as _;
        let Some(file) = std::env::var_os("AGENTMINE_TEST_CAPTURES") else {
            return;
        };
        let file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(file);
        writeln!(file.unwrap(), "{}\n{}", "=".repeat(100), screen.trim_end()).unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(&self.socket)
            .arg("kill-server")
            .output();
    }
}

#[test]
fn a_first_run_in_a_terminal_reads_well_and_leaves_it_as_it_was() {
    let world = World::new();
    std::fs::write(
        world.project().join("config.yaml"),
        "model: {base_url: 'http://127.0.0.1:1/v1', name: x}\n",
    )
    .unwrap();
    let terminal = Terminal::open(&world, 100, 30);
    let settings = terminal.run("stty -g");
    let help = terminal.run("agentmine");
    assert!(help.contains("Usage: agentmine"), "{help}");
    let doctor = terminal.run("agentmine doctor");
    assert!(doctor.contains("fix: start the server"), "{doctor}");
    let added = terminal.run("agentmine task add 'Fix the login' && agentmine task list");
    assert!(
        added.contains("task #1 is open") && added.contains("Fix the login"),
        "{added}"
    );
    let logs = terminal.run("agentmine session logs 1");
    assert!(logs.contains("hint: `agentmine session list`"), "{logs}");

    terminal.types("agentmine top");
    terminal.key("Enter");
    let top = terminal.wait("q: quit");
    assert!(top.starts_with("agentmine top"), "{top}");
    terminal.tmux(&["resize-window", "-x", "50", "-y", "12"]);
    // The next frame fits: the key is in the last columns.
    let begun = Instant::now();
    while !terminal
        .screen()
        .lines()
        .next()
        .is_some_and(|line| line.chars().count() <= 50 && line.ends_with("q: quit"))
    {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{}",
            terminal.screen()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    terminal.wait("q: quit");
    terminal.key("q");
    terminal.wait_for_prompt();
    terminal.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    terminal.types("agentmine top");
    terminal.key("Enter");
    terminal.wait("q: quit");
    terminal.key("C-c");
    terminal.wait_for_prompt();
    assert_eq!(terminal.run("stty -g"), settings);
}

#[test]
fn a_long_session_is_shown_in_the_pager() {
    let world = World::new();
    world.shown(&["task", "add", "Fix"], 0);
    world.shown(&["session", "start", "1", "--client", "codex"], 0);
    let terminal = Terminal::open(&world, 100, 30);
    let shown = terminal.run("PAGER='sed s/^/paged:/' agentmine session show 1");
    assert!(
        shown.contains("paged:session 1 of task #1: running"),
        "{shown}"
    );
    let plain = terminal.run("PAGER= agentmine session show 1");
    assert!(
        !plain.contains("paged:") && plain.contains("session 1 of task #1"),
        "{plain}"
    );
    let missing = terminal.run("PAGER='no-such-pager -R' agentmine session show 1");
    assert!(missing.contains("session 1 of task #1"), "{missing}");
}

/// The first half of it arrives, and the rest never: the model server stalls once.
const THOUGHT: &str =
    "First I look at the file, since its first line decides about all that follows it.";

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_is_seen_while_the_model_writes_it_and_once_when_it_is_recorded() {
    let world = World::new();
    let scenario = Scenario::new("thinks")
        .replies([
            say(THOUGHT).and(shell("cat a.txt")),
            shell("printf 'two\\n' > a.txt"),
            commit_and_push("Change a.txt"),
            say("It says two now."),
        ])
        .fault_at(0, Fault::Stall, 1);
    let model = ScriptedModel::start(scenario).await;
    let config = json!({ "model": { "base_url": model.base_url(), "name": "scripted", "idle_timeout_seconds": 20 } });
    std::fs::write(world.project().join("config.yaml"), config.to_string()).unwrap();
    world.shown(&["task", "add", "Change a.txt"], 0);
    let worker = tokio::task::block_in_place(|| {
        let worker = Terminal::open(&world, 100, 40);
        worker.types("clear; agentmine worker run 1 --local --check 'grep two a.txt'");
        worker.key("Enter");
        worker
    });
    model.wait_for_requests(1).await;
    tokio::task::block_in_place(|| {
        let terminal = Terminal::open(&world, 100, 50);
        terminal.types("clear; agentmine top");
        terminal.key("Enter");
        let top = terminal.wait("Change a.txt");
        assert!(top.contains("running"), "{top}");
        terminal.key("q");
        terminal.wait_for_prompt();
        terminal.types("clear; agentmine session logs 1 --follow");
        terminal.key("Enter");
        let screen = terminal.wait("First I look");
        assert!(
            !screen.contains("all that follows"),
            "the reply is not complete: {screen}"
        );
        assert!(!screen.contains("It says two now"), "{screen}");
        let screen = terminal.wait_until("end", |screen| {
            screen.contains("It says two now") && screen.trim_end().ends_with("ready>")
        });
        assert_eq!(screen.matches("First I look").count(), 1, "{screen}");
        let done = worker.wait("Done: task #1");
        assert!(done.contains("grep two a.txt"), "{done}");
    });
}
