//! Sandboxes on the worker's own machine.
//!
//! With bubblewrap: new namespaces of every kind, a root of read-only system folders, and Landlock and
//! seccomp on top. Without: Landlock and seccomp alone, which is weaker; the sandbox then has a warning.
//! CPU, memory and processes are limited by a cgroup where one can be had; otherwise a warning names what
//! limits each. For root the kernel does not count processes in any other way, so a worker that runs as root
//! refuses to start a jail without that cgroup, unless the configuration accepts it.
//! Each sandbox has its own folder with a record of the process to kill, so that another worker can
//! remove it.

mod bwrap;
mod cgroup;
mod control;
mod etc;
mod held;
mod hierarchy;
mod jail;
mod limits;
mod php;
mod process;
mod programs;
mod scope;
mod setup;
mod state;
mod toolchains;

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agentmine_process::Process;
use agentmine_runtime::config::{BackendKind, CommandExecutor};
use agentmine_runtime::failpoint::around;
use agentmine_runtime::process_lock::ProcessLock;
use async_trait::async_trait;
use tokio::process::Child;
use tokio::sync::OnceCell;

use self::bwrap::{ProbeError, Release};
use self::cgroup::Cgroups;
use self::control::LocalControl;
pub(crate) use self::jail::Jail;
use self::jail::WorkingJail;
use self::limits::{Controller, Held};
use self::setup::JailSetup;
use self::state::{Record, WORKSPACE};
use crate::backend::{Backend, FoundSandbox, watched_disk_limit};
use crate::client::Running;
use crate::error::SandboxError;
use crate::name::{PREFIX, sandbox_name, spare_name, task_of};
use crate::role::SandboxRole;
use crate::sandbox::Sandbox;
use crate::sealed::open_tunnel;
use crate::spare::Spare;
use crate::spec::SandboxSpec;
use crate::template::{OwnVolume, WorkspaceTemplate};
use crate::tunnel::Tunnel;
use crate::volume::{Volumes, is_root};

