//! A sandbox as a consumer starts it, with a gateway, a repository, a neighbour, and bait around it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_consumer::Traffic;
use agentmine_domain::{Epoch, TaskId};
use agentmine_gateway::{Gateway, GatewayConfig, GitAccess, TrafficEvent, Upstream};
use agentmine_runtime::config::{BackendKind, ByteSize, CommandExecutor, Secret};
use agentmine_sandbox::{
    Backend, Command, DockerBackend, LocalBackend, Sandbox, SandboxRole, SandboxSpec,
};
use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::bait::{Bait, scratch};
use super::canaries::Canaries;
use super::cell::Cell;
use super::controls::{OpenGateway, OpenTraffic};
use super::entry::{Attack, Recorded};
use super::fence::Held;
use super::finding::Claim;
use super::memory::Memory;
use super::registry::Registry;
use crate::forge::{DEMO, Forge, write_demo};

/// The one branch that may be pushed to.
const BRANCH: &str = "work";
const OWN: &str = "refs/heads/work";
const PYTHON: &str = "/usr/bin/python3";
/// What the shell of a check ends with.
const SHELL_EXIT: i32 = 3;
/// How long a worker may wait for a sandbox that does not answer, beyond the limit of the command.
const PATIENCE: Duration = Duration::from_secs(60);

/// Everything that attacks of one kind of sandbox share.
pub(super) struct Arena {
    cell: Cell,
    backend: Arc<dyn Backend>,
    forge: Forge,
    bait: Bait,
    registry: Registry,
    canaries: Canaries,
    neighbour: Box<dyn Sandbox>,
    running: Option<Running>,
    way: Way,
}

/// What is between a sandbox and everything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The gateway.
    Gateway,
    /// One that forwards everything.
    Open,
    /// The same, where the sandbox has the token instead of it.
    OpenWithTokenInside,
}

/// A sandbox whose connections are served.
struct Running {
    sandbox: Arc<dyn Sandbox>,
    /// None where everything is forwarded.
    gateway: Option<Gateway>,
    remote: String,
    _traffic: Served,
}

/// Closes the connections when it is dropped.
#[expect(dead_code, reason = "they are only held")]
enum Served {
    ByGateway(Traffic),
    ByOpenGateway(OpenTraffic),
}

