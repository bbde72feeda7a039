//! The trackers of the fleet, and what people ask them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agentmine_domain::{ItemRef, RepositoryRef, Task};
use agentmine_runtime::config::Config;
use agentmine_trackers::{Tracker, TrackerError, each_from_config, for_task};

use crate::{ControlError, input};

/// The longest wait for the answers of trackers to one question of a person.
const PATIENCE: Duration = Duration::from_secs(15);

/// The fleet as a configuration describes it. A clone is the same fleet.
#[derive(Clone)]
pub struct Fleet {
    config: Arc<Config>,
    trackers: Arc<OnceLock<Configured>>,
}

/// The trackers, as far as they can work.
#[derive(Default)]
struct Configured {
    trackers: Vec<Arc<dyn Tracker>>,
    /// Why others cannot.
    faults: Vec<TrackerError>,
}

/// What trackers know of an item that a person named.
pub(crate) enum Found {
    /// The item, and its tracker.
    Item(Arc<dyn Tracker>, ItemRef),
    /// No configured tracker has items of such a name.
    Foreign,
    /// No tracker could say: why.
    Failed(TrackerError),
    /// None answered in time.
    Late,
}

impl Fleet {
    /// The fleet of this configuration. Trackers are made when they are first asked, so that commands that ask none do
    /// not wait for it.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config: Arc::new(config),
            trackers: Arc::default(),
        }
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    fn configured(&self) -> &Configured {
        self.trackers.get_or_init(|| {
            let mut configured = Configured::default();
            for tracker in each_from_config(&self.config.trackers) {
                match tracker {
                    Ok(tracker) => configured.trackers.push(tracker),
                    Err(fault) => configured.faults.push(fault),
                }
            }
            configured
        })
    }

    /// Why configured trackers cannot work.
    pub(crate) fn faults(&self) -> &[TrackerError] {
        &self.configured().faults
    }

    /// What a task is worked on through, if its tracker is configured here.
    pub(crate) fn tracker_of(&self, task: &Task) -> Option<Arc<dyn Tracker>> {
        let mut trackers = self.configured().trackers.iter();
        let tracker = trackers.find(|tracker| tracker.serves(&task.item))?;
        Some(for_task(Arc::clone(tracker), task))
    }

    /// The item that a person names, by the first tracker that knows it.
    pub(crate) async fn find(&self, name: &str) -> Found {
        let found = in_time(self.find_anywhere(name)).await;
        found.unwrap_or(Found::Late)
    }

    async fn find_anywhere(&self, name: &str) -> Found {
        let mut first = None;
        for tracker in &self.configured().trackers {
            match tracker.find(name).await {
                Ok(Some(item)) => return Found::Item(Arc::clone(tracker), item),
                Ok(None) => {}
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        first.map_or(Found::Foreign, Found::Failed)
    }

    /// The repository that a person names, if a scan reads it, and its tracker.
    pub(crate) async fn repository(
        &self,
        name: &str,
    ) -> Result<(Arc<dyn Tracker>, RepositoryRef), ControlError> {
        let mut first = None;
        for tracker in &self.configured().trackers {
            let found = in_time(tracker.find_repository(name)).await;
            match found {
                Some(Ok(Some(found))) if tracker.scans(&found.repo_path) || tracker.searches() => {
                    return Ok((Arc::clone(tracker), found));
                }
                Some(Ok(Some(found))) => drop(first.get_or_insert_with(|| unscanned(&found))),
                Some(Ok(None)) => {}
                Some(Err(error)) => drop(first.get_or_insert_with(|| refusal(&error))),
                None => drop(first.get_or_insert_with(|| {
                    ControlError::Config(format!("{} did not answer in time", tracker.kind()))
                })),
            }
        }
        first.map_or_else(|| Err(self.no_repository(name)), Err)
    }

    fn no_repository(&self, name: &str) -> ControlError {
        let shown = input::shown(name);
        match self.faults().first() {
            Some(fault) => ControlError::Config(fault.to_string()),
            None => ControlError::Config(format!(
                "no configured tracker has a repository {shown:?}"
            ))
            .hint("name one that the configuration scans, as owner/name; `--config` names the fleet's configuration"),
        }
    }

    /// Gives up what trackers were asked with, as minted tokens.
    pub async fn close(&self) {
        for tracker in self.trackers.get().iter().flat_map(|it| &it.trackers) {
            tracker.close().await;
        }
    }
}

fn unscanned(found: &RepositoryRef) -> ControlError {
    let RepositoryRef {
        tracker, repo_path, ..
    } = found;
    ControlError::Config(format!(
        "{repo_path} is not a repository that trackers.{tracker} scans"
    ))
    .hint("add it to the configuration of the fleet")
}

fn refusal(error: &TrackerError) -> ControlError {
    match error {
        TrackerError::NotFound { .. } => ControlError::ItemNotFound(error.to_string()),
        error => ControlError::Config(error.to_string()),
    }
}

/// The answer, unless it takes longer than a person waits.
pub(crate) async fn in_time<T>(answer: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(PATIENCE, answer).await.ok()
}
