//! What GitHub's deliveries have in common: people, repositories, issues, pull requests and their reviews.

use serde_json::{Map, Value, json};

use super::super::super::shapes::{repo_json, time, user as short_user};
use super::super::super::state::{Issue, Pull, ReviewOf, ReviewView};
use super::super::super::{git, gitlab};
use super::{Of, extended};

/// The addresses below that of a repository, as templates.
const OF_REPO: [(&str, &str); 36] = [
    ("forks_url", "/forks"),
    ("keys_url", "/keys{/key_id}"),
    ("collaborators_url", "/collaborators{/collaborator}"),
    ("teams_url", "/teams"),
    ("hooks_url", "/hooks"),
    ("issue_events_url", "/issues/events{/number}"),
    ("events_url", "/events"),
    ("assignees_url", "/assignees{/user}"),
    ("branches_url", "/branches{/branch}"),
    ("tags_url", "/tags"),
    ("blobs_url", "/git/blobs{/sha}"),
    ("git_tags_url", "/git/tags{/sha}"),
    ("git_refs_url", "/git/refs{/sha}"),
    ("trees_url", "/git/trees{/sha}"),
    ("statuses_url", "/statuses/{sha}"),
    ("languages_url", "/languages"),
    ("stargazers_url", "/stargazers"),
    ("contributors_url", "/contributors"),
    ("subscribers_url", "/subscribers"),
    ("subscription_url", "/subscription"),
    ("commits_url", "/commits{/sha}"),
    ("git_commits_url", "/git/commits{/sha}"),
    ("comments_url", "/comments{/number}"),
    ("issue_comment_url", "/issues/comments{/number}"),
    ("contents_url", "/contents/{+path}"),
    ("compare_url", "/compare/{base}...{head}"),
    ("merges_url", "/merges"),
    ("archive_url", "/{archive_format}{/ref}"),
    ("downloads_url", "/downloads"),
    ("issues_url", "/issues{/number}"),
    ("pulls_url", "/pulls{/number}"),
    ("milestones_url", "/milestones{/number}"),
    (
        "notifications_url",
        "/notifications{?since,all,participating}",
    ),
    ("labels_url", "/labels{/name}"),
    ("releases_url", "/releases{/id}"),
    ("deployments_url", "/deployments"),
];

/// The same of a user.
const OF_USER: [(&str, &str); 9] = [
    ("followers_url", "/followers"),
    ("following_url", "/following{/other_user}"),
    ("gists_url", "/gists{/gist_id}"),
    ("starred_url", "/starred{/owner}{/repo}"),
    ("subscriptions_url", "/subscriptions"),
    ("organizations_url", "/orgs"),
    ("repos_url", "/repos"),
    ("events_url", "/events{/privacy}"),
    ("received_events_url", "/received_events"),
];

/// No commit.
const ZEROS: &str = "0000000000000000000000000000000000000000";

/// A text in the path of an address.
fn escaped(text: &str) -> String {
    let each = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(each).collect()
}

