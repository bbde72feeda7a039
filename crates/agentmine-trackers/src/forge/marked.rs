//! AgentMine's one comment that carries a marker, on any forge.
//!
//! Guaranteed: it is created once and then edited. A create whose outcome is unknown is looked up before it is
//! sent again, and of several comments with the same marker the first one stays. That of a former account of AgentMine which
//! may not be edited stays as it is, and there is another one. A comment that several tasks share keeps the text of the
//! newest one. Accepted: forges have no conditional edit, so an older task that looks before a newer one writes, and writes
//! after it, replaces its text until the newer one's next edit.

use agentmine_runtime::failpoint::Guard;
use agentmine_runtime::permit::Permit;
use async_trait::async_trait;

use super::attempts::{Attempts, Fault};
use crate::error::TrackerError;
use crate::item::Comment;
use crate::marker::Marker;

/// What became of a write.
pub(crate) enum Written {
    /// The comment's id.
    Yes(String),
    /// Unknown, or the comment is gone: look again.
    Look(Fault),
}

/// What one operation may use: tries and time, and the permit to write.
pub(crate) struct Budget<'a> {
    pub(crate) attempts: Attempts,
    pub(crate) permit: &'a Permit,
}

/// The comments of one item.
#[async_trait]
pub(crate) trait CommentThread: Sync {
    /// All of them.
    async fn all(&self, attempts: &Attempts) -> Result<Vec<Comment>, TrackerError>;
    async fn create(&self, text: &str, budget: &Budget<'_>) -> Result<Written, TrackerError>;
    async fn edit(
        &self,
        id: String,
        text: &str,
        budget: &Budget<'_>,
    ) -> Result<Written, TrackerError>;
    /// Removes a comment. One that is gone already is no error.
    async fn delete(&self, id: &str, budget: &Budget<'_>) -> Result<(), TrackerError>;
}

/// Edits the comment with the marker, or creates it. `text` carries the marker.
pub(crate) async fn upsert(
    thread: &impl CommentThread,
    marker: &Marker,
    text: &str,
    budget: &Budget<'_>,
) -> Result<String, TrackerError> {
    let mut created = None;
    // Comments of a former account that may not be edited.
    let mut kept: Vec<String> = Vec::new();
    loop {
        let mut mine = marked(thread, marker, &budget.attempts).await?;
        mine.retain(|comment| !kept.contains(&comment.id));
        if let Some(newer) = mine.iter().find(|it| marker.yields_to(&it.body)) {
            for own in mine.iter().filter(|it| marker.is_own(&it.body)) {
                remove(thread, &own.id, budget).await?;
            }
            return Ok(newer.id.clone());
        }
        let twins = mine.split_off(mine.len().min(1));
        let written = match (mine.pop(), created.take()) {
            (Some(comment), _) if comment.body == text => Written::Yes(comment.id),
            (Some(comment), _) => match thread.edit(comment.id.clone(), text, budget).await {
                // Where nothing at all may be written, creating one is refused too.
                Err(TrackerError::Forbidden { .. }) => {
                    kept.push(comment.id);
                    continue;
                }
                edited => edited?,
            },
            // It is not shown yet.
            (None, Some(id)) => return Ok(id),
            (None, None) => match thread.create(text, budget).await? {
                // Another writer may have created one meanwhile, or an earlier request did so after all.
                Written::Yes(id) => {
                    created = Some(id);
                    continue;
                }
                look @ Written::Look(_) => look,
            },
        };
        match written {
            Written::Yes(id) => {
                for twin in twins {
                    remove(thread, &twin.id, budget).await?;
                }
                return Ok(id);
            }
            Written::Look(fault) => budget.attempts.again(fault).await?,
        }
    }
}

/// Removes a comment; that of a former account which may not be removed stays.
async fn remove(
    thread: &impl CommentThread,
    id: &str,
    budget: &Budget<'_>,
) -> Result<(), TrackerError> {
    match thread.delete(id, budget).await {
        Err(TrackerError::Forbidden { .. }) => Ok(()),
        removed => removed,
    }
}

/// The comments of AgentMine with the marker, the first one first.
async fn marked(
    thread: &impl CommentThread,
    marker: &Marker,
    attempts: &Attempts,
) -> Result<Vec<Comment>, TrackerError> {
    let mut mine = thread.all(attempts).await?;
    mine.retain(|comment| comment.ours && marker.is_in(&comment.body));
    if Guard::LookUp.is_off() {
        mine.clear();
    }
    // The ids of comments rise. All writers must keep the same one.
    mine.sort_by_key(|comment| (comment.id.len(), comment.id.clone()));
    Ok(mine)
}
