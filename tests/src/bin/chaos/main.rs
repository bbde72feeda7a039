//! The chaos suite as a program: long runs, and the faults of one seed.

use std::io::Write as _;
use std::time::Duration;

use agentmine_runtime::failpoint::Guard;
use agentmine_tests::chaos::{
    ForgeKind, GUARDS, Outcome, Plan, Rhythm, SandboxKind, Services, Setup, StoreKind, Table,
    binaries, notice, run_seed, walk,
};
use clap::{Args, Parser, Subcommand};

/// Runs fleets in which everything fails, and reports what they lost or doubled.
#[derive(Debug, Parser)]
#[command(name = "chaos")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs one or more seeds and prints the table.
    Run {
        #[command(flatten)]
        how: How,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many seeds, one after the other.
        #[arg(long, default_value_t = 1)]
        seeds: u64,
        /// Only the faults with these numbers; without a number, none.
        #[arg(long, value_delimiter = ',', num_args = 0..)]
        only: Option<Vec<usize>>,
    },
    /// Kills a process at every failpoint.
    Walk {
        #[command(flatten)]
        how: How,
        /// Decides the order.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How often.
        #[arg(long, default_value_t = 1)]
        rounds: u64,
        /// Seconds for one walk.
        #[arg(long, default_value_t = 240)]
        limit: u64,
    },
    /// Switches protections off, one at a time, and runs seeds until the suite notices.
    Guards {
        #[command(flatten)]
        how: How,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many seeds at most for each.
        #[arg(long, default_value_t = 12)]
        seeds: u64,
    },
    /// Looks for a shorter list of faults with which a seed still fails.
    Shrink {
        #[command(flatten)]
        how: How,
        /// The failing seed.
        #[arg(long)]
        seed: u64,
        /// How often each list is tried before it counts as clean.
        #[arg(long, default_value_t = 3)]
        tries: usize,
    },
}

#[derive(Debug, Args)]
struct How {
    /// Issues of each seed.
    #[arg(long, default_value_t = 10)]
    tasks: usize,
    /// Faults of each seed, besides those that people make.
    #[arg(long, default_value_t = 14)]
    faults: usize,
    /// Seconds during which faults happen.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// The forge.
    #[arg(long, value_enum, default_value = "github")]
    forge: ForgeKind,
    /// The store.
    #[arg(long, value_enum, default_value = "postgres")]
    store: StoreKind,
    /// The sandboxes.
    #[arg(long, value_enum, default_value = "local")]
    sandbox: SandboxKind,
    /// Number of consumers.
    #[arg(long, default_value_t = 3)]
    consumers: usize,
    /// Tasks that each consumer runs at once.
    #[arg(long, default_value_t = 2)]
    concurrency: usize,
    /// The times of the default configuration instead of short ones.
    #[arg(long)]
    default_times: bool,
    /// Protections to switch off: fence, look-up, confirm, outbox, grace, second-net.
    #[arg(long, value_delimiter = ',', value_parser = guard)]
    without: Vec<Guard>,
    /// Keep the logs of failing seeds.
    #[arg(long)]
    keep: bool,
}

fn guard(name: &str) -> Result<Guard, String> {
    let found = Guard::ALL.into_iter().find(|it| it.as_str() == name);
    found.ok_or_else(|| format!("there is no guard {name:?}"))
}

impl How {
    fn setup(&self) -> Setup {
        Setup {
            forge: self.forge,
            store: self.store,
            sandbox: self.sandbox,
            rhythm: if self.default_times {
                Rhythm::DEFAULT
            } else {
                Rhythm::FAST
            },
            consumers: self.consumers,
            concurrency: self.concurrency,
            without: Vec::new(),
            binaries: binaries(),
        }
        .without(&self.without)
    }

    fn plan(&self, seed: u64, only: Option<Vec<usize>>) -> Plan {
        Plan {
            seed,
            tasks: self.tasks,
            faults: self.faults,
            length: Duration::from_secs(self.seconds),
            only,
        }
    }
}

