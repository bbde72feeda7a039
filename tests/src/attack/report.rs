//! The table of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::cell::Cell;
use super::family::Family;
use super::finding::{Finding, Verdict};

/// What became of all attacks.
#[derive(Debug, Clone, Default)]
pub struct Report(Vec<Finding>);

impl Report {
    /// Adds findings.
    pub fn add(&mut self, findings: Vec<Finding>) {
        self.0.extend(findings);
    }

    /// The findings.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.0
    }

    /// Whether no attack succeeded that no list names, and none failed for a reason of its own.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.of(Verdict::Succeeded).next().is_none() && self.of(Verdict::Broken).next().is_none()
    }

    fn of(&self, verdict: Verdict) -> impl Iterator<Item = &Finding> {
        self.0.iter().filter(move |it| it.verdict == verdict)
    }

    fn cells(&self) -> BTreeSet<Cell> {
        self.0.iter().map(|it| it.cell).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = self.cells();
        let mut counts: BTreeMap<(Family, Cell), (usize, usize)> = BTreeMap::new();
        for finding in self.0.iter().filter(|it| it.was_carried_out()) {
            let (blocked, total) = counts.entry((finding.family, finding.cell)).or_default();
            *blocked += usize::from(finding.verdict == Verdict::Blocked);
            *total += 1;
        }
        write!(f, "{:<13}", "blocked/total")?;
        for cell in &cells {
            write!(f, " {cell:>23}")?;
        }
        writeln!(f)?;
        let families: BTreeSet<_> = self.0.iter().map(|it| it.family).collect();
        for family in families {
            write!(f, "{family:<13}")?;
            for &cell in &cells {
                let of = counts.get(&(family, cell));
                let text = of.map_or_else(|| "-".into(), |(a, b)| format!("{a}/{b}"));
                write!(f, " {text:>23}")?;
            }
            writeln!(f)?;
        }
        write!(f, "{:<13}", "all")?;
        for cell in &cells {
            let of = counts.iter().filter(|((_, it), _)| it == cell);
            let (a, b) = of.fold((0, 0), |sum, (_, it)| (sum.0 + it.0, sum.1 + it.1));
            write!(f, " {:>23}", format!("{a}/{b}"))?;
        }
        writeln!(f)?;
        for (verdict, title) in [
            (Verdict::Succeeded, "SUCCEEDED"),
            (Verdict::KnownOpen, "known open"),
            (Verdict::Weaker, "not promised by this kind of sandbox"),
            (Verdict::NotRun, "not run"),
            (Verdict::Broken, "BROKEN"),
        ] {
            let mut of = self.of(verdict).peekable();
            if of.peek().is_some() {
                writeln!(f, "\n{title}:")?;
            }
            for finding in of {
                let Finding {
                    attack,
                    family,
                    cell,
                    verdict: _,
                    seen,
                } = finding;
                writeln!(f, "  {family} {attack} ({cell}): {seen}")?;
            }
        }
        Ok(())
    }
}
