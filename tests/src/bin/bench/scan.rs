//! What a scan of many repositories costs: requests, those that count toward the rate limit, time, and memory.
//!
//! The tracker alone runs in its own process. It asks what a producer asks: for the open pull requests and
//! the items with the request label in each scan, for the items that say that they are worked on
//! a lease after its start and every ten leases, and for commands in comments every 15 seconds, here in all repositories.
//! The memory is that of the real program ([`program`]).

mod goals;
mod program;

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use agentmine_domain::{ItemKind, ItemRef, TrackerKind};
use agentmine_runtime::config::{GitHub, GitLab, Labels, Secret};
use agentmine_tests::forge::{Fault, Forge, Seen};
use agentmine_trackers::{GitHubTracker, GitLabTracker, OpenPulls, Tracker};
use anyhow::{Context as _, Result, ensure};
use chrono::TimeDelta;
use clap::ValueEnum;
use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use url::Url;

use goals::Goals;

/// The variable with the token of the measured process.
const TOKEN: &str = "BENCH_SCAN_TOKEN";
/// Repositories that a producer reads comments of at once.
const AT_ONCE: usize = 8;
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
    /// Items that are labelled again before the last scan
    #[arg(long, default_value_t = 10)]
    changes: u64,
    /// Seconds in which nothing changes; from 60 on the checks of each pull request are looked at twice
    #[arg(long, default_value_t = 90)]
    idle: u64,
    /// Fail if a goal is missed
    #[arg(long)]
    check: bool,
}

fn names(repositories: u64) -> Vec<String> {
    (0..repositories).map(|n| format!("{OWNER}/r{n}")).collect()
}

/// Measures both forges.
pub(crate) async fn run(size: Size) -> Result<()> {
    let mut out = std::io::stdout();
    let mut goals = Goals::of(size.repositories, size.changes);
    writeln!(
        out,
        "| scan | requests | that count | seconds | items |\n|---|---|---|---|---|"
    )?;
    for kind in [Kind::Github, Kind::Gitlab] {
        measure(kind, size, &mut goals).await?;
    }
    program::measure(size, &mut goals).await?;
    writeln!(out, "\n{goals}")?;
    ensure!(!size.check || goals.are_met(), "a goal is missed");
    Ok(())
}

/// A forge with the labelled items and one pull request in each repository.
async fn filled(size: Size) -> Forge {
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
    }
    forge
}

/// Everything has been as it is for a while, and each answer takes its time from now on.
fn settle(forge: &Forge, size: Size) {
    // Triggers of items that have just changed are not remembered.
    forge.age(TimeDelta::hours(1));
    let wait = Duration::from_millis(size.wait);
    forge.inject(Fault::on("*", "/").times(usize::MAX).delay(wait));
}

fn change(forge: &Forge, size: Size) {
    for name in names(size.changes) {
        forge.add_issue(
            &name,
            "New",
            "It should greet.",
            &[&Labels::default().request],
        );
    }
}

async fn measure(kind: Kind, size: Size, goals: &mut Goals) -> Result<()> {
    let forge = filled(size).await;
    for name in names(size.repositories) {
        // Their author's token is that of the measured process.
        forge.add_pull(&name, "agentmine/work", "main", "Ours", &[]);
    }
    settle(&forge, size);
    let mut scanned = Scanned::start(kind, &forge, size.repositories).await?;
    let first = scanned.ask(Ask::Scan, &forge, "first").await?;
    goals.first_scan(kind, &first);
    let mut all = first.found;
    // On GitLab a scan asks for the triggers of some items only.
    while all < size.items {
        let more = scanned.ask(Ask::Scan, &forge, "next").await?.found;
        ensure!(more > all, "{more} items of {} were found", size.items);
        all = more;
    }
    scanned.ask(Ask::Scan, &forge, "idle").await?;
    let idle = scanned.ask(Ask::Scan, &forge, "idle again").await?;
    goals.idle_scan(kind, &idle);
    let what = "with items at work, first";
    scanned.ask(Ask::Everything, &forge, what).await?;
    let what = "with items at work, idle";
    goals.whole_idle_scan(kind, &scanned.ask(Ask::Everything, &forge, what).await?);
    for what in ["commands, first", "commands, idle"] {
        scanned.ask(Ask::Commands, &forge, what).await?;
    }
    change(&forge, size);
    let what = format!("{} changes", size.changes);
    let changed = scanned.ask(Ask::Scan, &forge, &what).await?;
    goals.changes(kind, &idle, &changed);
    scanned.child.kill().await?;
    Ok(())
}

/// What one scan cost.
#[derive(Debug, Clone, Copy)]
struct Cost {
    requests: usize,
    counted: usize,
    seconds: f64,
    /// Items with the label.
    found: u64,
}

