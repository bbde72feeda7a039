//! Operations on the records of a project's memory.
//!
//! A text that holds a secret of the configuration is refused, and never stored. A change names the version that it was
//! made from, and is refused if the record has another one by then.

use agentmine_agent::{GivenMemory, given_memory};
use agentmine_domain::{
    Confidence, MemoryEntry, MemoryFault, MemoryId, MemoryRecord, MemorySource, MemoryStatus,
    ProjectName,
};
use agentmine_runtime::config::nearest;
use agentmine_runtime::redact::Redactor;
use agentmine_store::{MemoryAdded, MemoryFilter, MemoryStore, MemoryUpdated};
use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use super::file::parse_time;
use crate::ControlError;

/// Whose memory, where it is, and what must not get into it.
#[derive(Clone, Copy)]
pub struct ProjectMemory<'a> {
    /// Where it is kept.
    pub store: &'a dyn MemoryStore,
    /// The project.
    pub project: &'a ProjectName,
    /// The secrets of the configuration.
    pub secrets: &'a Redactor,
}

/// Records of a project's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryList {
    /// The project.
    pub project: ProjectName,
    /// The records, in the order of their ids.
    pub records: Vec<MemoryRecord>,
    /// The last id, if there are more; the next page begins after it.
    pub next_cursor: Option<MemoryId>,
}

/// Which records to list. Words are parsed here, so that each skin refuses them alike.
#[derive(Debug, Clone, Default)]
pub struct MemoryQuery {
    /// `draft`, `active` or `archived`.
    pub status: Option<String>,
    /// Only of this category.
    pub category: Option<String>,
    /// Only with this tag.
    pub tag: Option<String>,
    /// Only after this id.
    pub cursor: Option<String>,
    /// How many at most; 0 is all.
    pub limit: u32,
}

/// A new record.
#[derive(Debug, Clone, Default)]
pub struct NewMemory {
    /// Its id.
    pub id: String,
    /// Its category.
    pub category: String,
    /// Its title.
    pub title: String,
    /// Its other fields; what is `None` has its default.
    pub fields: MemoryFields,
    /// `human` (the default) or `session`.
    pub source: Option<String>,
}

/// A change of a record: what is `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryChange {
    /// Its category.
    pub category: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// Its other fields.
    pub fields: MemoryFields,
    /// The version that the change is made from. Default: the one that it has now.
    pub version: Option<i64>,
}

/// Fields that a new record need not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryFields {
    /// Used instead of the content if that does not fit.
    pub summary: Option<String>,
    /// Markdown.
    pub content: Option<String>,
    /// `draft`, `active` (the default of a person's record) or `archived`.
    pub status: Option<String>,
    /// Its tags.
    pub tags: Option<Vec<String>>,
    /// `low`, `medium` or `high` (the default of a person's record).
    pub confidence: Option<String>,
    /// A date or a time from which on agents do not receive it; `never` for none.
    pub expires: Option<String>,
}

/// What an agent would be given now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryPreview {
    /// The project.
    pub project: ProjectName,
    /// What of its memory, and why.
    #[serde(flatten)]
    pub given: GivenMemory,
}

/// The records of a project.
///
/// # Errors
/// [`ControlError::Validation`] for a word that is none of the listed ones.
pub async fn list(
    memory: ProjectMemory<'_>,
    query: &MemoryQuery,
) -> Result<MemoryList, ControlError> {
    let MemoryQuery {
        status,
        category,
        tag,
        cursor,
        limit,
    } = query;
    let filter = MemoryFilter {
        status: word("status", status.as_deref(), MemoryStatus::ALL)?,
        category: category.clone(),
        tag: tag.clone(),
        after: cursor.as_deref().map(parse_id).transpose()?,
        // One more shows whether there is a next page.
        limit: limit.saturating_add(u32::from(*limit > 0)),
    };
    let mut records = memory.store.memory(memory.project, &filter).await?;
    let max = usize::try_from(*limit).unwrap_or(usize::MAX);
    let has_more = *limit > 0 && records.len() > max;
    if has_more {
        records.truncate(max);
    }
    let last = records.last().filter(|_| has_more);
    Ok(MemoryList {
        project: memory.project.clone(),
        next_cursor: last.map(|record| record.entry.id.clone()),
        records,
    })
}

