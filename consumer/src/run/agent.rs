//! Runs the agent in a prepared sandbox, with the session's MCP servers.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use agentmine_agent::{
    AgentRun, Brief, Discussion, History, RunLimits, RunOutcome, TextEditor, Unsaved,
};
use agentmine_domain::markdown::line;
use agentmine_domain::{ItemKind, TrackerKind, Usage};
use agentmine_llm::{Delta, Model};
use agentmine_trackers::Item;
use futures::FutureExt as _;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::command::CommandTool;
use super::inbox::ItemInbox;
use super::proposal::{PROPOSAL, ProposalTool};
use super::reply::ReplyView;
use super::servers::Servers;
use super::servers::sampling::SessionSampling;
use super::tools::{FleetTools, may_command, may_edit};
use crate::error::SessionError;
use crate::prepare::{Prepared, Restored, RoundWork};
use crate::record::checkpoint::Checkpoints;
use crate::record::live::Progress;
use crate::record::recorder::Recorder;
use crate::record::redacting_model::RedactingModel;
use crate::session::context::SessionContext;
use crate::verify::measure::Measurer;

/// How long to wait for the store to record the servers' last notices when the session ends.
const LAST_NOTES: Duration = Duration::from_secs(5);

/// Everything that a run of the agent needs.
pub(crate) struct Work<'a> {
    pub(crate) ctx: &'a SessionContext,
    pub(crate) item: &'a Item,
    pub(crate) prepared: &'a Prepared,
    pub(crate) measurer: &'a Measurer<'a>,
    /// What people wrote about the item.
    pub(crate) discussion: Discussion,
    /// The round that the task is.
    pub(crate) round: Option<&'a RoundWork>,
    /// The ids of the remarks that the model was given in earlier sessions; `None`: they were not recorded.
    pub(crate) given: Option<BTreeSet<String>>,
    /// What people recorded about the project.
    pub(crate) memory: String,
    /// How long earlier sessions of the task worked.
    pub(crate) worked: Duration,
    /// The agent's model.
    pub(crate) model: Arc<dyn Model>,
    pub(crate) recorder: Arc<Recorder>,
}

impl Work<'_> {
    /// Starts the MCP servers, runs the agent, and shuts the servers down.
    pub(crate) async fn run(
        &self,
        history: History,
        used: Usage,
    ) -> Result<RunOutcome, SessionError> {
        let ctx = self.ctx;
        let sampling = Arc::new(SessionSampling::new(
            ctx.deps.budget(&self.prepared.agent.limits),
            ctx.deps.config.mcp.sampling.clone(),
            self.worked,
            Arc::clone(&self.model),
            Arc::clone(&self.recorder),
        ));
        let start = Servers::start(ctx, self.prepared, &sampling);
        let servers = Arc::new(ctx.heartbeat.unless_interrupted(start).await?);
        let running = AssertUnwindSafe(self.run_with(&servers, history, used));
        let outcome = running.catch_unwind().await;
        self.shut_down(&servers, &sampling).await;
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    async fn run_with(
        &self,
        servers: &Arc<Servers>,
        history: History,
        used: Usage,
    ) -> Result<RunOutcome, SessionError> {
        let (ctx, prepared) = (self.ctx, self.prepared);
        let sandbox = Arc::clone(&prepared.workspace.sandbox);
        let tools = FleetTools {
            ctx,
            checkpoints: Checkpoints::new(
                Arc::clone(&sandbox),
                Arc::clone(&ctx.deps.store),
                ctx.lease.clone(),
                prepared.restored.as_ref().map(|r| r.commit.clone()),
                prepared.restored.as_ref().map_or(0, |r| r.total),
            ),
            sandbox,
            command: self.command(),
            proposal: self.proposal(),
            agent: &prepared.agent,
            servers: Arc::clone(servers),
            workspace: &prepared.workspace,
            noted: Default::default(),
            offered: Default::default(),
        };
        let model = RedactingModel::new(Arc::clone(&self.model), Arc::clone(&ctx.redactor));
        let interval = Duration::from_secs(ctx.deps.config.consumer.item_check_seconds);
        let inbox = ItemInbox::new(ctx, self.given.clone(), interval);
        let (watch, mut deltas) = unbounded_channel();
        let agent = AgentRun {
            model: &model,
            tools: &tools,
            journal: self.recorder.as_ref(),
            gather: self.measurer,
            inbox: &inbox,
            limits: RunLimits::new(ctx.deps.budget(&prepared.agent.limits)),
            worked: self.worked,
            max_rounds: ctx.deps.max_rounds(&prepared.agent.limits),
            brief: &self.brief(servers),
            resumed: &resumed_with(prepared.restored.as_ref()),
            watch: Some(&watch),
        };
        tokio::select! {
            outcome = agent.run(history, used) => Ok(outcome?),
            never = show(ctx, &mut deltas) => match never {},
            never = inbox.watch() => match never {},
            never = self.recorder.meter.write_late_calls() => match never {},
            never = self.measurer.checks.get_ready_at_pushes() => match never {},
        }
    }

    /// Shuts the servers down and records their last notices. If the lease is lost, another worker may
    /// have started already, so the sandboxes are removed without waiting for the servers. Notices that
    /// the store does not accept in time are dropped: ending the session takes precedence.
    async fn shut_down(&self, servers: &Servers, sampling: &SessionSampling) {
        let ctx = self.ctx;
        if ctx.heartbeat.lost() {
            tokio::join!(servers.shutdown(), ctx.remove_sandboxes());
            return;
        }
        servers.shutdown().await;
        let notes = async {
            servers.record_notices(ctx).await?;
            sampling.record_usage().await?;
            self.recorder.meter.write().await
        };
        if tokio::time::timeout(LAST_NOTES, notes).await.is_err() {
            tracing::warn!(
                "the store is unavailable; the last notices of the MCP servers are not recorded"
            );
        }
    }

    /// The command tool, unless the configuration or the agent forbids it.
    fn command(&self) -> Option<CommandTool> {
        let executor = &self.ctx.deps.config.command_executor;
        let command = CommandTool::of(executor)?;
        let server = &executor.mcp_server.name;
        may_command(&self.prepared.agent, server, &command.name).then_some(command)
    }

    /// The tool for proposals, unless the configuration or the agent forbids it.
    fn proposal(&self) -> Option<ProposalTool> {
        let tool = ProposalTool::of(self.ctx.deps.config.memory.proposals())?;
        self.prepared.agent.allows(&[PROPOSAL]).then_some(tool)
    }

    fn brief(&self, servers: &Servers) -> Brief {
        let agent = &self.prepared.agent;
        let executor = &self.ctx.deps.config.command_executor;
        let item = &self.ctx.task.item;
        let command = self.command();
        Brief {
            title: self.item.title.clone(),
            body: self.item.body.clone(),
            name: match (item.kind, item.tracker) {
                (ItemKind::Issue, _) => format!("Issue #{}", item.number),
                (ItemKind::PullRequest, TrackerKind::GitHub | TrackerKind::Local) => {
                    format!("Pull request #{}", item.number)
                }
                (ItemKind::PullRequest, TrackerKind::GitLab) => {
                    format!("Merge request !{}", item.number)
                }
                (ItemKind::Task, _) => format!("Task {}", item.number),
            },
            repository: self.item.item.repo_path.clone(),
            author: self.item.author.clone(),
            discussion: self.discussion.clone(),
            round: self
                .round
                .map(|round| round.brief(self.prepared.solution())),
            memory: self.memory.clone(),
            agent_prompt: agent.system_prompt.clone().unwrap_or_default(),
            repository_prompt: agent.repository_prompt.clone().unwrap_or_default(),
            absent: self.prepared.project.absent.sentences(),
            branch: self.prepared.branches.work.clone(),
            workspace: self.prepared.workspace.sandbox.workspace_root().to_owned(),
            command_tool: command
                .as_ref()
                .map_or_else(String::new, |tool| tool.name.clone()),
            command_timeout: command.map(|_| executor.execution.timeout_seconds),
            refused_commands: [
                executor.execution.denied_commands.as_slice(),
                executor.execution.ask_commands.as_slice(),
            ]
            .concat(),
            allowed_commands: executor.execution.allowed_commands.clone(),
            text_editor: match servers.editor() {
                Some(editor) if may_edit(agent, editor) => TextEditor::Offered,
                Some(_) | None => TextEditor::Absent,
            },
        }
    }
}