/// A repository's name, a reference in it, and the commit.
type Reference = (&'static str, String, String);

impl Arena {
    pub(super) async fn open(cell: Cell) -> anyhow::Result<Self> {
        let mut canaries = Canaries::of_environment();
        let forge = Forge::start().await;
        forge.add_repo(DEMO, write_demo);
        forge.add_repo("octo/other", write_demo);
        canaries.add("the tracker's token", forge.token());
        let bait = Bait::lay(&mut canaries)?;
        let registry = Registry::start(&mut canaries, bait.web()).await?;
        let backend = backend(cell, Limits::Small).await?;
        let neighbour = backend
            .start(&spec())
            .await
            .context("a neighbour's sandbox")?;
        check_kind(cell, &neighbour.warnings())?;
        let secret = format!("canary{}", uuid::Uuid::new_v4().simple());
        canaries.add("a neighbour's file", &secret);
        let line = format!(
            "umask 0; mkdir -p project; echo {secret} > project/neighbour; (exec -a neighbour-{secret} sleep 600) >/dev/null 2>&1 &"
        );
        let done = neighbour.run(shell(&line, Duration::from_secs(20))).await?;
        anyhow::ensure!(done.exit_code == 0, "the neighbour: {done:?}");
        Ok(Self {
            cell,
            backend,
            forge,
            bait,
            registry,
            canaries,
            neighbour,
            running: None,
            way: Way::Gateway,
        })
    }

    /// Puts something else between the sandboxes and everything else.
    pub(super) async fn go(&mut self, way: Way) -> anyhow::Result<()> {
        if way == self.way {
            return Ok(());
        }
        self.way = way;
        // Its own git refuses this for the branch that `HEAD` names; a forge may not.
        self.git(DEMO, &["config", "receive.denyDeleteCurrent", "ignore"])?;
        match self.running.take() {
            Some(running) => Ok(running.sandbox.remove().await?),
            None => Ok(()),
        }
    }

    /// Carries an attack out.
    pub(super) async fn carry_out(
        &mut self,
        attack: &Attack,
        program: &str,
    ) -> anyhow::Result<Claim> {
        let running = match self.running.take() {
            Some(running) => running,
            None => self.start().await?,
        };
        let before = self.references()?;
        let (blocked, refused) = counts(running.gateway.as_ref());
        let memory = Memory::watch();
        let command = self.command(attack, program, &running);
        let (sandbox, within) = (&running.sandbox, attack.limit + PATIENCE);
        let done = async {
            if attack.check {
                sandbox.check(command).await
            } else {
                sandbox.run(command).await
            }
        };
        let Ok(done) = tokio::time::timeout(within, done).await else {
            running
                .sandbox
                .remove()
                .await
                .context("removing a sandbox")?;
            return Ok(Claim::Succeeded("the worker waits without end".into()));
        };
        let mut claim = match &done {
            Ok(done) if attack.check && done.exit_code != SHELL_EXIT => {
                Claim::Succeeded(format!("the check reports exit code {}", done.exit_code))
            }
            Ok(done) => Claim::of(
                &String::from_utf8_lossy(&done.stdout),
                &String::from_utf8_lossy(&done.stderr),
            ),
            Err(error) => Claim::Blocked(format!("the sandbox ended: {error}")),
        };
        if let (Ok(done), Claim::Broken(last)) = (&done, &claim)
            && done.exit_code > 128
        {
            claim = Claim::Blocked(format!("killed, exit code {}: {last}", done.exit_code));
        }
        if done.as_ref().is_ok_and(|done| done.timed_out) {
            claim = Claim::Broken("it did not end in its time limit".into());
        }
        if matches!(claim, Claim::Blocked(_))
            && !recorded(attack, running.gateway.as_ref(), (blocked, refused)).await
        {
            claim = Claim::Succeeded("it was blocked, but not recorded".into());
        }
        let output = done
            .as_ref()
            .map(|done| [&done.stdout[..], &done.stderr[..]].concat());
        let found = self.canaries.found_in(&output.unwrap_or_default());
        if let Some(found) = found {
            claim = Claim::Succeeded(format!("it got {found}"));
        }
        if let Some(difference) = self.unrecorded(running.gateway.as_ref()) {
            claim = Claim::Succeeded(difference);
        }
        if let Some(damage) = self.damage(&before, &memory)? {
            claim = Claim::Succeeded(damage);
        }
        if self.way != Way::Gateway {
            self.restore(&before)?;
        }
        self.after(attack, running).await?;
        Ok(claim)
    }

    /// Keeps the sandbox for the next attack if it still works.
    async fn after(&mut self, attack: &Attack, running: Running) -> anyhow::Result<()> {
        let alive = async {
            let done = running
                .sandbox
                .run(shell("true", Duration::from_secs(5)))
                .await;
            done.is_ok_and(|done| done.exit_code == 0)
        };
        let alive = tokio::time::timeout(Duration::from_secs(10), alive).await;
        if alive.unwrap_or(false) && !attack.ruins {
            self.running = Some(running);
            return Ok(());
        }
        running.sandbox.remove().await.context("removing a sandbox")
    }

    async fn start(&self) -> anyhow::Result<Running> {
        let sandbox: Arc<dyn Sandbox> = Arc::from(self.backend.start(&spec()).await?);
        let served = self.serve(&sandbox);
        let (gateway, remote, traffic) = match served {
            Ok(it) => it,
            Err(error) => {
                sandbox.remove().await?;
                return Err(error);
            }
        };
        let running = Running {
            sandbox,
            gateway,
            remote,
            _traffic: traffic,
        };
        let clone = format!(
            "git clone -q {} project && cd project && git checkout -q -b {BRANCH} && \
             git config user.name a && git config user.email a@example.org",
            running.remote
        );
        let cloned = running
            .sandbox
            .run(shell(&clone, Duration::from_secs(60)))
            .await;
        match cloned {
            Ok(done) if done.exit_code == 0 => Ok(running),
            failed => {
                running.sandbox.remove().await?;
                bail!("the clone failed: {failed:?}")
            }
        }
    }

    /// Serves the connections of a sandbox. Gives the gateway, if it is one, and the repository's URL in the sandbox.
    fn serve(
        &self,
        sandbox: &Arc<dyn Sandbox>,
    ) -> anyhow::Result<(Option<Gateway>, String, Served)> {
        let own = format!("127.0.0.1:{}", sandbox.ports().git);
        if self.way != Way::Gateway {
            return self.serve_openly(sandbox, &own);
        }
        let mut network = executor(self.cell, Limits::Small).docker.network;
        self.registry.allow(&mut network);
        let gateway = Gateway::new(GatewayConfig {
            git: GitAccess::ReadWrite {
                upstream: Upstream::Http {
                    url: self.forge.git_url(DEMO),
                    user: "x-access-token".into(),
                    password: Some(Secret::new(self.forge.token()).into()),
                    authority: None,
                },
                branch: BRANCH.into(),
                max_push_bytes: 32 << 20,
                fence: Arc::new(Held),
            },
            network,
        })?;
        let path = gateway.remote_path().unwrap_or_default();
        let remote = format!("http://{own}{path}");
        let traffic = Traffic::serve(Arc::clone(sandbox), gateway.clone());
        Ok((Some(gateway), remote, Served::ByGateway(traffic)))
    }

    fn serve_openly(
        &self,
        sandbox: &Arc<dyn Sandbox>,
        own: &str,
    ) -> anyhow::Result<(Option<Gateway>, String, Served)> {
        let url = self.forge.git_url(DEMO);
        let (user, token) = ("x-access-token", self.forge.token());
        let inside = self.way == Way::OpenWithTokenInside;
        let before = if inside {
            format!("{user}:{token}@")
        } else {
            String::new()
        };
        let authorization = format!("Basic {}", STANDARD.encode(format!("{user}:{token}")));
        let open = OpenGateway {
            forge: url.socket_addrs(|| None)?[0].to_string(),
            authorization: (!inside).then_some(authorization),
            bait: [self.bait.listeners(), self.registry.listeners().into()].concat(),
        };
        let remote = format!("http://{before}{own}{}", url.path());
        let traffic = OpenTraffic::serve(Arc::clone(sandbox), open);
        Ok((None, remote, Served::ByOpenGateway(traffic)))
    }
    fn command(&self, attack: &Attack, program: &str, running: &Running) -> Command {
        let ports = running.sandbox.ports();
        let mut env: BTreeMap<String, String> = self
            .bait
            .variables()
            .into_iter()
            .chain(self.registry.variables())
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        for (name, value) in [
            ("GIT_PORT", ports.git.to_string()),
            ("WEB_PORT", ports.web.to_string()),
            ("REMOTE", running.remote.clone()),
            ("BRANCH", BRANCH.to_owned()),
            ("BACKEND", self.cell.backend().to_owned()),
            ("NEIGHBOUR", self.neighbour.workspace_root().to_owned()),
        ] {
            env.insert(name.to_owned(), value);
        }
        Command {
            argv: argv(attack),
            cwd: "/workspace/project".into(),
            env,
            stdin: program.into(),
            timeout: attack.limit,
            max_output: 256 << 10,
        }
    }

    /// Every reference of every repository but the one branch that is the attacker's.
    fn references(&self) -> anyhow::Result<Vec<Reference>> {
        let mut all = Vec::new();
        for repository in [DEMO, "octo/other"] {
            let format = "--format=%(refname) %(objectname)";
            let listing = self.git(repository, &["for-each-ref", format])?;
            let pairs = listing.lines().filter_map(|line| line.split_once(' '));
            let pairs = pairs.filter(|it| repository != DEMO || it.0 != OWN);
            all.extend(pairs.map(|(name, commit)| (repository, name.into(), commit.into())));
        }
        Ok(all)
    }

    /// Puts the references back, so that no attack depends on another.
    fn restore(&self, before: &[Reference]) -> anyhow::Result<()> {
        for it in self.references()?.iter().filter(|it| !before.contains(it)) {
            self.git(it.0, &["update-ref", "-d", &it.1])?;
        }
        for (repository, name, commit) in before {
            self.git(repository, &["update-ref", name, commit])?;
        }
        self.git(DEMO, &["update-ref", "-d", OWN])?;
        Ok(())
    }

    /// Git's output in a repository of the forge.
    fn git(&self, repository: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let done = std::process::Command::new("git")
            .args(arguments)
            .current_dir(self.forge.git_dir(repository))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()?;
        let errors = String::from_utf8_lossy(&done.stderr);
        anyhow::ensure!(done.status.success(), "git {arguments:?}: {errors}");
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }

    /// Whether the newest push that the gateway recorded differs from what its branch is at.
    fn unrecorded(&self, gateway: Option<&Gateway>) -> Option<String> {
        let events = gateway?.events().into_iter().rev();
        let recorded = events.into_iter().find_map(|event| match event {
            TrafficEvent::Pushed { new, .. } => Some(new),
            _ => None,
        });
        // Without a push of this session, an earlier one's stays.
        let at = self.forge.branch_sha(DEMO, BRANCH);
        (recorded.is_some() && recorded != at)
            .then(|| format!("recorded is {recorded:?}, but the branch is at {at:?}"))
    }

    fn damage(&mut self, before: &[Reference], memory: &Memory) -> anyhow::Result<Option<String>> {
        let now = self.references()?;
        if let Some((repository, name, _)) = now.iter().find(|it| !before.contains(it)) {
            return Ok(Some(format!("{repository} {name} was written")));
        }
        if let Some((repository, name, _)) = before.iter().find(|it| !now.contains(it)) {
            return Ok(Some(format!("{repository} {name} was removed")));
        }
        if let Some(grown) = memory.too_much() {
            return Ok(Some(grown));
        }
        let damage = self.bait.damage()?;
        Ok(damage.or_else(|| self.registry.damage()))
    }

    /// Removes all sandboxes.
    pub(super) async fn close(mut self) -> anyhow::Result<()> {
        if let Some(running) = self.running.take() {
            running.sandbox.remove().await?;
        }
        Ok(self.neighbour.remove().await?)
    }
}

/// Whether the gateway recorded what it has to record of an attack. It finishes a push that it has read after the
/// attack has gone, which takes longer on a busy machine.
async fn recorded(attack: &Attack, gateway: Option<&Gateway>, before: (u64, u64)) -> bool {
    let (Some(kind), Some(gateway)) = (attack.recorded, gateway) else {
        return true;
    };
    let grown = || {
        let now = counts(Some(gateway));
        match kind {
            Recorded::Web => now.0 != before.0,
            Recorded::Push => now.1 != before.1,
        }
    };
    let end = Instant::now() + PATIENCE;
    while !grown() && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    grown()
}

/// The refused requests and the refused pushes that the gateway recorded.
fn counts(gateway: Option<&Gateway>) -> (u64, u64) {
    let events = gateway.map(Gateway::events).unwrap_or_default();
    let (mut web, mut pushes) = (0, 0);
    for event in events {
        match event {
            // One event for each host, with the number of its requests.
            TrafficEvent::WebBlocked { count, .. } => web += count,
            TrafficEvent::PushRefused { .. } => pushes += 1,
            TrafficEvent::WebAllowed { .. }
            | TrafficEvent::Pushed { .. }
            | TrafficEvent::AuthRefused { .. } => {}
        }
    }
    (web, pushes)
}

/// How a script is started; it is on the standard input.
pub(super) fn argv(attack: &Attack) -> Vec<String> {
    if attack.check {
        let line = format!("{PYTHON} -; exit {SHELL_EXIT}");
        return vec!["/bin/sh".into(), "-c".into(), line];
    }
    vec![PYTHON.into(), "-".into()]
}

pub(super) fn shell(line: &str, timeout: Duration) -> Command {
    Command {
        argv: ["/bin/bash", "-c", line].map(str::to_owned).into(),
        cwd: "/workspace".into(),
        env: BTreeMap::new(),
        stdin: Vec::new(),
        timeout,
        max_output: 10_000,
    }
}

pub(super) fn spec() -> SandboxSpec {
    SandboxSpec {
        task: TaskId::new(),
        epoch: Epoch(1),
        role: SandboxRole::Main,
        image: None,
        template: None,
    }
}

/// The limits of sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limits {
    /// Those of the default configuration.
    Default,
    /// Small ones, so that reaching them takes no time.
    Small,
}

