//! What the text of a pull request reports about a partial result, and what replaces it once a round has completed the result.

use crate::markdown::{cap, fenced};

/// The beginning of a partial result's text.
pub const PARTIAL_WARNING: &str = "> [!WARNING]\n> **Partial result.** See \"Not done\" below.\n\n";
/// The beginning of the note that replaces the warning.
const COMPLETED: &str = "> [!NOTE]\n> **A later round completed this result.**";

/// Characters of what is missing.
const MAX_MISSING: usize = 8_000;

/// The section of the text that lists what is missing.
#[must_use]
pub fn not_done(missing: &str) -> String {
    format!("### Not done\n\n{}\n\n", fenced(&cap(missing, MAX_MISSING)))
}

/// What is to be done about the text of a pull request whose partial result a round has completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// It still reports a partial result. This text replaces it.
    Due(String),
    /// It reports already that the result was completed.
    Written,
    /// Somebody changed a part of it that would have to be replaced.
    Changed,
}

impl Completion {
    /// Decides what is due for this text. `issue` is the issue that the pull request is for, if any; `missing` is what the result lacked, and `commit`
    /// completed it. All other parts of the text stay as they are.
    #[must_use]
    pub fn of(text: &str, issue: Option<u64>, missing: &str, commit: &str) -> Self {
        // An edit on a page of the forge changes the line ends.
        let text = unix(text);
        if text.starts_with(COMPLETED) {
            return Self::Written;
        }
        let note = format!(
            "{COMPLETED} The checks that failed now pass on commit `{commit}`. The report below describes the first result; AgentMine's comment reports on the rounds.\n\n"
        );
        match replaced(&text, issue, missing, &note) {
            Some(text) => Self::Due(text),
            None => Self::Changed,
        }
    }
}

/// `None` if a part is not exactly as AgentMine wrote it.
fn replaced(text: &str, issue: Option<u64>, missing: &str, note: &str) -> Option<String> {
    // Earlier versions wrote it below the quoted request.
    let (before, after) = once(text, PARTIAL_WARNING)?;
    let text = format!("{before}{after}");
    let (before, after) = without_section(&text, &not_done(missing))?;
    let text = format!("{before}{after}");
    match issue {
        Some(issue) => {
            let rest = text.strip_prefix(&format!("For #{issue}\n"))?;
            Some(format!("{note}Closes #{issue}\n{rest}"))
        }
        None => Some(format!("{note}{text}")),
    }
}

/// The text before and after the section. Words in it that forges obey may have been parted by zero-width spaces; as written,
/// it has none.
fn without_section<'t>(text: &'t str, section: &str) -> Option<(&'t str, &'t str)> {
    let heading = section.lines().next()?;
    text.match_indices(heading).find_map(|(at, _)| {
        let (before, rest) = text.split_at(at);
        let mut expected = section.chars().peekable();
        let after =
            rest.trim_start_matches(|c| c == '\u{200b}' || expected.next_if_eq(&c).is_some());
        expected.peek().is_none().then_some((before, after))
    })
}

fn unix(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// The text before and after a part that it contains exactly once.
fn once<'t>(text: &'t str, part: &str) -> Option<(&'t str, &'t str)> {
    let (before, after) = text.split_once(part)?;
    (!after.contains(part)).then_some((before, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markdown::without_quick_actions;

    const MISSING: &str =
        "- `make test` failed with exit code 2 on the pushed commit:\n    /close the door";

    fn partial(opening: &str) -> String {
        let section = not_done(MISSING);
        format!("{PARTIAL_WARNING}{opening}\n\n> Greet.\n\n> Hello.\n\n{section}### Measured\n")
    }

    fn of(text: &str, issue: Option<u64>) -> Completion {
        Completion::of(text, issue, MISSING, "abc")
    }

    fn due(text: &str, issue: Option<u64>) -> String {
        match of(text, issue) {
            Completion::Due(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_completed_result_closes_its_issue_and_lists_nothing_as_missing() {
        let text = due(&partial("For #7"), Some(7));
        let expected = "> [!NOTE]\n> **A later round completed this result.** The checks that failed now pass on commit `abc`. The \
                        report below describes the first result; AgentMine's comment reports on the rounds.\n\nCloses \
                        #7\n\n> Greet.\n\n> Hello.\n\n### Measured\n";
        assert_eq!(text, expected);
        let of_earlier_version = partial("")
            .replacen(&format!("{PARTIAL_WARNING}\n\n"), "For #7\n\n", 1)
            .replace("> Hello.", &format!("{PARTIAL_WARNING}> Hello."));
        assert_eq!(due(&of_earlier_version, Some(7)), expected);
        for commit in ["abc", "def"] {
            let again = Completion::of(&text, Some(7), MISSING, commit);
            assert_eq!(again, Completion::Written);
        }
        // The agent's message may quote the note.
        let quoted = partial("For #7").replace("> Hello.", &format!("{COMPLETED}\n\n> Hello."));
        due(&quoted, Some(7));
        let task = due(
            &partial("For AgentMine task 3, which a person created."),
            None,
        );
        assert!(task.contains("\n\nFor AgentMine task 3,"), "{task}");
    }

    /// The texts of GitLab have no quick actions, and those that somebody edited on a page have other line ends.
    #[test]
    fn every_forge_gets_the_same_text() {
        let text = partial("For #7");
        let expected = due(&text, Some(7));
        let on_gitlab = without_quick_actions(&text);
        assert_ne!(on_gitlab, text);
        assert_eq!(due(&on_gitlab, Some(7)), expected);
        assert_eq!(due(&text.replace('\n', "\r\n"), Some(7)), expected);
        let parted = text.replace("exit code", "e\u{200b}xit code");
        assert_eq!(due(&parted, Some(7)), expected);
        let more = format!("{text}\nA person's own words.");
        assert_eq!(
            due(&more, Some(7)),
            format!("{expected}\nA person's own words.")
        );
    }

    #[test]
    fn what_a_person_changed_is_not_replaced() {
        let text = partial("For #7");
        for changed in [
            text.replace("For #7", "Part of #7"),
            text.replace("For #7", "For #71"),
            text.replace("**Partial result.**", "**Partial.**"),
            text.replace("exit code 2", "exit code 3"),
            format!("{text}{PARTIAL_WARNING}"),
            "Greets.".to_owned(),
        ] {
            assert_eq!(of(&changed, Some(7)), Completion::Changed, "{changed}");
        }
    }
}
