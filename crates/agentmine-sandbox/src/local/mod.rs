//! Sandboxes on the worker's own machine.
//!
//! With bubblewrap: new namespaces of every kind, a root of read-only system folders, and Landlock and
//! seccomp on top. Without: Landlock and seccomp alone, which is weaker and is told. Each sandbox has a
//! folder of its own with a record of the process to kill, so that another worker can remove it.

mod bwrap;
mod process;
mod programs;
mod state;
mod toolchains;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use agentmine_runtime::config::CommandExecutor;
use async_trait::async_trait;
use tokio::process::Child;
use tokio::sync::OnceCell;

use self::state::Record;
use crate::client::{Control, Running};
use crate::docker::parse_size;
use crate::name::{PREFIX, is_valid_role, sandbox_name, task_of};
use crate::tunnel::Tunnel;
use crate::{Backend, FoundSandbox, Sandbox, SandboxError, SandboxSpec};

const WEAK: &str = "this sandbox is a weaker one: bubblewrap does not work here, so it has no namespaces \
     of its own, only Landlock and seccomp. It sees the system's folders and process list, can use no \
     UDP, no local sockets and no server of its own, and its files stand outside /workspace";

/// Makes jails.
#[derive(Debug, Clone)]
pub struct LocalBackend(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state_dir: PathBuf,
    /// Where the static programs lie on this machine.
    programs: PathBuf,
    read_only: Vec<PathBuf>,
    toolchains: toolchains::Toolchains,
    require_namespaces: bool,
    disk_limit: u64,
    tmp_limit: u64,
    max_processes: i64,
    jail: OnceCell<Jail>,
}

/// Which of the two jails works here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Jail {
    /// bubblewrap, Landlock, seccomp.
    Namespaces,
    /// Landlock and seccomp.
    Alone,
}

/// `$XDG_STATE_HOME/agentmine/sandboxes`, `~/.local/state/…`, or the temporary folder.
#[must_use]
pub fn default_state_dir() -> PathBuf {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .unwrap_or_else(std::env::temp_dir);
    state.join("agentmine/sandboxes")
}

impl LocalBackend {
    /// Jails whose files lie under `state_dir`, which is made if missing.
    ///
    /// # Errors
    /// `Refused` when the folder cannot be written or the configuration has no valid size.
    pub fn new(config: &CommandExecutor, state_dir: &Path) -> Result<Self, SandboxError> {
        let state_dir = state::prepare(state_dir)?;
        Ok(Self(Arc::new(Inner {
            programs: programs::install(&state_dir)?,
            state_dir,
            read_only: config.local.read_only.clone(),
            toolchains: toolchains::find(),
            require_namespaces: config.local.require_namespaces,
            disk_limit: parse_size(&config.docker.resources.disk_limit)?,
            tmp_limit: parse_size(&config.docker.resources.disk_limit)?.min(1 << 30),
            max_processes: config.docker.pids_limit.max(0),
            jail: OnceCell::new(),
        })))
    }

    #[cfg(test)]
    pub(crate) fn with_jail(self, jail: Jail) -> Self {
        self.0.jail.set(jail).unwrap();
        self
    }

    /// Which jail works here, found out once.
    async fn jail(&self) -> Result<Jail, SandboxError> {
        let inner = &self.0;
        let probe = || async {
            match bwrap::probe(inner).await {
                Ok(()) => Ok(Jail::Namespaces),
                Err(why) if inner.require_namespaces => Err(SandboxError::Refused(format!(
                    "bubblewrap does not work here: {why}. hint: install bubblewrap and allow user \
                     namespaces, or set command_executor.local.require_namespaces: false"
                ))),
                Err(why) => {
                    tracing::warn!(error = %why, "bubblewrap does not work here, using the weaker jail");
                    Ok(Jail::Alone)
                }
            }
        };
        inner.jail.get_or_try_init(probe).await.copied()
    }

    async fn launch(
        &self,
        jail: Jail,
        folder: &Path,
        record: &mut Record,
    ) -> Result<(Child, Tunnel), SandboxError> {
        let workspace = folder.join("workspace");
        let mut command = match jail {
            Jail::Namespaces => bwrap::guest(&self.0, &workspace),
            Jail::Alone => self.0.guest_alone(&workspace),
        };
        command
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = process::spawn(command).await?;
        record.process = process::identity(child.id());
        record.save(folder)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(SandboxError::Gone("the jail has no streams".into()));
        };
        let stderr = process::keep_stderr(child.stderr.take());
        match Tunnel::open(tokio::io::join(output, input)).await {
            Ok(tunnel) => Ok((child, tunnel)),
            Err(SandboxError::Gone(why)) => {
                let said = stderr.text().await;
                Err(SandboxError::Refused(format!(
                    "the jail did not start: {why}. {said}"
                )))
            }
            Err(err) => Err(err),
        }
    }
}

