//! The MCP servers of one session: operator-configured, repository-configured, and the text editor
//! (spec 002 §3.2).
//!
//! Operator-configured servers run on the worker, in the folder of their configuration file, or in the
//! task's sandbox if their entry says so. Repository-configured servers run only in the sandbox and are
//! read from the base commit. Servers are not shared between sessions: those on the worker stop before
//! the sandbox is removed, those in the sandbox are removed with it.
//!
//! The output of a server goes to the model as a call's result, and to the transcript as a note. Logs
//! contain only the server's name and the event.

mod calls;
mod choose;
mod editor;
pub(crate) mod launcher;
pub(crate) mod sampling;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_domain::Usage;
use agentmine_mcp::config::{Loaded, Owner, RepositoryFile, ServerConfig, Transport};
use agentmine_mcp::{
    Catalog, ClientRoots, Launcher, Launchers, Manager, ManagerPolicy, McpLimits, Notice,
    NoticeKind, Offer, SamplingHandler, ServerState, ServerStatus, WorkerLauncher,
};
use agentmine_runtime::config::Config;
use agentmine_sandbox::SandboxError;

use crate::claim::heartbeat::Certainty;
use crate::error::SessionError;
use crate::prepare::Prepared;
use crate::prepare::workspace::PROJECT;
use crate::session::context::SessionContext;
use choose::{Chosen, ToolRules, choose, in_sandbox, listed};
use editor::{BUILT_IN, editor, report_editor_lost, report_editor_not_started};
use launcher::SandboxLauncher;
use sampling::SessionSampling;

/// Maximum number of characters of a reason in the log.
const MAX_LOGGED: usize = 400;

/// The text editor's tool, which has a fixed name (spec 000 §3.2).
pub(crate) const TEXT_EDITOR: &str = "text_editor";
/// Maximum number of tools that model APIs accept in one request.
pub(crate) const MAX_TOOLS: usize = 128;
/// How long to wait for the sandbox to answer before commenting on the item that the editor is lost.
const SANDBOX_ANSWERS: Duration = Duration::from_secs(5);
/// Maximum number of characters of stderr in a comment.
const MAX_STDERR: usize = 500;

/// The servers of a session.
pub(crate) struct Servers {
    manager: Manager,
    sandbox: Arc<SandboxLauncher>,
    /// The text editor's name, if it is running.
    editor: Option<String>,
    editor_loss: Mutex<EditorLoss>,
    /// Names of the servers in the sandbox: their calls may change the project's files.
    sandboxed: BTreeSet<String>,
    /// Names of the repository-configured servers: their tools rank after the operator's.
    repository_configured: BTreeSet<String>,
    rules: ToolRules,
    sampling: Option<Arc<SessionSampling>>,
    certainty: Certainty,
}

/// Whether the editor was lost during the session, and whether that was reported on the item.
#[derive(Debug, Clone, Default)]
enum EditorLoss {
    #[default]
    None,
    /// With the reason.
    Unreported(String),
    Reported,
}

impl Servers {
    /// Starts the session's servers, and records which are running and which are not.
    ///
    /// # Errors
    /// Returns an error if a note cannot be recorded. A server that does not start is not an error.
    pub(crate) async fn start(
        ctx: &SessionContext,
        prepared: &Prepared,
        sampling: &Arc<SessionSampling>,
    ) -> Result<Self, SessionError> {
        let config = &ctx.deps.config;
        let chosen = choose(
            load(config, prepared.repository_servers.as_ref()),
            &config.reserved_servers(),
            &ctx.redactor,
        );
        for note in &chosen.notes {
            let reason = for_log(ctx, note);
            tracing::warn!(reason, "an MCP server or an entry of its file is skipped");
            ctx.note(note).await?;
        }
        let sandbox = Arc::new(SandboxLauncher::new(Arc::clone(
            &prepared.workspace.sandbox,
        )));
        if config.text_editor_mcp.enabled {
            let mut servers = chosen.servers.clone();
            servers.push(editor(config));
            let started = Self::of(ctx, prepared, &sandbox, servers, sampling).await;
            match started.editor_failure(ctx).await {
                None => {
                    let started = started.with_editor(config);
                    started.note_ready(ctx).await?;
                    note_withheld(ctx, &chosen).await?;
                    return Ok(started);
                }
                Some(reason) => report_editor_not_started(ctx, &reason).await?,
            }
            let editor = &config.text_editor_mcp.mcp_server.name;
            let is_running = started.catalog().servers.contains_key(editor);
            if chosen.withheld.is_empty() && !is_running {
                started.note_ready(ctx).await?;
                return Ok(started);
            }
            started.manager.shutdown().await;
        }
        // Without the editor, the forges' servers are offered instead.
        let servers = chosen.servers.into_iter().chain(chosen.withheld).collect();
        let started = Self::of(ctx, prepared, &sandbox, servers, sampling).await;
        started.note_ready(ctx).await?;
        Ok(started)
    }