/// Makes local jails.
#[derive(Debug, Clone)]
pub struct LocalBackend(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state_dir: PathBuf,
    setup: JailSetup,
    require_namespaces: bool,
    accept_weaker_limits: bool,
    jail: OnceCell<WorkingJail>,
    /// The last jail did not start.
    fails: AtomicBool,
    /// Set once a jail without namespaces has started.
    tried: OnceCell<()>,
    cgroups: OnceCell<Cgroups>,
    volumes: OnceCell<Result<Volumes, String>>,
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
    /// Jails whose files are under `state_dir`, which is created if it does not exist.
    ///
    /// # Errors
    /// `Refused` when the folder cannot be written.
    pub fn new(config: &CommandExecutor, state_dir: &Path) -> Result<Self, SandboxError> {
        let state_dir = state::prepare(state_dir)?;
        let programs = programs::install(&state_dir)?;
        programs::require_exec(&programs)?;
        Ok(Self(Arc::new(Inner {
            state_dir,
            setup: JailSetup::new(config, programs),
            require_namespaces: config.local.require_namespaces,
            accept_weaker_limits: config.local.accept_weaker_limits,
            jail: OnceCell::new(),
            fails: AtomicBool::new(false),
            tried: OnceCell::new(),
            cgroups: OnceCell::new(),
            volumes: OnceCell::new(),
        })))
    }

    #[cfg(test)]
    pub(crate) fn with_jail(self, jail: Jail) -> Self {
        let working = WorkingJail {
            jail,
            bubblewrap: Release::Current,
            why: "chosen by this test".into(),
        };
        self.0.jail.set(working).unwrap();
        self
    }

    #[cfg(test)]
    pub(crate) fn without_volumes(self) -> Self {
        let none = Err("none in this test".into());
        self.0.volumes.set(none).unwrap();
        self
    }

    #[cfg(test)]
    pub(crate) fn without_cgroups(self) -> Self {
        let none = Cgroups::None("none in this test".into());
        self.0.cgroups.set(none).unwrap();
        self
    }

    /// Where cgroups can be made, determined once.
    async fn cgroups(&self) -> &Cgroups {
        let limits = self.0.setup.limits;
        let find = || async move {
            let found = tokio::task::spawn_blocking(move || Cgroups::find(&limits)).await;
            let found = found.unwrap_or_else(|error| Cgroups::None(error.to_string()));
            if let Some(weaker) = found.warning(&limits) {
                tracing::warn!("{weaker}");
            }
            found
        };
        self.0.cgroups.get_or_init(find).await
    }

    /// Refuses jails of root whose memory and processes no cgroup limits.
    fn accept(&self, cgroups: &Cgroups) -> Result<(), SandboxError> {
        let held = cgroups.held();
        let is_limited = [Controller::Memory, Controller::Processes]
            .iter()
            .all(|it| held.contains(it));
        if !is_root() || is_limited || self.0.accept_weaker_limits {
            return Ok(());
        }
        let warning = cgroups.warning(&self.0.setup.limits).unwrap_or_default();
        Err(SandboxError::Refused(format!(
            "the worker runs as root, and {warning}. hint: let it make cgroups (in a container: with its cgroup \
             file system writable), run it as another user, or set \
             command_executor.local.accept_weaker_limits: true"
        )))
    }

    /// The jail that works on this machine, determined once.
    async fn jail(&self) -> Result<&WorkingJail, SandboxError> {
        let inner = &self.0;
        let remedy = |why: &str| bwrap::remedy(why, Path::new(bwrap::SETTINGS));
        let probe = || async {
            match bwrap::probe(&inner.setup).await {
                Ok(bubblewrap) => Ok(WorkingJail {
                    jail: Jail::Namespaces,
                    bubblewrap,
                    why: String::new(),
                }),
                Err(ProbeError::NotNow(why)) => Err(SandboxError::Unavailable(format!(
                    "cannot tell whether bubblewrap works on this machine: {why}"
                ))),
                Err(ProbeError::Cannot(why)) if inner.require_namespaces => {
                    Err(SandboxError::Refused(format!(
                        "bubblewrap does not work on this machine: {why}. hint: {}, or set \
                     command_executor.local.require_namespaces: false",
                        remedy(&why)
                    )))
                }
                // It cannot keep a command from the modes, times and attributes of files that its user owns, and
                // root owns the machine's.
                Err(ProbeError::Cannot(why)) if is_root() && !inner.accept_weaker_limits => {
                    Err(SandboxError::Refused(format!(
                        "the worker runs as root, and bubblewrap does not work on this machine: {why}. Without it, \
                         commands could change the modes of the machine's files. hint: {}, run the worker as another \
                         user, or set command_executor.local.accept_weaker_limits: true",
                        remedy(&why)
                    )))
                }
                Err(ProbeError::Cannot(why)) => {
                    tracing::warn!(error = %why, "bubblewrap does not work on this machine; using the weaker jail");
                    Ok(WorkingJail {
                        jail: Jail::Alone,
                        bubblewrap: Release::Current,
                        why,
                    })
                }
            }
        };
        inner.jail.get_or_try_init(probe).await
    }

    /// File systems of their own for workspaces, if this worker can make them; determined once.
    async fn volumes(&self) -> Result<&Volumes, &String> {
        let inner = &self.0;
        let find = || Volumes::find(inner.state_dir.clone(), inner.setup.disk_limit);
        inner.volumes.get_or_init(find).await.as_ref()
    }

    /// Gives a jail's workspace a separate file system, if it can. It is on the removal of the jail's folder to end it.
    async fn mount_volume(
        &self,
        folder: &Path,
        template: Option<WorkspaceTemplate>,
    ) -> Result<Option<OwnVolume>, SandboxError> {
        let Ok(volumes) = self.volumes().await else {
            return Ok(None);
        };
        let content = template.as_ref().map(WorkspaceTemplate::content);
        // Root in the jail is the worker's user.
        let Some(volume) = volumes.make_or_warn((0, 0), content).await else {
            return Ok(None);
        };
        let own = OwnVolume::of(&volume, template, String::new());
        if let Err(why) = volume.mount_on(&folder.join(WORKSPACE)) {
            tracing::warn!(%why, "no file system for a workspace could be mounted; the guest watches the disk limit");
            return Ok(None);
        }
        state::create_folders(folder)?;
        Ok(Some(own))
    }

    /// A cleaner of temporary files may have removed them since the worker began.
    fn prepare_folder(&self) -> Result<(), SandboxError> {
        state::prepare(&self.0.state_dir)?;
        programs::install(&self.0.state_dir).map(drop)
    }

    /// Starts the jail of this new folder, and removes the folder again if that fails.
    async fn run_in(
        &self,
        folder: PathBuf,
        mut record: Record,
        name: String,
        held: Option<ProcessLock>,
        template: Option<WorkspaceTemplate>,
    ) -> Result<Running<LocalControl>, SandboxError> {
        let began = Instant::now();
        let working = match self.jail().await {
            Ok(working) => working,
            Err(error) => {
                let _ = state::remove(&folder).await;
                return Err(error);
            }
        };
        // Not its name alone: another jail of the same name may be on its way out.
        let instance = state::instance_of(&folder);
        let limits = &self.0.setup.limits;
        let mut cgroups = self.cgroups().await.clone();
        let mut lost_cgroups = false;
        match cgroups.make(&instance, limits) {
            Ok(groups) => record.groups = groups,
            Err(why) => {
                lost_cgroups = true;
                cgroups = Cgroups::None(why);
            }
        }
        if let Err(error) = self.accept(&cgroups) {
            let _ = state::remove(&folder).await;
            return Err(match error {
                // They could be made when the worker began.
                SandboxError::Refused(why) if lost_cgroups => SandboxError::Unavailable(why),
                error => error,
            });
        }
        // The process that removes a jail that was never started must know its groups too.
        record.save(&folder)?;
        let launching = self.launch(working, &folder, &mut record, &cgroups, template);
        let (child, tunnel, volume) = match around("sandbox.start", launching).await {
            Ok(launched) => launched,
            Err(err) => {
                self.0.fails.store(true, Ordering::Relaxed);
                let _ = state::remove(&folder).await;
                return Err(working.explained(err));
            }
        };
        self.0.fails.store(false, Ordering::Relaxed);
        metrics::histogram!("agentmine_sandbox_start_seconds", "backend" => "local")
            .record(began.elapsed().as_secs_f64());
        let mut warnings: Vec<String> = working.warning(&cgroups).into_iter().collect();
        if working.jail == Jail::Namespaces && tunnel.hello.jail.landlock == "none" {
            warnings.push("this kernel has no Landlock; the sandbox is confined by namespaces and seccomp only".to_owned());
        }
        warnings.extend(cgroups.warning(limits));
        let control = LocalControl::new(name, folder, warnings, record, child, held);
        Ok(Running::new(BackendKind::Local, control, tunnel, volume))
    }

    async fn launch(
        &self,
        working: &WorkingJail,
        folder: &Path,
        record: &mut Record,
        cgroups: &Cgroups,
        template: Option<WorkspaceTemplate>,
    ) -> Result<(Child, Tunnel, OwnVolume), SandboxError> {
        let workspace = folder.join(WORKSPACE);
        let volume = self.mount_volume(folder, template).await?;
        let held = Held {
            controllers: cgroups.held(),
            disk: volume.is_some(),
        };
        let setup = &self.0.setup;
        let mut command = match working.jail {
            Jail::Namespaces => bwrap::guest(setup, working.bubblewrap, &workspace, &held)
                .map_err(|error| SandboxError::of_machine(&setup.programs.display(), &error))?,
            Jail::Alone => setup.guest_alone(&workspace, &held),
        };
        command.env_clear();
        let mut command = cgroups.entered(&record.groups, &setup.limits, command);
        let mark = state::mark(folder);
        let (variable, value) = mark.variable();
        command.env(variable, value);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = process::spawn(command).await?;
        record.process = child.id().and_then(|pid| Process::of(pid.cast_signed()));
        record.save(folder)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(SandboxError::Gone(
                "the jail was started without pipes".into(),
            ));
        };
        let stderr = process::keep_stderr(child.stderr.take());
        match open_tunnel(tokio::io::join(output, input)).await {
            Ok(tunnel) => Ok((child, tunnel, volume.unwrap_or_default())),
            Err(SandboxError::Gone(why)) => {
                let said = stderr.text().await;
                // Removed meanwhile: by a cleaner of temporary files, or by a sweep.
                if !workspace.exists() {
                    let missing = workspace.display();
                    return Err(SandboxError::Unavailable(format!(
                        "{missing} was removed while the jail started: {why}. {said}"
                    )));
                }
                let ended = tokio::time::timeout(STATUS_LIMIT, child.wait()).await;
                let status = ended.ok().and_then(Result::ok);
                Err(not_started(status, &why, &said))
            }
            Err(err) => Err(err),
        }
    }
}

