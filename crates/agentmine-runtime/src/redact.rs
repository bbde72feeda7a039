//! Removes secrets from texts, in the forms in which services and programs repeat them.
//!
//! A secret is found as it is, line by line, escaped as in JSON or in a URL, in hexadecimal, and in base64 at any
//! position: as a server shows the header `Authorization: Basic`. Not found is a secret in two pieces.
//!
//! [`hide`] names the secrets that no log line, error message or crash message of this process shows, whichever
//! library writes it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use secrecy::ExposeSecret as _;
use serde_json::Value;

use crate::config::Secret;
use crate::config::rotation;

/// Minimum length in bytes of a secret; shorter ones would match ordinary words.
const SHORTEST: usize = 8;
/// Minimum length in bytes of a line of a secret of several lines, which is redacted on its own too.
const SHORTEST_LINE: usize = 16;
/// The replacement for a secret.
const MARK: &str = "***";

/// Changes when a secret of this process is replaced: what has none of the secrets from before may have the new one.
#[must_use]
pub fn generation() -> u64 {
    rotation::generation()
}

/// Replaces secrets in texts. Apply it before a text is cut: a part of a secret would not be found.
///
/// It also knows what took the place of any secret of this process in a file (`config::rotation`), whenever that was.
#[derive(Clone)]
pub struct Redactor {
    /// Minimum length in bytes.
    shortest: usize,
    /// As given, without those that are too short.
    secrets: Vec<Secret>,
    /// All forms of all secrets. `None`: there are none.
    forms: Option<AhoCorasick>,
    /// Up to which replacement of a secret they are known.
    generation: u64,
    /// The one that knows later replacements.
    later: Arc<Mutex<Option<Arc<Self>>>>,
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new([])
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} secrets)", self.secrets.len())
    }
}

impl Redactor {
    /// A redactor for these secrets.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self::at_least(SHORTEST, secrets)
    }

    /// The same, for texts in which shorter secrets are recognized too: those of `shortest` bytes.
    pub fn at_least(shortest: usize, secrets: impl IntoIterator<Item = Secret>) -> Self {
        // Read before the replacements: one that comes meanwhile is looked for again.
        let generation = rotation::generation();
        let is_long = |secret: &Secret| secret.expose().len() >= shortest;
        let later = rotation::replacements();
        let later = later.iter().map(|text| Secret::new(text.expose_secret()));
        let secrets = secrets.into_iter().chain(later);
        let secrets: Vec<Secret> = secrets.filter(is_long).collect();
        let forms: BTreeSet<String> = secrets
            .iter()
            .flat_map(|secret| forms(secret.expose()))
            .filter(|form| form.len() >= shortest)
            .collect();
        let found = AhoCorasick::builder()
            // One secret may be a part of another.
            .match_kind(MatchKind::LeftmostLongest)
            // Each task has one of these; a DFA would take megabytes.
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&forms);
        Self {
            // It fails for texts of gigabytes alone.
            forms: found.ok().filter(|_| !forms.is_empty()),
            secrets,
            shortest,
            generation,
            later: Arc::default(),
        }
    }

    /// The one to use instead, if a secret was replaced since this one was made.
    fn later(&self) -> Option<Arc<Self>> {
        if self.generation == rotation::generation() {
            return None;
        }
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = |known: &&Arc<Self>| known.generation == rotation::generation();
        if let Some(known) = later.as_ref().filter(is_current) {
            return Some(Arc::clone(known));
        }
        let made = Arc::new(Self::at_least(self.shortest, self.secrets.iter().cloned()));
        Some(Arc::clone(later.insert(made)))
    }

    /// Replaces each secret in the text with `***`.
    #[must_use]
    pub fn redact(&self, text: String) -> String {
        if let Some(later) = self.later() {
            return later.redact(text);
        }
        let Some(forms) = self.forms.as_ref().filter(|forms| forms.is_match(&text)) else {
            return text;
        };
        let mut redacted = String::with_capacity(text.len());
        forms.replace_all_with(&text, &mut redacted, |_, _, text| {
            text.push_str(MARK);
            true
        });
        redacted
    }

    /// The same for bytes.
    #[must_use]
    pub fn redact_bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if let Some(later) = self.later() {
            return later.redact_bytes(bytes);
        }
        let Some(forms) = self.forms.as_ref().filter(|forms| forms.is_match(bytes)) else {
            return bytes.into();
        };
        let mut redacted = Vec::with_capacity(bytes.len());
        forms.replace_all_with_bytes(bytes, &mut redacted, |_, _, bytes| {
            bytes.extend_from_slice(MARK.as_bytes());
            true
        });
        redacted.into()
    }

    /// Length in bytes of the longest form of a secret; 0 if there are no secrets.
    #[must_use]
    pub fn longest(&self) -> usize {
        if let Some(later) = self.later() {
            return later.longest();
        }
        self.forms.as_ref().map_or(0, AhoCorasick::max_pattern_len)
    }

    /// The beginning of a text that continues, redacted: as far as no secret can be there in part.
    #[must_use]
    pub fn redact_open(&self, text: &str) -> String {
        if let Some(later) = self.later() {
            return later.redact_open(text);
        }
        let Some(found) = &self.forms else {
            return text.to_owned();
        };
        let open = self.secrets.iter().flat_map(|it| forms(it.expose()));
        let open = open.map(|form| open_end(text, &form)).max().unwrap_or(0);
        let mut end = text.len() - open;
        // A secret that is there as a whole stays whole.
        for whole in found.find_iter(text) {
            if whole.start() < end && whole.end() > end {
                end = whole.start();
            }
        }
        let end = text.floor_char_boundary(end);
        self.redact(text[..end].to_owned())
    }

    /// Whether the text contains a secret.
    #[must_use]
    pub fn finds_in(&self, text: &str) -> bool {
        if let Some(later) = self.later() {
            return later.finds_in(text);
        }
        self.forms.as_ref().is_some_and(|it| it.is_match(text))
    }

    /// Whether all of `secrets` would be redacted.
    #[must_use]
    pub fn covers(&self, secrets: &[Secret]) -> bool {
        let is_known = |secret: &str| self.secrets.iter().any(|known| known.expose() == secret);
        let mut texts = secrets.iter().map(Secret::expose);
        texts.all(|secret| secret.len() < SHORTEST || is_known(secret))
    }
}

