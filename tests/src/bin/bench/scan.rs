//! What a scan of many repositories costs: requests, those that count toward the rate limit, time, and memory.
//!
//! The tracker runs in a process of its own, so that the forge's memory is not measured. It asks what a producer asks: for
//! the items with the request label and the open pull requests in each scan, for the items that say that they are worked on
//! a lease after its start and every ten leases, and for commands in comments every 15 seconds, here in all repositories.

use std::collections::HashSet;
use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use agentmine_domain::{ItemKind, ItemRef};
use agentmine_runtime::config::{GitHub, GitLab, Labels, Secret};
use agentmine_tests::forge::{Fault, Forge};
use agentmine_trackers::{GitHubTracker, GitLabTracker, OpenPulls, Tracker};
use anyhow::{Context as _, Result, ensure};
use chrono::TimeDelta;
use clap::ValueEnum;
use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use url::Url;

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
    // Their author's token is that of the measured process.
    // Triggers of items that have just changed are not remembered.
    forge.age(TimeDelta::hours(1));
    let wait = Duration::from_millis(size.wait);
    forge.inject(Fault::on("*", "/").times(usize::MAX).delay(wait));
    let mut scanned = Scanned::start(kind, &forge, size.repositories).await?;
    scanned.ask(Ask::Nothing, &forge, "none").await?;
    let mut all = scanned.ask(Ask::Scan, &forge, "first").await?;
    // On GitLab a scan asks for the triggers of some items only.
    while all < size.items {
        let more = scanned.ask(Ask::Scan, &forge, "next").await?;
        ensure!(more > all, "{more} items of {} were found", size.items);
        all = more;
    }
    for what in ["idle", "idle again"] {
        scanned.ask(Ask::Scan, &forge, what).await?;
    }
    for what in ["with items at work, first", "with items at work, idle"] {
        scanned.ask(Ask::Everything, &forge, what).await?;
    }
    for what in ["commands, first", "commands, idle"] {
        scanned.ask(Ask::Commands, &forge, what).await?;
    }
    for n in 0..size.changes {
        let name = format!("{OWNER}/r{n}");
        forge.add_issue(&name, "New", "It should greet.", &[&labels.request]);
    }
    let what = format!("{} changes", size.changes);
    scanned.ask(Ask::Scan, &forge, &what).await?;
    scanned.child.kill().await?;
    Ok(())
}

/// What the measured process is to ask for, by a line of its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ask {
    /// Nothing: what the process itself takes.
    Nothing,
    /// Labelled items, and open pull requests.
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
        let mut child = Command::new(std::env::current_exe()?)
            .args(["scan-process", name.get_name(), api.as_str()])
            .arg(repositories.to_string())
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

    /// Has it ask and prints what it cost; returns how many items were found.
    async fn ask(&mut self, ask: Ask, forge: &Forge, what: &str) -> Result<u64> {
        let kind = self.kind;
        let line = ask.to_possible_value().context("it has a name")?;
        let line = format!("{}\n", line.get_name());
        self.input.write_all(line.as_bytes()).await?;
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

/// The measured process: asks once for each line of its input.
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
    let mut places: Vec<ItemRef> = Vec::new();
    let mut open = OpenPulls::default();
    while let Some(line) = lines.next_line().await? {
        let ask = Ask::from_str(&line, false).map_err(anyhow::Error::msg)?;
        let begun = Instant::now();
        let mut found = 0;
        if matches!(ask, Ask::Scan | Ask::Everything) {
            let items = tracker.candidates(&labels.request).await?;
            found = items.len();
            let mut known: HashSet<String> = places.iter().map(|it| it.repo_id.clone()).collect();
            let new = items.into_iter().map(|it| it.item);
            places.extend(new.filter(|it| known.insert(it.repo_id.clone())));
            open = tracker.open_pulls(&places).await?;
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
            "peak_kib": peak_kib()?,
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

/// The most memory that this process has used.
fn peak_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.context("no VmHWM")?.parse().context("no number")
}
