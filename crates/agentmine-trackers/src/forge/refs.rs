//! What texts of items say about other items of the same repository: "Closes #1", "Blocked by #2 and #3".

use agentmine_domain::ItemKind;
use agentmine_domain::markdown::CLOSING_WORDS;

use crate::name::ItemName;

/// The words with which an item waits for others.
const BLOCKED: &[&str] = &["blocked by", "depends on"];
/// Numbers that are read of one text: each costs a request.
const MOST: usize = 20;

/// The repository whose items a text may name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Repo<'a> {
    pub(crate) path: &'a str,
    /// Where its pages are: `host` or `host:port`, and the path below which they are, see [`crate::name::web_root`].
    pub(crate) host: &'a str,
    pub(crate) root: &'a str,
}

/// The numbers of issues of a repository that a pull request with this text closes.
pub(crate) fn closes(text: &str, repo: Repo<'_>) -> Vec<u64> {
    after(text, CLOSING_WORDS, repo)
}

/// The numbers of issues of a repository that an item with this text waits for.
pub(crate) fn blocked_by(text: &str, repo: Repo<'_>) -> Vec<u64> {
    after(text, BLOCKED, repo)
}

fn after(text: &str, words: &[&str], repo: Repo<'_>) -> Vec<u64> {
    let text = shown(text).to_lowercase();
    let [path, root] = [repo.path, repo.root].map(str::to_lowercase);
    let repo = Repo {
        path: &path,
        root: &root,
        ..repo
    };
    let mut found = Vec::new();
    for word in words {
        for (at, _) in text.match_indices(word) {
            let before = text[..at].chars().next_back();
            if !before.is_some_and(char::is_alphanumeric) {
                numbers(&text[at + word.len()..], repo, &mut found);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(MOST);
    found
}

/// The numbers at the beginning: `: #1, owner/name#2 and https://host/owner/name/issues/3`.
fn numbers(text: &str, repo: Repo<'_>, found: &mut Vec<u64>) {
    let mut rest = text.trim_start_matches([':', ' ']);
    rest = ["issues ", "issue "]
        .iter()
        .find_map(|word| rest.strip_prefix(word))
        .unwrap_or(rest);
    while let Some((number, after)) = number(rest, repo) {
        found.push(number);
        let next = after.trim_start_matches([',', ' ', '&']);
        let next = next.strip_prefix("and ").unwrap_or(next);
        // Another line continues the list only after a comma or the like.
        let between = &after[..after.len() - next.len()];
        let is_open = !between.trim().is_empty();
        rest = if is_open { next.trim_start() } else { next };
    }
}

/// The number at the beginning, and what follows it.
fn number<'t>(text: &'t str, repo: Repo<'_>) -> Option<(u64, &'t str)> {
    if text.starts_with("https://") || text.starts_with("http://") {
        let ends = |c: char| c.is_whitespace() || ",)>]\"'".contains(c);
        let (address, rest) = text.split_at(text.find(ends).unwrap_or(text.len()));
        let item = ItemName::parse(address.trim_end_matches(['.', ';', '!']), repo.root)?;
        let is_here = item.is_of(repo.host) && item.path == repo.path;
        let is_issue = item.kind == Some(ItemKind::Issue);
        return (is_here && is_issue).then_some((item.number, rest));
    }
    let number = text
        .strip_prefix(repo.path)
        .unwrap_or(text)
        .strip_prefix('#')?;
    let ends = |c: char| !c.is_ascii_digit();
    let (digits, rest) = number.split_at(number.find(ends).unwrap_or(number.len()));
    Some((digits.parse().ok()?, rest))
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
        let repo = Repo {
            path: "Octo/Demo",
            host: "git.example",
            root: "/Forge",
        };
        let closed = |text| closes(text, repo);
        assert_eq!(
            closed("Fixes #12, #13 and #4.\nCLOSES: octo/demo#7"),
            [4, 7, 12, 13]
        );
        assert_eq!(
            closed("prefixes #1, see #2, fix #x, closes octo/other#3"),
            NONE
        );
        assert_eq!(
            closed(
                "Fixes issue #2. Closes https://git.example/forge/Octo/demo/-/issues/5, #6 and \
                 https://git.example/forge/octo/demo/-/work_items/7#note_1."
            ),
            [2, 5, 6, 7]
        );
        assert_eq!(
            closed(
                "closes https://other.example/forge/octo/demo/issues/5 fixes https://git.example/forge/octo/shop/issues/6 \
                 resolves https://git.example/forge/octo/demo/-/merge_requests/7 closes https://git.example"
            ),
            NONE
        );
        let blocked = |text| blocked_by(text, repo);
        assert_eq!(blocked("Blocked by #5\n- Depends on: #6 & #8"), [5, 6, 8]);
        let lines = "Blocked by #5,\r\n#6 and #7\r\n\r\n#8 is a duplicate.\nDepends on #9\n#10";
        assert_eq!(blocked(lines), [5, 6, 7, 9]);
        let hidden = "<!-- Blocked by #1 -->\n```\ndepends on #2\n```\nunblocked by #3";
        assert_eq!(blocked(hidden), NONE);
        assert_eq!(blocked("blocked by #99999999999999999999 #4"), NONE);
        let many: Vec<String> = (1..99).map(|n| format!("blocked by #{n}")).collect();
        assert_eq!(blocked(&many.join("\n")).len(), MOST);
    }
}
