//! The section `capacity`: how much of the fleet a repository gets. It applies to GitHub and GitLab.

use schemars::JsonSchema;
use serde::Deserialize;

/// How much of the fleet a repository gets. What exceeds a limit waits, and its item keeps the label of the request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Capacity {
    /// Open pull requests of the fleet in a repository. 0: no limit.
    pub open_pull_requests: u32,
    /// Pull requests that a repository gets in 24 hours. 0: no limit.
    pub pull_requests_per_day: u32,
    /// Tasks of a repository that are queued or at work at the same time. 0: no limit.
    pub running_tasks: u32,
    /// Times of the day at which no task begins, such as `22:00-07:00`.
    pub quiet_hours: Vec<String>,
    /// How far the clock of `quiet_hours` is ahead of UTC, such as `+09:00`.
    pub utc_offset: String,
    /// Labels on an item that give its task another priority than medium.
    pub priority_labels: PriorityLabels,
}

/// Labels of priorities.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PriorityLabels {
    /// Before all others.
    pub critical: Vec<String>,
    /// Before medium.
    pub high: Vec<String>,
    /// After all others.
    pub low: Vec<String>,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            open_pull_requests: 5,
            pull_requests_per_day: 10,
            running_tasks: 2,
            quiet_hours: Vec::new(),
            utc_offset: "+00:00".to_owned(),
            priority_labels: PriorityLabels::default(),
        }
    }
}

/// Minutes of a day.
const DAY: i32 = 24 * 60;

impl Capacity {
    /// Whether a task may have to wait.
    #[must_use]
    pub fn limits_anything(&self) -> bool {
        let Self {
            open_pull_requests,
            pull_requests_per_day,
            running_tasks,
            quiet_hours,
            utc_offset: _,
            priority_labels: _,
        } = self;
        *open_pull_requests > 0
            || *pull_requests_per_day > 0
            || *running_tasks > 0
            || !quiet_hours.is_empty()
    }

    /// How many minutes the quiet hours last from this minute of the day, UTC; `None`: it is none of them.
    #[must_use]
    pub fn quiet_for(&self, utc: u32) -> Option<u32> {
        let offset = self.offset()?;
        let now = (i32::try_from(utc).ok()? + offset).rem_euclid(DAY);
        let left = self.quiet_hours.iter().filter_map(|text| {
            let (from, to) = quiet(text)?;
            let (into, length) = ((now - from).rem_euclid(DAY), (to - from).rem_euclid(DAY));
            (into < length).then(|| length - into)
        });
        left.max().and_then(|minutes| u32::try_from(minutes).ok())
    }

    /// Minutes that `utc_offset` is ahead of UTC; `None` if it is no offset.
    pub(super) fn offset(&self) -> Option<i32> {
        let (sign, rest) = match self.utc_offset.split_at_checked(1)? {
            ("+", rest) => (1, rest),
            ("-", rest) => (-1, rest),
            _ => return None,
        };
        let minutes = minute(rest)?;
        (minutes <= 14 * 60).then_some(sign * minutes)
    }
}

/// Beginning and end of quiet hours; `None` if they are no two times, or the same.
pub(super) fn quiet(text: &str) -> Option<(i32, i32)> {
    let (from, to) = text.split_once('-')?;
    let (from, to) = (minute(from.trim())?, minute(to.trim())?);
    (from != to).then_some((from, to))
}

fn minute(text: &str) -> Option<i32> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str, below: i32| {
        let fits = text.len() == 2 && text.bytes().all(|c| c.is_ascii_digit());
        let value: Option<i32> = text.parse().ok();
        value.filter(|value| fits && *value < below)
    };
    Some(number(hours, 24)? * 60 + number(minutes, 60)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_hours_pass_midnight_and_follow_the_offset() {
        let capacity = Capacity {
            quiet_hours: vec!["22:00-07:00".into(), "12:00-12:30".into()],
            utc_offset: "+09:00".into(),
            ..Capacity::default()
        };
        let at = |hours: u32, minutes: u32| capacity.quiet_for(hours * 60 + minutes);
        // 22:00, 06:59, 07:00, 12:15 there.
        assert_eq!(at(13, 0), Some(9 * 60));
        assert_eq!(at(21, 59), Some(1));
        assert_eq!(at(22, 0), None);
        assert_eq!(at(3, 15), Some(15));
        // The end is not one of them, and where several apply the longest counts.
        assert_eq!((at(3, 0), at(3, 30), at(2, 59)), (Some(30), None, None));
        let behind = Capacity {
            quiet_hours: vec!["00:00-00:01".into(), "23:00-01:00".into()],
            utc_offset: "-03:30".into(),
            ..Capacity::default()
        };
        let at = |hours: u32, minutes: u32| behind.quiet_for(hours * 60 + minutes);
        let around_midnight = [(2, 29), (2, 30), (3, 29), (3, 30), (4, 29), (4, 30)];
        let left = around_midnight.map(|(hours, minutes)| at(hours, minutes));
        assert_eq!(left, [None, Some(120), Some(61), Some(60), Some(1), None]);
        for wrong in ["22-7", "25:00-01:00", "1:00-2:00", "01:00-01:00", ""] {
            assert_eq!(quiet(wrong), None, "{wrong}");
        }
    }
}
