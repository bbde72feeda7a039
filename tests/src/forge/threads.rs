//! Reviews by people, and their threads on lines of a diff.

use chrono::Utc;
use serde_json::{Value, json};

use super::rest::{Answer, Ask};
use super::shapes::{time, user};
use super::state::{Issue, ReviewOf, ReviewView, State};
use super::{Forge, HUMAN};

impl Forge {
    /// Somebody reviews a pull request.
    ///
    /// # Panics
    /// If there is no such pull request.
    pub fn add_review_as(&self, repo: &str, number: u64, login: &str, verdict: &str, body: &str) {
        let of = ReviewOf::Verdict(verdict.to_owned());
        self.review(repo, number, (login, body), of);
    }

    /// Somebody comments on a line of a pull request's diff; returns the id of the comment.
    ///
    /// # Panics
    /// If there is no such pull request.
    pub fn say_on_line(&self, repo: &str, number: u64, login: &str, body: &str) -> u64 {
        let of = ReviewOf::Line("greet.sh".to_owned(), 1);
        self.review(repo, number, (login, body), of)
    }

    /// Somebody reviews a pull request without a verdict; returns the id of the review.
    ///
    /// # Panics
    /// If there is no such pull request.
    pub fn say_in_review(&self, repo: &str, number: u64, login: &str, body: &str) -> u64 {
        let of = ReviewOf::Verdict("COMMENTED".to_owned());
        self.review(repo, number, (login, body), of)
    }

    /// A person answers in the thread that a comment on a line began.
    ///
    /// # Panics
    /// If there is no such thread.
    pub fn reply_in_thread(&self, repo: &str, number: u64, root: u64, body: &str) {
        let mut state = self.inner.lock();
        let reply = add(&mut state, (repo, number), root, (HUMAN, body));
        assert!(reply.is_some(), "the thread exists");
        drop(state);
        self.inner.changed.notify_waiters();
    }

    /// The comments that began the threads on lines.
    ///
    /// # Panics
    /// If there is no such pull request.
    pub fn thread_ids(&self, repo: &str, number: u64) -> Vec<u64> {
        self.with_issue(repo, number, |issue| {
            threads(issue).into_iter().map(|(root, _)| root).collect()
        })
    }

    /// The threads on lines: the texts in each, with their authors, and whether it is resolved.
    ///
    /// # Panics
    /// If there is no such pull request.
    pub fn line_threads(&self, repo: &str, number: u64) -> Vec<(Vec<(String, String)>, bool)> {
        self.with_issue(repo, number, |issue| {
            let pull = issue.pull.as_ref().expect("it is a pull request");
            let threads = threads(issue).into_iter().map(|(root, members)| {
                let texts = members.into_iter();
                let texts = texts.map(|it| (it.author.clone(), it.body.clone()));
                (texts.collect(), pull.resolved.contains(&root))
            });
            threads.collect()
        })
    }

    pub(super) fn review(
        &self,
        repo: &str,
        number: u64,
        (login, body): (&str, &str),
        of: ReviewOf,
    ) -> u64 {
        let id = self.inner.lock().id();
        self.with_repo_mut(repo, |repo| {
            let issue = repo.issue_mut(number).expect("the pull request exists");
            issue.updated_at = Utc::now();
            let review = ReviewView {
                id,
                author: login.to_owned(),
                body: body.to_owned(),
                of,
                at: issue.updated_at,
                in_reply_to: None,
            };
            let pull = issue.pull.as_mut().expect("it is a pull request");
            pull.reviews.push(review);
        });
        id
    }
}

/// The comments on lines, by the one that began their thread.
pub(super) fn threads(issue: &Issue) -> Vec<(u64, Vec<&ReviewView>)> {
    let reviews = || issue.pull.iter().flat_map(|pull| &pull.reviews);
    let lines = || reviews().filter(|it| matches!(it.of, ReviewOf::Line(..)));
    let roots = lines().filter(|it| it.in_reply_to.is_none());
    let members =
        |root: u64| lines().filter(move |it| it.id == root || it.in_reply_to == Some(root));
    roots
        .map(|root| (root.id, members(root.id).collect()))
        .collect()
}

/// Whether this comment began a thread on a line.
pub(super) fn begins(issue: &Issue, root: u64) -> bool {
    threads(issue).iter().any(|(id, _)| *id == root)
}

/// Adds a reply to a thread.
pub(super) fn add(
    state: &mut State,
    (repo, number): (&str, u64),
    root: u64,
    (login, body): (&str, &str),
) -> Option<ReviewView> {
    let id = state.id();
    let issue = state.repo_mut(repo)?.issue_mut(number)?;
    let first = threads(issue).into_iter().find(|(id, _)| *id == root);
    let of = first?.1.first()?.of.clone();
    issue.updated_at = Utc::now();
    let reply = ReviewView {
        id,
        author: login.to_owned(),
        body: body.to_owned(),
        of,
        at: issue.updated_at,
        in_reply_to: Some(root),
    };
    issue.pull.as_mut()?.reviews.push(reply.clone());
    Some(reply)
}

