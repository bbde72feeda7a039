//! The figures of the whole fleet, as metrics of the producer.
//!
//! They come from the store and are read here alone, so that they exist while no consumer runs, and cost the same
//! with any number of consumers. Several producers show the same figures: take the maximum, never the sum.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agentmine_domain::TaskState;
use agentmine_store::{Backlog, Figures, TableSize, Totals};
use metrics::{counter, describe_counter, describe_gauge, gauge};
use tokio_util::sync::CancellationToken;

use crate::deps::ProducerDeps;

/// Time between two readings.
const EVERY: Duration = Duration::from_secs(15);

/// Time between two looks at the sizes of the tables, which change slowly.
const SIZES_EVERY: u32 = 40;

/// Rows of the sums since the beginning from which on they are folded. Up to here they are read in far less than a millisecond.
const MANY_ROWS: u64 = 500;

/// Publishes them until the process drains. While the store is away they keep their last values, and
/// `agentmine_figures_timestamp_seconds` shows how old these are.
pub(crate) async fn publish(deps: Arc<ProducerDeps>, draining: CancellationToken) {
    describe();
    // Figures that are never read must become stale, too.
    note_time();
    let mut is_reported = false;
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let forever = async {
        for turn in (0..SIZES_EVERY).cycle() {
            tick.tick().await;
            if turn == 0 {
                sizes(&deps).await;
                fold(&deps).await;
            }
            totals(&deps).await;
            match deps.store.figures().await {
                Ok(figures) => {
                    is_reported = false;
                    set(&figures);
                }
                Err(error) if is_reported => {
                    tracing::debug!(%error, "the figures of the fleet cannot be read");
                }
                Err(error) => {
                    is_reported = true;
                    tracing::warn!(%error, "the figures of the fleet cannot be read");
                }
            }
        }
    };
    draining.run_until_cancelled(forever).await;
}

async fn sizes(deps: &ProducerDeps) {
    match deps.store.sizes().await {
        Ok(sizes) => {
            for TableSize { table, rows, bytes } in sizes {
                gauge!("agentmine_store_table_bytes", "table" => table.clone()).set(bytes as f64);
                gauge!("agentmine_store_table_rows", "table" => table).set(rows as f64);
            }
        }
        Err(error) => tracing::debug!(%error, "the sizes of the tables cannot be read"),
    }
}

/// The sums since the beginning. What processes count themselves lacks what they counted after the last scrape before a kill.
async fn totals(deps: &ProducerDeps) {
    let Totals {
        sessions,
        tasks,
        input_tokens,
        cached_tokens,
        output_tokens,
        cost_micros,
        rows,
    } = match deps.store.totals().await {
        Ok(totals) => totals,
        Err(error) => {
            tracing::debug!(%error, "the sums of the fleet cannot be read");
            return;
        }
    };
    for (end, count) in sessions {
        counter!("agentmine_fleet_sessions_ended_total", "end" => end.as_str()).absolute(count);
    }
    for (state, count) in tasks {
        let state = TaskState::Ended(state).as_str();
        gauge!("agentmine_fleet_tasks_over", "state" => state).set(count as f64);
    }
    for (direction, tokens) in [
        ("input", input_tokens.saturating_sub(cached_tokens)),
        ("cached_input", cached_tokens),
        ("output", output_tokens),
    ] {
        counter!("agentmine_fleet_tokens_total", "direction" => direction).absolute(tokens);
    }
    counter!("agentmine_fleet_cost_microdollars_total").absolute(cost_micros);
    if rows > MANY_ROWS {
        fold(deps).await;
    }
}

async fn fold(deps: &ProducerDeps) {
    if let Err(error) = deps.store.fold_totals().await {
        tracing::debug!(%error, "the totals of the fleet could not be compacted; a later pass tries again");
    }
}

fn set(figures: &Figures) {
    let Figures {
        tasks,
        slots,
        outbox,
        unreported,
        effects,
    } = figures;
    for count in tasks {
        let (state, priority) = (count.standing.as_str(), count.priority.as_str());
        let Backlog { count, oldest } = count.backlog;
        gauge!("agentmine_tasks", "state" => state, "priority" => priority).set(count as f64);
        gauge!("agentmine_tasks_oldest_seconds", "state" => state, "priority" => priority)
            .set(oldest.as_secs_f64());
    }
    gauge!("agentmine_demand_slots").set(*slots as f64);
    gauge!("agentmine_outbox_due").set(outbox.count as f64);
    gauge!("agentmine_outbox_oldest_seconds").set(outbox.oldest.as_secs_f64());
    gauge!("agentmine_ends_unreported").set(unreported.count as f64);
    gauge!("agentmine_ends_unreported_oldest_seconds").set(unreported.oldest.as_secs_f64());
    gauge!("agentmine_effects_unfinished").set(effects.count as f64);
    gauge!("agentmine_effects_unfinished_oldest_seconds").set(effects.oldest.as_secs_f64());
    note_time();
}

fn note_time() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    gauge!("agentmine_figures_timestamp_seconds").set(now.unwrap_or_default().as_secs_f64());
}

fn describe() {
    describe_counter!(
        "agentmine_fleet_sessions_ended_total",
        "Sessions of the fleet that ended since it began, by outcome. From the store."
    );
    describe_gauge!(
        "agentmine_fleet_tasks_over",
        "Tasks of the fleet that are over, by outcome. From the store."
    );
    describe_counter!(
        "agentmine_fleet_tokens_total",
        "Tokens sent and received by the fleet since it began, including running sessions. From the store."
    );
    describe_counter!(
        "agentmine_fleet_cost_microdollars_total",
        "Cost of the fleet's model calls since it began, in millionths of a US dollar. From the store."
    );
    describe_gauge!(
        "agentmine_store_table_bytes",
        "Size of each table of the store with its indexes."
    );
    describe_gauge!(
        "agentmine_store_table_rows",
        "Rows of each table of the store; on Postgres its estimate."
    );
    describe_gauge!(
        "agentmine_tasks",
        "Tasks that are not over, by priority and state: due, delayed, leased, paused, or waiting for their turn. From the store."
    );
    describe_gauge!(
        "agentmine_tasks_oldest_seconds",
        "Time since the oldest of these rows last changed. From the store."
    );
    describe_gauge!(
        "agentmine_demand_slots",
        "Slots that have work, for an autoscaler. From the store."
    );
    describe_gauge!(
        "agentmine_outbox_due",
        "Wake-ups that are due and not published. From the store."
    );
    describe_gauge!(
        "agentmine_outbox_oldest_seconds",
        "Time since the oldest of them became due. From the store."
    );
    describe_gauge!(
        "agentmine_ends_unreported",
        "Ends of tasks that are not reported to the tracker. From the store."
    );
    describe_gauge!(
        "agentmine_ends_unreported_oldest_seconds",
        "Age of the oldest of them. From the store."
    );
    describe_gauge!(
        "agentmine_effects_unfinished",
        "Writes to trackers that began and whose outcome is unknown. From the store."
    );
    describe_gauge!(
        "agentmine_effects_unfinished_oldest_seconds",
        "Age of the oldest of them. From the store."
    );
    describe_gauge!(
        "agentmine_figures_timestamp_seconds",
        "When the figures from the store were last read, in seconds since the Unix epoch."
    );
}
