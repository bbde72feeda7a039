//! The rules of `trackers` and `labels`.

use std::collections::BTreeMap;

use super::rules::{Rules, shown};
use crate::config::schema::{GitHub, Labels};

impl Rules<'_> {
    pub(super) fn github(&mut self, github: &GitHub) {
        self.http_url(
            "trackers.github.api_url",
            &github.api_url,
            "put the token into trackers.github.token",
        );
        for (at, name) in github.repositories.iter().enumerate() {
            let fine = name.split_once('/').is_some_and(|(owner, name)| {
                let part = |part: &str| {
                    !part.is_empty()
                        && part
                            .chars()
                            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
                };
                part(owner) && part(name)
            });
            let key = format!("trackers.github.repositories.{at}");
            self.expect(&key, fine, || shown(name), "`owner/name`");
        }
        let query = github.query.as_deref().unwrap_or_default().trim();
        if github.repositories.is_empty() && query.is_empty() {
            self.fault("trackers.github", "no repository", "something to scan")
                .hint = Some("set `repositories: [owner/name]`, or `query: org:NAME`".into());
        }
    }

    pub(super) fn labels(&mut self, labels: &Labels) {
        // Trackers compare label names without regard to case.
        let mut first: BTreeMap<String, &str> = BTreeMap::new();
        for (key, name) in labels.entries() {
            let path = format!("labels.{key}");
            self.not_blank(&path, name);
            if let Some(other) = first.insert(name.trim().to_lowercase(), key) {
                let seen = format!("{}, the same as labels.{other}", shown(name));
                self.expect(&path, name.trim().is_empty(), || seen, "a name of its own");
            }
        }
    }
}
