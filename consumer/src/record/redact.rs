//! Redacts secrets from everything that is recorded, shown, or sent to the model.

use std::cmp::Reverse;
use std::fmt;

use agentmine_runtime::config::Secret;
use memchr::memmem::Finder;

/// Minimum length in bytes of a secret; shorter ones would match ordinary words.
const MIN_SECRET: usize = 8;

/// Replaces secrets in texts. Apply it before a text is truncated: a cut secret would not be found.
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
    fn an_unknown_secret_is_not_covered() {
        let redactor = redactor(&["canary-token"]);
        assert!(redactor.covers(&[Secret::new("canary-token"), Secret::new("short")]));
        assert!(!redactor.covers(&[Secret::new("another-token")]));
    }
}