/// How long a jail whose tunnel has ended may take to end.
const STATUS_LIMIT: Duration = Duration::from_secs(1);
/// Exit code of a shell or of `systemd-run` that does not find bubblewrap, as while its package is replaced.
const NOT_FOUND: i32 = 127;

/// The error of a jail that has worked on this machine, and did not start now. The guest itself says why it refuses, so this is an
/// end or a delay that nobody asked for; `status` is `None` if it runs on.
fn not_started(status: Option<ExitStatus>, why: &str, said: &str) -> SandboxError {
    let text = format!("the jail did not start: {why}. {said}");
    let is_outage = match status {
        None => true,
        // For a shortage of memory the kernel ends what starts first.
        Some(status) if status.signal().is_some() => true,
        Some(status) => {
            status.code() == Some(NOT_FOUND) || bwrap::is_shortage(said, Path::new(bwrap::SETTINGS))
        }
    };
    match is_outage {
        true => SandboxError::Unavailable(text),
        false => SandboxError::Gone(text),
    }
}

#[async_trait]
impl Backend for LocalBackend {
    async fn check(&self) -> Result<(), SandboxError> {
        self.accept(self.cgroups().await)?;
        if self.jail().await?.jail == Jail::Namespaces {
            // What worked when the worker began may not work now.
            if self.0.fails.load(Ordering::Relaxed) {
                bwrap::probe(&self.0.setup).await.map_err(|error| {
                    let (ProbeError::Cannot(why) | ProbeError::NotNow(why)) = error;
                    SandboxError::Unavailable(format!("bubblewrap does not work now: {why}"))
                })?;
                self.0.fails.store(false, Ordering::Relaxed);
            }
            return Ok(());
        }
        // Only a trial start shows whether Landlock works. One is enough: `/ready` asks every few seconds, and on a busy
        // machine a start takes longer than it waits.
        let try_start = || async {
            let spec = SandboxSpec {
                task: agentmine_domain::TaskId::new(),
                epoch: agentmine_domain::Epoch(0),
                role: SandboxRole::Check,
                image: None,
                template: None,
            };
            self.start(&spec).await?.remove().await
        };
        self.0.tried.get_or_try_init(try_start).await.copied()
    }

