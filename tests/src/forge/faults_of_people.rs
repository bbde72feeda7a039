//! What people do to items, branches and repositories, beyond closing and labelling.

use std::collections::HashSet;

use chrono::Utc;
use serde_json::json;

use super::rest::{Answer, Api, Ask};
use super::state::{Repo, State};
use super::{Forge, git};

impl Forge {
    /// A person renames a label: items have the new one, and no event says so.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn rename_label(&self, repo: &str, from: &str, to: &str) {
        self.with_repo_mut(repo, |repo| {
            let labels = repo.issues.iter_mut().flat_map(|issue| &mut issue.labels);
            labels
                .filter(|label| *label == from)
                .for_each(|label| to.clone_into(label));
        });
    }

    /// Somebody does something to an item in the second of its latest change: it shows the same time as before.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn in_the_same_second<T>(&self, repo: &str, number: u64, act: impl FnOnce() -> T) -> T {
        let time = |repo: &mut Repo| repo.issue_mut(number).map(|issue| issue.updated_at);
        let before = self.with_repo_mut(repo, time);
        let done = act();
        self.with_repo_mut(repo, |repo| {
            if let (Some(issue), Some(before)) = (repo.issue_mut(number), before) {
                issue.updated_at = before;
            }
        });
        done
    }

    /// A person locks a conversation.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn lock(&self, repo: &str, number: u64) {
        self.with_repo_mut(repo, |repo| {
            if let Some(issue) = repo.issue_mut(number) {
                issue.locked = true;
                issue.updated_at = Utc::now();
            }
        });
    }

    /// A person deletes all comments of an account on an item.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn delete_comments(&self, repo: &str, number: u64, author: &str) {
        self.with_repo_mut(repo, |repo| {
            if let Some(issue) = repo.issue_mut(number) {
                issue.comments.retain(|comment| comment.author != author);
            }
        });
    }

    /// A person moves an issue to another repository, with its comments. GitHub redirects from the old place, GitLab leaves
    /// a closed issue there. Returns the new number.
    ///
    /// # Panics
    /// If there is no such repository or issue.
    pub fn move_issue(&self, from: &str, number: u64, to: &str) -> u64 {
        let mut state = self.inner.lock();
        let issue = state.repo(from).and_then(|repo| repo.issue(number));
        let issue = issue.expect("the issue exists").clone();
        let text = (issue.title.as_str(), issue.body.as_str());
        let labels = &issue.labels;
        let new = state.add_issue(to, &issue.author, text, labels, None);
        let new = new.expect("the other repository exists");
        for comment in &issue.comments {
            state.comment(to, new, &comment.author, &comment.body);
        }
        let old = state.repo_mut(from).and_then(|repo| repo.issue_mut(number));
        let old = old.expect("the issue exists");
        old.moved = Some((to.to_owned(), new));
        old.open = false;
        old.updated_at = Utc::now();
        drop(state);
        self.inner.changed.notify_waiters();
        new
    }

    /// Somebody deletes an issue.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn delete_issue(&self, repo: &str, number: u64) {
        self.with_repo_mut(repo, |repo| {
            let issue = repo.issue_mut(number);
            issue.into_iter().for_each(|issue| issue.deleted = true);
        });
    }

    /// Somebody archives a repository, or takes it out of the archive.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn archive(&self, repo: &str, archived: bool) {
        self.with_repo_mut(repo, |repo| repo.archived = archived);
    }

    /// Whether a pull request conflicts with its target branch is not known from now on until that was asked since either
    /// branch moved, as on busy servers.
    pub fn find_conflicts_late(&self) {
        self.inner.lock().asked_conflicts = Some(HashSet::new());
    }

    /// Somebody hides a repository from everybody, or shows it again.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn hide(&self, repo: &str, hidden: bool) {
        self.with_repo_mut(repo, |repo| repo.hidden = hidden);
    }

    /// A branch shows another commit, as after a push that the lists do not show yet.
    ///
    /// # Panics
    /// If there is no such repository or commit.
    pub fn show_commit(&self, repo: &str, branch: &str, commit: &str) {
        let dir = self.git_dir(repo);
        let name = format!("refs/heads/{branch}");
        git::must(&dir, &["update-ref", &name, commit]);
        self.inner.note_git();
        self.inner.changed.notify_waiters();
    }

    /// A pull request shows this commit in place of its branch's, as GitLab's for minutes after a push; `None`: no longer.
    ///
    /// # Panics
    /// If there is no such pull request.
    pub fn show_head(&self, repo: &str, number: u64, commit: Option<&str>) {
        self.with_repo_mut(repo, |repo| {
            let pull = repo.issue_mut(number).and_then(|it| it.pull.as_mut());
            pull.expect("no such pull request").shown_head = commit.map(str::to_owned);
        });
        self.inner.changed.notify_waiters();
    }

    /// A person puts another commit in the place of a branch's; returns it.
    ///
    /// # Panics
    /// If git fails.
    pub fn replace_branch(&self, repo: &str, branch: &str) -> String {
        let dir = self.git_dir(repo);
        git::commit(&dir, "their-own", "main", |tree| {
            std::fs::write(tree.join("theirs.txt"), "theirs\n").expect("a file can be written");
        });
        let new = git::branch_sha(&dir, "their-own").expect("it was made");
        let name = format!("refs/heads/{branch}");
        git::must(&dir, &["update-ref", &name, &new]);
        git::must(&dir, &["update-ref", "-d", "refs/heads/their-own"]);
        self.inner.note_git();
        new
    }
}

/// The answer about a repository that is hidden or takes no writes; `None` otherwise.
pub(super) fn refusal(repo: &Repo, ask: &Ask, reads: bool) -> Option<Answer> {
    let message = match (repo.hidden, repo.archived && !reads, ask.api) {
        (true, _, Api::GitHub) => return Some(Answer::not_found()),
        (true, _, Api::GitLab) => {
            let body = json!({ "message": "404 Project Not Found" });
            return Some(Answer::new(404, body));
        }
        (false, true, Api::GitHub) => "Repository was archived so is read-only.",
        (false, true, Api::GitLab) => "403 Forbidden",
        (false, false, _) => return None,
    };
    Some(Answer::new(403, json!({ "message": message })))
}

/// The repository that a request is about, by its name or number.
pub(super) fn repository<'s>(state: &'s State, ask: &Ask) -> Option<&'s Repo> {
    let segments: Vec<&str> = ask.segments.iter().map(String::as_str).collect();
    let by_id = |id: &str| state.repos.iter().find(|repo| repo.id.to_string() == id);
    let by_name = |name: &str| state.repo(name).or_else(|| state.renamed(name));
    match segments.as_slice() {
        ["repos", owner, name, ..] => by_name(&format!("{owner}/{name}")),
        ["repositories", id, ..] => by_id(id),
        ["projects", id, ..] => by_id(id).or_else(|| by_name(id)),
        _ => None,
    }
}
