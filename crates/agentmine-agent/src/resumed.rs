//! The note on the files with which a session continues the work of an earlier one.

use agentmine_domain::Seq;

use crate::journal::Entry;

const WITH: &str = "resumed with the files of step ";
const WITHOUT: &str = "resumed without the files of step ";

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

#[cfg(test)]
mod tests {
    use super::*;

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
