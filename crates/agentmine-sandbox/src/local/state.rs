//! The folder of each jail: its workspace, and a record for the process that removes it.
//!
//! Each jail has its own folder, which no other jail of the same name ever gets: `NAME~RANDOM`. So a worker
//! that was stalled can neither remove nor change the jail of a later lease. Earlier versions named the folder
//! `NAME`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use agentmine_domain::{Epoch, TaskId};
use agentmine_process::{Mark, Process};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::cgroup;
use super::process::{kill_marked, kill_tree};
use super::programs;
use crate::assets::GUEST;
use crate::error::SandboxError;
use crate::name::{PREFIX, is_spare};
use crate::volume;

const RECORD: &str = "sandbox.json";
/// The folder of a jail's files, in the jail's own.
pub(crate) const WORKSPACE: &str = "workspace";
const TRIES: u32 = 3;
/// How long one try to delete a folder may take. The next try, or the next sweep, continues where it ended.
const REMOVAL: Duration = Duration::from_secs(120);
/// Separates a jail's name from what makes its folder unique.
const UNIQUE: char = '~';
/// The variable that marks the processes of a jail until its guest begins.
const MARK: &str = "AGENTMINE_SANDBOX";
/// How often the removal of a cgroup is tried, and the pause after each try: its processes end a little later
/// than they are killed.
const GROUP_TRIES: u32 = 100;
const GROUP_PAUSE: Duration = Duration::from_millis(5);

/// The record of a jail, next to its workspace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The name under which a task took it, if it was started for none. Its folder keeps the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) task: Option<TaskId>,
    pub(crate) epoch: Option<Epoch>,
    pub(crate) created_at: DateTime<Utc>,
    /// The process whose end ends the jail.
    pub(crate) process: Option<Process>,
    /// The folders of its cgroups.
    #[serde(default)]
    pub(crate) groups: Vec<PathBuf>,
}

/// A jail's folder, and the record in it.
pub(crate) struct Found {
    /// The folder's own name, which distinguishes this jail from another of the same name.
    pub(crate) instance: String,
    pub(crate) record: Record,
}

impl Found {
    /// The jail's name.
    pub(crate) fn name(&self) -> &str {
        match &self.record.name {
            Some(name) => name,
            None => self.first_name(),
        }
    }

    fn first_name(&self) -> &str {
        let instance = self.instance.as_str();
        instance
            .split_once(UNIQUE)
            .map_or(instance, |(name, _)| name)
    }

    /// Whether it belongs to no task.
    pub(crate) fn is_spare(&self) -> bool {
        self.record.name.is_none() && is_spare(self.first_name())
    }
}

/// The folder's own name.
pub(crate) fn instance_of(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// What marks the processes of the jail in this folder.
pub(crate) fn mark(folder: &Path) -> Mark {
    Mark::of(MARK, instance_of(folder))
}

impl Record {
    /// Replaces the record as a whole: another process may read it at any moment.
    pub(crate) fn save(&self, folder: &Path) -> Result<(), SandboxError> {
        let part = folder.join(format!("{RECORD}.part"));
        let saved = serde_json::to_vec(self)
            .map_err(io::Error::from)
            .and_then(|json| std::fs::write(&part, json))
            .and_then(|()| std::fs::rename(&part, folder.join(RECORD)));
        saved.map_err(|err| refused(folder, &err))
    }
}

/// Creates the folder of all jails, for this user only, and returns its real path.
pub(crate) fn prepare(state_dir: &Path) -> Result<PathBuf, SandboxError> {
    let made = agentmine_runtime::own_folder::create(state_dir);
    made.and_then(|()| state_dir.canonicalize())
        .map_err(|err| refused(state_dir, &err))
}

/// Removes the jails of this name that an earlier lease, or an earlier try of this one, left behind.
///
/// # Errors
/// When a later lease has a jail of this name.
pub(crate) async fn make_way(
    state_dir: &Path,
    name: &str,
    epoch: Epoch,
) -> Result<(), SandboxError> {
    let found = list(state_dir)?;
    let namesakes = || found.iter().filter(|found| found.name() == name);
    if namesakes().any(|found| found.record.epoch.is_some_and(|of| of > epoch)) {
        return Err(SandboxError::superseded(name));
    }
    // One without an epoch is being made at this moment, or left to the sweep.
    for found in namesakes().filter(|found| found.record.epoch.is_some()) {
        // Its processes have ended, and its folder is in nobody's way: what stays is left to the sweep.
        if let Err(error) = remove(&state_dir.join(&found.instance)).await {
            tracing::warn!(sandbox = name, %error, "an earlier jail was not removed");
        }
    }
    Ok(())
}

/// Creates the folders of a jail, for a task under an epoch or for none.
pub(crate) fn create(
    state_dir: &Path,
    name: &str,
    owner: Option<(TaskId, Epoch)>,
) -> Result<(PathBuf, Record), SandboxError> {
    let unique = uuid::Uuid::new_v4().simple();
    let folder = state_dir.join(format!("{name}{UNIQUE}{unique}"));
    create_folders(&folder)?;
    let record = Record {
        name: None,
        task: owner.map(|(task, _)| task),
        epoch: owner.map(|(_, epoch)| epoch),
        created_at: Utc::now(),
        process: None,
        groups: Vec::new(),
    };
    record.save(&folder)?;
    Ok((folder, record))
}

/// Creates the folders of a workspace, on whatever is mounted there.
pub(crate) fn create_folders(folder: &Path) -> Result<(), SandboxError> {
    for sub in ["project", "tmp/home"] {
        let path = folder.join(WORKSPACE).join(sub);
        std::fs::create_dir_all(path).map_err(|err| refused(folder, &err))?;
    }
    Ok(())
}

/// Every jail under the folder. One whose record cannot be read counts as old as its folder.
pub(crate) fn list(state_dir: &Path) -> Result<Vec<Found>, SandboxError> {
    let entries = std::fs::read_dir(state_dir)
        .map_err(|err| SandboxError::Unavailable(format!("{}: {err}", state_dir.display())))?;
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Ok(instance) = entry.file_name().into_string() else {
            continue;
        };
        if !instance.starts_with(PREFIX) {
            continue;
        }
        let record = read(&entry.path()).unwrap_or_else(|| {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            Record {
                name: None,
                task: None,
                epoch: None,
                created_at: modified.map_or_else(|_| Utc::now(), DateTime::from),
                process: None,
                groups: Vec::new(),
            }
        });
        found.push(Found { instance, record });
    }
    Ok(found)
}

