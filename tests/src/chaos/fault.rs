//! The faults of a run. They follow from the seed; a list of their numbers selects some of them.

use std::fmt;
use std::time::Duration;

use agentmine_runtime::failpoint::{BOUNDARIES, Guard};

use super::fleet::{SandboxKind, Setup, StoreKind};
use super::program::Peer;
use super::scenario::Scenario;
use crate::random::Random;

/// Something that goes wrong. Programs are named by their place in the fleet; 0 is the producer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fault {
    /// SIGKILL.
    Kill(usize),
    /// SIGSTOP, and SIGCONT after this time.
    Stop(usize, Duration),
    /// The next start of a program has this failpoint, and the program is killed so that it starts.
    Point(usize, String),
    /// Nothing passes between two processes for a time.
    Silence(usize, Peer, Duration),
    /// Every connection between two processes breaks for a time.
    Reset(usize, Peer, Duration),
    /// A slow link.
    Slow(usize, Peer, Duration),
    /// A link that breaks connections.
    Loss(usize, Peer, Duration),
    /// The forge acts, and a client sees no answer.
    AnswersLost(usize, Duration),
    BrokerRestart,
    BrokerWipe,
    DatabaseRestart,
    DatabaseStop(Duration),
    /// A crash, and the next start after this time.
    DatabaseAway(Duration),
    DatabaseReadOnly(Duration),
    /// One consumer will reach the database first once it is back, and the others so much later. Less than a
    /// lease costs no task.
    DatabaseFirst(usize, Duration),
    DatabaseCut,
    /// The clock of the database is set back, for the rest of the run.
    DatabaseClock(Duration),
    /// The Docker engine is killed, and its containers continue until it is there again.
    EngineRestart,
    Forge(ForgeFault),
    Model(ModelFault),
    /// A person acts on the issue that was opened as the n-th.
    Person(usize, Act),
    /// A message that is not a wake-up.
    ForeignMessage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForgeFault {
    /// 429 with `Retry-After`.
    Limited,
    /// 429 alone.
    LimitedSilently,
    /// A limit that the headers promise to end in some seconds, instead of in an hour.
    LimitedUntil,
    /// 502 without doing anything.
    Unavailable,
    /// Done, and then 502.
    DoneBut502,
    /// Done, and the connection breaks.
    AnswerLost,
    /// The git host answers 503.
    GitAway,
    /// A push is accepted, and its answer lost.
    PushAnswerLost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelFault {
    Limited,
    LimitedSilently,
    Unavailable,
    CutStream,
    Drop,
}

/// What people do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// `agentmine task stop`.
    Stop,
    /// `agentmine task pause`, and later `resume`.
    PauseAndResume,
    /// Pause, and later the request label.
    PauseAndRelabel,
    /// The request label again, while the task runs.
    Relabel,
    CloseIssue,
    ClosePullRequest,
    PushToBranch,
}

impl Fault {
    /// The row in the table of a run.
    pub(super) fn kind(&self) -> String {
        let text = self.to_string();
        let kind = text.split(':').next().unwrap_or(&text);
        kind.to_owned()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = Duration::as_secs_f32;
        match self {
            Self::Kill(who) => write!(f, "kill: program {who}"),
            Self::Stop(who, time) => write!(f, "stop: program {who} for {:.1} s", seconds(time)),
            Self::Point(who, point) => write!(f, "failpoint: program {who}, {point}"),
            Self::Silence(who, peer, time) => {
                write!(
                    f,
                    "partition {}: program {who} for {:.1} s",
                    peer.as_str(),
                    seconds(time)
                )
            }
            Self::Reset(who, peer, time) => {
                write!(
                    f,
                    "broken link {}: program {who} for {:.1} s",
                    peer.as_str(),
                    seconds(time)
                )
            }
            Self::Slow(who, peer, time) => {
                write!(
                    f,
                    "latency {}: program {who} for {:.1} s",
                    peer.as_str(),
                    seconds(time)
                )
            }
            Self::Loss(who, peer, time) => {
                write!(
                    f,
                    "loss {}: program {who} for {:.1} s",
                    peer.as_str(),
                    seconds(time)
                )
            }
            Self::AnswersLost(who, time) => {
                write!(
                    f,
                    "forge answers lost: program {who} for {:.1} s",
                    seconds(time)
                )
            }
            Self::BrokerRestart => write!(f, "broker restart"),
            Self::BrokerWipe => write!(f, "broker wipe"),
            Self::DatabaseRestart => write!(f, "database restart"),
            Self::DatabaseAway(time) => write!(f, "database away: for {:.1} s", seconds(time)),
            Self::DatabaseStop(time) => write!(f, "database frozen: for {:.1} s", seconds(time)),
            Self::DatabaseReadOnly(time) => {
                write!(f, "database read-only: for {:.1} s", seconds(time))
            }
            Self::DatabaseFirst(who, time) => {
                let time = seconds(time);
                write!(
                    f,
                    "database first: program {who}, {time:.1} s before others"
                )
            }
            Self::DatabaseClock(by) => {
                write!(f, "database clock: set back by {:.1} s", seconds(by))
            }
            Self::DatabaseCut => write!(f, "database cut"),
            Self::EngineRestart => write!(f, "engine restart"),
            Self::Forge(fault) => write!(f, "forge: {fault:?}"),
            Self::Model(fault) => write!(f, "model: {fault:?}"),
            Self::Person(issue, act) => write!(f, "person: issue {issue}, {act:?}"),
            Self::ForeignMessage => write!(f, "foreign message"),
        }
    }
}