    async fn of(
        ctx: &SessionContext,
        prepared: &Prepared,
        sandbox: &Arc<SandboxLauncher>,
        servers: Vec<ServerConfig>,
        sampling: &Arc<SessionSampling>,
    ) -> Self {
        let config = &ctx.deps.config;
        let may_sample = servers.iter().any(|server| server.capabilities.sampling);
        let sampling =
            (may_sample && config.mcp.sampling.max_requests > 0).then(|| Arc::clone(sampling));
        let root = prepared.workspace.sandbox.workspace_root();
        let project = PROJECT.replacen("/workspace", root, 1);
        let hook = sampling
            .as_ref()
            .map(|sampling| Arc::clone(sampling) as Arc<dyn SamplingHandler>);
        let policy = ManagerPolicy {
            limits: McpLimits {
                start: Duration::from_secs(config.mcp.start_timeout_seconds),
                total: Duration::from_secs(config.mcp.total_timeout_seconds),
                max_output: config.mcp.max_output_size,
                ..McpLimits::default()
            },
            max_restarts: config.mcp.max_restarts,
            changed_descriptions: config.mcp.changed_descriptions,
            fixed: fixed(config),
            roots: ClientRoots {
                // The worker and the sandbox share no files.
                worker: Vec::new(),
                sandbox: vec![(format!("file://{project}"), "project".into())],
            },
            sampling: hook,
            redact: Some(Arc::new({
                let redactor = Arc::clone(&ctx.redactor);
                move |text| redactor.redact(text)
            })),
            ..ManagerPolicy::default()
        };
        let launchers = Launchers {
            worker: Some(Arc::new(WorkerLauncher::new(folder(config), |name| {
                std::env::var(name).ok()
            }))),
            sandbox: Some(Arc::clone(sandbox) as Arc<dyn Launcher>),
        };
        let sandboxed = servers
            .iter()
            .filter(|server| in_sandbox(server))
            .map(|server| server.name.clone())
            .collect();
        let repository_configured = servers
            .iter()
            .filter(|server| server.origin.owner == Owner::Repository)
            .map(|server| server.name.clone())
            .collect();
        Self {
            manager: Box::pin(Manager::start(servers, launchers, policy)).await,
            sandbox: Arc::clone(sandbox),
            editor: None,
            editor_loss: Mutex::default(),
            sandboxed,
            repository_configured,
            rules: ToolRules::of(&config.mcp),
            sampling,
            certainty: ctx.heartbeat.certainty().clone(),
        }
    }

    fn with_editor(mut self, config: &Config) -> Self {
        self.editor = Some(config.text_editor_mcp.mcp_server.name.clone());
        self
    }

    /// The text editor's name, if it started with the session.
    pub(crate) fn editor(&self) -> Option<&str> {
        self.editor.as_deref()
    }

