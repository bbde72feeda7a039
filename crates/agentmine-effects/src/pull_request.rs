//! Opens and updates the pull request.

use agentmine_domain::EffectKey;
use agentmine_runtime::failpoint::Guard;
use agentmine_store::EffectState;
use agentmine_trackers::{NewPullRequest, PullRequest};
use serde::{Deserialize, Serialize};

use crate::{EffectError, Effects};

/// The record of an opened pull request.
#[derive(Serialize, Deserialize)]
struct Opened {
    number: u64,
    url: String,
    /// The commit that its text reports on.
    commit: String,
    /// What is missing, if the result is only partial.
    #[serde(default)]
    missing: Option<String>,
}

/// The pull request that an earlier attempt opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierPullRequest {
    /// The pull request as it is now.
    pub pull: PullRequest,
    /// What its text reports as missing. `None` also if the attempt died before that was recorded.
    pub missing: Option<String>,
}

impl Effects {
    /// Opens the pull request. If an earlier attempt already opened it, updates its text unless it
    /// already reports on `commit`. `missing` is set if the result is partial.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn pull_request(
        &self,
        new: &NewPullRequest,
        commit: &str,
        missing: Option<&str>,
    ) -> Result<PullRequest, EffectError> {
        let key = EffectKey::pull_request(&new.head);
        let reported = match self.begin(&key).await? {
            EffectState::Done(result) => Some(opened(&key, result)?.commit),
            EffectState::Fresh | EffectState::Unsure => None,
        };
        let item = &self.task.item;
        let found = match Guard::LookUp.is_off() {
            false => self.tracker.find_pull_request(item, &new.head).await?,
            true => None,
        };
        let pull = match found {
            Some(pull) => {
                if pull.open && reported.as_deref() != Some(commit) {
                    self.tracker
                        .update_pull_request(item, pull.number, new, &self.permit)
                        .await?;
                }
                pull
            }
            None => {
                self.tracker
                    .create_pull_request(item, new, &self.permit)
                    .await?
            }
        };
        let record = Opened {
            number: pull.number,
            url: pull.url.clone(),
            commit: commit.to_owned(),
            missing: missing.map(ToOwned::to_owned),
        };
        let record = serde_json::to_value(&record).map_err(unreadable(&key))?;
        self.done(&key, &record).await?;
        Ok(pull)
    }

    /// The pull request from `head` that an earlier attempt opened; `None` if no attempt began to, or the
    /// tracker has none. If the tracker does not answer, it is the one that was recorded.
    ///
    /// # Errors
    /// Returns errors of the store, and of the tracker if nothing was recorded.
    pub async fn earlier_pull_request(
        &self,
        head: &str,
    ) -> Result<Option<EarlierPullRequest>, EffectError> {
        let key = EffectKey::pull_request(head);
        let record = match self.store.effect(self.task.id, &key).await? {
            None => return Ok(None),
            Some(EffectState::Fresh | EffectState::Unsure) => None,
            Some(EffectState::Done(result)) => Some(opened(&key, result)?),
        };
        let found = self.tracker.find_pull_request(&self.task.item, head).await;
        let found = match (found, &record) {
            (Ok(found), _) => found,
            (Err(error), Some(record)) => {
                tracing::warn!(task.id = %self.task.id, %error, "the pull request cannot be looked up; its record is used");
                Some(PullRequest {
                    number: record.number,
                    url: record.url.clone(),
                    open: true,
                })
            }
            (Err(error), None) => return Err(error.into()),
        };
        let missing = record.and_then(|record| record.missing);
        Ok(found.map(|pull| EarlierPullRequest { pull, missing }))
    }
}

fn opened(key: &EffectKey, result: serde_json::Value) -> Result<Opened, EffectError> {
    serde_json::from_value(result).map_err(unreadable(key))
}

fn unreadable(key: &EffectKey) -> impl Fn(serde_json::Error) -> EffectError {
    move |detail| EffectError::Record {
        effect: key.to_string(),
        detail,
    }
}
