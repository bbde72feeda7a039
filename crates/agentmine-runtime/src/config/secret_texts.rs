//! The secret parts of a value as plain texts: the credentials of a URL, and what follows the scheme of a header.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use url::Url;

/// Query parameters of a URL whose value is a credential.
const CREDENTIALS: [&str; 10] = [
    "access_token",
    "api-key",
    "api_key",
    "apikey",
    "key",
    "password",
    "secret",
    "sig",
    "signature",
    "token",
];

/// What of a single secret is to be redacted: of a URL its credentials too.
pub(super) fn parts_of(secret: &str) -> Vec<String> {
    let mut found = SecretTexts::default();
    match secret.contains("://") {
        true => found.url(secret),
        false => found.text(secret),
    }
    found.into_list()
}

/// The secrets found so far.
#[derive(Default)]
pub(super) struct SecretTexts(BTreeSet<String>);

impl SecretTexts {
    /// Longest first.
    pub(super) fn into_list(self) -> Vec<String> {
        let mut texts: Vec<String> = self.0.into_iter().collect();
        texts.sort_by_key(|text| Reverse(text.len()));
        texts
    }

    /// The password in `Basic …`.
    pub(super) fn basic(&mut self, value: &str) {
        let encoded = value
            .trim()
            .split_once(' ')
            .map(|(_, encoded)| encoded.trim());
        let decoded = encoded.and_then(|it| STANDARD.decode(it).ok());
        let pair = decoded.and_then(|pair| String::from_utf8(pair).ok());
        if let Some((user, password)) = pair.as_deref().and_then(|pair| pair.split_once(':'))
            && user != password
        {
            self.text(password);
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        let text = text.trim();
        if !text.is_empty() {
            self.0.insert(text.to_owned());
        }
    }

    /// A header's value, and the credential after its scheme: `Bearer KEY`.
    pub(super) fn header(&mut self, value: &str) {
        self.text(value);
        if let Some((_scheme, credential)) = value.trim().split_once(' ') {
            self.text(credential);
        }
    }

    /// The credentials of a URL, as written and decoded, and then the URL itself.
    pub(super) fn url(&mut self, text: &str) {
        let Ok(url) = Url::parse(text) else { return };
        let mut credentials: Vec<String> = url
            .query_pairs()
            .filter(|(name, _)| CREDENTIALS.contains(&name.to_lowercase().as_str()))
            .map(|(_, value)| value.into_owned())
            .collect();
        let password = url
            .password()
            .filter(|password| *password != url.username());
        if let Some(password) = password {
            credentials.push(password.to_owned());
            credentials.push(decoded(password));
        }
        if credentials.iter().all(|text| text.trim().is_empty()) {
            return;
        }
        credentials.iter().for_each(|text| self.text(text));
        self.text(text);
        self.text(url.as_str());
    }
}

/// `%40` as `@`; what is no escape stays. Unlike a form's value, a password keeps its `+`.
pub(super) fn decoded(text: &str) -> String {
    let value = text.replace('+', "%2B").replace('&', "%26");
    url::form_urlencoded::parse(format!("x={value}").as_bytes())
        .map(|(_, value)| value.into_owned())
        .collect()
}
