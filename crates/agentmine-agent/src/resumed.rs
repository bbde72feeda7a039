//! Records and reads the notes on the files with which a session continues the work of an earlier one, and on what was not
//! saved of them.
//!
//! People read the text, the program the fact beside it. Notes of earlier versions have only the text, which is parsed
//! instead; a worker of such a version reads the text of a newer one.

use std::fmt;

use agentmine_domain::Seq;

use crate::journal::Entry;
use crate::note::{NoteFact, Resumed, Unsaved};

const WITH: &str = "resumed with the files of step ";
const WITHOUT: &str = "resumed without the files of step ";
const NO_CHECKPOINT: &str = "no checkpoint was taken of step ";
const OMITTED: &str = "not in the checkpoints, and lost if the worker fails, because too large, unreadable, or a repository of its own: ";

impl Resumed {
    /// The note to record.
    #[must_use]
    pub fn entry(&self) -> Entry {
        let text = match self {
            Self::With(seq) => format!("{WITH}{seq}"),
            Self::Without(seq, reason) => format!("{WITHOUT}{seq}: {reason}"),
        };
        Entry::Note {
            text,
            fact: Some(NoteFact::Resumed(self.clone())),
        }
    }

    /// What a recorded entry says, if it is such a note.
    #[must_use]
    pub fn of(entry: &Entry) -> Option<Self> {
        let Entry::Note { text, fact } = entry else {
            return None;
        };
        match fact {
            Some(NoteFact::Resumed(resumed)) => return Some(resumed.clone()),
            Some(NoteFact::Unsaved(_) | NoteFact::ResultsOmitted(_)) => return None,
            None => {}
        }
        if let Some(seq) = text.strip_prefix(WITH) {
            return Some(Self::With(Seq(seq.parse().ok()?)));
        }
        let (seq, reason) = text.strip_prefix(WITHOUT)?.split_once(": ")?;
        Some(Self::Without(Seq(seq.parse().ok()?), reason.to_owned()))
    }
}

impl Unsaved {
    /// The note to record.
    #[must_use]
    pub fn entry(&self) -> Entry {
        Entry::Note {
            text: self.to_string(),
            fact: Some(NoteFact::Unsaved(self.clone())),
        }
    }

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
        let Entry::Note { text, fact } = entry else {
            return None;
        };
        match fact {
            Some(NoteFact::Unsaved(unsaved)) => return Some(unsaved.clone()),
            Some(NoteFact::Resumed(_) | NoteFact::ResultsOmitted(_)) => return None,
            None => {}
        }
        if let Some(files) = text.strip_prefix(OMITTED) {
            return Some(Self::Files(files.to_owned()));
        }
        let (seq, reason) = text.strip_prefix(NO_CHECKPOINT)?.split_once(": ")?;
        Some(Self::Changes(Seq(seq.parse().ok()?), reason.to_owned()))
    }
}

/// The text of the note.
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
        // The second is as in earlier versions.
        let records: [fn(&Unsaved) -> Entry; 2] =
            [Unsaved::entry, |it| Entry::note(it.to_string())];
        for record in records {
            let mut entries: Vec<Entry> = notes.iter().map(record).collect();
            entries.push(Entry::note("set-up: `npm ci` took 7 ms"));
            let after = |seq| Unsaved::after(Seq(seq), &entries);
            assert_eq!(after(7), [files("core, app/"), changes(8)]);
            assert_eq!(after(9), [files("core, app/")]);
        }
    }

    #[test]
    fn a_note_is_read_as_it_was_recorded() {
        for resumed in [
            Resumed::With(Seq(57)),
            Resumed::Without(Seq(3), "no space: left".into()),
        ] {
            let entry = resumed.entry();
            assert_eq!(Resumed::of(&entry).as_ref(), Some(&resumed));
            let Entry::Note { text, fact } = entry else {
                panic!("not a note")
            };
            assert_eq!(Resumed::of(&Entry::note(text)), Some(resumed));
            // The text is for people, who may read another one in a later version.
            let reworded = Entry::Note {
                text: "continued".into(),
                fact,
            };
            assert!(Resumed::of(&reworded).is_some());
        }
        assert_eq!(Resumed::of(&Entry::note("resumed")), None);
    }
}
