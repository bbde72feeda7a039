//! The attack suite as a program: attacks in each kind of sandbox, and the table.

use std::io::Write as _;
use std::process::ExitCode;

use agentmine_tests::attack::{
    Cell, Family, Lacking, Report, Rights, Selection, Table, all, build_all, build_apart,
    demonstrate, demonstrate_here, differential, price, run_apart, run_here,
};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Attacks sandboxes and the gateway as an injected model would, and reports what was not blocked.
#[derive(Debug, Parser)]
#[command(name = "attacks")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs attacks and prints the table. Fails if one was not blocked, or could not be carried out.
    Run {
        #[command(flatten)]
        which: Which,
        /// In which kinds of sandbox.
        #[arg(long, value_enum, value_delimiter = ',', default_value = "all")]
        backend: Vec<Kind>,
        /// One line of JSON for each attack instead of the table.
        #[arg(long)]
        json: bool,
    },
    /// Builds and tests small projects of each language in each kind of sandbox.
    Builds {
        /// In which kinds of sandbox.
        #[arg(long, value_enum, value_delimiter = ',', default_value = "all")]
        backend: Vec<Kind>,
        /// Only the project of this name.
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
    },
    /// Builds in this process; `builds` starts it.
    #[command(hide = true)]
    BuildsIn { cell: Cell, only: Vec<String> },
    /// Lists the attacks.
    List,
    /// Carries attacks out where the control is missing, and they must succeed. Fails if one did not.
    Controls {
        /// What lacks the control; all kinds, if none is named.
        #[arg(long, value_enum, value_delimiter = ',')]
        kind: Vec<Lacking>,
        /// Only the attack of this name.
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
    },
    /// Carries attacks out in this process; `controls` starts it.
    #[command(hide = true)]
    ControlsIn {
        kind: Lacking,
        rights: Rights,
        /// Only the attack of this name.
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
    },
    /// Sends the same raw pushes to the gateway and to `git receive-pack` alone, and compares.
    Differential {
        /// Decides the requests.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many.
        #[arg(long, default_value_t = 500)]
        requests: usize,
    },
    /// Measures the same task with the hardening and without, in turns.
    Price {
        /// How often; the medians are printed.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// In which kinds of sandbox.
        #[arg(
            long,
            value_enum,
            value_delimiter = ',',
            default_value = "docker,bubblewrap"
        )]
        backend: Vec<Kind>,
    },
    /// Runs attacks in this process; `run` starts it.
    #[command(hide = true)]
    Cell {
        cell: Cell,
        #[command(flatten)]
        which: Which,
    },
}

#[derive(Debug, Args)]
struct Which {
    /// Only this family.
    #[arg(long, value_enum)]
    family: Vec<Family>,
    /// Only the attack of this name.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

impl From<Which> for Selection {
    fn from(which: Which) -> Self {
        Self {
            families: which.family,
            names: which.only,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// A Docker container.
    Docker,
    /// The local jail with bubblewrap; for root also of a user without rights.
    Bubblewrap,
    /// The local jail without namespaces; for root also of a user without rights.
    Landlock,
    /// All of them.
    All,
}

impl Kind {
    fn cells(self) -> &'static [Cell] {
        // SAFETY: it only returns a number.
        let root = unsafe { libc::geteuid() } == 0;
        match (self, root) {
            (Self::Docker, _) => &[Cell::Docker],
            (Self::Bubblewrap, true) => &[Cell::Bubblewrap, Cell::BubblewrapUnprivileged],
            (Self::Bubblewrap, false) => &[Cell::Bubblewrap],
            (Self::Landlock, true) => &[Cell::Landlock, Cell::LandlockUnprivileged],
            (Self::Landlock, false) => &[Cell::Landlock],
            (Self::All, true) => Cell::value_variants(),
            (Self::All, false) => &[Cell::Docker, Cell::Bubblewrap, Cell::Landlock],
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    agentmine_runtime::tls::install_default_provider();
    match Cli::parse().command {
        Command::Run {
            which,
            backend,
            json,
        } => run(&which.into(), &backend, json).await,
        Command::Builds { backend, only } => builds(&backend, &only).await,
        Command::BuildsIn { cell, only } => {
            for built in build_all(cell, &only).await? {
                writeln!(std::io::stdout(), "{}", serde_json::to_string(&built)?)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::List => list(),
        Command::Controls { kind, only } => controls(&kind, &only).await,
        Command::ControlsIn { kind, rights, only } => {
            demonstrate_here(kind, rights, &only).await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Differential { seed, requests } => compare(seed, requests).await,
        Command::Price { rounds, backend } => price_of(&backend, rounds).await,
        Command::Cell { cell, which } => {
            run_here(cell, &which.into()).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn run(selection: &Selection, kinds: &[Kind], json: bool) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout();
    let program = std::env::current_exe()?;
    let mut report = Report::default();
    for &cell in kinds.iter().flat_map(|kind| kind.cells()) {
        report.add(run_apart(&program, cell, selection).await?);
    }
    if json {
        for finding in report.findings() {
            writeln!(out, "{}", serde_json::to_string(finding)?)?;
        }
    } else {
        write!(out, "{report}")?;
    }
    Ok(ExitCode::from(u8::from(!report.is_clean())))
}

fn list() -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout();
    for attack in all() {
        writeln!(
            out,
            "{:<13} {:<34} {}",
            attack.family, attack.name, attack.what
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn compare(seed: u64, requests: usize) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout();
    let found = differential(seed, requests).await?;
    writeln!(
        out,
        "{} requests: git alone carried out {}, the gateway let {} through",
        found.requests, found.carried_out_by_git, found.let_through
    )?;
    for fault in &found.faults {
        writeln!(out, "  {fault}")?;
    }
    Ok(ExitCode::from(u8::from(!found.faults.is_empty())))
}

async fn controls(kinds: &[Lacking], names: &[String]) -> anyhow::Result<ExitCode> {
    let kinds = if kinds.is_empty() {
        Lacking::value_variants()
    } else {
        kinds
    };
    let table = Table::new(demonstrate(&std::env::current_exe()?, kinds, names).await?);
    write!(std::io::stdout(), "{table}")?;
    Ok(ExitCode::from(u8::from(!table.failed().is_empty())))
}

async fn price_of(kinds: &[Kind], rounds: usize) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout();
    for kind in kinds {
        // The rights of the worker make no difference to the time.
        let Some(&cell) = kind.cells().first() else {
            continue;
        };
        writeln!(
            out,
            "{cell:<48} {:>12} {:>12} {:>8}",
            "plain", "hardened", "ratio"
        )?;
        for part in Box::pin(price(cell, rounds)).await? {
            writeln!(out, "{part}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn builds(kinds: &[Kind], only: &[String]) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout();
    let program = std::env::current_exe()?;
    for &cell in kinds.iter().flat_map(|kind| kind.cells()) {
        for built in build_apart(&program, cell, only).await? {
            let result = match built.result {
                Ok(time) => format!("passed in {:.1} s", time.as_secs_f32()),
                Err(None) => "no tools".to_owned(),
                Err(Some(why)) => format!("FAILED: {why}"),
            };
            writeln!(out, "{cell:<23} {:<27} {result}", built.project)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
