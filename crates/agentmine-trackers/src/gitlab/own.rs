//! The open merge requests that the bot opened: one list for all projects, and one more for each of its former accounts.
//!
//! As long as it fits on one page, the whole is requested each time. A longer list is asked for its changes, and as a
//! whole again once it is [`WHOLE_LIST`] old: what was deleted is not among the changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agentmine_domain::ItemRef;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use super::api::Api;
use super::lists::{CLOCK_SKEW, whole_seconds};
use super::wire::is_open;
use crate::error::TrackerError;
use crate::forge::{Extent, Reply};
use crate::rounds::{OpenPull, OpenPulls};

/// How long only the changes are requested.
const WHOLE_LIST: Duration = Duration::from_secs(600);

/// A merge request of a list.
#[derive(Debug, Deserialize)]
struct Listed {
    id: u64,
    iid: u64,
    project_id: u64,
    source_project_id: Option<u64>,
    state: String,
    web_url: String,
    source_branch: String,
    target_branch: String,
    /// Of the last push, also once the source branch is gone.
    sha: Option<String>,
    /// Also once the source branch is gone.
    #[serde(default)]
    has_conflicts: bool,
    updated_at: DateTime<Utc>,
}

impl Listed {
    fn counts(&self) -> bool {
        is_open(&self.state) && self.source_project_id == Some(self.project_id)
    }
}

impl From<Listed> for OpenPull {
    fn from(one: Listed) -> Self {
        Self {
            repo_id: one.project_id.to_string(),
            number: one.iid,
            url: one.web_url,
            head: one.source_branch,
            head_sha: one.sha.unwrap_or_default(),
            base: one.target_branch,
            updated_at: one.updated_at,
        }
    }
}

/// The list as it was when it was last asked for.
#[derive(Debug, Default)]
pub(super) struct OwnMergeRequests {
    kept: Mutex<Option<Kept>>,
    /// Of those that seem to conflict, by id: whether their source branch is gone, and when that was asked. A real
    /// conflict would cost a request in each scan.
    gone: Mutex<HashMap<u64, (Instant, bool)>>,
}

#[derive(Debug, Clone)]
struct Kept {
    whole_at: Instant,
    /// By the server's clock.
    read_at: DateTime<Utc>,
    /// By id, so the oldest is first.
    open: BTreeMap<u64, OpenPull>,
}

impl OwnMergeRequests {
    /// The open merge requests in these projects and in others.
    pub(super) async fn read(
        &self,
        api: &Api,
        repos: &[ItemRef],
    ) -> Result<OpenPulls, TrackerError> {
        if repos.is_empty() {
            return Ok(OpenPulls::default());
        }
        let known = self.kept().clone();
        let known = known.filter(|it| it.whole_at.elapsed() < WHOLE_LIST);
        let changes = known.as_ref().map(|known| known.read_at - CLOCK_SKEW);
        let (at, began) = (Instant::now(), Utc::now());
        let mut kept = known.unwrap_or_else(|| Kept {
            whole_at: at,
            read_at: began,
            open: BTreeMap::new(),
        });
        let mut asked = None;
        let (mut is_long, mut is_whole) = (changes.is_some(), true);
        let mut suspects = Vec::new();
        let former = api.former_logins.iter().map(|login| Some(login.as_str()));
        for account in std::iter::once(None).chain(former) {
            let url = list_of(api, account, changes);
            let what = "the merge requests of the token's user";
            let mut pages = 0;
            let take = |reply: &Reply| {
                pages += 1;
                asked = asked.or(reply.server_time());
                for one in api
                    .client
                    .fitting::<Listed>(reply.json::<Vec<Value>>()?, what)
                {
                    suspects.extend(one.has_conflicts.then_some(one.id));
                    match one.counts() {
                        true => drop(kept.open.insert(one.id, one.into())),
                        false => drop(kept.open.remove(&one.id)),
                    }
                }
                Ok(())
            };
            let extent = api.client.each_page(url, what, take).await?;
            is_long |= pages > 1;
            is_whole &= extent == Extent::All;
        }
        // The clocks may differ by more than what the next scan goes back.
        kept.read_at = asked.unwrap_or(began);
        let is_ours = |pull: &OpenPull| repos.iter().any(|it| it.repo_id == pull.repo_id);
        self.gone().retain(|id, _| suspects.contains(id));
        for id in suspects {
            if let Some(pull) = kept.open.get_mut(&id).filter(|pull| is_ours(pull))
                && self.lacks_branch(api, id, pull).await?
            {
                pull.head_sha.clear();
            }
        }
        let pulls = kept.open.values().cloned().collect();
        *self.kept() = (is_long && is_whole).then_some(kept);
        Ok(OpenPulls {
            pulls,
            unread: Vec::new(),
        })
    }

    async fn lacks_branch(
        &self,
        api: &Api,
        id: u64,
        pull: &OpenPull,
    ) -> Result<bool, TrackerError> {
        if let Some((at, is_gone)) = self.gone().get(&id)
            && at.elapsed() < WHOLE_LIST
        {
            return Ok(*is_gone);
        }
        let is_gone = api.lacks_branch(&pull.repo_id, &pull.head).await?;
        self.gone().insert(id, (Instant::now(), is_gone));
        Ok(is_gone)
    }

    fn gone(&self) -> std::sync::MutexGuard<'_, HashMap<u64, (Instant, bool)>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The list of an account, by its user name, or of our own.
fn list_of(api: &Api, account: Option<&str>, changes: Option<DateTime<Utc>>) -> Url {
    let mut url = api.client.url(["merge_requests"]);
    let state = changes.map_or("opened", |_| "all");
    let mut query = url.query_pairs_mut();
    match account {
        Some(login) => query
            .append_pair("scope", "all")
            .append_pair("author_username", login),
        None => query.append_pair("scope", "created_by_me"),
    };
    query
        .append_pair("state", state)
        .append_pair("order_by", "created_at")
        .append_pair("sort", "asc")
        .append_pair("per_page", "100");
    if let Some(since) = changes {
        query.append_pair("updated_after", &whole_seconds(since));
    }
    drop(query);
    url
}
