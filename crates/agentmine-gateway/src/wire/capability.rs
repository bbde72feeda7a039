//! Capabilities, as client and server of a push list them.

/// Capabilities of a push that change nothing about what is checked here.
const HARMLESS: [&str; 9] = [
    "report-status",
    "report-status-v2",
    "delete-refs",
    "side-band-64k",
    "quiet",
    "atomic",
    "ofs-delta",
    "agent",
    "object-format",
];

/// A list of capabilities, each `key` or `key=value`.
#[derive(Debug, Default)]
pub(super) struct Capabilities(Vec<String>);

impl Capabilities {
    pub(super) fn parse(text: &str) -> Self {
        Self(text.split_ascii_whitespace().map(String::from).collect())
    }

    pub(super) fn has(&self, wanted: &str) -> bool {
        self.0.iter().any(|capability| key(capability) == wanted)
    }

    /// The object format of the ids; `sha1` where none is named.
    pub(super) fn object_format(&self) -> &str {
        self.0
            .iter()
            .filter_map(|capability| capability.split_once('='))
            .find(|(key, _)| *key == "object-format")
            .map_or("sha1", |(_, value)| value)
    }

    /// Those that change nothing about what is checked here.
    pub(super) fn harmless(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .map(String::as_str)
            .filter(|capability| HARMLESS.contains(&key(capability)))
    }

    /// The first that is not known to be harmless.
    pub(super) fn unsupported(&self) -> Option<&str> {
        self.0
            .iter()
            .map(String::as_str)
            .find(|capability| !HARMLESS.contains(&key(capability)))
    }
}

fn key(capability: &str) -> &str {
    capability
        .split_once('=')
        .map_or(capability, |(key, _)| key)
}
