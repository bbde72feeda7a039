//! Whether the suite can fail: protections are switched off one at a time, and it has to notice.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use agentmine_runtime::failpoint::Guard;

use super::fleet::{Services, Setup};
use super::oracle::Finding;
use super::plan::Plan;
use super::run::run_seed;

/// What is switched off, one at a time. [`Guard::SecondNet`] covers for others and goes with them.
pub const GUARDS: [Guard; 5] = [
    Guard::Fence,
    Guard::LookUp,
    Guard::Confirm,
    Guard::Outbox,
    Guard::Grace,
];

/// How soon the suite noticed.
#[derive(Debug, Clone)]
pub struct Noticed {
    /// What was off.
    pub guard: Guard,
    /// Seeds that ran, the one that failed included.
    pub seeds: usize,
    /// Faults in all of them.
    pub faults: usize,
    /// Time of all of them.
    pub after: Duration,
    /// What the last one found; empty if nothing was noticed.
    pub findings: Vec<Finding>,
}

impl fmt::Display for Noticed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.after.as_secs_f32();
        let what = match self.findings.first() {
            Some(finding) => finding.to_string(),
            None => "not noticed".into(),
        };
        write!(
            f,
            "{:<10} {} seeds, {} faults, {seconds:.0} s: {what}",
            self.guard.as_str(),
            self.seeds,
            self.faults
        )
    }
}

/// Runs seeds without the protection until one fails.
///
/// # Errors
/// If the suite itself cannot do its work.
pub async fn notice(
    setup: &Setup,
    services: &mut Services,
    guard: Guard,
    seeds: Range<u64>,
) -> anyhow::Result<Noticed> {
    let setup = setup.clone().without(&[guard]);
    let begun = Instant::now();
    let mut noticed = Noticed {
        guard,
        seeds: 0,
        faults: 0,
        after: Duration::ZERO,
        findings: Vec::new(),
    };
    for seed in seeds {
        let outcome = run_seed(&setup, services, &Plan::of(seed)).await?;
        noticed.seeds += 1;
        noticed.faults += outcome.list.len();
        noticed.after = begun.elapsed();
        if !outcome.findings.is_empty() {
            noticed.findings = outcome.findings;
            break;
        }
    }
    Ok(noticed)
}
