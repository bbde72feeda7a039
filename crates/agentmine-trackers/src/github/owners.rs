//! The ids of many repositories of one owner, by the list of its repositories instead of one request each.
//!
//! Where the owner is a user, or the list is refused, they are requested one by one.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::api::{Api, Credentials, ID_TTL};
use super::wire::Repo;
use crate::error::TrackerError;
use crate::forge::{Lists, concerns_one};

/// So many unknown repositories of one owner are worth a list.
const MANY: usize = 50;

/// The owners whose repositories were listed.
#[derive(Debug, Default)]
pub(super) struct Owners {
    lists: Lists<Repo>,
    asked: Mutex<HashMap<String, Instant>>,
}

impl Owners {
    /// Learns the ids of those of these repositories that are not known, where many are of one owner.
    ///
    /// # Errors
    /// What concerns more than the list.
    pub(super) async fn learn(&self, api: &Api, paths: &[String]) -> Result<(), TrackerError> {
        let mut unknown: HashMap<String, usize> = HashMap::new();
        for path in paths {
            if api.repo_known(path, ID_TTL).is_none() {
                let owner = path.split('/').next().unwrap_or_default();
                *unknown.entry(owner.to_lowercase()).or_default() += 1;
            }
        }
        unknown.retain(|owner, count| *count >= MANY && self.is_due(owner));
        for owner in unknown.into_keys() {
            match api.repositories_of(&self.lists, &owner).await {
                Ok(repos) => repos.into_iter().for_each(|repo| api.learn(repo)),
                Err(error)
                    if concerns_one(&error)
                        || matches!(error, TrackerError::Unavailable { .. })
                        || is_of_an_installation(api, &error) =>
                {
                    tracing::debug!(owner, %error, "its repositories are requested one by one");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether an owner was not asked for lately; then it is not due again for a while.
    fn is_due(&self, owner: &str) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let due = asked.get(owner).is_none_or(|at| at.elapsed() >= ID_TTL / 2);
        if due {
            asked.insert(owner.to_owned(), Instant::now());
        }
        due
    }
}

/// Whether it is a limit of one owner's installation of an App.
fn is_of_an_installation(api: &Api, error: &TrackerError) -> bool {
    matches!(error, TrackerError::RateLimited { .. })
        && matches!(api.credentials, Credentials::App(_))
}
