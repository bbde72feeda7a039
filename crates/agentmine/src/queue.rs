//! `agentmine queue`: how much work waits.

use std::path::PathBuf;

use agentmine_control::queue::{self, BacklogView, PriorityDepth, QueueStatus};
use agentmine_runtime::config::{self, Sources};
use agentmine_runtime::exit::Exit;
use anyhow::Result;
use clap::Subcommand;

use crate::control::failure;
use crate::embedded::{broker, open_configured};
use crate::print::{Json, line, one_line, table, trimmed};

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Show how many tasks wait, run, back off and are paused, and the broker's own counts
    Status {
        #[command(flatten)]
        json: Json,
    },
}

/// Runs one of the commands.
pub(crate) async fn run(file: Option<PathBuf>, command: QueueCommand) -> Result<Exit> {
    let QueueCommand::Status { json } = command;
    let mut config = config::load(&Sources::from_process(file))?;
    let broker = broker(&config)?;
    let store = open_configured(&mut config).await?;
    let status = queue::status(store.as_ref(), broker.as_deref()).await;
    if let Some(broker) = broker {
        broker.close().await;
    }
    json.print(&status.map_err(failure)?, print)
}

fn print(status: &QueueStatus) {
    let mut table = table(&[
        "PRIORITY",
        "DUE",
        "BACKING OFF",
        "RUNNING",
        "PAUSED",
        "WAITING",
        "OLDEST DUE",
    ]);
    let total = status.total();
    for depth in status.priorities.iter().chain([&total]) {
        table.add_row(vec![
            depth.priority.clone(),
            depth.due.to_string(),
            depth.backing_off.to_string(),
            depth.running.to_string(),
            depth.paused.to_string(),
            depth.waiting.to_string(),
            oldest(depth),
        ]);
    }
    line(trimmed(&table));
    line("");
    let fact = |name: &str, value: String| line(format!("{name:<19} {value}"));
    fact("slots wanted", status.demand.to_string());
    fact("wake-ups to publish", backlog(status.unpublished));
    fact("ends to report", backlog(status.unreported));
    fact("unfinished writes", backlog(status.unfinished_effects));
    match &status.broker {
        None => fact("broker", "none: all runs in one process".to_owned()),
        Some(broker) => match &broker.error {
            Some(error) => fact("broker", one_line(error, 300)),
            None => {
                line("");
                let mut table = crate::print::table(&["QUEUE OF THE BROKER", "MESSAGES"]);
                for queue in &broker.queues {
                    table.add_row(vec![one_line(&queue.name, 150), queue.messages.to_string()]);
                }
                line(trimmed(&table));
            }
        },
    }
}

fn oldest(depth: &PriorityDepth) -> String {
    match depth.due {
        0 => "-".to_owned(),
        _ => span(depth.oldest_due_seconds),
    }
}

fn backlog(backlog: BacklogView) -> String {
    match backlog.count {
        0 => "0".to_owned(),
        n => format!("{n}, the oldest for {}", span(backlog.oldest_seconds)),
    }
}

/// `4m 10s`.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}
