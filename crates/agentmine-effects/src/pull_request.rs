//! Opens and updates the pull request.

use std::collections::BTreeSet;

use agentmine_domain::{EffectKey, ItemKind, PullRequestRecord};
use agentmine_runtime::failpoint::Guard;
use agentmine_store::EffectState;
use agentmine_trackers::{NewPullRequest, PullRequest};
use serde::{Deserialize, Serialize};

use crate::error::unreadable;
use crate::{EffectError, Effects};

/// The record of an opened pull request.
#[derive(Serialize, Deserialize)]
struct Opened {
    #[serde(flatten)]
    pull: PullRequestRecord,
    /// The commit that its text reports on.
    commit: String,
    /// What is missing, if the result is only partial.
    #[serde(default)]
    missing: Option<String>,
    /// Whether somebody else pushed to its branch while the task worked on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    others_pushed: bool,
    /// See [`ReportedCommit::heard`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    heard: Option<BTreeSet<String>>,
}

/// Who pushed to the branch of a pull request since the request for the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushers {
    /// Nobody but the task.
    Us,
    /// Somebody else, perhaps beside the task.
    Others,
}

impl Pushers {
    /// Whether others pushed decides.
    #[must_use]
    pub fn of(others_pushed: bool) -> Self {
        match others_pushed {
            true => Self::Others,
            false => Self::Us,
        }
    }
}

/// The commit that a result was reported on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedCommit {
    /// Its name.
    pub commit: String,
    /// Who made it, or what is below it.
    pub pushers: Pushers,
    /// The ids of the remarks of people that a task on a pull request was given; `None` if they are not recorded here, as of a
    /// round.
    pub heard: Option<BTreeSet<String>>,
}

/// What a pull request is about to say, recorded before it is sent: a worker that dies between the request and
/// the record of its answer leaves it to the next one.
#[derive(Serialize, Deserialize)]
struct Text {
    #[serde(default)]
    commit: String,
    #[serde(default)]
    missing: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    others_pushed: bool,
    /// All of it, where the pull request is there without a result: the worker that takes over writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    whole: Option<Whole>,
}

/// A pull request's title and text.
#[derive(Serialize, Deserialize)]
struct Whole {
    base: String,
    title: String,
    body: String,
    draft: bool,
}

/// The result of a task, as far as it is recorded.
pub(crate) enum RecordedResult {
    /// What was reported.
    Known {
        /// The commit.
        commit: String,
        /// What is missing, if the result is partial.
        missing: Option<String>,
    },
    /// An attempt began to leave a result, and nobody recorded that it did.
    Unsure,
    /// No attempt began to leave one.
    Absent,
}

/// The pull request with the result of an earlier attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierPullRequest {
    /// The pull request as it is now.
    pub pull: PullRequest,
    /// What its text reports as missing.
    pub missing: Option<String>,
    /// The commit of the result; `None` if nobody recorded it.
    pub commit: Option<String>,
}

impl EarlierPullRequest {
    /// Whether somebody merged it before the result was pushed.
    #[must_use]
    pub fn was_merged_before(&self) -> bool {
        let commit = self.commit.as_deref();
        commit.is_some_and(|commit| self.pull.was_merged_without(commit))
    }

    /// What is missing in a task that ends with this result; `failure` is why no later attempt finished the work.
    #[must_use]
    pub fn missing_after(self, failure: Option<&str>) -> Option<String> {
        let failed = failure.map(|why| format!("- a later attempt failed: {}", why.trim()));
        let missing: Vec<String> = self.missing.into_iter().chain(failed).collect();
        (!missing.is_empty()).then(|| missing.join("\n"))
    }
}

