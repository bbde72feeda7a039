//! Comments, and AgentMine's one comment that carries a marker.
//!
//! Guaranteed: internal notes are never read, since what we write about them is more public than they are; no
//! text of AgentMine runs as a quick action.

use agentmine_domain::markdown::without_quick_actions;
use agentmine_domain::{ItemKind, ItemRef};
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use async_trait::async_trait;
use http::Method;
use serde_json::json;

use super::api::{Api, MAX_TEXT};
use super::wire::{Note, Position, User, person_of};
use crate::error::TrackerError;
use crate::forge::{Attempts, Budget, Call, CommentThread, Written, upsert};
use crate::item::{Comment, CommentKind, LinePlace};
use crate::marker::{self, Marker};
use crate::people::Person;

/// The comments of one item.
struct Thread<'a> {
    api: &'a Api,
    item: &'a ItemRef,
}

impl Api {
    pub(super) async fn comments(&self, item: &ItemRef) -> Result<Vec<Comment>, TrackerError> {
        let mut all = self.comments_within(item, &self.client.attempts()).await?;
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
        let body = without_quick_actions(&marker::cut(body, MAX_TEXT));
        let budget = Budget {
            attempts: self.client.attempts(),
            permit,
        };
        let thread = Thread { api: self, item };
        upsert(&thread, marker, &marker.append(&body), &budget).await
    }

    pub(super) async fn edit_note(
        &self,
        item: &ItemRef,
        id: String,
        text: &str,
        budget: &Budget<'_>,
    ) -> Result<Written, TrackerError> {
        let url = self.item_url(item, &["notes", &id]);
        let body = json!({ "body": text });
        let call = Call::write(Method::PUT, url, budget.permit).json(&body);
        let sent = self.client.send_within(&call, &budget.attempts);
        let reply = around("tracker.comment_edit", sent).await?;
        let what = format!("note {id} on {item}");
        Written::edited(reply, id, &what)
    }

    pub(super) async fn delete_note(
        &self,
        item: &ItemRef,
        id: &str,
        budget: &Budget<'_>,
    ) -> Result<(), TrackerError> {
        let url = self.item_url(item, &["notes", id]);
        let call = Call::write(Method::DELETE, url, budget.permit);
        let sent = self.client.send_within(&call, &budget.attempts);
        let reply = around("tracker.comment_delete", sent).await?;
        reply.removed(&format!("note {id}"))
    }

    async fn comments_within(
        &self,
        item: &ItemRef,
        attempts: &Attempts,
    ) -> Result<Vec<Comment>, TrackerError> {
        let me = self.me().await?.id;
        let mut url = self.item_url(item, &["notes"]);
        url.query_pairs_mut()
            .append_pair("order_by", "created_at")
            .append_pair("sort", "asc")
            .append_pair("per_page", "100");
        if item.kind == ItemKind::Issue {
            url.query_pairs_mut()
                .append_pair("activity_filter", "only_comments");
        }
        let notes = self
            .client
            .list_within::<Note>(url, &item.to_string(), attempts)
            .await?;
        let people = notes
            .into_iter()
            .filter(|note| (!note.system || verdict(note).is_some()) && note.is_public());
        let ours = |author: &User| author.id == me || self.was_ours(Some(author));
        let people = people.map(|note| {
            let ours = note.author.as_ref().is_some_and(ours);
            comment(note, ours)
        });
        Ok(people.collect())
    }
}

pub(super) fn comment(note: Note, ours: bool) -> Comment {
    Comment {
        id: note.id.to_string(),
        ours,
        kind: match verdict(&note) {
            Some(verdict) => CommentKind::Review {
                verdict: verdict.to_owned(),
            },
            None => note.position.map_or(CommentKind::Plain, kind),
        },
        author: note.author.map_or_else(Person::ghost, person_of),
        body: note.body,
        created_at: note.created_at,
    }
}

/// What a reviewer decided, by what GitLab itself notes of it. The list of approvals, and the state of the reviewer, have
/// neither times nor numbers.
fn verdict(note: &Note) -> Option<&'static str> {
    match note.body.trim() {
        "requested changes" if note.system => Some("changes requested"),
        "approved this merge request" if note.system => Some("approved"),
        _ => None,
    }
}

fn kind(position: Position) -> CommentKind {
    let place = place(&position);
    match position.new_path.or(position.old_path) {
        Some(path) => CommentKind::OnLine { path, place },
        None => CommentKind::Plain,
    }
}

/// GitLab gives no part of the diff.
fn place(position: &Position) -> LinePlace {
    let hunk = String::new();
    match (position.new_line, position.old_line) {
        (Some(last), _) => {
            let start = position
                .line_range
                .as_ref()
                .and_then(|it| it.start.as_ref());
            let first = start.and_then(|start| start.new_line);
            let first = first.map_or(last, |first| first.min(last));
            LinePlace::Lines { first, last }
        }
        (None, Some(line)) => LinePlace::Removed { line, hunk },
        (None, None) => LinePlace::File,
    }
}

#[async_trait]
impl CommentThread for Thread<'_> {
    async fn all(&self, attempts: &Attempts) -> Result<Vec<Comment>, TrackerError> {
        self.api.comments_within(self.item, attempts).await
    }

    async fn create(&self, text: &str, budget: &Budget<'_>) -> Result<Written, TrackerError> {
        let url = self.api.item_url(self.item, &["notes"]);
        let body = json!({ "body": text });
        let call = Call::write(Method::POST, url, budget.permit).json(&body);
        let sent = self.api.client.send_once(&call, &budget.attempts);
        let sent = around("tracker.comment_create", sent).await?;
        let made = sent.made(&self.item.to_string())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_on_a_line_has_the_place_that_the_diff_shows() {
        let lines = |first, last| LinePlace::Lines { first, last };
        let removed = LinePlace::Removed {
            line: 4,
            hunk: String::new(),
        };
        let range = json!({"start": {"old_line": null, "new_line": 3}, "end": {"new_line": 5}});
        for (position, expected) in [
            (json!({"new_line": 5, "old_line": null}), lines(5, 5)),
            (json!({"new_line": 5, "old_line": 4}), lines(5, 5)),
            (json!({"new_line": 5, "line_range": range}), lines(3, 5)),
            (json!({"new_line": null, "old_line": 4}), removed),
            (json!({"position_type": "file"}), LinePlace::File),
        ] {
            let shown = position.to_string();
            let position: Position = serde_json::from_value(position).unwrap();
            assert_eq!(place(&position), expected, "{shown}");
        }
    }
}
