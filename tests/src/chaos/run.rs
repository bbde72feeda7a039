//! One run of a seed: opens issues, does the faults, heals everything, waits, asks the oracle.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use agentmine_domain::{Task, TaskState};
use agentmine_store::TaskFilter;
use chrono::{DateTime, Utc};
use lapin::options::BasicPublishOptions;
use tokio::time::timeout;

use super::engine::{self, Engine};
use super::fault::{Act, Fault, ForgeFault, ModelFault, Schedule, Timed};
use super::fleet::{Fleet, ForgeKind, Services, Setup};
use super::link::Weather;
use super::oracle::{self, Expected, Finding};
use super::people::{self, Later};
use super::plan::{Outcome, Plan};
use super::program::Peer;
use super::progress::Progress;
use super::recovery;
use crate::forge::{Fault as Refusal, Partition};
use crate::model::Fault as Reply;

/// How often the fleet is looked after.
const TICK: Duration = Duration::from_millis(50);

/// How long the suite tries to send a message: the broker may be killed meanwhile.
const SEND_LIMIT: Duration = Duration::from_secs(30);

/// A pause of this length instead shows a machine that is too busy.
const STALL: Duration = Duration::from_millis(700);

/// Runs one seed.
///
/// # Errors
/// If the suite itself cannot do its work.
pub async fn run_seed(
    setup: &Setup,
    services: &mut Services,
    plan: &Plan,
) -> anyhow::Result<Outcome> {
    let schedule = Schedule::of(plan.seed, setup, plan.tasks, plan.faults, plan.length);
    let schedule = match &plan.only {
        Some(numbers) => schedule.only(numbers),
        None => schedule,
    };
    let mut run = Run::new(setup, services, plan.seed).await?;
    run.disturb(&schedule).await?;
    run.finish().await
}

/// What ends a fault that lasts.
#[derive(Debug, Clone, Copy)]
enum Undo {
    Link(usize, Peer),
    BrokerUp,
    DatabaseUp,
    DatabaseContinue,
    DatabaseWritable,
    EngineUp,
}

/// A run under way.
pub(super) struct Run<'a> {
    pub(super) fleet: Fleet,
    services: &'a mut Services,
    outcome: Outcome,
    /// Numbers of the issues, in the order in which they were opened.
    pub(super) issues: Vec<u64>,
    /// What people did to each issue.
    pub(super) acts: BTreeMap<u64, Vec<Act>>,
    pub(super) later: Vec<Later>,
    undo: Vec<(Instant, Undo)>,
    /// When the database went away.
    away: Vec<DateTime<Utc>>,
    /// Which consumer reaches the database first once it is back, and how much before the others.
    first_back: Option<(usize, Duration)>,
}

impl<'a> Run<'a> {
    pub(super) async fn new(
        setup: &Setup,
        services: &'a mut Services,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let name = format!("s{seed}x{}", uuid::Uuid::new_v4().simple());
        Ok(Self {
            fleet: Fleet::new(setup, services, &name).await?,
            services,
            outcome: Outcome {
                seed,
                ..Outcome::default()
            },
            issues: Vec::new(),
            acts: BTreeMap::new(),
            later: Vec::new(),
            undo: Vec::new(),
            away: Vec::new(),
            first_back: None,
        })
    }

    pub(super) fn open_issue(&mut self) {
        let number = self.fleet.issue(self.issues.len());
        self.issues.push(number);
    }

    async fn tasks(&self) -> Vec<Task> {
        let tasks = self.fleet.store.tasks(&TaskFilter::default()).await;
        tasks.unwrap_or_default()
    }

    /// How many issues are not done with.
    pub(super) async fn open_tasks(&self) -> usize {
        let tasks = self.tasks().await;
        let is_over = |number: &&u64| {
            let mut of_issue = tasks
                .iter()
                .filter(|task| self.fleet.number(task) == **number);
            of_issue
                .next()
                .is_some_and(|task| matches!(task.state, TaskState::Ended(_)))
        };
        self.issues.len() - self.issues.iter().filter(is_over).count()
    }

    /// A task that a worker holds, of an issue that no person has touched.
    pub(super) async fn running_task(&self) -> Option<Task> {
        let tasks = self.tasks().await;
        tasks.into_iter().find(|task| {
            matches!(task.state, TaskState::Leased(_))
                && !self.acts.contains_key(&self.fleet.number(task))
        })
    }