/// One record.
///
/// # Errors
/// [`ControlError::MemoryNotFound`], also for a text that is no id.
pub async fn get(memory: ProjectMemory<'_>, id: &str) -> Result<MemoryRecord, ControlError> {
    let missing = || ControlError::MemoryNotFound(id.chars().take(80).collect());
    let parsed: MemoryId = id.parse().map_err(|_: MemoryFault| missing())?;
    let found = memory.store.memory_record(memory.project, &parsed).await?;
    found.ok_or_else(missing)
}

/// Adds a record. One that a session proposes is a draft, which a person activates.
///
/// # Errors
/// [`ControlError::Validation`] with every fault; [`ControlError::InvalidStatus`] if the id is taken.
pub async fn add(memory: ProjectMemory<'_>, new: NewMemory) -> Result<MemoryRecord, ControlError> {
    let NewMemory {
        id,
        category,
        title,
        fields,
        source,
    } = new;
    let source = word("source", source.as_deref(), MemorySource::ALL)?;
    let source = source.unwrap_or(MemorySource::Human);
    let (status, confidence) = match source {
        MemorySource::Human => (MemoryStatus::Active, Confidence::High),
        MemorySource::Session => (MemoryStatus::Draft, Confidence::Medium),
    };
    let entry = MemoryEntry {
        id: parse_id(&id)?,
        category,
        title,
        summary: String::new(),
        content: String::new(),
        status,
        tags: Vec::new(),
        source,
        confidence,
        expires_at: None,
    };
    let entry = changed(entry, fields)?;
    if entry.source == MemorySource::Session && entry.status != MemoryStatus::Draft {
        let wrong = ControlError::Validation(format!(
            "status: {}, expected draft: what a session proposes is activated by a person",
            entry.status
        ));
        return Err(wrong.hint("set source to human for a decision of a person"));
    }
    check(&entry, memory.secrets)?;
    let adding = memory
        .store
        .add_memory(memory.project, &entry, Uuid::new_v4());
    match adding.await? {
        MemoryAdded::Added(record) => Ok(record),
        MemoryAdded::Exists(record) => Err(ControlError::InvalidStatus(format!(
            "the memory has a record {:?} already, {} (version {})",
            record.entry.id.as_str(),
            record.entry.status,
            record.version
        ))),
        MemoryAdded::Full => Err(full()),
    }
}

/// Changes a record.
///
/// # Errors
/// [`ControlError::MemoryNotFound`]; [`ControlError::MemoryConflict`] if it has another version;
/// [`ControlError::Validation`] with every fault, or if nothing is to be changed.
pub async fn update(
    memory: ProjectMemory<'_>,
    id: &str,
    change: MemoryChange,
) -> Result<MemoryRecord, ControlError> {
    let nothing = MemoryChange {
        version: change.version,
        ..MemoryChange::default()
    };
    if change == nothing {
        return Err(
            ControlError::Validation("nothing to change is named".into())
                .hint("name a field and its new value"),
        );
    }
    let current = get(memory, id).await?;
    let MemoryChange {
        category,
        title,
        fields,
        version,
    } = change;
    let version = version.unwrap_or(current.version);
    if version != current.version {
        return Err(conflict(&current, version));
    }
    let entry = MemoryEntry {
        category: category.unwrap_or(current.entry.category),
        title: title.unwrap_or(current.entry.title),
        ..current.entry
    };
    let entry = changed(entry, fields)?;
    check(&entry, memory.secrets)?;
    replace(memory, &entry, version).await
}

/// What an agent that begins a task of the project now is given, within `max_tokens`: exactly what the worker gives it.
///
/// # Errors
/// [`ControlError::Store`].
pub async fn preview(
    memory: ProjectMemory<'_>,
    max_tokens: u64,
) -> Result<MemoryPreview, ControlError> {
    let all = MemoryFilter::default();
    let records = memory.store.memory(memory.project, &all).await?;
    let redact = |text| memory.secrets.redact(text);
    Ok(MemoryPreview {
        project: memory.project.clone(),
        given: given_memory(&records, Utc::now(), max_tokens, &redact),
    })
}

/// The active records as one Markdown text, for the resource `project://memory`.
///
/// # Errors
/// [`ControlError::Store`].
pub async fn markdown(memory: ProjectMemory<'_>) -> Result<String, ControlError> {
    let active = MemoryFilter {
        status: Some(MemoryStatus::Active),
        ..MemoryFilter::default()
    };
    let records = memory.store.memory(memory.project, &active).await?;
    let mut text = format!("# Memory of {}\n", memory.project);
    for MemoryRecord { entry, .. } in records {
        text.push_str(&format!(
            "\n## {} ({}, {})\n",
            entry.title, entry.id, entry.category
        ));
        for part in [entry.summary, entry.content] {
            if !part.trim().is_empty() {
                text.push_str(&format!("\n{}\n", part.trim_end()));
            }
        }
    }
    Ok(memory.secrets.redact(text))
}

