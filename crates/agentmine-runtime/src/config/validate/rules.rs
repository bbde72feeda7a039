//! What the rules of all sections share.

use crate::config::check::cut;
use crate::config::fault::SettingFault;
use crate::config::tree::{ConfigPlace, Node};

/// Collects the faults that validation finds.
pub(super) struct Rules<'a> {
    pub(super) tree: &'a Node,
    pub(super) faults: &'a mut Vec<SettingFault>,
}

impl Rules<'_> {
    /// Reports a fault unless `fine`.
    pub(super) fn expect(
        &mut self,
        key: &str,
        fine: bool,
        seen: impl FnOnce() -> String,
        expected: &str,
    ) {
        if !fine {
            self.fault(key, seen(), expected);
        }
    }

    pub(super) fn fault(
        &mut self,
        key: &str,
        seen: impl Into<String>,
        expected: &str,
    ) -> &mut SettingFault {
        let at = self.faults.len();
        let place = self.tree.place_of(key);
        self.faults
            .push(SettingFault::new(&place, key, seen, expected));
        &mut self.faults[at]
    }

    pub(super) fn at_least<N>(&mut self, key: &str, value: N, least: u32)
    where
        N: PartialOrd + From<u32> + std::fmt::Display + Copy,
    {
        let seen = || format!("the number {value}");
        let expected = format!("a whole number of at least {least}");
        self.expect(key, value >= N::from(least), seen, &expected);
    }

    pub(super) fn not_blank(&mut self, key: &str, text: &str) {
        self.expect(
            key,
            !text.trim().is_empty(),
            || "an empty string".into(),
            "a string that is not empty",
        );
    }

    /// The base URL of an API.
    pub(super) fn http_url(&mut self, key: &str, url: &url::Url, instead: &str) {
        let place = self.tree.place_of(key);
        self.faults.extend(of_http_url(&place, key, url, instead));
    }
}

/// The faults of the base URL of an API. A password in it would end up in logs.
pub(super) fn of_http_url(
    place: &ConfigPlace,
    key: &str,
    url: &url::Url,
    instead: &str,
) -> Vec<SettingFault> {
    let mut faults = Vec::new();
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        let seen = format!("the scheme `{}`", cut(url.scheme()));
        let expected = "`https://…` or `http://…`";
        faults.push(SettingFault::new(place, key, seen, expected));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let seen = "a user or password in the URL";
        faults.push(SettingFault::new(place, key, seen, "a URL without them").hint(instead));
    }
    faults
}

pub(super) fn shown(text: &str) -> String {
    format!("`{}`", cut(text))
}

pub(super) fn scheme_of(url: &str) -> Option<&str> {
    url.split_once("://")
        .filter(|(_, rest)| !rest.is_empty())
        .map(|(scheme, _)| scheme)
}

/// The part of a URL that may be shown: it may contain a password.
pub(super) fn scheme_seen(url: &str) -> String {
    match scheme_of(url) {
        Some(scheme)
            if scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '+') =>
        {
            format!("the scheme `{}`", cut(scheme))
        }
        _ => "not such a URL".into(),
    }
}
