//! The command line of the guest. Only the worker writes it.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

/// The mode to run in.
#[derive(Debug)]
pub(crate) enum Mode {
    /// Serve a worker over stdin and stdout.
    Serve(Box<Options>),
    /// Run another guest and kill all processes that it leaves behind.
    Supervise(Vec<String>),
    /// Remove folders of a sandbox that has ended, in this order. Runs outside of it.
    Remove(Vec<PathBuf>),
}

/// How the guest confines itself, beyond what the backend enforces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// Not at all: it runs in a container.
    #[default]
    Container,
    /// Landlock and seccomp inside namespaces.
    Namespaces,
    /// Landlock and seccomp alone, which must then also block the network.
    Alone,
}

/// How to serve.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) root: PathBuf,
    pub(crate) git_port: u16,
    pub(crate) web_port: u16,
    /// Bytes under the root, for the guest to watch; 0 means that the kernel holds the limit, or that there is none.
    pub(crate) disk_limit: u64,
    /// For the kernel to hold; 0 means no limit.
    pub(crate) max_processes: u64,
    /// For the guest to watch; 0 means that something else holds the limit, or that there is none.
    pub(crate) watched_processes: u64,
    /// Bytes of memory, likewise.
    pub(crate) watched_memory: u64,
    pub(crate) confinement: Confinement,
    /// Start commands with the guest's own environment (the image's), not with an empty one.
    pub(crate) inherit_env: bool,
    pub(crate) path: Option<String>,
    /// Added to every command's environment.
    pub(crate) env: Vec<(String, String)>,
    /// Folders that commands may read, for `Confinement::Alone`.
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
            watched_processes: 0,
            watched_memory: 0,
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
        Some("serve") => Ok(Mode::Serve(Box::new(serve_options(args)?))),
        Some("supervise") => Ok(Mode::Supervise(args.collect())),
        Some("remove") => {
            let folders: Vec<PathBuf> = args.map(PathBuf::from).collect();
            if folders.is_empty() {
                bail!("remove needs a folder");
            }
            Ok(Mode::Remove(folders))
        }
        other => bail!("unknown mode {other:?}; expected serve, supervise or remove"),
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
            .with_context(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--root" => options.root = value.into(),
            "--git-port" => options.git_port = value.parse()?,
            "--web-port" => options.web_port = value.parse()?,
            "--disk-limit" => options.disk_limit = value.parse()?,
            "--max-processes" => options.max_processes = value.parse()?,
            "--watch-processes" => options.watched_processes = value.parse()?,
            "--watch-memory" => options.watched_memory = value.parse()?,
            "--path" => options.path = Some(value),
            "--read-only" => options.read_only.push(value.into()),
            "--env" => {
                let (key, value) = value.split_once('=').context("--env needs NAME=VALUE")?;
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
