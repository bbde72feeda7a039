//! The facts that the worker measured about the result.

use serde::{Deserialize, Serialize};

use crate::check::Check;

/// How many changed files are recorded at most, and the size of their paths together, in bytes. All of them are in git.
const MAX_FILES: usize = 5_000;
const MAX_PATHS: usize = 256 * 1024;

/// Facts measured on the pushed commit. None of them comes from the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The branch's commit on the remote; `None` if nothing was pushed.
    pub head: Option<String>,
    /// The base commit that the work began from.
    pub base: String,
    /// Why the last push failed, if it did.
    pub push_error: Option<String>,
    /// Changed files between base and head, as far as they are recorded.
    pub files: Vec<ChangedFile>,
    /// Number of changed files that are not in the list.
    #[serde(default)]
    pub files_not_listed: u64,
    /// The project's checks, run on a fresh clone of the pushed commit.
    pub checks: Vec<Check>,
    /// Where the checks come from: the configuration, the repository's settings file, or a guess.
    pub checks_from: String,
    /// Set-up commands that failed on the fresh clone.
    #[serde(default)]
    pub setup_failures: Vec<Check>,
    /// What a reader of the result should know about the set-up: a skipped installer, an image that is not
    /// allowed.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Placeholders in added lines, as `file:line text`.
    pub placeholders: Vec<String>,
    /// Changed files that control more than the program, as `WHAT: PATH`, for example
    /// `CI: .github/workflows/ci.yml`. Earlier versions recorded the path alone.
    pub protected: Vec<String>,
    /// Why pushes were refused, each reason once.
    #[serde(default)]
    pub refused_pushes: Vec<String>,
    /// Web requests, the refused ones first, and by their number.
    pub web: Vec<WebRequest>,
    /// Number of web requests that did not fit into the list. Only earlier versions lost any.
    #[serde(default)]
    pub web_dropped: u64,
    /// Whether the diff was too large to be checked completely.
    #[serde(default)]
    pub diff_cut: bool,
    /// Nothing was pushed, and nothing had to be: people's words were answered. `head` is what the branch was at.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchanged: bool,
    /// Commits of the target branch were merged, which is a change even if each conflict was resolved as the branch had it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merged: bool,
}

/// A changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedFile {
    /// Its path.
    pub path: String,
    /// Lines added; `None` for a binary file.
    pub added: Option<u64>,
    /// Lines removed; `None` for a binary file.
    pub removed: Option<u64>,
}

/// Web requests to one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebRequest {
    /// `host:port`.
    pub host: String,
    /// Number of requests.
    pub count: u64,
    /// Why they were refused; `None` if they were allowed.
    pub refused: Option<String>,
}

impl Facts {
    /// Records the first of these changed files, and the number of the others.
    pub fn list_files(&mut self, mut files: Vec<ChangedFile>) {
        let mut room = MAX_PATHS;
        let fits = |file: &&ChangedFile| {
            let left = room.checked_sub(file.path.len());
            room = left.unwrap_or_default();
            left.is_some()
        };
        let listed = files.iter().take(MAX_FILES).take_while(fits).count();
        self.files_not_listed = files.len().saturating_sub(listed) as u64;
        files.truncate(listed);
        self.files = files;
    }

    /// Number of changed files.
    #[must_use]
    pub fn changed_files(&self) -> u64 {
        self.files_not_listed
            .saturating_add(self.files.len() as u64)
    }

    /// Whether the pushed commit differs from the base.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.changed_files() > 0 || self.diff_cut || self.merged
    }

    /// Adds web requests of a sandbox to those of others.
    pub fn add_web(&mut self, requests: Vec<WebRequest>) {
        for request in requests {
            let same = |known: &&mut WebRequest| {
                known.host == request.host && known.refused == request.refused
            };
            match self.web.iter_mut().find(same) {
                Some(known) => known.count = known.count.saturating_add(request.count),
                None => self.web.push(request),
            }
        }
        self.web
            .sort_by_key(|it| (it.refused.is_none(), std::cmp::Reverse(it.count)));
    }

    /// The same facts with `redact` applied to every text.
    #[must_use]
    pub fn redacted(self, redact: &dyn Fn(String) -> String) -> Self {
        let Self {
            head,
            base,
            push_error,
            files,
            files_not_listed,
            checks,
            checks_from,
            setup_failures,
            notes,
            placeholders,
            protected,
            refused_pushes,
            web,
            web_dropped,
            diff_cut,
            unchanged,
            merged,
        } = self;
        Self {
            head: head.map(redact),
            base: redact(base),
            push_error: push_error.map(redact),
            files: files
                .into_iter()
                .map(|file| file.redacted(redact))
                .collect(),
            files_not_listed,
            checks: checks
                .into_iter()
                .map(|check| check.redacted(redact))
                .collect(),
            checks_from: redact(checks_from),
            setup_failures: setup_failures
                .into_iter()
                .map(|check| check.redacted(redact))
                .collect(),
            notes: notes.into_iter().map(redact).collect(),
            placeholders: placeholders.into_iter().map(redact).collect(),
            protected: protected.into_iter().map(redact).collect(),
            refused_pushes: refused_pushes.into_iter().map(redact).collect(),
            web: web
                .into_iter()
                .map(|request| request.redacted(redact))
                .collect(),
            web_dropped,
            diff_cut,
            unchanged,
            merged,
        }
    }
}

impl ChangedFile {
    fn redacted(self, redact: &dyn Fn(String) -> String) -> Self {
        let Self {
            path,
            added,
            removed,
        } = self;
        Self {
            path: redact(path),
            added,
            removed,
        }
    }
}

impl WebRequest {
    fn redacted(self, redact: &dyn Fn(String) -> String) -> Self {
        let Self {
            host,
            count,
            refused,
        } = self;
        Self {
            host: redact(host),
            count,
            refused: refused.map(redact),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(count: usize, length: usize) -> Vec<ChangedFile> {
        let file = ChangedFile {
            path: "x".repeat(length),
            added: Some(1),
            removed: None,
        };
        vec![file; count]
    }

    #[test]
    fn changed_files_beyond_the_limits_are_counted() {
        for (count, length, listed) in [
            (3, 10, 3),
            (MAX_FILES + 2, 10, MAX_FILES),
            (400, 1024, MAX_PATHS / 1024),
            (1, MAX_PATHS + 1, 0),
        ] {
            let mut facts = Facts::default();
            facts.list_files(files(count, length));
            assert_eq!(facts.files, files(count, length)[..listed]);
            assert_eq!(facts.files_not_listed, (count - listed) as u64);
            assert_eq!(facts.changed_files(), count as u64);
        }
    }
}
