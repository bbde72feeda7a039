//! The tool over the queue.

use super::tool::{Effect, ToolDef};
use crate::queue::{self, QueueGet};

pub(super) fn tools() -> Vec<ToolDef> {
    vec![ToolDef::new(
        "queue_status",
        "Show the queue",
        "Shows how many tasks wait, run, back off and are paused by priority, how long the oldest has waited, what is not \
         reported yet, and the broker's own counts.",
        Effect::Reads,
        |it, _: QueueGet| {
            Box::pin(async move { queue::status(it.store.as_ref(), it.broker.as_deref()).await })
        },
    )]
}
