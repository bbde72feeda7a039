//! The clock of this machine against those of the servers that were asked.

use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};

use super::finding::Finding;

/// A `Date` header has whole seconds, and an answer takes a while.
const CLOSE: TimeDelta = TimeDelta::seconds(10);
/// Signatures and certificates are refused from here on.
const FAR: TimeDelta = TimeDelta::seconds(300);

/// How far each server's clock is ahead of this machine's.
#[derive(Debug, Default)]
pub(super) struct Clocks(Mutex<Vec<(String, TimeDelta)>>);

impl Clocks {
    /// Notes the time that a server has named just now.
    pub(super) fn note(&self, server: &str, time: Option<DateTime<Utc>>) {
        if let Some(time) = time {
            let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push((server.to_owned(), time - Utc::now()));
        }
    }

    pub(super) fn findings(self) -> Vec<Finding> {
        let seen = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        if seen.is_empty() {
            return vec![Finding::skipped("no server named its time")];
        }
        let off: Vec<Finding> = seen
            .iter()
            .filter_map(|(server, ahead)| of(server, *ahead))
            .collect();
        if !off.is_empty() {
            return off;
        }
        let names: Vec<&str> = seen.iter().map(|(server, _)| server.as_str()).collect();
        vec![Finding::good(format!("as that of {}", names.join(", ")))]
    }
}

fn of(server: &str, ahead: TimeDelta) -> Option<Finding> {
    let seconds = ahead.num_seconds();
    let how = match seconds {
        0.. => "behind",
        _ => "ahead of",
    };
    let text = format!(
        "this machine's clock is {} s {how} that of {server}",
        seconds.abs()
    );
    let finding = match ahead.abs() {
        off if off > FAR => Finding::failed(text),
        off if off > CLOSE => Finding::warning(text),
        _ => return None,
    };
    Some(finding.fix("set the clock, and keep it right with NTP (`timedatectl set-ntp true`)"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Outcome;
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_named_with_its_direction() {
        assert_eq!(of("x", TimeDelta::seconds(-9)), None);
        let behind = of("the database", TimeDelta::seconds(60)).unwrap();
        assert_eq!(behind.outcome, Outcome::Warning);
        assert_eq!(
            behind.detail,
            "this machine's clock is 60 s behind that of the database"
        );
        let ahead = of("github", TimeDelta::seconds(-3600)).unwrap();
        assert_eq!(ahead.outcome, Outcome::Failed);
        assert_eq!(
            ahead.detail,
            "this machine's clock is 3600 s ahead of that of github"
        );
    }
}
