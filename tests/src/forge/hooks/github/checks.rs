//! Check runs and statuses in GitHub's deliveries.

use serde_json::{Value, json};

use super::super::super::checks::CheckView;
use super::super::super::git;
use super::super::super::shapes::time;
use super::super::super::state::{Issue, Pull};
use super::Of;

impl Of<'_> {
    /// The newest open pull request of a commit.
    fn pull_at(&self, commit: &str) -> Option<(&Issue, &Pull)> {
        let pulls = self.repo.issues.iter().rev();
        let mut open = pulls.filter_map(|issue| Some((issue, issue.pull.as_ref()?)));
        open.find(|(issue, pull)| issue.open && self.sha(&pull.head) == commit)
    }

    pub(super) fn run(&self, check: &CheckView) -> Value {
        let is_over = check.state != "pending";
        let status = if is_over { "completed" } else { "in_progress" };
        let conclusion = is_over.then_some(&check.state);
        let (at, id) = (time(check.at), check.id);
        let api = self.api(&format!("/check-runs/{id}"));
        let name = self.repo.full_name.rsplit('/').next();
        let repo = json!({ "id": self.repo.id, "url": self.api(""), "name": name });
        let pull = self.pull_at(&check.commit);
        let pulls = pull.map(|(issue, pull)| {
            let side = |branch: &str| json!({ "ref": branch, "sha": self.sha(branch), "repo": repo });
            json!({
                "url": self.api(&format!("/pulls/{}", issue.number)), "id": issue.id, "number": issue.number,
                "head": side(&pull.head), "base": side(&pull.base),
            })
        });
        let pulls: Vec<Value> = pulls.into_iter().collect();
        let app = json!({
            "id": 15368, "slug": "github-actions", "node_id": "A_15368", "owner": self.user("github"),
            "name": "GitHub Actions", "description": null, "external_url": self.inner.html("features/actions"),
            "html_url": self.inner.html("apps/github-actions"), "created_at": at, "updated_at": at,
            "permissions": { "checks": "write" }, "events": ["workflow_dispatch"],
        });
        let suite = json!({
            "id": id + 1_000_000, "node_id": format!("CS_{id}"), "head_branch": pull.map(|(_, pull)| &pull.head),
            "head_sha": check.commit, "status": status, "conclusion": conclusion, "before": null, "after": null,
            "url": self.api(&format!("/check-suites/{}", id + 1_000_000)), "pull_requests": pulls, "app": app,
            "created_at": at, "updated_at": at,
        });
        let run = json!({
            "id": id, "node_id": format!("CR_{id}"), "head_sha": check.commit, "external_id": id.to_string(), "url": api,
            "html_url": self.html(&format!("/runs/{id}")), "details_url": self.html(&format!("/runs/{id}")),
            "status": status, "conclusion": conclusion, "started_at": at, "completed_at": is_over.then_some(&at),
            "output": {
                "title": null, "summary": null, "text": null, "annotations_count": 0,
                "annotations_url": format!("{api}/annotations"),
            },
            "name": check.name, "check_suite": suite, "app": app, "pull_requests": pulls,
        });
        let action = if is_over { "completed" } else { "created" };
        self.body(action, "github-actions[bot]", json!({ "check_run": run }))
    }

    pub(super) fn status(&self, check: &CheckView) -> Value {
        let commit = &check.commit;
        let show = ["show", "-s", "--format=%T%n%an%n%ae%n%aI%n%s", commit];
        let shown = git::try_out(&self.repo.git_dir, &show).unwrap_or_default();
        let mut lines = shown.lines();
        let mut next = || lines.next().unwrap_or_default();
        let (tree, name, email, at, title) = (next(), next(), next(), next(), next());
        let person = json!({ "name": name, "email": email, "date": at });
        let api = self.api(&format!("/commits/{commit}"));
        let shown = json!({
            "sha": commit, "node_id": format!("C_{commit}"), "url": api,
            "html_url": self.html(&format!("/commit/{commit}")), "comments_url": format!("{api}/comments"),
            "author": null, "committer": null, "parents": [],
            "commit": {
                "author": person, "committer": person, "message": title,
                "tree": { "sha": tree, "url": self.api(&format!("/git/trees/{tree}")) },
                "url": self.api(&format!("/git/commits/{commit}")), "comment_count": 0,
                "verification": { "verified": false, "reason": "unsigned", "signature": null, "payload": null },
            },
        });
        let branches = self.pull_at(commit).map(|(_, pull)| {
            json!({ "name": pull.head, "commit": { "sha": commit, "url": api }, "protected": false })
        });
        let branches: Vec<Value> = branches.into_iter().collect();
        json!({
            "id": check.id, "sha": commit, "name": self.repo.full_name, "target_url": null, "context": check.name,
            "description": "said by a service", "state": check.state, "commit": shown, "branches": branches,
            "created_at": time(check.at), "updated_at": time(check.at),
            "repository": self.repository(), "sender": self.user("a-service[bot]"),
        })
    }
}
