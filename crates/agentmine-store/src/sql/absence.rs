//! When the database was away, as this process saw it.
//!
//! A worker cannot extend its lease while the database is away. A worker that took the lease at the first moment at
//! which the database is back would count an attempt that the task did not cause, and give the work to a second
//! worker. So for the length of a lease after an absence nobody takes an expired one: its holder, if there
//! still is one, has extended it by then. The same holds after a pause: of this process, which may have been
//! stalled together with the workers whose leases it judges, or of the whole machine, which only the database's
//! clock shows.
//!
//! A database that goes away again and again must not keep a dead worker's task for ever: once it has been
//! there for three leases since the first of such absences, expired leases are taken. One that is never there for
//! long, but takes writes in between, lets a holder that lives extend its lease all the same; there the leases in
//! which it took one are counted.
//!
//! One statement without an answer is no absence while others are answered: it waits for a lock.
//!
//! Accepted: a process that was started after the absence has not seen it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use agentmine_runtime::failpoint::Guard;

/// Time with a database, in leases, after which absences that follow each other give no more grace.
const LONGEST_GRACE: u32 = 3;

/// A database that is there for less than this between two absences was not there.
const BRIEF: Duration = Duration::from_secs(5);

/// What this process saw of the database.
#[derive(Debug, Default)]
pub(super) struct Absence(Mutex<Seen>);

impl Absence {
    /// The database has answered.
    pub(super) fn answered(&self) {
        self.with(|seen| seen.answered(Instant::now()));
    }

    /// The database is away at this moment.
    pub(super) fn away(&self) {
        self.with(|seen| seen.away(Instant::now()));
    }

    /// The database has taken a write.
    pub(super) fn written(&self) {
        self.with(|seen| seen.written());
    }

    /// Something that was asked at `begun` has no answer.
    pub(super) fn unanswered(&self, begun: Instant) {
        self.with(|seen| seen.unanswered(begun, Instant::now()));
    }

    /// The database's clock shows this time, in milliseconds.
    pub(super) fn clock(&self, millis: i64) {
        self.with(|seen| seen.clock(millis, Instant::now()));
    }

    /// Whether leases of this length that ran out are to be left to their holders.
    pub(super) fn is_within(&self, lease: Duration) -> bool {
        !Guard::Grace.is_off() && self.with(|seen| seen.is_within(lease, Instant::now()))
    }

    fn with<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug, Default)]
struct Seen {
    /// The newest answer.
    answered: Option<Instant>,
    /// When the database's clock was read, and what it showed.
    clock: Option<(Instant, i64)>,
    pause: Option<Pause>,
    series: Option<Series>,
}

/// Time in which nothing was asked.
#[derive(Debug, Clone, Copy)]
struct Pause {
    ended: Instant,
    length: Duration,
}

/// Absences that follow each other.
#[derive(Debug)]
struct Series {
    /// When the database was last away.
    last: Instant,
    /// Since when it is back.
    back: Option<Instant>,
    /// How long it was there between the absences.
    there: Duration,
    /// When the current one of the leases began that are counted.
    since: Instant,
    /// Whether it took a write since then.
    taken: Writes,
    /// In how many leases it took one.
    leases: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writes {
    None,
    Some,
}

impl Series {
    /// Counts the current lease once it is over.
    fn count(&mut self, lease: Duration, now: Instant) {
        if now.saturating_duration_since(self.since) < lease {
            return;
        }
        self.leases += u32::from(self.taken == Writes::Some);
        (self.since, self.taken) = (now, Writes::None);
    }
}

impl Seen {
    fn written(&mut self) {
        if let Some(series) = &mut self.series {
            series.taken = Writes::Some;
        }
    }

    fn answered(&mut self, now: Instant) {
        if let Some(before) = self.answered {
            self.paused(now.saturating_duration_since(before), now);
        }
        self.answered = Some(now);
        if let Some(series) = &mut self.series {
            series.back.get_or_insert(now);
        }
    }

    fn away(&mut self, now: Instant) {
        let series = self.series.get_or_insert(Series {
            last: now,
            back: None,
            there: Duration::ZERO,
            since: now,
            taken: Writes::None,
            leases: 0,
        });
        let there = series
            .back
            .take()
            .map(|back| now.saturating_duration_since(back));
        // A read-only server answers reads, between writes that it refuses.
        series.there += there.filter(|it| *it >= BRIEF).unwrap_or_default();
        series.last = now;
    }

    fn unanswered(&mut self, begun: Instant, now: Instant) {
        if self.answered.is_none_or(|answered| answered < begun) {
            self.away(now);
        }
    }

    fn clock(&mut self, millis: i64, now: Instant) {
        if let Some((read, before)) = self.clock.replace((now, millis)) {
            let passed = u64::try_from(millis.saturating_sub(before)).unwrap_or(0);
            let here = now.saturating_duration_since(read);
            self.paused(Duration::from_millis(passed).saturating_sub(here), now);
        }
    }

    /// Keeps the pause that matters for more leases: the longer one, unless it is long ago.
    fn paused(&mut self, length: Duration, now: Instant) {
        let is_newer = |old: Pause| {
            length >= old.length || now.saturating_duration_since(old.ended) >= 2 * old.length
        };
        if self.pause.is_none_or(is_newer) {
            self.pause = Some(Pause { ended: now, length });
        }
    }

