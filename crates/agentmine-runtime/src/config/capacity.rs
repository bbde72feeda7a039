//! The section `capacity`: how much of the fleet a repository gets. It applies to GitHub and GitLab.

use chrono::{DateTime, FixedOffset, Timelike, Utc};
use chrono_tz::Tz;
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
    /// The time zone of the clock of `quiet_hours`, by its IANA name, such as `Europe/Berlin`. Empty: that of `utc_offset`.
    pub time_zone: String,
    /// How far the clock of `quiet_hours` is ahead of UTC, such as `+09:00`, where there is no `time_zone`.
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
            time_zone: String::new(),
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
            time_zone: _,
            utc_offset: _,
            priority_labels: _,
        } = self;
        *open_pull_requests > 0
            || *pull_requests_per_day > 0
            || *running_tasks > 0
            || !quiet_hours.is_empty()
    }

    /// The end of the current quiet hours by their own clock, such as `07:00 Europe/Berlin`; `None` outside quiet hours.
    #[must_use]
    pub fn quiet_until(&self, now: DateTime<Utc>) -> Option<String> {
        let (now, clock) = match self.zone() {
            Some(zone) => (minute_of(&now.with_timezone(&zone)), zone.name().to_owned()),
            None => {
                let offset = FixedOffset::east_opt(self.offset()? * 60)?;
                let now = now.with_timezone(&offset);
                let is_utc = offset.local_minus_utc() == 0;
                let clock = if is_utc {
                    "UTC".to_owned()
                } else {
                    format!("UTC{offset}")
                };
                (minute_of(&now), clock)
            }
        };
        let left = self.quiet_hours.iter().filter_map(|text| {
            let (from, to) = quiet(text)?;
            let (into, length) = ((now - from).rem_euclid(DAY), (to - from).rem_euclid(DAY));
            (into < length).then(|| (length - into, to))
        });
        let (_, until) = left.max()?;
        Some(format!("{:02}:{:02} {clock}", until / 60, until % 60))
    }

    /// The zone of `time_zone`; `None` if it is empty, or no zone has that name.
    pub(super) fn zone(&self) -> Option<Tz> {
        self.time_zone.parse().ok()
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

/// The minute of the day of a clock.
fn minute_of(time: &impl Timelike) -> i32 {
    i32::try_from(time.hour() * 60 + time.minute()).unwrap_or(0)
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

    fn at(capacity: &Capacity, time: &str) -> Option<String> {
        capacity.quiet_until(time.parse().unwrap())
    }

    #[test]
    fn quiet_hours_pass_midnight_and_follow_the_offset() {
        let capacity = Capacity {
            quiet_hours: vec!["22:00-07:00".into(), "12:00-12:30".into()],
            utc_offset: "+09:00".into(),
            ..Capacity::default()
        };
        let until = |time: &str| at(&capacity, &format!("2026-01-01T{time}:00Z"));
        // 22:00, 06:59, 07:00, 12:15 there.
        let morning = Some("07:00 UTC+09:00".to_owned());
        assert_eq!((until("13:00"), until("21:59")), (morning.clone(), morning));
        assert_eq!(until("22:00"), None);
        assert_eq!(until("03:15").unwrap(), "12:30 UTC+09:00");
        // The end is not one of them, and where several apply the longest counts.
        assert_eq!((until("03:30"), until("02:59")), (None, None));
        let behind = Capacity {
            quiet_hours: vec!["00:00-00:01".into(), "23:00-01:00".into()],
            utc_offset: "-03:30".into(),
            ..Capacity::default()
        };
        let is_quiet = |time: &str| {
            let until = at(&behind, &format!("2026-01-01T{time}:00Z"));
            assert!(
                until.iter().all(|until| until == "01:00 UTC-03:30"),
                "{until:?}"
            );
            until.is_some()
        };
        let around_midnight = ["02:29", "02:30", "03:29", "03:30", "04:29", "04:30"];
        let quiet_then = around_midnight.map(is_quiet);
        assert_eq!(quiet_then, [false, true, true, true, true, false]);
        for wrong in ["22-7", "25:00-01:00", "1:00-2:00", "01:00-01:00", ""] {
            assert_eq!(quiet(wrong), None, "{wrong}");
        }
    }

    /// The same hours of the clock in summer and in winter.
    #[test]
    fn quiet_hours_follow_the_clock_of_their_zone() {
        let capacity = Capacity {
            quiet_hours: vec!["22:00-07:00".into()],
            time_zone: "Europe/Berlin".into(),
            ..Capacity::default()
        };
        let is_quiet = |time| at(&capacity, time).is_some();
        assert!(!is_quiet("2026-01-15T20:59:00Z") && is_quiet("2026-01-15T21:00:00Z"));
        assert!(!is_quiet("2026-07-15T19:59:00Z") && is_quiet("2026-07-15T20:00:00Z"));
        assert!(is_quiet("2026-01-16T05:59:00Z") && !is_quiet("2026-01-16T06:00:00Z"));
        assert!(is_quiet("2026-07-16T04:59:00Z") && !is_quiet("2026-07-16T05:00:00Z"));
        // The night in which the clock goes forward is an hour shorter.
        assert!(is_quiet("2026-03-29T04:59:00Z") && !is_quiet("2026-03-29T05:00:00Z"));
        let until = at(&capacity, "2026-07-15T23:00:00Z");
        assert_eq!(until.unwrap(), "07:00 Europe/Berlin");
    }
}
