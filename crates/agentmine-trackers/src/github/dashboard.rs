//! The issue of AgentMine that shows the tasks of a repository.
//!
//! It is looked for among the issues of our account. The filter by creator finds none of an App on some servers. Only if it shows
//! nothing of the App at all, neither an issue nor a pull request, the issue is looked for among those of everybody, which in a
//! large repository are many.

use std::ops::ControlFlow;

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

    /// Whose issues are listed: those of our account, which has the name `login`, and of its former ones.
    fn creators<'a>(&'a self, login: &'a str) -> impl Iterator<Item = &'a str> {
        let former = self.former_logins.iter().map(String::as_str);
        std::iter::once(login).chain(former)
    }
}

/// What a list of issues shows of our account.
#[derive(Debug, Default)]
struct Ours {
    /// Whether it wrote anything.
    any: bool,
    /// The first issue with the marker.
    first: Option<u64>,
}

impl Issues<'_> {
    /// Reads the issues that a person created, or all of them, up to the first with the marker.
    async fn read(
        &self,
        creator: Option<&str>,
        (login, marker): (&str, &str),
    ) -> Result<Ours, TrackerError> {
        let api = self.api;
        let what = format!("the issues of {}", self.of.repo_path);
        let mut url = api.repo_url(&self.of.repo_path, &["issues"])?;
        url.query_pairs_mut()
            .append_pair("state", "all")
            .append_pair("sort", "created")
            .append_pair("direction", "asc")
            .append_pair("per_page", "100");
        if let Some(creator) = creator {
            url.query_pairs_mut().append_pair("creator", creator);
        }
        let mut ours = Ours::default();
        let take = |reply: &Reply| {
            let page = api
                .client
                .fitting::<Issue>(reply.json::<Vec<Value>>()?, &what);
            for issue in page {
                if !api.is_ours(&login_of(issue.user), login) {
                    continue;
                }
                ours.any = true;
                let carries = issue.body.as_ref().is_some_and(|it| it.contains(marker));
                if carries && issue.pull_request.is_none() {
                    ours.first = Some(ours.first.map_or(issue.number, |it| it.min(issue.number)));
                }
            }
            Ok(match ours.first {
                // The others were opened later.
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            })
        };
        api.client.pages_until(url, &what, take).await?;
        Ok(ours)
    }
}

#[async_trait]
impl IssueList for Issues<'_> {
    async fn find(&self, marker: &str) -> Result<Option<u64>, TrackerError> {
        let login = self.api.own_login().await?;
        let of_us = (login.as_str(), marker);
        let (mut is_app, mut finds_apps) = (false, false);
        let mut first: Option<u64> = None;
        for creator in self.api.creators(&login) {
            let is_bot = creator.ends_with("[bot]");
            is_app |= is_bot;
            match self.read(Some(creator), of_us).await {
                // There is no account of that name any more, or the server finds no App by its name.
                Err(error) if concerns_one(&error) && (creator != login || is_bot) => {
                    tracing::debug!(creator, %error, "the issues of an account cannot be listed");
                }
                read => {
                    let Ours {
                        any,
                        first: of_creator,
                    } = read?;
                    finds_apps |= is_bot && any;
                    first = first.into_iter().chain(of_creator).min();
                }
            }
        }
        if is_app && !finds_apps {
            first = first
                .into_iter()
                .chain(self.read(None, of_us).await?.first)
                .min();
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
