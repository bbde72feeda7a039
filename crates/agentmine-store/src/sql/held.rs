//! Requests for work that start none.

use std::time::Duration;

use async_trait::async_trait;

use super::arg::args;
use super::db::Dialect;
use super::row::HeldRow;
use super::store::SqlStore;
use crate::{Held, HeldRequest, HeldStore, StoreError};

/// A request that no scan found for so long is not held any more: its label was removed.
const SEEN: Duration = Duration::from_secs(600);
/// Rows that are older are deleted.
const KEPT: Duration = Duration::from_secs(24 * 3600);

#[async_trait]
impl<D: Dialect> HeldStore for SqlStore<D> {
    async fn hold_request(&self, held: &HeldRequest) -> Result<(), StoreError> {
        let HeldRequest {
            item,
            trigger,
            title,
            url,
            code,
            message,
        } = held;
        self.run("hold_request", || async {
            let mut tx = self.transaction().await?;
            tx.execute(
                "DELETE FROM held_requests WHERE seen_at < {now} - $1{ms}",
                args![KEPT],
            )
            .await?;
            tx.execute(
                "INSERT INTO held_requests (item_key, tracker, host, repo_id, repo_path, item_kind, item_number,
                     trigger_event, title, url, code, message, held_since, seen_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, {now}, {now})
                 ON CONFLICT (item_key) DO UPDATE
                 SET repo_path = excluded.repo_path, trigger_event = excluded.trigger_event,
                     title = excluded.title, url = excluded.url, code = excluded.code, message = excluded.message,
                     held_since = CASE WHEN held_requests.trigger_event = excluded.trigger_event
                                        AND held_requests.code = excluded.code
                                       THEN held_requests.held_since ELSE excluded.held_since END,
                     seen_at = excluded.seen_at",
                args![
                    &item.key(),
                    item.tracker.as_str(),
                    &item.host,
                    &item.repo_id,
                    &item.repo_path,
                    item.kind.as_str(),
                    item.number,
                    trigger,
                    title,
                    url,
                    code,
                    message
                ],
            )
            .await?;
            tx.commit().await
        })
        .await
    }

    async fn held_requests(&self) -> Result<Vec<Held>, StoreError> {
        self.select::<HeldRow, _>(
            "held_requests",
            "SELECT {columns} FROM held_requests h
             WHERE seen_at >= {now} - $1{ms}
               AND NOT EXISTS (SELECT 1 FROM tasks t
                               WHERE t.item_key = h.item_key
                                 AND (t.trigger_event = h.trigger_event OR t.answered_trigger = h.trigger_event))
             ORDER BY held_since, item_key LIMIT 1000",
            args![SEEN],
        )
        .await
    }
}
