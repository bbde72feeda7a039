//! What the worker itself finds out about a commit, in a clean bare repository of its own.
//!
//! No command here runs in a tree that an agent has touched, and nothing that the commit brings is
//! executed: no hooks, filters, text conversions or external diffs. The repository is made in the
//! temporary folder and removed when the [`BareRepo`] is dropped.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::Upstream;
use crate::events::printable;
use crate::git::command::{self, GitHome, Output};
use crate::git::push::is_id;
use crate::git::upstream::{Remote, Service, UpstreamError, Version};

mod diff;

pub use diff::{AddedLine, Diff, FileStat};

const LIST_TIMEOUT: Duration = Duration::from_secs(60);
const FETCH_TIMEOUT: Duration = Duration::from_secs(900);
const LOCAL_TIMEOUT: Duration = Duration::from_secs(120);
const MAX_LISTING: usize = 1024 * 1024;
/// Bytes of a patch that are kept.
const MAX_PATCH: usize = 1024 * 1024;
/// Bytes of the list of changed files that are read.
const MAX_STATS: usize = 16 * 1024 * 1024;

/// Why a fact could not be found out.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// Upstream refused the worker's credentials; the HTTP status.
    #[error("the repository's host refused the worker's credentials ({0})")]
    Auth(u16),
    /// No such repository, commit or branch.
    #[error("not found: {0}")]
    NotFound(String),
    /// Upstream could not be reached or did not answer in time. Trying again may help.
    #[error("{0}")]
    Network(String),
    /// Git failed in another way.
    #[error("git failed: {0}")]
    Git(String),
}

impl From<UpstreamError> for FactsError {
    fn from(error: UpstreamError) -> Self {
        match error {
            UpstreamError::Auth(status) => Self::Auth(status),
            UpstreamError::NotFound => Self::NotFound("the repository".into()),
            UpstreamError::Network(what) => Self::Network(what),
        }
    }
}

impl From<std::io::Error> for FactsError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::TimedOut => Self::Network(error.to_string()),
            _ => Self::Git(error.to_string()),
        }
    }
}

/// A clean bare repository beside the one upstream.
#[derive(Debug)]
pub struct BareRepo {
    remote: Arc<Remote>,
    home: GitHome,
    repo: PathBuf,
    /// Asked once: where the repository is after redirects, and what its ids look like.
    found: OnceCell<()>,
}

impl BareRepo {
    /// Makes an empty repository. Upstream is not asked yet.
    ///
    /// # Errors
    /// When the upstream's URL or path cannot be used, or the temporary folder cannot be written.
    pub fn new(upstream: Upstream) -> anyhow::Result<Self> {
        Ok(Self::beside(Arc::new(Remote::new(upstream)?), "sha1")?)
    }

    /// Makes an empty repository beside an upstream that is already known.
    pub(crate) fn beside(remote: Arc<Remote>, object_format: &str) -> std::io::Result<Self> {
        let home = GitHome::new(match remote.as_ref() {
            Remote::Path(path) => Some(path.path()),
            Remote::Http(_) => None,
        })?;
        let repo = home.bare(object_format)?;
        Ok(Self {
            remote,
            home,
            repo,
            found: OnceCell::new(),
        })
    }

    /// The commit that `branch` (without `refs/heads/`) is at upstream, if there is such a branch.
    ///
    /// # Errors
    /// When upstream does not answer, or refuses.
    pub async fn resolve(&self, branch: &str) -> Result<Option<String>, FactsError> {
        let refname = branch_ref(branch)?;
        let listing = self.list(&["--refs"], &refname).await?;
        let line = listing
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .find(|(id, name)| *name == refname && is_id(id));
        Ok(line.map(|(id, _)| id.to_owned()))
    }

    /// The branch that upstream's `HEAD` names, without `refs/heads/`.
    ///
    /// # Errors
    /// When upstream does not answer, or refuses.
    pub async fn default_branch(&self) -> Result<Option<String>, FactsError> {
        let listing = self.list(&["--symref"], "HEAD").await?;
        let named = listing
            .lines()
            .find_map(|line| line.strip_prefix("ref: ")?.strip_suffix("\tHEAD"));
        Ok(named
            .and_then(|name| name.strip_prefix("refs/heads/"))
            .map(String::from))
    }

