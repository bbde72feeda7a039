//! The table of one or more runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::oracle::Broken;
use super::plan::Outcome;

/// The totals of runs.
#[derive(Debug, Clone, Default)]
pub struct Table {
    seeds: usize,
    tasks: usize,
    done: usize,
    worn_out: usize,
    faults: BTreeMap<String, usize>,
    findings: BTreeMap<Broken, usize>,
    recoveries: Vec<Duration>,
    points: BTreeMap<String, usize>,
    failed_seeds: BTreeSet<u64>,
}

impl Table {
    /// Adds a run.
    pub fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.tasks += outcome.tasks;
        self.done += outcome.done;
        self.worn_out += outcome.worn_out;
        for (kind, count) in &outcome.faults {
            *self.faults.entry(kind.clone()).or_default() += count;
        }
        for finding in &outcome.findings {
            *self.findings.entry(finding.broken).or_default() += 1;
            self.failed_seeds.insert(outcome.seed);
        }
        for (point, count) in &outcome.points {
            *self.points.entry(point.clone()).or_default() += count;
        }
        self.recoveries.extend(&outcome.recoveries);
        self.recoveries.sort();
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn percentile(&self, percent: usize) -> Option<Duration> {
        let last = self.recoveries.len().checked_sub(1)?;
        self.recoveries.get(last * percent / 100).copied()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: usize = self.faults.values().sum();
        let found = |broken| self.findings.get(&broken).copied().unwrap_or(0);
        writeln!(f, "seeds            {}", self.seeds)?;
        writeln!(f, "tasks            {}", self.tasks)?;
        writeln!(f, "  done           {}", self.done)?;
        writeln!(f, "  killed in each attempt  {}", self.worn_out)?;
        writeln!(f, "faults           {faults}")?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {kind:<24} {count}")?;
        }
        let hits: usize = self.points.values().sum();
        let points: BTreeSet<_> = self
            .points
            .keys()
            .filter_map(|it| it.rsplit_once('.'))
            .collect();
        writeln!(f, "failpoints hit   {hits}, of {} kinds", points.len())?;
        writeln!(f, "lost             {}", found(Broken::Lost))?;
        writeln!(f, "doubled          {}", found(Broken::Doubled))?;
        writeln!(f, "stale writes     {}", found(Broken::Stale))?;
        writeln!(f, "taken from live  {}", found(Broken::Taken))?;
        writeln!(f, "stuck            {}", found(Broken::Stuck))?;
        writeln!(f, "wrong labels     {}", found(Broken::Wrong))?;
        writeln!(f, "journal          {}", found(Broken::Journal))?;
        writeln!(f, "left behind      {}", found(Broken::Left))?;
        writeln!(f, "wrong sums       {}", found(Broken::Sums))?;
        let kills = self
            .points
            .iter()
            .filter(|(point, _)| point.ends_with(".kill"));
        let fewest = kills.clone().map(|(_, count)| count).min().unwrap_or(&0);
        writeln!(
            f,
            "killed at        {} failpoints, at least {fewest} times at each",
            kills.count()
        )?;
        let seconds = |percent| match self.percentile(percent) {
            Some(time) => format!("{:.1} s", time.as_secs_f32()),
            None => "-".to_owned(),
        };
        writeln!(
            f,
            "recovery         p50 {}, p99 {} ({} takeovers)",
            seconds(50),
            seconds(99),
            self.recoveries.len()
        )?;
        if !self.failed_seeds.is_empty() {
            writeln!(f, "failing seeds    {:?}", self.failed_seeds)?;
        }
        Ok(())
    }
}
