//! Pull requests: an issue with branches, refused with GitHub's own messages.

use serde_json::{Value, json};

use super::rest::{Answer, Ask};
use super::shapes::{repo_json, time, user};
use super::state::{Issue, Pull, Repo, ReviewOf, State};
use super::{Inner, git, threads};

pub(super) fn dispatch(
    inner: &Inner,
    state: &mut State,
    ask: &Ask,
    name: &str,
    rest: &[&str],
) -> Answer {
    let Some(repo) = state.repo(name) else {
        return Answer::not_found();
    };
    match (ask.method.as_str(), rest) {
        ("GET", []) => list(inner, ask, repo),
        ("POST", []) => create(inner, state, ask, name),
        ("GET", [number]) => {
            let mut answer = one(inner, repo, number);
            if !state.finds_conflicts(name, number.parse().unwrap_or_default()) {
                answer.body["mergeable"] = Value::Null;
            }
            answer
        }
        ("GET", [number, list @ ("reviews" | "comments")]) => {
            reviews(inner, ask, repo, number, list)
        }
        ("PATCH", [number]) => edit(inner, state, ask, name, number),
        ("PUT", [number, "merge"]) => merge(state, ask, name, number),
        ("POST", [number, "comments", root, "replies"]) => {
            threads::reply(state, ask, name, (number, root))
        }
        (_, ["comments", id]) => threads::one(state, ask, name, id),
        _ => Answer::not_found(),
    }
}

fn list(inner: &Inner, ask: &Ask, repo: &Repo) -> Answer {
    let wanted = ask.param("state").unwrap_or("open");
    // GitHub ignores a head without an owner.
    let head = ask.param("head").and_then(|head| head.split_once(':'));
    let mut found: Vec<Value> = repo
        .issues
        .iter()
        .filter(|issue| !issue.deleted)
        .filter_map(|issue| Some((issue, issue.pull.as_ref()?)))
        .filter(|(issue, _)| wanted == "all" || issue.open == (wanted == "open"))
        .filter(|(_, pull)| {
            head.is_none_or(|(owner, branch)| {
                owner.eq_ignore_ascii_case(repo.owner()) && branch == pull.head
            })
        })
        .filter(|(_, pull)| ask.param("base").is_none_or(|base| base == pull.base))
        .map(|(issue, pull)| pull_json(inner, repo, issue, pull))
        .collect();
    if ask.param("direction") != Some("asc") {
        found.reverse();
    }
    Answer::page(inner, ask, found)
}

fn one(inner: &Inner, repo: &Repo, number: &str) -> Answer {
    let issue = number.parse().ok().and_then(|number| repo.issue(number));
    let issue = issue.filter(|issue| !issue.deleted);
    match issue.and_then(|issue| Some((issue, issue.pull.as_ref()?))) {
        Some((issue, pull)) => {
            let mut value = pull_json(inner, repo, issue, pull);
            let mergeable = git::can_merge(&repo.git_dir, &pull.head, &pull.base);
            value["mergeable"] = (issue.open).then_some(mergeable).into();
            Answer::ok(value)
        }
        None => Answer::not_found(),
    }
}

impl State {
    /// Whether the forge knows by now if a pull request conflicts. Being asked makes it find out.
    pub(super) fn finds_conflicts(&mut self, repo: &str, number: u64) -> bool {
        let sides = self.repo(repo).and_then(|repo| {
            let pull = repo.issue(number)?.pull.as_ref()?;
            let (head, base) = (repo.sha(&pull.head), repo.sha(&pull.base));
            Some(format!("{} {number} {head:?} {base:?}", repo.id))
        });
        let asked = self.asked_conflicts.as_mut().zip(sides);
        asked.is_none_or(|(asked, sides)| !asked.insert(sides))
    }
}

/// The reviews, or the comments on lines.
fn reviews(inner: &Inner, ask: &Ask, repo: &Repo, number: &str, list: &str) -> Answer {
    let issue = number.parse().ok().and_then(|number| repo.issue(number));
    let Some(pull) = issue.and_then(|issue| issue.pull.as_ref()) else {
        return Answer::not_found();
    };
    let found = pull.reviews.iter().filter_map(|review| match &review.of {
        ReviewOf::Verdict(verdict) => (list == "reviews").then(|| {
            json!({
                "id": review.id, "user": user(&review.author), "body": review.body, "state": verdict,
                "submitted_at": time(review.at),
            })
        }),
        ReviewOf::Line(..) => (list == "comments").then(|| threads::line_json(review)),
    });
    Answer::page(inner, ask, found.collect())
}

fn create(inner: &Inner, state: &mut State, ask: &Ask, name: &str) -> Answer {
    let draft = ask.body["draft"].as_bool().unwrap_or(false);
    let title = ask.text("title").unwrap_or_default();
    let Some(repo) = state.repo(name) else {
        return Answer::not_found();
    };
    let pull = match check(repo, ask, title, draft) {
        Ok(pull) => pull,
        Err(answer) => return *answer,
    };
    let text = (title, ask.text("body").unwrap_or_default());
    let number = state.add_issue(name, &ask.account.login, text, &[], Some(pull));
    match (number, state.repo(name)) {
        (Some(number), Some(repo)) => Answer {
            status: 201,
            ..one(inner, repo, &number.to_string())
        },
        _ => Answer::not_found(),
    }
}

