//! `agentmine run`: the user's own repository, with a configured model.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use agentmine_domain::{EndState, TaskState};
use agentmine_runtime::config::{self, BackendKind, Config, LocalTrackerConfig, Log, Sources};
use agentmine_runtime::exit::{Exit, Failure};
use agentmine_runtime::logging;
use agentmine_store::TaskFilter;
use agentmine_trackers::Tracker;
use agentmine_trackers::local::LocalTracker;
use anyhow::{Context as _, Result};

use crate::args::RunArgs;
use crate::embedded::{self, Embedded, Ran};
use crate::git;
use crate::live::{self, Ending, count};
use crate::print::{clean, line, one_line};

/// Runs every issue that was named, and shows how each ended.
pub(crate) async fn run(file: Option<PathBuf>, args: RunArgs) -> Result<Exit> {
    let started = Instant::now();
    let mut config = config::load(&Sources::from_process(file).without_working_folder())?;
    logging::init(&quiet(&config.log))?;
    adjust(&mut config, &args)?;
    let repository = std::fs::canonicalize(&args.repo).map_err(|error| {
        Failure::new(
            Exit::NotFound,
            format!("{} cannot be opened", args.repo.display()),
        )
        .hint("--repo names a git repository on this machine")
        .because(error)
    })?;
    if let Some(issue) = &args.issue
        && std::fs::read_to_string(issue).is_ok_and(|text| text.trim().is_empty())
    {
        return Err(
            Failure::new(Exit::Validation, format!("{} is empty", issue.display()))
                .hint("expected Markdown: a `# ` heading as the title, then what is to be done")
                .into(),
        );
    }
    let tracker: Arc<dyn Tracker> = match &args.issue {
        Some(issue) => Arc::new(LocalTracker::single(&repository, issue)?),
        None => Arc::new(LocalTracker::new(&LocalTrackerConfig {
            repository: repository.clone(),
            issues: None,
        })?),
    };
    let model = agentmine_llm::from_config(&config.model).map_err(|e| {
        Failure::new(Exit::Config, "the model cannot be used")
            .hint("name one with --base-url and --model, or in config.yaml")
            .because(e)
    })?;
    line(format!("repository  {}", repository.display()));
    line(format!(
        "model       {} at {}",
        config.model.name, config.model.base_url
    ));
    line("");
    let store = config.store.clone();
    let embedded = embedded::start(config, Arc::clone(&tracker), model).await?;
    let (ran, endings) = follow(embedded, started).await?;
    if ran.found == 0 && ran.sessions == 0 {
        line("No open issue carries the request label, so there is nothing to do.");
        line(
            "hint: name one with --issue FILE, or put `labels: [coding agent]` in the front matter of a file in .agentmine/issues",
        );
        return Ok(Exit::Done);
    }
    if endings.is_empty() {
        return waiting(&store, tracker.as_ref()).await;
    }
    for ending in &endings {
        summary(&repository, ending).await;
    }
    let good = !endings.is_empty()
        && endings
            .iter()
            .all(|e| e.end == Some(EndState::Done) && e.reason.is_none());
    Ok(if good { Exit::Done } else { Exit::Other })
}

/// Nothing could be claimed: tells which task waits, and for what.
async fn waiting(store: &config::StoreConfig, tracker: &dyn Tracker) -> Result<Exit> {
    let store = agentmine_store::connect(store).await?;
    for task in store.tasks(&TaskFilter::default()).await? {
        if !tracker.serves(&task.item) {
            continue;
        }
        let why = clean(task.reason.as_deref().unwrap_or(""));
        match (task.state, task.lease_until) {
            (TaskState::Leased(_), Some(until)) => line(format!(
                "Task #{} is held by another worker ({}), whose lease ends at {} unless it goes on.",
                task.number,
                task.state,
                until.with_timezone(&chrono::Local).format("%H:%M:%S")
            )),
            (TaskState::Queued, _) => line(format!(
                "Task #{} waits to be tried again: {why}",
                task.number
            )),
            (TaskState::Paused, _) => line(format!(
                "Task #{0} is paused. hint: {1} task resume {0}",
                task.number,
                program()
            )),
            (TaskState::Leased(_) | TaskState::Ended(_), _) => continue,
        }
    }
    line("Nothing could be done now. hint: run the same command again in a while");
    Ok(Exit::WrongState)
}

/// Shows the fleet's events to its end.
pub(crate) async fn follow(embedded: Embedded, started: Instant) -> Result<(Ran, Vec<Ending>)> {
    let Embedded { progress, fleet } = embedded;
    let endings = live::show(progress, started).await;
    let ran = fleet.await.context("the fleet ended by itself")??;
    Ok((ran, endings))
}

