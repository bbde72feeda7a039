//! The memory of projects.

use agentmine_domain::{MemoryEntry, MemoryId, MemoryRecord, MemoryStatus, ProjectName};
use async_trait::async_trait;
use uuid::Uuid;

use crate::StoreError;

/// Which records to list, in the order of their ids.
#[derive(Debug, Clone, Default)]
pub struct MemoryFilter {
    /// Only records with this status.
    pub status: Option<MemoryStatus>,
    /// Only records of this category.
    pub category: Option<String>,
    /// Only records with this tag.
    pub tag: Option<String>,
    /// Only records after this id: the last one of the page before.
    pub after: Option<MemoryId>,
    /// How many at most; 0 is all.
    pub limit: u32,
}

/// What came of adding a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryAdded {
    /// It was added.
    Added(MemoryRecord),
    /// The project has a record with this id.
    Exists(MemoryRecord),
    /// The project has as many records as it may have.
    Full,
}

/// What came of changing a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryUpdated {
    /// It was changed.
    Updated(MemoryRecord),
    /// It has another version than the change was made from.
    Conflict(MemoryRecord),
    /// The project has no such record.
    Missing,
}

/// The memory of projects. `nonce` makes a write safe to repeat: the same one finds what it wrote.
#[async_trait]
pub trait MemoryStore: Send + Sync + 'static {
    /// The records of a project.
    async fn memory(
        &self,
        project: &ProjectName,
        filter: &MemoryFilter,
    ) -> Result<Vec<MemoryRecord>, StoreError>;

    /// One record.
    async fn memory_record(
        &self,
        project: &ProjectName,
        id: &MemoryId,
    ) -> Result<Option<MemoryRecord>, StoreError>;

    /// Adds a record with version 1, unless the id is taken or the project has
    /// [`RECORDS`](agentmine_domain::memory::limits::RECORDS). Two processes that add at the same moment may exceed
    /// that number by one.
    async fn add_memory(
        &self,
        project: &ProjectName,
        entry: &MemoryEntry,
        nonce: Uuid,
    ) -> Result<MemoryAdded, StoreError>;

    /// Replaces a record of version `version`, which then has the next one.
    async fn update_memory(
        &self,
        project: &ProjectName,
        entry: &MemoryEntry,
        version: i64,
        nonce: Uuid,
    ) -> Result<MemoryUpdated, StoreError>;
}
