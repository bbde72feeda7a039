//! The newest comments of a repository, and reactions to comments.

use agentmine_domain::{Addressed, ItemKind, ItemRef};
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Api, ID_TTL};
use super::fault::refused;
use super::wire;
use crate::error::TrackerError;
use crate::forge::{Call, KeptList, Lists, Reply, Since};
use crate::item::{Comment, CommentKind, RecentComment};
use crate::people::Person;

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
        kind_of(&self.html_url)
    }
}

/// The kind of the item on whose page a comment is.
fn kind_of(html_url: &str) -> ItemKind {
    // A repository may be named `pull`.
    let page = html_url.split('#').next().unwrap_or_default();
    match page.rsplit('/').nth(1) {
        Some("pull") => ItemKind::PullRequest,
        _ => ItemKind::Issue,
    }
}

impl Api {
    /// One page, whose address is always the same: while nobody comments, the answer is that it did not change. Only what
    /// addresses the fleet is kept of it.
    pub(super) async fn recent_comments(
        &self,
        kept: &Lists<RecentComment>,
        of: &ItemRef,
    ) -> Result<Vec<RecentComment>, TrackerError> {
        let known = self.repo_known(&of.repo_path, ID_TTL);
        let known = known.filter(|repo| repo.id.to_string() == of.repo_id);
        let repo = match known {
            Some(repo) => repo,
            None => self.repo_of(of).await?,
        };
        let of = &ItemRef {
            repo_path: repo.full_name,
            ..of.clone()
        };
        let login = self.own_login().await?;
        let mut url = self.repo_url(&of.repo_path, &["issues", "comments"])?;
        url.query_pairs_mut()
            .append_pair("sort", "created")
            .append_pair("direction", "desc")
            .append_pair("per_page", "100");
        let what = format!("the comments of {}", of.repo_path);
        let list = KeptList {
            first: url,
            what: &what,
            of: "commands",
            within: None,
        };
        let commands = |reply: &Reply| {
            let found = self
                .client
                .fitting::<Listed>(reply.json::<Vec<Value>>()?, &what);
            let recent = found
                .into_iter()
                .filter_map(|it| self.recent(it, of, &login));
            Ok(recent.collect())
        };
        let (found, since) = self.client.kept_first(kept, list, commands).await?;
        if since != Since::Same && !found.is_empty() {
            // Another repository may have the name now.
            self.repo_of(of).await?;
        }
        Ok(found.to_vec())
    }

    /// A comment that addresses the fleet.
    fn recent(&self, listed: Listed, of: &ItemRef, login: &str) -> Option<RecentComment> {
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
        let body = body.unwrap_or_default();
        Addressed::by(&body)?;
        let author = user.map_or_else(Person::ghost, wire::person_of);
        let comment = Comment {
            id: id.to_string(),
            ours: self.is_ours(&author.login, login),
            author,
            kind: CommentKind::Plain,
            body,
            created_at,
        };
        Some(RecentComment { item, comment })
    }

    /// GitHub answers a second reaction of the same kind and person with the first one.
    pub(super) async fn react(
        &self,
        item: &ItemRef,
        comment: &Comment,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let what = format!("comment {}", comment.id);
        let list = match comment.kind {
            CommentKind::Plain => "issues",
            CommentKind::OnLine { .. } => "pulls",
            CommentKind::Review { .. } => return Err(refused(format!("{what} is a review"))),
        };
        let item = self.current(item).await?;
        let place = [list, "comments", &comment.id, "reactions"];
        let url = self.repo_url(&item.repo_path, &place)?;
        let body = json!({ "content": REACTION });
        let call = Call::write(Method::POST, url, permit).json(&body);
        let reply = around("tracker.reaction_create", self.client.send(&call)).await?;
        reply.ok(&what).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_on_what_its_page_says() {
        for (page, kind) in [
            ("https://github.com/octo/demo/pull/7", ItemKind::PullRequest),
            ("https://github.com/octo/demo/issues/7", ItemKind::Issue),
            ("https://github.com/octo/pull/issues/7", ItemKind::Issue),
            ("https://github.com/octo/pull/pull/7", ItemKind::PullRequest),
        ] {
            let kind_of = kind_of(&format!("{page}#issuecomment-1"));
            assert_eq!(kind_of, kind, "{page}");
        }
    }
}
