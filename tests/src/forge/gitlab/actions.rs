//! Quick actions: lines such as `/close` in any text that is written, which GitLab runs and takes out.
//!
//! As in older versions, a code block ends at the next line of three backticks, whatever it began with.

use std::sync::LazyLock;

use regex::Regex;

use super::super::state::State;
use super::{Kind, Place};

/// Names that are taken for actions. Others stay text.
const NAMES: &str = "approve|assign|award|board_move|clone|close|confidential|copy_metadata|done|draft|due|duplicate|\
    estimate|label|labels|lock|merge|milestone|move|promote|ready|reassign|rebase|relabel|remove_label|remove_milestone|\
    reopen|spend|submit_review|subscribe|target_branch|title|todo|unassign|unlabel|unlock|unsubscribe|weight|zoom";

static ACTIONS: LazyLock<Regex> = LazyLock::new(|| {
    let blocks = r"^```.+?\n```$|^<[^>]+>\n.+?\n</[^>]+>$|^>>>.+?\n>>>$";
    let action = format!(r"^[ ]{{0,3}}/(?<name>{NAMES})(?:[ ](?<text>[^\n]*))?(?:\s*\n|$)");
    Regex::new(&format!("(?ims)(?<block>{blocks})|{action}")).expect("a literal pattern")
});

/// A text without its actions, and the actions.
pub(super) fn extract(text: &str) -> (String, Vec<(String, String)>) {
    let text = text.replace('\r', "");
    let mut actions = Vec::new();
    let rest = ACTIONS.replace_all(&text, |found: &regex::Captures<'_>| {
        let Some(name) = found.name("name") else {
            return found[0].to_owned();
        };
        let with = found.name("text").map_or("", |text| text.as_str());
        actions.push((name.as_str().to_lowercase(), with.trim().to_owned()));
        String::new()
    });
    (rest.trim_end().to_owned(), actions)
}

/// Runs and records them.
pub(super) fn run(state: &mut State, place: Place<'_>, login: &str, actions: &[(String, String)]) {
    for (name, text) in actions {
        state
            .quick_actions
            .push(format!("{login} /{name} {text}").trim_end().to_owned());
        let label = text.trim_start_matches('~').trim_matches('"');
        match name.as_str() {
            "label" | "labels" => drop(state.label(place.repo, place.number, label, login, true)),
            "unlabel" | "remove_label" => {
                state.label(place.repo, place.number, label, login, false);
            }
            _ => change(state, place, name, text),
        }
    }
}

fn change(state: &mut State, place: Place<'_>, name: &str, text: &str) {
    let repo = state.repo_mut(place.repo);
    let Some(issue) = repo.and_then(|repo| repo.issue_mut(place.number)) else {
        return;
    };
    match (name, place.kind) {
        ("close", _) | ("merge", Kind::MergeRequest) => issue.open = false,
        ("reopen", _) => issue.open = true,
        ("title", _) => text.clone_into(&mut issue.title),
        ("assign", _) => issue
            .assignees
            .push(text.trim_start_matches('@').to_owned()),
        ("confidential", Kind::Issue) => issue.confidential = true,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_lines_of_their_own_outside_blocks() {
        let text =
            "see /close\n/close\n```\n/merge\n```\n/usr/bin\n/agentmine stop\n/label ~bug\nend";
        let (rest, actions) = extract(text);
        let named = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(actions, [named("close", ""), named("label", "~bug")]);
        assert_eq!(
            rest,
            "see /close\n```\n/merge\n```\n/usr/bin\n/agentmine stop\nend"
        );
    }

    #[test]
    fn a_longer_fence_does_not_hide_an_action_behind_a_shorter_one() {
        let (_, actions) = extract("````text\na\n```\n/close\n````\n");
        assert_eq!(actions.len(), 1);
    }
}