/// The default configuration, apart from its limits.
pub(super) fn executor(cell: Cell, limits: Limits) -> CommandExecutor {
    let mut executor = CommandExecutor {
        enabled: true,
        backend: match cell {
            Cell::Docker => BackendKind::Docker,
            Cell::Bubblewrap
            | Cell::BubblewrapUnprivileged
            | Cell::Landlock
            | Cell::LandlockUnprivileged => BackendKind::Local,
        },
        ..CommandExecutor::default()
    };
    // It is what is attacked here.
    executor.local.accept_weaker_limits = cell == Cell::Landlock;
    let docker = &mut executor.docker;
    docker.host = std::env::var("DOCKER_HOST").ok();
    if let Ok(image) = std::env::var("AGENTMINE_TEST_IMAGE") {
        docker.base_image = image;
    }
    if limits == Limits::Small {
        docker.resources.memory_limit = ByteSize::from_bytes(512 << 20);
        docker.resources.disk_limit = ByteSize::from_bytes(256 << 20);
        docker.pids_limit = 200;
    }
    executor
}

pub(super) async fn backend(cell: Cell, limits: Limits) -> anyhow::Result<Arc<dyn Backend>> {
    let config = executor(cell, limits);
    let backend: Arc<dyn Backend> = match cell {
        Cell::Docker => Arc::new(DockerBackend::connect(&config).await?),
        Cell::Bubblewrap
        | Cell::BubblewrapUnprivileged
        | Cell::Landlock
        | Cell::LandlockUnprivileged => {
            Arc::new(LocalBackend::new(&config, &scratch().join("state"))?)
        }
    };
    backend.check().await?;
    Ok(backend)
}

/// Whether the sandbox is of the kind that was requested.
fn check_kind(cell: Cell, warnings: &[String]) -> anyhow::Result<()> {
    let weak = warnings
        .iter()
        .any(|it| it.starts_with("this sandbox is weaker"));
    let wanted = cell.backend() == "landlock";
    anyhow::ensure!(
        weak == wanted,
        "a sandbox of another kind than {cell} was started"
    );
    Ok(())
}
