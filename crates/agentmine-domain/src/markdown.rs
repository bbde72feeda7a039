//! Embeds untrusted texts (from a model, a command, a repository) in Markdown that a forge renders.

/// An untrusted text as a code block that the text cannot close.
#[must_use]
pub fn fenced(text: &str) -> String {
    let text = visible(text);
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

/// A text as a block quote. A code block in it that is not closed ends with the quote.
#[must_use]
pub fn quotation(text: &str) -> String {
    let quoted = text.lines().map(|line| match line {
        "" => ">".to_owned(),
        line => format!("> {line}"),
    });
    quoted.collect::<Vec<_>>().join("\n")
}

/// Makes a text safe to be followed by other text: as a block quote if it may contain a code block that is not closed.
#[must_use]
pub fn followable(text: &str) -> String {
    match ["```", "~~~"].iter().any(|fence| text.contains(fence)) {
        true => quotation(text),
        false => text.to_owned(),
    }
}

/// What makes a link or a reference of a text, each in lower case: issues, merge requests and pull requests by
/// address or by the names of forges (`GH-1`, `GL-1`, `[issue:1]`), and images. `[!` begins an alert (`[!TIP]`) once the
/// text is quoted.
const REFERENCES: [&str; 12] = [
    "![",
    "[!",
    "/issues/",
    "/work_items/",
    "/pull/",
    "/merge_requests/",
    "/discussions/",
    "gh-",
    "gl-",
    "[issue:",
    "[work_item:",
    "[epic:",
];

/// The words with which a text closes the issue that is named after them, in lower case (GitLab's "Default closing
/// pattern", which includes those of GitHub).
pub const CLOSING_WORDS: &[&str] = &[
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

/// An untrusted text, changed so that it cannot close issues, mention people, show images or alerts, embed HTML, run a
/// forge's quick actions (`/close`), hide something, or forge AgentMine's markers. What is changed is parted by
/// a zero-width space, which no reader sees.
#[must_use]
pub fn neutralized(text: &str) -> String {
    visible(text)
        .lines()
        .map(neutral_line)
        .collect::<Vec<_>>()
        .join("\n")
}

fn neutral_line(line: &str) -> String {
    let start = line.len() - line.trim_start().len();
    let mut out = String::with_capacity(line.len() + 16);
    for (at, c) in line.char_indices() {
        out.push(c);
        let rest = &line[at + c.len_utf8()..];
        let parted = match c {
            '@' | '#' => true,
            // GitLab posts a note on a merge request or an epic that is named; `2>&1` names none.
            '!' if begins_number(rest) => true,
            '<' => rest.starts_with(|c: char| c.is_ascii_alphabetic() || "/!?".contains(c)),
            '&' => is_entity(rest) || (begins_number(rest) && !line[..at].ends_with('>')),
            '/' if at == start && is_quick_action(rest) => true,
            'A'..='Z' if ends_with_closing_word(&line[..at]) && begins_key(&line[at..]) => true,
            _ => begins_reference(&line[at..]),
        };
        if parted {
            out.push(PARTING);
        }
    }
    restore_heading(&out)
}

/// A Markdown text in which no line is a forge's quick action, whichever blocks it is in. Forges differ in what
/// they take for a block: an action inside AgentMine's code block with four backticks may run.
#[must_use]
pub fn without_quick_actions(text: &str) -> String {
    // A forge takes carriage returns out before it looks for actions.
    let text = text.replace('\r', "");
    let line = |line: &str| match line.trim_start().strip_prefix('/') {
        Some(rest) if is_quick_action(rest) => {
            let start = line.len() - rest.len();
            format!("{}{PARTING}{rest}", &line[..start])
        }
        Some(_) | None => line.to_owned(),
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// A zero-width space.
const PARTING: char = '\u{200b}';

/// Whether `&` and this are a character reference, which a forge resolves before it looks for mentions.
fn is_entity(rest: &str) -> bool {
    let name = rest
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '#')
        .next()
        .unwrap_or_default();
    !name.is_empty() && rest[name.len()..].starts_with(';')
}

fn begins_number(rest: &str) -> bool {
    // No request or epic of GitLab has a number that begins with 0; code has: `x&0xff`.
    rest.starts_with(|c: char| ('1'..='9').contains(&c))
}

/// Whether `/` and this are a command to the forge, or to one of the bots that obey comments on GitHub (`/ok-to-test`): a word
/// alone at the start of its line, not a path.
fn is_quick_action(rest: &str) -> bool {
    let word = rest.split_whitespace().next().unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    rest.starts_with(word)
        && word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(fits)
}

/// Whether the next word is what is closed, as after `Closes: `.
fn ends_with_closing_word(text: &str) -> bool {
    let before = text.trim_end();
    if before.len() == text.len() {
        return false;
    }
    let before = before.strip_suffix(':').unwrap_or(before);
    let word = before
        .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
        .next();
    word.is_some_and(|word| CLOSING_WORDS.iter().any(|it| it.eq_ignore_ascii_case(word)))
}

/// Whether a text begins with the key of an issue in Jira, as `PROJ-12`, which GitLab closes too.
fn begins_key(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    text.split_once('-').is_some_and(|(project, number)| {
        project.len() >= 2
            && project.bytes().all(is_letter)
            && number.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// A backslash before punctuation is not shown.
fn begins_reference(text: &str) -> bool {
    REFERENCES.iter().any(|reference| {
        let mut shown = text.chars().filter(|c| *c != '\\');
        reference.chars().all(|expected| {
            shown
                .next()
                .is_some_and(|c| c.eq_ignore_ascii_case(&expected))
        })
    })
}

/// A text without what a reader does not see or sees in another order: escape sequences of terminals are omitted, and other control characters, invisible characters and changes of direction (CVE-2021-42574) are shown
/// as U+FFFD. Line ends, tabs, and what joins the parts of an emoji or of a word stay.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.peek() == Some(&'[') => {
                // A control sequence ends with a byte from @ to ~ (ECMA-48 §5.4).
                chars.next();
                while chars
                    .next_if(|c| ('\u{20}'..='\u{3f}').contains(c))
                    .is_some()
                {}
                chars.next_if(|c| ('@'..='~').contains(c));
            }
            '\r' if chars.peek() == Some(&'\n') => {}
            '\n' | '\t' => out.push(c),
            c if is_hidden(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Control characters, invisible ones, and changes of direction.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
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

/// An untrusted text as one line of plain text, for a title; at most `max` characters.
#[must_use]
pub fn line(text: &str, max: usize) -> String {
    let text = visible(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    cap(&words.join(" "), max)
}

/// An untrusted text for a table cell or a code span; at most 200 characters.
#[must_use]
pub fn cell(text: &str) -> String {
    visible(&cap(text, 200).replace(['\n', '\r'], " "))
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
    fn a_code_block_that_is_not_closed_ends_with_its_quote() {
        assert_eq!(followable("Use `a`.\n\n~ one ~"), "Use `a`.\n\n~ one ~");
        for fence in ["```", "~~~"] {
            assert_eq!(
                followable(&format!("Use:\n\n- {fence}sh\n  a")),
                format!("> Use:\n>\n> - {fence}sh\n>   a")
            );
        }
        assert_eq!(quotation(""), "");
    }

    #[test]
    fn untrusted_text_cannot_mention_close_or_embed() {
        let text = "<b> a < b && c ![x](y) @me #1 GH-2 gl-2 /issues/3 /pull/4 /-/merge_requests/5 [issue:6]";
        let parted = neutralized(text);
        assert_eq!(
            parted.replace(PARTING, "~"),
            "<~b> a < b && c !~[x](y) @~me #~1 G~H-2 g~l-2 /~issues/3 /~pull/4 /-/~merge_requests/5 [~issue:6]"
        );
        assert_eq!(parted.replace(PARTING, ""), text);
    }

    #[test]
    fn quoted_text_is_no_alert_of_the_forge() {
        let parted = neutralized("[!TIP]\nAll checks passed.").replace(PARTING, "~");
        assert_eq!(parted, "[~!TIP]\nAll checks passed.");
    }

    #[test]
    fn untrusted_text_cannot_name_merge_requests_and_epics_of_gitlab() {
        let parted = neutralized("see !12, group/app!3, &4 and group&5");
        assert_eq!(
            parted.replace(PARTING, "~"),
            "see !~12, group/app!~3, &~4 and group&~5"
        );
        for text in ["a != 12", "stop!", "make 2>&1", "R&D"] {
            assert_eq!(neutralized(text), text);
        }
    }

    #[test]
    fn a_key_of_another_tracker_is_not_closed() {
        for (text, parted) in [
            ("Closes PROJ-12", "Closes P~ROJ-12"),
            ("it fixed:  A_2-3, too", "it fixed:  A~_2-3, too"),
            ("(IMPLEMENTING AB-1)", "(IMPLEMENTING A~B-1)"),
        ] {
            assert_eq!(neutralized(text).replace(PARTING, "~"), parted);
        }
        for text in [
            "PROJ-12 is open",
            "prefixes PROJ-12",
            "fixes a bug of PROJ-12",
            "closes A-1",
            "fixes Proj-12 and UTF-8",
            "fixes PROJ-x",
        ] {
            assert_eq!(neutralized(text), text);
        }
    }

    #[test]
    fn character_references_cannot_mention_or_close() {
        for text in ["&#64;me", "&commat;me", "&#x23;1", "&num;1"] {
            let parted = neutralized(text).replace(PARTING, "~");
            assert!(parted.starts_with("&~"), "{parted}");
        }
        assert_eq!(neutralized("a &b, &mut c; R&D"), "a &b, &mut c; R&D");
    }

    #[test]
    fn a_backslash_hides_no_reference() {
        for text in [
            "closes GH\\-12",
            "[issue\\:6]",
            "!\\[x](y)",
            "/issues/3",
            "/pull/4",
        ] {
            assert!(neutralized(text).contains(PARTING), "{text}");
        }
    }

    #[test]
    fn untrusted_text_cannot_run_quick_actions() {
        for action in [
            "/close",
            "/merge",
            "  /assign me",
            "a\r\n/close",
            "/remove_milestone",
            "/ok-to-test",
            "/cherry-pick v2",
            "/deploy2 production",
        ] {
            let parted = neutralized(action).replace(PARTING, "~");
            assert!(parted.contains("/~"), "{parted}");
        }
        for path in [
            "/usr/bin/env",
            "/a.txt",
            "see /close",
            "/ x",
            "/",
            "/2026",
            "/-x",
        ] {
            assert_eq!(neutralized(path), path);
        }
    }

    #[test]
    fn no_block_hides_a_quick_action() {
        let text = "a\n/cl\rose\n````text\n```\n  /merge\n````\n/usr/bin x\n";
        let parted = without_quick_actions(text).replace(PARTING, "~");
        assert_eq!(
            parted,
            "a\n/~close\n````text\n```\n  /~merge\n````\n/usr/bin x\n"
        );
        let again = without_quick_actions(&without_quick_actions(text));
        assert_eq!(again.replace(PARTING, "~"), parted);
    }

    #[test]
    fn what_a_reader_would_not_see_is_shown() {
        assert_eq!(visible("a\u{1b}[1;31mred\u{1b}[0m\tb\r\nc"), "ared\tb\nc");
        assert_eq!(
            visible("x\u{202e}gpj.exe\u{2069}"),
            "x\u{fffd}gpj.exe\u{fffd}"
        );
        assert_eq!(
            visible("\0\u{7}\u{9b}\u{1b}]0;t\r"),
            "\u{fffd}\u{fffd}\u{fffd}\u{fffd}]0;t\u{fffd}"
        );
        assert_eq!(
            visible("a\u{e0041}\u{200b}\u{feff}"),
            "a\u{fffd}\u{fffd}\u{fffd}"
        );
        let family = "👩\u{200d}👧 ❤\u{fe0f} می\u{200c}خواهم";
        assert_eq!(visible(family), family);
        assert_eq!(fenced("a\u{202e}b"), "```text\na\u{fffd}b\n```");
        assert_eq!(cell("a\u{1b}[31mb"), "ab");
        assert_eq!(line(" Fix\n\u{202e} it ", 9), "Fix \u{fffd} it");
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
