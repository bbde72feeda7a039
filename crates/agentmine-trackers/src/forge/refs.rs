//! What texts of items say about other items of the same repository: "Closes #1", "Blocked by #2 and #3".

/// The words with which a pull request closes issues.
const CLOSES: &[&str] = &[
    "close",
    "closes",
    "closed",
    "closing",
    "fix",
    "fixes",
    "fixed",
    "fixing",
    "resolve",
    "resolves",
    "resolved",
    "resolving",
    "implement",
    "implements",
    "implemented",
    "implementing",
];
/// The words with which an item waits for others.
const BLOCKED: &[&str] = &["blocked by", "depends on"];
/// Numbers that are read of one text: each costs a request.
const MOST: usize = 20;

/// The numbers of issues of the repository `path` that a pull request with this text closes.
pub(crate) fn closes(text: &str, path: &str) -> Vec<u64> {
    after(text, CLOSES, path)
}

/// The numbers of issues of the repository `path` that an item with this text waits for.
pub(crate) fn blocked_by(text: &str, path: &str) -> Vec<u64> {
    after(text, BLOCKED, path)
}

fn after(text: &str, words: &[&str], path: &str) -> Vec<u64> {
    let (text, path) = (shown(text).to_lowercase(), path.to_lowercase());
    let mut found = Vec::new();
    for word in words {
        for (at, _) in text.match_indices(word) {
            let before = text[..at].chars().next_back();
            if !before.is_some_and(char::is_alphanumeric) {
                numbers(&text[at + word.len()..], &path, &mut found);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(MOST);
    found
}

/// The numbers at the beginning: `: #1, owner/name#2 and #3`.
fn numbers(text: &str, path: &str, found: &mut Vec<u64>) {
    let mut rest = text.trim_start_matches([':', ' ']);
    while let Some(number) = rest.strip_prefix(path).unwrap_or(rest).strip_prefix('#') {
        let digits = number.len()
            - number
                .trim_start_matches(|c: char| c.is_ascii_digit())
                .len();
        let Ok(value) = number[..digits].parse() else {
            return;
        };
        found.push(value);
        rest = number[digits..].trim_start_matches([',', ' ', '&']);
        rest = rest.strip_prefix("and ").unwrap_or(rest).trim_start();
    }
}

/// The text without comments of HTML and blocks of code, which nobody means.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, hidden)) = rest.split_once("<!--") {
        shown.push_str(before);
        rest = hidden.split_once("-->").map_or("", |(_, after)| after);
    }
    shown.push_str(rest);
    let mut fenced = false;
    let lines = shown.lines().filter(|line| {
        let line = line.trim_start();
        let fence = line.starts_with("```") || line.starts_with("~~~");
        fenced ^= fence;
        !fence && !fenced
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [u64; 0] = [];

    #[test]
    fn numbers_follow_the_words_of_each_forge() {
        let closed = |text| closes(text, "Octo/Demo");
        assert_eq!(
            closed("Fixes #12, #13 and #4.\nCLOSES: octo/demo#7"),
            [4, 7, 12, 13]
        );
        assert_eq!(
            closed("prefixes #1, see #2, fix #x, closes octo/other#3"),
            NONE
        );
        let blocked = |text| blocked_by(text, "octo/demo");
        assert_eq!(blocked("Blocked by #5\n- Depends on: #6 & #8"), [5, 6, 8]);
        let hidden = "<!-- Blocked by #1 -->\n```\ndepends on #2\n```\nunblocked by #3";
        assert_eq!(blocked(hidden), NONE);
        assert_eq!(blocked("blocked by #99999999999999999999 #4"), NONE);
        let many: Vec<String> = (1..99).map(|n| format!("blocked by #{n}")).collect();
        assert_eq!(blocked(&many.join("\n")).len(), MOST);
    }
}