impl Effects {
    /// Opens the pull request. If an earlier attempt already opened it, updates its text unless that reports this result of
    /// the same commit already: checks that ran again may have ended differently. `missing` is set if the result is partial. Nothing
    /// is recorded of one that was merged without the commit ([`PullRequest::was_merged_without`]).
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn pull_request(
        &self,
        new: &NewPullRequest,
        result: &ReportedCommit,
        missing: Option<&str>,
    ) -> Result<PullRequest, EffectError> {
        let commit = &*result.commit;
        let key = EffectKey::pull_request(&new.head);
        let reported = match self.begin(&key).await? {
            EffectState::Done(result) => Some(opened(&key, result)?),
            EffectState::Fresh | EffectState::Unsure => None,
        };
        let is_outdated = reported
            .as_ref()
            .is_none_or(|it| it.commit != commit || it.missing.as_deref() != missing);
        let missed = match reported {
            Some(it) => it.missing,
            // It may have been opened all the same.
            None => self
                .announced_text(&new.head)
                .await?
                .and_then(|it| it.missing),
        };
        let draft = EffectKey::pull_request_draft(&new.head);
        let began = self.store.effect(self.task.id, &draft).await?.is_some();
        self.announce_text(&new.head, (result, missing), began.then_some(new))
            .await?;
        let item = &self.task.item;
        let found = match Guard::LookUp.is_off() {
            false => self.tracker.find_pull_request(item, &new.head).await?,
            true => None,
        };
        let pull = match found {
            // What was pushed after that is in no pull request.
            Some(pull) if pull.was_merged_without(commit) => return Ok(pull),
            Some(pull) => {
                if pull.open && is_outdated {
                    self.tracker
                        .update_pull_request(item, pull.number, new, &self.permit)
                        .await?;
                    // One that was opened when the work began becomes ready with the report.
                    if missed.is_some() && missing.is_none() && !began {
                        self.mark_as_ready(pull.number).await?;
                    }
                }
                pull
            }
            None => {
                self.tracker
                    .create_pull_request(item, new, &self.permit)
                    .await?
            }
        };
        self.done(&key, &opened_record(&pull, result, missing))
            .await?;
        Ok(pull)
    }

    /// Records that the measured result is on the branch of the pull request that is the item. From then on the
    /// task does not fail any more: it has one more claim that only reports, like a task that opened one.
    ///
    /// # Errors
    /// Returns errors of the store.
    pub async fn pushed_result(
        &self,
        result: &ReportedCommit,
        missing: Option<&str>,
    ) -> Result<(), EffectError> {
        let key = EffectKey::pull_request(&self.task.branch());
        self.begin(&key).await?;
        self.announce_text(&self.task.branch(), (result, missing), None)
            .await?;
        let record = opened_record(&self.own_pull_request(), result, missing);
        self.done(&key, &record).await
    }

    async fn announce_text(
        &self,
        head: &str,
        (result, missing): (&ReportedCommit, Option<&str>),
        whole: Option<&NewPullRequest>,
    ) -> Result<(), EffectError> {
        let key = EffectKey::pull_request_text(head);
        let text = Text {
            commit: result.commit.clone(),
            missing: missing.map(ToOwned::to_owned),
            others_pushed: result.pushers == Pushers::Others,
            whole: whole.map(|new| Whole {
                base: new.base.clone(),
                title: new.title.clone(),
                body: new.body.clone(),
                draft: new.draft,
            }),
        };
        self.done(&key, &text).await
    }

    /// The pull request that is the item of this task.
    fn own_pull_request(&self) -> PullRequest {
        PullRequest {
            number: self.task.item.number,
            url: self.task.url.clone(),
            open: true,
            merged: false,
            head_sha: String::new(),
        }
    }

    /// Whether an attempt began to leave a result in a pull request, and nobody recorded that it did.
    pub(crate) async fn result_is_unsure(&self) -> Result<bool, EffectError> {
        let key = EffectKey::pull_request(&self.task.branch());
        let state = self.store.effect(self.task.id, &key).await?;
        Ok(matches!(state, Some(EffectState::Unsure)))
    }

    /// The result of this task, as far as it is recorded.
    pub(crate) async fn recorded_result(&self) -> Result<RecordedResult, EffectError> {
        let key = EffectKey::pull_request(&self.task.branch());
        Ok(match self.store.effect(self.task.id, &key).await? {
            Some(EffectState::Done(result)) => {
                let Opened {
                    commit, missing, ..
                } = opened(&key, result)?;
                RecordedResult::Known { commit, missing }
            }
            Some(EffectState::Fresh | EffectState::Unsure) => RecordedResult::Unsure,
            None => RecordedResult::Absent,
        })
    }

