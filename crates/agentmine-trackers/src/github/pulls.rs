//! Pull requests: found by their source branch, opened once.

use agentmine_domain::ItemRef;
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::api::{Api, MAX_TEXT};
use super::graphql::READY;
use super::wire::Pull;
use crate::error::TrackerError;
use crate::forge::{Attempts, Call, Fault, Reply, Sent};
use crate::item::{NewPullRequest, PullRequest};
use crate::marker;

/// Characters of a title.
const MAX_TITLE: usize = 250;

/// What became of a request to open one.
enum Opened {
    Yes(PullRequest),
    /// One for this branch exists already, or this one was opened and the reply lost.
    Look(Fault),
    /// The one that was requested is a draft.
    DraftsRefused,
}

impl Api {
    pub(super) async fn find_pull_request(
        &self,
        item: &ItemRef,
        head: &str,
        attempts: &Attempts,
    ) -> Result<Option<PullRequest>, TrackerError> {
        let repo = self.repo_of(item).await?;
        let owner = repo.full_name.split('/').next().unwrap_or_default();
        let mut url = self.repo_url(&repo.full_name, &["pulls"])?;
        url.query_pairs_mut()
            .append_pair("head", &format!("{owner}:{head}"))
            .append_pair("state", "all")
            .append_pair("sort", "created")
            .append_pair("direction", "desc")
            .append_pair("per_page", "100");
        let what = format!("repository {}", repo.full_name);
        let pulls = self
            .client
            .list_within::<Pull>(url, &what, attempts)
            .await?;
        // GitHub ignores a filter that it does not understand, so the reply is checked.
        let newest = pulls
            .into_iter()
            .filter(|pull| pull.head.branch == head)
            .filter(|pull| pull.head.repo.as_ref().is_none_or(|own| own.id == repo.id))
            .max_by_key(|pull| (pull.state == "open", pull.number));
        Ok(newest.map(PullRequest::from))
    }

    pub(super) async fn create_pull_request(
        &self,
        item: &ItemRef,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<PullRequest, TrackerError> {
        let item = &self.current(item).await?;
        let attempts = self.client.attempts();
        let mut draft = new.draft;
        loop {
            let fault = match self.open(item, (new, draft), &attempts, permit).await? {
                Opened::Yes(pull) => return Ok(pull),
                // The repository's plan has no drafts.
                Opened::DraftsRefused => {
                    draft = false;
                    continue;
                }
                Opened::Look(fault) => fault,
            };
            let found = self.find_pull_request(item, &new.head, &attempts).await?;
            match found.filter(|pull| pull.open) {
                Some(pull) => return Ok(pull),
                None => attempts.again(fault).await?,
            }
        }
    }

    pub(super) async fn update_pull_request(
        &self,
        item: &ItemRef,
        number: u64,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let item = &self.current(item).await?;
        let url = self.repo_url(&item.repo_path, &["pulls", &number.to_string()])?;
        let body = json!({ "body": body(new) });
        let call = Call::write(Method::PATCH, url, permit).json(&body);
        let sent = self.client.send(&call);
        let reply = around("tracker.pull_request_update", sent).await?;
        let what = format!("pull request {number} of {}", item.repo_path);
        reply.ok(&what).map(drop)
    }

    /// Marks it as ready for review, which REST cannot.
    pub(super) async fn mark_ready(
        &self,
        item: &ItemRef,
        number: u64,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let item = self.current(item).await?;
        let what = format!("pull request {number} of {}", item.repo_path);
        let url = self.repo_url(&item.repo_path, &["pulls", &number.to_string()])?;
        let pull: Pull = self.client.get(url).await?.ok(&what)?.json()?;
        if !pull.draft || pull.state != "open" {
            return Ok(());
        }
        let change = (READY, json!({ "pull": pull.node_id }));
        let sent = self.change_by_graphql(change, &item.repo_path, &what, permit);
        around("tracker.pull_request_ready", sent).await
    }

    async fn open(
        &self,
        item: &ItemRef,
        (new, draft): (&NewPullRequest, bool),
        attempts: &Attempts,
        permit: &Permit,
    ) -> Result<Opened, TrackerError> {
        let url = self.repo_url(&item.repo_path, &["pulls"])?;
        let body = json!({
            "title": new.title.chars().take(MAX_TITLE).collect::<String>(),
            "body": body(new),
            "head": new.head,
            "base": new.base,
            "draft": draft,
        });
        let call = Call::write(Method::POST, url, permit).json(&body);
        let sent = self.client.send_once(&call, attempts);
        let reply = match around("tracker.pull_request_create", sent).await? {
            Sent::Reply(reply) => reply,
            Sent::Unknown(fault) => return Ok(Opened::Look(fault)),
        };
        if reply.status == StatusCode::UNPROCESSABLE_ENTITY {
            return refusal(&reply, draft);
        }
        let made = reply.made(&format!("repository {}", item.repo_path))?;
        Ok(made.map_or_else(Opened::Look, |pull: Pull| Opened::Yes(pull.into())))
    }
}

fn body(new: &NewPullRequest) -> String {
    marker::cut(&new.body, MAX_TEXT)
}

fn refusal(reply: &Reply, is_draft: bool) -> Result<Opened, TrackerError> {
    let said = reply.message();
    let lower = said.to_lowercase();
    if lower.contains("already exists") {
        Ok(Opened::Look(Fault::new(said)))
    } else if names_no_branch(reply) {
        // The API may not show the push of a moment ago yet, and the default branch may have been renamed.
        Ok(Opened::Look(Fault::new(format!("pull request: {said}"))))
    } else if is_draft && lower.contains("draft pull requests") {
        Ok(Opened::DraftsRefused)
    } else {
        Err(reply.refusal("pull request"))
    }
}

/// Whether a branch is what the API does not know: `errors: [{field: head, code: invalid}]`, or `base`.
fn names_no_branch(reply: &Reply) -> bool {
    let errors = reply.json::<Value>().unwrap_or_default();
    let mut errors = errors["errors"].as_array().into_iter().flatten();
    errors.any(|it| (it["field"] == "head" || it["field"] == "base") && it["code"] == "invalid")
}

impl From<Pull> for PullRequest {
    fn from(pull: Pull) -> Self {
        Self {
            number: pull.number,
            url: pull.html_url,
            open: pull.state == "open",
            merged: pull.merged_at.is_some(),
            head_sha: pull.head.sha.unwrap_or_default(),
        }
    }
}
