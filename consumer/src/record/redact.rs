//! Redacts secrets from everything that is recorded, shown, or sent to the model.

use agentmine_runtime::config::Secret;
use agentmine_runtime::redact;
use agentmine_sandbox::{CommandOutput, CommandResult};

/// Replaces secrets in texts. Apply it before a text is cut: a part of a secret would not be found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Redactor(redact::Redactor);

impl Redactor {
    /// A redactor for these secrets.
    pub(crate) fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self(redact::Redactor::new(secrets))
    }

    /// Replaces each secret in the text with `***`.
    pub(crate) fn redact(&self, text: String) -> String {
        self.0.redact(text)
    }

    /// The beginning of a text that continues, redacted: as far as no secret can be there in part.
    pub(crate) fn redact_open(&self, text: &str) -> String {
        self.0.redact_open(text)
    }

    /// Bytes to capture of an output of which `max` are shown: a secret beside the gap may be cut in half,
    /// so that much is not shown.
    pub(crate) fn capture(&self, max: usize) -> usize {
        max.saturating_add(self.0.longest().saturating_mul(2))
    }

    /// Both outputs of a command, redacted, then cut to `max` bytes together: what one of them does not
    /// need is left to the other. `how` to see what is omitted is part of the note.
    pub(crate) fn outputs(&self, done: &CommandResult, max: usize, how: &str) -> Outputs {
        let redacted = |output: &CommandOutput| {
            let redact = |text| self.redact(text);
            output.excerpt().redacted(self.0.longest(), redact)
        };
        let (stdout, stderr) = (redacted(&done.stdout), redacted(&done.stderr));
        let half = max / 2;
        let room = max - stderr.len().min(half.max(max.saturating_sub(stdout.len())));
        let stdout = stdout.fit(room);
        let stderr = stderr.fit(max - stdout.len());
        Outputs {
            stdout: stdout.into_text(how),
            stderr: stderr.into_text(how),
        }
    }

    /// Whether the text contains a secret.
    pub(crate) fn finds_in(&self, text: &str) -> bool {
        self.0.finds_in(text)
    }

    /// Whether all of `secrets` would be redacted.
    pub(crate) fn covers(&self, secrets: &[Secret]) -> bool {
        self.0.covers(secrets)
    }
}

/// What a command wrote, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outputs {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}
