//! GitHub's deliveries, in the shapes of its published JSON schemas (`@octokit/webhooks-schemas`), against which a test
//! validates each.

mod checks;
mod shapes;

use serde_json::{Map, Value, json};

use super::super::Inner;
use super::super::checks::CheckView;
use super::super::shapes::time;
use super::super::state::{CommentView, Issue, Pull, Repo, ReviewOf, ReviewView, State};
use super::changes::{Checked, Event, ItemNews, News, What};

/// What is sent for these news: the event and the body of each delivery, in order.
pub(super) fn bodies(inner: &Inner, state: &State, news: &News) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for item in &news.items {
        let repo = state.repo(&item.repo);
        let Some((repo, issue)) = repo.and_then(|repo| Some((repo, repo.issue(item.number)?)))
        else {
            continue;
        };
        let of = Of { inner, state, repo };
        let made = item.events.iter();
        all.extend(made.filter_map(|event| of.event(item, issue, event)));
    }
    for (name, checked) in &news.checks {
        // GitHub has no pipelines, so no invalid ones.
        if let (Some(repo), Checked::Check(check)) = (state.repo(name), checked) {
            let of = Of { inner, state, repo };
            all.push(of.check(check));
        }
    }
    all.into_iter()
        .map(|(event, body)| (event.to_owned(), body))
        .collect()
}

/// The repository that deliveries are about.
#[derive(Clone, Copy)]
struct Of<'a> {
    inner: &'a Inner,
    state: &'a State,
    repo: &'a Repo,
}

fn extended(mut value: Value, more: Value) -> Value {
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    value
}

