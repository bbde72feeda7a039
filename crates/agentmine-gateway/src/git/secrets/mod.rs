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
    let mut found = found.iter().peekable();
    let lines = text.split('\n').enumerate().map(|(at, line)| {
        let mut rule = None;
        while let Some(finding) = found.next_if(|finding| finding.line == at + 1) {
            rule = rule.or(Some(finding.rule));
        }
        rule.map_or_else(
            || line.to_owned(),
            |rule| format!("(a line was removed: {rule})"),
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What looks like a secret in `text`, a file at `path` or a commit's message; one finding for each rule and
/// line.
pub(super) fn scan(path: &str, text: &[u8]) -> Vec<Finding> {
    search(path, text, |_| true, |_| false)
}

/// The same by the rules that `is_sought` names, until `is_over`, which is given the number of findings after each one.
pub(super) fn search(
    path: &str,
    text: &[u8],
    is_sought: impl Fn(&str) -> bool,
    is_over: impl Fn(usize) -> bool,
) -> Vec<Finding> {
    let formats = rules::all().iter().filter(|rule| is_sought(rule.name));
    let formats = formats.flat_map(|rule| rule.find(text).map(move |at| (at, rule.name)));
    let assigned = entropy::applies(path, text).then(|| entropy::find(text));
    let assigned = assigned.into_iter().flatten();
    let assigned = assigned.filter(|(_, rule)| is_sought(rule));
    let mut found = Vec::new();
    let (mut line, mut from) = (1, 0);
    for (at, rule) in formats.chain(assigned) {
        // The matches of one rule are in order.
        if at < from {
            (line, from) = (1, 0);
        }
        line += memchr::memchr_iter(b'\n', &text[from..at]).count();
        from = at;
        let finding = Finding { line, rule };
        if found.last() != Some(&finding) {
            found.push(finding);
        }
        if is_over(found.len()) {
            break;
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