    /// The pull request with the result of an earlier attempt; `None` if no attempt began to open it, or the
    /// tracker has none. If the tracker does not answer, it is the one that was recorded.
    ///
    /// # Errors
    /// Returns errors of the store, and of the tracker if nothing was recorded.
    pub async fn earlier_pull_request(&self) -> Result<Option<EarlierPullRequest>, EffectError> {
        let head = &self.task.branch();
        let key = EffectKey::pull_request(head);
        let record = match self.store.effect(self.task.id, &key).await? {
            None => return Ok(None),
            Some(EffectState::Fresh | EffectState::Unsure) => None,
            Some(EffectState::Done(result)) => Some(opened(&key, result)?),
        };
        let (commit, missing) = match &record {
            // What was announced after that was perhaps never written.
            Some(record) => (Some(record.commit.clone()), record.missing.clone()),
            None => {
                let text = self.announced_text(head).await?;
                text.map_or((None, None), |text| (Some(text.commit), text.missing))
            }
        };
        let commit = commit.filter(|it| !it.is_empty());
        if self.task.item.kind == ItemKind::PullRequest {
            // The result was on its branch before the effect began.
            let pull = self.own_pull_request();
            return Ok(Some(EarlierPullRequest {
                pull,
                missing,
                commit,
            }));
        }
        let found = self.tracker.find_pull_request(&self.task.item, head).await;
        let found = match (found, &record) {
            (Ok(found), _) => found,
            (Err(error), Some(record)) => {
                tracing::warn!(task.id = %self.task.id, %error, "the pull request cannot be looked up; its record is used");
                Some(PullRequest {
                    number: record.pull.number,
                    url: record.pull.url.clone(),
                    open: true,
                    merged: false,
                    head_sha: String::new(),
                })
            }
            (Err(error), None) => return Err(error.into()),
        };
        Ok(found.map(|pull| EarlierPullRequest {
            pull,
            missing,
            commit,
        }))
    }
}

impl Effects {
    /// Writes the text of the result on a pull request that was opened without one, if the worker that recorded that text may
    /// have died before it was written.
    pub(crate) async fn complete_text(&self, pull: &PullRequest) -> Result<(), EffectError> {
        let head = self.task.branch();
        let key = EffectKey::pull_request(&head);
        let state = self.store.effect(self.task.id, &key).await?;
        if !matches!(state, Some(EffectState::Fresh | EffectState::Unsure)) {
            return Ok(());
        }
        let Some(Text {
            commit,
            missing,
            others_pushed,
            whole: Some(whole),
        }) = self.announced_text(&head).await?
        else {
            return Ok(());
        };
        let Whole {
            base,
            title,
            body,
            draft,
        } = whole;
        let new = NewPullRequest {
            head,
            base,
            title,
            body,
            draft,
        };
        let item = &self.task.item;
        self.tracker
            .update_pull_request(item, pull.number, &new, &self.permit)
            .await?;
        let result = ReportedCommit {
            commit,
            pushers: Pushers::of(others_pushed),
            heard: None,
        };
        let record = opened_record(pull, &result, missing.as_deref());
        self.done(&key, &record).await
    }

    async fn announced_text(&self, head: &str) -> Result<Option<Text>, EffectError> {
        let key = EffectKey::pull_request_text(head);
        match self.store.effect(self.task.id, &key).await? {
            Some(EffectState::Done(text)) => {
                let text = serde_json::from_value(text).map_err(unreadable(&key))?;
                Ok(Some(text))
            }
            Some(EffectState::Fresh | EffectState::Unsure) | None => Ok(None),
        }
    }
}

fn opened_record(pull: &PullRequest, result: &ReportedCommit, missing: Option<&str>) -> Opened {
    let ReportedCommit {
        commit,
        pushers,
        heard,
    } = result;
    Opened {
        pull: PullRequestRecord {
            number: pull.number,
            url: pull.url.clone(),
        },
        commit: commit.clone(),
        missing: missing.map(ToOwned::to_owned),
        others_pushed: *pushers == Pushers::Others,
        heard: heard.clone(),
    }
}

/// The commit in the record of a result.
pub(crate) fn reported_commit(
    key: &EffectKey,
    result: serde_json::Value,
) -> Result<ReportedCommit, EffectError> {
    let opened = opened(key, result)?;
    Ok(ReportedCommit {
        commit: opened.commit,
        pushers: Pushers::of(opened.others_pushed),
        heard: opened.heard,
    })
}

fn opened(key: &EffectKey, result: serde_json::Value) -> Result<Opened, EffectError> {
    serde_json::from_value(result).map_err(unreadable(key))
}
