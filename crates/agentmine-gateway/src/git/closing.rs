//! Words in a commit's message that close an issue once the commit is on the default branch.
//!
//! Only the pull request's text closes an issue, and only if the result is complete; a message of the model's is read
//! by the forge as if a person had written it. The words are those of GitHub ("Linking a pull request to an issue") and
//! of GitLab's default pattern ("Automatic issue closing").

use std::sync::LazyLock;

use regex::Regex;

use super::fresh::Message;
use crate::printable::printable;

static CLOSING: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let verb =
        r"(?:clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?)";
    let number = r"(?:[\w.-]+(?:/[\w.-]+)+)?(?:#|gh-|gl-)\d+";
    let url = r"https?://[^\s/]+/\S+/(?:issues|work_items)/\d+";
    Regex::new(&format!(
        r"(?i)\b{verb}:?\s+(?:issues?\s+)?(?:{number}|{url})"
    ))
    .ok()
});

/// The first message that would close an issue, as a sentence for the user of git.
pub(super) fn found(messages: &[Message]) -> Option<String> {
    messages.iter().find_map(|message| {
        let text = String::from_utf8_lossy(&message.text);
        let words = CLOSING.as_ref()?.find(&text)?.as_str();
        let commit = message.commit.get(..12).unwrap_or(&message.commit);
        Some(format!(
            "the message of commit {commit} says `{}`, which closes the issue once it is merged; write it without that \
             word, for example `For #1` (only the pull request closes an issue)",
            printable(&words.split_whitespace().collect::<Vec<_>>().join(" "))
        ))
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
            "Implements issue #6",
            "closes\nhttps://github.example/octo/demo/issues/7",
            "Resolves https://gitlab.example/a/b/-/issues/8",
        ] {
            assert!(is_found(text), "{text}");
        }
    }

    #[test]
    fn other_words_and_numbers_are_left_alone() {
        for text in [
            "For #12",
            "Fix the greeting (#12)",
            "Fix 3 tests",
            "prefixes #1",
            "Close the file; see issue #4",
            "Resolve conflicts in a#b",
        ] {
            assert!(!is_found(text), "{text}");
        }
    }
}