/// The embedded mode's own defaults under the user's settings and flags.
pub(crate) fn adjust(config: &mut Config, args: &RunArgs) -> Result<()> {
    embedded::default_store(config)?;
    config.command_executor.enabled = true;
    config.command_executor.backend = match args.sandbox.as_deref() {
        Some("docker") => BackendKind::Docker,
        _ => BackendKind::Local,
    };
    if let Some(url) = &args.base_url {
        config.model.base_url = url.parse().map_err(|error| {
            Failure::new(Exit::Validation, format!("--base-url {url:?} is not a URL"))
                .hint("for example http://127.0.0.1:11434/v1")
                .because(anyhow::Error::new(error))
        })?;
    }
    if let Some(name) = &args.model {
        config.model.name.clone_from(name);
    }
    if !args.check.is_empty() {
        config.agent.checks.clone_from(&args.check);
    }
    config.consumer.concurrency = 1;
    // A person who stops or pauses a task is waiting for it.
    config.consumer.heartbeat_seconds = 1;
    Ok(())
}

/// The live view tells what happens; logs are for trouble.
pub(crate) fn quiet(log: &Log) -> Log {
    let level = if log.level == Log::default().level {
        "off".to_owned()
    } else {
        log.level.clone()
    };
    Log {
        format: log.format,
        level,
    }
}

/// What came of one task, and where to look next.
pub(crate) async fn summary(repository: &Path, ending: &Ending) {
    let task = &ending.task;
    line("");
    let usage = &ending.usage;
    let used = format!(
        "{:.1} s, {} model calls, {} tool calls, {} tokens in, {} out",
        ending.took.as_secs_f64(),
        usage.model_calls,
        usage.tool_calls,
        count(usage.input_tokens),
        count(usage.output_tokens)
    );
    match (ending.end, &ending.reason) {
        (Some(EndState::Done), None) => line(format!("Done: task #{} in {used}", task.number)),
        (Some(EndState::Done), Some(reason)) => line(format!(
            "Partial result of task #{} in {used}\n{}",
            task.number,
            clean(reason).trim_end()
        )),
        (Some(EndState::Failed), reason) => line(format!(
            "Failed: task #{} after {used}\n{}",
            task.number,
            clean(reason.as_deref().unwrap_or(""))
        )),
        (Some(EndState::Stopped), reason) => line(format!(
            "Stopped: task #{}: {}",
            task.number,
            clean(reason.as_deref().unwrap_or(""))
        )),
        (None, reason) => line(format!(
            "Not finished: task #{}: {}
It is kept. hint: run the same command again to go on with it",
            task.number,
            clean(reason.as_deref().unwrap_or(""))
        )),
    }
    let program = program();
    if let Some(facts) = &ending.facts
        && let Some(head) = &facts.head
    {
        line("");
        diff(repository, &facts.base, head).await;
        line("");
        line(format!("branch       {}", task.branch()));
        if let Some(url) = &task.pull_request_url {
            line(format!("result       {}", one_line(url, 200)));
        }
        line(format!(
            "look at it   git -C {} diff {:.12} {:.12}",
            repository.display(),
            facts.base,
            head
        ));
        line(format!(
            "take it      git -C {} merge {}",
            repository.display(),
            task.branch()
        ));
    }
    line(format!(
        "transcript   {program} session show {}",
        ending.session
    ));
}

/// Prints the difference as git colours it, at most 200 lines of it. Nothing that the repository
/// configures takes part.
async fn diff(repository: &Path, base: &str, head: &str) {
    const MAX_LINES: usize = 200;
    let output = git::without_programs(repository)
        .args([
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            base,
            head,
            "--",
        ])
        .output()
        .await;
    let Ok(output) = output else { return };
    let text = clean(&String::from_utf8_lossy(&output.stdout));
    let lines: Vec<&str> = text.lines().collect();
    for text in lines.iter().take(MAX_LINES) {
        let styled = match text.as_bytes().first() {
            Some(b'+') => console::style(text).green(),
            Some(b'-') => console::style(text).red(),
            Some(b'@') => console::style(text).cyan(),
            _ => console::style(text),
        };
        line(styled.to_string());
    }
    if lines.len() > MAX_LINES {
        line(format!("… and {} more lines", lines.len() - MAX_LINES));
    }
}

/// How this program was called, for hints that can be pasted.
pub(crate) fn program() -> String {
    std::env::args()
        .next()
        .unwrap_or_else(|| "agentmine".into())
}