impl Of<'_> {
    pub(super) fn user(&self, login: &str) -> Value {
        let path = escaped(login);
        let api = self.inner.api(&format!("users/{path}"));
        let html = self.inner.html("") + &path;
        let addresses =
            OF_USER.map(|(field, rest)| (field.to_owned(), json!(format!("{api}{rest}"))));
        let more = json!({
            "node_id": format!("U_{}", login.len()), "avatar_url": format!("{html}.png"), "gravatar_id": "",
            "url": api, "html_url": html, "site_admin": false,
        });
        let user = extended(short_user(login), more);
        extended(user, Value::Object(addresses.into_iter().collect()))
    }

    pub(super) fn repository(&self) -> Value {
        let (inner, repo) = (self.inner, self.repo);
        let (api, html) = (self.api(""), self.html(""));
        let addresses: Map<String, Value> = OF_REPO
            .iter()
            .map(|(field, rest)| ((*field).to_owned(), format!("{api}{rest}").into()))
            .collect();
        let open = repo.issues.iter().filter(|issue| issue.open).count();
        let newest = repo.issues.iter().map(|issue| issue.updated_at).max();
        let at = time(newest.unwrap_or_else(chrono::Utc::now));
        let visibility = if repo.public { "public" } else { "private" };
        let host = inner.api_url.authority();
        let more = json!({
            "node_id": format!("R_{}", repo.id), "owner": self.user(repo.owner()), "description": null, "fork": false,
            "created_at": at, "updated_at": at, "pushed_at": at, "svn_url": html, "homepage": null,
            "git_url": format!("git://{host}/{}.git", repo.full_name),
            "ssh_url": format!("ssh://git@{host}/{}.git", repo.full_name),
            "size": 1, "stargazers_count": 0, "watchers_count": 0, "forks_count": 0, "forks": 0, "watchers": 0,
            "open_issues_count": open, "open_issues": open, "language": null, "has_projects": false,
            "has_downloads": true, "has_wiki": false, "has_pages": false, "has_discussions": false, "mirror_url": null,
            "license": null, "allow_forking": true, "is_template": false, "web_commit_signoff_required": false,
            "topics": [], "visibility": visibility, "custom_properties": {},
        });
        let repository = extended(repo_json(inner, repo), Value::Object(addresses));
        extended(repository, more)
    }

    pub(super) fn label(&self, name: &str) -> Value {
        let id = gitlab::user_id(name);
        json!({
            "id": id, "node_id": format!("LA_{id}"), "url": self.api(&format!("/labels/{}", escaped(name))),
            "name": name, "color": "ededed", "default": false, "description": null,
        })
    }

    pub(super) fn association(&self, login: &str) -> &'static str {
        match login == self.repo.owner() {
            true => "OWNER",
            false => "COLLABORATOR",
        }
    }

    pub(super) fn reactions(&self, of: &str) -> Value {
        json!({
            "url": self.api(&format!("{of}/reactions")), "total_count": 0, "+1": 0, "-1": 0, "laugh": 0, "hooray": 0,
            "confused": 0, "heart": 0, "rocket": 0, "eyes": 0,
        })
    }

    /// What issues and pull requests have in common.
    pub(super) fn item(&self, issue: &Issue) -> Value {
        let people: Vec<Value> = issue.assignees.iter().map(|it| self.user(it)).collect();
        let labels: Vec<Value> = issue.labels.iter().map(|it| self.label(it)).collect();
        json!({
            "id": issue.id, "number": issue.number, "title": issue.title, "user": self.user(&issue.author),
            "body": (!issue.body.is_empty()).then_some(&issue.body),
            "html_url": self.html(&format!("/{}", issue.number)), "labels": labels,
            "state": if issue.open { "open" } else { "closed" }, "locked": issue.locked,
            "assignee": people.first(), "assignees": people, "milestone": null,
            "comments_url": self.api(&format!("/issues/{}/comments", issue.number)),
            "created_at": time(issue.created_at), "updated_at": time(issue.updated_at),
            "closed_at": (!issue.open).then(|| time(issue.updated_at)),
            "author_association": self.association(&issue.author), "active_lock_reason": null,
        })
    }

    /// An issue, or a pull request as an issue.
    pub(super) fn issue(&self, issue: &Issue) -> Value {
        let place = format!("/issues/{}", issue.number);
        let own = json!({
            "url": self.api(&place), "repository_url": self.api(""), "node_id": format!("I_{}", issue.id),
            "labels_url": self.api(&format!("{place}/labels{{/name}}")), "events_url": self.api(&format!("{place}/events")),
            "timeline_url": self.api(&format!("{place}/timeline")), "comments": issue.comments.len(),
            "reactions": self.reactions(&place), "performed_via_github_app": null,
            "state_reason": (!issue.open).then_some("completed"),
        });
        let mut value = extended(self.item(issue), own);
        if let Some(pull) = &issue.pull {
            let html = self.html(&format!("/{}", issue.number));
            value["draft"] = pull.draft.into();
            value["pull_request"] = json!({
                "url": self.api(&format!("/pulls/{}", issue.number)), "html_url": html,
                "diff_url": format!("{html}.diff"), "patch_url": format!("{html}.patch"),
                "merged_at": pull.merged.then(|| time(issue.updated_at)),
            });
        }
        value
    }

    pub(super) fn sha(&self, branch: &str) -> String {
        let dir = &self.repo.git_dir;
        let sha = self.repo.sha(branch);
        let sha = sha.or_else(|| git::removed_sha(dir, branch));
        sha.unwrap_or_else(|| ZEROS.to_owned())
    }

    /// A pull request without what takes GitHub a computation.
    pub(super) fn simple_pull(&self, issue: &Issue, pull: &Pull) -> Value {
        let (number, sha) = (issue.number, self.sha(&pull.head));
        let (html, api) = (
            self.html(&format!("/{number}")),
            self.api(&format!("/pulls/{number}")),
        );
        let of_issue = self.api(&format!("/issues/{number}"));
        let side = |branch: &str| {
            json!({
                "label": format!("{}:{branch}", self.repo.owner()), "ref": branch, "sha": self.sha(branch),
                "user": self.user(self.repo.owner()), "repo": self.repository(),
            })
        };
        let statuses = self.api(&format!("/statuses/{sha}"));
        let comment = self.api("/pulls/comments{/number}");
        let links = [
            ("self", api.clone()),
            ("html", html.clone()),
            ("issue", of_issue.clone()),
            ("comments", format!("{of_issue}/comments")),
            ("review_comments", format!("{api}/comments")),
            ("review_comment", comment.clone()),
            ("commits", format!("{api}/commits")),
            ("statuses", statuses.clone()),
        ];
        let links = links.map(|(name, to)| (name.to_owned(), json!({ "href": to })));
        let merged_at = pull.merged.then(|| time(issue.updated_at));
        let own = json!({
            "url": api, "node_id": format!("PR_{}", issue.id), "diff_url": format!("{html}.diff"),
            "patch_url": format!("{html}.patch"), "issue_url": of_issue, "merged_at": merged_at,
            "merge_commit_sha": pull.merged.then(|| self.sha(&pull.base)), "requested_reviewers": [], "requested_teams": [],
            "commits_url": format!("{api}/commits"), "review_comments_url": format!("{api}/comments"),
            "review_comment_url": comment, "statuses_url": statuses, "head": side(&pull.head), "base": side(&pull.base),
            "_links": Value::Object(links.into_iter().collect()), "auto_merge": null, "draft": pull.draft,
        });
        extended(self.item(issue), own)
    }

    pub(super) fn pull(&self, issue: &Issue, pull: &Pull, by: &str) -> Value {
        let lines = pull.reviews.iter();
        let lines = lines.filter(|it| matches!(it.of, ReviewOf::Line(..)));
        let more = json!({
            "merged": pull.merged, "mergeable": null, "rebaseable": null, "mergeable_state": "unknown",
            "merged_by": pull.merged.then(|| self.user(by)), "comments": issue.comments.len(),
            "review_comments": lines.count(), "maintainer_can_modify": false, "commits": 1, "additions": 1,
            "deletions": 0, "changed_files": 1,
        });
        extended(self.simple_pull(issue, pull), more)
    }

    pub(super) fn verdict(
        &self,
        issue: &Issue,
        pull: &Pull,
        review: &ReviewView,
        verdict: &str,
    ) -> Value {
        let (id, number) = (review.id, issue.number);
        let html = self.html(&format!("/{number}#pullrequestreview-{id}"));
        let of_pull = self.api(&format!("/pulls/{number}"));
        json!({
            "id": id, "node_id": format!("PRR_{id}"), "user": self.user(&review.author),
            "body": (!review.body.is_empty()).then_some(&review.body), "commit_id": self.sha(&pull.head),
            "submitted_at": time(review.at), "state": verdict.to_lowercase(), "html_url": html,
            "pull_request_url": of_pull, "author_association": self.association(&review.author),
            "_links": { "html": { "href": html }, "pull_request": { "href": of_pull } },
        })
    }

    pub(super) fn line(
        &self,
        issue: &Issue,
        pull: &Pull,
        review: &ReviewView,
        (path, line): (&str, u64),
    ) -> Value {
        let (id, number, sha) = (review.id, issue.number, self.sha(&pull.head));
        let api = self.api(&format!("/pulls/comments/{id}"));
        let html = self.html(&format!("/{number}#discussion_r{id}"));
        let of_pull = self.api(&format!("/pulls/{number}"));
        let mut value = json!({
            "id": id, "node_id": format!("PRRC_{id}"), "url": api, "pull_request_review_id": id + 1_000_000,
            "diff_hunk": "@@ -1 +1 @@", "path": path, "position": line, "original_position": line, "commit_id": sha,
            "original_commit_id": sha, "user": self.user(&review.author), "body": review.body,
            "created_at": time(review.at), "updated_at": time(review.at), "html_url": html, "pull_request_url": of_pull,
            "author_association": self.association(&review.author),
            "_links": { "self": { "href": api }, "html": { "href": html }, "pull_request": { "href": of_pull } },
            "start_line": null, "original_start_line": null, "start_side": null, "line": line, "original_line": line,
            "side": "RIGHT", "subject_type": "line", "reactions": self.reactions(&format!("/pulls/comments/{id}")),
        });
        if let Some(root) = review.in_reply_to {
            value["in_reply_to_id"] = root.into();
        }
        value
    }
}