/// Shows people what the model writes, and why it writes nothing.
async fn show(ctx: &SessionContext, pieces: &mut UnboundedReceiver<Delta>) -> Infallible {
    let mut view = ReplyView::new(ctx);
    loop {
        tokio::select! {
            biased;
            piece = pieces.recv() => match piece {
                Some(piece) => {
                    view.add(&piece).await;
                    if let Delta::Waiting(text) = piece {
                        ctx.live.show(Progress::Note(text));
                    }
                }
                // The sender lives as long as the agent.
                None => return std::future::pending().await,
            },
            () = view.due() => view.show().await,
        }
    }
}

/// The message to the model when this worker continues another worker's session.
fn resumed_with(restored: Option<&Restored>) -> String {
    let files = match restored {
        Some(restored) => restored_files(&restored.unsaved),
        None => {
            "The project's files are those of the branch on the remote; changes that were not pushed are lost.".into()
        }
    };
    format!(
        "The worker was replaced and the sandbox is a new one. {files} Everything outside the project's folder is lost: \
         installed packages, running processes, temporary files. Check the current state first, then continue."
    )
}

/// What the restored files are.
fn restored_files(unsaved: &[Unsaved]) -> String {
    let mut changes =
        "The project's files are as they were after the last call that changed them.".to_owned();
    let mut omitted = String::new();
    for unsaved in unsaved {
        match unsaved {
            Unsaved::Changes(_, reason) => {
                let reason = line(reason, 300);
                changes = format!(
                    "The project's files are those of an earlier call: later ones could not be saved ({reason}), so what \
                     later calls changed may be lost."
                );
            }
            Unsaved::Files(files) => {
                omitted.push_str(&format!(
                    " Not restored, because no checkpoint contains them: {files}."
                ));
            }
        }
    }
    changes + &omitted
}

#[cfg(test)]
mod tests {
    use agentmine_domain::Seq;

    use super::*;

    #[test]
    fn a_model_that_continues_learns_what_was_not_saved() {
        let restored = |unsaved| Restored {
            commit: "c".into(),
            total: 0,
            unsaved,
        };
        let last_call = "as they were after the last call";
        let all = resumed_with(Some(&restored(Vec::new())));
        assert!(
            all.contains(last_call) && !all.contains("Not restored"),
            "{all}"
        );
        let unsaved = vec![
            Unsaved::Files("core, app/".into()),
            Unsaved::Changes(Seq(8), "too slow".into()),
        ];
        let some = resumed_with(Some(&restored(unsaved)));
        assert!(!some.contains(last_call), "{some}");
        assert!(some.contains("could not be saved (too slow)") && some.contains("core, app/."));
        assert!(resumed_with(None).contains("changes that were not pushed are lost"));
    }
}
