//! Postgres and RabbitMQ of the suite's own, which it may kill, freeze and wipe.
//!
//! They are the programs of Debian's packages, as in `tests/services`, on free ports and with their data in a
//! temporary folder.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agentmine_process::Process;
use anyhow::{Context as _, bail, ensure};

use super::clock::Clock;

/// How long a service may take to answer.
pub(super) const START_LIMIT: Duration = Duration::from_secs(300);

/// How long a broker may take to answer one call of the suite: one that is killed while a connection begins leaves the
/// client waiting for ever.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// A port that nothing uses, below those that the kernel gives to connections: while a server is away, its port
/// must not become the local end of one.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    const PORTS: std::ops::Range<u16> = 20_000..32_000;
    let count = u128::from(PORTS.end - PORTS.start);
    for _ in 0..100 {
        let nth = uuid::Uuid::new_v4().as_u128() % count;
        let port = PORTS.start + u16::try_from(nth)?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of {PORTS:?} is free")
}

fn address(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// A program and its children. They are killed when this is dropped.
pub(super) struct Running(Child);

impl Running {
    pub(super) fn start(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(log)?;
        let program = command.get_program().to_string_lossy().into_owned();
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command
            .spawn()
            .with_context(|| format!("{program} cannot be started; run tests/run --services"))?;
        Ok(Self(child))
    }

    /// As a power failure would.
    fn kill(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let root = i32::try_from(self.0.id()).ok().and_then(Process::of);
            for process in root.map(Process::tree).unwrap_or_default() {
                process.signal(libc::SIGKILL);
            }
        }
        let _ = self.0.wait();
    }

    /// Kills the program and not its children, as an operator's `kill -9` would.
    pub(super) fn kill_alone(mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Asks the program to end, and kills it after `limit`.
    pub(super) fn end(mut self, limit: Duration) {
        let process = i32::try_from(self.0.id()).ok().and_then(Process::of);
        if let Some(process) = process {
            process.signal(libc::SIGTERM);
        }
        let begun = Instant::now();
        while let Ok(None) = self.0.try_wait()
            && begun.elapsed() < limit
        {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A Postgres server.
pub(crate) struct Postgres {
    folder: PathBuf,
    port: u16,
    /// `name=value`, beside those that the suite needs.
    settings: Vec<String>,
    running: Option<Running>,
    pub(super) clock: Clock,
}

impl Postgres {
    /// Creates a cluster and starts it.
    pub(super) async fn start(folder: &Path) -> anyhow::Result<Self> {
        Self::start_with(folder, Vec::new()).await
    }

    /// The same with settings of the server, `name=value`.
    pub(crate) async fn start_with(folder: &Path, settings: Vec<String>) -> anyhow::Result<Self> {
        let folder = folder.join("postgres");
        std::fs::create_dir_all(&folder)?;
        let mut postgres = Self {
            port: free_port()?,
            clock: Clock::new(&folder)?,
            folder,
            settings,
            running: None,
        };
        if let Some((user, group)) = unprivileged() {
            std::os::unix::fs::chown(&postgres.folder, Some(user), Some(group))?;
        }
        let data = postgres.folder.join("data");
        let made = postgres
            .program("initdb")?
            .args(["-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8"])
            .args(["--locale=C.UTF-8", "-D"])
            .arg(&data)
            .output()?;
        let errors = String::from_utf8_lossy(&made.stderr);
        ensure!(made.status.success(), "initdb: {errors}");
        postgres.bring_up().await?;
        Ok(postgres)
    }

    /// A program of the package, as the user who may run it: Postgres refuses root.
    fn program(&self, name: &str) -> anyhow::Result<Command> {
        let mut folders: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
            .context("Postgres is not installed; run tests/run --services")?
            .flatten()
            .collect();
        folders.sort_by_key(std::fs::DirEntry::path);
        let newest = folders.last().context("/usr/lib/postgresql is empty")?;
        let mut command = Command::new(newest.path().join("bin").join(name));
        command.current_dir(&self.folder);
        if let Some((user, group)) = unprivileged() {
            command.uid(user).gid(group);
        }
        Ok(command)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        address(self.port)
    }

    /// The URL of a database, through `port`.
    pub(super) fn url(port: u16, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/{database}")
    }

    /// A connection of the suite's own, which no fault of a link affects.
    pub(crate) fn own_url(&self, database: &str) -> String {
        Self::url(self.port, database)
    }

    /// Starts the server and waits until it answers.
    pub(super) async fn bring_up(&mut self) -> anyhow::Result<()> {
        let data = self.folder.join("data");
        let socket = format!("unix_socket_directories={}", self.folder.display());
        let begun = Instant::now();
        loop {
            // A server that was killed leaves its children a moment longer, and then refuses to start.
            let mut command = self.program("postgres")?;
            command
                .arg("-D")
                .arg(&data)
                .arg("-p")
                .arg(self.port.to_string());
            // Not `synchronous_commit=off` too: what was acknowledged must outlive a kill of the server.
            for setting in [
                "listen_addresses=127.0.0.1",
                socket.as_str(),
                "max_connections=200",
                "fsync=off",
                "full_page_writes=off",
            ] {
                command.args(["-c", setting]);
            }
            for setting in &self.settings {
                command.args(["-c", setting]);
            }
            self.clock.give_to(&mut command);
            let running = Running::start(&mut command, &self.folder.join("log"))?;
            let running = self.running.insert(running);
            while running.0.try_wait()?.is_none() {
                if sqlx::PgPool::connect(&Self::url(self.port, "postgres"))
                    .await
                    .is_ok()
                {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                ensure!(begun.elapsed() < START_LIMIT, "Postgres does not answer");
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            ensure!(begun.elapsed() < START_LIMIT, "Postgres ends at once");
        }
    }

    /// As a crash: every process of the server is killed. What was committed stays.
    pub(super) fn kill(&mut self) {
        self.running = None;
    }

    /// Stops or continues every process of the server.
    pub(super) fn signal(&self, signal: i32) {
        let Some(running) = &self.running else { return };
        let root = i32::try_from(running.0.id()).ok().and_then(Process::of);
        for process in root.map(Process::tree).unwrap_or_default() {
            process.signal(signal);
        }
    }

    /// As after a failover to a standby: all transactions are read-only, those of open connections too.
    pub(super) async fn set_read_only(&self, on: bool) -> anyhow::Result<()> {
        let mut connection = self.connect("postgres").await?;
        let set = match on {
            true => "ALTER SYSTEM SET default_transaction_read_only = on",
            false => "ALTER SYSTEM RESET default_transaction_read_only",
        };
        for statement in [
            "SET default_transaction_read_only = off",
            set,
            "SELECT pg_reload_conf()",
        ] {
            sqlx::query(statement).execute(&mut connection).await?;
        }
        Ok(())
    }

    /// Ends every connection but our own.
    pub(super) async fn cut(&self) -> anyhow::Result<()> {
        let mut connection = self.connect("postgres").await?;
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE application_name = 'agentmine'";
        sqlx::query(cut).execute(&mut connection).await?;
        Ok(())
    }

    async fn connect(&self, database: &str) -> anyhow::Result<sqlx::PgConnection> {
        use sqlx::Connection as _;
        Ok(sqlx::PgConnection::connect(&Self::url(self.port, database)).await?)
    }
}

pub(super) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uid.and_then(|uid| uid.split_whitespace().next()) == Some("0")
}

/// User and group `postgres` if this process is root.
pub(crate) fn unprivileged() -> Option<(u32, u32)> {
    if !is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.starts_with("postgres:"))?;
    let mut ids = line.split(':').skip(2).map(str::parse);
    Some((ids.next()?.ok()?, ids.next()?.ok()?))
}

/// Who may use a server.
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) password: String,
}

/// A RabbitMQ server.
pub(crate) struct RabbitMq {
    folder: PathBuf,
    port: u16,
    /// Lines of `rabbitmq.conf`, beside those that the suite needs.
    settings: String,
    /// The only user.
    user: User,
    /// For the other nodes of a cluster, of which there are none.
    distribution_port: u16,
    running: Option<Running>,
}

/// A connection of the suite to a broker.
pub(super) async fn connect_broker(url: &str) -> anyhow::Result<lapin::Connection> {
    let options = lapin::ConnectionProperties::default();
    let connecting = lapin::Connection::connect(url, options);
    Ok(tokio::time::timeout(ANSWER_LIMIT, connecting).await??)
}

impl RabbitMq {
    pub(super) async fn start(folder: &Path) -> anyhow::Result<Self> {
        let guest = User {
            name: "guest".to_owned(),
            password: "guest".to_owned(),
        };
        Self::start_with(folder, String::new(), guest).await
    }

    /// The same with lines of `rabbitmq.conf`, and a user.
    pub(crate) async fn start_with(
        folder: &Path,
        settings: String,
        user: User,
    ) -> anyhow::Result<Self> {
        let folder = folder.join("rabbitmq");
        std::fs::create_dir_all(&folder)?;
        let mut broker = Self {
            folder,
            port: free_port()?,
            distribution_port: free_port()?,
            settings,
            user,
            running: None,
        };
        broker.bring_up().await?;
        Ok(broker)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        address(self.port)
    }

    pub(super) fn url(port: u16) -> String {
        format!("amqp://guest:guest@127.0.0.1:{port}/%2f")
    }

    /// Without TLS, for the suite itself.
    pub(crate) fn own_url(&self) -> String {
        let User { name, password } = &self.user;
        let mut url = format!("amqp://{name}:");
        url.extend(url::form_urlencoded::byte_serialize(password.as_bytes()));
        format!("{url}@127.0.0.1:{}/%2f", self.port)
    }

    /// Starts the broker and waits until it accepts a connection.
    pub(super) async fn bring_up(&mut self) -> anyhow::Result<()> {
        let home = self.folder.clone();
        let home = &home;
        let settings = format!(
            "listeners.tcp.1 = 127.0.0.1:{}\nlog.console = true\nlog.file = false\n\
             vm_memory_high_watermark.absolute = 1GB\ndisk_free_limit.absolute = 200MB\n\
             default_user = {}\ndefault_pass = {}\n{}",
            self.port, self.user.name, self.user.password, self.settings
        );
        std::fs::write(home.join("rabbitmq.conf"), settings)?;
        std::fs::write(home.join("enabled_plugins"), "[].")?;
        let node = format!("agentmine-chaos-{}@localhost", self.port);
        let mut command = Command::new("/usr/lib/rabbitmq/bin/rabbitmq-server");
        command
            .env("HOME", home)
            .env("RABBITMQ_NODENAME", node)
            .env("RABBITMQ_MNESIA_BASE", home.join("data"))
            .env("RABBITMQ_LOG_BASE", home)
            .env("RABBITMQ_LOGS", "-")
            .env(
                "RABBITMQ_ENABLED_PLUGINS_FILE",
                home.join("enabled_plugins"),
            )
            .env("RABBITMQ_CONFIG_FILE", home.join("rabbitmq.conf"))
            .env("RABBITMQ_DIST_PORT", self.distribution_port.to_string())
            .env("RABBITMQ_PID_FILE", home.join("pid"))
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-kernel inet_dist_use_interface {127,0,0,1}",
            );
        self.running = Some(Running::start(&mut command, &home.join("log"))?);
        let begun = Instant::now();
        loop {
            if connect_broker(&self.own_url()).await.is_ok() {
                return Ok(());
            }
            let ended = self.running.as_mut().map(|running| running.0.try_wait());
            if let Some(Ok(Some(_))) = ended {
                // The node before it is still registered under the name.
                self.running = Some(Running::start(&mut command, &home.join("log"))?);
            }
            if begun.elapsed() > START_LIMIT {
                bail!(
                    "RabbitMQ does not answer: see {}",
                    home.join("log").display()
                );
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// As a crash. Quorum queues keep what was confirmed.
    pub(super) fn kill(&mut self) {
        self.running = None;
    }

    /// Removes everything that it knew; it must not run.
    pub(super) fn wipe(&self) -> anyhow::Result<()> {
        Ok(std::fs::remove_dir_all(self.folder.join("data"))?)
    }
}
