//! `agentmine store`: what the database holds, what it keeps, and what has to be done after a restore.

use std::path::PathBuf;

use agentmine_runtime::config::{self, RetentionConfig, Sources};
use agentmine_runtime::exit::Exit;
use agentmine_store::{Prunable, Pruned, Store, TableSize};
use anyhow::Result;
use clap::Subcommand;
use serde_json::json;

use crate::agreement::Agreement;
use crate::embedded::open_configured;
use crate::print::{Json, amount, line, table, trimmed};

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Show how large each table is
    Size {
        #[command(flatten)]
        json: Json,
    },
    /// Remove what is older than `store.retention` keeps; producers do this continuously
    Prune {
        /// Only show what would be removed
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        json: Json,
    },
    /// After the database was restored to an earlier time: take all tasks from their earlier workers
    Restored {
        #[command(flatten)]
        agreement: Agreement,
        #[command(flatten)]
        json: Json,
    },
}

/// Runs one of the commands.
pub(crate) async fn run(file: Option<PathBuf>, command: StoreCommand) -> Result<Exit> {
    let mut config = config::load(&Sources::from_process(file))?;
    let store = open_configured(&mut config).await?;
    if let StoreCommand::Restored { agreement, .. } = &command {
        agreement.require(&format!(
            "All tasks in {} that are not over are taken from their workers, which cannot be undone",
            store.address()
        ))?;
    }
    let retention = &config.store.retention;
    match command {
        StoreCommand::Size { json } => size(store.as_ref(), json).await,
        StoreCommand::Prune {
            dry_run: true,
            json,
        } => dry_run(store.as_ref(), retention, json).await,
        StoreCommand::Prune {
            dry_run: false,
            json,
        } => prune(store.as_ref(), retention, json).await,
        StoreCommand::Restored { json, .. } => restored(store.as_ref(), json).await,
    }
}

async fn size(store: &dyn Store, as_json: Json) -> Result<Exit> {
    let sizes = store.sizes().await?;
    let of =
        |size: &TableSize| json!({ "table": size.table, "rows": size.rows, "bytes": size.bytes });
    let answer: Vec<_> = sizes.iter().map(of).collect();
    as_json.print(&answer, |_| {
        let mut shown = table(&["TABLE", "ROWS", "SIZE"]);
        for size in &sizes {
            shown.add_row(vec![
                size.table.clone(),
                size.rows.to_string(),
                amount(size.bytes),
            ]);
        }
        let rows = sizes.iter().map(|size| size.rows).sum::<u64>();
        let total = sizes.iter().map(|size| size.bytes).sum();
        shown.add_row(vec!["all".to_owned(), rows.to_string(), amount(total)]);
        line(trimmed(&shown));
    })
}

async fn dry_run(store: &dyn Store, retention: &RetentionConfig, as_json: Json) -> Result<Exit> {
    let due = store.prunable(retention).await?;
    let of = |due: &Prunable| {
        json!({
            "what": due.what.as_str(), "outcome": outcome(due), "tasks": due.tasks,
            "rows": due.rows, "bytes": due.bytes,
        })
    };
    let answer: Vec<_> = due.iter().map(of).collect();
    as_json.print(&answer, |_| {
        let mut shown = table(&["WHAT", "OF TASKS", "TASKS", "ROWS", "CONTENT"]);
        for one in &due {
            shown.add_row(vec![
                one.what.as_str().to_owned(),
                outcome(one).to_owned(),
                one.tasks.to_string(),
                one.rows.to_string(),
                amount(one.bytes),
            ]);
        }
        line(trimmed(&shown));
        line("");
        line("Nothing was removed. The rows of tasks and the sums of their sessions stay in any case.");
    })
}

fn outcome(due: &Prunable) -> &'static str {
    agentmine_domain::TaskState::Ended(due.outcome).as_str()
}

async fn prune(store: &dyn Store, retention: &RetentionConfig, as_json: Json) -> Result<Exit> {
    let mut total = Pruned::default();
    loop {
        let batch = store.prune(retention).await?;
        if !batch.found_any() {
            break;
        }
        let Pruned {
            checkpoints,
            steps,
            effects,
            tasks: _,
        } = batch;
        total.checkpoints += checkpoints;
        total.steps += steps;
        total.effects += effects;
    }
    let answer = json!({
        "checkpoints": total.checkpoints, "steps": total.steps, "effects": total.effects,
    });
    as_json.print(&answer, |_| {
        line(format!(
            "removed {} checkpoints, {} steps and {} effects",
            total.checkpoints, total.steps, total.effects
        ));
    })
}

async fn restored(store: &dyn Store, as_json: Json) -> Result<Exit> {
    let restored = store.restored().await?;
    let taken: Vec<i64> = restored.taken.iter().map(|number| number.0).collect();
    let answer = json!({ "lifted": restored.lifted, "taken": taken });
    as_json.print(&answer, |_| {
        line(format!(
            "lifted the epochs of {} tasks that are not over; no lease of before is valid any more",
            restored.lifted
        ));
        if !taken.is_empty() {
            let taken: Vec<String> = taken.iter().map(|number| format!("#{number}")).collect();
            line(format!(
                "queued again, before all others: {}",
                taken.join(", ")
            ));
        }
    })
}
