//! Benchmarks of AgentMine's own overhead, each figure next to a floor measured in the same run.
//!
//! `cargo run --release -p agentmine-tests --bin bench -- --help`. Build with `--release`, and leave
//! the machine idle while a benchmark runs. The goals are printed below each table.

mod bytes;
mod command;
mod control;
mod count;
mod cycle;
mod density;
mod editor;
mod editors;
mod fleet;
mod git;
mod machine;
mod mcp;
mod memory;
mod peers;
mod plain;
mod pool;
mod queue;
mod scan;
mod short;
mod start;
mod step;
mod steps;
mod still;
mod table;
mod timed;
mod tree;
mod verify;
mod whole;

use std::io::Write as _;
use std::time::Duration;

use agentmine_runtime::tls;
use clap::{Parser, Subcommand, ValueEnum};

/// Measures AgentMine's own overhead.
#[derive(Debug, Parser)]
#[command(name = "bench", version)]
struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Overhead of one step of the agent loop, model and tool time excluded
    Loop {
        /// Steps in the measured conversation
        #[arg(long, default_value_t = 500)]
        steps: u32,
        /// Also measure this Postgres server; a database is created on it and dropped afterwards
        #[arg(long, env = "AGENTMINE_TEST_POSTGRES_URL", hide_env_values = true)]
        postgres: Option<String>,
    },
    /// One step through the real tools, with checkpoints: a no-op command, a new file, an edit, a view
    Step {
        #[command(flatten)]
        on: On,
        #[command(flatten)]
        project: step::Project,
        /// Numbers of files in the project, one measurement each
        #[arg(long, value_delimiter = ',', default_value = "100,10000,100000")]
        files: Vec<u32>,
        /// Measured steps
        #[arg(long, default_value_t = 200)]
        steps: u32,
        /// Fail if a step takes more than this many times its floor
        #[arg(long)]
        most: Option<f64>,
        /// Count programs started and system calls with strace, and measure no time
        #[arg(long, conflicts_with = "most")]
        count: bool,
    },
    /// A command through the guest, compared with fork, exec and wait in the same sandbox
    Command {
        #[command(flatten)]
        on: On,
        /// Rounds of each command
        #[arg(long, default_value_t = 300)]
        rounds: u32,
    },
    /// From the claim to the first model call, compared with create, start and `git clone` alone
    Start {
        #[command(flatten)]
        on: On,
        #[command(flatten)]
        setup: start::Setup,
    },
    /// From the model's last reply to the facts, without the checks, compared with create, start and `git clone` alone
    Verify {
        #[command(flatten)]
        on: On,
        /// Number of tasks
        #[arg(long, default_value_t = 10)]
        rounds: u32,
        /// Sandboxes that are started ahead of the tasks
        #[arg(long, default_value_t = 0)]
        warm: usize,
        /// Milliseconds that the model takes for its last reply
        #[arg(long, default_value_t = 0)]
        reply: u64,
    },
    /// Round trip of a text editor call, compared with bytes through `cat` in the same tunnel
    Editor {
        #[command(flatten)]
        on: On,
        /// Calls of each kind
        #[arg(long, default_value_t = 500)]
        rounds: u32,
    },
    /// What queue and store cost a fleet, on Postgres and RabbitMQ; the same work by Celery, if it is installed
    Fleet {
        /// Tasks that wait when the slots begin
        #[arg(long, default_value_t = 10_000)]
        tasks: u32,
        /// Numbers of slots, one measurement each
        #[arg(long, value_delimiter = ',', default_value = "1,10,50")]
        consumers: Vec<usize>,
        /// Numbers of tasks that are over, one measurement each
        #[arg(long, value_delimiter = ',', default_value = "0,1000000")]
        ended: Vec<u32>,
        /// Tasks for the real consumer, with a sandbox and a model that answer at once; 0 omits it
        #[arg(long, default_value_t = 1000)]
        whole: u32,
        /// The Postgres server; databases are created on it and dropped afterwards
        #[arg(long, env = "AGENTMINE_TEST_POSTGRES_URL", hide_env_values = true)]
        postgres: String,
        /// The RabbitMQ server
        #[arg(long, env = "AGENTMINE_TEST_AMQP_URL", hide_env_values = true)]
        amqp: String,
        /// Where Celery is installed: `pip install --target FOLDER -r tests/services/celery.txt`
        #[arg(long)]
        celery: Option<String>,
    },
    /// 100 MB of output, a 10 MB file and pushes, beside a bare pipe and a bare `git push`
    Bytes {
        #[command(flatten)]
        on: On,
        /// Rounds of each kind of transfer
        #[arg(long, default_value_t = 9)]
        rounds: u32,
        /// Number of pushes
        #[arg(long, default_value_t = 1000)]
        pushes: u32,
    },
    /// CPU time of one start of git by a worker, beside other ways to limit it
    Git {
        /// Starts of each kind
        #[arg(long, default_value_t = 300)]
        rounds: u32,
        /// Memory that the process holds meanwhile, in megabytes
        #[arg(long, default_value_t = 64)]
        memory: usize,
    },
    /// The text editor beside an editor in Node, over stdio
    Editors {
        /// Calls of each kind; of a large file a tenth
        #[arg(long, default_value_t = 500)]
        rounds: u32,
    },
    /// MCP servers through the manager, on the worker and in sandboxes, compared with rmcp alone
    Mcp {
        /// Calls of each kind
        #[arg(long, default_value_t = 1000)]
        rounds: u32,
        /// Starts of each kind
        #[arg(long, default_value_t = 30)]
        starts: u32,
        /// Which kinds of sandbox
        #[arg(
            long,
            value_enum,
            value_delimiter = ',',
            default_value = "local,docker"
        )]
        backends: Vec<Backend>,
    },
    /// Answers of the MCP server and of the command line, with 10,000 tasks and 100,000 steps in the store
    Control {
        /// Calls of each kind
        #[arg(long, default_value_t = 100)]
        rounds: u32,
        /// Also measure this Postgres server; a database is created on it and dropped afterwards
        #[arg(long, env = "AGENTMINE_TEST_POSTGRES_URL", hide_env_values = true)]
        postgres: Option<String>,
        /// Fail if an answer takes longer than the goal
        #[arg(long)]
        check: bool,
    },
    /// The ratios that need no other service, briefly; fails if one got worse by half against the recorded ones
    Short {
        /// Print what was measured in the form of the recorded ratios, and compare nothing
        #[arg(long)]
        record: bool,
    },
    /// Requests and time of scans of many repositories, and the producer's memory, on both forges; needs Postgres and RabbitMQ
    Scan {
        #[command(flatten)]
        size: scan::Size,
    },
    /// The process that `scan` measures
    #[command(hide = true)]
    ScanProcess {
        kind: scan::Kind,
        api: url::Url,
        #[arg(value_delimiter = ',')]
        ids: Vec<u64>,
    },
    /// Tasks that one consumer finishes in a minute, from the claim to the pull request; needs Postgres and RabbitMQ
    Density {
        #[command(flatten)]
        on: On,
        /// Slots of the consumer
        #[arg(long, default_value_t = 8)]
        slots: usize,
        /// Number of tasks
        #[arg(long, default_value_t = 200)]
        tasks: u32,
        /// Whether each task's work is committed, pushed, measured and reported
        #[arg(long, action = clap::ArgAction::Set, default_value_t = true)]
        publish: bool,
        /// Whether the repository has a check, which is run on a fresh clone in a second sandbox
        #[arg(long)]
        checks: bool,
    },
    /// AgentMine beside agents of others: a step, its CPU time, the start, memory, tasks a minute
    Peers {
        #[command(flatten)]
        size: peers::Size,
    },
    /// Memory of an idle consumer and of each running task; needs Postgres, RabbitMQ and Docker
    Memory {
        #[command(flatten)]
        on: On,
        /// Numbers of concurrent tasks, one measurement each
        #[arg(long, value_delimiter = ',', default_value = "1,4,8")]
        tasks: Vec<usize>,
        /// Sandboxes of an idle pool, which is measured too
        #[arg(long, default_value_t = 2)]
        warm: usize,
    },
}

