//! Redacts secrets from everything that is recorded, shown, or sent to the model.

use std::cmp::Reverse;
use std::fmt;

use agentmine_runtime::config::Secret;
use agentmine_sandbox::{CommandOutput, CommandResult};
use memchr::memmem::Finder;
use serde_json::Value;

/// Minimum length in bytes of a secret; shorter ones would match ordinary words.
const MIN_SECRET: usize = 8;

/// Minimum length in bytes of a line of a secret of several lines, which is redacted on its own too.
const MIN_LINE: usize = 16;

/// Replaces secrets in texts. Apply it before a text is cut: a part of a secret would not be found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Redactor {
    /// Longest first, because one may be part of another.
    secrets: Vec<Needle>,
}

/// A secret, prepared for the search: every text of every step is searched.
#[derive(Clone)]
struct Needle {
    secret: Secret,
    finder: Finder<'static>,
}

impl fmt::Debug for Needle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.secret.fmt(f)
    }
}

impl Redactor {
    /// A redactor for these secrets.
    pub(crate) fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let mut secrets: Vec<Secret> = secrets
            .into_iter()
            .flat_map(forms)
            .filter(|secret| secret.expose().len() >= MIN_SECRET)
            .collect();
        secrets.sort_by_key(|secret| Reverse(secret.expose().len()));
        let needle = |secret: Secret| Needle {
            finder: Finder::new(secret.expose()).into_owned(),
            secret,
        };
        Self {
            secrets: secrets.into_iter().map(needle).collect(),
        }
    }

    /// Replaces each secret in the text with `***`.
    pub(crate) fn redact(&self, mut text: String) -> String {
        for Needle { secret, finder } in &self.secrets {
            if finder.find(text.as_bytes()).is_some() {
                text = text.replace(secret.expose(), "***");
            }
        }
        text
    }

    /// Bytes to capture of an output of which `max` are shown: a secret beside the gap may be cut in half,
    /// so that much is not shown.
    pub(crate) fn capture(&self, max: usize) -> usize {
        max.saturating_add(self.longest().saturating_mul(2))
    }

    /// Both outputs of a command, redacted, then cut to `max` bytes together: what one of them does not
    /// need is left to the other. `how` to see what is left out is part of the note.
    pub(crate) fn outputs(&self, done: &CommandResult, max: usize, how: &str) -> Outputs {
        let redacted = |output: &CommandOutput| {
            let redact = |text| self.redact(text);
            output.excerpt().redacted(self.longest(), redact)
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

    fn longest(&self) -> usize {
        // The longest is the first.
        let first = self.secrets.first();
        first.map_or(0, |needle| needle.secret.expose().len())
    }

    /// Whether the text contains a secret.
    pub(crate) fn finds_in(&self, text: &str) -> bool {
        self.secrets
            .iter()
            .any(|needle| needle.finder.find(text.as_bytes()).is_some())
    }

    /// Whether all of `secrets` would be redacted.
    pub(crate) fn covers(&self, secrets: &[Secret]) -> bool {
        let known = |secret: &str| {
            self.secrets
                .iter()
                .any(|known| known.secret.expose() == secret)
        };
        secrets
            .iter()
            .map(Secret::expose)
            .all(|secret| secret.len() < MIN_SECRET || known(secret))
    }
}

/// What a command wrote, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outputs {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A secret as it may occur. One of several lines, such as a key, may be shown with a prefix before each
/// line, or inside of a JSON string.
fn forms(secret: Secret) -> Vec<Secret> {
    let text = secret.expose();
    let mut forms = Vec::new();
    if text.trim_end().contains('\n') {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| line.len() >= MIN_LINE && !line.starts_with("-----"));
        forms.extend(lines.map(Secret::new));
    }
    let quoted = Value::from(text).to_string();
    let escaped = quoted.trim_matches('"');
    if escaped != text {
        forms.push(Secret::new(escaped));
    }
    forms.push(secret);
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor(secrets: &[&str]) -> Redactor {
        Redactor::new(secrets.iter().map(|secret| Secret::new(*secret)))
    }

    #[test]
    fn a_secret_is_replaced_wherever_it_occurs() {
        let redactor = redactor(&["canary-token", "short"]);
        assert_eq!(
            redactor.redact("canary-token, short canary-tokens".into()),
            "***, short ***s"
        );
    }

    #[test]
    fn the_longest_secret_is_replaced_first() {
        let redactor = redactor(&["canary-token", "canary-token-and-more"]);
        assert_eq!(redactor.redact("canary-token-and-more".into()), "***");
    }

    #[test]
    fn a_key_is_found_line_by_line_and_inside_of_json() {
        let key =
            "-----BEGIN KEY-----\nbGluZSBvbmUgb2YgaXQ=\nbGluZSB0d28gb2YgaXQ=\n-----END KEY-----\n";
        let redactor = redactor(&[key]);
        let json = Value::from(key).to_string();
        for shown in [key, "     2\tbGluZSBvbmUgb2YgaXQ=\n", &json] {
            let text = redactor.redact(shown.to_owned());
            assert!(!text.contains("bGluZ"), "{text}");
        }
        let other = "-----BEGIN KEY-----";
        assert_eq!(redactor.redact(other.to_owned()), other);
    }

    #[test]
    fn an_unknown_secret_is_not_covered() {
        let redactor = redactor(&["canary-token"]);
        assert!(redactor.covers(&[Secret::new("canary-token"), Secret::new("short")]));
        assert!(!redactor.covers(&[Secret::new("another-token")]));
    }
}
