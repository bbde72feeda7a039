//! `agentmine worker run --local`: the fleet's own loop works on one task in this process.
//!
//! A task of a person is worked on in the repository of the current folder; one of a tracker as any worker of the fleet
//! would. The store is that of every command, so others follow it there. Nothing of the fleet's queue is touched.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use agentmine_consumer::RunOne;
use agentmine_control::find_task;
use agentmine_control::tasks::{self, TaskUpdate};
use agentmine_domain::{Task, TaskHome};
use agentmine_runtime::config::{self, Config, Sources};
use agentmine_runtime::exit::{Exit, Failure};
use agentmine_runtime::logging;
use agentmine_store::Store;
use agentmine_trackers::Tracker;
use agentmine_trackers::local::LocalTracker;
use anyhow::{Context as _, Result};

use crate::control::failure as failed;
use crate::embedded::{self, open_configured, place};
use crate::git;
use crate::loop_args::LoopArgs;
use crate::print::{clean, line, one_line, program, program_reading};
use crate::run::{apply_flags, follow, head, model, refused, summaries};

/// Works on the task until its session has ended.
pub(super) async fn run(
    file: Option<PathBuf>,
    named: &str,
    agent: Option<String>,
    with: &LoopArgs,
) -> Result<Exit> {
    let started = Instant::now();
    let sources = Sources::from_process(file.clone());
    let mut config = config::load(&sources)?;
    logging::init(&embedded::quiet(&config.log), config.secrets())?;
    config.warn_of_exposures(&sources);
    let store = open_configured(&mut config).await?;
    embedded::configure(&mut config, with.sandbox.into())?;
    apply_flags(&mut config, with)?;
    git::require().await?;
    let here = std::env::current_dir().context("the current folder cannot be found")?;
    let mut task = find_task(store.as_ref(), named).await.map_err(failed)?;
    if let Some(agent) = agent {
        let update = TaskUpdate {
            task_id: task.number.0,
            agent: Some(agent),
            ..TaskUpdate::default()
        };
        let place = place(here.clone(), &config, file)?;
        tasks::update(store.as_ref(), &place, &update)
            .await
            .map_err(failed)?;
        task = find_task(store.as_ref(), named).await.map_err(failed)?;
    }
    let (tracker, repository) = tracker_of(&mut config, &task, &here).await?;
    let model = model(&config)?;
    line(format!(
        "task        #{} {}",
        task.number,
        one_line(&task.title, 120)
    ));
    head(&config, &repository).await;
    let number = task.number.0;
    let embedded = embedded::start_one(config, Arc::clone(&store), tracker, model, task).await?;
    let (ran, endings) = follow(embedded, started).await?;
    match ran {
        RunOne::Ran => {
            let program = program_reading(sources.used_file().as_deref());
            Ok(summaries(&repository, &endings, &program).await)
        }
        RunOne::Refused => Err(why_not(store.as_ref(), number).await),
    }
}

/// The tracker of the task, and the folder of its repository.
async fn tracker_of(
    config: &mut Config,
    task: &Task,
    here: &Path,
) -> Result<(Arc<dyn Tracker>, PathBuf)> {
    match task.home() {
        TaskHome::People => {
            // Each attempt is requested by hand, so none is the last.
            config.consumer.max_attempts = i32::MAX.unsigned_abs();
            let (item, title) = (task.item.clone(), task.title.clone());
            let body = task.card.description.clone();
            let tracker = LocalTracker::given(here, item, title, body).map_err(refused)?;
            tracker.require_branch().map_err(refused)?;
            let tracker: Arc<dyn Tracker> = Arc::new(tracker);
            let repository = agentmine_control::project(here).map_err(failed)?.top;
            Ok((tracker, repository))
        }
        TaskHome::Item | TaskHome::Repository => {
            let trackers = agentmine_trackers::from_config(&config.trackers).map_err(refused)?;
            let served = trackers.into_iter().find(|it| it.serves(&task.item));
            let tracker = served.ok_or_else(|| {
                Failure::new(
                    Exit::Config,
                    format!(
                        "task {} is of {}, and no configured tracker serves it",
                        task.number, task.item
                    ),
                )
                .hint("configure its tracker, or leave the task to the fleet")
            })?;
            Ok((tracker, here.to_owned()))
        }
    }
}

/// Why the task could not be claimed.
async fn why_not(store: &dyn Store, number: i64) -> anyhow::Error {
    let reasons = match tasks::reasons(store, number).await {
        Ok(reasons) => reasons,
        Err(error) => return failed(error),
    };
    let reason = reasons.first().map(|it| clean(&it.message));
    let reason = reason.unwrap_or_else(|| "it has changed meanwhile".to_owned());
    Failure::new(
        Exit::WrongState,
        format!("task {number} cannot be worked on here: {reason}"),
    )
    .hint(format!(
        "`{} task why {number}` shows all reasons",
        program()
    ))
    .into()
}