/// A fault and when it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Timed {
    /// Its place in the list of the seed.
    pub(super) number: usize,
    pub(super) at: Duration,
    pub(super) fault: Fault,
}

/// The issues and faults of a seed.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    /// When each issue is opened.
    pub(super) issues: Vec<Duration>,
    pub(super) faults: Vec<Timed>,
}

impl Schedule {
    /// `tasks` issues and `faults` faults, within `length`.
    pub(super) fn of(
        seed: u64,
        setup: &Setup,
        tasks: usize,
        faults: usize,
        length: Duration,
    ) -> Self {
        let mut random = Random::new(seed);
        let millis = length.as_millis() as u64;
        let mut issues: Vec<_> = (0..tasks)
            .map(|_| Duration::from_millis(random.between(0, millis * 2 / 3)))
            .collect();
        issues.sort();
        let mut timed: Vec<_> = (0..faults)
            .map(|_| {
                let at = Duration::from_millis(random.between(0, millis));
                (at, any(&mut random, setup, tasks))
            })
            .collect();
        // One person's act for each fourth issue.
        for (issue, opened) in issues.iter().enumerate() {
            if random.chance(25) {
                let after = Duration::from_millis(random.between(500, 6000));
                let fault = Fault::Person(issue, act(&mut random));
                timed.push((*opened + after, fault));
            }
        }
        if setup.store == StoreKind::Postgres && random.chance(50) {
            let at = Duration::from_millis(random.between(0, millis));
            let lease = setup.rhythm.lease().as_millis() as u64;
            let by = Duration::from_millis(random.between(lease / 2, 2 * lease));
            timed.push((at, Fault::DatabaseClock(by)));
        }
        let scenario = Scenario::of(seed, setup.store);
        timed.retain(|(_, fault)| !scenario.is_spoiled_by(fault));
        timed.extend(scenario.faults(&mut random, setup, &issues));
        if setup.sandbox == SandboxKind::Docker {
            timed.extend(of_engine(&mut random, setup, length));
        }
        timed.sort_by_key(|(at, _)| *at);
        let number = |(number, (at, fault))| Timed { number, at, fault };
        Self {
            issues,
            faults: timed.into_iter().enumerate().map(number).collect(),
        }
    }

    /// Only the faults with these numbers.
    pub(super) fn only(mut self, numbers: &[usize]) -> Self {
        self.faults.retain(|timed| numbers.contains(&timed.number));
        self
    }
}