fn line(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn kept(services: Services) {
    for folder in services.keep() {
        line(format!("kept: {}", folder.display()));
    }
}

fn show(outcome: &Outcome) {
    line(format!(
        "seed {}: {} tasks, {} faults, settled after {:.1} s, {} findings",
        outcome.seed,
        outcome.tasks,
        outcome.list.len(),
        outcome.settled_after.as_secs_f32(),
        outcome.findings.len()
    ));
    if !outcome.findings.is_empty() {
        for fault in &outcome.list {
            line(format!("    {fault}"));
        }
        for finding in &outcome.findings {
            line(format!("  {finding}"));
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<std::process::ExitCode> {
    let clean = match Cli::parse().command {
        Command::Run {
            how,
            seed,
            seeds,
            only,
        } => run(&how, seed..seed + seeds, only).await?,
        Command::Walk {
            how,
            seed,
            rounds,
            limit,
        } => walk_all(&how, seed..seed + rounds, Duration::from_secs(limit)).await?,
        Command::Guards { how, seed, seeds } => guards(&how, seed..seed + seeds).await?,
        Command::Shrink { how, seed, tries } => {
            shrink(&how, seed, tries).await?;
            true
        }
    };
    Ok(match clean {
        true => std::process::ExitCode::SUCCESS,
        false => std::process::ExitCode::FAILURE,
    })
}

async fn run(
    how: &How,
    seeds: std::ops::Range<u64>,
    only: Option<Vec<usize>>,
) -> anyhow::Result<bool> {
    let mut services = Services::start(how.store, how.sandbox).await?;
    let mut table = Table::default();
    for seed in seeds {
        let plan = how.plan(seed, only.clone());
        let outcome = run_seed(&how.setup(), &mut services, &plan).await?;
        show(&outcome);
        table.add(&outcome);
    }
    line(format!("\n{table}"));
    if how.keep && !table.is_clean() {
        kept(services);
    }
    Ok(table.is_clean())
}

async fn walk_all(how: &How, seeds: std::ops::Range<u64>, limit: Duration) -> anyhow::Result<bool> {
    let mut services = Services::start(how.store, how.sandbox).await?;
    let mut table = Table::default();
    let mut complete = true;
    for seed in seeds {
        let outcome = walk(&how.setup(), &mut services, seed, limit).await?;
        show(&outcome);
        if !outcome.missed.is_empty() {
            line(format!("  not killed at {}", outcome.missed.join(", ")));
        }
        complete &= outcome.missed.is_empty();
        table.add(&outcome);
    }
    line(format!("\n{table}"));
    if how.keep && !(complete && table.is_clean()) {
        kept(services);
    }
    Ok(complete && table.is_clean())
}

async fn guards(how: &How, seeds: std::ops::Range<u64>) -> anyhow::Result<bool> {
    let setup = how.setup();
    let mut services = Services::start(how.store, how.sandbox).await?;
    let mut all = true;
    let chosen = match how.without.is_empty() {
        true => &GUARDS[..],
        false => &how.without[..],
    };
    for &guard in chosen {
        let noticed = notice(&setup, &mut services, guard, seeds.clone()).await?;
        all &= !noticed.findings.is_empty();
        line(noticed);
    }
    if how.keep {
        kept(services);
    }
    Ok(all)
}

/// Omits parts of the list as long as the seed still fails: halves first, then smaller parts.
async fn shrink(how: &How, seed: u64, tries: usize) -> anyhow::Result<()> {
    let mut services = Services::start(how.store, how.sandbox).await?;
    let mut fails = async |numbers: Option<Vec<usize>>| {
        for _ in 0..tries {
            let plan = how.plan(seed, numbers.clone());
            let outcome = run_seed(&how.setup(), &mut services, &plan).await?;
            if !outcome.findings.is_empty() {
                return anyhow::Ok(Some(outcome));
            }
        }
        Ok(None)
    };
    let Some(mut failing) = fails(None).await? else {
        line(format!("seed {seed} did not fail in {tries} tries"));
        return Ok(());
    };
    let mut kept: Vec<usize> = failing.numbers();
    let mut part = kept.len().div_ceil(2);
    while part > 0 {
        let mut shorter = None;
        for from in (0..kept.len()).step_by(part) {
            let to = (from + part).min(kept.len());
            let rest: Vec<usize> = [&kept[..from], &kept[to..]].concat();
            line(format!("trying without {:?}", &kept[from..to]));
            if let Some(outcome) = fails(Some(rest.clone())).await? {
                shorter = Some((rest, outcome));
                break;
            }
        }
        match shorter {
            Some((rest, outcome)) => {
                (kept, failing) = (rest, outcome);
                part = part.min(kept.len());
            }
            None => part /= 2,
        }
    }
    show(&failing);
    line(repetition(std::env::args().skip(1), &kept));
    Ok(())
}

/// The command that runs these faults in the way in which the list was shrunk.
fn repetition(args: impl Iterator<Item = String>, numbers: &[usize]) -> String {
    let mut command = vec!["chaos".to_owned(), "run".to_owned()];
    // Without the subcommand, and without what `run` does not know.
    let mut args = args.skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--tries" => drop(args.next()),
            arg if arg.starts_with("--tries=") => {}
            _ => command.push(arg),
        }
    }
    command.push("--only".to_owned());
    let texts: Vec<String> = numbers.iter().map(usize::to_string).collect();
    if !texts.is_empty() {
        command.push(texts.join(","));
    }
    command.join(" ")
}
