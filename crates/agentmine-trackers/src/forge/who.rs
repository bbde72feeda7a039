//! Who may start work, by the rules of the configuration. The forges differ in what they call groups and permissions.
//!
//! Accepted: an answer is used again for [`TTL`], so somebody whose permission was withdrawn may still start work for
//! so long.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::error::TrackerError;
use crate::people::{Admission, Person};

/// How long an answer is used again.
const TTL: Duration = Duration::from_secs(60);
/// Answers that are kept. Past it, all are forgotten and asked for again.
const MAX_KNOWN: usize = 10_000;

/// The lists of the configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedPeople<'a> {
    pub(crate) allowed_users: &'a [String],
    pub(crate) allowed_groups: &'a [String],
    pub(crate) denied_users: &'a [String],
    pub(crate) denied_groups: &'a [String],
}

/// Whether a permission is enough.
pub(crate) enum Permission {
    Enough,
    /// What the person has and what is needed, as the end of a sentence.
    Lacking(String),
}

/// What a forge knows of one person in one repository.
#[async_trait]
pub(crate) trait Membership: Sync {
    /// Whether the person is in a team or group. One that cannot be seen is an error.
    async fn is_in(&self, group: &str) -> Result<bool, TrackerError>;
    async fn permission(&self) -> Result<Permission, TrackerError>;
}

/// Denied first, then allowed by name, by permission and by group.
pub(crate) async fn admission(
    lists: NamedPeople<'_>,
    person: &Person,
    of: &impl Membership,
) -> Result<Admission, TrackerError> {
    let named = |names: &[String]| {
        names
            .iter()
            .any(|name| name.eq_ignore_ascii_case(&person.login))
    };
    if named(lists.denied_users) {
        return Ok(refused("who_may_start.deny.users lists this name"));
    }
    for group in lists.denied_groups {
        if of.is_in(group).await? {
            return Ok(refused(format!("who_may_start.deny lists {group}")));
        }
    }
    if named(lists.allowed_users) {
        return Ok(Admission::Granted);
    }
    if person.is_program() {
        return Ok(refused(
            "it is a bot, and who_may_start.allow.users does not list it",
        ));
    }
    let lacking = match of.permission().await? {
        Permission::Enough => return Ok(Admission::Granted),
        Permission::Lacking(why) => why,
    };
    for group in lists.allowed_groups {
        if of.is_in(group).await? {
            return Ok(Admission::Granted);
        }
    }
    Ok(refused(lacking))
}

fn refused(why: impl Into<String>) -> Admission {
    Admission::Refused(why.into())
}

/// Answers that are used again, by repository and person.
#[derive(Debug)]
pub(crate) struct Known<T>(Mutex<HashMap<(String, String), (Instant, T)>>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Known<T> {
    pub(crate) fn get(&self, of: &str, name: &str) -> Option<T> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, answer) = known.get(&(of.to_owned(), name.to_owned()))?;
        (at.elapsed() < TTL).then(|| answer.clone())
    }

    pub(crate) fn put(&self, of: &str, name: &str, answer: &T) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        let key = (of.to_owned(), name.to_owned());
        known.insert(key, (Instant::now(), answer.clone()));
    }
}
