//! The dashboard: one issue of a repository that shows what AgentMine works on there, what waits, and why.
//!
//! Guaranteed: of all producers one writes at a time, the holder of the record; the issue is opened once, since it is looked
//! for by its marker and its author before; it is never written more often than every [`APART`], nor if it would say the same.
//! A person who closes, locks, moves, hides or deletes it turns the dashboard off: it is not written any more, and no other
//! one is opened.

mod boxes;
mod text;

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{ItemKind, ItemRef, RepositoryRef};
use agentmine_runtime::permit::{BootInstant, Permit};
use agentmine_store::{Dashboard, ShownDashboard, Store};
use agentmine_trackers::{Item, NewIssue, OurIssue, Tracker, TrackerError};
use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::EffectError;

pub use boxes::{BoxAction, BoxSubject, DashboardBox};
pub use text::{DASHBOARD_ENTRIES, DashboardEntry, DashboardView, dashboard_text};

/// The least time between two writes.
const APART: Duration = Duration::from_secs(30);
/// With this begins the text; the number of the text follows.
const MARKER: &str = "<!-- agentmine:dashboard ";
const TITLE: &str = "AgentMine dashboard";

/// The dashboard of one repository, held by this process.
pub struct DashboardIssue {
    store: Arc<dyn Store>,
    tracker: Arc<dyn Tracker>,
    record: Dashboard,
    holder: Uuid,
    permit: Permit,
}

/// How the issue is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DashboardState {
    /// It was not opened yet, as far as is known.
    Absent,
    /// It shows a text.
    Open(Box<Item>),
    /// A person turned the dashboard off.
    Withdrawn,
}

/// When a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DashboardRewrite {
    /// If it says something else than the one that was written last.
    IfChanged,
    /// Whatever it says: boxes are ticked.
    Always,
}

/// Whether an item is a dashboard, by the records as they are after the item was listed.
///
/// # Errors
/// Returns errors of the tracker, which is asked about an issue that may have been opened a moment ago: its number is recorded
/// after that.
pub async fn is_dashboard(
    records: &[Dashboard],
    tracker: &dyn Tracker,
    item: &ItemRef,
) -> Result<bool, TrackerError> {
    let of_its_repository = |record: &&Dashboard| record.item().repository() == item.repository();
    let Some(record) = records.iter().find(of_its_repository) else {
        return Ok(false);
    };
    if record.number.is_some() || item.kind != ItemKind::Issue {
        return Ok(record.is(item));
    }
    let found = tracker.item(item).await?;
    let login = tracker.login().await?;
    Ok(found.body.contains(MARKER) && found.author.eq_ignore_ascii_case(&login))
}

impl DashboardIssue {
    /// The dashboard of a repository, for `time`. `None`: another process holds it.
    ///
    /// # Errors
    /// Returns errors of the store.
    pub async fn claim(
        store: Arc<dyn Store>,
        tracker: Arc<dyn Tracker>,
        repository: &RepositoryRef,
        time: Duration,
    ) -> Result<Option<Self>, EffectError> {
        let holder = Uuid::new_v4();
        let permit = Permit::of(BootInstant::now(), time);
        let record = store.claim_dashboard(repository, holder, time).await?;
        Ok(record.map(|record| Self {
            store,
            tracker,
            record,
            holder,
            permit,
        }))
    }

    /// Lets another process have it.
    ///
    /// # Errors
    /// Returns errors of the store.
    pub async fn release(self) -> Result<(), EffectError> {
        let repository = &self.record.repository;
        let released = self.store.release_dashboard(repository, self.holder);
        Ok(released.await?)
    }

    /// The issue; its number is 0 until it is known.
    #[must_use]
    pub fn item(&self) -> ItemRef {
        self.record.item()
    }

    /// Reads the issue.
    ///
    /// # Errors
    /// Returns errors of the tracker.
    pub async fn read(&self) -> Result<DashboardState, EffectError> {
        if self.record.number.is_none() {
            return Ok(DashboardState::Absent);
        }
        match self.tracker.item(&self.item()).await {
            Ok(item) if item.closed().is_some() => Ok(DashboardState::Withdrawn),
            Ok(item) => Ok(DashboardState::Open(Box::new(item))),
            // It was deleted, or is confidential by now.
            Err(
                TrackerError::NotFound { .. }
                | TrackerError::Refused { .. }
                | TrackerError::Confidential { .. },
            ) => Ok(DashboardState::Withdrawn),
            Err(error) => Err(error.into()),
        }
    }