/// Requests, and how many of them count toward the rate limit: an unchanged answer of GitHub does not.
fn counted(kind: Kind, requests: &[Seen]) -> (usize, usize) {
    let free = |it: &&Seen| kind == Kind::Github && it.status == 304;
    let free = requests.iter().filter(free).count();
    (requests.len(), requests.len() - free)
}

/// What the measured process is to ask for, by a line of its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ask {
    /// Open pull requests, and labelled items.
    Scan,
    /// Items at work too.
    Everything,
    /// Commands in comments.
    Commands,
}

/// The process that is measured.
struct Scanned {
    kind: Kind,
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
        let name = kind.to_possible_value().context("a kind has a name")?;
        let names = names(repositories);
        let ids: Vec<String> = names
            .iter()
            .map(|it| forge.repo_id(it).to_string())
            .collect();
        let mut child = Command::new(std::env::current_exe()?)
            .args(["scan-process", name.get_name(), api.as_str()])
            .arg(ids.join(","))
            .env(TOKEN, forge.human_token())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().context("its input")?;
        let output = child.stdout.take().context("its output")?;
        Ok(Self {
            kind,
            child,
            input,
            output: BufReader::new(output).lines(),
            seen: 0,
        })
    }

    /// Has it ask and prints what it cost; returns it.
    async fn ask(&mut self, ask: Ask, forge: &Forge, what: &str) -> Result<Cost> {
        let kind = self.kind;
        let line = ask.to_possible_value().context("it has a name")?;
        let line = format!("{}\n", line.get_name());
        self.input.write_all(line.as_bytes()).await?;
        let line = self.output.next_line().await?.context("it ended")?;
        let cost: Value = serde_json::from_str(&line)?;
        let requests = forge.requests();
        let (requests, counted) = counted(kind, &requests[self.seen..]);
        self.seen += requests;
        let cost = Cost {
            requests,
            counted,
            seconds: cost["seconds"].as_f64().context("seconds")?,
            found: cost["found"].as_u64().context("a number")?,
        };
        let Cost { seconds, found, .. } = cost;
        writeln!(
            std::io::stdout(),
            "| {kind:?}, {what} | {requests} | {counted} | {seconds:.1} | {found} |"
        )?;
        Ok(cost)
    }
}

/// The measured process: asks once for each line of its input.
pub(crate) async fn process(kind: Kind, api: Url, ids: &[u64]) -> Result<()> {
    let token = Some(Secret::new(std::env::var(TOKEN)?));
    let repositories = names(ids.len().try_into()?);
    let tracker: Box<dyn Tracker> = match kind {
        Kind::Github => Box::new(GitHubTracker::new(&GitHub {
            api_url: api,
            token,
            repositories: repositories.clone(),
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
    // The producer's store knows where there are pull requests of AgentMine.
    let place = |(id, path): (&u64, &String)| ItemRef {
        tracker: match kind {
            Kind::Github => TrackerKind::GitHub,
            Kind::Gitlab => TrackerKind::GitLab,
        },
        host: tracker.host().to_owned(),
        repo_id: id.to_string(),
        repo_path: path.clone(),
        kind: ItemKind::Issue,
        number: 1,
    };
    let places: Vec<ItemRef> = ids.iter().zip(&repositories).map(place).collect();
    let mut open = OpenPulls::default();
    while let Some(line) = lines.next_line().await? {
        let ask = Ask::from_str(&line, false).map_err(anyhow::Error::msg)?;
        let begun = Instant::now();
        let mut found = 0;
        if matches!(ask, Ask::Scan | Ask::Everything) {
            open = tracker.open_pulls(&places).await?;
            found = tracker.candidates(&labels.request).await?.len();
        }
        if ask == Ask::Everything {
            tracker.candidates(&labels.processing).await?;
        }
        if ask == Ask::Commands {
            for some in tracker.with_news(places.clone()).await?.chunks(AT_ONCE) {
                let looks = some.iter().map(|place| commands(&*tracker, place, &open));
                try_join_all(looks).await?;
            }
        }
        let cost = json!({
            "found": found,
            "seconds": begun.elapsed().as_secs_f64(),
        });
        writeln!(std::io::stdout(), "{cost}")?;
    }
    Ok(())
}

/// Looks for commands in a repository as the producer does.
async fn commands(tracker: &dyn Tracker, place: &ItemRef, open: &OpenPulls) -> Result<()> {
    let own = open.pulls.iter().filter(|it| it.repo_id == place.repo_id);
    let pulls: Vec<ItemRef> = own
        .map(|it| ItemRef {
            kind: ItemKind::PullRequest,
            number: it.number,
            ..place.clone()
        })
        .collect();
    tracker.recent_comments(place).await?;
    tracker.recent_reviews(&pulls).await?;
    Ok(())
}