#[derive(Debug, Clone, Copy, clap::Args)]
struct On {
    /// Which kind of sandbox
    #[arg(long, value_enum, default_value_t = Backend::Docker)]
    backend: Backend,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Backend {
    /// A Docker container
    Docker,
    /// The local jail
    Local,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tls::install_default_provider();
    let bench = Args::parse().bench;
    // A part of another benchmark, which reads its output.
    if matches!(bench, Bench::ScanProcess { .. }) {
        return measure(bench).await;
    }
    let mut out = std::io::stdout();
    writeln!(out, "{}\n", machine::line())?;
    measure(bench).await?;
    writeln!(out, "\nat the end: {}", machine::load())?;
    Ok(())
}

async fn measure(bench: Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Loop { steps, postgres } => steps::run(steps, postgres.as_deref()).await,
        Bench::Step {
            on,
            project,
            files,
            steps,
            most,
            count: false,
        } => step::run(on.backend, project, &files, steps, most).await,
        Bench::Step {
            on,
            project,
            files,
            steps,
            count: true,
            ..
        } => step::count(on.backend, project, &files, steps).await,
        Bench::Command { on, rounds } => command::run(on.backend, rounds).await,
        Bench::Start { on, setup } => start::run(on.backend, &setup).await,
        Bench::Verify {
            on,
            rounds,
            warm,
            reply,
        } => verify::run(on.backend, rounds, warm, Duration::from_millis(reply)).await,
        Bench::Editor { on, rounds } => editor::run(on.backend, rounds).await,
        Bench::Bytes { on, rounds, pushes } => bytes::run(on.backend, rounds, pushes).await,
        Bench::Fleet {
            tasks,
            consumers,
            ended,
            whole,
            postgres,
            amqp,
            celery,
        } => {
            let servers = queue::Servers {
                postgres,
                amqp,
                celery,
            };
            queue::run(&servers, tasks, &consumers, &ended, whole).await
        }
        Bench::Git { rounds, memory } => tokio::task::block_in_place(|| git::run(rounds, memory)),
        Bench::Editors { rounds } => tokio::task::block_in_place(|| editors::run(rounds)),
        Bench::Mcp {
            rounds,
            starts,
            backends,
        } => mcp::run(rounds, starts, &backends).await,
        Bench::Control {
            rounds,
            postgres,
            check,
        } => control::run(rounds, postgres.as_deref(), check).await,
        Bench::Short { record: true } => short::record().await,
        Bench::Short { record: false } => short::check().await,
        Bench::Scan { size } => scan::run(size).await,
        Bench::ScanProcess { kind, api, ids } => scan::process(kind, api, &ids).await,
        Bench::Density {
            on,
            slots,
            tasks,
            publish,
            checks,
        } => density::run(on.backend, (slots, tasks), (publish, checks)).await,
        Bench::Peers { size } => peers::run(&size).await,
        Bench::Memory { on, tasks, warm } => {
            memory::run(on.backend, &tasks).await?;
            pool::run(on.backend, warm).await
        }
    }
}
