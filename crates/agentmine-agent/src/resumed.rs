//! The notes on the files with which a session continues the work of an earlier one, and on what was not saved of them.

use std::fmt;

use agentmine_domain::Seq;

use crate::journal::Entry;

const WITH: &str = "resumed with the files of step ";
const WITHOUT: &str = "resumed without the files of step ";
const NO_CHECKPOINT: &str = "no checkpoint was taken of step ";
const OMITTED: &str = "not in the checkpoints, and lost if the worker fails, because too large, unreadable, or a repository of its own: ";

/// Which files a session continued with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resumed {
    /// Those of the checkpoint after this step.
    With(Seq),
    /// Those of this checkpoint could not be restored, for this reason.
    Without(Seq, String),
}

impl Resumed {
    /// The note to record.
    #[must_use]
    pub fn entry(&self) -> Entry {
        match self {
            Self::With(seq) => Entry::note(format!("{WITH}{seq}")),
            Self::Without(seq, reason) => Entry::note(format!("{WITHOUT}{seq}: {reason}")),
        }
    }

    /// What a recorded entry says, if it is such a note.
    #[must_use]
    pub fn of(entry: &Entry) -> Option<Self> {
        let Entry::Note { text } = entry else {
            return None;
        };
        if let Some(seq) = text.strip_prefix(WITH) {
            return Some(Self::With(Seq(seq.parse().ok()?)));
        }
        let (seq, reason) = text.strip_prefix(WITHOUT)?.split_once(": ")?;
        Some(Self::Without(Seq(seq.parse().ok()?), reason.to_owned()))
    }
}

/// What is lost if the worker fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsaved {
    /// What has changed up to this step since the last checkpoint, for this reason.
    Changes(Seq, String),
    /// These files and repositories.
    Files(String),
}

impl Unsaved {
    /// What the files of the checkpoint `saved` lack, as these entries say: changes of later steps, and files. Each is named
    /// once.
    #[must_use]
    pub fn after(saved: Seq, entries: &[Entry]) -> Vec<Self> {
        let mut lacking: Vec<Self> = Vec::new();
        for unsaved in entries.iter().filter_map(Self::of) {
            let is_new = match &unsaved {
                Self::Changes(step, _) => {
                    *step > saved && !lacking.iter().any(|it| matches!(it, Self::Changes(..)))
                }
                Self::Files(_) => !lacking.contains(&unsaved),
            };
            if is_new {
                lacking.push(unsaved);
            }
        }
        lacking
    }

    /// What a recorded entry says, if it is such a note.
    fn of(entry: &Entry) -> Option<Self> {
        let Entry::Note { text } = entry else {
            return None;
        };
        if let Some(files) = text.strip_prefix(OMITTED) {
            return Some(Self::Files(files.to_owned()));
        }
        let (seq, reason) = text.strip_prefix(NO_CHECKPOINT)?.split_once(": ")?;
        Some(Self::Changes(Seq(seq.parse().ok()?), reason.to_owned()))
    }
}

/// The note to record.
impl fmt::Display for Unsaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changes(seq, reason) => write!(f, "{NO_CHECKPOINT}{seq}: {reason}"),
            Self::Files(files) => write!(f, "{OMITTED}{files}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_lacks_what_later_steps_did_not_save_and_omitted_files() {
        let changes = |seq| Unsaved::Changes(Seq(seq), format!("too slow: {seq}"));
        let files = |names: &str| Unsaved::Files(names.into());
        let notes = [
            changes(3),
            files("core, app/"),
            changes(8),
            files("core, app/"),
            changes(9),
        ];
        let mut entries: Vec<Entry> = notes.iter().map(|it| Entry::note(it.to_string())).collect();
        entries.push(Entry::note("set-up: `npm ci` took 7 ms"));
        let after = |seq| Unsaved::after(Seq(seq), &entries);
        assert_eq!(after(7), [files("core, app/"), changes(8)]);
        assert_eq!(after(9), [files("core, app/")]);
    }

    #[test]
    fn a_note_is_read_as_it_was_recorded() {
        for resumed in [
            Resumed::With(Seq(57)),
            Resumed::Without(Seq(3), "no space: left".into()),
        ] {
            assert_eq!(Resumed::of(&resumed.entry()), Some(resumed));
        }
        assert_eq!(Resumed::of(&Entry::note("resumed")), None);
    }
}