    async fn list(&self, options: &[&str], pattern: &str) -> Result<String, FactsError> {
        self.find().await?;
        let mut git = self.networked();
        git.arg("ls-remote").args(options).arg("--").arg(self.url());
        git.arg(pattern);
        let output = self.ran(git, LIST_TIMEOUT, MAX_LISTING).await?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Brings commits here: each of `wanted` is a full commit id or a branch name. With a depth,
    /// only so many commits of history; `None` brings all of it.
    ///
    /// # Errors
    /// [`FactsError::NotFound`] when upstream has no such commit or branch.
    pub async fn fetch<S: AsRef<str>>(
        &self,
        wanted: &[S],
        depth: impl Into<Option<u32>>,
    ) -> Result<(), FactsError> {
        self.find().await?;
        let mut git = self.networked();
        git.args(["fetch", "--quiet", "--no-tags", "--force"]);
        git.args(["--no-write-fetch-head", "--no-recurse-submodules"]);
        match depth.into() {
            Some(depth) => {
                git.arg(format!("--depth={}", depth.max(1)));
            }
            None if self.repo.join("shallow").exists() => {
                git.arg("--unshallow");
            }
            None => {}
        }
        git.arg("--").arg(self.url());
        for name in wanted {
            let name = name.as_ref();
            if is_id(name) {
                git.arg(format!("+{name}:refs/facts/{name}"));
            } else {
                git.arg(format!("+{}:refs/facts/heads/{name}", branch_ref(name)?));
            }
        }
        self.ran(git, FETCH_TIMEOUT, MAX_LISTING).await.map(drop)
    }

    /// What changed from `base` to `head`, two commits fetched before. Renames are followed.
    ///
    /// # Errors
    /// [`FactsError::NotFound`] when one of them is not here.
    pub async fn diff(&self, base: &str, head: &str) -> Result<Diff, FactsError> {
        let stats = self.diff_git(base, head, &["--numstat", "-z"])?;
        let stats = self.ran(stats, LOCAL_TIMEOUT, MAX_STATS).await?;
        let patch = self.diff_git(base, head, &["--patch", "--unified=3"])?;
        let patch = self.ran(patch, LOCAL_TIMEOUT, MAX_PATCH).await?;
        Ok(Diff {
            files: diff::numstat(&stats.stdout),
            patch: String::from_utf8_lossy(&patch.stdout).into_owned(),
            patch_cut: patch.cut || stats.cut,
        })
    }

    fn diff_git(&self, base: &str, head: &str, format: &[&str]) -> Result<Command, FactsError> {
        let mut git = self.local();
        git.args(["diff", "--no-ext-diff", "--no-textconv", "--no-color"]);
        git.args(["--find-renames", "-l1000", "--ignore-submodules=none"]);
        git.args(["--src-prefix=a/", "--dst-prefix=b/"])
            .args(format);
        git.args([id(base)?, id(head)?]).arg("--");
        Ok(git)
    }

    /// The newest commit that both histories hold, as far as they were fetched.
    ///
    /// # Errors
    /// [`FactsError::NotFound`] when one of them is not here.
    pub async fn merge_base(&self, one: &str, other: &str) -> Result<Option<String>, FactsError> {
        let mut git = self.local();
        git.arg("merge-base").args([id(one)?, id(other)?]);
        let output = command::run(git, LOCAL_TIMEOUT, MAX_LISTING).await?;
        match output.status.code() {
            Some(0) => {
                let text = String::from_utf8_lossy(&output.stdout);
                Ok(Some(text.trim().to_owned()).filter(|text| is_id(text)))
            }
            Some(1) => Ok(None),
            _ => Err(failure(&output)),
        }
    }

    /// Whether `old` is `new` or one of its ancestors, as far as history was fetched.
    ///
    /// # Errors
    /// [`FactsError::NotFound`] when one of them is not here.
    pub async fn is_ancestor(&self, old: &str, new: &str) -> Result<bool, FactsError> {
        let mut git = self.local();
        git.args(["merge-base", "--is-ancestor", id(old)?, id(new)?]);
        let output = command::run(git, LOCAL_TIMEOUT, MAX_LISTING).await?;
        match output.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(failure(&output)),
        }
    }

    /// The content of one file in a commit fetched before, up to `cap` bytes; `None` when there is
    /// no such file.
    ///
    /// # Errors
    /// When git fails.
    pub async fn read_file(
        &self,
        commit: &str,
        path: &str,
        cap: usize,
    ) -> Result<Option<Vec<u8>>, FactsError> {
        let mut git = self.local();
        git.args(["cat-file", "blob"]);
        git.arg(format!("{}:{path}", id(commit)?));
        let output = command::run(git, LOCAL_TIMEOUT, cap).await?;
        Ok((output.cut || output.status.success()).then_some(output.stdout))
    }

