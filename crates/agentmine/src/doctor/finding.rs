//! What a check found.

use agentmine_runtime::redact::Redactor;
use serde_json::{Value, json};

use crate::print::clean;

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Good,
    /// It works, but not as well as it could, or not everywhere.
    Warning,
    Failed,
    /// It was not made: it is not needed, or something else has to work first.
    Skipped,
}

impl Outcome {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// One line of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) outcome: Outcome,
    pub(super) detail: String,
    /// What to do about it.
    pub(super) fix: Option<String>,
}

impl Finding {
    fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        // Errors of libraries carry their hint in their text.
        let (detail, fix) = match detail.split_once("hint: ") {
            Some((detail, fix)) => {
                let detail = detail.trim_end().trim_end_matches(['.', ';', ',']);
                (detail.to_owned(), Some(fix.trim_end().to_owned()))
            }
            None => (detail, None),
        };
        Self {
            outcome,
            detail,
            fix,
        }
    }

    pub(super) fn good(detail: impl Into<String>) -> Self {
        Self::new(Outcome::Good, detail)
    }

    pub(super) fn warning(detail: impl Into<String>) -> Self {
        Self::new(Outcome::Warning, detail)
    }

    pub(super) fn failed(detail: impl Into<String>) -> Self {
        Self::new(Outcome::Failed, detail)
    }

    pub(super) fn skipped(detail: impl Into<String>) -> Self {
        Self::new(Outcome::Skipped, detail)
    }

    /// What to do, unless the text said it already.
    pub(super) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix.get_or_insert_with(|| fix.into());
        self
    }

    /// Removes secrets and control characters.
    pub(super) fn redact(&mut self, secrets: &Redactor) {
        let redact = |text: &mut String| *text = clean(&secrets.redact(std::mem::take(text)));
        redact(&mut self.detail);
        self.fix.iter_mut().for_each(redact);
    }
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) name: &'static str,
    pub(super) findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(name: &'static str, findings: Vec<Finding>) -> Self {
        Self { name, findings }
    }

    pub(super) fn json(&self) -> Vec<Value> {
        let row = |finding: &Finding| {
            json!({
                "name": self.name,
                "outcome": finding.outcome.word(),
                "detail": finding.detail,
                "fix": finding.fix,
            })
        };
        self.findings.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_of_an_error_is_the_fix() {
        let finding = Finding::failed("docker: no socket. hint: start it").fix("another");
        assert_eq!(finding.detail, "docker: no socket");
        assert_eq!(finding.fix.as_deref(), Some("start it"));
        let finding = Finding::failed("no name\n  hint: set model.name");
        assert_eq!(finding.detail, "no name");
        assert_eq!(finding.fix.as_deref(), Some("set model.name"));
    }
}
