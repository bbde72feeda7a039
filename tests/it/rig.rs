//! A fleet for one test: a forge, a model, a database, a queue prefix, and the real programs.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentmine_agent::journal::{CallResult, Entry};
use agentmine_domain::{EndState, Seq, Session, Step, Task, TaskState};
use agentmine_runtime::config::{Secret, StoreConfig};
use agentmine_runtime::failpoint::Guard;
use agentmine_store::{Store, TaskFilter};
use agentmine_tests::forge::{DEMO, Forge};
use agentmine_tests::model::{
    Scenario, Script, ScriptedModel, commit_and_push, edit_replace, say, shell,
};
use agentmine_tests::on_disk;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::database;

/// Time limit for waiting for one event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// The label that requests work.
pub(crate) const REQUEST: &str = "coding agent";

/// The codes of the reasons that [`Rig::why`] returned.
pub(crate) fn codes(why: &Value) -> Vec<&str> {
    let reasons = why["reasons"].as_array().expect("reasons");
    let codes = reasons.iter().map(|it| it["code"].as_str().unwrap());
    codes.collect()
}

pub(crate) fn assert_done(task: &Task) {
    let done = TaskState::Ended(EndState::Done);
    assert_eq!(task.state, done, "{:?}", task.reason);
}

pub(crate) fn assert_done_at_attempt(task: &Task, attempt: u32) {
    let state = (task.state, task.attempt);
    let done = TaskState::Ended(EndState::Done);
    assert_eq!(state, (done, attempt), "{:?}", task.reason);
}