pub(super) async fn replace(
    memory: ProjectMemory<'_>,
    entry: &MemoryEntry,
    version: i64,
) -> Result<MemoryRecord, ControlError> {
    let (store, nonce) = (memory.store, Uuid::new_v4());
    match store
        .update_memory(memory.project, entry, version, nonce)
        .await?
    {
        MemoryUpdated::Updated(record) => Ok(record),
        MemoryUpdated::Conflict(record) => Err(conflict(&record, version)),
        MemoryUpdated::Missing => Err(ControlError::MemoryNotFound(entry.id.to_string())),
    }
}

fn changed(entry: MemoryEntry, fields: MemoryFields) -> Result<MemoryEntry, ControlError> {
    let MemoryFields {
        summary,
        content,
        status,
        tags,
        confidence,
        expires,
    } = fields;
    let status = word("status", status.as_deref(), MemoryStatus::ALL)?;
    let confidence = word("confidence", confidence.as_deref(), Confidence::ALL)?;
    Ok(MemoryEntry {
        summary: summary.unwrap_or(entry.summary),
        content: content.unwrap_or(entry.content),
        status: status.unwrap_or(entry.status),
        tags: tags.unwrap_or(entry.tags),
        confidence: confidence.unwrap_or(entry.confidence),
        expires_at: match expires.as_deref() {
            None => entry.expires_at,
            Some("never") => None,
            Some(text) => Some(parse_expiry(text)?),
        },
        ..entry
    })
}

/// Every field that does not fit, and every one that holds a secret.
fn check(entry: &MemoryEntry, secrets: &Redactor) -> Result<(), ControlError> {
    let mut faults: Vec<String> = entry.faults().iter().map(ToString::to_string).collect();
    faults.extend(secrets_in(entry, secrets));
    match faults.is_empty() {
        true => Ok(()),
        false => Err(ControlError::Validation(faults.join("\n"))),
    }
}

/// The fields that hold a secret of the configuration.
pub(super) fn secrets_in(entry: &MemoryEntry, secrets: &Redactor) -> Vec<String> {
    let tags = entry.tags.join("\n");
    let texts = [
        ("category", &entry.category),
        ("title", &entry.title),
        ("summary", &entry.summary),
        ("content", &entry.content),
        ("tags", &tags),
    ];
    let secret = texts.iter().filter(|(_, text)| secrets.finds_in(text));
    secret
        .map(|(field, _)| format!("{field}: a secret of the configuration, expected none"))
        .collect()
}

fn conflict(record: &MemoryRecord, expected: i64) -> ControlError {
    ControlError::MemoryConflict {
        id: record.entry.id.to_string(),
        expected,
        found: record.version,
    }
}

pub(super) fn full() -> ControlError {
    let most = agentmine_domain::memory::limits::RECORDS;
    ControlError::InvalidStatus(format!(
        "the memory of this project has {most} records, and takes no more"
    ))
}

fn parse_id(text: &str) -> Result<MemoryId, ControlError> {
    text.parse()
        .map_err(|fault: MemoryFault| ControlError::Validation(fault.to_string()))
}

fn parse_expiry(text: &str) -> Result<DateTime<Utc>, ControlError> {
    parse_time(text).map_err(|expected| {
        let seen: String = text.chars().take(40).collect();
        ControlError::Validation(format!("expires: {seen:?}, expected {expected}, or never"))
    })
}

/// One of the listed words.
fn word<T: Copy + std::fmt::Display>(
    field: &str,
    text: Option<&str>,
    all: &[T],
) -> Result<Option<T>, ControlError> {
    let Some(text) = text else { return Ok(None) };
    let words: Vec<String> = all.iter().map(ToString::to_string).collect();
    if let Some(at) = words.iter().position(|word| word == text) {
        return Ok(Some(all[at]));
    }
    let known: Vec<&str> = words.iter().map(String::as_str).collect();
    let near =
        nearest(text, &known).map_or_else(String::new, |near| format!("; did you mean {near}?"));
    let seen: String = text.chars().take(40).collect();
    Err(ControlError::Validation(format!(
        "{field}: {seen:?}, expected {}{near}",
        known.join(", ")
    )))
}
