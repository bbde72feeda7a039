//! Comments, and the one comment of ours that carries a marker.

use agentmine_domain::{ItemKind, ItemRef};
use agentmine_runtime::failpoint::{Guard, around};
use agentmine_runtime::permit::Permit;
use http::{Method, StatusCode};
use serde_json::json;

use super::api::{Api, MAX_TEXT};
use super::wire;
use crate::error::TrackerError;
use crate::forge::{Attempts, Call, Fault, Sent};
use crate::marker::{self, Marker};
use crate::tracker::{Comment, CommentKind};

/// What became of a write.
enum Written {
    /// The comment's id.
    Yes(String),
    /// Unknown, or the comment is gone: look again.
    Look(Fault),
}

/// What one operation may use: tries and time, and the permit to write.
struct Budget<'a> {
    attempts: Attempts,
    permit: &'a Permit,
}

impl Api {
    pub(super) async fn comments(&self, item: &ItemRef) -> Result<Vec<Comment>, TrackerError> {
        let item = self.current(item).await?;
        let mut all = self.comments_within(&item, &self.client.attempts()).await?;
        match item.kind {
            ItemKind::Issue => {}
            ItemKind::PullRequest => all.extend(self.reviews(&item).await?),
        }
        all.sort_by_key(|comment| comment.created_at);
        Ok(all)
    }

    /// Edits the comment with the marker, or creates it.
    pub(super) async fn upsert_comment(
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
        let attempts = &budget.attempts;
        let mut created = None;
        loop {
            let mut mine = self.marked(item, marker, attempts).await?;
            let twins = mine.split_off(mine.len().min(1));
            for twin in twins {
                self.delete(item, &twin.id, &budget).await?;
            }
            let written = match (mine.pop(), created.take()) {
                (Some(comment), _) if comment.body == text => return Ok(comment.id),
                (Some(comment), _) => self.edit(item, comment.id, &text, &budget).await?,
                // It is not shown yet.
                (None, Some(id)) => return Ok(id),
                (None, None) => match self.create(item, &text, &budget).await? {
                    // Another writer may have created one meanwhile, or an earlier request did so after all.
                    Written::Yes(id) => {
                        created = Some(id);
                        continue;
                    }
                    look @ Written::Look(_) => look,
                },
            };
            match written {
                Written::Yes(id) => return Ok(id),
                Written::Look(fault) => attempts.again(fault).await?,
            }
        }
    }

    /// The comments of ours with the marker, the first one first.
    async fn marked(
        &self,
        item: &ItemRef,
        marker: &Marker,
        attempts: &Attempts,
    ) -> Result<Vec<Comment>, TrackerError> {
        let mut mine = self.comments_within(item, attempts).await?;
        mine.retain(|comment| comment.ours && marker.is_in(&comment.body));
        if Guard::LookUp.is_off() {
            mine.clear();
        }
        // The ids of comments rise. All writers must keep the same one.
        mine.sort_by_key(|comment| (comment.id.len(), comment.id.clone()));
        Ok(mine)
    }

    /// Removes a comment. One that is gone already is no error.
    async fn delete(
        &self,
        item: &ItemRef,
        id: &str,
        budget: &Budget<'_>,
    ) -> Result<(), TrackerError> {
        let url = self.repo_url(&item.repo_path, &["issues", "comments", id])?;
        let call = Call::write(Method::DELETE, url, budget.permit);
        let sent = self.client.send_within(&call, &budget.attempts);
        let reply = around("tracker.comment_delete", sent).await?;
        match reply.status {
            StatusCode::NOT_FOUND => Ok(()),
            _ => reply.ok(&format!("comment {id}")).map(drop),
        }
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
                let author = wire::login_of(comment.user);
                Comment {
                    id: comment.id.to_string(),
                    ours: author.eq_ignore_ascii_case(login),
                    author,
                    kind: CommentKind::Plain,
                    body: comment.body.unwrap_or_default(),
                    created_at: comment.created_at,
                }
            })
            .collect())
    }

    async fn edit(
        &self,
        item: &ItemRef,
        id: String,
        text: &str,
        budget: &Budget<'_>,
    ) -> Result<Written, TrackerError> {
        let url = self.repo_url(&item.repo_path, &["issues", "comments", &id])?;
        let body = json!({ "body": text });
        let call = Call::write(Method::PATCH, url, budget.permit).json(&body);
        let sent = self.client.send_within(&call, &budget.attempts);
        let reply = around("tracker.comment_edit", sent).await?;
        if reply.status == StatusCode::NOT_FOUND {
            let detail = format!("comment {id} on {item} was deleted while it was edited");
            return Ok(Written::Look(Fault::new(detail)));
        }
        reply.ok(&format!("comment {id}"))?;
        Ok(Written::Yes(id))
    }

    async fn create(
        &self,
        item: &ItemRef,
        text: &str,
        budget: &Budget<'_>,
    ) -> Result<Written, TrackerError> {
        let url = self.item_url(item, &["comments"])?;
        let body = json!({ "body": text });
        let call = Call::write(Method::POST, url, budget.permit).json(&body);
        let sent = self.client.send_once(&call, &budget.attempts);
        let reply = match around("tracker.comment_create", sent).await? {
            Sent::Reply(reply) => reply.ok(&item.to_string())?,
            Sent::Unknown(fault) => return Ok(Written::Look(fault)),
        };
        // It is written, whatever the body says: an unreadable one is looked up, not sent again.
        Ok(match reply.json::<wire::Comment>() {
            Ok(comment) => Written::Yes(comment.id.to_string()),
            Err(error) => Written::Look(Fault::new(error.to_string())),
        })
    }
}