    /// Why the editor did not start, or cannot be used; `None` if it can.
    async fn editor_failure(&self, ctx: &SessionContext) -> Option<String> {
        let statuses = self.manager.status();
        let editor = statuses
            .iter()
            .find(|status| status.config.origin.file.as_os_str() == BUILT_IN);
        let Some(status) = editor else {
            return Some("it was not started".into());
        };
        let name = &status.config.name;
        let why = match &status.state {
            ServerState::Failed(error) => error.to_string(),
            ServerState::Disabled
            | ServerState::Withheld(_)
            | ServerState::Starting
            | ServerState::Ready
            | ServerState::Restarting { .. } => {
                let catalog = self.catalog();
                // What has not been listed may yet have the tool.
                let is_listed = catalog.servers.contains_key(name);
                if !is_listed || catalog.tool(name, TEXT_EDITOR).is_some() {
                    return None;
                }
                format!("MCP server '{name}' has no tool '{TEXT_EDITOR}'")
            }
        };
        let stderr = self.manager.stderr(name).await;
        let stderr = ctx.redactor.redact(stderr);
        let stderr: String = stderr.trim().chars().take(MAX_STDERR).collect();
        Some(if stderr.is_empty() {
            why
        } else {
            format!("{why}: {stderr}")
        })
    }

    /// Records which servers are running, with their names and versions.
    async fn note_ready(&self, ctx: &SessionContext) -> Result<(), SessionError> {
        for status in self.manager.status() {
            if let ServerState::Ready | ServerState::Restarting { .. } = status.state {
                ctx.note(&ready_note(&status)).await?;
            }
        }
        self.record_notices(ctx).await
    }

    /// Refreshes the catalog and records what changed. A lost editor is reported on the item only while
    /// the sandbox still answers: if the sandbox is gone too, the session ends for that reason.
    pub(crate) async fn refresh(&self, ctx: &SessionContext) -> Result<(), SessionError> {
        self.manager.refresh().await;
        self.record_notices(ctx).await?;
        let loss = self.editor_loss().clone();
        if let EditorLoss::Unreported(reason) = loss
            && tokio::time::timeout(SANDBOX_ANSWERS, self.sandbox_answers())
                .await
                .is_ok_and(|answer| answer.is_ok())
        {
            report_editor_lost(ctx, &reason).await?;
            *self.editor_loss() = EditorLoss::Reported;
        }
        Ok(())
    }

    /// Records the servers' notices and their use of the model, each once.
    pub(crate) async fn record_notices(&self, ctx: &SessionContext) -> Result<(), SessionError> {
        for notice in self.manager.notices() {
            self.note(ctx, &notice).await?;
        }
        match &self.sampling {
            Some(sampling) => sampling.record_usage().await,
            None => Ok(()),
        }
    }

    async fn note(&self, ctx: &SessionContext, notice: &Notice) -> Result<(), SessionError> {
        let Notice { server, kind, text } = notice;
        let is_editor = ctx.deps.config.text_editor_mcp.mcp_server.name == *server;
        if is_editor && self.editor.is_none() {
            // It did not start, which has been reported.
            return Ok(());
        }
        // A server that is down is logged where that is seen.
        if matches!(kind, NoticeKind::LeftOut) {
            let reason = for_log(ctx, text);
            tracing::warn!(mcp.server = %server, reason, "an MCP server or a part of what it offers is skipped");
        }
        ctx.note(&format!("MCP server {server}: {text}")).await?;
        let is_gone = matches!(kind, NoticeKind::GivenUp | NoticeKind::Failed);
        let mut loss = self.editor_loss();
        if is_gone && is_editor && matches!(*loss, EditorLoss::None) {
            *loss = EditorLoss::Unreported(text.clone());
        }
        Ok(())
    }

    fn editor_loss(&self) -> std::sync::MutexGuard<'_, EditorLoss> {
        self.editor_loss
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the servers' use of the model since the last call.
    pub(crate) fn take_usage(&self) -> Usage {
        self.sampling
            .as_ref()
            .map_or_else(Usage::default, |sampling| sampling.take_usage())
    }