    /// The ticked boxes of the issue as it was read, and the number of the text that they are in.
    #[must_use]
    pub fn ticked(&self, item: &Item) -> (i64, Vec<DashboardBox>) {
        let number = item.body.split_once(MARKER).and_then(|(_, rest)| {
            let (number, _) = rest.split_once(" -->")?;
            number.parse().ok()
        });
        (number.unwrap_or_default(), boxes::ticked(&item.body))
    }

    /// When the text was written that it shows, by the tracker's clock.
    #[must_use]
    pub fn shown_at(&self) -> Option<DateTime<Utc>> {
        self.record.shown_at
    }

    /// What became of the latest ticks, Markdown; empty if there were none.
    #[must_use]
    pub fn notice(&self) -> &str {
        &self.record.notice
    }

    /// Records what became of ticks, for the next text.
    ///
    /// # Errors
    /// Returns errors of the store.
    pub async fn note(&mut self, notice: &str) -> Result<(), EffectError> {
        let repository = &self.record.repository;
        let noted = self
            .store
            .note_on_dashboard(repository, self.holder, notice);
        noted.await?;
        notice.clone_into(&mut self.record.notice);
        Ok(())
    }

    /// Begins to write a text, unless nothing is to be written or the one before it was written just now. Returns its number.
    ///
    /// # Errors
    /// Returns errors of the store.
    pub async fn begin(
        &self,
        text: &str,
        when: DashboardRewrite,
    ) -> Result<Option<i64>, EffectError> {
        let is_shown = self.record.number.is_some() && self.record.body == text;
        if is_shown && when == DashboardRewrite::IfChanged {
            return Ok(None);
        }
        let repository = &self.record.repository;
        let begun = self
            .store
            .begin_dashboard_text(repository, self.holder, APART);
        Ok(begun.await?)
    }

    /// Has the issue show a text of [`dashboard_text`] that was begun; opens it if there is none.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn show(&mut self, revision: i64, text: &str) -> Result<(), EffectError> {
        let repository = self.record.repository.clone();
        let body = format!("{MARKER}{revision} -->\n{text}");
        let at = match self.record.number {
            Some(_) => self.edit(&body).await?,
            None => match self.open(&body).await? {
                Some(at) => at,
                None => return Ok(()),
            },
        };
        let shown = ShownDashboard {
            number: self.record.number.unwrap_or_default(),
            at,
            body: text,
            notice: &self.record.notice,
        };
        let store = &self.store;
        store
            .dashboard_shows(&repository, self.holder, &shown)
            .await?;
        text.clone_into(&mut self.record.body);
        self.record.shown_at = Some(at);
        Ok(())
    }

    async fn edit(&self, body: &str) -> Result<DateTime<Utc>, EffectError> {
        let item = self.item();
        let edited = self.tracker.edit_issue(&item, body, &self.permit);
        Ok(edited.await?)
    }

    /// `None`: it was opened before, and a person turned the dashboard off.
    async fn open(&mut self, body: &str) -> Result<Option<DateTime<Utc>>, EffectError> {
        let new = NewIssue {
            title: TITLE,
            body,
            marker: MARKER,
        };
        let item = self.item();
        let ours = self.tracker.issue_of_ours(&item, &new, &self.permit);
        let (number, at) = match ours.await? {
            OurIssue::Found(number) => (number, None),
            OurIssue::Opened { number, at } => (number, Some(at)),
        };
        self.record.number = Some(number);
        if at.is_some() {
            tracing::info!(item = %self.item(), "the dashboard was opened");
            return Ok(at);
        }
        let (store, repository) = (&self.store, &self.record.repository);
        store
            .found_dashboard(repository, self.holder, number)
            .await?;
        match self.read().await? {
            DashboardState::Open(_) => Ok(Some(self.edit(body).await?)),
            DashboardState::Absent | DashboardState::Withdrawn => Ok(None),
        }
    }
}
