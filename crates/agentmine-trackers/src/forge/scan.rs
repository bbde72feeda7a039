//! What the scans of all forges share: triggers, and what a fault of one repository means for the others.
//!
//! The trigger of a task is the id of the newest event that added the label. Accepted race: a list may show a
//! label before the events do. Such an item is left for the next scan, since a second trigger for the same
//! label would be a second task.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use agentmine_domain::ItemRef;
use chrono::{DateTime, TimeDelta, Utc};

use super::rate_limit::Holder;
use crate::error::TrackerError;
use crate::item::{Candidate, LabelRequest, Skipped};
use crate::people::Requested;

/// Items without any event for the label (imported ones) wait this long for one.
const EVENT_LAG: TimeDelta = TimeDelta::minutes(10);
/// The trigger of an item that changed so recently is not remembered. A forge may show whole seconds, so the item
/// may be labelled again without a visible change, and the events may lag behind the list of items.
const SETTLED: TimeDelta = TimeDelta::minutes(5);
/// Triggers that are remembered. Past it, all are forgotten and asked for again.
const MAX_TRIGGERS: usize = 50_000;

/// What put the label on an item.
#[derive(Debug, Clone)]
pub(crate) struct Trigger {
    pub(crate) id: String,
    pub(crate) requested: Requested,
}

impl Trigger {
    /// The request of an item that has the label.
    pub(crate) fn request(found: Option<Self>) -> LabelRequest {
        match found {
            Some(Self { id, requested }) => LabelRequest::By {
                trigger: id,
                since: requested.at,
            },
            None => LabelRequest::Unknown,
        }
    }
}

/// An item of a list that has the label.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Labelled<'a> {
    pub(crate) item: &'a ItemRef,
    /// The forge's own id, of all repositories.
    pub(crate) id: u64,
    pub(crate) label: &'a str,
    pub(crate) created_at: Option<DateTime<Utc>>,
    pub(crate) updated_at: DateTime<Utc>,
}

/// An event that changed the label of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabelChange {
    pub(crate) id: u64,
    pub(crate) change: Change,
    pub(crate) requested: Requested,
}

/// What became of the label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Removed,
}

/// The newest trigger of each item, as long as the item does not change.
#[derive(Debug, Default)]
pub(crate) struct Triggers(Mutex<HashMap<(String, String), Known>>);

/// A trigger, and when the item had last changed when it was requested.
#[derive(Debug)]
struct Known {
    updated_at: DateTime<Utc>,
    trigger: Trigger,
}

impl Triggers {
    /// The trigger of an item that has not changed since it was requested.
    pub(crate) fn known(&self, seen: &Labelled<'_>) -> Option<Trigger> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = known.get(&key(seen))?;
        (entry.updated_at == seen.updated_at).then(|| entry.trigger.clone())
    }

    /// The trigger by the newest event of this label; `None` if the events lag behind.
    pub(crate) fn decide(
        &self,
        seen: &Labelled<'_>,
        newest: Option<LabelChange>,
    ) -> Option<Trigger> {
        let age = Utc::now() - seen.updated_at;
        let trigger = match newest {
            Some(event) if event.change == Change::Added => Trigger {
                id: event.id.to_string(),
                requested: event.requested,
            },
            None if age > EVENT_LAG => Trigger {
                id: format!("item-{}", seen.id),
                requested: Requested {
                    by: None,
                    at: seen.created_at,
                },
            },
            Some(_) | None => return None,
        };
        if age > SETTLED {
            self.remember(seen, &trigger);
        }
        Some(trigger)
    }

    fn remember(&self, seen: &Labelled<'_>, trigger: &Trigger) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_TRIGGERS {
            known.clear();
        }
        let entry = Known {
            updated_at: seen.updated_at,
            trigger: trigger.to_owned(),
        };
        known.insert(key(seen), entry);
    }
}

fn key(seen: &Labelled<'_>) -> (String, String) {
    (seen.item.key(), seen.label.to_owned())
}

/// A candidate, and when its item was opened.
#[derive(Debug)]
pub(crate) struct Dated {
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) candidate: Candidate,
}

/// What the scans of one tracker cannot read at present, by its name in lower case. Each fault is logged when it begins and when
/// it ends.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<BTreeMap<String, Skipped>>);

impl Faults {
    /// All of them, by name.
    pub(crate) fn list(&self) -> Vec<Skipped> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().cloned().collect()
    }

    fn begin(&self, what: &str, error: &TrackerError) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = Skipped {
            what: what.to_owned(),
            reason: error.to_string(),
        };
        if known.insert(what.to_lowercase(), skipped).is_none() {
            tracing::warn!(
                what,
                %error,
                "it cannot be scanned and is skipped until it can. hint: `agentmine doctor` checks it"
            );
        }
    }

    fn end(&self, what: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.remove(&what.to_lowercase()).is_some() {
            tracing::info!(what, "it can be scanned again");
        }
    }
}

/// So many faults of the server in a row may be one of the server itself, and not of each repository.
const SUSPICIOUS: u32 = 3;

