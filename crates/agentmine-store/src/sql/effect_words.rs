//! Effects in statements that look at those of many tasks, where a key cannot be bound: each word is made from the kinds of
//! the domain, so that no statement spells one.

use std::sync::LazyLock;

use agentmine_domain::EffectKind;

/// The words in braces and their text.
pub(super) static EFFECTS: LazyLock<[(&str, String); 7]> = LazyLock::new(|| {
    [
        ("{label of t}", of_the_state(EffectKind::Label)),
        ("{label check of t}", of_the_state(EffectKind::LabelCheck)),
        ("{label}", quoted(EffectKind::Label)),
        ("{label check}", quoted(EffectKind::LabelCheck)),
        ("{pull request}", quoted(EffectKind::PullRequest)),
        // The effects that open a pull request.
        (
            "{opening kinds}",
            format!(
                "{}, {}",
                quoted(EffectKind::PullRequest),
                quoted(EffectKind::PullRequestDraft)
            ),
        ),
        // The effects that show that a command in a comment was dealt with.
        (
            "{command kinds}",
            format!(
                "{}, {}",
                quoted(EffectKind::Command),
                quoted(EffectKind::Reaction)
            ),
        ),
    ]
});

/// Whether `e` is the effect of the label of the task `t` at rest: its key is the name of the label, which is that of the
/// state (see `TaskLabel::of`).
fn of_the_state(kind: EffectKind) -> String {
    let kind = quoted(kind);
    format!("e.task = t.id AND e.kind = {kind} AND e.key = t.state AND e.epoch = t.epoch")
}

fn quoted(kind: EffectKind) -> String {
    format!("'{kind}'")
}

#[cfg(test)]
mod tests {
    use agentmine_domain::{EffectKey, EndState, Epoch, TaskLabel, TaskState};

    use super::*;

    #[test]
    fn the_key_of_a_label_at_rest_is_the_name_of_the_state() {
        let ends = EndState::ALL.iter().map(|end| TaskState::Ended(*end));
        for state in ends.chain([TaskState::Paused]) {
            let label = TaskLabel::of(state);
            for key in [
                EffectKey::label(label, Epoch(3)),
                EffectKey::label_check(label, Epoch(3)),
            ] {
                assert_eq!((key.key(), key.epoch()), (state.as_str(), Epoch(3)));
            }
        }
    }

    #[test]
    fn no_statement_spells_the_kind_of_an_effect() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sql");
        let mut found = Vec::new();
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|it| it != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let spells = |line: &&str| {
                let mut kinds = EffectKind::ALL.iter();
                line.contains("kind") && kinds.any(|kind| line.contains(&quoted(*kind)))
            };
            let lines = text.lines().filter(spells);
            found.extend(lines.map(|line| format!("{}: {line}", path.display())));
        }
        assert_eq!(found, Vec::<String>::new());
    }
}
