//! New merge requests, refused with GitLab's own messages, and merging.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::json;

use super::super::rest::{Answer, Ask};
use super::super::state::{Pull, Repo, State};
use super::super::{Inner, git};
use super::items::is_draft;
use super::{Kind, Place, actions, missing, names};

static CLOSES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?\s+#(\d+)")
        .expect("a literal pattern")
});

pub(super) fn create(inner: &Inner, state: &mut State, ask: &Ask, name: &str) -> Answer {
    let field = |key: &str| ask.text(key).filter(|text| !text.is_empty());
    for key in ["source_branch", "target_branch", "title"] {
        if field(key).is_none() {
            return Answer::new(400, json!({ "error": format!("{key} is missing") }));
        }
    }
    let [head, base, title] =
        ["source_branch", "target_branch", "title"].map(|key| field(key).unwrap_or_default());
    let Some(repo) = state.repo(name) else {
        return missing("Project");
    };
    if let Some(answer) = refusal(repo, head, base, title) {
        return answer;
    }
    let pull = Pull::new(head, base, is_draft(title));
    let (body, commands) = actions::extract(ask.text("description").unwrap_or_default());
    let labels = names(&ask.body["labels"]);
    let login = &ask.account.login;
    let Some(number) = state.add_issue(name, login, (title, &body), &labels, Some(pull)) else {
        return missing("Project");
    };
    let place = Place {
        repo: name,
        kind: Kind::MergeRequest,
        number,
    };
    actions::run(state, place, login, &commands);
    place.answer(inner, state, 201)
}

fn refusal(repo: &Repo, head: &str, base: &str, title: &str) -> Option<Answer> {
    let refuse =
        |status, message: String| Some(Answer::new(status, json!({ "message": [message] })));
    if title.chars().count() > 255 {
        let message =
            json!({ "message": { "title": ["is too long (maximum is 255 characters)"] } });
        return Some(Answer::new(422, message));
    }
    if head == base {
        return refuse(
            409,
            "You can't use same project/branch for source and target".to_owned(),
        );
    }
    for (side, branch) in [("Source", head), ("Target", base)] {
        if repo.sha(branch).is_none() {
            return refuse(422, format!("{side} branch \"{branch}\" does not exist"));
        }
    }
    let twin = repo.issues.iter().find(|issue| {
        let same = |pull: &Pull| pull.head == head && pull.base == base;
        issue.open && issue.pull.as_ref().is_some_and(same)
    });
    let twin = twin?.iid;
    refuse(
        409,
        format!("Another open merge request already exists for this source branch: !{twin}"),
    )
}

/// Merges in the repository, and closes the issues that the description names.
pub(super) fn merge(inner: &Inner, state: &mut State, ask: &Ask, place: Place<'_>) -> Answer {
    let not_allowed = || Answer::new(405, json!({ "message": "405 Method Not Allowed" }));
    let Some((repo, issue)) = place.find(state) else {
        return missing("");
    };
    let Some(pull) = issue.pull.clone().filter(|pull| issue.open && !pull.draft) else {
        return not_allowed();
    };
    if ask
        .text("sha")
        .is_some_and(|sha| repo.sha(&pull.head).as_deref() != Some(sha))
    {
        return Answer::new(
            409,
            json!({ "message": "SHA does not match HEAD of source branch" }),
        );
    }
    if !git::merge(&repo.git_dir, &pull.head, &pull.base) {
        return Answer::new(422, json!({ "message": "Branch cannot be merged" }));
    }
    let closed: Vec<u64> = CLOSES
        .captures_iter(&issue.body)
        .filter_map(|found| found[1].parse().ok())
        .collect();
    if let Some(repo) = state.repo_mut(place.repo) {
        let issues = repo.issues.iter_mut();
        issues
            .filter(|issue| Kind::Issue.holds(issue) && closed.contains(&issue.iid))
            .for_each(|issue| issue.open = false);
        let head = repo
            .issue(place.number)
            .and_then(|issue| issue.pull.as_ref());
        let head = head.and_then(|pull| repo.sha(&pull.head));
        if let Some(issue) = repo.issue_mut(place.number) {
            issue.open = false;
            issue
                .pull
                .iter_mut()
                .for_each(|pull| pull.merge(head.clone()));
        }
    }
    place.answer(inner, state, 200)
}
