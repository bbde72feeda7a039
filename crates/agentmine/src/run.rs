//! `agentmine run`: the issues of a local repository, with a configured model.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use agentmine_domain::{EndState, TaskState};
use agentmine_llm::Model;
use agentmine_runtime::config::tree::ConfigPlace;
use agentmine_runtime::config::{
    self, Config, Labels, LocalTrackerConfig, ModelConfig, Provider, Sources, StoreConfig,
};
use agentmine_runtime::exit::{Exit, Failure};
use agentmine_runtime::logging;
use agentmine_store::TaskFilter;
use agentmine_trackers::local::LocalTracker;
use agentmine_trackers::{Tracker, TrackerError};
use anyhow::{Context as _, Result};
use url::Position::{AfterPath, BeforeHost};
use url::Url;

use crate::again;
use crate::embedded::{self, Embedded, Unfinished};
use crate::git;
use crate::live::{self, Ending};
use crate::loop_args::LoopArgs;
use crate::print::{clean, line, program_reading};
use crate::summary;

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The git repository to work on
    #[arg(long, value_name = "PATH")]
    pub(crate) repo: PathBuf,
    /// One issue, as a Markdown file [default: every open issue in .agentmine/issues with the request label]
    #[arg(long, value_name = "FILE")]
    pub(crate) issue: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) with: LoopArgs,
}

/// Works on every requested issue, and shows how each ended.
pub(crate) async fn run(file: Option<PathBuf>, args: RunArgs) -> Result<Exit> {
    let started = Instant::now();
    let sources = Sources::from_process(file).without_working_folder();
    let mut config = config::load(&sources)?;
    logging::init(&embedded::quiet(&config.log), config.secrets())?;
    config.warn_of_exposures(&sources);
    let program = program_reading(sources.used_file().as_deref());
    embedded::configure(&mut config, args.with.sandbox.into())?;
    apply_flags(&mut config, &args.with)?;
    git::require().await?;
    let repository = std::fs::canonicalize(&args.repo).map_err(|error| {
        Failure::new(
            Exit::NotFound,
            format!("{} cannot be opened", args.repo.display()),
        )
        .hint("--repo expects a git repository on this machine")
        .because(error)
    })?;
    if let Some(issue) = &args.issue
        && std::fs::read_to_string(issue).is_ok_and(|text| text.trim().is_empty())
    {
        return Err(
            Failure::new(Exit::Validation, format!("{} is empty", issue.display()))
                .hint("expected Markdown: a `# ` heading as the title, followed by the task")
                .into(),
        );
    }
    let (tracker, unreadable) = match &args.issue {
        Some(issue) => (open_issue(&repository, issue, &config.labels).await?, 0),
        None => {
            let folder = LocalTrackerConfig {
                repository: repository.clone(),
                issues: None,
            };
            let tracker = LocalTracker::new(&folder).map_err(refused)?;
            let unreadable = again::unreadable(&tracker)?;
            (tracker, unreadable)
        }
    };
    tracker.require_branch().map_err(refused)?;
    let tracker: Arc<dyn Tracker> = Arc::new(tracker);
    let model = model(&config)?;
    head(&config, &repository).await;
    let store = config.store.clone();
    let embedded =
        embedded::start(config, Arc::clone(&tracker), model, Unfinished::Continued).await?;
    let (ran, endings) = follow(embedded, started).await?;
    let waits = endings.is_empty() && waiting(&store, tracker.as_ref(), &program).await? > 0;
    if ran.found == 0 && ran.sessions == 0 && !waits {
        line("No open issue has the request label, so there is nothing to do.");
        line(
            "hint: pass one with --issue FILE, or put `labels: [coding agent]` in the front matter of a file in .agentmine/issues",
        );
        return Ok(match unreadable {
            0 => Exit::Done,
            _ => Exit::Validation,
        });
    }
    if endings.is_empty() {
        line("There is nothing to do now. hint: run the same command again later");
        return Ok(Exit::WrongState);
    }
    Ok(summaries(&repository, &endings, &program).await)
}

