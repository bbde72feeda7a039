//! The table of what succeeded without its control.

use std::collections::BTreeMap;
use std::fmt;

use super::{Demonstration, Ended, Lacking};

/// What was shown, for people.
#[derive(Debug)]
pub struct Table(Vec<Demonstration>);

impl Table {
    /// Of these.
    #[must_use]
    pub fn new(shown: Vec<Demonstration>) -> Self {
        Self(shown)
    }

    /// Those that did not succeed though they must.
    #[must_use]
    pub fn failed(&self) -> Vec<&Demonstration> {
        let failed = |it: &&Demonstration| matches!(it.ended, Ended::Failed(_));
        self.0.iter().filter(failed).collect()
    }

    /// The attacks that succeeded, and all, by what lacked the control.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<Lacking, (usize, usize)> {
        let mut counts: BTreeMap<Lacking, (usize, usize)> = BTreeMap::new();
        for one in &self.0 {
            let (succeeded, all) = counts.entry(one.lacking).or_default();
            *succeeded += usize::from(matches!(one.ended, Ended::Succeeded(_)));
            *all += 1;
        }
        counts
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<42} {:<10} {:<9} control", "attack", "kind", "")?;
        for one in &self.0 {
            let (how, seen) = match &one.ended {
                Ended::Succeeded(seen) => ("succeeds", seen),
                Ended::Failed(seen) => ("FAILS", seen),
                Ended::NotDemonstrated(_) => continue,
            };
            let Demonstration {
                attack,
                lacking,
                control,
                ended: _,
            } = one;
            writeln!(f, "{attack:<42} {lacking:<10} {how:<9} [{control}] {seen}")?;
        }
        writeln!(f, "\nnot demonstrated:")?;
        for one in &self.0 {
            if let Ended::NotDemonstrated(why) = &one.ended {
                writeln!(f, "  {:<40} {:<10} {why}", one.attack, one.lacking)?;
            }
        }
        writeln!(f, "\ndemonstrated/attacks:")?;
        for (lacking, (succeeded, all)) in self.counts() {
            writeln!(f, "  {lacking:<10} {succeeded}/{all}")?;
        }
        Ok(())
    }
}
