//! What scans of many repositories may cost, and what was missed of it.

use std::fmt;

use super::{Cost, Kind};

/// Requests of an idle scan of one repository on GitHub, none of which counts.
const IDLE_OF_ONE: usize = 2;
/// Requests of an idle scan of a group on GitLab, with the look for items at work.
const IDLE_OF_ALL: usize = 5;
/// Requests for each repository in the first scan on GitHub.
const FIRST: usize = 3;
/// Further requests for each item that changed.
const CHANGE: usize = 4;
/// Of an idle scan.
const SECONDS: f64 = 15.0;
/// The most memory of the producer's process, in MiB.
const MEMORY: f64 = 64.0;

/// The goals for so many repositories and changes, and those that were missed.
#[derive(Debug)]
pub(super) struct Goals {
    repositories: usize,
    changes: usize,
    missed: Vec<String>,
}

impl Goals {
    pub(super) fn of(repositories: u64, changes: u64) -> Self {
        Self {
            repositories: usize::try_from(repositories).unwrap_or(usize::MAX),
            changes: usize::try_from(changes).unwrap_or(usize::MAX),
            missed: Vec::new(),
        }
    }

    pub(super) fn are_met(&self) -> bool {
        self.missed.is_empty()
    }

    fn at_most(&mut self, kind: Kind, what: &str, seen: f64, most: f64) {
        if seen > most {
            let missed = format!("{kind:?}, {what}: {seen:.1}, and {most:.1} is the goal");
            self.missed.push(missed);
        }
    }

    fn requests(&mut self, kind: Kind, what: &str, seen: usize, most: usize) {
        if seen > most {
            let missed = format!("{kind:?}, requests of {what}: {seen}, and {most} is the goal");
            self.missed.push(missed);
        }
    }

    pub(super) fn first_scan(&mut self, kind: Kind, cost: &Cost) {
        if kind == Kind::Github {
            let most = FIRST * self.repositories;
            self.requests(kind, "the first scan", cost.requests, most);
        }
    }

    pub(super) fn idle_scan(&mut self, kind: Kind, cost: &Cost) {
        self.at_most(kind, "seconds of an idle scan", cost.seconds, SECONDS);
        if kind == Kind::Github {
            let most = IDLE_OF_ONE * self.repositories;
            self.requests(kind, "an idle scan", cost.requests, most);
            self.requests(kind, "an idle scan that count", cost.counted, 0);
        }
    }

    /// With the look for items at work.
    pub(super) fn whole_idle_scan(&mut self, kind: Kind, cost: &Cost) {
        match kind {
            Kind::Github => self.requests(kind, "a whole idle scan that count", cost.counted, 0),
            Kind::Gitlab => self.requests(kind, "a whole idle scan", cost.requests, IDLE_OF_ALL),
        }
    }

    pub(super) fn changes(&mut self, kind: Kind, idle: &Cost, changed: &Cost) {
        let more = changed.requests.saturating_sub(idle.requests);
        self.requests(kind, "the changes", more, CHANGE * self.changes);
    }

    pub(super) fn memory(&mut self, kind: Kind, mebibytes: f64) {
        self.at_most(kind, "MiB of the producer", mebibytes, MEMORY);
    }
}

impl fmt::Display for Goals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "goals: GitHub {IDLE_OF_ONE} requests a repository in an idle scan, none of which counts, and {FIRST} in the first; \
             GitLab {IDLE_OF_ALL} in all; {SECONDS} s; {CHANGE} requests a change; the producer {MEMORY} MiB"
        )?;
        for missed in &self.missed {
            write!(f, "\nmissed: {missed}")?;
        }
        Ok(())
    }
}
