//! The issue of AgentMine that shows the tasks of a project.

use agentmine_domain::ItemRef;
use agentmine_domain::markdown::without_quick_actions;
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Api, MAX_TEXT};
use super::wire::Item;
use crate::error::TrackerError;
use crate::forge::{Budget, Call, IssueList, OpenedIssue, Reply, found_or_opened};
use crate::item::{NewIssue, OurIssue};
use crate::marker;

/// Issues that one request names.
const AT_ONCE: usize = 50;

/// The issues of a project.
struct Issues<'a> {
    api: &'a Api,
    of: &'a ItemRef,
    new: &'a NewIssue<'a>,
}

#[derive(Debug, Deserialize)]
struct Confidential {
    iid: u64,
    confidential: bool,
}

impl Api {
    pub(super) async fn issue_of_ours(
        &self,
        of: &ItemRef,
        new: &NewIssue<'_>,
        permit: &Permit,
    ) -> Result<OurIssue, TrackerError> {
        let budget = Budget {
            attempts: self.client.attempts(),
            permit,
        };
        let list = Issues { api: self, of, new };
        found_or_opened(&list, new.marker, &budget).await
    }

    pub(super) async fn edit_issue(
        &self,
        item: &ItemRef,
        body: &str,
        permit: &Permit,
    ) -> Result<DateTime<Utc>, TrackerError> {
        let body = json!({ "description": text(body) });
        let call = Call::write(Method::PUT, self.item_url(item, &[]), permit).json(&body);
        let reply = around("tracker.issue_edit", self.client.send(&call)).await?;
        let issue: Item = reply.ok(&item.to_string())?.json()?;
        Ok(issue.updated_at)
    }

    /// Those of these issues that are confidential.
    pub(super) async fn confidential(
        &self,
        of: &ItemRef,
        numbers: &[u64],
    ) -> Result<Vec<u64>, TrackerError> {
        let mut found = Vec::new();
        for some in numbers.chunks(AT_ONCE) {
            let mut url = self.project_url(&of.repo_id, &["issues"]);
            url.query_pairs_mut()
                .append_pair("confidential", "true")
                .append_pair("scope", "all")
                .append_pair("state", "all")
                .append_pair("per_page", "100");
            for number in some {
                url.query_pairs_mut()
                    .append_pair("iids[]", &number.to_string());
            }
            let what = format!("the confidential issues of {}", of.repo_path);
            let page = self.client.list::<Confidential>(url, &what).await?;
            let page = page.into_iter().filter(|it| it.confidential);
            found.extend(page.map(|it| it.iid));
        }
        Ok(found)
    }
}

fn text(body: &str) -> String {
    without_quick_actions(&marker::cut(body, MAX_TEXT))
}

#[async_trait]
impl IssueList for Issues<'_> {
    async fn find(&self, marker: &str) -> Result<Option<u64>, TrackerError> {
        let api = self.api;
        let me = api.me().await?.id;
        let what = format!("the issues of {}", self.of.repo_path);
        let former = api.former_logins.iter();
        let former = former.map(|login| ("author_username", login.clone()));
        let mut first = None;
        // All issues of a large project would be more than GitLab serves, and take longer than the hold on its dashboard.
        for (key, author) in std::iter::once(("author_id", me.to_string())).chain(former) {
            let mut url = api.project_url(&self.of.repo_id, &["issues"]);
            url.query_pairs_mut()
                .append_pair("scope", "all")
                .append_pair("state", "all")
                .append_pair("order_by", "created_at")
                .append_pair("sort", "asc")
                .append_pair("per_page", "100")
                .append_pair(key, &author);
            let take = |reply: &Reply| {
                let page = api
                    .client
                    .fitting::<Item>(reply.json::<Vec<Value>>()?, &what);
                for issue in page {
                    let carries = issue.description.is_some_and(|it| it.contains(marker));
                    let author = issue.author.as_ref();
                    let is_ours = author.is_some_and(|it| it.id == me) || api.was_ours(author);
                    if carries && is_ours {
                        first = Some(first.map_or(issue.iid, |it: u64| it.min(issue.iid)));
                    }
                }
                Ok(())
            };
            api.client.each_page(url, &what, take).await?;
        }
        Ok(first)
    }

    async fn open(&self, budget: &Budget<'_>) -> Result<OpenedIssue, TrackerError> {
        let url = self.api.project_url(&self.of.repo_id, &["issues"]);
        let NewIssue { title, body, .. } = self.new;
        let body = json!({ "title": title, "description": text(body) });
        let call = Call::write(Method::POST, url, budget.permit).json(&body);
        let sent = self.api.client.send_once(&call, &budget.attempts);
        let sent = around("tracker.issue_create", sent).await?;
        let made = sent.made(&format!("project {}", self.of.repo_path))?;
        Ok(made.map_or_else(OpenedIssue::Look, |issue: Item| {
            OpenedIssue::Yes(OurIssue::Opened {
                number: issue.iid,
                at: issue.updated_at,
            })
        }))
    }
}
