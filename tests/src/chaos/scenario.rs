//! What a seed does on purpose, besides its random faults.
//!
//! Some of what the fleet has to survive needs several things in the right order, which random faults produce
//! once in dozens of seeds: a worker that is stalled until another one, which is well, has taken its task; a
//! database that is away for longer than a lease while all workers live, and that one of them reaches before the
//! others; wake-ups under way while the broker is not. Of four seeds in a row each has another of these, and one
//! is random alone.

use std::time::Duration;

use super::fault::Fault;
use super::fleet::{Setup, StoreKind};
use super::program::Peer;
use crate::random::Random;

/// What a seed does on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scenario {
    /// Workers are stalled for more than two leases while another one is well.
    StandStill,
    /// The database is away for longer than a lease while all workers live, and one of them reaches it first.
    Absence,
    /// The broker cannot be reached while tasks are recorded.
    LostWakeUps(Broker),
    /// Nothing.
    Random,
}

/// How a broker cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broker {
    Silent,
    Away,
}

impl Scenario {
    pub(super) fn of(seed: u64, store: StoreKind) -> Self {
        match (seed % 4, store) {
            (0, _) => Self::StandStill,
            (1, StoreKind::Postgres) => Self::Absence,
            (2, StoreKind::Postgres) if seed % 8 == 2 => Self::LostWakeUps(Broker::Silent),
            (2, StoreKind::Postgres) => Self::LostWakeUps(Broker::Away),
            // One SQLite file is never away, and its queues are in the processes.
            _ => Self::Random,
        }
    }

    /// Whether a random fault would spoil it.
    pub(super) fn is_spoiled_by(self, fault: &Fault) -> bool {
        let is_of_people_or_peers =
            matches!(fault, Fault::Forge(_) | Fault::Model(_) | Fault::Person(..));
        match self {
            Self::StandStill => !is_of_people_or_peers && !matches!(fault, Fault::ForeignMessage),
            Self::Absence => {
                let is_of_broker = matches!(fault, Fault::BrokerRestart | Fault::BrokerWipe);
                !is_of_people_or_peers && !is_of_broker
            }
            // A broker that is away ends the connections that are to be silent.
            Self::LostWakeUps(Broker::Silent) => {
                matches!(fault, Fault::BrokerRestart | Fault::BrokerWipe)
            }
            Self::LostWakeUps(Broker::Away) | Self::Random => false,
        }
    }

    /// Its faults. `opened`: when the issues are opened.
    pub(super) fn faults(
        self,
        random: &mut Random,
        setup: &Setup,
        opened: &[Duration],
    ) -> Vec<(Duration, Fault)> {
        match self {
            Self::StandStill => stand_still(random, setup),
            Self::Absence => absence(random, setup),
            Self::LostWakeUps(broker) => lost_wake_ups(random, setup, opened, broker),
            Self::Random => Vec::new(),
        }
    }
}

/// The steps of a session before which a worker is stalled.
const STEPS: &[&str] = &[
    "store.append_step",
    "store.append_step",
    "store.save_checkpoint",
    "store.effect_begin",
    "store.end_lease",
    "gateway.fence",
    "gateway.push",
    "tracker.label_add",
    "tracker.comment_edit",
    "tracker.pull_request_create",
];

fn stand_still(random: &mut Random, setup: &Setup) -> Vec<(Duration, Fault)> {
    let lease = setup.rhythm.lease();
    let consumers = setup.consumers as u64;
    let first = random.between(0, consumers) as usize;
    let at = |n: usize| 1 + (first + n) % setup.consumers;
    // One is stalled where it hurts, and another one anywhere.
    let step = random.of(STEPS);
    let nth = random.between(1, 3);
    let point = format!("{step}.before=stop@{nth}");
    vec![
        (Duration::ZERO, Fault::Point(at(0), point)),
        (lease * 2 / 3, Fault::Stop(at(1), lease * 5 / 2)),
    ]
}

fn absence(random: &mut Random, setup: &Setup) -> Vec<(Duration, Fault)> {
    let lease = setup.rhythm.lease();
    let from = lease.mul_f64(random.between(30, 60) as f64 / 100.0);
    let time = lease.mul_f64(random.between(120, 160) as f64 / 100.0);
    let fault = match random.chance(50) {
        true => Fault::DatabaseAway(time),
        false => Fault::DatabaseReadOnly(time),
    };
    let first = random.between(1, setup.consumers as u64 + 1) as usize;
    // Its sweep comes before the heartbeats of the others.
    let before_others = Fault::DatabaseFirst(first, lease / 2);
    vec![(from, before_others), (from, fault)]
}

fn lost_wake_ups(
    random: &mut Random,
    setup: &Setup,
    opened: &[Duration],
    broker: Broker,
) -> Vec<(Duration, Fault)> {
    let mut at = |from: usize, to: usize| {
        let some = opened.get(from..to).unwrap_or_default();
        random.pick(some).copied().unwrap_or_default()
    };
    let (half, all) = (opened.len() / 2, opened.len());
    match broker {
        Broker::Away => vec![
            (at(0, half), Fault::BrokerRestart),
            (at(half, all), Fault::BrokerRestart),
        ],
        // Only what is sent over a connection that was open before is lost without an error. The producer
        // announces what it finds; once it is back, the relay of any program may be the next to.
        Broker::Silent => (0..=setup.consumers)
            .chain([0, 0])
            .map(|who| {
                let time = setup.rhythm.lease() / 2;
                (at(half, all), Fault::Silence(who, Peer::Broker, time))
            })
            .collect(),
    }
}
