//! The newest comments of a repository, and the reactions to them.

use agentmine_domain::{ItemKind, ItemRef};
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::Api;
use super::wire;
use crate::error::TrackerError;
use crate::forge::Call;
use crate::people::Person;
use crate::tracker::{Comment, CommentKind, RecentComment};

/// The reaction by which a comment is acknowledged.
const REACTION: &str = "+1";

/// A comment of a repository's list.
#[derive(Debug, Deserialize)]
struct Listed {
    #[serde(flatten)]
    comment: wire::Comment,
    /// `…/issues/7`, of pull requests too.
    issue_url: String,
    /// `…/pull/7#issuecomment-1` or `…/issues/7#issuecomment-1`.
    html_url: String,
}

impl Listed {
    fn number(&self) -> Option<u64> {
        self.issue_url.rsplit('/').next()?.parse().ok()
    }

    fn kind(&self) -> ItemKind {
        match self.html_url.contains("/pull/") {
            true => ItemKind::PullRequest,
            false => ItemKind::Issue,
        }
    }
}

impl Api {
    /// One page, whose address is always the same: while nobody comments, the answer is that it did not change.
    pub(super) async fn recent_comments(
        &self,
        of: &ItemRef,
    ) -> Result<Vec<RecentComment>, TrackerError> {
        let of = &self.current(of).await?;
        let login = self.own_login().await?;
        let mut url = self.repo_url(&of.repo_path, &["issues", "comments"])?;
        url.query_pairs_mut()
            .append_pair("sort", "created")
            .append_pair("direction", "desc")
            .append_pair("per_page", "100");
        let what = format!("the comments of {}", of.repo_path);
        let reply = self.client.get(url).await?.ok(&what)?;
        let found = self
            .client
            .fitting::<Listed>(reply.json::<Vec<Value>>()?, &what);
        let recent = found.into_iter().filter_map(|listed| {
            let item = ItemRef {
                kind: listed.kind(),
                number: listed.number()?,
                ..of.clone()
            };
            let wire::Comment {
                id,
                user,
                body,
                created_at,
            } = listed.comment;
            let author = user.map_or_else(Person::ghost, wire::person_of);
            let comment = Comment {
                id: id.to_string(),
                ours: self.is_ours(&author.login, login),
                author,
                kind: CommentKind::Plain,
                body: body.unwrap_or_default(),
                created_at,
            };
            Some(RecentComment { item, comment })
        });
        Ok(recent.collect())
    }

    /// GitHub answers a second reaction of the same kind and person with the first one.
    pub(super) async fn react(
        &self,
        item: &ItemRef,
        comment: &str,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let item = self.current(item).await?;
        let place = ["issues", "comments", comment, "reactions"];
        let url = self.repo_url(&item.repo_path, &place)?;
        let body = json!({ "content": REACTION });
        let call = Call::write(Method::POST, url, permit).json(&body);
        let reply = around("tracker.reaction_create", self.client.send(&call)).await?;
        reply.ok(&format!("comment {comment}")).map(drop)
    }
}
