//! The newest notes of a project, and the award emojis on them.

use std::ops::ControlFlow;

use agentmine_domain::{Addressed, ItemKind, ItemRef};
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use super::api::Api;
use super::notes::comment;
use super::wire::{Note, User};
use crate::error::TrackerError;
use crate::forge::{Call, Reply};
use crate::item::{Comment, RecentComment};

/// The emoji by which a note is acknowledged.
const EMOJI: &str = "thumbsup";

/// What somebody did in a project.
#[derive(Debug, Deserialize)]
struct Event {
    note: Noted,
}

/// A note, and what it is on.
#[derive(Debug, Deserialize)]
struct Noted {
    #[serde(flatten)]
    note: Note,
    noteable_type: String,
    noteable_iid: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Award {
    name: String,
    user: User,
}

impl Api {
    /// The events of a project are the only list of all its notes, those on lines of merge requests too.
    pub(super) async fn recent_comments(
        &self,
        of: &ItemRef,
    ) -> Result<Vec<RecentComment>, TrackerError> {
        let me = self.me().await?.id;
        let mut url = self.project_url(&of.repo_id, &["events"]);
        url.query_pairs_mut()
            .append_pair("action", "commented")
            .append_pair("sort", "desc")
            .append_pair("per_page", "100");
        let what = format!("the events of {}", of.repo_path);
        // The newest hundred, however large its pages may be.
        let mut found = Vec::new();
        let take = |reply: &Reply| {
            found.extend(reply.json::<Vec<Value>>()?);
            Ok(match found.len() < 100 {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        };
        self.client.pages_until(url, &what, take).await?;
        // Notes on commits and snippets have no number.
        found.retain(|event| event["note"]["noteable_iid"].is_u64());
        let events = self.client.fitting::<Event>(found, &what).into_iter();
        let recent = events.filter_map(|Event { note: noted }| {
            let kind = match noted.noteable_type.as_str() {
                "Issue" => ItemKind::Issue,
                "MergeRequest" => ItemKind::PullRequest,
                _ => return None,
            };
            let item = ItemRef {
                kind,
                number: noted.noteable_iid?,
                ..of.clone()
            };
            let note = noted.note;
            if note.system || !note.is_public() {
                return None;
            }
            let author = note.author.as_ref();
            Addressed::by(&note.body)?;
            let ours = author.is_some_and(|it| it.id == me || self.was_ours(Some(it)));
            let comment = comment(note, ours);
            Some(RecentComment { item, comment })
        });
        Ok(recent.collect())
    }

    /// GitLab refuses a second emoji of the same name and person with 404, as it does one on a note that is gone.
    pub(super) async fn react(
        &self,
        item: &ItemRef,
        note: &Comment,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        // A note on a line is a note of its merge request too.
        let place = ["notes", &note.id, "award_emoji"];
        let mut url = self.item_url(item, &place);
        url.query_pairs_mut().append_pair("name", EMOJI);
        let call = Call::write(Method::POST, url, permit);
        let reply = around("tracker.reaction_create", self.client.send(&call)).await?;
        let what = format!("note {}", note.id);
        if reply.status == StatusCode::NOT_FOUND && self.has_reacted(item, &place, &what).await? {
            return Ok(());
        }
        reply.ok(&what).map(drop)
    }

    async fn has_reacted(
        &self,
        item: &ItemRef,
        place: &[&str],
        what: &str,
    ) -> Result<bool, TrackerError> {
        let me = self.me().await?.id;
        let url = self.item_url(item, place);
        let awards = self.client.list::<Award>(url, what).await?;
        Ok(awards
            .iter()
            .any(|award| award.name == EMOJI && award.user.id == me))
    }
}
