//! Merge requests: found by their source branch, opened once.

use agentmine_domain::ItemRef;
use agentmine_domain::markdown::without_quick_actions;
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::api::{Api, MAX_TEXT};
use super::wire::{MergeRequest, is_open};
use crate::error::TrackerError;
use crate::forge::{Attempts, Call, Fault, Reply, Sent};
use crate::item::{NewPullRequest, PullRequest};
use crate::marker;

/// Characters of a title, without what makes it a draft.
const MAX_TITLE: usize = 240;
/// What makes a merge request a draft is the beginning of its title.
const DRAFT: &str = "Draft: ";
/// Other beginnings that make a draft, in lower case.
const DRAFTS: [&str; 3] = ["draft:", "[draft]", "(draft)"];

/// Whether a merge request is to be a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readiness {
    Draft,
    Ready,
}

/// What became of a request to open one.
enum Opened {
    Yes(PullRequest),
    /// One for this branch exists already, or this one was opened and the reply lost.
    Look(Fault),
}

impl Api {
    pub(super) async fn find_pull_request(
        &self,
        item: &ItemRef,
        head: &str,
        attempts: &Attempts,
    ) -> Result<Option<PullRequest>, TrackerError> {
        let mut url = self.project_url(&item.repo_id, &["merge_requests"]);
        url.query_pairs_mut()
            .append_pair("source_branch", head)
            .append_pair("state", "all")
            .append_pair("scope", "all")
            .append_pair("order_by", "created_at")
            .append_pair("sort", "desc")
            .append_pair("per_page", "100");
        let what = format!("project {}", item.repo_path);
        let found = self
            .client
            .list_within::<MergeRequest>(url, &what, attempts)
            .await?;
        // A filter that a server does not know is ignored, so the reply is checked.
        let is_own = |one: &MergeRequest| {
            let home = one.source_project_id.map(|id| id.to_string());
            one.source_branch == head && home.as_deref() == Some(item.repo_id.as_str())
        };
        let newest = found
            .into_iter()
            .filter(is_own)
            .max_by_key(|one| (is_open(&one.state), one.iid));
        Ok(newest.map(PullRequest::from))
    }

