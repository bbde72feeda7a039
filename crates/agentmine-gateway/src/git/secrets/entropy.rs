//! Values of high entropy that are assigned to a name which says that they are secret.

use std::sync::LazyLock;

use regex::bytes::Regex;

/// The rules: of values in quotes, and of those without.
pub(super) const NAMES: [&str; 2] = ["assigned-secret", "assigned-variable"];

/// Files that are generated, or full of digests.
const GENERATED: [&str; 14] = [
    ".lock",
    "-lock.json",
    "-lock.yaml",
    ".sum",
    ".svg",
    ".map",
    ".min.js",
    ".min.css",
    ".ipynb",
    ".snap",
    ".pbxproj",
    ".po",
    ".csv",
    ".xml",
];
/// Folders and names of files with made-up values.
const MADE_UP: [&str; 9] = [
    "test", "spec", "fixture", "mock", "example", "sample", "demo", "testdata", "doc",
];

/// What examples of secrets contain, in lower case.
const PLACEHOLDERS: [&str; 40] = [
    "example",
    "xxxx",
    "your",
    "dummy",
    "sample",
    "fake",
    "placeholder",
    "changeme",
    "change_me",
    "change-me",
    "redacted",
    "replace",
    "insert",
    "secret",
    "password",
    "passwd",
    "token",
    "abcdef",
    "012345",
    "123456",
    "deadbeef",
    "foobar",
    "foo_bar",
    "testing",
    "test_",
    "_test",
    "-test",
    "test-",
    "mytest",
    "notreal",
    "not_real",
    "not-real",
    "invalid",
    "....",
    "****",
    "0000",
    "aaaa",
    "qwerty",
    "hunter2",
    "${",
];

/// Whether values in this file are likely to be in use.
pub(super) fn applies(path: &str, text: &[u8]) -> bool {
    let lower = path.to_lowercase();
    let is_generated = GENERATED.iter().any(|end| lower.ends_with(end));
    let is_made_up = lower.split(['/', '.', '_', '-']).any(|part| {
        MADE_UP
            .iter()
            .any(|sign| part == *sign || part.strip_suffix('s') == Some(sign))
    });
    let is_binary = memchr::memchr(0, text.get(..8000).unwrap_or(text)).is_some();
    !is_generated && !is_made_up && !is_binary
}

/// The start of each value that looks like a secret, and the rule; in order for each rule.
pub(super) fn find(text: &[u8]) -> impl Iterator<Item = (usize, &'static str)> {
    /// `api_key = "…"`, and its forms in JSON, YAML and most languages.
    static QUOTED: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r#"(?i)(?:secret|token|passw(?:or)?d|passphrase|api_?-?key|access_?-?key|private_?-?key|auth_?-?key|credential)[a-z0-9_\-]{0,20}["'\]]{0,2}\s{0,3}(?::=|=>|=|:)\s{0,3}["'`]([A-Za-z0-9+/=_\-.~!@#%^&*]{16,200})["'`]"#,
        )
    });
    /// `API_KEY=…` in a file of environment variables.
    static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?m)^(?:export )?[A-Z0-9_]{0,40}(?:SECRET|TOKEN|PASSWORD|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY)[A-Z0-9_]{0,20}=([A-Za-z0-9+/=_\-.~]{16,200})\r?$",
        )
    });
    let patterns = NAMES.into_iter().zip([&*QUOTED, &*VARIABLE]);
    patterns.flat_map(move |(rule, regex)| {
        let values = regex.captures_iter(text).filter_map(|it| it.get(1));
        values
            .filter(|value| is_random(value.as_bytes()))
            .map(move |value| (value.start(), rule))
    })
}

#[expect(
    clippy::expect_used,
    reason = "both patterns are constants, and a test uses each"
)]
fn pattern(text: &str) -> Regex {
    Regex::new(&format!("(?-u){text}")).expect("a valid pattern")
}

/// Whether a value looks as if a generator made it: not words, not a path, not a version or a UUID.
fn is_random(value: &[u8]) -> bool {
    let digits = value.iter().filter(|c| c.is_ascii_digit()).count();
    let upper = value.iter().any(u8::is_ascii_uppercase);
    let lower = value.iter().any(u8::is_ascii_lowercase);
    let is_hex = value.iter().all(u8::is_ascii_hexdigit);
    if is_placeholder(value) || is_uuid(value) || digits < 2 {
        return false;
    }
    if is_hex {
        return value.len() >= 32 && !(upper && lower) && bits(value) >= 3.2;
    }
    let longest_word = value
        .split(|c| !c.is_ascii_lowercase())
        .map(<[u8]>::len)
        .max()
        .unwrap_or(0);
    // Generated text changes between the kinds of characters all the time; identifiers and paths do not.
    upper && lower && longest_word <= 7 && value.len() >= 20 && bits(value) >= 4.0
}

fn is_uuid(value: &[u8]) -> bool {
    value.len() == 36 && [8, 13, 18, 23].iter().all(|at| value[*at] == b'-')
}

/// Whether a value is one that documentation or a template contains.
pub(super) fn is_placeholder(value: &[u8]) -> bool {
    let lower = String::from_utf8_lossy(value).to_lowercase();
    // The prefix of a token, such as `npm_`, is not the value.
    PLACEHOLDERS.iter().any(|sign| lower.contains(sign))
}

/// Shannon entropy, in bits for each character.
pub(super) fn bits(value: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    for byte in value {
        counts[usize::from(*byte)] += 1;
    }
    let length = value.len().max(1) as f64;
    let shares = counts.iter().filter(|count| **count > 0);
    shares
        .map(|count| {
            let share = f64::from(*count) / length;
            -share * share.log2()
        })
        .sum()
}
