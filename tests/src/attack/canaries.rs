//! Secrets that must not be found anywhere, each with its own value.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Variables of the worker's environment in which operators keep secrets.
const VARIABLES: &[&str] = &[
    "GITHUB_PERSONAL_ACCESS_TOKEN",
    "GITLAB_PERSONAL_ACCESS_TOKEN",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "LLM_API_KEY",
    "DATABASE_URL",
    "RABBITMQ_URL",
    "NPM_TOKEN",
    "MCP_TOKEN",
];

/// Named secrets.
#[derive(Debug, Clone, Default)]
pub struct Canaries(Vec<(String, String)>);

impl Canaries {
    /// Those that this process has in its environment ([`fresh_environment`]).
    pub(super) fn of_environment() -> Self {
        let found = VARIABLES.iter().filter_map(|&name| {
            let value = std::env::var(name).ok()?;
            value.contains("canary").then(|| (name.to_owned(), value))
        });
        Self(found.collect())
    }

    /// Adds a secret.
    pub fn add(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.to_owned()));
    }

    /// Every form of every secret, as the search for it expects it, for a search by another program.
    #[must_use]
    pub fn all_forms(&self) -> Vec<String> {
        self.0.iter().flat_map(|(_, value)| forms(value)).collect()
    }

    /// The name of a secret that is in a text: as it is, encoded, or split.
    #[must_use]
    pub fn found_in(&self, text: &[u8]) -> Option<&str> {
        let joined: Vec<u8> = text
            .iter()
            .copied()
            .filter(|byte| byte.is_ascii_alphanumeric())
            .collect();
        let found = self.0.iter().find(|(_, value)| {
            forms(value)
                .iter()
                .any(|form| contains(text, form.as_bytes()))
                || contains(&joined, plain(value).as_bytes())
        });
        found.map(|(name, _)| name.as_str())
    }
}

/// Values for the variables of a worker, none used twice.
#[must_use]
pub(super) fn fresh_environment() -> Vec<(&'static str, String)> {
    let fresh = |name: &&'static str| {
        let unique = uuid::Uuid::new_v4().simple();
        (*name, format!("canary{unique}"))
    };
    VARIABLES.iter().map(fresh).collect()
}

fn plain(value: &str) -> String {
    value.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// The encodings of a value. Base64 has three, by the position of the value in what was encoded; the letters at
/// the ends, which depend on what is around it, are omitted.
fn forms(value: &str) -> Vec<String> {
    let bytes = value.as_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let percent: String = bytes.iter().map(|byte| format!("%{byte:02X}")).collect();
    let reversed = value.chars().rev().collect();
    let mut forms = vec![value.to_owned(), hex.to_uppercase(), hex, percent, reversed];
    for shift in 0..3 {
        let shifted = [vec![b'x'; shift], bytes.to_vec()].concat();
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let text = engine.encode(&shifted);
            let middle = text.get(4..text.len().saturating_sub(4));
            forms.extend(middle.map(ToOwned::to_owned));
        }
    }
    forms
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && memchr::memmem::find(text, part).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_in_each_encoding() {
        let mut canaries = Canaries(Vec::new());
        canaries.add("token", "canary0123456789abcdef");
        let hex = "63616e6172793031323334353637383961626364656";
        let base64 = base64::engine::general_purpose::STANDARD;
        for text in [
            "x canary0123456789abcdef y".to_owned(),
            "can\nary 0123 45678 9abc\"+\"def".to_owned(),
            format!("{hex}6"),
            base64.encode("bot:canary0123456789abcdef"),
            base64.encode("o:canary0123456789abcdef!"),
            "fedcba9876543210yranac".to_owned(),
        ] {
            assert_eq!(canaries.found_in(text.as_bytes()), Some("token"), "{text}");
        }
        assert_eq!(canaries.found_in(b"canary0123456789abcde"), None);
    }
}
