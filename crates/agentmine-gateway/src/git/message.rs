//! Words in a commit's message that a forge obeys.
//!
//! A message of the model's is read by the forge as if a person had written it. Only the pull request's text closes an
//! issue, and only if the result is complete; and no message keeps the forge's own checks from running on the result.
//! The words are those of GitHub ("Linking a pull request to an issue", "Skipping workflow runs") and GitLab
//! ("Default closing pattern", "Skip a pipeline"), which closes all issues in a list that may begin with any address. Its
//! pattern also has Jira keys, which are left alone here: `UTF-8` looks like one. In texts that AgentMine publishes,
//! `agentmine_domain::markdown::neutralized` parts the words that close.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::fresh::Message;
use crate::printable::printable;

static CLOSING: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let verb = r"(?P<verb>clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?)";
    // GitLab also takes a project of the same group without its path. A letter alone is a language: C#7.
    let number = r"(?:[\w.-]+(?:/[\w.-]+)+|[\w.-]{2,})?(?:#|gh-|gl-)\d+";
    let url = r"https?://[^\s/]+/\S+/(?:issues|work_items)/\d+";
    let bracketed = r"\[(?:issue|work_item):[^\s\]]*\d\]";
    let before = r"(?:(?:issues?\s+)?https?://\S+[ ,]+(?:and +)?|[a-z]\w+-\d+)*";
    Regex::new(&format!(
        r"(?i)\b{verb}:?\s+(?P<item>{before}(?:issues?\s+)?(?:{number}|{url}|{bracketed}))"
    ))
    .ok()
});

static SKIPPING: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let bracketed = r"\[(?:skip[ _-](?:ci|actions)|(?:ci|actions)[ _-]skip|no[ _-]ci)\]";
    let trailer = r"^skip-checks:\s*true\s*$";
    Regex::new(&format!(r"(?im){bracketed}|{trailer}")).ok()
});

/// The same text without words that a forge would obey, for a message that is made of a person's: `Fix #1` becomes
/// `Fix for #1`.
#[must_use]
pub fn not_obeyed(text: &str) -> String {
    let closing = CLOSING.as_ref().map_or(Cow::Borrowed(text), |words| {
        words.replace_all(text, "$verb for $item")
    });
    let skipping = SKIPPING.as_ref().map_or(closing.clone(), |words| {
        let plain = |found: &Captures<'_>| found[0].replace(['[', ']', ':'], "");
        words.replace_all(&closing, plain)
    });
    skipping.into_owned()
}

/// The same text, with the words that keep a forge's checks from running parted by a zero-width space: the text of a pull
/// request may become the message of a merge.
#[must_use]
pub fn without_skips(text: &str) -> String {
    let parted = |found: &Captures<'_>| {
        let (first, rest) = found[0].split_at(1);
        format!("{first}\u{200b}{rest}")
    };
    let skipping = SKIPPING
        .as_ref()
        .map_or(Cow::Borrowed(text), |words| words.replace_all(text, parted));
    skipping.into_owned()
}

/// The first message with words that a forge would obey, as a sentence for the user of git.
pub(super) fn found(messages: &[Message]) -> Option<String> {
    messages.iter().find_map(|message| {
        let text = String::from_utf8_lossy(&message.text);
        let says = |words: &str, why: &str| {
            let commit = message.commit.get(..12).unwrap_or(&message.commit);
            let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
            format!("the message of commit {commit} contains `{}`, {why}", printable(&words))
        };
        let first = |words: &LazyLock<Option<Regex>>| {
            let found = words.as_ref()?.find(&text)?;
            Some(found.as_str().to_owned())
        };
        if let Some(words) = first(&CLOSING) {
            let why = "which closes the issue once it is merged; write it without that word, for example `For #1` \
                       (only the pull request closes an issue)";
            return Some(says(&words, why));
        }
        let why = "which keeps the checks of the repository from running; write it without these words";
        Some(says(&first(&SKIPPING)?, why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_found(text: &str) -> bool {
        let message = Message {
            commit: "0123456789abcdef".into(),
            text: text.into(),
        };
        found(&[message]).is_some()
    }

    #[test]
    fn every_form_of_the_two_forges_is_found() {
        for text in [
            "Greet\n\nFixes #12",
            "closes: #1",
            "Resolved octo/demo#3",
            "fix GH-4",
            "CLOSING group/sub/project#5",
            "closes project#5",
            "Implements issue #6",
            "closes\nhttps://github.example/octo/demo/issues/7",
            "Resolves https://gitlab.example/a/b/-/issues/8",
            "Closes https://example.org/why, #9",
            "Fixes https://gitlab.example/a/b/-/merge_requests/2 and issue #10",
            "Closes PROJ-1issue #11",
            "Closes [issue:12]",
            "fixed [work_item:group/project/13]",
        ] {
            assert!(is_found(text), "{text}");
            assert!(!is_found(&not_obeyed(text)), "{}", not_obeyed(text));
        }
        assert_eq!(not_obeyed("Fix #123 on Windows"), "Fix for #123 on Windows");
    }

    #[test]
    fn words_that_skip_the_checks_of_the_forge_are_found() {
        for text in [
            "Greet [skip ci]",
            "[CI Skip] Greet",
            "Greet\n\n[no ci]",
            "[skip actions] Greet",
            "[actions skip]",
            "Greet [ci-skip]",
            "Greet [skip_ci]",
            "[CI_SKIP] Greet",
            "Greet\n\nskip-checks: true",
            "Greet\n\nSkip-Checks:true\n",
        ] {
            assert!(is_found(text), "{text}");
            assert!(!is_found(&not_obeyed(text)), "{}", not_obeyed(text));
            let parted = without_skips(text);
            assert!(!is_found(&parted), "{parted}");
            assert_eq!(parted.replace('\u{200b}', ""), text);
        }
    }

    #[test]
    fn other_words_and_numbers_are_left_alone() {
        for text in [
            "Skip the CI tests on macOS",
            "Explain skip-checks: true in the manual",
            "[ci] skip",
            "For #12",
            "Fix the greeting (#12)",
            "Fix 3 tests",
            "Fix C#7 syntax",
            "Fix UTF-8 decoding",
            "Resolves CVE-2024-1234",
            "prefixes #1",
            "Close the file; see issue #4",
            "Resolve conflicts in a#b",
            "Fix https://example.org/why",
            "Fix the link https://example.org/why, see #12",
            "Fix https://example.org/why\n\n#12 is another one",
            "Close [issue: 12]",
        ] {
            assert!(!is_found(text), "{text}");
            assert_eq!(not_obeyed(text), text);
            assert_eq!(without_skips(text), text);
        }
    }
}
