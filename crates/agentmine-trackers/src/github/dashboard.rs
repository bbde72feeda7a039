//! The issue of AgentMine that shows the tasks of a repository.
//!
//! It is looked for among the issues of our account. Those of an App are looked for among all issues: the filter by creator finds
//! none of them on some servers.

use agentmine_domain::ItemRef;
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use http::Method;
use serde_json::{Value, json};

use super::api::{Api, MAX_TEXT};
use super::wire::{Issue, login_of};
use crate::error::TrackerError;
use crate::forge::{Budget, Call, IssueList, OpenedIssue, Reply, concerns_one, found_or_opened};
use crate::item::{NewIssue, OurIssue};
use crate::marker;

/// The issues of a repository, by an item that has its current path.
struct Issues<'a> {
    api: &'a Api,
    of: &'a ItemRef,
    new: &'a NewIssue<'a>,
}

impl Api {
    pub(super) async fn issue_of_ours(
        &self,
        of: &ItemRef,
        new: &NewIssue<'_>,
        permit: &Permit,
    ) -> Result<OurIssue, TrackerError> {
        let of = &self.current(of).await?;
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
        let item = &self.current(item).await?;
        let body = json!({ "body": marker::cut(body, MAX_TEXT) });
        let call = Call::write(Method::PATCH, self.item_url(item, &[])?, permit).json(&body);
        let reply = around("tracker.issue_edit", self.client.send(&call)).await?;
        let issue: Issue = reply.ok(&item.to_string())?.json()?;
        Ok(issue.updated_at)
    }

    /// Whose issues are listed: those of our account, which has the name `login`, and of its former ones. `None` is everybody.
    fn creators<'a>(&'a self, login: &'a str) -> Vec<Option<&'a str>> {
        let former = self.former_logins.iter().map(String::as_str);
        let ours: Vec<&str> = std::iter::once(login).chain(former).collect();
        match ours.iter().any(|login| login.ends_with("[bot]")) {
            true => vec![None],
            false => ours.into_iter().map(Some).collect(),
        }
    }
}

#[async_trait]
impl IssueList for Issues<'_> {
    async fn find(&self, marker: &str) -> Result<Option<u64>, TrackerError> {
        let api = self.api;
        let login = api.own_login().await?;
        let what = format!("the issues of {}", self.of.repo_path);
        let mut first = None;
        for creator in api.creators(&login) {
            let mut url = api.repo_url(&self.of.repo_path, &["issues"])?;
            url.query_pairs_mut()
                .append_pair("state", "all")
                .append_pair("sort", "created")
                .append_pair("direction", "asc")
                .append_pair("per_page", "100");
            if let Some(creator) = creator {
                url.query_pairs_mut().append_pair("creator", creator);
            }
            let take = |reply: &Reply| {
                let page = api
                    .client
                    .fitting::<Issue>(reply.json::<Vec<Value>>()?, &what);
                for issue in page {
                    let carries = issue.body.as_ref().is_some_and(|it| it.contains(marker));
                    let is_issue = issue.pull_request.is_none();
                    if carries && is_issue && api.is_ours(&login_of(issue.user), &login) {
                        first = Some(first.map_or(issue.number, |it: u64| it.min(issue.number)));
                    }
                }
                Ok(())
            };
            let is_own = creator.is_none_or(|creator| creator == login);
            match api.client.each_page(url, &what, take).await {
                // There is no account of that name any more.
                Err(error) if !is_own && concerns_one(&error) => {
                    tracing::debug!(?creator, %error, "the issues of a former account cannot be listed");
                }
                read => {
                    read?;
                }
            }
        }
        Ok(first)
    }

    async fn open(&self, budget: &Budget<'_>) -> Result<OpenedIssue, TrackerError> {
        let url = self.api.repo_url(&self.of.repo_path, &["issues"])?;
        let NewIssue { title, body, .. } = self.new;
        let body = json!({ "title": title, "body": marker::cut(body, MAX_TEXT) });
        let call = Call::write(Method::POST, url, budget.permit).json(&body);
        let sent = self.api.client.send_once(&call, &budget.attempts);
        let sent = around("tracker.issue_create", sent).await?;
        let made = sent.made(&format!("repository {}", self.of.repo_path))?;
        Ok(made.map_or_else(OpenedIssue::Look, |issue: Issue| {
            OpenedIssue::Yes(OurIssue::Opened {
                number: issue.number,
                at: issue.updated_at,
            })
        }))
    }
}
