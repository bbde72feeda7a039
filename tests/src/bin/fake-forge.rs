//! The fake forge as a program, to run a fleet without an account anywhere.

use std::io::Write;
use std::path::PathBuf;

use agentmine_tests::forge::{DEMO, Forge};
use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// A server that speaks GitHub's REST API and git. It keeps its state in memory only.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Address to listen on; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:8930")]
    listen: String,
    /// An empty folder for the git repositories [default: a temporary one]
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// The token that AgentMine uses.
    #[arg(long, default_value = "local-token")]
    token: String,
    /// Initial contents.
    #[arg(long, value_enum)]
    seed: Option<Seed>,
    /// The label of the sample issue.
    #[arg(long, default_value = "coding agent")]
    label: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Seed {
    /// A repository with a failing shell test, and an issue about it.
    Demo,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let temporary = tempfile::tempdir().context("no temporary folder")?;
    let folder = match &args.data_dir {
        Some(folder) => empty(folder)?,
        None => temporary.path().to_path_buf(),
    };
    let listener = TcpListener::bind(&args.listen)
        .await
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let forge = Forge::serve(listener, &folder, &args.token);
    if let Some(Seed::Demo) = args.seed {
        forge.seed_demo(&args.label);
    }
    announce(&forge)?;
    let mut term = signal(SignalKind::terminate()).context("no signal handler")?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted.context("no signal handler")?,
        _ = term.recv() => {}
    }
    Ok(())
}

fn empty(folder: &PathBuf) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let folder = folder.canonicalize()?;
    if folder.read_dir()?.next().is_some() {
        bail!(
            "{} is not empty. hint: choose a new folder",
            folder.display()
        );
    }
    Ok(folder)
}

fn announce(forge: &Forge) -> std::io::Result<()> {
    let (page, api, token) = (forge.html_url(), forge.api_url(), forge.token());
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "The forge is at {page}\n\
         \n\
         config.yaml:\n  trackers:\n    github:\n      api_url: {api}\n      repositories: [{DEMO}]\n\
         \n\
         then:\n  export GITHUB_PERSONAL_ACCESS_TOKEN={token}\n  producer --config config.yaml --once\n  consumer --config config.yaml --once\n\
         \n\
         to add an issue:\n  curl -H 'Authorization: Bearer {token}' {api}repos/{DEMO}/issues \\\n    -d '{{\"title\":\"…\",\"body\":\"…\",\"labels\":[\"coding agent\"]}}'\n\
         \n\
         Stop it with Ctrl-C."
    )?;
    out.flush()
}