    pub(super) async fn create_pull_request(
        &self,
        item: &ItemRef,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<PullRequest, TrackerError> {
        let attempts = self.client.attempts();
        loop {
            let fault = match self.open(item, new, &attempts, permit).await? {
                Opened::Yes(opened) => return Ok(opened),
                Opened::Look(fault) => fault,
            };
            let found = self.find_pull_request(item, &new.head, &attempts).await?;
            match found.filter(|found| found.open) {
                Some(found) => return Ok(found),
                None => attempts.again(fault).await?,
            }
        }
    }

    /// Keeps its title, and with it whether it is a draft: somebody may have marked it as ready since.
    pub(super) async fn update_pull_request(
        &self,
        item: &ItemRef,
        number: u64,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let what = format!("merge request {number} of {}", item.repo_path);
        let number = number.to_string();
        let url = self.project_url(&item.repo_id, &["merge_requests", &number]);
        let body = json!({ "description": description(new) });
        let call = Call::write(Method::PUT, url, permit).json(&body);
        let sent = self.client.send(&call);
        let reply = around("tracker.pull_request_update", sent).await?;
        reply.ok(&what).map(drop)
    }

    /// Removes what makes its title that of a draft.
    pub(super) async fn mark_ready(
        &self,
        item: &ItemRef,
        number: u64,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let what = format!("merge request {number} of {}", item.repo_path);
        let url = self.project_url(&item.repo_id, &["merge_requests", &number.to_string()]);
        let reply = self.client.get(url.clone()).await?;
        let now: MergeRequest = reply.ok(&what)?.json()?;
        if !now.draft || !is_open(&now.state) {
            return Ok(());
        }
        let body = json!({ "title": title(&now.title, Readiness::Ready) });
        let call = Call::write(Method::PUT, url, permit).json(&body);
        let sent = self.client.send(&call);
        let reply = around("tracker.pull_request_ready", sent).await?;
        reply.ok(&what).map(drop)
    }

    async fn open(
        &self,
        item: &ItemRef,
        new: &NewPullRequest,
        attempts: &Attempts,
        permit: &Permit,
    ) -> Result<Opened, TrackerError> {
        let url = self.project_url(&item.repo_id, &["merge_requests"]);
        let readiness = match new.draft {
            true => Readiness::Draft,
            false => Readiness::Ready,
        };
        let body = json!({
            "title": title(&new.title, readiness),
            "description": description(new),
            "source_branch": new.head,
            "target_branch": new.base,
        });
        let call = Call::write(Method::POST, url, permit).json(&body);
        let sent = self.client.send_once(&call, attempts);
        let reply = match around("tracker.pull_request_create", sent).await? {
            Sent::Reply(reply) => reply,
            Sent::Unknown(fault) => return Ok(Opened::Look(fault)),
        };
        // Other conflicts are final: source and target are the same branch.
        let said = reply.message();
        if reply.status == StatusCode::CONFLICT && said.contains("already exists") {
            return Ok(Opened::Look(Fault::new(said)));
        }
        // The push of a moment ago may not be shown yet, and the default branch may have been renamed.
        if names_no_branch(&reply) {
            return Ok(Opened::Look(Fault::new(format!("merge request: {said}"))));
        }
        let made = reply.made(&format!("project {}", item.repo_path))?;
        Ok(made.map_or_else(Opened::Look, |it: MergeRequest| Opened::Yes(it.into())))
    }
}

/// Whether a branch is what the server does not know: `message: {source_branch: ["does not exist"]}`, or `target_branch`.
fn names_no_branch(reply: &Reply) -> bool {
    let answer = reply.json::<Value>().unwrap_or_default();
    let message = &answer["message"];
    let mut said = [&message["source_branch"], &message["target_branch"]]
        .into_iter()
        .filter_map(Value::as_array)
        .flatten();
    said.any(|it| it.as_str().is_some_and(|it| it.contains("does not exist")))
}

fn description(new: &NewPullRequest) -> String {
    without_quick_actions(&marker::cut(&new.body, MAX_TEXT))
}

/// A title that says what is wanted, whatever it began with.
fn title(text: &str, readiness: Readiness) -> String {
    let mut rest = text.trim_start();
    while let Some(begin) = DRAFTS
        .iter()
        .filter_map(|draft| rest.get(..draft.len()))
        .find(|begin| DRAFTS.contains(&begin.to_lowercase().as_str()))
    {
        rest = rest[begin.len()..].trim_start();
    }
    let rest: String = rest.chars().take(MAX_TITLE).collect();
    match readiness {
        Readiness::Draft => format!("{DRAFT}{rest}"),
        // GitLab refuses an empty title.
        Readiness::Ready if rest.is_empty() => text.trim().trim_end_matches(':').to_owned(),
        Readiness::Ready => rest,
    }
}

impl From<MergeRequest> for PullRequest {
    fn from(found: MergeRequest) -> Self {
        Self {
            number: found.iid,
            open: is_open(&found.state),
            merged: found.state == "merged",
            url: found.web_url,
            head_sha: found.sha.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_makes_a_draft_only_if_wanted() {
        for (text, ready, draft) in [
            ("Fix it", "Fix it", "Draft: Fix it"),
            ("draft: [Draft] Fix it", "Fix it", "Draft: Fix it"),
            ("Drafting rules", "Drafting rules", "Draft: Drafting rules"),
            ("Draft:", "Draft", "Draft: "),
            ("größer", "größer", "Draft: größer"),
        ] {
            assert_eq!(title(text, Readiness::Ready), ready);
            assert_eq!(title(text, Readiness::Draft), draft);
        }
    }
}
