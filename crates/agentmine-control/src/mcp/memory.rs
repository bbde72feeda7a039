//! The tools and the resource of a project's memory.

use std::sync::Arc;

use agentmine_domain::{MemoryRecord, MemorySource};
use rmcp::model::Resource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::context::Context;
use super::fitting::fitting;
use super::resources::{Part, ResourceKind};
use super::tool::{Effect, ToolDef, to_value};
use crate::memory::{
    self, MemoryChange, MemoryFields, MemoryList, MemoryQuery, NewMemory, ProjectMemory,
};
use crate::worker::blocking;
use crate::{ControlError, LocalProject};

const URI: &str = "project://memory";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MemoryListArgs {
    /// Only records with this status
    #[schemars(extend("enum" = ["draft", "active", "archived"]))]
    status: Option<String>,
    /// Only records of this category
    category: Option<String>,
    /// Only records with this tag
    tag: Option<String>,
    /// How many records at most, in the order of their ids
    #[schemars(extend("default" = 20, "minimum" = 1, "maximum" = 500))]
    limit: Option<u32>,
    /// Only records after this id: the nextCursor of the previous answer
    cursor: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MemoryPage {
    /// The project.
    project: String,
    /// The records.
    records: Vec<RecordView>,
    /// The cursor of the next part; null: there are no more.
    next_cursor: Option<String>,
}

/// A record.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RecordView {
    /// Its id.
    id: String,
    /// What it is about.
    category: String,
    /// One line.
    title: String,
    /// Used instead of the content if that does not fit.
    summary: String,
    /// Markdown.
    content: String,
    /// draft, active or archived. Agents receive active ones.
    status: String,
    /// For filters.
    tags: Vec<String>,
    /// human or session.
    source: String,
    /// low, medium or high.
    confidence: String,
    /// Agents do not receive it from then on.
    expires_at: Option<String>,
    /// Counts its changes. Pass it to memory_update so that nobody else's change is overwritten.
    version: i64,
    /// When it was added.
    created_at: String,
    /// When it was last changed.
    updated_at: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MemoryAddArgs {
    /// The id: a slug, e.g. error-handling
    id: String,
    /// What it is about, e.g. tooling
    category: String,
    /// One line
    title: String,
    /// Used instead of the content if that does not fit
    summary: Option<String>,
    /// Whether agents receive it: only active records are given to them
    #[schemars(extend("enum" = ["draft", "active", "archived"]))]
    status: Option<String>,
    /// Markdown
    content: Option<String>,
    /// For filters
    tags: Option<Vec<String>>,
    /// Who made the decision: human only if a person asked you to record it; session makes it a draft
    #[schemars(extend("enum" = ["human", "session"], "default" = "session"))]
    source: Option<String>,
    /// How certain it is
    #[schemars(extend("enum" = ["low", "medium", "high"]))]
    confidence: Option<String>,
    /// A date or a time from which on agents do not receive it; never for none
    expires: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MemoryUpdateArgs {
    /// The record's id
    id: String,
    /// The version that you saw. The change is refused if somebody else has changed the record since
    version: Option<i64>,
    /// What it is about
    category: Option<String>,
    /// One line
    title: Option<String>,
    /// Used instead of the content if that does not fit
    summary: Option<String>,
    /// Whether agents receive it: only active records are given to them
    #[schemars(extend("enum" = ["draft", "active", "archived"]))]
    status: Option<String>,
    /// Markdown
    content: Option<String>,
    /// For filters
    tags: Option<Vec<String>>,
    /// How certain it is
    #[schemars(extend("enum" = ["low", "medium", "high"]))]
    confidence: Option<String>,
    /// A date or a time from which on agents do not receive it; never for none
    expires: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MemoryGetArgs {
    /// The record's id
    id: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MemoryPreviewArgs {
    /// The limit of the text, in estimated tokens; without it that of the configuration
    max_tokens: Option<u64>,
}

/// What an agent would be given now.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PreviewView {
    /// The project.
    project: String,
    /// The limit of the text, in estimated tokens.
    max_tokens: u64,
    /// Estimated tokens of the text.
    tokens: u64,
    /// The section of the prompt; empty if no record is given.
    text: String,
    /// Whether each record is included, and why.
    records: Vec<Map<String, Value>>,
}

pub(super) fn tools() -> Vec<ToolDef> {
    vec![
        ToolDef::new(
            "memory_list",
            "List the memory",
            "Lists the records of the project's memory, in the order of their ids.",
            Effect::Reads,
            |it, args: MemoryListArgs| Box::pin(list(it, args)),
        ),
        ToolDef::new(
            "memory_get",
            "Show a record",
            "Shows one record of the project's memory.",
            Effect::Reads,
            |it, args: MemoryGetArgs| {
                Box::pin(async move {
                    let project = project(&it).await?;
                    record(&memory::get(of(&it, &project), &args.id).await?)
                })
            },
        ),
        ToolDef::new(
            "memory_add",
            "Add to the memory",
            "Proposes a decision for this project as a draft, which agents do not receive until it is activated. With source human, it is active at once.",
            Effect::Adds,
            |it, args: MemoryAddArgs| Box::pin(add(it, args)),
        ),
        ToolDef::new(
            "memory_update",
            "Change a record",
            "Changes the named fields of a record. Give the version that you saw, so that nobody else's change is lost.",
            Effect::Sets,
            |it, args: MemoryUpdateArgs| Box::pin(update(it, args)),
        ),
        ToolDef::new(
            "memory_preview",
            "Preview the memory",
            "Shows exactly which records an agent that starts a task now receives, and why.",
            Effect::Reads,
            |it, args: MemoryPreviewArgs| {
                Box::pin(async move {
                    let project = project(&it).await?;
                    let tokens = args.max_tokens.unwrap_or(it.memory_tokens);
                    let preview = memory::preview(of(&it, &project), tokens).await?;
                    converted::<PreviewView>(&preview)
                })
            },
        ),
    ]
}

/// `project://memory`.
pub(super) fn resource() -> ResourceKind {
    ResourceKind {
        prefix: URI,
        template: None,
        mime: "text/markdown",
        list: |_, _| {
            let memory = Resource::new(URI, "Memory Bank")
                .with_description("The active records of this project's memory")
                .with_mime_type("text/markdown");
            Box::pin(std::future::ready(Ok(Part::whole(vec![memory]))))
        },
        read: |it, rest| {
            Box::pin(async move {
                if !rest.is_empty() {
                    let uri = crate::input::shown(&format!("{URI}{rest}"));
                    return Err(ControlError::Validation(format!(
                        "unknown resource {uri:?}"
                    )));
                }
                let project = project(&it).await?;
                memory::markdown(of(&it, &project)).await
            })
        },
    }
}

async fn list(it: Arc<Context>, args: MemoryListArgs) -> Result<MemoryPage, ControlError> {
    let project = project(&it).await?;
    let query = MemoryQuery {
        status: args.status,
        category: args.category,
        tag: args.tag,
        cursor: args.cursor,
        limit: crate::tasks::limit_of(args.limit)?,
    };
    page(memory::list(of(&it, &project), &query).await?)
}

/// The part of a list that fits into an answer.
fn page(list: MemoryList) -> Result<MemoryPage, ControlError> {
    let (records, is_cut) = fitting(list.records, |record| {
        record.entry.summary.len() + record.entry.content.len()
    });
    let last = records.last().filter(|_| is_cut);
    let next_cursor = last
        .map(|record| &record.entry.id)
        .or(list.next_cursor.as_ref());
    Ok(MemoryPage {
        project: list.project.to_string(),
        next_cursor: next_cursor.map(ToString::to_string),
        records: records.iter().map(record).collect::<Result<_, _>>()?,
    })
}

async fn add(it: Arc<Context>, args: MemoryAddArgs) -> Result<RecordView, ControlError> {
    let project = project(&it).await?;
    let new = NewMemory {
        id: args.id,
        category: args.category,
        title: args.title,
        fields: MemoryFields {
            summary: args.summary,
            content: args.content,
            status: args.status,
            tags: args.tags,
            confidence: args.confidence,
            expires: args.expires,
        },
        // Without a source, the caller is taken for a model.
        source: Some(
            args.source
                .unwrap_or_else(|| MemorySource::Session.to_string()),
        ),
    };
    record(&memory::add(of(&it, &project), new).await?)
}

async fn update(it: Arc<Context>, args: MemoryUpdateArgs) -> Result<RecordView, ControlError> {
    let project = project(&it).await?;
    let change = MemoryChange {
        category: args.category,
        title: args.title,
        fields: MemoryFields {
            summary: args.summary,
            content: args.content,
            status: args.status,
            tags: args.tags,
            confidence: args.confidence,
            expires: args.expires,
        },
        version: args.version,
    };
    record(&memory::update(of(&it, &project), &args.id, change).await?)
}

async fn project(it: &Context) -> Result<LocalProject, ControlError> {
    let folder = it.place.project.clone();
    blocking(move || crate::project(&folder)).await
}

fn of<'a>(it: &'a Context, project: &'a LocalProject) -> ProjectMemory<'a> {
    ProjectMemory {
        store: it.store.as_ref(),
        project: &project.name,
        secrets: &it.secrets,
    }
}

fn record(record: &MemoryRecord) -> Result<RecordView, ControlError> {
    converted(record)
}

fn converted<T: serde::de::DeserializeOwned>(answer: &impl Serialize) -> Result<T, ControlError> {
    let value = to_value(answer)?;
    serde_json::from_value(value)
        .map_err(|error| ControlError::Store(agentmine_store::StoreError::Fault(error.to_string())))
}

#[cfg(test)]
mod tests {
    use agentmine_domain::{Confidence, MemoryEntry, MemoryStatus, ProjectName};
    use chrono::Utc;

    use super::*;

    #[test]
    fn records_that_do_not_fit_follow_the_cursor() {
        let record = |id: &str, content: usize| MemoryRecord {
            entry: MemoryEntry {
                id: id.parse().unwrap(),
                category: "tooling".into(),
                title: "T".into(),
                summary: String::new(),
                content: "x".repeat(content),
                status: MemoryStatus::Active,
                tags: Vec::new(),
                source: MemorySource::Human,
                confidence: Confidence::High,
                expires_at: None,
            },
            version: 1,
            created_at: Utc::now(),
            updated_at: Utc::now(),
        };
        let list = |content: usize| MemoryList {
            project: ProjectName::of_forge("github.com", "acme/shop"),
            records: ["a", "b", "c", "d", "e"]
                .map(|id| record(id, content))
                .into(),
            next_cursor: Some("e".parse().unwrap()),
        };
        let short = page(list(100)).unwrap();
        assert_eq!(
            (short.records.len(), short.next_cursor.as_deref()),
            (5, Some("e"))
        );
        let long = page(list(8 * 1024)).unwrap();
        assert_eq!(
            (long.records.len(), long.next_cursor.as_deref()),
            (4, Some("d"))
        );
    }
}
