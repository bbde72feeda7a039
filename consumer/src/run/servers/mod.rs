//! The MCP servers of one session: the operator's, the repository's own, and the text editor
//! (spec 002 §3.2).
//!
//! The operator's run on the worker, in the folder of their file, or in the task's sandbox where they
//! say so; the repository's run in the sandbox and nowhere else, and are those of the commit that the
//! work began from. All end with the session: those on the worker before the sandbox is removed,
//! those in it with it. Another session has servers of its own.
//!
//! What a server says goes to the model as a call's result and to the transcript as a note; in logs
//! stands only which server, and what happened.

mod choose;
pub(crate) mod launcher;
pub(crate) mod sampling;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_domain::Usage;
use agentmine_effects::progress_comment;
use agentmine_mcp::config::{
    Capabilities, Loaded, Origin, Owner, Place, RepositoryFile, ServerConfig, Transport,
};
use agentmine_mcp::{
    Catalog, Changed, ClientRoots, Launcher, Launchers, Manager, ManagerPolicy, McpError,
    McpLimits, Notice, NoticeKind, SamplingHandler, ServerState, ServerStatus, ToolOutput,
    WorkerLauncher,
};
use agentmine_runtime::config::{ChangedDescriptions, Config};
use agentmine_sandbox::SandboxError;
use serde_json::Value;

use crate::error::SessionError;
use crate::prepare::Prepared;
use crate::prepare::workspace::PROJECT;
use crate::session::context::SessionContext;
use choose::{Chosen, ToolRules, choose, in_sandbox, listed};
use launcher::SandboxLauncher;
use sampling::SessionSampling;

/// The text editor's tool, which goes by its own name (spec 000 §3.2).
pub(crate) const TEXT_EDITOR: &str = "text_editor";
/// Most tools that model APIs take in one request.
pub(crate) const MAX_TOOLS: usize = 128;
/// The editor is started again once; then the session goes on without it (spec 000 §12.1.1).
const EDITOR_RESTARTS: u32 = 1;
/// The origin of the editor's entry.
const BUILT_IN: &str = "(built in)";
/// How long the sandbox may take to answer before the item is told of its editor.
const SANDBOX_ANSWERS: Duration = Duration::from_secs(5);
/// Most characters of stderr in a comment.
const MAX_STDERR: usize = 500;

/// The servers of a session.
pub(crate) struct Servers {
    manager: Manager,
    sandbox: Arc<SandboxLauncher>,
    /// The text editor's name, where it is there.
    editor: Option<String>,
    editor_lost: Mutex<Lost>,
    /// By name: their calls may change the project's files.
    sandboxed: BTreeSet<String>,
    /// By name: they come after the operator's own.
    repositorys: BTreeSet<String>,
    rules: ToolRules,
    sampling: Option<Arc<SessionSampling>>,
}

/// Whether the item has to be told that the editor is gone.
#[derive(Debug, Clone, Default)]
enum Lost {
    #[default]
    No,
    /// With why.
    Unreported(String),
    Reported,
}

