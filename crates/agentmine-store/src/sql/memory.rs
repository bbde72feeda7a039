//! The memory of projects.

use agentmine_domain::memory::limits::RECORDS;
use agentmine_domain::{MemoryEntry, MemoryId, MemoryRecord, ProjectName};
use async_trait::async_trait;
use uuid::Uuid;

use super::arg::args;
use super::db::{Db, Dialect};
use super::failure::Failure;
use super::row::MemoryRow;
use super::store::SqlStore;
use super::tasks::row_limit;
use crate::StoreError;
use crate::memory::{MemoryAdded, MemoryFilter, MemoryStore, MemoryUpdated};

const ONE: &str = "SELECT {columns} FROM memory WHERE project = $1 AND id = $2";

#[async_trait]
impl<D: Dialect> MemoryStore for SqlStore<D> {
    async fn memory(
        &self,
        project: &ProjectName,
        filter: &MemoryFilter,
    ) -> Result<Vec<MemoryRecord>, StoreError> {
        let MemoryFilter {
            status,
            category,
            tag,
            after,
            limit,
        } = filter;
        let tag = tag.as_deref().map(pattern_of_tag);
        let after = after.as_ref().map_or("", MemoryId::as_str);
        self.select::<MemoryRow, _>(
            "memory",
            "SELECT {columns} FROM memory
             WHERE project = $1 AND id > $2 AND ($3 IS NULL OR status = $3)
               AND ($4 IS NULL OR category = $4) AND ($5 IS NULL OR tags LIKE $5 ESCAPE '!')
             ORDER BY id LIMIT $6",
            args![
                project.as_str(),
                after,
                status.map(|status| status.as_str()),
                category.as_deref(),
                tag.as_deref(),
                row_limit(*limit),
            ],
        )
        .await
    }

    async fn memory_record(
        &self,
        project: &ProjectName,
        id: &MemoryId,
    ) -> Result<Option<MemoryRecord>, StoreError> {
        let mut found = self
            .select::<MemoryRow, _>("memory_record", ONE, args![project.as_str(), id.as_str()])
            .await?;
        Ok(found.pop())
    }

    async fn add_memory(
        &self,
        project: &ProjectName,
        entry: &MemoryEntry,
        nonce: Uuid,
    ) -> Result<MemoryAdded, StoreError> {
        let tags = serde_json::Value::from(entry.tags.as_slice()).to_string();
        let expires = entry.expires_at.map(|at| at.timestamp_millis());
        self.run("add_memory", || async {
            let mut db = self.connection().await?;
            let added = db
                .execute(
                    "INSERT INTO memory (project, id, category, title, summary, content, status, tags, source,
                         confidence, expires_at, nonce, created_at, updated_at)
                     SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, {now}, {now}
                     WHERE (SELECT count(*) FROM memory WHERE project = $1) < $13
                     ON CONFLICT DO NOTHING",
                    args![
                        project.as_str(),
                        entry.id.as_str(),
                        &entry.category,
                        &entry.title,
                        &entry.summary,
                        &entry.content,
                        entry.status.as_str(),
                        &tags,
                        entry.source.as_str(),
                        entry.confidence.as_str(),
                        expires,
                        nonce,
                        RECORDS,
                    ],
                )
                .await?;
            let (project, id) = (project.as_str(), entry.id.as_str());
            match current(&mut db, project, id).await? {
                None => Ok(MemoryAdded::Full),
                Some(record) if added > 0 || is_own(&mut db, project, id, nonce).await? => {
                    Ok(MemoryAdded::Added(record))
                }
                Some(record) => Ok(MemoryAdded::Exists(record)),
            }
        })
        .await
    }

    async fn update_memory(
        &self,
        project: &ProjectName,
        entry: &MemoryEntry,
        version: i64,
        nonce: Uuid,
    ) -> Result<MemoryUpdated, StoreError> {
        let tags = serde_json::Value::from(entry.tags.as_slice()).to_string();
        let expires = entry.expires_at.map(|at| at.timestamp_millis());
        self.run("update_memory", || async {
            let mut db = self.connection().await?;
            let updated: Option<MemoryRow> = db
                .row(
                    "UPDATE memory SET category = $3, title = $4, summary = $5, content = $6, status = $7,
                         tags = $8, source = $9, confidence = $10, expires_at = $11, nonce = $12,
                         version = $13 + 1, updated_at = {now}
                     WHERE project = $1 AND id = $2
                       AND (version = $13 OR (version = $13 + 1 AND nonce = $12))
                     RETURNING {columns}",
                    args![
                        project.as_str(),
                        entry.id.as_str(),
                        &entry.category,
                        &entry.title,
                        &entry.summary,
                        &entry.content,
                        entry.status.as_str(),
                        &tags,
                        entry.source.as_str(),
                        entry.confidence.as_str(),
                        expires,
                        nonce,
                        version,
                    ],
                )
                .await?;
            if let Some(row) = updated {
                return Ok(MemoryUpdated::Updated(row.try_into()?));
            }
            let current = current(&mut db, project.as_str(), entry.id.as_str()).await?;
            Ok(current.map_or(MemoryUpdated::Missing, MemoryUpdated::Conflict))
        })
        .await
    }
}

async fn current<D: Dialect>(
    db: &mut Db<D>,
    project: &str,
    id: &str,
) -> Result<Option<MemoryRecord>, Failure> {
    let row: Option<MemoryRow> = db.row(ONE, args![project, id]).await?;
    row.map(MemoryRecord::try_from).transpose()
}

/// Whether the newest write of the record has this nonce.
async fn is_own<D: Dialect>(
    db: &mut Db<D>,
    project: &str,
    id: &str,
    nonce: Uuid,
) -> Result<bool, Failure> {
    let own = "SELECT count(*) FROM memory WHERE project = $1 AND id = $2 AND nonce = $3";
    let found: Option<i64> = db.scalar(own, args![project, id, nonce]).await?;
    Ok(found.is_some_and(|count| count > 0))
}

/// What the JSON array of a record with this tag is like.
fn pattern_of_tag(tag: &str) -> String {
    let quoted = serde_json::Value::from(tag).to_string();
    let escaped: String = quoted
        .chars()
        .flat_map(|c| {
            let escape = matches!(c, '%' | '_' | '!').then_some('!');
            escape.into_iter().chain([c])
        })
        .collect();
    format!("%{escaped}%")
}