    async fn remove_unused(&self, max_age: Duration) -> Result<(), SandboxError> {
        let state_dir = self.0.state_dir.clone();
        let removed =
            tokio::task::spawn_blocking(move || programs::remove_unused(&state_dir, max_age));
        let removed = removed.await.unwrap_or(Ok(()));
        removed.map_err(|error| SandboxError::of_machine(&self.0.state_dir.display(), &error))
    }

    async fn weaknesses(&self) -> Vec<String> {
        let cgroups = self.cgroups().await;
        let jail = match self.jail().await {
            Ok(WorkingJail {
                jail: Jail::Alone,
                bubblewrap: _,
                why,
            }) => Some(format!(
                "bubblewrap does not work on this machine ({why}), so commands are confined by Landlock and seccomp \
                 only. hint: {}",
                bwrap::remedy(why, Path::new(bwrap::SETTINGS))
            )),
            Ok(working) => working.warning(cgroups),
            Err(_) => None,
        };
        let limits = cgroups.warning(&self.0.setup.limits);
        jail.into_iter().chain(limits).collect()
    }

    async fn disk_limit(&self) -> String {
        match self.volumes().await {
            Ok(volumes) => volumes.describe(),
            Err(why) => watched_disk_limit(self.0.setup.disk_limit, why),
        }
    }