impl Inner {
    /// A guest without namespaces, under a supervisor that outlives it.
    fn guest_alone(&self, workspace: &Path) -> std::process::Command {
        let mut command = std::process::Command::new(self.programs.join("agentmine-guest"));
        command
            .arg("supervise")
            .args(self.guest_args("alone", workspace));
        for folder in self.read_only.iter().chain(&self.toolchains.folders) {
            command.arg("--read-only").arg(folder);
        }
        command.current_dir(workspace);
        command
    }

    fn guest_args(&self, confinement: &str, root: &Path) -> Vec<String> {
        let mut args = vec![
            "serve".to_owned(),
            "--confine".into(),
            confinement.into(),
            "--root".into(),
            root.to_string_lossy().into_owned(),
            "--disk-limit".into(),
            self.disk_limit.to_string(),
            "--max-processes".into(),
            self.max_processes.to_string(),
            "--path".into(),
            self.toolchains.path(&self.read_only),
        ];
        for (key, value) in &self.toolchains.env {
            args.extend(["--env".to_owned(), format!("{key}={value}")]);
        }
        args
    }
}

#[async_trait]
impl Backend for LocalBackend {
    async fn check(&self) -> Result<(), SandboxError> {
        if self.jail().await? == Jail::Namespaces {
            return Ok(());
        }
        // Whether Landlock holds is known only by trying.
        let spec = SandboxSpec {
            task: agentmine_domain::TaskId::new(),
            epoch: agentmine_domain::Epoch(0),
            role: "check".into(),
            image: None,
        };
        self.start(&spec).await?.remove().await
    }

    async fn start(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        if !is_valid_role(&spec.role) {
            return Err(SandboxError::Refused(format!("{:?} is no role", spec.role)));
        }
        let began = Instant::now();
        let jail = self.jail().await?;
        let name = sandbox_name(spec);
        state::remove(&self.0.state_dir, &name).await?;
        let (folder, mut record) = state::create(&self.0.state_dir, &name, spec)?;
        let (child, tunnel) = match self.launch(jail, &folder, &mut record).await {
            Ok(launched) => launched,
            Err(err) => {
                let _ = state::remove(&self.0.state_dir, &name).await;
                return Err(err);
            }
        };
        metrics::histogram!("agentmine_sandbox_start_seconds", "backend" => "local")
            .record(began.elapsed().as_secs_f64());
        let mut warnings = Vec::new();
        if jail == Jail::Alone {
            warnings.push(WEAK.to_owned());
        } else if tunnel.hello.jail.landlock == "none" {
            warnings.push("this kernel has no Landlock; the namespaces hold alone".to_owned());
        }
        let control = LocalControl {
            name,
            state_dir: self.0.state_dir.clone(),
            warnings,
            process: record.process,
            instance: record.instance(),
            child: Mutex::new(Some(child)),
        };
        Ok(Box::new(Running { control, tunnel }))
    }

    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        let records = state::list(&self.0.state_dir)?;
        Ok(records
            .into_iter()
            .map(|(name, record)| FoundSandbox {
                task: record.task.or_else(|| task_of(&name)),
                epoch: record.epoch,
                instance: record.instance(),
                created_at: record.created_at,
                name,
            })
            .collect())
    }

    async fn remove(&self, found: &FoundSandbox) -> Result<(), SandboxError> {
        if !found.name.starts_with(PREFIX) || found.name.contains('/') {
            return Err(SandboxError::Refused(format!(
                "{:?} is no sandbox of ours",
                found.name
            )));
        }
        state::remove_instance(&self.0.state_dir, &found.name, &found.instance).await
    }
}

/// One jail.
struct LocalControl {
    name: String,
    state_dir: PathBuf,
    warnings: Vec<String>,
    process: Option<process::Identity>,
    instance: String,
    /// Killed when dropped; taken by the removal.
    child: Mutex<Option<Child>>,
}

#[async_trait]
impl Control for LocalControl {
    fn name(&self) -> &str {
        &self.name
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    async fn pause(&self) -> Result<(), SandboxError> {
        self.process.map_or(Ok(()), process::Identity::stop_tree)
    }

    async fn unpause(&self) -> Result<(), SandboxError> {
        self.process
            .map_or(Ok(()), process::Identity::continue_tree)
    }

    async fn remove(&self) -> Result<(), SandboxError> {
        let child = self
            .child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(process) = self.process {
            process.kill_tree().await;
        }
        if let Some(mut child) = child {
            let _ = child.kill().await;
        }
        state::remove_instance(&self.state_dir, &self.name, &self.instance).await
    }
}
