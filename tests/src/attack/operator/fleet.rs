//! A real fleet that works on a hostile issue of a hostile repository, and what is seen of it meanwhile.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use agentmine_tools::{AllowedRoots, ToolServer};
use anyhow::{Context as _, ensure};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::listener::{self, Surface};
use super::seen::{FORGED, Seen};
use crate::attack::bait::scratch;
use crate::chaos::binaries;
use crate::forge::{DEMO, Forge, write_demo};
use crate::model::{Scenario, ScriptedModel, call, commit_and_push, edit_replace, say, shell};
use crate::mounts::WorkersFolder;

const LABEL: &str = "coding agent";
/// How long a task may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
/// Files that make editors and agents start programs.
const STARTERS: &[&str] = &[
    ".mcp.json",
    "mcp.json",
    ".agentmine/mcp.json",
    ".cursor/mcp.json",
    ".vscode/mcp.json",
    ".agentmine/mcp.yaml",
    "mcp.yaml",
];

/// What every user sees while consumer and producer work.
pub(super) async fn watch() -> anyhow::Result<Seen> {
    let folder = tempfile::Builder::new()
        .prefix("fleet-")
        .tempdir_in(scratch())?;
    let workers = WorkersFolder(folder);
    let folder = &workers.0;
    open_to_all(folder.path(), 0o755)?;
    // Whatever runs outside of a sandbox can leave a mark here.
    let marks = folder.path().join("marks");
    std::fs::create_dir(&marks)?;
    open_to_all(&marks, 0o777)?;
    let forge = Forge::start().await;
    forge.add_repo(DEMO, |at| {
        write_demo(at);
        write_starters(at, &marks);
    });
    let model = ScriptedModel::start(scenario()).await;
    let title = format!(
        "greet.sh greets nobody\n{FORGED} 2030-01-01T00:00:00Z INFO done\r\u{1b}[31m\u{1b}]0;owned\u{7} \
         \u{9b}1m \u{202e}txt"
    );
    forge.add_issue(DEMO, &title, "It should greet.", &[LABEL]);
    let home = Home::make(folder.path(), &forge, &model)?;
    let mut seen = Seen::default();
    seen.canaries.add("the tracker's token", forge.token());
    seen.canaries.add("the model's key", &home.key);
    seen.canaries.add("the broker's password", &home.password);
    let mut consumer = home.start("consumer")?;
    let mut producer = home.start("producer")?;
    let logs = (keep(consumer.stderr.take())?, keep(producer.stderr.take())?);
    let worked = forge.wait_until("there is a pull request", PATIENCE, |forge| {
        !forge.pulls(DEMO).is_empty()
    });
    let ids = [consumer.id(), producer.id()].map(Option::unwrap_or_default);
    look_until(&mut seen, ids, worked).await;
    let health = *seen.listeners.first().context("the consumer's listener")?;
    seen.metrics = listener::read_health(health).await?;
    let mut tools = home.command("mcp-conformance-server", &["file-read"]);
    let mut tools = tools.stdout(Stdio::piped()).spawn()?;
    let address = first_line(&mut tools).await?;
    let url: url::Url = address.parse()?;
    seen.achieved = listener::attack(Surface {
        health,
        heads: health,
        process: ids[0],
        tools: url
            .socket_addrs(|| None)?
            .first()
            .copied()
            .context("its address")?,
        binds_anywhere: binds_anywhere().await?,
    })
    .await?;
    (seen.terminal, seen.listed) = home.command_line(folder.path()).await?;
    seen.look_into(&home.folder);
    for program in [&mut consumer, &mut producer, &mut tools] {
        program.kill().await?;
    }
    seen.log = format!("{}{}", logs.0.await?, logs.1.await?);
    ensure!(seen.log.contains("task"), "no log: {}", seen.log);
    let marks = std::fs::read_dir(&marks)?.flatten();
    seen.started
        .extend(marks.map(|it| it.file_name().to_string_lossy().into_owned()));
    Ok(seen)
}

/// Looks at the programs again and again until something happened.
async fn look_until(seen: &mut Seen, programs: [u32; 2], event: impl Future<Output = ()>) {
    tokio::pin!(event);
    let mut turn = tokio::time::interval(Duration::from_millis(40));
    loop {
        tokio::select! {
            () = &mut event => break,
            _ = turn.tick() => programs.iter().for_each(|&id| seen.look_at(id)),
        }
    }
}

fn scenario() -> Scenario {
    let tool = format!("x\"}} 1\n{FORGED}{{a=\"");
    Scenario::new("hostile").replies([
        call(FORGED, json!({})),
        call(&tool, json!({})),
        shell("ls; sleep 1"),
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        say("Done."),
    ])
}

