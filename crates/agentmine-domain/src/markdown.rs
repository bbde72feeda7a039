//! Embeds untrusted texts (from a model, a command, a repository) in Markdown that a forge renders.

/// An untrusted text as a code block that the text cannot close.
#[must_use]
pub fn fenced(text: &str) -> String {
    let text = text.trim();
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{text}\n{fence}")
}

/// An untrusted text, changed so that it cannot close issues, mention people, show images or forge
/// AgentMine's markers.
#[must_use]
pub fn neutralized(text: &str) -> String {
    text.replace('<', "&lt;")
        .replace("![", "!\u{200b}[")
        .replace('@', "@\u{200b}")
        .replace('#', "#\u{200b}")
        .replace("/issues/", "/issues\u{200b}/")
        .replace("/pull/", "/pull\u{200b}/")
        .replace("/merge_requests/", "/merge_requests\u{200b}/")
        .replace("GH-", "GH\u{200b}-")
        .lines()
        .map(restore_heading)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Restores `#` at the start of a line, where it marks a heading and not an issue number.
fn restore_heading(line: &str) -> String {
    let bare = line.replace("#\u{200b}", "#");
    let hashes = bare.chars().take_while(|c| *c == '#').count();
    if (1..=6).contains(&hashes) && bare[hashes..].starts_with(' ') {
        let rest = bare[hashes..].replace('#', "#\u{200b}");
        format!("{}{rest}", "#".repeat(hashes))
    } else {
        line.to_owned()
    }
}

/// An untrusted text for a table cell or a code span; at most 200 characters.
#[must_use]
pub fn cell(text: &str) -> String {
    cap(text, 200)
        .replace(['\n', '\r'], " ")
        .replace('|', "\\|")
        .replace('`', "'")
}

/// The first `max` characters of a text; `…` marks a truncated one.
#[must_use]
pub fn cap(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(max).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_block_has_a_longer_fence_than_its_text() {
        assert_eq!(fenced(" x "), "```text\nx\n```");
        assert_eq!(fenced("a ```` b"), "`````text\na ```` b\n`````");
    }

    #[test]
    fn untrusted_text_cannot_mention_close_or_embed() {
        let text = "<b> ![x](y) @me #1 GH-2 /issues/3 /pull/4 /merge_requests/5";
        assert_eq!(
            neutralized(text),
            "&lt;b> !\u{200b}[x](y) @\u{200b}me #\u{200b}1 GH\u{200b}-2 /issues\u{200b}/3 /pull\u{200b}/4 /merge_requests\u{200b}/5"
        );
    }

    #[test]
    fn headings_stay_headings_and_issue_numbers_in_them_do_not() {
        assert_eq!(neutralized("## On #3"), "## On #\u{200b}3");
        assert_eq!(neutralized("###### x"), "###### x");
        assert!(neutralized("####### x").contains('\u{200b}'));
        assert!(neutralized("#3 x").contains('\u{200b}'));
    }

    #[test]
    fn a_cell_cannot_close_its_row_or_its_code_span() {
        assert_eq!(cell("a|b`c\nd\re"), "a\\|b'c d e");
        assert_eq!(cell(&"x".repeat(300)).chars().count(), 201);
    }

    #[test]
    fn a_truncated_text_is_marked() {
        assert_eq!(cap("äöü", 3), "äöü");
        assert_eq!(cap("äöüß", 3), "äöü…");
    }
}