/// Bytes at the end of the text with which the secret begins, without the rest of it.
fn open_end(text: &str, form: &str) -> usize {
    let (text, form) = (text.as_bytes(), form.as_bytes());
    let longest = form.len().saturating_sub(1).min(text.len());
    let begins = |length: &usize| text.ends_with(&form[..*length]);
    (1..=longest).rev().find(begins).unwrap_or(0)
}

/// A secret as it may occur.
fn forms(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned()];
    if secret.trim_end().contains('\n') {
        // A key, for example, may be shown with a prefix before each line.
        let lines = secret.lines().map(str::trim);
        let lines = lines.filter(|it| it.len() >= SHORTEST_LINE && !it.starts_with("-----"));
        forms.extend(lines.map(str::to_owned));
    }
    let quoted = Value::from(secret).to_string();
    let escaped = quoted.trim_matches('"');
    forms.extend([escaped.to_owned(), escaped.replace('/', "\\/")]);
    // Nobody encodes a whole URL; its password is a separate secret.
    if secret.len() < SHORTEST || secret.contains("://") {
        return forms;
    }
    let bytes = secret.as_bytes();
    let percent: String = url::form_urlencoded::byte_serialize(bytes).collect();
    forms.extend([percent.replace('+', "%20"), percent.to_lowercase()]);
    forms.push(percent);
    let all: String = bytes.iter().map(|byte| format!("%{byte:02X}")).collect();
    forms.extend([all.to_lowercase(), all]);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    forms.extend([hex.to_uppercase(), hex]);
    forms.extend((0..3).flat_map(|before| in_base64(bytes, before)));
    forms
}

/// What is in the base64 of a text in which a secret has `before` bytes before it, modulo 3: those characters
/// that depend on the secret alone.
fn in_base64(secret: &[u8], before: usize) -> Vec<String> {
    let text = [&b"xx"[..before], secret].concat();
    let own = (8 * before).div_ceil(6)..8 * text.len() / 6;
    let encoded = [STANDARD_NO_PAD, URL_SAFE_NO_PAD].map(|engine| engine.encode(&text));
    let own = encoded.iter().filter_map(|it| it.get(own.clone()));
    own.map(str::to_owned).collect()
}