impl Servers {
    /// Starts what the session has, and tells of it.
    ///
    /// # Errors
    /// Where that cannot be recorded. A server that does not start is no error.
    pub(crate) async fn start(
        ctx: &SessionContext,
        prepared: &Prepared,
        sampling: &Arc<SessionSampling>,
    ) -> Result<Self, SessionError> {
        let config = &ctx.deps.config;
        let chosen = choose(
            load(config, prepared.repository_servers.as_ref()),
            &reserved(config),
            &ctx.redactor,
        );
        for note in &chosen.notes {
            tracing::warn!("an MCP server or its entry is left out; the transcript says why");
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
                    started.introduce(ctx).await?;
                    tell_withheld(ctx, &chosen).await?;
                    return Ok(started);
                }
                Some(reason) => go_on_without_editor(ctx, &reason).await?,
            }
            if chosen.withheld.is_empty() {
                started.introduce(ctx).await?;
                return Ok(started);
            }
            started.manager.shutdown().await;
        }
        // Without an editor the forges' servers take its place.
        let servers = chosen.servers.into_iter().chain(chosen.withheld).collect();
        let started = Self::of(ctx, prepared, &sandbox, servers, sampling).await;
        started.introduce(ctx).await?;
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
        let sampled = servers.iter().any(|server| server.capabilities.sampling);
        let sampling =
            (sampled && config.mcp.sampling.max_requests > 0).then(|| Arc::clone(sampling));
        let root = prepared.workspace.sandbox.workspace_root();
        let project = PROJECT.replacen("/workspace", root, 1);
        let hook = sampling
            .as_ref()
            .map(|sampling| Arc::clone(sampling) as Arc<dyn SamplingHandler>);
        let policy = ManagerPolicy {
            limits: McpLimits {
                total: Duration::from_secs(config.mcp.total_timeout_seconds),
                max_output: config.mcp.max_output_size,
                ..McpLimits::default()
            },
            max_restarts: config.mcp.max_restarts,
            changed_descriptions: match config.mcp.changed_descriptions {
                ChangedDescriptions::Refuse => Changed::Refuse,
                ChangedDescriptions::Record => Changed::Record,
            },
            fixed: fixed(config),
            roots: ClientRoots {
                // The worker shares no files with the sandbox.
                worker: Vec::new(),
                sandbox: vec![(format!("file://{project}"), "project".into())],
            },
            sampling: hook,
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
        let repositorys = servers
            .iter()
            .filter(|server| server.origin.owner == Owner::Repository)
            .map(|server| server.name.clone())
            .collect();
        Self {
            manager: Box::pin(Manager::start(servers, launchers, policy)).await,
            sandbox: Arc::clone(sandbox),
            editor: None,
            editor_lost: Mutex::default(),
            sandboxed,
            repositorys,
            rules: ToolRules::of(&config.mcp),
            sampling,
        }
    }

    fn with_editor(mut self, config: &Config) -> Self {
        self.editor = Some(config.text_editor_mcp.mcp_server.name.clone());
        self
    }

    /// The text editor's name, where it was there from the start.
    pub(crate) fn editor(&self) -> Option<&str> {
        self.editor.as_deref()
    }

    /// Why the editor is not there, if it is not.
    async fn editor_failure(&self, ctx: &SessionContext) -> Option<String> {
        let statuses = self.manager.status();
        let editor = statuses
            .iter()
            .find(|status| status.config.origin.file.as_os_str() == BUILT_IN);
        let Some(status) = editor else {
            return Some("it was not started".into());
        };
        let ServerState::Failed(error) = &status.state else {
            return None;
        };
        let stderr = self.manager.stderr(&status.config.name).await;
        let stderr = ctx.redactor.redact(stderr);
        let stderr: String = stderr.trim().chars().take(MAX_STDERR).collect();
        Some(if stderr.is_empty() {
            error.to_string()
        } else {
            format!("{error}: {stderr}")
        })
    }

    /// Records who the servers are.
    async fn introduce(&self, ctx: &SessionContext) -> Result<(), SessionError> {
        for status in self.manager.status() {
            if let ServerState::Ready | ServerState::Restarting { .. } = status.state {
                ctx.note(&introduction(&status)).await?;
            }
        }
        self.record_notices(ctx).await
    }

    /// Takes in what has changed of the offer, and tells of it. The item is told that the editor is
    /// gone only while its sandbox is there: with that gone too, the session ends for another reason.
    pub(crate) async fn refresh(&self, ctx: &SessionContext) -> Result<(), SessionError> {
        self.manager.refresh().await;
        self.record_notices(ctx).await?;
        let lost = self.lost().clone();
        if let Lost::Unreported(reason) = lost
            && tokio::time::timeout(SANDBOX_ANSWERS, self.sandbox_answers())
                .await
                .is_ok_and(|answer| answer.is_ok())
        {
            tell_editor_lost(ctx, &reason).await?;
            *self.lost() = Lost::Reported;
        }
        Ok(())
    }

    /// Notes what happened to servers, and what they used of the model; each once.
    pub(crate) async fn record_notices(&self, ctx: &SessionContext) -> Result<(), SessionError> {
        for notice in self.manager.notices() {
            self.note(ctx, &notice).await?;
        }
        match &self.sampling {
            Some(sampling) => sampling.record_use().await,
            None => Ok(()),
        }
    }

    async fn note(&self, ctx: &SessionContext, notice: &Notice) -> Result<(), SessionError> {
        let Notice { server, kind, text } = notice;
        let is_editor = ctx.deps.config.text_editor_mcp.mcp_server.name == *server;
        if is_editor && self.editor.is_none() {
            // It did not start, and that was told.
            return Ok(());
        }
        ctx.note(&format!("MCP server {server}: {text}")).await?;
        let lost = matches!(kind, NoticeKind::GivenUp | NoticeKind::Failed);
        let mut told = self.lost();
        if lost && is_editor && matches!(*told, Lost::No) {
            *told = Lost::Unreported(text.clone());
        }
        Ok(())
    }

    fn lost(&self) -> std::sync::MutexGuard<'_, Lost> {
        self.editor_lost
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What the servers used of the model since this was last asked.
    pub(crate) fn take_usage(&self) -> Usage {
        self.sampling
            .as_ref()
            .map_or_else(Usage::default, |sampling| sampling.take_usage())
    }

    /// As of the last refresh.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.manager.catalog()
    }

    /// Whether the model may use this tool. Of the editor's server it may use the editor alone.
    pub(crate) fn offers(&self, server: &str, tool: &str) -> bool {
        if self.editor.as_deref() == Some(server) {
            tool == TEXT_EDITOR
        } else {
            self.rules.allow(self.owner(server), server, tool)
        }
    }

    /// Whose a server is; the editor is as the operator's.
    pub(crate) fn owner(&self, server: &str) -> Owner {
        if self.repositorys.contains(server) {
            Owner::Repository
        } else {
            Owner::Operator
        }
    }

    /// Whether a call may change the project's files.
    pub(crate) fn in_sandbox(&self, server: &str) -> bool {
        self.sandboxed.contains(server)
    }

    /// Asks the sandbox for something small; an error says that it is gone.
    pub(crate) async fn sandbox_answers(&self) -> Result<(), SandboxError> {
        self.sandbox.answers().await
    }

    /// Calls a tool; dropping the future cancels the call.
    pub(crate) async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: Value,
    ) -> Result<ToolOutput, McpError> {
        Box::pin(self.manager.call(server, tool, arguments)).await
    }

    /// Ends those on the worker. Those in the sandbox end with it, which comes next.
    pub(crate) async fn shutdown(&self) {
        self.sandbox.let_go();
        self.manager.shutdown().await;
    }
}

