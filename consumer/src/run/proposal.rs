//! The tool by which an agent proposes a record of the project's memory.
//!
//! A proposal is a draft: no agent is given it until a person activates it. What the model writes is hostile: it has the
//! limits of every record, holds no secret and nothing that a page would not show, replaces nothing, and a task may
//! make few of them. Proposals that nobody looks at do not fill the memory.
//!
//! Races that are accepted: sessions that propose at the same moment may exceed [`MAX_DRAFTS`] by one each, and a worker that
//! loses its lease after the check may still add a draft.

use agentmine_agent::{ToolResult, as_shown};
use agentmine_domain::{
    Confidence, MemoryEntry, MemoryFault, MemorySource, MemoryStatus, ProjectName, TaskNumber,
};
use agentmine_llm::ToolSpec;
use agentmine_store::{MemoryAdded, MemoryFilter};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::result::failed;
use crate::error::SessionError;
use crate::prepare::memory::project;
use crate::session::context::SessionContext;

/// Its wire name.
pub(crate) const PROPOSAL: &str = "propose_memory";
/// Drafts of sessions that a project may have. Beyond that people have to look at them first.
const MAX_DRAFTS: usize = 50;

/// The tool, for one session.
pub(crate) struct ProposalTool {
    /// Records that the sessions of the task may propose.
    most: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Proposal {
    id: String,
    category: String,
    title: String,
    content: String,
    #[serde(default)]
    summary: String,
}

impl ProposalTool {
    /// The tool, unless the operator allows no proposals.
    pub(crate) fn of(most: u32) -> Option<Self> {
        (most > 0).then_some(Self { most })
    }

    pub(crate) fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: PROPOSAL.to_owned(),
            description: format!(
                "Propose a record for the project's memory: something you learned that applies beyond this task and \
                 that the next agent could not see in the code. It becomes a draft, which people can activate. Do \
                 not repeat what is in the repository, and propose nothing that concerns only this task. At most {} \
                 per task; usually none.",
                self.most
            ),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "id": { "type": "string", "description": "A short name: 1 to 64 of a-z, 0-9 and -." },
                    "category": { "type": "string", "description": "What it is about, e.g. tooling." },
                    "title": { "type": "string", "description": "The finding, on one line." },
                    "content": { "type": "string", "description": "Markdown: the finding in full, and how you know it." },
                    "summary": { "type": "string", "description": "One or two sentences, if the content is long." }
                },
                "required": ["id", "category", "title", "content"],
                "additionalProperties": false
            }),
        }
    }

    /// Records a draft, or returns why not.
    pub(crate) async fn propose(
        &self,
        ctx: &SessionContext,
        arguments: Map<String, Value>,
    ) -> Result<ToolResult, SessionError> {
        let entry = match entry(ctx, arguments) {
            Ok(entry) => entry,
            Err(why) => return Ok(failed("invalid_arguments", &why)),
        };
        let project = project(ctx).await;
        if let Some(why) = self.room(ctx, &project).await? {
            return Ok(failed("too_many_proposals", &why));
        }
        // What a worker writes without its lease is another worker's to write.
        let (store, heartbeat) = (&ctx.deps.store, &ctx.heartbeat);
        heartbeat.patiently(|| store.check(&ctx.lease)).await?;
        let nonce = Uuid::new_v4();
        let adding = || store.add_memory(&project, &entry, nonce);
        Ok(match heartbeat.patiently(adding).await? {
            MemoryAdded::Added(_) => {
                ctx.note(&format!("memory proposed: {} (a draft)", entry.id))
                    .await?;
                let done = json!({ "status": "draft", "id": entry.id });
                ToolResult {
                    text: done.to_string(),
                    is_error: false,
                }
            }
            MemoryAdded::Exists(_) => failed(
                "already_exists",
                &format!(
                    "the memory already has a record {:?}. Choose another id if your record is a different one",
                    entry.id.as_str()
                ),
            ),
            MemoryAdded::Full => failed("memory_full", "the memory is full"),
        })
    }

    /// Why there is no room for one more; `None` if there is.
    async fn room(
        &self,
        ctx: &SessionContext,
        project: &ProjectName,
    ) -> Result<Option<String>, SessionError> {
        // Those that people activated or archived since count too: a later session of the task does not begin at zero.
        let of_task = MemoryFilter {
            tag: Some(tag(ctx.task.number)),
            ..MemoryFilter::default()
        };
        let made = proposals(ctx, project, &of_task).await?;
        if made >= self.most as usize {
            return Ok(Some(format!(
                "this task has already proposed {made} records, which is the limit"
            )));
        }
        let drafts = MemoryFilter {
            status: Some(MemoryStatus::Draft),
            ..MemoryFilter::default()
        };
        let waiting = proposals(ctx, project, &drafts).await?;
        Ok((waiting >= MAX_DRAFTS)
            .then(|| format!("{waiting} proposals already wait for a person; do not propose more")))
    }
}

/// Counts the records of sessions among these.
async fn proposals(
    ctx: &SessionContext,
    project: &ProjectName,
    filter: &MemoryFilter,
) -> Result<usize, SessionError> {
    let store = &ctx.deps.store;
    let found = ctx
        .heartbeat
        .patiently(|| store.memory(project, filter))
        .await?;
    let of_sessions = found
        .iter()
        .filter(|it| it.entry.source == MemorySource::Session);
    Ok(of_sessions.count())
}

/// With it the records of a task are counted, and people see where a proposal is from.
fn tag(task: TaskNumber) -> String {
    format!("task-{task}")
}

/// The record that the arguments describe.
fn entry(ctx: &SessionContext, arguments: Map<String, Value>) -> Result<MemoryEntry, String> {
    let Proposal {
        id,
        category,
        title,
        content,
        summary,
    } = serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        format!("invalid arguments: {error}. Expected id, category, title and content")
    })?;
    let secret = [&id, &category, &title, &content, &summary];
    if secret.iter().any(|text| ctx.redactor.finds_in(text)) {
        return Err("the text contains a secret; nothing was proposed".to_owned());
    }
    let entry = as_shown(MemoryEntry {
        id: id.parse().map_err(|fault: MemoryFault| fault.to_string())?,
        category,
        title,
        summary,
        content,
        status: MemoryStatus::Draft,
        tags: vec![tag(ctx.task.number)],
        source: MemorySource::Session,
        confidence: Confidence::Medium,
        expires_at: None,
    });
    // What was hidden may have parted a secret.
    let shown = [
        &entry.category,
        &entry.title,
        &entry.content,
        &entry.summary,
    ];
    if shown.iter().any(|text| ctx.redactor.finds_in(text)) {
        return Err("the text contains a secret; nothing was proposed".to_owned());
    }
    let faults: Vec<String> = entry.faults().iter().map(ToString::to_string).collect();
    match faults.is_empty() {
        true => Ok(entry),
        false => Err(faults.join("; ")),
    }
}