/// Tests that tell each of these stories, which take a [`Rig`] with the script, on both forges.
macro_rules! on_both_forges {
    ($script:expr => $($story:ident),* $(,)?) => {
        $(mod $story {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn on_github() {
                super::$story(Rig::local($script).await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn on_gitlab() {
                super::$story(Rig::local_gitlab($script).await).await;
            }
        })*
    };
}
pub(crate) use on_both_forges;

/// Everything that a fleet needs, except its processes.
pub(crate) struct Rig {
    pub(crate) forge: Forge,
    pub(crate) model: ScriptedModel,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Value,
    pub(crate) folder: TempDir,
    database: String,
    prefix: String,
}

fn test_env(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

pub(crate) fn postgres_url() -> String {
    test_env(
        "AGENTMINE_TEST_POSTGRES_URL",
        "postgres://postgres@127.0.0.1:54329/postgres",
    )
}

pub(crate) fn amqp_url() -> String {
    test_env(
        "AGENTMINE_TEST_AMQP_URL",
        "amqp://guest:guest@127.0.0.1:56729/%2f",
    )
}

pub(crate) fn image() -> String {
    test_env("AGENTMINE_TEST_IMAGE", "coding-agent-executor:latest")
}

/// A reply script that solves the sample issue.
pub(crate) fn solves_demo() -> Scenario {
    Scenario::new("solves the sample").replies([
        shell("ls && sh test.sh"),
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        shell("sh test.sh"),
        commit_and_push("Greet the person named"),
        say("`greet.sh` now greets its argument, and the world without one. `sh test.sh` passes."),
    ])
}

impl Rig {
    /// A forge with the sample repository, a model with `script`, an empty database.
    pub(crate) async fn new(script: impl Into<Script>) -> Self {
        let forge = Forge::start().await;
        let github = json!({ "api_url": forge.api_url(), "repositories": [DEMO] });
        Self::on(forge, json!({ "github": github }), script).await
    }

    /// The same with the sample project on GitLab, over TLS under its own authority.
    pub(crate) async fn on_gitlab(script: impl Into<Script>) -> Self {
        let forge = Forge::start_tls().await;
        let gitlab = json!({
            "api_url": forge.gitlab_url(), "ca_file": forge.authority(), "projects": [DEMO]
        });
        Self::on(forge, json!({ "gitlab": gitlab }), script).await
    }

    async fn on(forge: Forge, trackers: Value, script: impl Into<Script>) -> Self {
        forge.add_repo(DEMO, agentmine_tests::forge::write_demo);
        let model = ScriptedModel::start(script).await;
        let name = format!("t{}", Uuid::new_v4().simple());
        let database = database::create(&postgres_url(), &name).await;
        let store = agentmine_store::connect(&StoreConfig {
            url: Secret::new(&database),
            max_connections: 2,
            ..StoreConfig::default()
        })
        .await
        .unwrap_or_else(|e| panic!("no Postgres: {e}; run tests/run"));
        let folder = tempfile::tempdir().unwrap();
        let mirrors = json!({ "folder": folder.path().join("state/mirrors") });
        let config = json!({
            "trackers": trackers,
            "capacity": { "running_tasks": 0, "open_pull_requests": 0, "pull_requests_per_day": 0 },
            "queue": { "url": amqp_url(), "prefix": name, "retry_seconds": [1] },
            "store": { "url": database, "max_connections": 6 },
            "model": { "base_url": model.base_url(), "name": "scripted", "max_tries": 3, "retry_seconds": 0 },
            // Tests run at the same time, and each workspace takes its whole limit from the disk.
            "command_executor": { "enabled": true, "docker": { "base_image": image(), "resources": { "memory_limit": "512m", "disk_limit": "512m" } } },
            "consumer": { "concurrency": 2, "heartbeat_seconds": 1, "heartbeat_loss_seconds": 4, "lease_seconds": 6, "item_check_seconds": 1, "sweep_seconds": 1, "wakeup_after_seconds": 3, "drain_seconds": 60, "mirrors": mirrors },
            "producer": { "interval_seconds": 1 },
            "log": { "level": "info,agentmine_consumer=debug" }
        });
        Self {
            forge,
            model,
            store,
            config,
            folder,
            database,
            prefix: name,
        }
    }

    /// The same with the local jail instead of Docker.
    pub(crate) async fn local(script: impl Into<Script>) -> Self {
        let mut rig = Self::new(script).await;
        rig.config["command_executor"]["backend"] = "local".into();
        rig
    }

    /// The same with its folder on a disk, where jails have file systems of their own.
    pub(crate) fn on_disk(mut self) -> Self {
        self.folder = on_disk::folder().unwrap();
        let mirrors = self.folder.path().join("state/mirrors");
        self.config["consumer"]["mirrors"]["folder"] = json!(mirrors);
        self
    }

    /// The same on GitLab.
    pub(crate) async fn local_gitlab(script: impl Into<Script>) -> Self {
        let mut rig = Self::on_gitlab(script).await;
        rig.config["command_executor"]["backend"] = "local".into();
        rig
    }

    /// Runs `agentmine` with the configuration, and returns its output and its error output.
    #[track_caller]
    pub(crate) fn agentmine(&self, args: &[&str], code: i32) -> (String, String) {
        let mut command = self.program("agentmine");
        let command = command.as_std_mut().args(args);
        let command = command.env("XDG_CONFIG_HOME", self.folder.path());
        let done = command.current_dir(self.folder.path()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&done.stdout), text(&done.stderr));
        assert_eq!(done.status.code(), Some(code), "{args:?}: {out}{err}");
        (out, err)
    }

    /// What `agentmine task why` says of a task or an item.
    #[track_caller]
    pub(crate) fn why(&self, what: &str, code: i32) -> Value {
        let (out, err) = self.agentmine(&["task", "why", what, "--json"], code);
        serde_json::from_str(&out).unwrap_or(Value::String(err))
    }

    /// Writes the current configuration to its file.
    pub(crate) fn config_file(&self) -> PathBuf {
        let path = self
            .folder
            .path()
            .join(format!("config-{}.yaml", Uuid::new_v4().simple()));
        std::fs::write(&path, serde_json::to_string_pretty(&self.config).unwrap()).unwrap();
        path
    }

    /// One of the programs with the current configuration and the token of the forge.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(binary(name));
        command.arg("--config").arg(self.config_file());
        command.env("GITHUB_PERSONAL_ACCESS_TOKEN", self.forge.token());
        command.env("GITLAB_PERSONAL_ACCESS_TOKEN", self.forge.token());
        command
    }

    /// Starts one of the programs.
    pub(crate) fn spawn(&self, program: &str, args: &[&str]) -> Process {
        Process::spawn(self.program(program).args(args))
    }

    /// Starts one of the programs with a plan of failpoints.
    pub(crate) fn spawn_failing(&self, program: &str, failpoints: &str) -> Process {
        self.spawn_with(program, ("AGENTMINE_FAILPOINTS", failpoints))
    }

    /// Runs one of the programs until it is killed at each of these failpoints in turn.
    pub(crate) async fn killed_at(&self, program: &str, points: &[&str]) {
        for point in points {
            let kill = format!("{point}=kill");
            let (status, log) = self.spawn_failing(program, &kill).end().await;
            assert!(!status.success(), "{point} was not reached\n{log}");
        }
    }

    /// Starts one of the programs with a protection switched off.
    pub(crate) fn spawn_without(&self, program: &str, guard: Guard) -> Process {
        self.spawn_with(program, ("AGENTMINE_GUARDS_OFF", guard.as_str()))
    }

    /// Starts one of the programs with a variable in its environment.
    pub(crate) fn spawn_with(&self, program: &str, (variable, value): (&str, &str)) -> Process {
        Process::spawn(self.program(program).env(variable, value))
    }

    /// Adds the issue of the demonstration repository, labelled; returns its number.
    pub(crate) fn label_issue(&self) -> u64 {
        let (title, text) = ("greet.sh greets nobody", "It should greet.");
        self.forge.add_issue(DEMO, title, text, &[REQUEST])
    }

    /// The same, and its task is enqueued.
    pub(crate) async fn produce_issue(&self) -> u64 {
        let number = self.label_issue();
        self.produce().await;
        number
    }

    /// Adds a labelled pull request, whose task is enqueued; returns its number.
    pub(crate) async fn produce_pull_request(&self) -> u64 {
        self.forge.commit(DEMO, "feature", "main", |dir| {
            std::fs::write(dir.join("more.txt"), "more\n").unwrap();
        });
        let title = "Add more";
        let number = self
            .forge
            .add_pull(DEMO, "feature", "main", title, &[REQUEST]);
        self.produce().await;
        number
    }

    /// Scans once.
    pub(crate) async fn produce(&self) {
        let (status, log) = self.spawn("producer", &["--once"]).end().await;
        assert!(status.success(), "producer: {status}\n{log}");
    }

    /// Works until nothing is waiting.
    pub(crate) async fn consume(&self) -> String {
        let (status, log) = self.spawn("consumer", &["--once"]).end().await;
        assert!(status.success(), "consumer: {status}\n{log}");
        log
    }

    /// The same with a variable in the consumer's environment.
    pub(crate) async fn consume_with(&self, variable: (&str, &str)) -> String {
        let (name, value) = variable;
        let mut consumer = self.program("consumer");
        let consumer = Process::spawn(consumer.arg("--once").env(name, value));
        let (status, log) = consumer.end().await;
        assert!(status.success(), "consumer: {status}\n{log}");
        log
    }

    pub(crate) async fn tasks(&self) -> Vec<Task> {
        self.store.tasks(&TaskFilter::default()).await.unwrap()
    }

    /// The only task.
    pub(crate) async fn task(&self) -> Task {
        let mut tasks = self.tasks().await;
        assert_eq!(tasks.len(), 1, "{tasks:#?}");
        tasks.remove(0)
    }

    pub(crate) async fn sessions(&self) -> Vec<Session> {
        self.store.sessions(None, 0).await.unwrap()
    }

    pub(crate) async fn steps(&self, task: &Task) -> Vec<Step> {
        self.store.steps(task.id).await.unwrap()
    }

    /// The results of a task's tool calls, with the steps that hold them.
    pub(crate) async fn results(&self, task: &Task) -> Vec<(Seq, CallResult)> {
        let steps = self.steps(task).await;
        let results = steps
            .iter()
            .map(|step| (step.seq, Entry::decode(step).unwrap()));
        results
            .filter_map(|(seq, entry)| match entry {
                Entry::ToolResult { result } => Some((seq, result)),
                _ => None,
            })
            .collect()
    }

    /// All text of a task's journal.
    pub(crate) async fn transcript(&self, task: &Task) -> String {
        let steps = self.steps(task).await;
        serde_json::to_string_pretty(&steps).unwrap()
    }

    /// Waits until the tasks satisfy a condition.
    pub(crate) async fn wait(&self, what: &str, is_so: impl Fn(&[Task]) -> bool) -> Vec<Task> {
        let begun = std::time::Instant::now();
        loop {
            let tasks = self.tasks().await;
            if is_so(&tasks) {
                return tasks;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "waited for {what} in vain: {tasks:#?}"
            );
            // Another process cannot await a change of a row.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until every task is over.
    pub(crate) async fn wait_ended(&self, count: usize) -> Vec<Task> {
        self.wait("every task to end", |tasks| {
            tasks.len() == count && tasks.iter().all(|t| matches!(t.state, TaskState::Ended(_)))
        })
        .await
    }

    /// A connection to the test's own database.
    pub(crate) async fn sql(&self) -> sqlx::PgPool {
        sqlx::PgPool::connect(&self.database).await.unwrap()
    }
}

/// Databases, queues and sandboxes outlive a test's processes, so they are removed with the rig.
impl Drop for Rig {
    fn drop(&mut self) {
        let prefix = self.prefix.clone();
        let database = self.database.clone();
        let has_containers = self.config["command_executor"]["backend"] != "local";
        let cleaning = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.map(|runtime| {
                runtime.block_on(async {
                    let tasks = ids(&database).await;
                    remove_jails(&tasks);
                    // The engine's command line takes more time than all the rest of this.
                    if has_containers && !tasks.is_empty() {
                        remove_containers(&tasks).await;
                    }
                    clean(&prefix).await;
                });
            })
        });
        // A failed test is reported as such, whatever is left.
        let _ = cleaning.join();
    }
}

/// The ids of a database's tasks.
async fn ids(database: &str) -> Vec<String> {
    let Ok(pool) = sqlx::PgPool::connect(database).await else {
        return Vec::new();
    };
    let tasks = sqlx::query_scalar::<_, String>("SELECT id::text FROM tasks");
    tasks.fetch_all(&pool).await.unwrap_or_default()
}

fn is_of(tasks: &[String], name: &str) -> bool {
    tasks.iter().any(|task| name.contains(task))
}

/// Removes the jails that killed workers left.
fn remove_jails(tasks: &[String]) {
    // Wherever the worker's state folder was.
    agentmine_tests::mounts::unmount(|place| is_of(tasks, &place.to_string_lossy()));
    let folders = std::fs::read_dir(agentmine_sandbox::local::default_state_dir());
    for folder in folders.into_iter().flatten().flatten() {
        if is_of(tasks, &folder.file_name().to_string_lossy()) {
            let _ = std::fs::remove_dir_all(folder.path());
        }
    }
}

/// The same of containers.
async fn remove_containers(tasks: &[String]) {
    let names = all_containers().await.map(|out| out.stdout);
    let names = names.unwrap_or_default();
    let names = String::from_utf8_lossy(&names);
    let left: Vec<&str> = names.lines().filter(|name| is_of(tasks, name)).collect();
    if !left.is_empty() {
        let _ = Command::new("docker")
            .args(["rm", "-f"])
            .args(left)
            .output()
            .await;
    }
}

async fn clean(prefix: &str) {
    if let Ok(pool) = sqlx::PgPool::connect(&postgres_url()).await {
        let drop = format!("DROP DATABASE IF EXISTS {prefix} WITH (FORCE)");
        let _ = sqlx::query(sqlx::AssertSqlSafe(drop)).execute(&pool).await;
    }
    let options = lapin::ConnectionProperties::default();
    let Ok(broker) = lapin::Connection::connect(&amqp_url(), options).await else {
        return;
    };
    for queue in [
        "tasks.takeover",
        "tasks.low",
        "tasks.medium",
        "tasks.high",
        "tasks.critical",
        "retry.1",
        "dead",
    ] {
        let name = format!("{prefix}.{queue}");
        if let Ok(channel) = broker.create_channel().await {
            let _ = channel
                .queue_delete(name.into(), lapin::options::QueueDeleteOptions::default())
                .await;
        }
    }
}

/// The name of each container on the engine, a line each.
async fn all_containers() -> std::io::Result<std::process::Output> {
    let mut docker = Command::new("docker");
    docker.args(["ps", "-a", "--format", "{{.Names}}"]);
    docker.output().await
}

/// Names of the containers that belong to these tasks.
pub(crate) async fn containers(tasks: &[Task]) -> Vec<String> {
    let out = all_containers().await.unwrap();
    assert!(
        out.status.success(),
        "no Docker engine: {}; run tests/run",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter(|name| tasks.iter().any(|t| name.contains(&t.id.to_string())))
        .map(ToOwned::to_owned)
        .collect()
}

/// One of the project's programs, next to this test's.
pub(crate) fn binary(name: &str) -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let path = exe.parent().and_then(Path::parent).unwrap().join(name);
    assert!(
        path.exists(),
        "{} is not built; run tests/run",
        path.display()
    );
    path
}

/// A running program whose stderr is kept.
pub(crate) struct Process {
    child: Child,
    log: Arc<Log>,
    reader: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Log {
    text: Mutex<String>,
    grown: Notify,
}

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let log = Arc::new(Log::default());
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let kept = Arc::clone(&log);
        let reader = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let mut text = kept.text.lock().unwrap();
                text.push_str(&line);
                text.push('\n');
                drop(text);
                kept.grown.notify_waiters();
            }
        });
        Self { child, log, reader }
    }

    pub(crate) fn log(&self) -> String {
        self.log.text.lock().unwrap().clone()
    }

    /// Waits until a text is in the log.
    pub(crate) async fn wait_for(&self, text: &str) {
        let wait = async {
            loop {
                let grown = self.log.grown.notified();
                if self.log().contains(text) {
                    return;
                }
                grown.await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        assert!(
            waited.is_ok(),
            "waited for {text:?} in vain:\n{}",
            self.log()
        );
    }

    fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id().expect("it has ended")).unwrap();
        // SAFETY: `kill` takes two numbers and touches no memory of this program.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it has ended")
    }

    /// As a power failure would.
    pub(crate) fn kill_nine(&self) {
        self.signal(libc::SIGKILL);
    }

    pub(crate) fn terminate(&self) {
        self.signal(libc::SIGTERM);
    }

    /// As the end of a machine's suspension would.
    pub(crate) fn go_on(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Waits until it has stopped itself at a failpoint.
    pub(crate) async fn stopped(&self) {
        let pid = self.child.id().expect("it has ended");
        let begun = std::time::Instant::now();
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if stat
                .rsplit_once(") ")
                .is_some_and(|(_, it)| it.starts_with('T'))
            {
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "it does not stop:\n{}",
                self.log()
            );
            // A stop cannot be awaited by a process that is not traced.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until it has logged a text.
    pub(crate) async fn logged(&self, text: &str) {
        let waiting = async {
            loop {
                let grown = self.log.grown.notified();
                if self.log().contains(text) {
                    return;
                }
                grown.await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("{text:?} is not in the log:\n{}", self.log());
        }
    }

    /// Waits for it to exit.
    pub(crate) async fn end(self) -> (ExitStatus, String) {
        self.end_within(PATIENCE).await
    }

    /// Waits for it to exit, for so long.
    pub(crate) async fn end_within(mut self, limit: Duration) -> (ExitStatus, String) {
        let status = match tokio::time::timeout(limit, self.child.wait()).await {
            Ok(status) => status.unwrap(),
            Err(_) => panic!("it does not end:\n{}", self.log()),
        };
        self.reader.await.unwrap();
        let log = self.log.text.lock().unwrap().clone();
        (status, log)
    }
}