fn check(repo: &Repo, ask: &Ask, title: &str, draft: bool) -> Result<Pull, Box<Answer>> {
    let invalid = |field: &str| {
        let error = json!([{ "resource": "PullRequest", "field": field, "code": "invalid" }]);
        Err(Box::new(Answer::invalid(error)))
    };
    let custom = |message: String| {
        let error = json!([{ "resource": "PullRequest", "code": "custom", "message": message }]);
        Err(Box::new(Answer::invalid(error)))
    };
    if title.is_empty() || title.chars().count() > 256 {
        return invalid("title");
    }
    let head = ask.text("head").unwrap_or_default();
    let head = head.rsplit(':').next().unwrap_or_default();
    let base = ask.text("base").unwrap_or_default();
    let Some(head_sha) = repo.sha(head) else {
        return invalid("head");
    };
    let Some(base_sha) = repo.sha(base) else {
        return invalid("base");
    };
    let twin = repo.issues.iter().any(|issue| {
        let same = |pull: &Pull| pull.head == head && pull.base == base;
        issue.open && issue.pull.as_ref().is_some_and(same)
    });
    if twin {
        return custom(format!(
            "A pull request already exists for {}:{head}.",
            repo.owner()
        ));
    }
    let range = format!("{base_sha}..{head_sha}");
    let ahead = git::try_out(&repo.git_dir, &["rev-list", "--count", &range]);
    if ahead.is_none_or(|count| count.trim() == "0") {
        return custom(format!("No commits between {base} and {head}"));
    }
    if draft && !repo.allows_drafts {
        let message = "Draft pull requests are not supported in this repository.";
        let answer = Answer::new(422, json!({ "message": message }));
        return Err(Box::new(answer));
    }
    Ok(Pull::new(head, base, draft))
}

fn edit(inner: &Inner, state: &mut State, ask: &Ask, name: &str, number: &str) -> Answer {
    let parsed = number.parse().unwrap_or_default();
    if let Some(issue) = state.repo_mut(name).and_then(|repo| repo.issue_mut(parsed)) {
        if let Some(open) = ask.text("state") {
            issue.open = open == "open";
        }
        if let Some(title) = ask.text("title") {
            title.clone_into(&mut issue.title);
        }
        if let Some(body) = ask.text("body") {
            body.clone_into(&mut issue.body);
        }
    }
    match state.repo(name) {
        Some(repo) => one(inner, repo, number),
        None => Answer::not_found(),
    }
}

/// Merges as the button does.
fn merge(state: &mut State, ask: &Ask, name: &str, number: &str) -> Answer {
    let Some(repo) = state.repo_mut(name) else {
        return Answer::not_found();
    };
    let issue = number.parse().ok().and_then(|number| repo.issue(number));
    let Some(pull) = issue.and_then(|issue| issue.pull.clone()) else {
        return Answer::not_found();
    };
    let refused = |status, message: &str| Answer::new(status, json!({ "message": message }));
    if pull.draft || issue.is_some_and(|issue| !issue.open) {
        return refused(405, "Pull Request is still a draft, or closed");
    }
    let head = repo.sha(&pull.head);
    if ask
        .text("sha")
        .is_some_and(|sha| head.as_deref() != Some(sha))
    {
        return refused(
            409,
            "Head branch was modified. Review and try the merge again.",
        );
    }
    if !git::merge(&repo.git_dir, &pull.head, &pull.base) {
        return refused(405, "Pull Request is not mergeable");
    }
    let merged = repo.sha(&pull.base);
    let number = number.parse().unwrap_or_default();
    if let Some(issue) = repo.issue_mut(number) {
        issue.open = false;
        issue.updated_at = chrono::Utc::now();
        issue
            .pull
            .iter_mut()
            .for_each(|pull| pull.merge(head.clone()));
    }
    Answer::ok(
        json!({ "sha": merged, "merged": true, "message": "Pull Request successfully merged" }),
    )
}

fn pull_json(inner: &Inner, repo: &Repo, issue: &Issue, pull: &Pull) -> Value {
    let side = |branch: &str, sha: Option<String>| {
        json!({
            "ref": branch, "label": format!("{}:{branch}", repo.owner()),
            "sha": sha.or_else(|| repo.sha(branch)), "repo": repo_json(inner, repo),
        })
    };
    json!({
        "id": issue.id, "node_id": format!("PR_{}", issue.id), "number": issue.number, "title": issue.title, "body": issue.body,
        "state": if issue.open { "open" } else { "closed" }, "draft": pull.draft,
        "merged_at": pull.merged.then(|| time(issue.updated_at)),
        "user": user(&issue.author),
        "html_url": inner.html(&format!("{}/{}", repo.full_name, issue.number)),
        "head": side(&pull.head, pull.shown_head.clone()), "base": side(&pull.base, None),
        "created_at": time(issue.created_at), "updated_at": time(issue.updated_at),
    })
}
