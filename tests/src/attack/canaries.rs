//! Secrets that must not be found anywhere, each with its own value.

use aho_corasick::AhoCorasick;
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
pub struct Canaries {
    named: Vec<(String, String)>,
    /// `None` without secrets.
    search: Option<Search>,
}

impl Canaries {
    /// Those that this process has in its environment ([`fresh_environment`]).
    pub(super) fn of_environment() -> Self {
        let found = VARIABLES.iter().filter_map(|&name| {
            let value = std::env::var(name).ok()?;
            value.contains("canary").then(|| (name.to_owned(), value))
        });
        let mut canaries = Self::default();
        canaries.named.extend(found);
        canaries.search = Search::of(&canaries.named);
        canaries
    }

    /// Adds a secret, which has letters or digits.
    pub fn add(&mut self, name: &str, value: &str) {
        self.named.push((name.to_owned(), value.to_owned()));
        self.search = Search::of(&self.named);
    }

    /// Every form of every secret, as the search for it expects it, for a search by another program.
    #[must_use]
    pub fn all_forms(&self) -> Vec<String> {
        let named = self.named.iter();
        named.flat_map(|(_, value)| forms(value)).collect()
    }

    /// The name of a secret that is in a text: as it is, encoded, or split.
    #[must_use]
    pub fn found_in(&self, text: &[u8]) -> Option<&str> {
        let owner = self.search.as_ref()?.owner(text)?;
        self.named.get(owner).map(|(name, _)| name.as_str())
    }
}

/// Looks for all forms of all secrets at once: logs at trace level have megabytes.
#[derive(Debug, Clone)]
struct Search {
    forms: AhoCorasick,
    /// Which secret each form is of.
    owners: Vec<usize>,
    /// The letters and digits of each secret.
    plain: AhoCorasick,
}

impl Search {
    #[expect(
        clippy::expect_used,
        reason = "only texts of gigabytes are too much, and without a search nothing would be found"
    )]
    fn of(named: &[(String, String)]) -> Option<Self> {
        let (mut owners, mut all) = (Vec::new(), Vec::new());
        for (owner, (_, value)) in named.iter().enumerate() {
            for form in forms(value).into_iter().filter(|form| !form.is_empty()) {
                owners.push(owner);
                all.push(form);
            }
        }
        let plain = named.iter().map(|(_, value)| plain(value));
        (!all.is_empty()).then(|| Self {
            forms: AhoCorasick::new(all).expect("a search for a few secrets"),
            owners,
            plain: AhoCorasick::new(plain).expect("a search for a few secrets"),
        })
    }

    /// The secret that a text contains: as it is, encoded, or split.
    fn owner(&self, text: &[u8]) -> Option<usize> {
        if let Some(found) = self.forms.find(text) {
            return self.owners.get(found.pattern().as_usize()).copied();
        }
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric();
        let joined: Vec<u8> = text.iter().copied().filter(is_plain).collect();
        let found = self.plain.find(&joined)?;
        Some(found.pattern().as_usize())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_in_each_encoding() {
        let mut canaries = Canaries::default();
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