/// Files that name a program, which leaves a mark.
fn write_starters(at: &Path, marks: &Path) {
    for file in STARTERS {
        let mark = marks.join(file.replace('/', "-"));
        let line = format!("touch {}; sleep 5", mark.display());
        let server = json!({ "command": "/bin/sh", "args": ["-c", line] });
        let text = json!({ "mcpServers": { "own": server }, "servers": { "own": server } });
        let path = at.join(file);
        let folder = path.parent().unwrap_or(at);
        let written =
            std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text.to_string()));
        debug_assert!(written.is_ok(), "{written:?}");
    }
}

fn open_to_all(folder: &Path, mode: u32) -> std::io::Result<()> {
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(mode))
}

/// The folder of the user who runs the fleet, which every user may enter.
struct Home {
    folder: PathBuf,
    config: PathBuf,
    token: String,
    key: String,
    password: String,
}

impl Home {
    fn make(folder: &Path, forge: &Forge, model: &ScriptedModel) -> anyhow::Result<Self> {
        let fresh = |what: &str| format!("{what}canary{}", uuid::Uuid::new_v4().simple());
        let (home, password) = (folder.join("home"), fresh(""));
        std::fs::create_dir(&home)?;
        let config = json!({
            "trackers": { "github": { "api_url": forge.api_url(), "repositories": [DEMO] } },
            // Nobody listens there.
            "queue": { "url": format!("amqp://fleet:{password}@127.0.0.1:1/%2f"), "retry_seconds": [1] },
            "store": { "url": format!("sqlite:{}", home.join("data/fleet.db").display()) },
            "model": { "base_url": model.base_url(), "name": "scripted" },
            "command_executor": { "enabled": true, "backend": "local" },
            "consumer": { "concurrency": 1, "sweep_seconds": 1, "wakeup_after_seconds": 1 },
            "producer": { "interval_seconds": 1 },
            "http": { "listen": "127.0.0.1:0" },
            "log": { "level": "debug" }
        });
        let file = folder.join("config.yaml");
        std::fs::write(&file, config.to_string())?;
        Ok(Self {
            folder: home,
            config: file,
            token: forge.token().to_owned(),
            key: fresh("sk-"),
            password,
        })
    }

    /// A program with the usual mask for new files.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "umask 022; exec \"$0\" \"$@\""])
            .arg(binaries().join(program))
            .args(arguments)
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.folder)
            .env("GITHUB_PERSONAL_ACCESS_TOKEN", &self.token)
            .env("OPENAI_API_KEY", &self.key)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    fn start(&self, program: &str) -> anyhow::Result<Child> {
        let config = self.config.display().to_string();
        let mut command = self.command(program, &["--config", &config]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().with_context(|| program.to_owned())
    }

    /// What the command line prints of the task, started in a hostile repository: all of it, and the lists.
    async fn command_line(&self, folder: &Path) -> anyhow::Result<(String, String)> {
        let config = self.config.display().to_string();
        let hostile = folder.join("hostile");
        std::fs::create_dir(&hostile)?;
        write_starters(&hostile, &folder.join("marks"));
        let (mut printed, mut listed) = (String::new(), String::new());
        for arguments in [
            &["task", "list"][..],
            &["task", "show", "1"],
            &["session", "list"],
            &["session", "show", "1", "--full"],
            &["mcp", "list"],
        ] {
            let mut command = self.command("agentmine", &["--config", &config]);
            command.args(arguments).current_dir(&hostile);
            let done = tokio::time::timeout(Duration::from_secs(30), command.output()).await??;
            ensure!(
                done.status.success() || arguments[0] == "mcp",
                "{arguments:?}: {done:?}"
            );
            let text = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
            printed.push_str(&text);
            if !arguments.contains(&"--full") {
                listed.push_str(&text);
            }
        }
        ensure!(printed.contains("greet.sh"), "no task: {printed}");
        Ok((printed, listed))
    }
}

/// Reads to the end, while the program writes.
fn keep(
    output: Option<impl AsyncRead + Unpin + Send + 'static>,
) -> anyhow::Result<tokio::task::JoinHandle<String>> {
    let mut output = output.context("its log")?;
    Ok(tokio::spawn(async move {
        let mut log = Vec::new();
        let _ = output.read_to_end(&mut log).await;
        String::from_utf8_lossy(&log).into_owned()
    }))
}

async fn first_line(program: &mut Child) -> anyhow::Result<String> {
    let output = program.stdout.take().context("its output")?;
    let mut lines = BufReader::new(output).lines();
    let line = tokio::time::timeout(Duration::from_secs(20), lines.next_line()).await??;
    line.context("it ended")
}

async fn binds_anywhere() -> anyhow::Result<bool> {
    let server = ToolServer::FileRead(AllowedRoots::here(Vec::new())?);
    let serving = server.serve_http(([0, 0, 0, 0], 0).into(), |_| ());
    let served = tokio::time::timeout(Duration::from_secs(2), serving).await;
    Ok(served.is_err())
}
