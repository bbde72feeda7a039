//! The state that the handlers of all streams share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::disk::Disk;
use crate::evidence::Evidence;
use crate::git::GitPlace;
use crate::git_state;
use crate::known::{Project, Settings};
use crate::last_snapshot::{LastSnapshot, TooLarge};
use crate::process::OwnChildren;
use crate::programs::Programs;

/// The state of a guest.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) root: PathBuf,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) own: OwnChildren,
    pub(crate) disk: Disk,
    pub(crate) programs: Arc<Programs>,
    pub(crate) evidence: Evidence,
    /// One snapshot or restore at a time.
    pub(crate) snapshots: tokio::sync::Mutex<SnapshotMemory>,
}

impl State {
    /// The real path for a path in a request.
    pub(crate) fn resolve(&self, path: &str) -> PathBuf {
        match Path::new(path).strip_prefix("/workspace") {
            Ok(rest) => self.root.join(rest),
            Err(_) => self.project().join(path),
        }
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.root.join("project")
    }

    /// Where git runs.
    pub(crate) fn git_place(&self) -> GitPlace<'_> {
        GitPlace {
            project: self.project(),
            env: &self.env,
            own: &self.own,
        }
    }
}

/// What the guest knows since its last snapshot. A restore forgets it.
#[derive(Debug, Default)]
pub(crate) struct SnapshotMemory {
    /// The modification time and size of the agent's index when the guest last copied it.
    pub(crate) index: Option<(SystemTime, u64)>,
    /// The last snapshot, while the guest's copy of the index still describes it.
    pub(crate) last: Option<LastSnapshot>,
    /// The last snapshot, however it was taken.
    pub(crate) newest: Option<LastSnapshot>,
    /// The settings of git at that time.
    pub(crate) settings: Option<Settings>,
    /// The project at the last snapshot, if the guest is certain of it.
    pub(crate) known: Option<Project>,
    /// The state of the repository besides files and HEAD at that time.
    pub(crate) git_state: Option<git_state::Mark>,
    /// Folders of what is installed, each with a slash at the end, with which a snapshot was too large.
    pub(crate) installed: BTreeSet<Vec<u8>>,
    /// The last snapshot that was too large.
    pub(crate) too_large: Option<TooLarge>,
    /// The last snapshot was given up, because git did not finish.
    pub(crate) was_too_slow: bool,
}