pub(super) fn resolve(state: &mut State, (repo, number): (&str, u64), root: u64, resolved: bool) {
    let issue = state.repo_mut(repo).and_then(|repo| repo.issue_mut(number));
    let Some(pull) = issue.and_then(|issue| issue.pull.as_mut()) else {
        return;
    };
    match resolved {
        true => pull.resolved.insert(root),
        false => pull.resolved.remove(&root),
    };
}

/// A comment on a line, in GitHub's form.
pub(super) fn line_json(review: &ReviewView) -> Value {
    let ReviewOf::Line(path, line) = &review.of else {
        return Value::Null;
    };
    let mut value = json!({
        "id": review.id, "user": user(&review.author), "body": review.body, "path": path,
        "line": line, "created_at": time(review.at), "updated_at": time(review.at),
    });
    // GitHub leaves it out of what is no reply.
    if let Some(root) = review.in_reply_to {
        value["in_reply_to_id"] = root.into();
    }
    value
}

/// GitHub: `POST /repos/O/R/pulls/N/comments/ROOT/replies`.
pub(super) fn reply(
    state: &mut State,
    ask: &Ask,
    name: &str,
    (number, root): (&str, &str),
) -> Answer {
    let body = ask.text("body").unwrap_or_default().to_owned();
    if body.trim().is_empty() {
        return Answer::invalid(json!([{ "field": "body", "code": "missing_field" }]));
    }
    let place = (name, number.parse().unwrap_or_default());
    let login = ask.account.login.clone();
    match add(
        state,
        place,
        root.parse().unwrap_or_default(),
        (&login, &body),
    ) {
        Some(reply) => Answer::new(201, line_json(&reply)),
        None => Answer::not_found(),
    }
}

/// GitHub: `/repos/O/R/pulls/comments/ID`.
pub(super) fn one(state: &mut State, ask: &Ask, name: &str, id: &str) -> Answer {
    let issues = state.repo_mut(name).map(|repo| &mut repo.issues);
    let pulls = issues.into_iter().flatten();
    let pulls = pulls.filter_map(|issue| issue.pull.as_mut());
    for pull in pulls {
        let is_it = |it: &ReviewView| it.id.to_string() == id;
        let Some(at) = pull.reviews.iter().position(is_it) else {
            continue;
        };
        if ask.method != http::Method::GET && pull.reviews[at].author != ask.account.login {
            return Answer::new(403, json!({ "message": "You cannot edit this comment" }));
        }
        match ask.method.as_str() {
            "PATCH" => pull.reviews[at].body = ask.text("body").unwrap_or_default().to_owned(),
            "DELETE" => {
                pull.reviews.remove(at);
                return Answer::new(204, Value::Null);
            }
            _ => {}
        }
        return Answer::ok(line_json(&pull.reviews[at]));
    }
    Answer::not_found()
}

/// GitHub's GraphQL: the threads of a pull request, and resolving one.
pub(super) fn graphql(state: &mut State, ask: &Ask) -> Answer {
    let variables = &ask.body["variables"];
    if let Some(thread) = variables["thread"].as_str() {
        let mut issues = state.repos.iter_mut().flat_map(|repo| &mut repo.issues);
        let root = thread.strip_prefix("PRRT_").and_then(|it| it.parse().ok());
        let Some(issue) = root.and_then(|root| issues.find(|issue| begins(issue, root))) else {
            let error = json!({ "type": "NOT_FOUND", "message": "Could not resolve to a node" });
            return Answer::ok(json!({ "data": null, "errors": [error] }));
        };
        let pull = issue.pull.as_mut();
        pull.into_iter().zip(root).for_each(|(pull, root)| {
            pull.resolved.insert(root);
        });
        return Answer::ok(json!({
            "data": { "resolveReviewThread": { "thread": { "id": thread, "isResolved": true } } }
        }));
    }
    let name = [&variables["owner"], &variables["name"]].map(|it| it.as_str().unwrap_or_default());
    let repo = state.repo(&name.join("/"));
    let issue = repo.and_then(|repo| repo.issue(variables["number"].as_u64().unwrap_or_default()));
    let Some(issue) = issue else {
        return Answer::ok(json!({ "data": { "repository": null } }));
    };
    let resolved = |root| {
        let pull = issue.pull.as_ref();
        pull.is_some_and(|pull| pull.resolved.contains(&root))
    };
    let all: Vec<Value> = threads(issue)
        .into_iter()
        .map(|(root, _)| {
            json!({
                "id": format!("PRRT_{root}"), "isResolved": resolved(root),
                "comments": { "nodes": [{ "fullDatabaseId": root.to_string() }] },
            })
        })
        .collect();
    let after = variables["after"].as_str().and_then(|it| it.parse().ok());
    let from: usize = after.unwrap_or(0);
    let until = all.len().min(from + 100);
    let page = json!({
        "pageInfo": { "hasNextPage": until < all.len(), "endCursor": until.to_string() },
        "nodes": all.get(from..until).unwrap_or_default(),
    });
    let pull = json!({ "reviewThreads": page });
    Answer::ok(json!({ "data": { "repository": { "pullRequest": pull } } }))
}