/// Reads both files.
fn load(config: &Config, repository: Option<&RepositoryFile>) -> Loaded {
    if !config.mcp.enabled {
        return Loaded::default();
    }
    let operator = config.mcp.config_file.as_deref();
    agentmine_mcp::config::load(operator, repository, &|name| std::env::var(name).ok())
}

/// Where the operator's servers start: never the worker's own folder, which may be a repository.
fn folder(config: &Config) -> PathBuf {
    let file = config.mcp.config_file.as_deref();
    file.and_then(|file| file.parent())
        .filter(|folder| folder.is_dir())
        .map_or_else(std::env::temp_dir, PathBuf::from)
}

fn reserved(config: &Config) -> [&str; 2] {
    [
        config.text_editor_mcp.mcp_server.name.as_str(),
        config.command_executor.mcp_server.name.as_str(),
    ]
}

/// The built-in tools' names, which no other tool gets.
fn fixed(config: &Config) -> Vec<(String, String, String)> {
    let [editor, executor] = reserved(config).map(str::to_owned);
    vec![
        (TEXT_EDITOR.into(), editor, TEXT_EDITOR.into()),
        (
            format!("{executor}_execute_command"),
            executor,
            "execute_command".into(),
        ),
    ]
}

/// The text editor as a server in the sandbox (spec 000 §4.2).
fn editor(config: &Config) -> ServerConfig {
    let server = &config.text_editor_mcp.mcp_server;
    ServerConfig {
        name: server.name.clone(),
        origin: Origin {
            file: BUILT_IN.into(),
            line: 0,
            owner: Owner::Operator,
        },
        transport: Transport::Stdio {
            command: server.command.clone(),
            env: Default::default(),
            place: Place::Sandbox,
        },
        enabled: true,
        capabilities: Capabilities::default(),
        timeout: McpLimits::default().call,
        max_restarts: Some(EDITOR_RESTARTS),
    }
}

fn introduction(status: &ServerStatus) -> String {
    let name = &status.config.name;
    let place = match (&status.config.transport, in_sandbox(&status.config)) {
        (Transport::Http { .. }, _) => "over HTTP",
        (Transport::Stdio { .. }, true) => "in the sandbox",
        (Transport::Stdio { .. }, false) => "on the worker",
    };
    let said = status.greeting.as_ref().map_or_else(String::new, |said| {
        format!(": {} {}", said.name, said.version)
    });
    let took = status
        .started_in
        .map_or_else(String::new, |took| format!(" in {} ms", took.as_millis()));
    format!("the MCP server {name} runs {place}{said} (ready{took})")
}

async fn tell_withheld(ctx: &SessionContext, chosen: &Chosen) -> Result<(), SessionError> {
    if chosen.withheld.is_empty() {
        return Ok(());
    }
    ctx.note(&format!(
        "not offered beside the text editor: the MCP servers {} (spec 000 §5)",
        listed(&chosen.withheld)
    ))
    .await
}

/// spec 000 §12.1.1: recorded, told on the item, and the session goes on.
async fn go_on_without_editor(ctx: &SessionContext, reason: &str) -> Result<(), SessionError> {
    tracing::warn!("the text editor did not start");
    ctx.note(&format!(
        "the text editor did not start; the session goes on without it: {reason}"
    ))
    .await?;
    comment_on_editor(ctx, "which did not start", reason).await
}

async fn tell_editor_lost(ctx: &SessionContext, reason: &str) -> Result<(), SessionError> {
    tracing::warn!("the text editor ended too often; the session goes on without it");
    ctx.note("the text editor ended again; the session goes on without it")
        .await?;
    comment_on_editor(ctx, "which ended twice while it worked", reason).await
}

async fn comment_on_editor(
    ctx: &SessionContext,
    what: &str,
    reason: &str,
) -> Result<(), SessionError> {
    let reason = ctx.redactor.redact(reason.to_owned());
    let text = format!(
        "AgentMine is working on this, without its text editor, {what}:\n\n```\n{}\n```",
        reason.replace("```", "'''")
    );
    ctx.comment(&progress_comment(&text, &ctx.session_name()))
        .await
}
