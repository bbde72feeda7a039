//! Comments, and the one comment of ours that carries a marker.

use agentmine_domain::ItemRef;
use http::{Method, StatusCode};
use serde_json::json;

use super::GitHubTracker;
use super::client::{Call, CallError};
use super::wire;
use crate::marker::{self, Marker};
use crate::{Comment, TrackerError};

/// GitHub refuses a text of more than 65536 characters.
pub(super) const MAX_TEXT: usize = 65_000;

impl GitHubTracker {
    pub(super) async fn all_comments(&self, item: &ItemRef) -> Result<Vec<Comment>, TrackerError> {
        let login = self.own_login().await?;
        let mut url = self.item_url(item, &["comments"])?;
        url.query_pairs_mut().append_pair("per_page", "100");
        let comments = self
            .client
            .list::<wire::Comment>(url, &item.to_string())
            .await?;
        Ok(comments
            .into_iter()
            .map(|comment| {
                let author = comment
                    .user
                    .map_or_else(|| "ghost".to_owned(), |user| user.login);
                Comment {
                    id: comment.id.to_string(),
                    ours: author.eq_ignore_ascii_case(login),
                    author,
                    body: comment.body.unwrap_or_default(),
                    created_at: comment.created_at,
                }
            })
            .collect())
    }

    pub(super) async fn upsert(
        &self,
        item: &ItemRef,
        marker: &Marker,
        body: &str,
    ) -> Result<String, TrackerError> {
        let text = marker.append(&marker::cut(body, MAX_TEXT));
        let mut tries = 0;
        loop {
            let known = self.all_comments(item).await?;
            let mine = known
                .into_iter()
                .find(|comment| comment.ours && marker.is_in(&comment.body));
            if let Some(comment) = mine {
                if comment.body == text || self.edit_comment(item, &comment.id, &text).await? {
                    return Ok(comment.id);
                }
            } else {
                match self.create_comment(item, &text).await {
                    Ok(id) => return Ok(id),
                    Err(CallError::Tracker(error)) => return Err(error),
                    Err(unknown) if tries + 1 >= self.client.tries() => return Err(unknown.into()),
                    // It may have been written: the next round looks.
                    Err(CallError::OutcomeUnknown(_)) => {}
                }
            }
            tries += 1;
            if tries >= self.client.tries() {
                return Err(super::reply::unavailable(format!(
                    "the comment on {item} could not be written"
                )));
            }
            self.client.pause(tries).await;
        }
    }

    /// Whether the comment was still there to be edited.
    async fn edit_comment(
        &self,
        item: &ItemRef,
        id: &str,
        text: &str,
    ) -> Result<bool, TrackerError> {
        let url = self.repo_url(&item.repo_path, &["issues", "comments", id])?;
        let body = json!({ "body": text });
        let reply = self
            .client
            .send(&Call::new(Method::PATCH, url).json(&body))
            .await?;
        if reply.status == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        reply.ok(&format!("comment {id}"))?;
        Ok(true)
    }

    async fn create_comment(&self, item: &ItemRef, text: &str) -> Result<String, CallError> {
        let url = self.item_url(item, &["comments"])?;
        let body = json!({ "body": text });
        let call = Call::new(Method::POST, url).json(&body).look_first();
        let reply = self.client.send(&call).await?.ok(&item.to_string())?;
        // Written, whatever the body says: an unreadable one is looked up, not sent again.
        let comment: wire::Comment = reply
            .json()
            .map_err(|error| CallError::OutcomeUnknown(error.to_string()))?;
        Ok(comment.id.to_string())
    }
}