/// The tracker of one issue file, which has to be open.
async fn open_issue(repository: &Path, issue: &Path, labels: &Labels) -> Result<LocalTracker> {
    let tracker = LocalTracker::single(repository, issue).map_err(refused)?;
    // Such a file asks for work whatever its labels are, unless it is closed.
    if tracker.candidates(&labels.request).await?.is_empty() {
        return Err(Failure::new(
            Exit::WrongState,
            format!("{} is closed, as its front matter says", issue.display()),
        )
        .hint("set `state: open` there to have it worked on again")
        .into());
    }
    Ok(tracker)
}

/// The error for a repository or an issue file that cannot be used.
pub(crate) fn refused(error: TrackerError) -> Failure {
    let exit = match error {
        TrackerError::Refused { .. } | TrackerError::Confidential { .. } => Exit::Validation,
        TrackerError::Invalid { .. } | TrackerError::NotFound { .. } => Exit::NotFound,
        TrackerError::Unauthorized { .. }
        | TrackerError::Forbidden { .. }
        | TrackerError::Archived { .. }
        | TrackerError::RateLimited { .. }
        | TrackerError::Unavailable { .. }
        | TrackerError::NotPermitted { .. } => Exit::Other,
    };
    let text = error.to_string();
    match text.split_once(". hint: ") {
        Some((what, hint)) => Failure::new(exit, what.to_owned()).hint(hint.to_owned()),
        None => Failure::new(exit, text.clone()),
    }
}

/// No task could be claimed: prints which ones wait, and for what. Returns their number.
async fn waiting(store: &StoreConfig, tracker: &dyn Tracker, program: &str) -> Result<usize> {
    let store = agentmine_store::connect(store).await?;
    let mut tasks = 0;
    for task in store.tasks(&TaskFilter::default()).await? {
        if !tracker.serves(&task.item) {
            continue;
        }
        let why = task.reason.as_deref().map(clean);
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        match (task.state, task.lease_until) {
            (TaskState::Leased(_), Some(until)) => line(format!(
                "Task #{} is leased by another worker ({}); the lease runs out at {} unless it is renewed.",
                task.number,
                task.state,
                until.with_timezone(&chrono::Local).format("%H:%M:%S")
            )),
            (TaskState::Queued, _) => line(format!(
                "Task #{} is queued for another attempt{why}",
                task.number
            )),
            (TaskState::Paused, _) => line(format!(
                "Task #{0} is paused{why}. hint: {program} task resume {0}, then run the same command again",
                task.number
            )),
            (TaskState::Leased(_) | TaskState::Ended(_), _) => continue,
        }
        tasks += 1;
    }
    Ok(tasks)
}

/// The configured model.
pub(crate) fn model(config: &Config) -> Result<Arc<dyn Model>> {
    let model = agentmine_llm::from_config(&config.model).map_err(|error| {
        let text = error.to_string();
        let (why, hint) = text
            .split_once(". hint: ")
            .unwrap_or((&text, "correct it in the configuration"));
        let hint = match config.model.provider {
            Provider::Replay => format!("{hint}, or remove model.provider"),
            Provider::OpenAi | Provider::Anthropic => {
                format!("{hint}; or name a server and a model with --base-url and --model")
            }
        };
        Failure::new(Exit::Config, format!("the model cannot be used: {why}")).hint(hint)
    })?;
    Ok(model)
}

/// Prints what is worked on, and with what.
pub(crate) async fn head(config: &Config, repository: &Path) {
    line(format!("repository  {}", repository.display()));
    line(format!(
        "model       {} at {}",
        config.model.name,
        without_credentials(&config.model.base_url)
    ));
    again::uncommitted(repository).await;
    line("");
}

/// Prints how each task ended, and what the program returns for it.
pub(crate) async fn summaries(repository: &Path, endings: &[Ending], program: &str) -> Exit {
    for ending in endings {
        summary::print(repository, ending, Unfinished::Continued, program).await;
    }
    let is_done = |it: &Ending| it.end == Some(EndState::Done) && it.reason.is_none();
    match !endings.is_empty() && endings.iter().all(is_done) {
        true => Exit::Done,
        false => Exit::Other,
    }
}

