//! In which projects of a group somebody may have written: two lists, instead of one for each project.
//!
//! A note changes the time of its item, but not within a minute of another change. So what changed in [`CLOCK_SKEW`] before
//! the latest look counts again.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use agentmine_domain::ItemRef;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;

use super::api::Api;
use super::candidates::is_below;
use super::lists::{CLOCK_SKEW, whole_seconds};
use crate::error::TrackerError;
use crate::forge::{Reply, concerns_one, may_concern_one};

/// So few projects of a group are checked without its lists.
const FEW: usize = 2;

/// When it was asked last what is new.
#[derive(Debug, Default)]
pub(super) struct News(Mutex<Option<DateTime<Utc>>>);

#[derive(Debug, Deserialize)]
struct Changed {
    project_id: u64,
}

impl News {
    /// Those of these projects in which somebody may have written since the latest call; at first all of them.
    pub(super) async fn among(
        &self,
        api: &Api,
        groups: &[String],
        mut projects: Vec<ItemRef>,
    ) -> Result<Vec<ItemRef>, TrackerError> {
        let now = Utc::now();
        let Some(last) = *self.last() else {
            *self.last() = Some(now);
            return Ok(projects);
        };
        let mut news = Vec::new();
        // By the server's clock, which may differ by more than what the next look goes back.
        let mut read_at = now;
        let mut silent = 0;
        for group in groups {
            let is_in = |it: &ItemRef| is_below(&it.repo_path, group);
            let (own, others) = projects.into_iter().partition::<Vec<_>, _>(is_in);
            projects = others;
            if own.len() <= FEW {
                news.extend(own);
                continue;
            }
            match api.changed_projects(group, last - CLOCK_SKEW).await {
                Ok((changed, at)) => {
                    read_at = read_at.min(at.unwrap_or(now));
                    let own = own.into_iter();
                    news.extend(own.filter(|it| changed.contains(&it.repo_id)));
                }
                Err(error) if concerns_one(&error) => news.extend(own),
                // The next look asks again from where this one would have begun.
                Err(error) if may_concern_one(&error, &mut silent) => {
                    tracing::debug!(group, %error, "the changes in a group cannot be read");
                    read_at = read_at.min(last);
                }
                Err(error) => return Err(error),
            }
        }
        news.extend(projects);
        *self.last() = Some(read_at);
        Ok(news)
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<DateTime<Utc>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Api {
    /// The ids of the projects of a group with an item that changed since, and the server's time before.
    async fn changed_projects(
        &self,
        group: &str,
        since: DateTime<Utc>,
    ) -> Result<(HashSet<String>, Option<DateTime<Utc>>), TrackerError> {
        let mut ids = HashSet::new();
        let mut asked = None;
        for list in ["issues", "merge_requests"] {
            let mut url = self.client.url(["groups", group, list]);
            url.query_pairs_mut()
                .append_pair("scope", "all")
                .append_pair("state", "all")
                .append_pair("order_by", "updated_at")
                .append_pair("sort", "asc")
                .append_pair("per_page", "100")
                .append_pair("updated_after", &whole_seconds(since));
            let what = format!("what changed in the {list} of group {group}");
            let take = |reply: &Reply| {
                asked = asked.or(reply.server_time());
                let page = reply.json::<Vec<Value>>()?;
                let changed = self.client.fitting::<Changed>(page, &what).into_iter();
                ids.extend(changed.map(|it| it.project_id.to_string()));
                Ok(())
            };
            self.client.each_page(url, &what, take).await?;
        }
        Ok((ids, asked))
    }
}
