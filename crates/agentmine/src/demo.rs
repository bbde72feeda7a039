//! `agentmine demo`: a small repository with a failing test, an issue about it, and recorded model replies.
//! Everything else is real.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

use agentmine_domain::EndState;
use agentmine_llm::recording;
use agentmine_llm::replay::Replay;
use agentmine_runtime::config::{BackendKind, Config};
use agentmine_runtime::exit::{Exit, Failure};
use agentmine_runtime::logging;
use agentmine_trackers::local::LocalTracker;
use anyhow::{Context as _, Result};
use tokio::process::Command;

use crate::args::DemoArgs;
use crate::embedded::{self, Unfinished};
use crate::git;
use crate::paths::state_dir;
use crate::print::{line, program, program_reading};
use crate::run::follow;
use crate::summary;

const FILES: [(&str, &str); 3] = [
    ("slug.sh", include_str!("../demo/slug.sh")),
    ("test.sh", include_str!("../demo/test.sh")),
    ("README.md", include_str!("../demo/README.md")),
];
const ISSUE: &str = include_str!("../demo/issue.md");
const RECORDING: &str = include_str!("../demo/recording.jsonl");

/// The variables that name a database. The demo reads no setting, but the commands that it names do.
const OTHER_DATABASES: [&str; 2] = ["AGENTMINE_STORE_URL", "AGENTMINE_STORE_URL_FILE"];

/// Creates the repository, runs the fleet on it and shows the result.
pub(crate) async fn run(args: DemoArgs) -> Result<Exit> {
    let started = Instant::now();
    let mut config = Config::default();
    logging::init(&embedded::quiet(&config.log), config.secrets())?;
    git::require().await?;
    let folder = match args.dir {
        Some(dir) => dir,
        None => state_dir()?
            .join("demo")
            .join(chrono::Local::now().format("%Y%m%d-%H%M%S%3f").to_string()),
    };
    let (repository, issue) = make(&folder).await?;
    embedded::configure(&mut config, BackendKind::Local)?;
    // The replies are ours, so any jail is strong enough.
    config.command_executor.local.accept_weaker_limits = true;
    config.model.name = "recorded replies".into();
    let tracker = Arc::new(LocalTracker::single(&repository, &issue)?);
    let model = Arc::new(Replay::from_lines(recording::parse(
        RECORDING,
        "the demo's recording",
    )?));
    line(
        "AgentMine demo: an issue becomes a branch with proof that it works. Nothing leaves this machine.",
    );
    line("");
    line(format!(
        "repository  {} (just created; its test fails)",
        repository.display()
    ));
    line(format!(
        "issue       {}",
        ISSUE
            .lines()
            .find_map(|l| l.strip_prefix("# "))
            .unwrap_or("")
    ));
    line("model       recorded replies; the sandbox, git, commands and checks are real");
    line("");
    let embedded = embedded::start(config, tracker, model, Unfinished::Abandoned).await?;
    let (_, endings) = follow(embedded, started).await?;
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let others: Vec<&str> = OTHER_DATABASES.into_iter().filter(is_set).collect();
    let reading = reading(&program_reading(None), &others);
    for ending in &endings {
        summary::print(&repository, ending, Unfinished::Abandoned, &reading).await;
    }
    let good = endings
        .iter()
        .any(|e| e.end == Some(EndState::Done) && e.reason.is_none());
    if good {
        line("");
        line(format!(
            "next         {} run --repo PATH --issue FILE.md --base-url URL --model NAME",
            program()
        ));
    }
    Ok(if good { Exit::Done } else { Exit::Other })
}

/// The command that reads the demo's database, in an environment with these variables.
fn reading(program: &str, others: &[&str]) -> String {
    match others {
        [] => program.to_owned(),
        _ => format!("env -u {} {program}", others.join(" -u ")),
    }
}

/// Writes the sample repository, and the issue next to it.
async fn make(folder: &Path) -> Result<(PathBuf, PathBuf)> {
    let repository = folder.join("slug");
    if repository.exists() {
        return Err(Failure::new(
            Exit::Validation,
            format!("{} already exists", repository.display()),
        )
        .hint("choose another folder with --dir")
        .into());
    }
    std::fs::create_dir_all(&repository)
        .with_context(|| format!("{} cannot be created", repository.display()))?;
    for (name, text) in FILES {
        std::fs::write(repository.join(name), text)?;
    }
    let issue = folder.join("issue.md");
    std::fs::write(&issue, ISSUE)?;
    run_git(&repository, &["init", "--quiet", "--initial-branch=main"]).await?;
    run_git(&repository, &["add", "."]).await?;
    run_git(
        &repository,
        &[
            "-c",
            "user.name=AgentMine demo",
            "-c",
            "user.email=demo@localhost",
            "-c",
            "commit.gpgsign=false",
            "commit",
            "--quiet",
            "--no-verify",
            "-m",
            "Turn titles into slugs",
        ],
    )
    .await?;
    Ok((std::fs::canonicalize(&repository)?, issue))
}

async fn run_git(repository: &Path, args: &[&str]) -> Result<()> {
    let home = agentmine_git::GitHome::new().context("the temporary folder cannot be written")?;
    let output = Command::from(home.git(agentmine_git::Errand::Trusted))
        .args(args)
        .current_dir(repository)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .await
        .context("git cannot be started")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Failure::new(Exit::NotFound, format!("git {} failed: {said}", args[0])).into())
}
