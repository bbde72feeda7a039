//! The memory as files in a repository, for review in git.
//!
//! A file carries the version of the record that it was exported from. An import changes a record only if it still has
//! that version, an export replaces a file only if it is not newer than the record and not edited since; what is left is
//! a conflict, which a person decides with [`Overwrite::Yes`]. A file without a version can only add a record. Nothing is
//! imported while a file has a fault. No file is removed.

use std::path::Path;

use agentmine_domain::{MemoryId, MemoryRecord, MemoryStatus, ProjectName};
use agentmine_store::{MemoryAdded, MemoryFilter};
use serde::Serialize;
use uuid::Uuid;

use super::file::{MAX_FILE, MemoryFile, decode, encode};
use super::records::{ProjectMemory, full, replace, secrets_in};
use crate::ControlError;
use crate::folder::{Entry, Folder, Kind};

/// The folder of the files, below the top of the project.
pub const MEMORY_FOLDER: &str = ".agentmine/memory";

const PATH: [&str; 2] = [".agentmine", "memory"];
const MARKDOWN: Kind = Kind {
    endings: &[".md"],
    max_bytes: MAX_FILE,
};

/// Whether a side of a conflict is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    /// The target is replaced.
    Yes,
    /// The target stays.
    No,
}

/// What became of one record or file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Transfer {
    /// The record.
    pub id: MemoryId,
    /// The file's name.
    pub file: String,
    /// What became of it.
    pub state: TransferState,
    /// The version of the record.
    pub version: i64,
    /// Its status.
    pub status: MemoryStatus,
}

/// What became of one record or file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferState {
    /// The target did not exist.
    Added,
    /// The target was replaced.
    Updated,
    /// Both are the same.
    Unchanged,
    /// Both sides were changed; the target stays.
    Conflict,
}

/// What an export did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Exported {
    /// The project.
    pub project: ProjectName,
    /// Each record.
    pub files: Vec<Transfer>,
}

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Imported {
    /// The project.
    pub project: ProjectName,
    /// Each file.
    pub files: Vec<Transfer>,
}

/// Writes each record to its own file below `top`.
///
/// # Errors
/// [`ControlError::Git`] if the folder or a file of it cannot be written, or is a link.
pub async fn export(
    memory: ProjectMemory<'_>,
    top: &Path,
    overwrite: Overwrite,
) -> Result<Exported, ControlError> {
    let all = MemoryFilter::default();
    let records = memory.store.memory(memory.project, &all).await?;
    let folder = Folder::create(top, &PATH).map_err(|error| refused(&error.to_string()))?;
    let mut files = Vec::with_capacity(records.len());
    for record in &records {
        let file = format!("{}.md", record.entry.id);
        let state = export_one(&folder, &file, record, overwrite)?;
        files.push(transfer(record, file, state));
    }
    Ok(Exported {
        project: memory.project.clone(),
        files,
    })
}

fn export_one(
    folder: &Folder,
    file: &str,
    record: &MemoryRecord,
    overwrite: Overwrite,
) -> Result<TransferState, ControlError> {
    let text = encode(record);
    let state = match folder.has(file) {
        false => TransferState::Added,
        true => match folder.read(file, MAX_FILE) {
            Ok(there) if there == text => return Ok(TransferState::Unchanged),
            there => {
                let there = there.ok().and_then(|text| decode(file, &text).ok());
                let is_older = there.is_some_and(|there| is_older(&there, record));
                match is_older || overwrite == Overwrite::Yes {
                    true => TransferState::Updated,
                    false => return Ok(TransferState::Conflict),
                }
            }
        },
    };
    let written = folder.write(file, &text);
    written.map_err(|error| refused(&format!("{file}: {error}")))?;
    Ok(state)
}

/// Whether a file holds an older version of the record as it was exported, or the same fields in another form.
fn is_older(file: &MemoryFile, record: &MemoryRecord) -> bool {
    let is_of_older = file.version.is_some_and(|version| version < record.version);
    (is_of_older && file.is_as_exported) || file.entry == record.entry
}

