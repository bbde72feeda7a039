//! How much work waits, and what keeps it waiting: from the store, and from the broker where there is one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use agentmine_domain::Priority;
use agentmine_queue::Queue;
use agentmine_store::{Backlog, Figures, Store, TaskStanding};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ControlError;

/// How long the broker may take. It is asked beside the store, and its outage is part of the answer.
const BROKER_LIMIT: Duration = Duration::from_secs(6);

/// Nothing can be chosen.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueGet {}

/// The fleet's work at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// The tasks that are not over, by priority, highest first.
    pub priorities: Vec<PriorityDepth>,
    /// Slots of workers that have work.
    pub demand: u64,
    /// Wake-ups that are due and not published.
    pub unpublished: BacklogView,
    /// Ends that are not reported to the tracker.
    pub unreported: BacklogView,
    /// Writes to trackers that began and whose outcome is unknown.
    pub unfinished_effects: BacklogView,
    /// The broker's own counts; null where there is no broker.
    pub broker: Option<BrokerStatus>,
}

impl QueueStatus {
    /// The tasks of all priorities.
    #[must_use]
    pub fn total(&self) -> PriorityDepth {
        let mut total = PriorityDepth {
            priority: "all".to_owned(),
            ..PriorityDepth::default()
        };
        for of in &self.priorities {
            total.due += of.due;
            total.backing_off += of.backing_off;
            total.running += of.running;
            total.paused += of.paused;
            total.waiting += of.waiting;
            total.oldest_due_seconds = total.oldest_due_seconds.max(of.oldest_due_seconds);
        }
        total
    }
}

/// The tasks of one priority.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PriorityDepth {
    /// low, medium, high or critical.
    pub priority: String,
    /// Tasks that wait for a free worker.
    pub due: u64,
    /// Tasks that wait for the end of a delay after a failed attempt or an outage.
    pub backing_off: u64,
    /// Tasks that a worker works on.
    pub running: u64,
    /// Tasks that wait for a person.
    pub paused: u64,
    /// Tasks that wait for their repository's turn, or whose item is blocked.
    pub waiting: u64,
    /// How long the oldest due task has waited, in seconds; 0 if there is none.
    pub oldest_due_seconds: u64,
}

/// How many there are, and how old the oldest is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BacklogView {
    /// Their number.
    pub count: u64,
    /// The age of the oldest in seconds; 0 if there is none.
    pub oldest_seconds: u64,
}

impl From<Backlog> for BacklogView {
    fn from(backlog: Backlog) -> Self {
        Self {
            count: backlog.count,
            oldest_seconds: backlog.oldest.as_secs(),
        }
    }
}

/// What the broker says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrokerStatus {
    /// Its queues; empty if it does not answer.
    pub queues: Vec<BrokerQueue>,
    /// Why it does not answer.
    pub error: Option<String>,
}

/// A queue of the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrokerQueue {
    /// Its name.
    pub name: String,
    /// Messages that nobody has taken.
    pub messages: u64,
}

/// The work that waits. Messages only wake workers up: the store's counts are those that hold.
///
/// # Errors
/// Those of the store. A broker that is away is part of the answer.
pub async fn status(
    store: &dyn Store,
    broker: Option<&dyn Queue>,
) -> Result<QueueStatus, ControlError> {
    let asked = async {
        match broker {
            Some(broker) => Some(ask(broker).await),
            None => None,
        }
    };
    let (figures, broker) = tokio::join!(store.figures(), asked);
    let Figures {
        tasks,
        slots,
        outbox,
        unreported,
        effects,
    } = figures?;
    let mut priorities: BTreeMap<Reverse<Priority>, PriorityDepth> = BTreeMap::new();
    for count in tasks {
        let depth = priorities.entry(Reverse(count.priority)).or_default();
        count.priority.as_str().clone_into(&mut depth.priority);
        let number = count.backlog.count;
        match count.standing {
            TaskStanding::Due => {
                depth.due = number;
                depth.oldest_due_seconds = count.backlog.oldest.as_secs();
            }
            TaskStanding::Delayed => depth.backing_off = number,
            TaskStanding::Leased => depth.running = number,
            TaskStanding::Paused => depth.paused = number,
            TaskStanding::Waiting => depth.waiting = number,
        }
    }
    Ok(QueueStatus {
        priorities: priorities.into_values().collect(),
        demand: slots,
        unpublished: outbox.into(),
        unreported: unreported.into(),
        unfinished_effects: effects.into(),
        broker,
    })
}

async fn ask(broker: &dyn Queue) -> BrokerStatus {
    let failed = |error: String| BrokerStatus {
        queues: Vec::new(),
        error: Some(error),
    };
    match tokio::time::timeout(BROKER_LIMIT, broker.depths()).await {
        Ok(Ok(depths)) => BrokerStatus {
            queues: depths
                .into_iter()
                .map(|depth| BrokerQueue {
                    name: depth.name,
                    messages: depth.messages,
                })
                .collect(),
            error: None,
        },
        Ok(Err(error)) => failed(error.to_string()),
        Err(_) => failed(format!("no answer within {} s", BROKER_LIMIT.as_secs())),
    }
}
