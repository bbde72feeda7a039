//! Our own account, which may be renamed while the process runs.
//!
//! Guaranteed: it is requested again once an hour, and learned from what was just written. Until then a rename is not
//! noticed. A name that the account had before is not taken for ours: another account may have it now.

use std::fmt::Debug;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::TrackerError;

/// How long it is used before it is requested again.
const TTL: Duration = Duration::from_secs(3600);

/// The account, and when it was requested.
#[derive(Debug)]
pub(crate) struct OwnAccount<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for OwnAccount<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone + PartialEq + Debug> OwnAccount<T> {
    /// The account as it is known; asked for by `ask` if it is not, or was long ago.
    ///
    /// # Errors
    /// Of `ask`, while the account is not known at all.
    pub(crate) async fn get(
        &self,
        ask: impl Future<Output = Result<T, TrackerError>>,
    ) -> Result<T, TrackerError> {
        let mut known = self.0.lock().await;
        if let Some((asked, account)) = &mut *known {
            if asked.elapsed() < TTL {
                return Ok(account.clone());
            }
            // Whatever comes of it, it is not asked for again within the time.
            *asked = Instant::now();
            match ask.await {
                Ok(now) => replace(account, now),
                Err(error) => {
                    tracing::debug!(%error, "the name of AgentMine's account could not be looked up again")
                }
            }
            return Ok(account.clone());
        }
        let account = ask.await?;
        *known = Some((Instant::now(), account.clone()));
        Ok(account)
    }

    /// Learns the account under which something was just written.
    pub(crate) async fn learn(&self, now: T) {
        let mut known = self.0.lock().await;
        match &mut *known {
            Some((_, account)) => replace(account, now),
            None => *known = Some((Instant::now(), now)),
        }
    }
}

fn replace<T: PartialEq + Debug>(account: &mut T, now: T) {
    if *account != now {
        tracing::info!(from = ?account, to = ?now, "AgentMine's account was renamed");
        *account = now;
    }
}

#[cfg(test)]
mod tests {
    use agentmine_domain::TrackerKind;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_renamed_account_is_known_within_the_hour_and_at_once_if_it_wrote() {
        let own = OwnAccount::default();
        let get = |name: &'static str| own.get(async move { Ok(name) });
        assert_eq!(get("before").await.unwrap(), "before");
        assert_eq!(get("after").await.unwrap(), "before");
        tokio::time::advance(TTL).await;
        assert_eq!(get("after").await.unwrap(), "after");
        own.learn("written").await;
        assert_eq!(get("after").await.unwrap(), "written");
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_that_cannot_be_asked_for_stays_known_and_is_not_asked_for_each_time() {
        let own = OwnAccount::default();
        let away = async || Err(TrackerError::unavailable(TrackerKind::GitHub, "away"));
        own.get(away()).await.unwrap_err();
        assert_eq!(own.get(async { Ok("name") }).await.unwrap(), "name");
        tokio::time::advance(TTL).await;
        assert_eq!(own.get(away()).await.unwrap(), "name");
        assert_eq!(own.get(async { Ok("renamed") }).await.unwrap(), "name");
        tokio::time::advance(TTL).await;
        assert_eq!(own.get(async { Ok("renamed") }).await.unwrap(), "renamed");
    }
}
