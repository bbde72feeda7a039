//! What is recorded beside tasks: memory, requests that are held, rounds, dashboards.

use agentmine_domain::{ItemRef, MemoryEntry, MemoryFault, MemoryRecord, RepositoryRef, Round};
use chrono::{TimeZone as _, Utc};

use super::column::{Id, Timestamp, unsigned};
use crate::sql::failure::Failure;
use crate::{Dashboard, Held, HeldRequest};

row!(MemoryRow {
    id: String,
    category: String,
    title: String,
    summary: String,
    content: String,
    status: String,
    tags: String,
    source: String,
    confidence: String,
    expires_at: Option<i64>,
    version: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
});

impl TryFrom<MemoryRow> for MemoryRecord {
    type Error = Failure;

    fn try_from(row: MemoryRow) -> Result<Self, Failure> {
        let id = row.id.parse().map_err(|fault: MemoryFault| {
            Failure::Fault(format!("a record of the memory has a wrong {fault}"))
        })?;
        let expires_at = row.expires_at.map(|millis| {
            let time = Utc.timestamp_millis_opt(millis).single();
            time.ok_or_else(|| Failure::Fault(format!("{millis} is no time")))
        });
        Ok(Self {
            entry: MemoryEntry {
                id,
                category: row.category,
                title: row.title,
                summary: row.summary,
                content: row.content,
                status: row.status.parse()?,
                tags: serde_json::from_str(&row.tags)?,
                source: row.source.parse()?,
                confidence: row.confidence.parse()?,
                expires_at: expires_at.transpose()?,
            },
            version: row.version,
            created_at: row.created_at.0,
            updated_at: row.updated_at.0,
        })
    }
}

row!(HeldRow {
    tracker: String,
    host: String,
    repo_id: String,
    repo_path: String,
    item_kind: String,
    item_number: i64,
    trigger_event: String,
    title: String,
    url: String,
    code: String,
    message: String,
    held_since: Timestamp,
});

impl TryFrom<HeldRow> for Held {
    type Error = Failure;

    fn try_from(row: HeldRow) -> Result<Self, Failure> {
        Ok(Self {
            request: HeldRequest {
                item: ItemRef {
                    tracker: row.tracker.parse()?,
                    host: row.host,
                    repo_id: row.repo_id,
                    repo_path: row.repo_path,
                    kind: row.item_kind.parse()?,
                    number: unsigned(row.item_number)?,
                },
                trigger: row.trigger_event,
                title: row.title,
                url: row.url,
                code: row.code,
                message: row.message,
            },
            since: row.held_since.0,
        })
    }
}

row!(
    /// A round; the caller knows its pull request.
    RoundRow {
        number: i64,
        origin: Id,
        head: String,
        cause: String,
        result: Option<String>,
    }
);

impl RoundRow {
    pub(in crate::sql) fn of(self, pull: &ItemRef) -> Result<Round, Failure> {
        let result = self.result.as_deref().map(serde_json::from_str);
        Ok(Round {
            pull: pull.clone(),
            number: u32::try_from(self.number)
                .map_err(|_| Failure::Fault("the number of a round".into()))?,
            origin: self.origin.into(),
            head: self.head,
            cause: serde_json::from_str(&self.cause)?,
            result: result.transpose()?,
        })
    }
}

row!(DashboardRow {
    tracker: String,
    host: String,
    repo_id: String,
    repo_path: String,
    number: Option<i64>,
    revision: i64,
    shown_at: Option<i64>,
    body: String,
    notice: String,
});

impl TryFrom<DashboardRow> for Dashboard {
    type Error = Failure;

    fn try_from(row: DashboardRow) -> Result<Self, Failure> {
        let shown_at = row
            .shown_at
            .map(|millis| Utc.timestamp_millis_opt(millis).single());
        Ok(Self {
            repository: RepositoryRef {
                tracker: row.tracker.parse()?,
                host: row.host,
                repo_id: row.repo_id,
                repo_path: row.repo_path,
            },
            number: row.number.map(unsigned).transpose()?,
            revision: row.revision,
            shown_at: shown_at.flatten(),
            body: row.body,
            notice: row.notice,
        })
    }
}