/// Shows the progress of what runs until it ends.
pub(crate) async fn follow<T>(embedded: Embedded<T>, started: Instant) -> Result<(T, Vec<Ending>)> {
    let Embedded { progress, fleet } = embedded;
    let endings = live::show(progress, started).await;
    let ran = fleet.await.context("the fleet ended unexpectedly")??;
    Ok((ran, endings))
}

/// The user and the query of a URL may be a key.
fn without_credentials(url: &Url) -> String {
    format!("{}://{}", url.scheme(), &url[BeforeHost..AfterPath])
}

/// The address of the model from a flag, under the rules of the setting.
fn address(model: &ModelConfig, url: &str) -> Result<Url, Failure> {
    let parsed = Url::parse(url).map_err(|error| {
        // It may have a password.
        let shown = match url.contains('@') {
            true => String::new(),
            false => format!(" {url:?}"),
        };
        Failure::new(Exit::Validation, format!("--base-url{shown} is not a URL"))
            .hint("for example http://127.0.0.1:11434/v1")
            .because(error)
    })?;
    let flag = "--base-url";
    let faults = model.faults_of_address(&parsed, &ConfigPlace::Flag(flag.to_owned()));
    let Some(fault) = faults.into_iter().next() else {
        return Ok(parsed);
    };
    let text = format!("{flag}: {}, expected {}", fault.seen, fault.expected);
    let failure = Failure::new(Exit::Validation, text);
    Err(match fault.hint {
        Some(hint) => failure.hint(hint),
        None => failure.hint("for example http://127.0.0.1:11434/v1"),
    })
}

/// The flags that replace settings.
pub(crate) fn apply_flags(config: &mut Config, args: &LoopArgs) -> Result<()> {
    if let Some(url) = &args.base_url {
        config.model.base_url = address(&config.model, url)?;
    }
    if let Some(name) = &args.model {
        config.model.name.clone_from(name);
    }
    if args.check.iter().any(|command| command.trim().is_empty()) {
        return Err(Failure::new(
            Exit::Validation,
            "--check is an empty text, which would always succeed; expected a shell command",
        )
        .hint("for example --check 'make test'; without --check, the project's own checks run")
        .into());
    }
    if !args.check.is_empty() {
        config.agent.checks.clone_from(&args.check);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loop_args::SandboxArg;

    #[test]
    fn the_address_of_a_flag_has_the_rules_of_the_setting() {
        let mut model = ModelConfig::default();
        let local = "http://127.0.0.1:11434/v1";
        assert_eq!(address(&model, local).unwrap().as_str(), local);
        let refused = |model: &ModelConfig, url: &str| {
            let error = anyhow::Error::new(address(model, url).unwrap_err());
            assert_eq!(Exit::of(&error), Exit::Validation, "{error:#}");
            let text = agentmine_runtime::exit::render(&error);
            assert!(text.contains("--base-url"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
            text
        };
        refused(&model, "localhost:11434/v1");
        refused(&model, "ftp://h/v1");
        refused(&model, "http://u:hunter2@h:port/v1");
        let text = refused(&model, "http://u:hunter2@h/v1");
        assert!(text.contains("hint: put the key into"), "{text}");
        let openai = "https://api.openai.com/v1";
        assert!(address(&model, openai).is_ok());
        model.provider = Provider::Anthropic;
        refused(&model, openai);
    }

    #[test]
    fn a_blank_check_is_refused() {
        let with = |checks: &[&str]| LoopArgs {
            base_url: None,
            model: None,
            check: checks.iter().map(ToString::to_string).collect(),
            sandbox: SandboxArg::Local,
        };
        let mut config = Config::default();
        apply_flags(&mut config, &with(&["make test"])).unwrap();
        assert_eq!(config.agent.checks, ["make test"]);
        for blank in ["", " \t\n"] {
            let error = apply_flags(&mut config, &with(&["make test", blank])).unwrap_err();
            assert_eq!(Exit::of(&error), Exit::Validation, "{error:#}");
        }
    }
}