    /// The catalog as of the last refresh.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.manager.catalog()
    }

    /// Whether the model may use this tool. The editor's server offers only the editor.
    pub(crate) fn offers(&self, server: &str, tool: &str) -> bool {
        if self.editor.as_deref() == Some(server) {
            tool == TEXT_EDITOR
        } else {
            self.rules.allow(self.owner(server), server, tool)
        }
    }

    /// Who configured a server; the editor counts as the operator's.
    pub(crate) fn owner(&self, server: &str) -> Owner {
        if self.repository_configured.contains(server) {
            Owner::Repository
        } else {
            Owner::Operator
        }
    }

    /// Whether a server runs in the sandbox, where its calls may change the project's files.
    pub(crate) fn in_sandbox(&self, server: &str) -> bool {
        self.sandboxed.contains(server)
    }

    /// Probes the sandbox; an error means that it is gone.
    pub(crate) async fn sandbox_answers(&self) -> Result<(), SandboxError> {
        self.sandbox.answers().await
    }

    /// The running servers, besides the text editor, whose `tool` the model may use.
    pub(crate) fn offering(&self, tool: &str) -> Vec<(String, Arc<Offer>)> {
        let catalog = self.catalog();
        let servers = catalog.servers.iter();
        servers
            .filter(|(name, _)| self.editor.as_ref() != Some(name))
            .filter(|(name, _)| self.rules.allow(self.owner(name), name, tool))
            .map(|(name, offer)| (name.clone(), Arc::clone(offer)))
            .collect()
    }

    /// Stops the servers on the worker. Those in the sandbox are removed with it right afterwards.
    pub(crate) async fn shutdown(&self) {
        self.sandbox.detach();
        self.manager.shutdown().await;
    }
}

/// Loads the operator's and the repository's configuration files.
/// The faults of the operator's MCP file, for the log at the start.
pub(crate) fn operator_faults(config: &Config) -> Vec<String> {
    let faults = load(config, None).faults;
    faults.iter().map(ToString::to_string).collect()
}

/// A reason for the log: redacted, on one line, and short, since a server or a repository may have worded it.
fn for_log(ctx: &SessionContext, reason: &str) -> String {
    let reason = ctx.redactor.redact(reason.to_owned());
    let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let plain = line
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c });
    plain.take(MAX_LOGGED).collect()
}

fn load(config: &Config, repository: Option<&RepositoryFile>) -> Loaded {
    if !config.mcp.enabled {
        return Loaded::default();
    }
    let operator = config.mcp.config_file.as_deref();
    agentmine_mcp::config::load(operator, repository, &|name| std::env::var(name).ok())
}

/// The working directory of operator-configured servers: never the worker's, which may be a repository.
fn folder(config: &Config) -> PathBuf {
    let file = config.mcp.config_file.as_deref();
    file.and_then(|file| file.parent())
        .filter(|folder| folder.is_dir())
        .map_or_else(std::env::temp_dir, PathBuf::from)
}

/// The names reserved for the built-in tools.
fn fixed(config: &Config) -> Vec<(String, String, String)> {
    let [editor, executor] = config.reserved_servers().map(str::to_owned);
    vec![
        (TEXT_EDITOR.into(), editor, TEXT_EDITOR.into()),
        (
            format!("{executor}_execute_command"),
            executor,
            "execute_command".into(),
        ),
    ]
}

fn ready_note(status: &ServerStatus) -> String {
    let name = &status.config.name;
    let place = match (&status.config.transport, in_sandbox(&status.config)) {
        (Transport::Http { .. }, _) => "over HTTP",
        (Transport::Stdio { .. }, true) => "in the sandbox",
        (Transport::Stdio { .. }, false) => "on the worker",
    };
    let version = status
        .greeting
        .as_ref()
        .map_or_else(String::new, |greeting| {
            format!(": {} {}", greeting.name, greeting.version)
        });
    let took = status
        .started_in
        .map_or_else(String::new, |took| format!(" in {} ms", took.as_millis()));
    format!("the MCP server {name} runs {place}{version} (ready{took})")
}

async fn note_withheld(ctx: &SessionContext, chosen: &Chosen) -> Result<(), SessionError> {
    if chosen.withheld.is_empty() {
        return Ok(());
    }
    ctx.note(&format!(
        "MCP servers not offered while the text editor is on: {} (spec 000 §5)",
        listed(&chosen.withheld)
    ))
    .await
}