/// Reads the files below `top` into the memory.
///
/// # Errors
/// [`ControlError::Validation`] with every fault of every file, and nothing is imported;
/// [`ControlError::Git`] if the folder cannot be read or is a link, or if it does not exist.
pub async fn import(
    memory: ProjectMemory<'_>,
    top: &Path,
    overwrite: Overwrite,
) -> Result<Imported, ControlError> {
    let folder = Folder::open(top, &PATH).map_err(|error| refused(&error.to_string()))?;
    let Some(folder) = folder else {
        let top = top.display();
        return Err(ControlError::Git(format!(
            "{top} has no folder {MEMORY_FOLDER}"
        )));
    };
    let found = folder.files(MARKDOWN);
    let found = found.map_err(|error| refused(&error.to_string()))?;
    let mut faults = Vec::new();
    let mut read = Vec::new();
    for entry in found {
        match parse(memory, entry) {
            Ok(file) => read.push(file),
            Err(of_file) => faults.extend(of_file),
        }
    }
    if !faults.is_empty() {
        faults.truncate(100);
        return Err(ControlError::Validation(faults.join("\n")));
    }
    let mut files = Vec::with_capacity(read.len());
    for (name, file) in read {
        files.push(import_one(memory, name, file, overwrite).await?);
    }
    Ok(Imported {
        project: memory.project.clone(),
        files,
    })
}

/// A file that fits, or all its faults.
fn parse(memory: ProjectMemory<'_>, entry: Entry) -> Result<(String, MemoryFile), Vec<String>> {
    let Entry { name, text } = entry;
    let shown = format!("{MEMORY_FOLDER}/{name}");
    let text = text.map_err(|why| vec![format!("{shown}: {why}")])?;
    let file = decode(&shown, &text).map_err(|faults| {
        let lines = faults.iter().map(ToString::to_string);
        lines.collect::<Vec<_>>()
    })?;
    let mut faults = secrets_in(&file.entry, memory.secrets);
    if name != format!("{}.md", file.entry.id) {
        faults.push(format!(
            "id: {:?} in a file of another name, expected the file {}.md",
            file.entry.id.as_str(),
            file.entry.id
        ));
    }
    match faults.is_empty() {
        true => Ok((name, file)),
        false => Err(faults
            .into_iter()
            .map(|fault| format!("{shown}: {fault}"))
            .collect()),
    }
}

async fn import_one(
    memory: ProjectMemory<'_>,
    name: String,
    file: MemoryFile,
    overwrite: Overwrite,
) -> Result<Transfer, ControlError> {
    let MemoryFile {
        entry,
        version,
        is_as_exported: _,
    } = file;
    let adding = memory
        .store
        .add_memory(memory.project, &entry, Uuid::new_v4());
    let current = match adding.await? {
        MemoryAdded::Added(record) => return Ok(transfer(&record, name, TransferState::Added)),
        MemoryAdded::Full => return Err(full()),
        MemoryAdded::Exists(current) => current,
    };
    if current.entry == entry {
        return Ok(transfer(&current, name, TransferState::Unchanged));
    }
    if version != Some(current.version) && overwrite == Overwrite::No {
        return Ok(transfer(&current, name, TransferState::Conflict));
    }
    match replace(memory, &entry, current.version).await {
        Ok(record) => Ok(transfer(&record, name, TransferState::Updated)),
        // Somebody changed it a moment ago.
        Err(ControlError::MemoryConflict { .. }) => {
            Ok(transfer(&current, name, TransferState::Conflict))
        }
        Err(error) => Err(error),
    }
}

fn transfer(record: &MemoryRecord, file: String, state: TransferState) -> Transfer {
    Transfer {
        id: record.entry.id.clone(),
        file,
        state,
        version: record.version,
        status: record.entry.status,
    }
}

fn refused(why: &str) -> ControlError {
    ControlError::Git(format!("{MEMORY_FOLDER}: {why}"))
}