    async fn start(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        let name = sandbox_name(spec);
        self.prepare_folder()?;
        state::make_way(&self.0.state_dir, &name, spec.epoch).await?;
        let owner = Some((spec.task, spec.epoch));
        let created = async { state::create(&self.0.state_dir, &name, owner) };
        let (folder, record) = around("sandbox.create", created).await?;
        // Where files cannot be locked, the lease decides alone.
        let held = held::hold(&folder).inspect_err(
            |error| tracing::debug!(%error, "nobody will see that this worker is gone"),
        );
        Ok(Box::new(
            self.run_in(folder, record, name, held.ok(), spec.template.clone())
                .await?,
        ))
    }

    async fn start_spare(
        &self,
        template: Option<WorkspaceTemplate>,
    ) -> Result<Box<dyn Spare>, SandboxError> {
        let name = spare_name();
        self.prepare_folder()?;
        // Held as soon as it exists: nobody else can tell whose it is.
        let created = async {
            let (folder, record) = state::create(&self.0.state_dir, &name, None)?;
            match held::hold(&folder) {
                Ok(held) => Ok((folder, record, held)),
                Err(error) => {
                    let _ = state::remove(&folder).await;
                    Err(SandboxError::of_machine(&folder.display(), &error))
                }
            }
        };
        let (folder, record, held) = around("sandbox.create", created).await?;
        let running = self
            .run_in(folder, record, name, Some(held), template)
            .await?;
        Ok(Box::new(running))
    }

    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        let records = state::list(&self.0.state_dir)?;
        Ok(records
            .into_iter()
            .map(|found| {
                let folder = self.0.state_dir.join(&found.instance);
                FoundSandbox {
                    is_spare: found.is_spare(),
                    worker: held::worker(&folder),
                    task: found.record.task.or_else(|| task_of(found.name())),
                    epoch: found.record.epoch,
                    created_at: found.record.created_at,
                    name: found.name().to_owned(),
                    instance: found.instance,
                }
            })
            .collect())
    }

    async fn remove(&self, found: &FoundSandbox) -> Result<(), SandboxError> {
        if !found.name.starts_with(PREFIX)
            || !found.instance.starts_with(PREFIX)
            || found.instance.contains('/')
        {
            return Err(SandboxError::Refused(format!(
                "{:?} is not an AgentMine sandbox",
                found.name
            )));
        }
        state::remove(&self.0.state_dir.join(&found.instance)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jail_that_did_not_start_is_waited_for_where_the_machine_is_at_fault() {
        let ended = |code: i32| Some(ExitStatus::from_raw(code << 8));
        let killed = Some(ExitStatus::from_raw(libc::SIGKILL));
        let short = "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded \
                     (ENOSPC)";
        let bus = "Failed to connect to bus: No such file or directory";
        for (status, said, is_outage) in [
            (None, "", true),
            (killed, "", true),
            (ended(1), short, true),
            (ended(1), bus, true),
            (ended(127), "start-jail: exec: bwrap: not found", true),
            (ended(1), "bwrap: Unknown option --bind-fd", false),
        ] {
            let error = not_started(status, "the end", said);
            assert_eq!(
                matches!(error, SandboxError::Unavailable(_)),
                is_outage,
                "{said}"
            );
            assert!(is_outage || matches!(error, SandboxError::Gone(_)));
        }
    }
}
