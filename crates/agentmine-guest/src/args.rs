//! The command line of the guest. Only the worker writes it.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

/// What to be.
#[derive(Debug)]
pub(crate) enum Mode {
    /// Keep a container alive until it is told to stop.
    Idle,
    /// Serve a worker over stdin and stdout.
    Serve(Box<Options>),
    /// Run another guest and kill all that it leaves behind.
    Supervise(Vec<String>),
    /// Measure what fork and exec cost here.
    BenchExec {
        /// How often.
        rounds: u32,
        /// What to run.
        argv: Vec<String>,
    },
}

/// How much the guest confines itself, on top of what it was started in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// Not at all: a container does it.
    #[default]
    Container,
    /// Landlock and seccomp inside namespaces.
    Namespaces,
    /// Landlock and seccomp alone, which must then also keep the network away.
    Alone,
}

/// How to serve.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) root: PathBuf,
    pub(crate) git_port: u16,
    pub(crate) web_port: u16,
    /// Bytes under the root; 0 is no limit.
    pub(crate) disk_limit: u64,
    /// 0 is no limit.
    pub(crate) max_processes: u64,
    pub(crate) confinement: Confinement,
    /// Start commands from the guest's own environment (an image's), not from an empty one.
    pub(crate) inherit_env: bool,
    pub(crate) path: Option<String>,
    /// Added to every command's environment.
    pub(crate) env: Vec<(String, String)>,
    /// May be read; for `Confinement::Alone`.
    pub(crate) read_only: Vec<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            root: "/workspace".into(),
            git_port: 0,
            web_port: 0,
            disk_limit: 0,
            max_processes: 0,
            confinement: Confinement::default(),
            inherit_env: false,
            path: None,
            env: Vec::new(),
            read_only: Vec::new(),
        }
    }
}

pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Mode> {
    match args.next().as_deref() {
        Some("idle") => Ok(Mode::Idle),
        Some("serve") => Ok(Mode::Serve(Box::new(serve_options(args)?))),
        Some("supervise") => Ok(Mode::Supervise(args.collect())),
        Some("bench-exec") => {
            let rounds = args.next().unwrap_or_default();
            let mut argv: Vec<String> = args.collect();
            if argv.is_empty() {
                argv.push("/bin/true".into());
            }
            let rounds = rounds.parse().context("bench-exec wants a number")?;
            Ok(Mode::BenchExec { rounds, argv })
        }
        other => bail!("unknown mode {other:?}; expected idle, serve, supervise or bench-exec"),
    }
}

fn serve_options(mut args: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options::default();
    while let Some(flag) = args.next() {
        if flag == "--inherit-env" {
            options.inherit_env = true;
            continue;
        }
        let value = args
            .next()
            .with_context(|| format!("{flag} wants a value"))?;
        match flag.as_str() {
            "--root" => options.root = value.into(),
            "--git-port" => options.git_port = value.parse()?,
            "--web-port" => options.web_port = value.parse()?,
            "--disk-limit" => options.disk_limit = value.parse()?,
            "--max-processes" => options.max_processes = value.parse()?,
            "--path" => options.path = Some(value),
            "--read-only" => options.read_only.push(value.into()),
            "--env" => {
                let (key, value) = value.split_once('=').context("--env wants NAME=VALUE")?;
                options.env.push((key.to_owned(), value.to_owned()));
            }
            "--confine" => {
                options.confinement = match value.as_str() {
                    "container" => Confinement::Container,
                    "namespaces" => Confinement::Namespaces,
                    "alone" => Confinement::Alone,
                    other => bail!("unknown confinement {other:?}"),
                }
            }
            _ => bail!("unknown option {flag}"),
        }
    }
    Ok(options)
}