fn any(random: &mut Random, setup: &Setup, tasks: usize) -> Fault {
    let who = random.between(0, setup.consumers as u64 + 1) as usize;
    let consumer = random.between(1, setup.consumers as u64 + 1) as usize;
    let postgres = setup.store == StoreKind::Postgres;
    let lease = setup.rhythm.lease().as_millis() as u64;
    let brief = Duration::from_millis(random.between(500, lease));
    let long = Duration::from_millis(random.between(lease, 2 * lease));
    let time = if random.chance(35) { long } else { brief };
    let mut peers = match postgres {
        true => vec![Peer::Database, Peer::Broker, Peer::Model, Peer::Forge],
        false => vec![Peer::Model, Peer::Forge],
    };
    // The producer has no sandboxes.
    if setup.sandbox == SandboxKind::Docker && who > 0 {
        peers.push(Peer::Engine);
    }
    let peer = random.of(&peers);
    match random.between(0, 100) {
        0..14 => Fault::Kill(who),
        14..24 => Fault::Stop(who, time),
        24..44 => Fault::Point(consumer, point(random)),
        44..54 => Fault::Silence(who, peer, time),
        54..60 => Fault::Reset(who, peer, brief),
        60..64 => Fault::Slow(who, peer, brief),
        64..68 => Fault::Loss(who, peer, brief),
        68..71 => Fault::AnswersLost(who, brief),
        71 if postgres => Fault::BrokerRestart,
        // Without the second net nothing brings back what the broker had confirmed.
        72 if postgres && setup.without.contains(&Guard::SecondNet) => Fault::BrokerRestart,
        72 if postgres => Fault::BrokerWipe,
        73..75 if postgres => Fault::DatabaseRestart,
        75..77 if postgres => Fault::DatabaseStop(time),
        77..79 if postgres => Fault::DatabaseReadOnly(time),
        79..81 if postgres => Fault::DatabaseCut,
        81 if postgres => Fault::ForeignMessage,
        82..85 => Fault::Person(random.between(0, tasks as u64) as usize, act(random)),
        85..93 => Fault::Forge(random.of(&[
            ForgeFault::Limited,
            ForgeFault::LimitedSilently,
            ForgeFault::LimitedUntil,
            ForgeFault::Unavailable,
            ForgeFault::DoneBut502,
            ForgeFault::AnswerLost,
            ForgeFault::GitAway,
            ForgeFault::PushAnswerLost,
        ])),
        93..100 => Fault::Model(random.of(&[
            ModelFault::Limited,
            ModelFault::LimitedSilently,
            ModelFault::Unavailable,
            ModelFault::CutStream,
            ModelFault::Drop,
        ])),
        _ => Fault::Kill(consumer),
    }
}

/// What every seed with containers has: a crash of the engine, and a cut and a bad link before it.
fn of_engine(random: &mut Random, setup: &Setup, length: Duration) -> Vec<(Duration, Fault)> {
    let mut at =
        |percent: u64| length.mul_f64(random.between(percent, percent + 20) as f64 / 100.0);
    let times = [at(10), at(35), at(60)];
    let mut consumer = || random.between(1, setup.consumers as u64 + 1) as usize;
    let (cut, bad) = (consumer(), consumer());
    let time = setup.rhythm.lease() / 2;
    let faults = [
        Fault::Silence(cut, Peer::Engine, time),
        match random.chance(50) {
            true => Fault::Slow(bad, Peer::Engine, time),
            false => Fault::Loss(bad, Peer::Engine, time),
        },
        Fault::EngineRestart,
    ];
    times.into_iter().zip(faults).collect()
}

fn act(random: &mut Random) -> Act {
    random.of(&[
        Act::Stop,
        Act::PauseAndResume,
        Act::PauseAndRelabel,
        Act::Relabel,
        Act::CloseIssue,
        Act::ClosePullRequest,
        Act::PushToBranch,
    ])
}

/// Boundaries that every task passes.
const COMMON: &[&str] = &[
    "store.claim",
    "store.append_step",
    "store.save_checkpoint",
    "store.effect_begin",
    "store.effect_done",
    "store.end_lease",
    "store.commit",
    "tracker.label_add",
    "tracker.comment_create",
    "tracker.comment_edit",
    "tracker.pull_request_create",
    "gateway.push",
    "gateway.fence",
    "queue.ack",
    "sandbox.create",
    "sandbox.remove",
];

/// A failpoint with an action, somewhere among its first hits.
fn point(random: &mut Random) -> String {
    let boundary = match random.chance(70) {
        true => random.of(COMMON),
        false => random.of(BOUNDARIES),
    };
    let edge = random.of(&["before", "after", "after"]);
    let action = random.of(&["kill", "stop", "unknown*3", "unknown*1"]);
    let from = random.between(1, 4);
    format!("{boundary}.{edge}={action}@{from}")
}
