//! Comments, and AgentMine's one comment that carries a marker.

use agentmine_domain::{ItemKind, ItemRef};
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use async_trait::async_trait;
use http::Method;
use serde_json::json;

use super::api::{Api, MAX_TEXT};
use super::wire;
use crate::error::TrackerError;
use crate::forge::{Attempts, Budget, Call, CommentThread, Written, upsert};
use crate::item::{Comment, CommentKind};
use crate::marker::{self, Marker};
use crate::people::Person;

/// The comments of one item, which has its repository's current path.
struct Thread<'a> {
    api: &'a Api,
    item: &'a ItemRef,
}

impl Api {
    pub(super) async fn comments(&self, item: &ItemRef) -> Result<Vec<Comment>, TrackerError> {
        let item = self.current(item).await?;
        let mut all = self.comments_within(&item, &self.client.attempts()).await?;
        match item.kind {
            ItemKind::Issue | ItemKind::Task => {}
            ItemKind::PullRequest => all.extend(self.reviews(&item).await?),
        }
        all.sort_by_key(|comment| comment.created_at);
        Ok(all)
    }

    /// Edits the comment with the marker, or creates it.
    pub(super) async fn write_comment(
        &self,
        item: &ItemRef,
        marker: &Marker,
        body: &str,
        permit: &Permit,
    ) -> Result<String, TrackerError> {
        let item = &self.current(item).await?;
        let text = marker.append(&marker::cut(body, MAX_TEXT));
        let budget = Budget {
            attempts: self.client.attempts(),
            permit,
        };
        let thread = Thread { api: self, item };
        upsert(&thread, marker, &text, &budget).await
    }

    async fn comments_within(
        &self,
        item: &ItemRef,
        attempts: &Attempts,
    ) -> Result<Vec<Comment>, TrackerError> {
        let login = self.own_login().await?;
        let mut url = self.item_url(item, &["comments"])?;
        url.query_pairs_mut().append_pair("per_page", "100");
        let comments = self
            .client
            .list_within::<wire::Comment>(url, &item.to_string(), attempts)
            .await?;
        Ok(comments
            .into_iter()
            .map(|comment| {
                let author = comment.user.map_or_else(Person::ghost, wire::person_of);
                Comment {
                    id: comment.id.to_string(),
                    ours: self.is_ours(&author.login, &login),
                    author,
                    kind: CommentKind::Plain,
                    body: comment.body.unwrap_or_default(),
                    created_at: comment.created_at,
                }
            })
            .collect())
    }
}

#[async_trait]
impl CommentThread for Thread<'_> {
    async fn all(&self, attempts: &Attempts) -> Result<Vec<Comment>, TrackerError> {
        self.api.comments_within(self.item, attempts).await
    }

    async fn create(&self, text: &str, budget: &Budget<'_>) -> Result<Written, TrackerError> {
        let client = &self.api.client;
        let url = self.api.item_url(self.item, &["comments"])?;
        let body = json!({ "body": text });
        let call = Call::write(Method::POST, url, budget.permit).json(&body);
        let sent = client.send_once(&call, &budget.attempts);
        let sent = around("tracker.comment_create", sent).await?;
        let comment: wire::Comment = match sent.made(&self.item.to_string())? {
            Ok(comment) => comment,
            Err(fault) => return Ok(Written::Look(fault)),
        };
        if let Some(author) = comment.user.map(wire::person_of) {
            self.api.wrote_as(&author.login).await;
        }
        Ok(Written::Yes(comment.id.to_string()))
    }

    async fn edit(
        &self,
        id: String,
        text: &str,
        budget: &Budget<'_>,
    ) -> Result<Written, TrackerError> {
        let (api, item) = (self.api, self.item);
        let url = api.repo_url(&item.repo_path, &["issues", "comments", &id])?;
        let body = json!({ "body": text });
        let call = Call::write(Method::PATCH, url, budget.permit).json(&body);
        let sent = api.client.send_within(&call, &budget.attempts);
        let reply = around("tracker.comment_edit", sent).await?;
        let what = format!("comment {id} on {item}");
        Written::edited(reply, id, &what)
    }

    async fn delete(&self, id: &str, budget: &Budget<'_>) -> Result<(), TrackerError> {
        let path = &self.item.repo_path;
        let url = self.api.repo_url(path, &["issues", "comments", id])?;
        let call = Call::write(Method::DELETE, url, budget.permit);
        let sent = self.api.client.send_within(&call, &budget.attempts);
        let reply = around("tracker.comment_delete", sent).await?;
        reply.removed(&format!("comment {id}"))
    }
}
