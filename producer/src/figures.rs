//! The figures of the whole fleet, as metrics of the producer.
//!
//! They come from the store and are read here alone, so that they exist while no consumer runs, and cost the same
//! with any number of consumers. Several producers show the same figures: take the maximum, never the sum.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agentmine_store::{Backlog, Figures, TableSize};
use metrics::{describe_gauge, gauge};
use tokio_util::sync::CancellationToken;

use crate::deps::ProducerDeps;

/// Time between two readings.
const EVERY: Duration = Duration::from_secs(15);

/// Time between two looks at the sizes of the tables, which change slowly.
const SIZES_EVERY: u32 = 40;

/// Publishes them until the process drains. While the store is away they keep their last values, and
/// `agentmine_figures_timestamp_seconds` shows how old these are.
pub(crate) async fn publish(deps: Arc<ProducerDeps>, draining: CancellationToken) {
    describe();
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let forever = async {
        for turn in (0..SIZES_EVERY).cycle() {
            tick.tick().await;
            if turn == 0 {
                sizes(&deps).await;
            }
            match deps.store.figures().await {
                Ok(figures) => set(&figures),
                Err(error) => tracing::debug!(%error, "the figures of the fleet cannot be read"),
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
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    gauge!("agentmine_figures_timestamp_seconds").set(now.unwrap_or_default().as_secs_f64());
}

fn describe() {
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
        "Slots that have something to do; what an autoscaler reads. From the store."
    );
    describe_gauge!(
        "agentmine_outbox_due",
        "Wake-ups that are due and not published. From the store."
    );
    describe_gauge!(
        "agentmine_outbox_oldest_seconds",
        "Time for which the oldest of them has been due. From the store."
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
        "Writes to trackers that were begun and are not known to have happened. From the store."
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