    async fn find(&self) -> Result<(), FactsError> {
        let found = self.found.get_or_try_init(|| async {
            if let Remote::Http(http) = self.remote.as_ref() {
                // Follows redirects and tells 401 from 404, which git only says in prose.
                http.advertise(Service::UploadPack, Some(Version::V2))
                    .await?;
            }
            let mut git = self.networked();
            git.args(["ls-remote", "--"]).arg(self.url()).arg("HEAD");
            let output = self.ran(git, LIST_TIMEOUT, MAX_LISTING).await?;
            let first = output.stdout.split(|byte| *byte == b'\t').next();
            if first.is_some_and(|id| id.len() == 64) {
                self.home.bare("sha256")?;
            }
            Ok::<(), FactsError>(())
        });
        found.await.map(drop)
    }

    fn url(&self) -> std::ffi::OsString {
        match self.remote.as_ref() {
            Remote::Http(http) => http.base().as_str().into(),
            Remote::Path(path) => path.path().into(),
        }
    }

    fn local(&self) -> Command {
        let mut git = self.home.git();
        git.arg("--git-dir").arg(&self.repo);
        git
    }

    fn networked(&self) -> Command {
        let mut git = self.local();
        match self.remote.as_ref() {
            Remote::Http(http) => {
                git.env("GIT_ALLOW_PROTOCOL", "http:https");
                if let Some(value) = http.authorization() {
                    let header = format!("Authorization: {}", value.expose());
                    command::configure(&mut git, &[("http.extraHeader", header)]);
                }
            }
            Remote::Path(_) => {
                git.env("GIT_ALLOW_PROTOCOL", "file");
            }
        }
        git
    }

    async fn ran(&self, git: Command, limit: Duration, cap: usize) -> Result<Output, FactsError> {
        let output = command::run(git, limit, cap).await?;
        if output.cut || output.status.success() {
            return Ok(output);
        }
        Err(failure(&output))
    }
}

/// For the quarantine of a push.
impl BareRepo {
    /// Git on this repository, with no protocol allowed.
    pub(crate) fn git(&self) -> Command {
        self.local()
    }

    /// Brings the commits of all branches here; without their files where upstream can leave them
    /// out.
    pub(crate) async fn fetch_history(&self) -> Result<(), FactsError> {
        let mut git = self.networked();
        let mut url = std::ffi::OsString::from("remote.upstream.url=");
        url.push(self.url());
        git.arg("-c").arg(url);
        git.args(["fetch", "--quiet", "--no-tags", "--force"]);
        git.args(["--no-write-fetch-head", "--no-recurse-submodules"]);
        git.args(["--filter=tree:0", "upstream"]);
        git.arg("+refs/heads/*:refs/upstream/*");
        self.ran(git, FETCH_TIMEOUT, MAX_LISTING).await.map(drop)
    }
}

fn failure(output: &Output) -> FactsError {
    let text = output.stderr.trim();
    let last = text
        .lines()
        .rev()
        .find(|line| line.starts_with("fatal:") || line.starts_with("error:"))
        .unwrap_or(text);
    let said = printable(last);
    let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    if has(&[
        "error: 401",
        "Authentication failed",
        "could not read Username",
    ]) {
        FactsError::Auth(401)
    } else if has(&["error: 403"]) {
        FactsError::Auth(403)
    } else if has(&[
        "not found",
        "couldn't find remote ref",
        "not our ref",
        "does not appear to be a git repository",
        "bad object",
        "Not a valid",
        "no such remote ref",
        "unknown revision",
        "invalid object name",
    ]) {
        FactsError::NotFound(said)
    } else if has(&[
        "Could not resolve host",
        "Failed to connect",
        "Couldn't connect",
        "unable to access",
        "timed out",
        "early EOF",
        "hung up unexpectedly",
        "RPC failed",
    ]) {
        FactsError::Network(said)
    } else {
        FactsError::Git(said)
    }
}

fn id(text: &str) -> Result<&str, FactsError> {
    if is_id(text) {
        Ok(text)
    } else {
        Err(FactsError::NotFound(format!(
            "{} is not a full commit id",
            printable(text)
        )))
    }
}

/// The full name of a branch, if it can be one.
pub(crate) fn branch_ref(branch: &str) -> Result<String, FactsError> {
    let bad = branch.is_empty()
        || branch.len() > 250
        || branch.starts_with(['-', '/', '.'])
        || branch.ends_with(['/', '.'])
        || branch.ends_with(".lock")
        || branch.contains("..")
        || branch.contains("//")
        || branch.contains("@{")
        || branch.contains("/.")
        || branch
            .chars()
            .any(|c| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c));
    if bad {
        return Err(FactsError::NotFound(format!(
            "{} is not a branch name",
            printable(branch)
        )));
    }
    Ok(format!("refs/heads/{branch}"))
}