    /// A person acts on an issue, if that is possible now.
    pub(super) async fn act(&mut self, issue: u64, act: Act) -> bool {
        // A task that waits for its person to come back is left to that one.
        let waits = |it: &Later| matches!(it, Later::Resume(n) | Later::Relabel(n) if *n == issue);
        if self.later.iter().any(waits) {
            return false;
        }
        let (acted, later) = people::act(&self.fleet, issue, act).await;
        if acted {
            self.acts.entry(issue).or_default().push(act);
            self.later.extend(later);
        }
        acted
    }

    /// Opens the issues and does the faults, each at its time.
    async fn disturb(&mut self, schedule: &Schedule) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut issues = schedule.issues.iter().peekable();
        let mut faults = schedule.faults.iter().peekable();
        while issues.peek().is_some() || faults.peek().is_some() {
            let now = begun.elapsed();
            while issues.next_if(|at| **at <= now).is_some() {
                self.open_issue();
            }
            while let Some(timed) = faults.next_if(|timed| timed.at <= now) {
                self.begin(timed).await?;
            }
            self.tick().await?;
        }
        Ok(())
    }

    pub(super) async fn tick(&mut self) -> anyhow::Result<()> {
        self.fleet.tend()?;
        let now = Instant::now();
        let (due, rest) = std::mem::take(&mut self.undo)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.undo = rest;
        self.undo_all(due).await?;
        let mut later = Vec::new();
        for what in std::mem::take(&mut self.later) {
            if !people::later(&self.fleet, what).await {
                later.push(what);
            }
        }
        self.later = later;
        let before = Instant::now();
        tokio::time::sleep(TICK).await;
        if before.elapsed() > STALL {
            // The machine is too busy for anybody to keep a lease.
            self.fleet
                .programs
                .iter_mut()
                .for_each(|it| it.trouble(before.elapsed()));
        }
        Ok(())
    }

    async fn begin(&mut self, timed: &Timed) -> anyhow::Result<()> {
        let Timed { number, at, fault } = timed;
        if self.inflict(fault).await? {
            *self.outcome.faults.entry(fault.kind()).or_default() += 1;
            let line = format!("{number:3} at {:5.1} s {fault}", at.as_secs_f32());
            self.outcome.list.push(line);
        }
        Ok(())
    }

    fn undo_after(&mut self, time: Duration, undo: Undo) {
        self.undo.push((Instant::now() + time, undo));
    }

    /// Makes a fault happen. `false`: it does not apply at this moment.
    async fn inflict(&mut self, fault: &Fault) -> anyhow::Result<bool> {
        match fault {
            Fault::Kill(who) => self.fleet.programs[*who].kill(),
            Fault::Stop(who, time) => self.fleet.programs[*who].stop_for(*time),
            Fault::Point(who, point) => {
                let program = &mut self.fleet.programs[*who];
                program.plans.push_back(point.clone());
                program.kill();
            }
            Fault::Silence(who, peer, time) => self.weather(*who, *peer, *time, Weather::Silence),
            Fault::Reset(who, peer, time) => self.weather(*who, *peer, *time, Weather::Broken),
            Fault::Slow(who, peer, time) => {
                let slow = Weather::Slow(Duration::from_millis(150));
                self.weather(*who, *peer, *time, slow);
            }
            Fault::Loss(who, peer, time) => self.weather(*who, *peer, *time, Weather::Lossy(20)),
            Fault::DatabaseFirst(who, time) => self.first_back = Some((*who, *time)),
            Fault::AnswersLost(who, time) => {
                let client = self.fleet.programs[*who].name.clone();
                self.fleet
                    .forge
                    .partition(&client, Some(Partition::AnswersLost));
                self.undo_after(*time, Undo::Link(*who, Peer::Forge));
            }
            Fault::Person(issue, act) => return Ok(self.person(*issue, *act).await),
            Fault::Forge(fault) => self.forge_fault(*fault),
            Fault::Model(fault) => self.model_fault(*fault),
            Fault::BrokerRestart
            | Fault::BrokerWipe
            | Fault::DatabaseRestart
            | Fault::DatabaseStop(_)
            | Fault::DatabaseAway(_)
            | Fault::DatabaseReadOnly(_)
            | Fault::DatabaseCut
            | Fault::DatabaseClock(_)
            | Fault::ForeignMessage => return self.service_fault(fault).await,
            Fault::EngineRestart => match &mut self.services.engine {
                Some(Engine::Own(own)) => {
                    own.kill();
                    self.undo_after(engine::AWAY, Undo::EngineUp);
                }
                Some(Engine::Shared(_)) | None => return Ok(false),
            },
        }
        Ok(true)
    }

    fn weather(&mut self, who: usize, peer: Peer, time: Duration, weather: Weather) {
        if peer == Peer::Forge {
            let partition = match weather {
                Weather::Silence => Partition::Silence,
                _ => Partition::Reset,
            };
            let client = self.fleet.programs[who].name.clone();
            self.fleet.forge.partition(&client, Some(partition));
        }
        self.fleet.programs[who].links.set(peer, weather);
        if peer == Peer::Database {
            self.fleet.programs[who].trouble(time);
        }
        self.undo_after(time, Undo::Link(who, peer));
    }

    async fn person(&mut self, issue: usize, act: Act) -> bool {
        match self.issues.get(issue) {
            Some(&number) => self.act(number, act).await,
            None => false,
        }
    }

    fn forge_fault(&self, fault: ForgeFault) {
        let forge = &self.fleet.forge;
        let any = || Refusal::on("*", "/api/v");
        let write = || Refusal::on("POST", "/api/v");
        let message = "{\"message\":\"API rate limit exceeded\"}";
        forge.inject(match fault {
            ForgeFault::Limited => any().times(2).status(429).header("retry-after", "1"),
            ForgeFault::LimitedSilently => any().times(2).status(429),
            ForgeFault::LimitedUntil => {
                let reset = (chrono::Utc::now().timestamp() + 3).to_string();
                let (status, headers) = match self.fleet.setup.forge {
                    ForgeKind::Github => (403, "x-ratelimit"),
                    ForgeKind::Gitlab => (429, "ratelimit"),
                };
                any()
                    .times(3)
                    .status(status)
                    .header(&format!("{headers}-remaining"), "0")
                    .header(&format!("{headers}-reset"), &reset)
                    .body(message)
            }
            ForgeFault::Unavailable => any().times(3).status(502),
            ForgeFault::DoneBut502 => write().done_but_status(502),
            ForgeFault::AnswerLost => write().answer_lost(),
            ForgeFault::GitAway => Refusal::on("*", ".git/").times(3).status(503),
            ForgeFault::PushAnswerLost => Refusal::on("POST", "/git-receive-pack").answer_lost(),
        });
    }

    fn model_fault(&self, fault: ModelFault) {
        let model = &self.fleet.model;
        match fault {
            ModelFault::Limited => model.inject(&Reply::Status(429, Some(1)), 2),
            ModelFault::LimitedSilently => model.inject(&Reply::Status(429, None), 2),
            ModelFault::Unavailable => model.inject(&Reply::Status(503, None), 4),
            ModelFault::CutStream => model.inject(&Reply::BreakOff, 1),
            ModelFault::Drop => model.inject(&Reply::Drop, 1),
        }
    }

    async fn service_fault(&mut self, fault: &Fault) -> anyhow::Result<bool> {
        let (Some(postgres), Some(broker)) =
            (&mut self.services.postgres, &mut self.services.broker)
        else {
            return Ok(false);
        };
        let is_down = |it: &(Instant, Undo)| {
            matches!(
                it.1,
                Undo::BrokerUp
                    | Undo::DatabaseUp
                    | Undo::DatabaseContinue
                    // It is ended by the server, which has to be there.
                    | Undo::DatabaseWritable
            )
        };
        if self.undo.iter().any(is_down) {
            return Ok(false);
        }
        let is_of_broker = matches!(
            fault,
            Fault::BrokerRestart | Fault::BrokerWipe | Fault::ForeignMessage
        );
        if !is_of_broker {
            self.away.push(Utc::now());
        }
        let (time, undo) = match fault {
            Fault::BrokerRestart => {
                broker.kill();
                (Duration::from_millis(500), Undo::BrokerUp)
            }
            Fault::BrokerWipe => {
                broker.kill();
                broker.wipe()?;
                (Duration::from_millis(500), Undo::BrokerUp)
            }
            Fault::DatabaseRestart => {
                postgres.kill();
                (Duration::from_millis(1500), Undo::DatabaseUp)
            }
            Fault::DatabaseAway(time) => {
                postgres.kill();
                (*time, Undo::DatabaseUp)
            }
            Fault::DatabaseStop(time) => {
                postgres.signal(libc::SIGSTOP);
                (*time, Undo::DatabaseContinue)
            }
            Fault::DatabaseReadOnly(time) => {
                postgres.set_read_only(true).await?;
                (*time, Undo::DatabaseWritable)
            }
            Fault::DatabaseCut => {
                postgres.cut().await?;
                return Ok(true);
            }
            Fault::DatabaseClock(by) => return postgres.clock.set_back(*by),
            _ => return Ok(self.foreign_message().await.is_ok()),
        };
        self.undo_after(time, undo);
        Ok(true)
    }

    /// A message in a queue of the fleet that is not a wake-up.
    pub(super) async fn foreign_message(&self) -> anyhow::Result<()> {
        timeout(SEND_LIMIT, self.send_foreign_message()).await?
    }

    async fn send_foreign_message(&self) -> anyhow::Result<()> {
        let Some(broker) = &self.services.broker else {
            return Ok(());
        };
        let url = super::services::RabbitMq::url(broker.address().port());
        let connection = super::services::connect_broker(&url).await?;
        let channel = connection.create_channel().await?;
        let queue = format!("{}.tasks.medium", self.fleet.name);
        channel
            .basic_publish(
                "".into(),
                queue.into(),
                BasicPublishOptions::default(),
                b"not a wake-up",
                Default::default(),
            )
            .await?;
        Ok(())
    }

    async fn undo_all(&mut self, due: Vec<(Instant, Undo)>) -> anyhow::Result<()> {
        for (_, undo) in due {
            match undo {
                Undo::Link(who, peer) => {
                    let program = &self.fleet.programs[who];
                    program.links.set(peer, Weather::Fair);
                    if peer == Peer::Forge {
                        self.fleet.forge.partition(&program.name, None);
                    }
                }
                Undo::BrokerUp => {
                    if let Some(broker) = &mut self.services.broker {
                        broker.bring_up().await?;
                    }
                }
                Undo::DatabaseUp => {
                    self.hold_back_others();
                    if let Some(postgres) = &mut self.services.postgres {
                        postgres.bring_up().await?;
                    }
                }
                Undo::DatabaseContinue => {
                    if let Some(postgres) = &self.services.postgres {
                        postgres.signal(libc::SIGCONT);
                    }
                }
                Undo::EngineUp => {
                    if let Some(Engine::Own(own)) = &mut self.services.engine {
                        own.bring_up().await?;
                    }
                }
                Undo::DatabaseWritable => {
                    self.hold_back_others();
                    if let Some(postgres) = &self.services.postgres {
                        postgres.set_read_only(false).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets one consumer reach the database before the others, if the scenario says so.
    fn hold_back_others(&mut self) {
        let Some((first, time)) = self.first_back.take() else {
            return;
        };
        for who in (1..self.fleet.programs.len()).filter(|who| *who != first) {
            let links = &self.fleet.programs[who].links;
            links.set(Peer::Database, Weather::Broken);
            self.undo_after(time, Undo::Link(who, Peer::Database));
        }
    }

    /// Heals everything, waits until the fleet has settled, and asks the oracle.
    pub(super) async fn finish(mut self) -> anyhow::Result<Outcome> {
        // In the order in which they would have ended: the database continues before it is asked.
        let due = std::mem::take(&mut self.undo);
        self.undo_all(due).await?;
        for program in &mut self.fleet.programs {
            program.links.heal();
            program.plans.clear();
            program.continue_at = program.continue_at.map(|_| Instant::now());
            self.fleet.forge.partition(&program.name, None);
        }
        self.fleet.forge.heal();
        self.fleet.model.heal();
        let mut progress = Progress::begin();
        loop {
            self.tick().await?;
            let unsettled = oracle::unsettled(&self.fleet, &self.issues).await;
            if matches!(unsettled, Ok(None)) && self.later.is_empty() {
                break;
            }
            if let Some(since) = progress.stuck(&self.fleet).await {
                let what = unsettled?.unwrap_or_else(|| "a person waits".into());
                let waiting = self.later.iter().map(|it| it.waits_for(&self.fleet));
                let waiting: String = waiting.collect();
                let stuck = Finding::stuck(format!("{what}; {since}{waiting}"));
                self.outcome.findings.push(stuck);
                break;
            }
        }
        self.outcome.settled_after = progress.elapsed();
        for program in &mut self.fleet.programs {
            if let Err(error) = program.terminate(Duration::from_secs(30)).await {
                self.outcome
                    .findings
                    .push(Finding::stuck(error.to_string()));
            }
        }
        let expected = Expected {
            issues: &self.issues,
            acts: &self.acts,
            away: &self.away,
        };
        oracle::judge(&self.fleet, &expected, &mut self.outcome).await?;
        self.outcome.recoveries = recovery::of(&self.fleet).await?;
        Ok(self.outcome)
    }
}
