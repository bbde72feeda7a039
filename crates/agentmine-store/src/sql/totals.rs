//! The sums over all sessions and tasks: see `migrations/postgres/0021_totals.sql`.

use std::collections::BTreeMap;

use agentmine_domain::{EndState, SessionEnd, TaskState};

use super::arg::args;
use super::db::{Db, Dialect};
use super::failure::Failure;
use super::row::TotalRow;
use crate::Totals;

/// One statement, so that a session that ends meanwhile is counted once: as running, or as ended.
pub(super) async fn read<D: Dialect>(mut db: Db<D>) -> Result<Totals, Failure> {
    let rows: Vec<TotalRow> = db
        .rows(
            "SELECT what, CAST(sum(amount) AS bigint) AS amount, count(*) AS rows FROM (
                 SELECT what, amount FROM totals
                 UNION ALL SELECT 'input_tokens', input_tokens FROM sessions WHERE ended_at IS NULL
                 UNION ALL SELECT 'cached_tokens', cached_tokens FROM sessions WHERE ended_at IS NULL
                 UNION ALL SELECT 'output_tokens', output_tokens FROM sessions WHERE ended_at IS NULL
                 UNION ALL SELECT 'cost_micros', cost_micros FROM sessions WHERE ended_at IS NULL
             ) AS parts GROUP BY what",
            &[],
        )
        .await?;
    let of = |what: &str| {
        let found = rows.iter().find(|row| row.what == what);
        found.map_or(0, |row| row.amount.unsigned_abs())
    };
    let session = |end: &SessionEnd| (*end, of(&format!("session.{}", end.as_str())));
    let task = |end: EndState| (end, of(&format!("task.{}", TaskState::Ended(end).as_str())));
    Ok(Totals {
        sessions: SessionEnd::ALL.iter().map(session).collect(),
        tasks: [EndState::Done, EndState::Failed, EndState::Stopped]
            .map(task)
            .into(),
        input_tokens: of("input_tokens"),
        cached_tokens: of("cached_tokens"),
        output_tokens: of("output_tokens"),
        cost_micros: of("cost_micros"),
        rows: rows.iter().map(|row| row.rows.unsigned_abs()).sum(),
    })
}

/// What others add meanwhile is not seen, and stays as it is.
pub(super) async fn fold<D: Dialect>(mut tx: Db<D>) -> Result<(), Failure> {
    let parts: Vec<TotalRow> = tx
        .rows(
            "DELETE FROM totals RETURNING what, amount, CAST(1 AS bigint) AS rows",
            &[],
        )
        .await?;
    let mut sums = BTreeMap::new();
    for TotalRow { what, amount, .. } in parts {
        *sums.entry(what).or_insert(0_i64) += amount;
    }
    for (what, amount) in &sums {
        tx.execute(
            "INSERT INTO totals (what, amount) VALUES ($1, $2)",
            args![what.as_str(), *amount],
        )
        .await?;
    }
    tx.commit().await
}
