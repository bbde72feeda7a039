//! Finds what looks like a secret in text.
//!
//! Two kinds of rules: formats that their issuers document, and values of high entropy that are assigned to
//! a name such as `api_key`. A value never leaves this module: a finding is a rule and a line.

mod entropy;
mod finding;
mod rules;

#[cfg(test)]
mod tests;

pub(super) use finding::Finding;

/// A text in which each line that looks like a secret is replaced.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    let found = scan("log.txt", text.as_bytes());
    let lines = text.split('\n').enumerate().map(|(at, line)| {
        let rule = found.iter().find(|finding| finding.line == at + 1);
        rule.map_or_else(
            || line.to_owned(),
            |finding| format!("(a line was removed: {})", finding.rule),
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What looks like a secret in `text`, a file at `path` or a commit's message; one finding for each rule and
/// line.
pub(super) fn scan(path: &str, text: &[u8]) -> Vec<Finding> {
    let mut found = Vec::new();
    for rule in rules::all() {
        rule.find(text, |at| {
            let line = 1 + memchr::memchr_iter(b'\n', &text[..at]).count();
            found.push(Finding {
                line,
                rule: rule.name,
            });
        });
    }
    if entropy::applies(path, text) {
        found.extend(entropy::scan(text));
    }
    found.sort_unstable();
    found.dedup();
    found
}
