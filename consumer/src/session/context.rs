//! State shared by all stages of one session, built completely before the first stage begins.

use std::sync::Arc;
use std::time::Duration;

use agentmine_agent::journal::Entry;
use agentmine_domain::{ItemKind, Lease, Phase, Task, TaskLabel, Usage};
use agentmine_effects::{EffectError, Effects, may_be_of_comments};
use agentmine_gateway::Mirrors;
use agentmine_runtime::config::MirrorsConfig;
use agentmine_runtime::shutdown::Shutdown;
use agentmine_sandbox::local::default_state_dir;
use agentmine_sandbox::{EarlySandbox, Sandbox, SandboxError};
use agentmine_store::Claim;
use agentmine_trackers::Tracker;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::deps::ConsumerDeps;
use super::gate::ProgressGate;
use crate::claim::claimed::Claimed;
use crate::claim::freeze::Freezer;
use crate::claim::heartbeat::{Heartbeat, Rhythm};
use crate::error::SessionError;
use crate::record::journal::SessionJournal;
use crate::record::live::LiveView;
use crate::record::meter::UsageMeter;
use crate::record::recorder::Recorder;
use crate::record::redact::Redactor;
use crate::record::secret::operator_secrets;

/// How long a session waits for the removal of one of its sandboxes.
const REMOVAL_LIMIT: Duration = Duration::from_secs(90);
/// How late the worker may notice the signal that has ended its processes.
const NOTICED: Duration = Duration::from_millis(500);

/// State shared by all stages of one session.
pub(crate) struct SessionContext {
    pub(crate) deps: Arc<ConsumerDeps>,
    pub(crate) task: Task,
    pub(crate) lease: Lease,
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) freezer: Arc<Freezer>,
    pub(crate) redactor: Arc<Redactor>,
    pub(crate) journal: Arc<SessionJournal>,
    pub(crate) live: Arc<LiveView>,
    pub(crate) effects: Effects,
    /// The agent's sandbox, which starts before it is needed.
    pub(crate) early: EarlySandbox,
    /// Where clones may come from.
    pub(crate) mirrors: Option<Mirrors>,
    /// Whether the progress comment may be edited.
    pub(crate) progress: ProgressGate,
    removals: Mutex<JoinSet<Removal>>,
    draining: CancellationToken,
}

/// A sandbox's name, and whether it was removed.
type Removal = (String, Result<(), SandboxError>);

impl SessionContext {
    pub(crate) fn new(
        deps: Arc<ConsumerDeps>,
        claimed: Claimed,
        tracker: Arc<dyn Tracker>,
        stop: Shutdown,
    ) -> Self {
        let Claimed { claim, since } = claimed;
        let Claim { task, lease } = claim;
        let config = &deps.config;
        // A pool has sandboxes that have already started.
        let early = match only_reports(&task, &deps) || config.consumer.warm_sandboxes > 0 {
            true => EarlySandbox::none(),
            false => {
                let image = config.command_executor.docker.base_image.clone();
                let template = match task.item.kind {
                    ItemKind::Issue | ItemKind::Task => deps.kept_templates(),
                    // It has a branch of its own.
                    ItemKind::PullRequest => None,
                };
                let template = template.and_then(|it| it.likely(&task.item.repository()));
                EarlySandbox::begin(Arc::clone(&deps.backend), image, template)
            }
        };
        let freezer = Arc::new(Freezer::default());
        let heartbeat = Arc::new(Heartbeat::start(
            Arc::clone(&deps.heartbeat),
            (lease.clone(), since),
            Rhythm::of(&config.consumer),
            Arc::clone(&freezer),
            stop.killed(),
        ));
        let secrets = config.secrets().into_iter().chain(operator_secrets(config));
        let redactor = Arc::new(Redactor::new(secrets));
        let journal = Arc::new(SessionJournal::new(
            Arc::clone(&deps.store),
            lease.clone(),
            Arc::clone(&heartbeat),
            Arc::clone(&redactor),
        ));
        let mirrors = mirrors(&config.consumer.mirrors);
        let live = Arc::new(LiveView::new(deps.watch.clone(), Arc::clone(&redactor)));
        let effects = Effects::of_session(
            Arc::clone(&deps.store),
            tracker,
            config.labels.clone(),
            task.clone(),
            lease.clone(),
            heartbeat.certainty().permit().clone(),
        );
        Self {
            deps,
            task,
            lease,
            heartbeat,
            freezer,
            redactor,
            journal,
            live,
            effects,
            early,
            mirrors,
            progress: ProgressGate::default(),
            removals: Mutex::default(),
            draining: stop.draining(),
        }
    }

    /// The context of a task whose branch was named and recorded. `None`: it keeps the one that it has.
    pub(crate) fn on_branch(self, name: Option<String>) -> Self {
        let Some(name) = name else {
            return self;
        };
        Self {
            effects: self.effects.on_branch(name.clone()),
            task: Task {
                named_branch: Some(name),
                ..self.task
            },
            ..self
        }
    }

    /// The journal for the agent; `earlier` is the usage of the task's earlier sessions, `own` that of this one so far,
    /// `model` the name of its model.
    pub(crate) fn recorder(&self, earlier: Usage, own: Usage, model: &str) -> Recorder {
        Recorder {
            journal: Arc::clone(&self.journal),
            live: Arc::clone(&self.live),
            heartbeat: Arc::clone(&self.heartbeat),
            meter: UsageMeter::new(
                Arc::clone(&self.deps.store),
                self.lease.clone(),
                Arc::clone(&self.heartbeat),
                model.to_owned(),
                earlier,
                own,
            ),
        }
    }

    /// Whether the task ran out of attempts and the claim is the one beyond them: see `LeaseStore::claim`.
    pub(crate) fn only_reports(&self) -> bool {
        only_reports(&self.task, &self.deps)
    }