/// The secrets of this process.
static HIDDEN: RwLock<Option<Redactor>> = RwLock::new(None);

/// From now on, nothing that this process writes to stderr by [`logging`](crate::logging), by
/// [`exit::report`](crate::exit::report) or in a panic shows these secrets, besides those that were hidden before.
pub fn hide(secrets: impl IntoIterator<Item = Secret>) {
    let mut hidden = HIDDEN.write().unwrap_or_else(PoisonError::into_inner);
    let known = hidden.take().map(|it| it.secrets).unwrap_or_default();
    *hidden = Some(Redactor::new(known.into_iter().chain(secrets)));
}

/// The bytes without the secrets of this process.
#[must_use]
pub(crate) fn without_hidden(bytes: &[u8]) -> Cow<'_, [u8]> {
    let hidden = HIDDEN.read().unwrap_or_else(PoisonError::into_inner);
    match &*hidden {
        Some(redactor) => redactor.redact_bytes(bytes),
        None => bytes.into(),
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
        let text = "canary-token, short canary-tokens";
        assert_eq!(redactor.redact(text.into()), "***, short ***s");
        assert_eq!(
            *redactor.redact_bytes(b"\xff canary-token"),
            *b"\xff ***".as_slice()
        );
    }

    #[test]
    fn a_text_that_continues_shows_no_part_of_a_secret() {
        let redactor = redactor(&[
            "canary-token",
            "canary-token-and-more",
            "nightingale-é-song",
        ]);
        let whole = "It is canary-token-and-more, canary-token and nightingale-é-song, ¡sí!";
        let last = redactor.redact(whole.into());
        assert_eq!(last, "It is ***, *** and ***, ¡sí!");
        let mut before = String::new();
        for end in (0..=whole.len()).filter(|end| whole.is_char_boundary(*end)) {
            let shown = redactor.redact_open(&whole[..end]);
            assert!(last.starts_with(&shown), "{shown:?} of {:?}", &whole[..end]);
            assert!(
                shown.len() >= before.len() || before.starts_with(&shown),
                "{before:?} {shown:?}"
            );
            before = shown;
        }
        assert_eq!(before, last);
        assert_eq!(super::Redactor::default().redact_open("can"), "can");
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
    fn a_secret_is_found_in_each_encoding() {
        let secret = "p@ss/word+with?signs";
        let redactor = redactor(&[secret]);
        let hex: String = secret.bytes().map(|byte| format!("{byte:02X}")).collect();
        let engines = [
            base64::engine::general_purpose::STANDARD,
            base64::engine::general_purpose::URL_SAFE,
        ];
        let pairs = ["bot:", "x-access-token:", "oauth2:"].map(|user| format!("{user}{secret}"));
        let basic = pairs
            .iter()
            .flat_map(|pair| engines.iter().map(move |it| it.encode(pair)));
        for shown in basic.chain([
            hex.to_lowercase(),
            hex,
            "p%40ss%2Fword%2Bwith%3Fsigns".into(),
            "p%40ss%2fword%2bwith%3fsigns".into(),
            "p@ss\\/word+with?signs".into(),
        ]) {
            let text = redactor.redact(format!("Authorization: Basic {shown}"));
            assert!(text.contains("***"), "{shown}: {text}");
            // A few bits of the first and the last byte may be left.
            assert!(text.len() < "Authorization: Basic ***".len() + 24, "{text}");
            assert!(redactor.finds_in(&shown));
        }
        assert!(!redactor.finds_in("cGFzc3dvcmQgd2l0aCBzaWducw"));
    }

    #[test]
    fn an_unknown_secret_is_not_covered() {
        let redactor = redactor(&["canary-token"]);
        assert!(redactor.covers(&[Secret::new("canary-token"), Secret::new("short")]));
        assert!(!redactor.covers(&[Secret::new("another-token")]));
    }

    #[test]
    fn without_secrets_nothing_changes() {
        let redactor = redactor(&[]);
        assert_eq!(redactor.redact("text".into()), "text");
        // Other tests of this process may have replaced secrets.
        assert!(redactor.longest() == 0 || rotation::generation() > 0);
    }
}
