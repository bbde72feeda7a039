//! The search for items of repositories that are not configured.
//!
//! It is the last part of a scan. What it found before it was ended, as by a rate limit, is used.

use serde_json::Value;

use super::api::Api;
use super::candidates::{Asking, Scan};
use super::fault::hidden_by_sign_on;
use super::wire::{Issue, SearchPage};
use crate::error::TrackerError;
use crate::forge::{Dated, Found, concerns_one};

/// What its fault is reported by.
const SEARCH: &str = "the search";
/// The name under which omitted organizations are reported.
const OMITTED: &str = "organizations in the search";

/// What was read so far.
#[derive(Default)]
struct Read {
    dated: Vec<Dated>,
    /// That some organizations are omitted.
    omitted: Option<TrackerError>,
}

impl Scan {
    /// Adds open items with the label that are searched for.
    ///
    /// # Errors
    /// What concerns all that is scanned, but no limit: nothing is read after the search.
    pub(super) async fn add_searched(
        &self,
        api: &Api,
        query: &str,
        label: &str,
        found: &mut Found<'_>,
    ) -> Result<(), TrackerError> {
        let mut read = Read::default();
        let search = self.search(api, query, label, &mut read);
        let url = api.client.url(["search", "issues"]);
        let (holder, ended) = api.unless_limited(url, found, search).await;
        found.keep(read.dated);
        // One that names its places lacks none of another organization.
        let names_places = ["org:", "user:", "repo:"]
            .iter()
            .any(|it| query.contains(it));
        match read.omitted {
            Some(error) if !names_places => found.leave_out(OMITTED, error),
            Some(_) | None if ended.is_ok() => found.readable(OMITTED),
            Some(_) | None => {}
        }
        match ended {
            Err(error @ TrackerError::RateLimited { .. }) => {
                found.leave_out(SEARCH, error);
                Ok(())
            }
            ended => found.add(holder, SEARCH, ended.map(|()| Vec::new())),
        }
    }

    async fn search(
        &self,
        api: &Api,
        query: &str,
        label: &str,
        read: &mut Read,
    ) -> Result<(), TrackerError> {
        // Newer versions of the API refuse a search without one of the two.
        for kind in ["is:issue", "is:pull-request"] {
            let mut items = Vec::new();
            let ended = search_kind(api, kind, query, label, &mut items).await;
            for issue in api.client.fitting::<Issue>(items, "search") {
                read.dated.extend(self.searched(api, issue, label).await?);
            }
            if let Some(error) = ended? {
                read.omitted.get_or_insert(error);
            }
        }
        Ok(())
    }

    /// What a result of the search came to.
    async fn searched(
        &self,
        api: &Api,
        issue: Issue,
        label: &str,
    ) -> Result<Option<Dated>, TrackerError> {
        let Some(path) = issue.repo_path() else {
            tracing::warn!(
                number = issue.number,
                "a search result is skipped: it names no repository"
            );
            return Ok(None);
        };
        let repo = match api.repo_at(&path).await {
            Ok(repo) => repo,
            Err(error) if concerns_one(&error) => {
                tracing::warn!(repository = %path, %error, "a search result is skipped");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if repo.archived {
            tracing::debug!(repository = %path, "a search result is skipped: its repository is archived");
            return Ok(None);
        }
        if !issue.asks_by(label) {
            return Ok(None);
        }
        let item = Asking::from(issue);
        self.candidate(api, &repo, &item, label, None).await
    }
}

/// Adds what is found of one kind, page by page. Returns what is omitted.
async fn search_kind(
    api: &Api,
    kind: &str,
    query: &str,
    label: &str,
    items: &mut Vec<Value>,
) -> Result<Option<TrackerError>, TrackerError> {
    let quoted = label.replace('\\', "\\\\").replace('"', "\\\"");
    let mut url = api.client.url(["search", "issues"]);
    url.query_pairs_mut()
        .append_pair("q", &format!("is:open {kind} label:\"{quoted}\" {query}"))
        .append_pair("sort", "created")
        .append_pair("order", "asc")
        .append_pair("per_page", "100");
    let mut omitted = None;
    let take = |reply: &crate::forge::Reply| {
        omitted = omitted.take().or_else(|| hidden_by_sign_on(reply));
        let page: SearchPage = reply.json()?;
        if page.incomplete_results {
            tracing::warn!("GitHub's search result is incomplete; the next scan searches again");
        }
        items.extend(page.items);
        Ok(())
    };
    api.client.take_pages(url, "search", take).await?;
    Ok(omitted)
}
