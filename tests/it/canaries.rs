//! One canary for each secret of a fleet, looked for wherever it could end up: in the sandbox, the image and the
//! engine, logs at trace level, rows, messages, metrics, what the forge and the model got, command lines, temporary
//! files, and what a crash prints. Meanwhile everything fails that may repeat a secret.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agentmine_domain::{Task, TaskState};
use agentmine_process::Process as SystemProcess;
use agentmine_store::{Store, TaskFilter};
use agentmine_tests::attack::Canaries;
use agentmine_tests::encrypted::Encrypted;
use agentmine_tests::forge::{DEMO, Fault as ForgeFault};
use agentmine_tests::model::{
    Fault, Refusal, Scenario, call, commit_and_push, edit_replace, say, shell,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use sqlx::Row as _;
use tokio::process::Command;

use crate::rig::{PATIENCE, Process, REQUEST, Rig, binary, containers};

const LEAKY: &str = include_str!("canaries/leaky.py");

/// The turn before which everything has happened but the end.
const LAST_TURN: usize = 8;

/// Looks around, makes every part fail that it can reach, and then solves the sample.
fn hostile() -> Scenario {
    Scenario::new("looks for secrets").replies([
        shell("env; set; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; cat /proc/*/mounts; ls -laR /workspace /tmp"),
        shell("git push origin HEAD:refs/heads/main; git fetch origin; git config --list; git remote -v; cat .git/config"),
        shell("curl -sv -x $HTTP_PROXY http://169.254.169.254/ 2>&1; grep -rIs canary /workspace /tmp /home /etc /root /opt /run | head"),
        call("mcp__leaky__spill", json!({})),
        call("mcp__leaky__crash", json!({})),
        call("mcp__leaky__spill", json!({})),
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        say("Done."),
    ])
}

/// What a server that echoes a request's credentials writes.
fn echo(secret: &str) -> String {
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let said = format!(
        "no: Authorization: Bearer {secret}\r\nERROR Authorization: Basic {} {hex} https://x:{secret}@forge/",
        STANDARD.encode(format!("x-access-token:{secret}"))
    );
    json!({ "message": said }).to_string()
}

/// A fleet whose secrets are canaries, and what it left.
struct Watched {
    rig: Rig,
    canaries: Canaries,
    /// Before the first program of the fleet started, in seconds since 1970.
    since: u64,
    state: PathBuf,
    variables: Vec<(String, String)>,
    items: Vec<u64>,
    found: Vec<String>,
}

impl Watched {
    async fn new(rig: Rig, format: &str) -> Self {
        let fresh = |of: &str| format!("canary-{of}-{}", uuid::Uuid::new_v4().simple());
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.unwrap().as_secs() - 1;
        let state = rig.folder.path().join("state");
        std::fs::create_dir_all(state.join("tmp")).unwrap();
        let mut watched = Self {
            variables: vec![
                (
                    "GITHUB_PERSONAL_ACCESS_TOKEN".into(),
                    rig.forge.token().into(),
                ),
                (
                    "GITLAB_PERSONAL_ACCESS_TOKEN".into(),
                    rig.forge.token().into(),
                ),
                ("HOME".into(), state.display().to_string()),
                ("XDG_STATE_HOME".into(), state.display().to_string()),
                ("TMPDIR".into(), state.join("tmp").display().to_string()),
                ("RUST_BACKTRACE".into(), "full".into()),
            ],
            state,
            canaries: Canaries::default(),
            since,
            items: Vec::new(),
            found: Vec::new(),
            rig,
        };
        let token = watched.rig.forge.token().to_owned();
        watched.watch_for("the tracker's token", &token);
        let mut secret = |name: &str, of: &str| {
            let value = fresh(of);
            watched.watch_for(name, &value);
            value
        };
        let key = secret("the model's key", "key");
        let header = secret("a header of the model", "header");
        let server = secret("the token of an MCP server", "mcp");
        let remote = secret("the header of an MCP server", "remote");
        let script = watched.rig.folder.path().join("leaky.py");
        std::fs::write(&script, LEAKY).unwrap();
        let servers = json!({
            "leaky": { "command": ["python3", script], "env": { "LEAKY_TOKEN": server } },
            "echoing": {
                "url": echoing(remote.clone()).await,
                "headers": { "Authorization": format!("Bearer {remote}") },
            },
        });
        let file = watched.rig.folder.path().join("mcp_config.json");
        std::fs::write(&file, json!({ "mcpServers": servers }).to_string()).unwrap();
        let config = &mut watched.rig.config;
        config["mcp"]["config_file"] = file.to_str().unwrap().into();
        config["model"]["headers"] = json!({ "X-Gateway-Key": header });
        config["model"]["api_key"] = key.into();
        config["http"]["listen"] = "127.0.0.1:0".into();
        // Also what the filter omits unless an operator names it.
        config["log"] =
            json!({ "level": "trace,lapin=trace,sqlx=trace,rmcp=trace", "format": format });
        watched
    }

    fn spawn(&self, program: &str, more: &[(&str, &str)]) -> Process {
        let variables = self.variables.iter();
        Process::spawn(
            Command::new(binary(program))
                .arg("--config")
                .arg(self.rig.config_file())
                .arg("--once")
                .envs(variables.map(|(name, value)| (name, value)))
                .envs(more.iter().copied()),
        )
    }

    /// Adds a secret, and its beginning, which a cut may leave.
    fn watch_for(&mut self, name: &str, secret: &str) {
        self.canaries.add(name, secret);
        self.canaries
            .add(&format!("a part of {name}"), &secret[..26]);
    }

    /// Looks for all canaries in a text.
    fn search(&mut self, place: &str, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        if let Some(canary) = self.canaries.found_in(text) {
            let text = String::from_utf8_lossy(text);
            let line = text
                .lines()
                .find(|line| self.canaries.found_in(line.as_bytes()).is_some());
            let line: String = line.unwrap_or_default().chars().take(600).collect();
            self.found.push(format!("{canary} is in {place}: {line}"));
        }
    }

    /// The same in files, by another program: it would keep the forge and the model from answering.
    async fn search_files(&mut self, place: &str, path: &Path) {
        let forms = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(forms.path(), self.canaries.all_forms().join("\n")).unwrap();
        let out = Command::new("grep")
            .args(["-a", "-r", "-o", "-m", "3", "-F", "-f"])
            .arg(forms.path())
            .arg(path)
            .env("LC_ALL", "C")
            .output()
            .await
            .unwrap();
        if !out.stdout.is_empty() {
            let seen = String::from_utf8_lossy(&out.stdout).into_owned();
            self.found.push(format!("a secret is in {place}: {seen}"));
        }
    }

    /// Runs a program that is to fail, and looks at what it prints.
    async fn fails(&mut self, what: &str, program: &str, more: &[(&str, &str)]) {
        let (status, log) = self.spawn(program, more).end().await;
        assert!(!status.success(), "{what}: {log}");
        self.search(&format!("the log of {program} ({what})"), &log);
    }

    /// The programs with wrong addresses and passwords, with a forge that echoes, and with a panic.
    async fn failures(&mut self, scanned: &str) {
        let good = self.rig.config.clone();
        let wrong = format!("canary-wrong-{}", uuid::Uuid::new_v4().simple());
        self.watch_for("a wrong password", &wrong);
        let store = good["store"]["url"].as_str().unwrap();
        let store = store.split_once('@').unwrap().1.to_owned();
        for (what, url) in [
            (
                "a wrong host",
                format!("postgres://fleet:{wrong}@127.0.0.1:1/x"),
            ),
            (
                "a wrong database",
                format!(
                    "postgres://nobody:{wrong}@{}",
                    store.replace("/t", "/no-such-")
                ),
            ),
            (
                "a wrong port",
                format!("postgres://fleet:{wrong}@127.0.0.1:port/x"),
            ),
            (
                "a wrong scheme",
                format!("mysql://fleet:{wrong}@127.0.0.1/x"),
            ),
        ] {
            self.rig.config["store"]["url"] = url.into();
            self.fails(what, "producer", &[]).await;
        }
        self.rig.config = good.clone();
        self.rig.config["queue"]["url"] = format!("amqp://fleet:{wrong}@127.0.0.1:1/%2f").into();
        self.items.push(self.rig.label_issue());
        self.fails("no broker", "producer", &[]).await;
        self.rig.config = good;
        let token = self.rig.forge.token().to_owned();
        for status in [401, 403, 422, 500] {
            let fault = ForgeFault::on("GET", scanned)
                .status(status)
                .body(&echo(&token));
            self.rig.forge.inject(fault.times(1000));
            self.fails("a forge that echoes", "producer", &[]).await;
            self.rig.forge.heal();
        }
        let (forge, text) = (&self.rig.forge, "It should greet.");
        self.items
            .push(forge.add_issue(DEMO, "Another one", text, &[REQUEST]));
        let store = self.rig.config["store"]["url"].as_str().unwrap();
        let said = format!("{store}\n{}", echo(&token));
        let panic = [
            ("AGENTMINE_FAILPOINTS", "store.enqueue.before=panic"),
            ("AGENTMINE_PANIC_MESSAGE", &said),
        ];
        self.fails("a panic", "producer", &panic).await;
    }

    /// The tasks, from the database of the fleet.
    async fn tasks(&self) -> Vec<Task> {
        let config = json!({ "url": self.rig.config["store"]["url"] });
        let config = serde_json::from_value(config).unwrap();
        let store: Arc<dyn Store> = agentmine_store::connect(&config).await.unwrap();
        store.tasks(&TaskFilter::default()).await.unwrap()
    }

    /// A session of the only waiting task, which is inspected from all sides while it lasts.
    async fn session(&mut self, faults: impl FnOnce(&Rig)) {
        self.rig.model.hold_at(LAST_TURN);
        let consumer = self.spawn("consumer", &[]);
        let lines = CommandLines::watch(consumer.pid());
        faults(&self.rig);
        self.rig.model.wait_for_held(1).await;
        self.look_at_the_machine(&consumer).await;
        self.rig.model.release();
        let (_, log) = consumer.end().await;
        self.search("the consumer's log", &log);
        for line in lines.seen() {
            self.search("a command line", line);
        }
        let state = self.state.clone();
        self.search_files("temporary files, afterwards", &state)
            .await;
    }

    async fn look_at_the_machine(&mut self, consumer: &Process) {
        let state = self.state.clone();
        self.search_files("files of the worker", &state).await;
        let log = consumer.log();
        let served = log.lines().find(|line| line.contains("serving /live"));
        let digits = |it: &str| {
            it.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
        };
        let port = served
            .unwrap()
            .split("127.0.0.1:")
            .nth(1)
            .map(digits)
            .unwrap();
        for path in ["metrics", "ready", "live"] {
            let url = format!("http://127.0.0.1:{port}/{path}");
            let answer = Command::new("curl")
                .args(["-s", &url])
                .output()
                .await
                .unwrap();
            assert!(!answer.stdout.is_empty());
            self.search(&format!("/{path}"), answer.stdout);
        }
        let tasks = self.tasks().await;
        for name in containers(&tasks).await {
            if let Err(error) = self.look_at_container(&name).await {
                // That of a check is removed while the agent continues.
                assert!(name.ends_with("-verify"), "{error}");
                let ends = Instant::now() + PATIENCE;
                while containers(&tasks).await.contains(&name) {
                    assert!(Instant::now() < ends, "{error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// # Errors
    /// A command that failed.
    async fn look_at_container(&mut self, name: &str) -> Result<(), String> {
        let image = docker(&["inspect", "-f", "{{.Image}}", name]).await?;
        let image = String::from_utf8_lossy(&image).trim().to_owned();
        // The engine keeps nothing of what passes through the tunnel.
        let mut logs = Command::new("docker");
        let logs = logs.args(["logs", name]).output().await.unwrap();
        let shown = String::from_utf8_lossy(&logs.stderr);
        if !shown.contains("does not support reading") {
            return Err(format!("docker logs: {logs:?}"));
        }
        let processes = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; true";
        for args in [
            &["inspect", name][..],
            &["top", name],
            &["diff", name],
            &["inspect", &image],
            &["history", "--no-trunc", &image],
            &["exec", "-u", "0", name, "sh", "-c", processes],
            &["exec", "-u", "1000:1000", name, "sh", "-c", processes],
        ] {
            let out = docker(args).await?;
            self.search(&format!("docker {args:?}"), out);
        }
        let files = self.rig.folder.path().join("container");
        std::fs::create_dir_all(&files).unwrap();
        // What did not change since the secrets were made, as nearly all of the image's 2 GB, holds none of them. The time of
        // a change cannot be set.
        let since = self.since;
        let changed = format!(
            "command -v find tar >/dev/null && {{ find / -xdev -newerct @{since} -print0 >/tmp/.changed; \
             tar --null --no-recursion --ignore-failed-read -T /tmp/.changed -cf -; }}"
        );
        let export = format!(
            "docker exec -u 0 {name} sh -c '{changed}' > {0}/root.tar && \
             docker exec -u 0 {name} tar -C / -cf - workspace tmp opt > {0}/volumes.tar",
            files.display()
        );
        let done = Command::new("sh")
            .args(["-c", &export])
            .status()
            .await
            .unwrap();
        if done.success() {
            self.search_files("files of the container", &files).await;
        }
        std::fs::remove_dir_all(&files).unwrap();
        done.success().then_some(()).ok_or(export)
    }

    /// What is kept outside of the machine: rows, and what the forge and the model got.
    async fn look_at_the_world(&mut self) {
        for (table, row) in rows(self.rig.config["store"]["url"].as_str().unwrap()).await {
            self.search(&format!("a row of {table}"), row);
        }
        let requests = self.rig.model.requests();
        for seen in &requests {
            self.search("what the model got", seen.body.to_string());
        }
        let forge = &self.rig.forge;
        let mut texts = vec![format!("{:?}", forge.writes())];
        texts.extend(forge.pulls(DEMO).iter().map(|pull| format!("{pull:?}")));
        for item in &self.items {
            texts.extend(forge.comments(DEMO, *item).iter().map(|it| it.body.clone()));
        }
        let commits = Command::new("git")
            .args(["log", "--all", "-p"])
            .current_dir(forge.git_dir(DEMO))
            .output()
            .await
            .unwrap();
        texts.push(String::from_utf8(commits.stdout).unwrap());
        assert_eq!(
            forge.leaks(),
            Vec::<String>::new(),
            "a URL carried the token"
        );
        for text in texts {
            self.search("what the forge got", text);
        }
    }

    fn assert_clean(self) {
        assert!(self.found.is_empty(), "{}", self.found.join("\n"));
    }
}

/// An MCP server that refuses everything, and repeats the header.
async fn echoing(secret: String) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let refuse = move || async move { (axum::http::StatusCode::BAD_REQUEST, echo(&secret)) };
    let app = axum::Router::new().fallback(refuse);
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

/// The command lines of all processes that a process started, as another user of the machine sees them.
struct CommandLines {
    ended: Arc<AtomicBool>,
    watching: std::thread::JoinHandle<BTreeSet<Vec<u8>>>,
}

impl CommandLines {
    fn watch(pid: u32) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ended);
        let root = SystemProcess::of(i32::try_from(pid).unwrap()).unwrap();
        let watching = std::thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while !until.load(Ordering::Relaxed) {
                for process in root.tree() {
                    let file = format!("/proc/{}/cmdline", process.pid());
                    seen.extend(std::fs::read(file).ok());
                }
                // Processes cannot be awaited by others.
                std::thread::sleep(Duration::from_millis(10));
            }
            seen
        });
        Self { ended, watching }
    }

    fn seen(self) -> BTreeSet<Vec<u8>> {
        self.ended.store(true, Ordering::Relaxed);
        let seen = self.watching.join().unwrap();
        assert!(seen.len() > 1, "only the program itself was seen");
        seen
    }
}

async fn docker(args: &[&str]) -> Result<Vec<u8>, String> {
    let out = Command::new("docker").args(args).output().await.unwrap();
    if !out.status.success() {
        return Err(format!("docker {args:?}: {out:?}"));
    }
    Ok([out.stdout, out.stderr].concat())
}

/// Every row of every table, as text.
async fn rows(url: &str) -> Vec<(String, String)> {
    let pool = sqlx::PgPool::connect(url).await.unwrap();
    let tables = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'";
    let tables = sqlx::query(tables).fetch_all(&pool).await.unwrap();
    assert!(!tables.is_empty());
    let mut all = Vec::new();
    for table in tables {
        let table = table.get::<String, _>(0);
        // As text, bytes are in hexadecimal.
        let query = sqlx::AssertSqlSafe(format!("SELECT t::text FROM {table} t"));
        let rows = sqlx::query(query).fetch_all(&pool).await.unwrap();
        all.extend(
            rows.iter()
                .map(|row| (table.clone(), row.get::<String, _>(0))),
        );
    }
    all
}

/// The messages that wait on the broker. They stay there.
async fn messages(url: &str, prefix: &str) -> Vec<Vec<u8>> {
    use lapin::options::{BasicGetOptions, QueueDeclareOptions};
    let connection = lapin::Connection::connect(url, Default::default())
        .await
        .unwrap();
    let mut found = Vec::new();
    for queue in ["low", "medium", "high", "critical", "takeover"] {
        let channel = connection.create_channel().await.unwrap();
        let name = format!("{prefix}.tasks.{queue}");
        let passive = QueueDeclareOptions {
            passive: true,
            ..Default::default()
        };
        let declared = channel.queue_declare(name.clone().into(), passive, Default::default());
        declared.await.unwrap();
        let get = |name: String| channel.basic_get(name.into(), BasicGetOptions::default());
        while let Some(message) = get(name.clone()).await.unwrap() {
            let properties = format!("{:?}", message.properties);
            found.push([message.data.clone(), properties.into_bytes()].concat());
        }
    }
    found
}

#[tokio::test]
async fn no_secret_leaves_a_fleet_in_containers() {
    let services = Encrypted::start().await.unwrap();
    let rig = Rig::new(hostile()).await;
    let mut watched = Watched::new(rig, "json").await;
    watched.watch_for("the store's password", &services.store_password);
    watched.watch_for("the queue's password", &services.queue_password);
    let authority = services.authority.display().to_string();
    watched
        .variables
        .push(("SSL_CERT_FILE".into(), authority.clone()));
    let store = format!(
        "{}?sslmode=verify-full&sslrootcert={authority}",
        services.store_url
    );
    watched.rig.config["store"]["url"] = store.into();
    watched.rig.config["queue"]["url"] = services.queue_url.as_str().into();
    watched.items.push(watched.rig.label_issue());
    let (status, log) = watched.spawn("producer", &[]).end().await;
    assert!(status.success(), "{log}");
    watched.search("the producer's log", &log);
    let prefix = watched.rig.config["queue"]["prefix"]
        .as_str()
        .unwrap()
        .to_owned();
    let waiting = messages(&services.own_queue_url(), &prefix).await;
    assert_eq!(waiting.len(), 1);
    for message in waiting {
        watched.search("a message", message);
    }
    let token = watched.rig.forge.token().to_owned();
    watched
        .session(|rig| {
            // The text that reports it, the progress, and git.
            let refused = |fault: ForgeFault| fault.status(422).body(&echo(&token));
            rig.forge
                .inject(refused(ForgeFault::on("PATCH", "/comments/")));
            // After the one that asks whether the worker may push.
            let git = ForgeFault::on("GET", "service=git-receive-pack").after(1);
            rig.forge.inject(git.status(500).body(&echo(&token)));
        })
        .await;
    assert_eq!(watched.rig.forge.pulls(DEMO).len(), 1);
    watched.look_at_the_world().await;
    watched.assert_clean();
}

#[tokio::test]
async fn no_secret_is_in_what_failures_print_and_leave() {
    let rig = Rig::local(hostile()).await;
    failures_show_no_secret(rig, "issues", "/pulls").await;
}

#[tokio::test]
async fn no_secret_is_in_what_failures_on_gitlab_print_and_leave() {
    let rig = Rig::local_gitlab(hostile()).await;
    failures_show_no_secret(rig, "/projects", "/merge_requests").await;
}

/// Paths of the forge: `scanned` is what every scan reads, `opening` is where a pull request is opened.
async fn failures_show_no_secret(rig: Rig, scanned: &str, opening: &str) {
    let mut watched = Watched::new(rig, "text").await;
    let password = format!("canary-store-{}", uuid::Uuid::new_v4().simple());
    watched.watch_for("the store's password", &password);
    let url = watched.rig.config["store"]["url"].as_str().unwrap();
    let url = url.replacen('@', &format!(":{password}@"), 1);
    watched.rig.config["store"]["url"] = url.into();
    watched.failures(scanned).await;
    assert_eq!(watched.tasks().await.len(), 1);
    let token = watched.rig.forge.token().to_owned();
    // A forge that refuses the pull request.
    watched
        .session(|rig| {
            let refused = ForgeFault::on("POST", opening)
                .status(422)
                .body(&echo(&token));
            rig.forge.inject(refused.times(100));
        })
        .await;
    watched.rig.forge.heal();
    let (status, log) = watched.spawn("producer", &[]).end().await;
    assert!(status.success(), "{log}");
    let key = watched.rig.config["model"]["api_key"]
        .as_str()
        .unwrap()
        .to_owned();
    let refusal = Refusal {
        status: 401,
        headers: vec![("content-type", "application/json".into())],
        body: echo(&key),
    };
    watched.rig.model.inject(&Fault::Refusal(refusal), 100);
    let (_, log) = watched.spawn("consumer", &[]).end().await;
    watched.search("the log of a consumer whose model echoes", &log);
    let tasks = watched.tasks().await;
    let ended = tasks
        .iter()
        .filter(|task| matches!(task.state, TaskState::Ended(_)));
    assert!(ended.count() >= 1, "{tasks:#?}");
    watched.look_at_the_world().await;
    watched.assert_clean();
}
