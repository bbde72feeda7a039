//! The discussions on merge requests, and whether these conflict.

use agentmine_domain::ItemRef;
use agentmine_domain::markdown::without_quick_actions;
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use async_trait::async_trait;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Api, MAX_TEXT};
use super::notes::comment;
use super::wire::{Note, User};
use crate::error::TrackerError;
use crate::forge::{Attempts, Budget, Call, CommentThread, Written, upsert};
use crate::item::Comment;
use crate::marker::{self, FLEET_MARKER, Marker};
use crate::rounds::Thread;

/// Whether a merge request can be merged.
#[derive(Debug, Deserialize)]
struct Mergeable {
    #[serde(default)]
    has_conflicts: bool,
    merge_status: Option<String>,
    source_branch: String,
}

/// A discussion.
#[derive(Debug, Deserialize)]
struct Discussion {
    id: String,
    #[serde(default)]
    individual_note: bool,
    notes: Vec<Note>,
}

impl Api {
    /// Whether it conflicts with its target branch. GitLab says so too of one whose source branch is gone; of that it is
    /// not known.
    pub(super) async fn conflicts(&self, item: &ItemRef) -> Result<Option<bool>, TrackerError> {
        let reply = self.client.get(self.item_url(item, &[])).await?;
        let found: Mergeable = reply.ok(&item.to_string())?.json()?;
        let is_known = !matches!(
            found.merge_status.as_deref(),
            Some("unchecked" | "checking" | "cannot_be_merged_recheck")
        );
        if found.has_conflicts
            && self
                .lacks_branch(&item.repo_id, &found.source_branch)
                .await?
        {
            return Ok(None);
        }
        Ok(is_known.then_some(found.has_conflicts))
    }

    /// The discussions that can be replied to.
    pub(super) async fn threads(&self, item: &ItemRef) -> Result<Vec<Thread>, TrackerError> {
        let me = self.me().await?.id;
        let mut url = self.item_url(item, &["discussions"]);
        url.query_pairs_mut().append_pair("per_page", "100");
        let what = item.to_string();
        let found = self.client.list::<Value>(url, &what).await?;
        let discussions = self.client.fitting::<Discussion>(found, &what).into_iter();
        let ours =
            |author: Option<&User>| author.is_some_and(|it| it.id == me || self.was_ours(Some(it)));
        let threads = discussions.filter_map(|discussion| {
            let Discussion {
                id,
                individual_note,
                notes,
            } = discussion;
            let notes: Vec<Note> = notes
                .into_iter()
                .filter(|note| !note.system && note.is_public())
                .collect();
            let last = notes.last().filter(|_| !individual_note)?;
            let mut resolvable = notes.iter().filter(|note| note.resolvable).peekable();
            Some(Thread {
                id,
                answered: ours(last.author.as_ref()) && last.body.contains(FLEET_MARKER),
                resolved: resolvable.peek().is_some() && resolvable.all(|note| note.resolved),
                comments: notes.iter().map(|note| note.id.to_string()).collect(),
            })
        });
        Ok(threads.collect())
    }

    /// Replies to a discussion, unless the reply with this marker is there.
    pub(super) async fn reply_to_thread(
        &self,
        item: &ItemRef,
        thread: &str,
        (marker, body): (&Marker, &str),
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let text = without_quick_actions(&marker::cut(body, MAX_TEXT));
        let budget = Budget {
            attempts: self.client.attempts(),
            permit,
        };
        let replies = Replies {
            api: self,
            item,
            id: thread,
        };
        upsert(&replies, marker, &marker.append(&text), &budget)
            .await
            .map(drop)
    }

    /// Resolves a discussion; one that is resolved stays so.
    pub(super) async fn resolve_thread(
        &self,
        item: &ItemRef,
        thread: &str,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let mut url = self.item_url(item, &["discussions", thread]);
        url.query_pairs_mut().append_pair("resolved", "true");
        let call = Call::write(Method::PUT, url, permit);
        let reply = around("tracker.thread_resolve", self.client.send(&call)).await?;
        match reply.status {
            // It cannot be resolved, as one that is not about the diff, or is gone.
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => Ok(()),
            _ => reply.ok(&format!("discussion {thread}")).map(drop),
        }
    }
}

/// The notes of one discussion.
struct Replies<'a> {
    api: &'a Api,
    item: &'a ItemRef,
    id: &'a str,
}

#[async_trait]
impl CommentThread for Replies<'_> {
    async fn all(&self, attempts: &Attempts) -> Result<Vec<Comment>, TrackerError> {
        let me = self.api.me().await?.id;
        let url = self.api.item_url(self.item, &["discussions", self.id]);
        let reply = self
            .api
            .client
            .send_within(&Call::get(url), attempts)
            .await?;
        let discussion: Discussion = reply.ok(&format!("discussion {}", self.id))?.json()?;
        let notes = discussion.notes.into_iter().map(|note| {
            let author = note.author.as_ref();
            let ours = author.is_some_and(|it| it.id == me || self.api.was_ours(Some(it)));
            comment(note, ours)
        });
        Ok(notes.collect())
    }

    async fn create(&self, text: &str, budget: &Budget<'_>) -> Result<Written, TrackerError> {
        let place = ["discussions", self.id, "notes"];
        let url = self.api.item_url(self.item, &place);
        let body = json!({ "body": text });
        let call = Call::write(Method::POST, url, budget.permit).json(&body);
        let sent = self.api.client.send_once(&call, &budget.attempts);
        let sent = around("tracker.thread_reply", sent).await?;
        let made = sent.made(&format!("discussion {}", self.id))?;
        Ok(made.map_or_else(Written::Look, |note: Note| {
            Written::Yes(note.id.to_string())
        }))
    }

    async fn edit(
        &self,
        id: String,
        text: &str,
        budget: &Budget<'_>,
    ) -> Result<Written, TrackerError> {
        self.api.edit_note(self.item, id, text, budget).await
    }

    async fn delete(&self, id: &str, budget: &Budget<'_>) -> Result<(), TrackerError> {
        self.api.delete_note(self.item, id, budget).await
    }
}