    /// The session's number as shown to people: `12`.
    pub(crate) fn session_name(&self) -> String {
        self.lease.session.to_string()
    }

    /// Records an entry without a duration.
    pub(crate) async fn record(&self, entry: Entry) -> Result<(), SessionError> {
        let progress = LiveView::of(&entry, Duration::ZERO);
        self.journal.append(entry, Duration::ZERO, None).await?;
        self.live.show_some(progress);
        Ok(())
    }

    /// Records a note in the transcript.
    pub(crate) async fn note(&self, text: &str) -> Result<(), SessionError> {
        self.record(Entry::note(text)).await
    }

    /// Records that a phase began.
    pub(crate) async fn begin(&self, phase: Phase) -> Result<(), SessionError> {
        self.record(Entry::Phase { phase }).await
    }

    /// Posts or updates the comment on the item.
    pub(crate) async fn comment(&self, body: &str) -> Result<(), SessionError> {
        let write = || self.effects.comment(body);
        self.heartbeat.patiently(write).await
    }

    /// The same on an item that may take no comments, as one whose conversation is locked or whose comments are switched
    /// off: its label shows the state. The comment is omitted if the tracker takes the label; if it refuses that too, the
    /// credentials are at fault.
    pub(crate) async fn comment_if_taken(&self, body: &str) -> Result<(), SessionError> {
        let refused = match self.comment(body).await {
            Err(SessionError::Effect(EffectError::Tracker(error)))
                if may_be_of_comments(&error) =>
            {
                error
            }
            written => return written,
        };
        let label = || self.effects.label(TaskLabel::Processing);
        self.heartbeat.patiently(label).await?;
        tracing::warn!(error = %refused, "the item accepts no comments; its label shows the state of the task");
        Ok(())
    }

    /// Posts or updates the comment on the text editor, which stays beside the other one.
    pub(crate) async fn editor_comment(&self, body: &str) -> Result<(), SessionError> {
        let write = || self.effects.editor_comment(body);
        self.heartbeat.patiently(write).await
    }

    /// Removes one sandbox before the session ends, while the session continues.
    pub(crate) async fn discard(&self, name: &str) {
        if let Some(sandbox) = self.freezer.take(name).await {
            self.removals.lock().await.spawn(removal(sandbox));
        }
    }

    /// Waits for the removals that were begun: the next sandbox may have the same name.
    pub(crate) async fn wait_for_removals(&self) {
        let mut removals = self.removals.lock().await;
        while let Some(done) = removals.join_next().await {
            match done {
                Ok((name, result)) => self.report_removal(&name, result).await,
                Err(error) => {
                    tracing::error!(%error, "the removal of a sandbox ended unexpectedly")
                }
            }
        }
    }

    /// Fails if the engine of the sandboxes is away.
    pub(crate) async fn engine_answers(&self) -> Result<(), SessionError> {
        match self.deps.backend.check().await {
            Err(outage @ SandboxError::Unavailable(_)) => Err(SessionError::EngineGone(outage)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Whether the worker has received the signal to stop, which its processes may have received too.
    pub(crate) async fn drains(&self) -> bool {
        let received = timeout(NOTICED, self.draining.cancelled());
        received.await.is_ok()
    }

    /// Removes all sandboxes of the session.
    pub(crate) async fn remove_sandboxes(&self) {
        let unused = self.early.give_up(REMOVAL_LIMIT).await;
        let all = self.freezer.take_all().await;
        for sandbox in all.into_iter().chain(unused.map(Arc::from)) {
            self.removals.lock().await.spawn(removal(sandbox));
        }
        self.wait_for_removals().await;
    }

    /// The backend tries three times (spec 001 §8.1); after that the sweep does.
    async fn report_removal(&self, name: &str, result: Result<(), SandboxError>) {
        if let Err(error) = result {
            metrics::counter!("agentmine_sandboxes_left_total").increment(1);
            tracing::warn!(sandbox.name = name, %error, "the sandbox was not removed; the sweep will try again");
            if !self.heartbeat.lost() {
                let note = format!("the sandbox {name} was not removed: {error}");
                let _ = self.note(&note).await;
            }
        }
    }
}

fn only_reports(task: &Task, deps: &ConsumerDeps) -> bool {
    task.attempt > deps.config.consumer.max_attempts
}

async fn removal(sandbox: Arc<dyn Sandbox>) -> Removal {
    let removed = in_time(sandbox.remove()).await;
    (sandbox.name().to_owned(), removed)
}

fn mirrors(config: &MirrorsConfig) -> Option<Mirrors> {
    let MirrorsConfig {
        enabled,
        max_size,
        folder,
        templates: _,
    } = config;
    let folder = folder.clone();
    let folder = folder.unwrap_or_else(|| default_state_dir().with_file_name("mirrors"));
    enabled.then(|| Mirrors::new(folder, max_size.bytes()))
}

/// A sandbox may leave millions of files. The task's end does not wait for their deletion, which the sweep continues
/// with.
async fn in_time(
    removing: impl Future<Output = Result<(), SandboxError>>,
) -> Result<(), SandboxError> {
    match timeout(REMOVAL_LIMIT, removing).await {
        Ok(removed) => removed,
        Err(_) => {
            let limit = REMOVAL_LIMIT.as_secs();
            let why = format!("its removal takes longer than {limit} s");
            Err(SandboxError::Unavailable(why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_task_does_not_wait_for_a_removal_that_takes_long() {
        let error = in_time(std::future::pending()).await.unwrap_err();
        assert!(error.to_string().contains("90 s"), "{error}");
        assert!(in_time(std::future::ready(Ok(()))).await.is_ok());
    }
}
