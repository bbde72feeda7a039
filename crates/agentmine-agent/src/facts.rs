//! The facts that the worker measured about the result.

use serde::{Deserialize, Serialize};

/// Facts measured on the pushed commit. None of them comes from the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The branch's commit on the remote; `None` if nothing was pushed.
    pub head: Option<String>,
    /// The base commit that the work began from.
    pub base: String,
    /// Why the last push failed, if it did.
    pub push_error: Option<String>,
    /// Changed files between base and head.
    pub files: Vec<ChangedFile>,
    /// The project's checks, run on a fresh clone of the pushed commit.
    pub checks: Vec<Check>,
    /// Where the checks come from: the configuration, the repository's settings file, or a guess.
    pub checks_from: String,
    /// Placeholders in added lines, as `file:line text`.
    pub placeholders: Vec<String>,
    /// Changed files that control CI, code ownership or agents.
    pub protected: Vec<String>,
    /// Web requests, allowed or refused.
    pub web: Vec<WebRequest>,
    /// Number of web requests that did not fit into the list.
    #[serde(default)]
    pub web_dropped: u64,
    /// Whether the diff was too large to be checked completely.
    #[serde(default)]
    pub diff_cut: bool,
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

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The shell command.
    pub command: String,
    /// Its exit code.
    pub exit_code: i32,
    /// The head and tail of its output.
    pub output: String,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// Whether it was guessed and its program is missing in the sandbox; it then does not count.
    #[serde(default)]
    pub could_not_run: bool,
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
    /// The same facts with `redact` applied to every text.
    #[must_use]
    pub fn redacted(self, redact: &dyn Fn(String) -> String) -> Self {
        let Self {
            head,
            base,
            push_error,
            files,
            checks,
            checks_from,
            placeholders,
            protected,
            web,
            web_dropped,
            diff_cut,
        } = self;
        Self {
            head: head.map(redact),
            base: redact(base),
            push_error: push_error.map(redact),
            files: files
                .into_iter()
                .map(|file| file.redacted(redact))
                .collect(),
            checks: checks
                .into_iter()
                .map(|check| check.redacted(redact))
                .collect(),
            checks_from: redact(checks_from),
            placeholders: placeholders.into_iter().map(redact).collect(),
            protected: protected.into_iter().map(redact).collect(),
            web: web
                .into_iter()
                .map(|request| request.redacted(redact))
                .collect(),
            web_dropped,
            diff_cut,
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

impl Check {
    fn redacted(self, redact: &dyn Fn(String) -> String) -> Self {
        let Self {
            command,
            exit_code,
            output,
            duration_ms,
            could_not_run,
        } = self;
        Self {
            command: redact(command),
            exit_code,
            output: redact(output),
            duration_ms,
            could_not_run,
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