/// What a scan found. What concerns one repository, or the search, skips that and nothing else.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    faults: &'a Faults,
    candidates: Vec<Dated>,
    keys: HashSet<String>,
    /// Whether anything could be read.
    read: bool,
    /// The limits of installations that were met.
    limited: HashMap<Holder, DateTime<Utc>>,
    unavailable_in_a_row: u32,
    first_error: Option<TrackerError>,
}

impl<'a> Found<'a> {
    pub(crate) fn new(faults: &'a Faults) -> Self {
        Self {
            faults,
            candidates: Vec::new(),
            keys: HashSet::new(),
            read: false,
            limited: HashMap::new(),
            unavailable_in_a_row: 0,
            first_error: None,
        }
    }

    /// Adds what `what` came to, which counts against the limits of `holder`.
    ///
    /// # Errors
    /// The error, if it concerns all that is scanned.
    pub(crate) fn add(
        &mut self,
        holder: Holder,
        what: &str,
        found: Result<Vec<Dated>, TrackerError>,
    ) -> Result<(), TrackerError> {
        let error = match found {
            Ok(more) => {
                self.faults.end(what);
                self.read = true;
                self.unavailable_in_a_row = 0;
                self.keep(more);
                return Ok(());
            }
            Err(error) => error,
        };
        match &error {
            // The token or the server itself: nothing else can be read either.
            TrackerError::Unauthorized { .. } | TrackerError::NotPermitted { .. } => {
                return Err(error);
            }
            TrackerError::RateLimited { until, .. } => match holder {
                Holder::Token => return Err(error),
                Holder::App | Holder::Installation(_) => {
                    self.limited.insert(holder, *until);
                }
            },
            TrackerError::Unavailable { .. } => self.unavailable_in_a_row += 1,
            // It was read, and takes no work.
            TrackerError::Archived { .. } => {
                self.unavailable_in_a_row = 0;
                self.read = true;
            }
            TrackerError::NotFound { .. }
            | TrackerError::Forbidden { .. }
            | TrackerError::Refused { .. }
            | TrackerError::Confidential { .. }
            | TrackerError::Invalid { .. } => self.unavailable_in_a_row = 0,
        }
        self.leave_out(what, error);
        Ok(())
    }

    /// Adds what was read, whatever becomes of the rest.
    pub(crate) fn keep(&mut self, more: Vec<Dated>) {
        self.read |= !more.is_empty();
        for dated in more {
            if self.keys.insert(dated.candidate.item.key()) {
                self.candidates.push(dated);
            }
        }
    }

    /// Reports what cannot be read, and continues.
    pub(crate) fn leave_out(&mut self, what: &str, error: TrackerError) {
        self.faults.begin(what, &error);
        self.first_error.get_or_insert(error);
    }

    /// Until when the limits of a holder allow no request, as far as this scan has met them.
    pub(crate) fn limit_of(&self, holder: Holder) -> Option<DateTime<Utc>> {
        self.limited.get(&holder).copied()
    }

    /// Ends the fault of something that can be read, or is not to be read any more.
    pub(crate) fn readable(&self, what: &str) {
        self.faults.end(what);
    }

    /// Whether the server has failed so often in a row that it should be asked whether it works at all. Begins to
    /// count again.
    pub(crate) fn doubts_the_server(&mut self) -> bool {
        let doubts = self.unavailable_in_a_row >= SUSPICIOUS;
        if doubts {
            self.unavailable_in_a_row = 0;
        }
        doubts
    }

    /// The candidates; an error only if nothing could be read.
    pub(crate) fn oldest_first(mut self) -> Result<Vec<Candidate>, TrackerError> {
        match self.first_error {
            Some(error) if !self.read => return Err(error),
            Some(_) | None => {}
        }
        self.candidates.sort_by_key(|dated| dated.created_at);
        let candidates = self.candidates.into_iter();
        Ok(candidates.map(|dated| dated.candidate).collect())
    }
}

/// Whether an error may still be that of what was requested, and not of the whole server: a limit, which may be that of one
/// installation, and of a server that does not answer, so many in a row as `silent` counts.
pub(crate) fn may_concern_one(error: &TrackerError, silent: &mut u32) -> bool {
    match error {
        TrackerError::RateLimited { .. } => true,
        TrackerError::Unavailable { .. } => {
            *silent += 1;
            *silent < SUSPICIOUS
        }
        _ => false,
    }
}

/// Whether an error concerns what was requested and nothing else.
pub(crate) fn concerns_one(error: &TrackerError) -> bool {
    match error {
        TrackerError::NotFound { .. }
        | TrackerError::Forbidden { .. }
        | TrackerError::Refused { .. }
        | TrackerError::Archived { .. }
        | TrackerError::Confidential { .. }
        | TrackerError::Invalid { .. } => true,
        TrackerError::Unauthorized { .. }
        | TrackerError::RateLimited { .. }
        | TrackerError::Unavailable { .. }
        | TrackerError::NotPermitted { .. } => false,
    }
}