/// Ends the processes of the jail with this folder, and deletes the folder. It is no error if there is none.
pub(crate) async fn remove(folder: &Path) -> Result<(), SandboxError> {
    if !folder.exists() {
        return Ok(());
    }
    let mut last = None;
    for attempt in 0..TRIES {
        tokio::time::sleep(Duration::from_millis(200) * attempt).await;
        if let Some(record) = read(folder) {
            if let Some(process) = record.process {
                kill_tree(process).await;
            }
            remove_groups(&record.groups).await;
        }
        // A worker that was killed while it started a jail left processes that are not in the record.
        kill_marked(&mark(folder)).await;
        // What was on its own file system goes with it.
        volume::unmount(&folder.join(WORKSPACE));
        match delete(folder).await {
            Ok(()) => return Ok(()),
            Err(err) => last = Some(err),
        }
    }
    metrics::counter!("agentmine_sandbox_removal_failures_total", "backend" => "local")
        .increment(1);
    let why = last.map_or_else(String::new, |err| err.to_string());
    Err(SandboxError::Unavailable(format!(
        "{} could not be removed: {why}",
        folder.display()
    )))
}

/// Removes a jail's cgroups; what still runs in them is killed.
async fn remove_groups(groups: &[PathBuf]) {
    for _ in 0..GROUP_TRIES {
        cgroup::remove(groups);
        if !cgroup::is_left(groups) {
            return;
        }
        tokio::time::sleep(GROUP_PAUSE).await;
    }
}

fn read(folder: &Path) -> Option<Record> {
    serde_json::from_slice(&std::fs::read(folder.join(RECORD)).ok()?).ok()
}

/// Deletes the workspace first: after a failure the record is still there for the next try. What a sandbox left
/// may be anything, so a separate process deletes it.
async fn delete(folder: &Path) -> Result<(), SandboxError> {
    let state_dir = folder.parent().unwrap_or(folder);
    let guest = programs::install(state_dir)?.join(GUEST);
    let mut remove = tokio::process::Command::new(&guest);
    // The record goes last.
    remove.arg("remove").arg(folder.join(WORKSPACE)).arg(folder);
    remove.env_clear().stdin(Stdio::null()).kill_on_drop(true);
    // Ctrl-C in a terminal ends the worker, which still removes its sandboxes.
    remove.process_group(0);
    let removed = tokio::time::timeout(REMOVAL, remove.output()).await;
    let why = match removed {
        Ok(Ok(done)) if done.status.success() => return Ok(()),
        Ok(Ok(done)) => {
            let stderr = String::from_utf8_lossy(&done.stderr);
            format!("{}: {:.400}", done.status, stderr.trim())
        }
        Ok(Err(err)) => format!("{}: {err}", guest.display()),
        Err(_) => format!("it took longer than {} s", REMOVAL.as_secs()),
    };
    Err(SandboxError::Unavailable(why))
}

fn refused(path: &Path, err: &io::Error) -> SandboxError {
    SandboxError::of_machine(&path.display(), err)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn a_folder_without_rights_is_deleted_too() {
        let state = tempfile::tempdir().unwrap();
        let name = format!("{PREFIX}x");
        let deep = state.path().join(&name).join("workspace/a/b");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("file"), "x").unwrap();
        for folder in [&deep, &deep.parent().unwrap().to_owned()] {
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o500)).unwrap();
        }
        let folder = state.path().join(&name);
        remove(&folder).await.unwrap();
        assert!(!folder.exists());
        remove(&folder).await.unwrap();
    }
}