    fn is_within(&mut self, lease: Duration, now: Instant) -> bool {
        let since = |then| now.saturating_duration_since(then);
        let is_paused = self
            .pause
            .is_some_and(|pause| pause.length >= lease / 2 && since(pause.ended) < lease);
        let is_away = match &mut self.series {
            None => false,
            Some(series) if since(series.last) >= lease => {
                self.series = None;
                false
            }
            Some(series) => {
                let there = series.there + series.back.map_or(Duration::ZERO, since);
                series.count(lease, now);
                there < LONGEST_GRACE * lease && series.leases < LONGEST_GRACE
            }
        };
        is_paused || is_away
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(60);

    /// Seconds since the beginning of a test.
    struct Time(Instant);

    impl Time {
        fn at(&self, seconds: u64) -> Instant {
            self.0 + Duration::from_secs(seconds)
        }
    }

    /// A process that has just had an answer, at second 1000.
    fn begun() -> (Seen, Time) {
        let time = Time(Instant::now());
        let mut seen = Seen::default();
        seen.answered(time.at(1000));
        (seen, time)
    }

    fn answers_until(seen: &mut Seen, time: &Time, seconds: std::ops::Range<u64>) {
        seconds.for_each(|second| seen.answered(time.at(second)));
    }

    #[test]
    fn one_statement_that_waits_for_others_is_no_absence() {
        let (mut seen, time) = begun();
        let asked = time.at(1001);
        answers_until(&mut seen, &time, 1001..1032);
        seen.unanswered(asked, time.at(1031));
        assert!(!seen.is_within(LEASE, time.at(1032)));
        // Nobody is answered: the database hangs.
        seen.unanswered(time.at(1040), time.at(1070));
        assert!(seen.is_within(LEASE, time.at(1071)));
    }

    #[test]
    fn grace_lasts_one_lease_however_long_the_absence_was() {
        let (mut seen, time) = begun();
        for second in (1001..5000).step_by(5) {
            seen.away(time.at(second));
            assert!(seen.is_within(LEASE, time.at(second)));
        }
        answers_until(&mut seen, &time, 5000..5060);
        assert!(seen.is_within(LEASE, time.at(5050)));
        assert!(!seen.is_within(LEASE, time.at(5060)));
    }

    #[test]
    fn absences_that_follow_each_other_end_the_grace_after_three_leases() {
        let (mut seen, time) = begun();
        let mut taken = None;
        for second in 1001..2000 {
            match second % 30 {
                0 => seen.away(time.at(second)),
                _ => seen.answered(time.at(second)),
            }
            if second > 1020 && !seen.is_within(LEASE, time.at(second)) {
                taken = Some(second);
                break;
            }
        }
        let taken = taken.expect("a dead worker's task is never taken");
        assert!((1190..1220).contains(&taken), "{taken}");
        // Later absences are a series of their own.
        answers_until(&mut seen, &time, taken..taken + 100);
        assert!(!seen.is_within(LEASE, time.at(taken + 100)));
        seen.away(time.at(taken + 200));
        assert!(seen.is_within(LEASE, time.at(taken + 201)));
    }

    #[test]
    fn a_database_that_is_there_for_a_second_at_a_time_ends_the_grace_if_it_takes_writes() {
        let taken = |write: fn(&mut Seen)| {
            let (mut seen, time) = begun();
            (1001..2000).find(|&second| {
                match second % 2 {
                    0 => seen.answered(time.at(second)),
                    _ => seen.away(time.at(second)),
                }
                if second % 30 == 0 {
                    write(&mut seen);
                }
                !seen.is_within(LEASE, time.at(second))
            })
        };
        let with_writes = taken(Seen::written).expect("a dead worker's task is never taken");
        assert!((1180..1200).contains(&with_writes), "{with_writes}");
        assert_eq!(taken(|_| ()), None, "nobody could extend a lease");
    }

    #[test]
    fn a_process_that_stood_still_for_half_a_lease_leaves_leases_to_their_holders() {
        let (mut seen, time) = begun();
        seen.answered(time.at(1015));
        assert!(!seen.is_within(LEASE, time.at(1015)), "a quiet time");
        seen.answered(time.at(1135));
        assert!(seen.is_within(LEASE, time.at(1135)));
        answers_until(&mut seen, &time, 1136..1195);
        assert!(seen.is_within(LEASE, time.at(1194)));
        assert!(!seen.is_within(LEASE, time.at(1195)));
    }

    #[test]
    fn a_machine_that_slept_leaves_leases_to_their_holders() {
        let (mut seen, time) = begun();
        seen.clock(5_000_000, time.at(1001));
        seen.clock(5_015_000, time.at(1016));
        assert!(!seen.is_within(LEASE, time.at(1016)));
        // Our clock did not run meanwhile; the database's shows an hour.
        seen.clock(8_630_000, time.at(1031));
        assert!(seen.is_within(LEASE, time.at(1031)));
        // A clock that was set back is no pause.
        let (mut seen, time) = begun();
        seen.clock(8_630_000, time.at(1001));
        seen.clock(5_000_000, time.at(1002));
        assert!(!seen.is_within(LEASE, time.at(1003)));
    }
}
