//! Pull requests: found by their source branch, opened once.

use agentmine_domain::ItemRef;
use http::{Method, StatusCode};
use serde_json::json;

use super::GitHubTracker;
use super::client::{Call, CallError};
use super::comments::MAX_TEXT;
use super::reply::{Reply, refused, unavailable};
use super::wire::Pull;
use crate::{NewPullRequest, PullRequest, TrackerError, marker};

/// What became of a request to open one.
enum Opened {
    Yes(PullRequest),
    /// Another one for this branch stands open, or this one was made and its answer lost.
    LookForIt(String),
    DraftsRefused,
}

impl GitHubTracker {
    pub(super) async fn find_pull(
        &self,
        item: &ItemRef,
        head: &str,
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
        let pulls = self
            .client
            .list::<Pull>(url, &format!("repository {}", repo.full_name))
            .await?;
        // A filter that GitHub does not understand is ignored, so the answer is checked.
        let newest = pulls
            .into_iter()
            .filter(|pull| pull.head.branch == head)
            .filter(|pull| pull.head.repo.as_ref().is_none_or(|own| own.id == repo.id))
            .max_by_key(|pull| (pull.state == "open", pull.number));
        Ok(newest.map(PullRequest::from))
    }

    pub(super) async fn open_pull(
        &self,
        item: &ItemRef,
        new: &NewPullRequest,
    ) -> Result<PullRequest, TrackerError> {
        let mut draft = new.draft;
        let mut tries = 0;
        loop {
            let detail = match self.try_open(item, new, draft).await? {
                Opened::Yes(pull) => return Ok(pull),
                Opened::DraftsRefused if draft => {
                    draft = false;
                    continue;
                }
                Opened::DraftsRefused => "drafts are refused".to_owned(),
                Opened::LookForIt(detail) => detail,
            };
            if let Some(pull) = self.find_pull(item, &new.head).await?
                && pull.open
            {
                return Ok(pull);
            }
            tries += 1;
            if tries >= self.client.tries() {
                return Err(unavailable(detail));
            }
            self.client.pause(tries).await;
        }
    }

    pub(super) async fn update_pull(
        &self,
        item: &ItemRef,
        number: u64,
        new: &NewPullRequest,
    ) -> Result<(), TrackerError> {
        let url = self.repo_url(&item.repo_path, &["pulls", &number.to_string()])?;
        let body = json!({
            "title": new.title.chars().take(250).collect::<String>(),
            "body": marker::cut(&new.body, MAX_TEXT),
        });
        let call = Call::new(Method::PATCH, url).json(&body);
        let what = format!("pull request {number} of {}", item.repo_path);
        match self.client.send(&call).await {
            Ok(reply) => reply.ok(&what).map(drop),
            Err(CallError::OutcomeUnknown(detail)) => Err(unavailable(detail)),
            Err(CallError::Tracker(error)) => Err(error),
        }
    }

    async fn try_open(
        &self,
        item: &ItemRef,
        new: &NewPullRequest,
        draft: bool,
    ) -> Result<Opened, TrackerError> {
        let url = self.repo_url(&item.repo_path, &["pulls"])?;
        let body = json!({
            "title": new.title.chars().take(250).collect::<String>(),
            "head": new.head,
            "base": new.base,
            "body": marker::cut(&new.body, MAX_TEXT),
            "draft": draft,
        });
        let call = Call::new(Method::POST, url).json(&body).look_first();
        let reply = match self.client.send(&call).await {
            Ok(reply) => reply,
            Err(CallError::OutcomeUnknown(detail)) => return Ok(Opened::LookForIt(detail)),
            Err(CallError::Tracker(error)) => return Err(error),
        };
        if reply.status == StatusCode::UNPROCESSABLE_ENTITY {
            return refusal(&reply);
        }
        let reply = reply.ok(&format!("repository {}", item.repo_path))?;
        Ok(match reply.json::<Pull>() {
            Ok(pull) => Opened::Yes(pull.into()),
            Err(error) => Opened::LookForIt(error.to_string()),
        })
    }
}

fn refusal(reply: &Reply) -> Result<Opened, TrackerError> {
    let said = reply.message();
    let lower = said.to_lowercase();
    if lower.contains("already exists") {
        Ok(Opened::LookForIt(said))
    } else if lower.contains("draft") {
        Ok(Opened::DraftsRefused)
    } else {
        Err(refused(format!("pull request: {said}")))
    }
}

impl From<Pull> for PullRequest {
    fn from(pull: Pull) -> Self {
        Self {
            number: pull.number,
            url: pull.html_url,
            open: pull.state == "open",
        }
    }
}
