//! Effects that were begun and that nobody will finish.

use std::time::Duration;

use super::arg::args;
use super::db::{Db, Dialect};
use super::effect_state::SUPERSEDED;
use super::failure::Failure;
use super::reports::LAST_LOOK;

/// Marks effects as over that were begun and not finished: a label of an earlier epoch, which the labels since
/// have replaced; after the end was reported, whatever is left; and a second look at an end that nobody looks at
/// again, since the item has a later task or the end is old. A writer that was stalled and finishes one
/// after all records its own result.
pub(super) async fn close_intents<D: Dialect>(
    tx: &mut Db<D>,
    lease: Duration,
) -> Result<u64, Failure> {
    tx.execute(
        "UPDATE effects SET done_at = {now}, result = $2
         WHERE done_at IS NULL AND begun_at <= {now} - $1{ms}
           AND (EXISTS (SELECT 1 FROM tasks t
                        WHERE t.id = effects.task AND effects.kind IN ({label}, {label check})
                          AND effects.epoch < t.epoch)
                OR EXISTS (SELECT 1 FROM tasks t
                           JOIN effects e ON {label of t} AND e.done_at <= {now} - $1{ms}
                           WHERE t.id = effects.task AND t.state IN ('done', 'failed', 'stopped')
                             AND effects.kind <> {label check})
                OR EXISTS (SELECT 1 FROM tasks t
                           WHERE t.id = effects.task AND effects.kind = {label check}
                             AND (t.updated_at <= {now} - $3{ms}
                                  OR EXISTS (SELECT 1 FROM tasks later
                                             WHERE later.item_key = t.item_key AND later.number > t.number))))",
        args![lease, SUPERSEDED, LAST_LOOK],
    )
    .await
}
