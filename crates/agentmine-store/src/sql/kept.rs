//! The connection that the next statement gets.
//!
//! A pool takes a connection back in a task of its own, after a test, and hands out the one that has waited longest. On SQLite, where each
//! connection has a thread and a cache of pages, that makes each statement run in another thread, and read again what the
//! one before has just read. So one connection is kept outside the pool while nobody uses it. It is in no transaction, and its last
//! statement has ended.

use std::sync::{Mutex, PoisonError};

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};

/// At most one idle connection of a pool.
pub(super) struct Kept<D: Database> {
    pool: Pool<D>,
    connection: Mutex<Option<PoolConnection<D>>>,
}

impl<D: Database> Kept<D> {
    pub(super) fn of(pool: &Pool<D>) -> Self {
        Self {
            pool: pool.clone(),
            connection: Mutex::default(),
        }
    }

    pub(super) fn take(&self) -> Option<PoolConnection<D>> {
        self.lock().take()
    }

    /// Only of a connection whose last statement has ended. The pool gets it if there is one already, or if it has no other:
    /// somebody may be waiting for it.
    pub(super) fn put(&self, connection: PoolConnection<D>) {
        let mut kept = self.lock();
        let has_others = self.pool.options().get_max_connections() > 1;
        if has_others && kept.is_none() && !self.pool.is_closed() {
            *kept = Some(connection);
        }
    }

    /// Closes the pool, which waits for all of its connections.
    pub(super) async fn close(&self) {
        // From here on none is put back.
        let closed = self.pool.close();
        drop(self.take());
        closed.await;
    }

    pub(super) fn is_some(&self) -> bool {
        self.lock().is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<PoolConnection<D>>> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is dropped goes back to its pool in a task, and there may be no runtime any more.
impl<D: Database> Drop for Kept<D> {
    fn drop(&mut self) {
        drop(self.take().map(PoolConnection::leak));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sqlx::Sqlite;
    use sqlx::sqlite::SqlitePoolOptions;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn pool(connections: u32) -> Pool<Sqlite> {
        let options = SqlitePoolOptions::new().max_connections(connections);
        let options = options.acquire_timeout(PATIENCE);
        options.connect_lazy("sqlite::memory:").unwrap()
    }

    #[tokio::test]
    async fn a_connection_is_kept_until_the_pool_closes() {
        let pool = pool(2);
        let kept = Kept::of(&pool);
        let (one, other) = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
        kept.put(one);
        kept.put(other);
        assert!(kept.is_some());
        let from_pool = pool.acquire().await.unwrap();
        let last = kept.take().unwrap();
        assert!(kept.take().is_none(), "it has one place");
        drop(from_pool);
        // It is returned while the pool is being closed.
        let closing = async { tokio::join!(kept.close(), async { kept.put(last) }) };
        tokio::time::timeout(PATIENCE, closing).await.unwrap();
        assert!(!kept.is_some());
    }

    #[tokio::test]
    async fn the_only_connection_of_a_pool_goes_back_to_those_who_wait() {
        let pool = pool(1);
        let kept = Kept::of(&pool);
        let only = pool.acquire().await.unwrap();
        let (next, ()) = tokio::join!(pool.acquire(), async { kept.put(only) });
        drop(next.unwrap());
    }

    #[test]
    fn it_can_be_dropped_after_the_runtime() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let kept = runtime.block_on(async {
            let pool = pool(2);
            let kept = Kept::of(&pool);
            kept.put(pool.acquire().await.unwrap());
            kept
        });
        drop(runtime);
        assert!(kept.is_some());
        drop(kept);
    }
}
