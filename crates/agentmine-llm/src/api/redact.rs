//! Text of a server, made fit to be shown: redacted, on one line, capped.

use agentmine_runtime::config::Secret;
use agentmine_runtime::redact;

use super::page;

/// Characters of a text that are shown.
const SHOWN: usize = 2_000;
/// Bytes from which on a text is redacted. Shorter ones would be found in ordinary words.
const SHORTEST: usize = 4;

/// The secrets that a server may echo.
#[derive(Debug, Clone, Default)]
pub(crate) struct Redactor(redact::Redactor);

impl Redactor {
    /// Removes these secrets from every text.
    pub(crate) fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self(redact::Redactor::at_least(SHORTEST, secrets))
    }

    /// The text, redacted and without control characters, capped. A web page is only described.
    pub(crate) fn redact(&self, text: &str) -> String {
        let text = page::described(text).unwrap_or_else(|| text.to_owned());
        let text = self.0.redact(text);
        let text = text.trim();
        let mut shown: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(SHOWN)
            .collect();
        if text.chars().nth(SHOWN).is_some() {
            shown.push_str(" … (cut)");
        }
        if shown.is_empty() {
            shown.push_str("(empty body)");
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_control_characters_are_not_shown_and_long_texts_are_cut() {
        let redactor = Redactor::new(["sk-secret", "sk-secret-longer", "ab"].map(Secret::new));
        assert_eq!(
            redactor.redact("bad key sk-secret-longer, \u{1b}[31m sk-secret; about\n"),
            "bad key ***,  [31m ***; about"
        );
        assert_eq!(redactor.redact(" \n"), "(empty body)");
        let long = redactor.redact(&"é".repeat(5_000));
        assert!(long.ends_with(" … (cut)") && long.chars().count() < 2_020);
    }
}
