//! What a scan of many repositories costs: requests, those that count toward the rate limit, time, and memory.
//!
//! The tracker runs in a process of its own, so that the forge's memory is not measured. Both labels are looked for that
//! a producer looks for, that of the request and that of items at work.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use agentmine_runtime::config::{GitHub, GitLab, Labels, Secret};
use agentmine_tests::forge::{Fault, Forge};
use agentmine_trackers::{GitHubTracker, GitLabTracker, Tracker};
use anyhow::{Context as _, Result, ensure};
use chrono::TimeDelta;
use clap::ValueEnum;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use url::Url;

/// The variable with the token of the measured process.
const TOKEN: &str = "BENCH_SCAN_TOKEN";
/// Whose repositories they are.
const OWNER: &str = "octo";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Github,
    Gitlab,
}

/// How much there is.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Size {
    /// Repositories
    #[arg(long, default_value_t = 500)]
    repositories: u64,
    /// Labelled items, spread over the repositories
    #[arg(long, default_value_t = 10_000)]
    items: u64,
    /// Milliseconds before each answer
    #[arg(long, default_value_t = 50)]
    wait: u64,
    /// Items that are labelled anew before the last scan
    #[arg(long, default_value_t = 10)]
    changes: u64,
}

fn names(repositories: u64) -> Vec<String> {
    (0..repositories).map(|n| format!("{OWNER}/r{n}")).collect()
}

/// Measures both forges.
pub(crate) async fn run(size: Size) -> Result<()> {
    writeln!(
        std::io::stdout(),
        "| forge | scan | requests | that count | seconds | items | peak MB |"
    )?;
    writeln!(std::io::stdout(), "|---|---|---|---|---|---|---|")?;
    for kind in [Kind::Github, Kind::Gitlab] {
        measure(kind, size).await?;
    }
    Ok(())
}

async fn measure(kind: Kind, size: Size) -> Result<()> {
    let forge = Forge::start().await;
    let labels = Labels::default();
    for name in names(size.repositories) {
        forge.add_repo_without_git(&name);
        for n in 0..size.items / size.repositories {
            forge.add_issue(
                &name,
                &format!("Item {n}"),
                "It should greet.",
                &[&labels.request],
            );
        }
        forge.add_pull(&name, "agentmine/work", "main", "Ours", &[]);
    }
    // Triggers of items that have just changed are not remembered.
    forge.age(TimeDelta::hours(1));
    let wait = Duration::from_millis(size.wait);
    forge.inject(Fault::on("*", "/").times(usize::MAX).delay(wait));
    let mut scanned = Scanned::start(kind, &forge, size.repositories).await?;
    let mut all = scanned.scan(kind, &forge, "first").await?;
    // On GitLab a scan asks for the triggers of some items only.
    while all < size.items {
        let more = scanned.scan(kind, &forge, "next").await?;
        ensure!(more > all, "{more} items of {} were found", size.items);
        all = more;
    }
    for _ in 0..2 {
        scanned.scan(kind, &forge, "idle").await?;
    }
    for n in 0..size.changes {
        let name = format!("{OWNER}/r{n}");
        forge.add_issue(&name, "New", "It should greet.", &[&labels.request]);
    }
    let what = format!("{} changes", size.changes);
    scanned.scan(kind, &forge, &what).await?;
    scanned.child.kill().await?;
    Ok(())
}

/// The process that is measured.
struct Scanned {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    seen: usize,
}

impl Scanned {
    async fn start(kind: Kind, forge: &Forge, repositories: u64) -> Result<Self> {
        let api = match kind {
            Kind::Github => forge.api_url(),
            Kind::Gitlab => forge.gitlab_url(),
        };
        let kind = kind.to_possible_value().context("a kind has a name")?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["scan-process", kind.get_name(), api.as_str()])
            .arg(repositories.to_string())
            .env(TOKEN, forge.token())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().context("its input")?;
        let output = child.stdout.take().context("its output")?;
        Ok(Self {
            child,
            input,
            output: BufReader::new(output).lines(),
            seen: 0,
        })
    }

    /// Scans once and prints what it cost; returns how many items were found.
    async fn scan(&mut self, kind: Kind, forge: &Forge, what: &str) -> Result<u64> {
        self.input.write_all(b"scan\n").await?;
        let line = self.output.next_line().await?.context("it ended")?;
        let cost: Value = serde_json::from_str(&line)?;
        let requests = forge.requests();
        let new = &requests[self.seen..];
        self.seen = requests.len();
        // An unchanged answer of GitHub is free.
        let free = new
            .iter()
            .filter(|it| kind == Kind::Github && it.status == 304);
        let counted = new.len() - free.count();
        let found = cost["found"].as_u64().context("a number")?;
        let seconds = cost["seconds"].as_f64().unwrap_or_default();
        let megabytes = cost["peak_kib"].as_f64().unwrap_or_default() / 1024.0;
        writeln!(
            std::io::stdout(),
            "| {kind:?} | {what} | {} | {counted} | {seconds:.1} | {found} | {megabytes:.0} |",
            new.len()
        )?;
        Ok(found)
    }
}

/// The measured process: scans once for each line of its input.
pub(crate) async fn process(kind: Kind, api: Url, repositories: u64) -> Result<()> {
    let token = Some(Secret::new(std::env::var(TOKEN)?));
    let tracker: Box<dyn Tracker> = match kind {
        Kind::Github => Box::new(GitHubTracker::new(&GitHub {
            api_url: api,
            token,
            repositories: names(repositories),
            ..GitHub::default()
        })?),
        Kind::Gitlab => Box::new(GitLabTracker::new(&GitLab {
            api_url: api,
            token,
            groups: vec![OWNER.to_owned()],
            ..GitLab::default()
        })?),
    };
    let labels = Labels::default();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while lines.next_line().await?.is_some() {
        let begun = Instant::now();
        let found = tracker.candidates(&labels.request).await?.len();
        tracker.candidates(&labels.processing).await?;
        let cost = json!({
            "found": found,
            "seconds": begun.elapsed().as_secs_f64(),
            "peak_kib": peak_kib()?,
        });
        writeln!(std::io::stdout(), "{cost}")?;
    }
    Ok(())
}

/// The most memory that this process has used.
fn peak_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.context("no VmHWM")?.parse().context("no number")
}
