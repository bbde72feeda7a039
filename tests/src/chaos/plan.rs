//! What a run does, and what it showed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::oracle::Finding;

/// What a run does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Decides issues and faults.
    pub seed: u64,
    /// Issues that are opened.
    pub tasks: usize,
    /// Faults, besides those that people make.
    pub faults: usize,
    /// How long faults happen.
    pub length: Duration,
    /// Only the faults with these numbers.
    pub only: Option<Vec<usize>>,
}

impl Plan {
    /// The plan of a seed in the test run.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self {
            seed,
            tasks: 12,
            faults: 16,
            length: Duration::from_secs(12),
            only: None,
        }
    }
}

/// What a run showed.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Tasks that were recorded.
    pub tasks: usize,
    /// Tasks that ended with a pull request.
    pub done: usize,
    /// Tasks that failed because their worker was killed in each of their attempts.
    pub worn_out: usize,
    /// Faults that happened, by kind.
    pub faults: BTreeMap<String, usize>,
    /// The list of faults, as a person reads it.
    pub list: Vec<String>,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// From the end of a worker to the next session of its task.
    pub recoveries: Vec<Duration>,
    /// From the last fault until everything was settled.
    pub settled_after: Duration,
    /// Failpoints that killed, stopped, or made an outcome unknown: `NAME.EDGE.ACTION`.
    pub points: BTreeMap<String, usize>,
    /// Of a walk: the failpoints, `NAME.EDGE`, at which no process was killed.
    pub missed: Vec<String>,
}

impl Outcome {
    /// The numbers of the faults that happened.
    #[must_use]
    pub fn numbers(&self) -> Vec<usize> {
        let number = |line: &String| line.split_whitespace().next()?.parse().ok();
        self.list.iter().filter_map(number).collect()
    }
}