impl Of<'_> {
    fn api(&self, rest: &str) -> String {
        self.inner
            .api(&format!("repos/{}{rest}", self.repo.full_name))
    }

    fn html(&self, rest: &str) -> String {
        self.inner.html(&self.repo.full_name) + rest
    }

    /// The body of a delivery, with what all have.
    fn body(&self, action: &str, by: &str, own: Value) -> Value {
        let common = json!({
            "action": action, "repository": self.repository(), "sender": self.user(by),
        });
        extended(common, own)
    }

    fn event(
        &self,
        item: &ItemNews,
        issue: &Issue,
        event: &Event,
    ) -> Option<(&'static str, Value)> {
        let by = event.by.as_str();
        match &event.what {
            What::Commented(comment) => Some(self.comment("created", by, issue, comment, None)),
            What::CommentEdited(comment, from) => {
                Some(self.comment("edited", by, issue, comment, Some(from)))
            }
            What::CommentDeleted(comment) => {
                Some(self.comment("deleted", by, issue, comment, None))
            }
            What::Reviewed(review) => {
                self.review("submitted", "created", by, (issue, review), None)
            }
            What::ReviewEdited(review, from) => {
                self.review("edited", "edited", by, (issue, review), Some(from))
            }
            // A review that was submitted stays.
            What::ReviewDeleted(review) => match review.of {
                ReviewOf::Line(..) => self.review("", "deleted", by, (issue, review), None),
                ReviewOf::Verdict(_) => None,
            },
            what => match &issue.pull {
                Some(pull) => self.of_pull(issue, pull, by, what),
                None => self.of_issue(item, issue, by, what),
            },
        }
    }

    fn of_issue(
        &self,
        item: &ItemNews,
        issue: &Issue,
        by: &str,
        what: &What,
    ) -> Option<(&'static str, Value)> {
        let (action, more) = match what {
            What::Opened(from) => ("opened", self.opened(from.as_ref())),
            // It is open where it is now.
            What::Closed if issue.moved.is_some() => return None,
            What::Closed => ("closed", json!({})),
            What::Reopened => ("reopened", json!({})),
            What::Locked(true) => ("locked", json!({})),
            What::Locked(false) => ("unlocked", json!({})),
            What::Deleted => ("deleted", json!({})),
            What::Moved(to, number) => ("transferred", self.moved(to, *number)?),
            other => self.of_both(other)?,
        };
        // As it was where it was.
        let shown = match what {
            What::Moved(..) => item.before.as_ref().unwrap_or(issue),
            _ => issue,
        };
        let own = extended(json!({ "issue": self.issue(shown) }), more);
        Some(("issues", self.body(action, by, own)))
    }

    fn opened(&self, from: Option<&(String, u64)>) -> Value {
        let old = from.and_then(|(name, number)| {
            let repo = self.state.repo(name)?;
            let old = Of { repo, ..*self };
            Some((old, repo.issue(*number)?))
        });
        old.map_or_else(
            || json!({}),
            |(old, issue)| {
                json!({ "changes": { "old_issue": old.issue(issue), "old_repository": old.repository() } })
            },
        )
    }

    fn moved(&self, to: &str, number: u64) -> Option<Value> {
        let repo = self.state.repo(to)?;
        let new = Of { repo, ..*self };
        let issue = new.issue(repo.issue(number)?);
        Some(json!({ "changes": { "new_issue": issue, "new_repository": new.repository() } }))
    }

    /// The action, and what only such a delivery has.
    fn of_both(&self, what: &What) -> Option<(&'static str, Value)> {
        Some(match what {
            What::Labeled(event) => {
                let action = match event.event.as_str() {
                    "labeled" => "labeled",
                    _ => "unlabeled",
                };
                (action, json!({ "label": self.label(&event.label) }))
            }
            What::Assigned(login) => ("assigned", json!({ "assignee": self.user(login) })),
            What::Unassigned(login) => ("unassigned", json!({ "assignee": self.user(login) })),
            What::Edited { title, body } => {
                let mut changes = Map::new();
                for (field, from) in [("title", title), ("body", body)] {
                    if let Some(from) = from {
                        changes.insert(field.to_owned(), json!({ "from": from }));
                    }
                }
                ("edited", json!({ "changes": changes }))
            }
            _ => return None,
        })
    }

    fn of_pull(
        &self,
        issue: &Issue,
        pull: &Pull,
        by: &str,
        what: &What,
    ) -> Option<(&'static str, Value)> {
        let (action, more) = match what {
            What::Opened(_) => ("opened", json!({})),
            What::Closed => ("closed", json!({})),
            What::Reopened => ("reopened", json!({})),
            What::Locked(true) => ("locked", json!({})),
            What::Locked(false) => ("unlocked", json!({})),
            What::Draft(true) => ("converted_to_draft", json!({})),
            What::Draft(false) => ("ready_for_review", json!({})),
            What::Pushed(before, after) => {
                ("synchronize", json!({ "before": before, "after": after }))
            }
            other => self.of_both(other)?,
        };
        let own = json!({ "number": issue.number, "pull_request": self.pull(issue, pull, by) });
        Some(("pull_request", self.body(action, by, extended(own, more))))
    }

    fn comment(
        &self,
        action: &str,
        by: &str,
        issue: &Issue,
        comment: &CommentView,
        from: Option<&String>,
    ) -> (&'static str, Value) {
        let (id, number) = (comment.id, issue.number);
        let place = format!("/issues/comments/{id}");
        let shown = json!({
            "id": id, "node_id": format!("IC_{id}"), "url": self.api(&place),
            "html_url": self.html(&format!("/{number}#issuecomment-{id}")),
            "issue_url": self.api(&format!("/issues/{number}")), "user": self.user(&comment.author),
            "created_at": time(comment.created_at), "updated_at": time(comment.updated_at),
            "author_association": self.association(&comment.author), "body": comment.body,
            "reactions": self.reactions(&place), "performed_via_github_app": null,
        });
        let mut own = json!({ "issue": self.issue(issue), "comment": shown });
        if let Some(from) = from {
            own["changes"] = json!({ "body": { "from": from } });
        }
        ("issue_comment", self.body(action, by, own))
    }

    /// A review, or a comment on a line.
    fn review(
        &self,
        of_verdict: &str,
        of_line: &str,
        by: &str,
        (issue, review): (&Issue, &ReviewView),
        from: Option<&String>,
    ) -> Option<(&'static str, Value)> {
        let pull = issue.pull.as_ref()?;
        let (field, event, action, shown) = match &review.of {
            ReviewOf::Verdict(verdict) => {
                let shown = self.verdict(issue, pull, review, verdict);
                ("review", "pull_request_review", of_verdict, shown)
            }
            ReviewOf::Line(path, line) => {
                let shown = self.line(issue, pull, review, (path, *line));
                ("comment", "pull_request_review_comment", of_line, shown)
            }
        };
        let mut own = json!({ "pull_request": self.simple_pull(issue, pull), field: shown });
        if let Some(from) = from {
            own["changes"] = json!({ "body": { "from": from } });
        }
        Some((event, self.body(action, by, own)))
    }

    /// A check run of the forge's own CI, or the status of a service.
    fn check(&self, check: &CheckView) -> (&'static str, Value) {
        match check.log {
            Some(_) => ("check_run", self.run(check)),
            None => ("status", self.status(check)),
        }
    }
}
