//! What the worker itself finds out about a commit, in a clean bare repository of its own.
//!
//! No command runs in a tree that an agent has touched, and nothing in the commit is executed: no
//! hooks, filters, text conversions or external diffs. The repository is created in the temporary
//! folder and removed when the [`BareRepo`] is dropped.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use agentmine_git::{Errand, GitHome};
use http_body_util::BodyExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::GatewayError;
use crate::config::Upstream;
use crate::git_process::{self, Output};
use crate::http::BoxError;
use crate::printable::printable;
use crate::upstream::{Encoding, ProtocolVersion, Remote};
use crate::wire::object_id::is_id;
use crate::wire::ref_name::branch_ref;

mod diff;
mod error;
mod fetch;
pub(crate) mod listing;

pub use diff::{AddedLine, Changed, ChangedPath, Diff, FileStat};
pub use error::FactsError;
use error::{exceeded, failure};

const LIST_TIMEOUT: Duration = Duration::from_secs(60);
const FETCH_TIMEOUT: Duration = Duration::from_secs(900);
const LOCAL_TIMEOUT: Duration = Duration::from_secs(120);
const MAX_LISTING: usize = 1024 * 1024;
/// Size limit of a patch and of the list of changed files, in bytes: a new lock file may have 100,000 lines.
const MAX_DIFF: usize = 16 * 1024 * 1024;

/// `git fetch` that leaves nothing but the named refs behind.
/// For what is requested of commits that are here without their folders or files: an upstream that is informed of these
/// commits would omit what belongs to them.
const NO_NEGOTIATION: [&str; 2] = ["-c", "fetch.negotiationAlgorithm=noop"];
const FETCH: [&str; 6] = [
    "fetch",
    "--quiet",
    "--no-tags",
    "--force",
    "--no-write-fetch-head",
    "--no-recurse-submodules",
];

/// How refs are listed.
#[derive(Debug, Clone, Copy)]
enum Lister {
    /// By a request to a host that speaks version 2 of the protocol; with its object format.
    Http(&'static str),
    /// By git.
    Git,
}

/// A clean bare repository that fetches from the one upstream.
#[derive(Debug)]
pub struct BareRepo {
    remote: Arc<Remote>,
    home: GitHome,
    repo: PathBuf,
    /// Set once upstream was contacted: redirects are resolved, and the object format is known.
    contacted: OnceCell<Lister>,
}

impl BareRepo {
    /// Creates an empty repository. Upstream is not contacted yet.
    ///
    /// # Errors
    /// When the upstream's URL or path cannot be used, or the temporary folder cannot be written.
    pub fn new(upstream: Upstream) -> Result<Self, GatewayError> {
        let remote = Arc::new(Remote::new(upstream)?);
        let object_format = match remote.as_ref() {
            Remote::Path(path) => path.object_format(),
            Remote::Http(_) => "sha1",
        };
        Ok(Self::beside(remote, object_format)?)
    }

    /// Creates an empty repository for an upstream that is already known.
    pub(crate) fn beside(remote: Arc<Remote>, object_format: &str) -> std::io::Result<Self> {
        let home = GitHome::new()?;
        let repo = home.bare(object_format)?;
        Ok(Self {
            remote,
            home,
            repo,
            contacted: OnceCell::new(),
        })
    }

    /// The commit that upstream's `branch` (without `refs/heads/`) is at, if the branch exists.
    ///
    /// # Errors
    /// When upstream does not respond, or refuses.
    pub async fn resolve(&self, branch: &str) -> Result<Option<String>, FactsError> {
        let refname = branch_ref(branch)?;
        match self.contact().await? {
            Lister::Http(format) => self.listed(format, &refname).await,
            Lister::Git => self.listed_by_git(&refname).await,
        }
    }

    /// Asks the host itself, which costs no process.
    async fn listed(&self, format: &str, refname: &str) -> Result<Option<String>, FactsError> {
        let request = listing::request(format, &[refname]).into();
        let listing = timeout(LIST_TIMEOUT, self.remote.list_refs(request)).await;
        let listing =
            listing.map_err(|_| FactsError::Network("no list of refs in time".into()))??;
        listing::find(&listing, refname)
            .map_err(|_| FactsError::Network("upstream's list of refs is malformed".into()))
    }

    async fn listed_by_git(&self, refname: &str) -> Result<Option<String>, FactsError> {
        let mut git = self.networked();
        git.args(["ls-remote", "--refs", "--"]).arg(self.url()?);
        git.arg(refname);
        let output = self.ran(git, LIST_TIMEOUT, MAX_LISTING).await?;
        let listing = String::from_utf8_lossy(&output.stdout);
        let line = listing
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .find(|(id, name)| *name == refname && is_id(id));
        Ok(line.map(|(id, _)| id.to_owned()))
    }

    /// Fetches commits by their full ids, with their files and without their history.
    ///
    /// # Errors
    /// [`FactsError::NotFound`] when upstream has no such commit.
    pub async fn fetch(&self, commits: &[&str]) -> Result<(), FactsError> {
        let lister = self.contact().await?;
        let ids: Result<Vec<&str>, FactsError> = commits.iter().map(|commit| id(commit)).collect();
        if let Lister::Http(format) = lister
            && let Ok(Ok(())) = timeout(FETCH_TIMEOUT, self.fetch_directly(format, &ids?)).await
        {
            return Ok(());
        }
        let mut git = self.networked();
        git.args(FETCH).args(["--depth=1", "--"]).arg(self.url()?);
        for commit in commits {
            let commit = id(commit)?;
            git.arg(format!("+{commit}:refs/facts/{commit}"));
        }
        self.ran(git, FETCH_TIMEOUT, MAX_LISTING).await.map(drop)
    }

    /// The same with one request. After an error git has to look what is wrong.
    async fn fetch_directly(&self, format: &str, commits: &[&str]) -> Result<(), BoxError> {
        let request = fetch::request(format, commits).into();
        let version = Some(ProtocolVersion::V2);
        let upstream = self
            .remote
            .upload_pack(request, Encoding::Identity, version);
        let mut body = upstream.await?;
        let mut git = self.command(Errand::Trusted);
        git.args(["index-pack", "--stdin"]).stdin(Stdio::piped());
        let mut child = git.spawn()?;
        let mut stdin = child.stdin.take().ok_or("git was started without pipes")?;
        let received = async move {
            let mut answer = fetch::Answer::new();
            while let Some(frame) = body.frame().await {
                if let Ok(bytes) = frame?.into_data() {
                    stdin.write_all(&answer.take(&bytes)?).await?;
                }
            }
            Ok::<_, BoxError>(answer.shallow(commits)?)
        };
        let (shallow, status) = tokio::join!(received, child.wait());
        let shallow = shallow?;
        if !status?.success() {
            return Err("the pack is broken".into());
        }
        // As git leaves them behind.
        let file = self.repo.join("shallow");
        let known = std::fs::read_to_string(&file).unwrap_or_default();
        let new = shallow.into_iter().filter(|id| !known.contains(id));
        let new: String = new.flat_map(|id| [id, "\n".to_owned()]).collect();
        std::fs::write(file, known.clone() + &new)?;
        let refs = self.repo.join("refs/facts");
        std::fs::create_dir_all(&refs)?;
        for commit in commits {
            std::fs::write(refs.join(commit), format!("{commit}\n"))?;
        }
        Ok(())
    }

    /// Whether a commit is in the history of upstream's commit `head`. One that upstream no longer has is not.
    ///
    /// # Errors
    /// When upstream does not respond, or refuses.
    pub async fn contains(&self, head: &str, commit: &str) -> Result<bool, FactsError> {
        self.fetch_history().await?;
        let mut git = self.local();
        git.args(["rev-list", "--max-count=1", id(commit)?, "--not", id(head)?]);
        let output = git_process::run(git, LOCAL_TIMEOUT, MAX_LISTING).await?;
        Ok(output.status.success() && output.stdout.is_empty())
    }

    /// The newest commit of the branch `target` that is in the history of `head` and not in that of `base`: up to which
    /// the branch was merged from `base` to `head`. To be called before [`Self::fetch`], which cuts histories off.
    ///
    /// # Errors
    /// When upstream does not respond, or refuses.
    pub async fn merged(
        &self,
        target: &str,
        (base, head): (&str, &str),
    ) -> Result<Option<String>, FactsError> {
        let Some(target) = self.resolve(target).await? else {
            return Ok(None);
        };
        self.fetch_history().await?;
        let mut git = self.local();
        git.args(["merge-base", id(&target)?, id(head)?]);
        let output = git_process::run(git, LOCAL_TIMEOUT, MAX_LISTING).await?;
        let newest = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        // Without a common commit it prints none.
        let is_new = is_id(&newest) && matches!(self.is_ancestor(&newest, base).await, Ok(false));
        Ok(is_new.then_some(newest))
    }

    /// The newest commit that both have in their histories, as far as these were fetched: [`Self::merged`] does so, and
    /// [`Self::fetch`] cuts them off.
    ///
    /// # Errors
    /// [`FactsError::NotFound`] when one of them was not fetched.
    pub async fn merge_base(&self, one: &str, other: &str) -> Result<Option<String>, FactsError> {
        let mut git = self.local();
        git.args(["merge-base", id(one)?, id(other)?]);
        let output = git_process::run(git, LOCAL_TIMEOUT, MAX_LISTING).await?;
        let newest = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match output.status.code() {
            Some(0) if is_id(&newest) => Ok(Some(newest)),
            Some(1) => Ok(None),
            _ => Err(failure(&output)),
        }
    }

    /// What changed from `base` to `head`, two commits fetched before. Renames are followed.
    ///
    /// # Errors
    /// [`FactsError::NotFound`] when one of them was not fetched.
    pub async fn diff(&self, base: &str, head: &str) -> Result<Diff, FactsError> {
        let stats = self.diff_git(base, head, &["--numstat", "-z"])?;
        let stats = self.computed(stats, MAX_DIFF).await?;
        // Only added lines are read.
        let options = ["--patch", "--unified=0", "--irreversible-delete"];
        let patch = self.diff_git(base, head, &options)?;
        let patch = self.computed(patch, MAX_DIFF).await?;
        Ok(Diff {
            files: diff::numstat(&stats.stdout),
            patch: String::from_utf8_lossy(&patch.stdout).into_owned(),
            patch_cut: patch.cut || stats.cut,
        })
    }

    /// The files under `pathspecs` that differ between `base` and `head`, renamed ones under both names; nothing
    /// else in the difference counts towards the limit of 16 MiB. An empty list means every file.
    ///
    /// # Errors
    /// [`FactsError::NotFound`] when one of the commits was not fetched.
    pub async fn changed(
        &self,
        base: &str,
        head: &str,
        pathspecs: &[&str],
    ) -> Result<Changed, FactsError> {
        let mut git = self.local();
        git.args(["diff", "--raw", "-z", "--no-renames", "--no-abbrev"]);
        git.args(["--no-ext-diff", "--ignore-submodules=none"]);
        git.args([id(base)?, id(head)?]).arg("--").args(pathspecs);
        let listing = self.computed(git, MAX_DIFF).await?;
        Ok(Changed {
            files: diff::raw(&listing.stdout),
            cut: listing.cut,
        })
    }

    /// The start of a file in a commit that was fetched, up to `max` bytes; `None` if there is no such file.
    ///
    /// # Errors
    /// When git fails to start.
    pub async fn file(
        &self,
        commit: &str,
        path: &str,
        max: usize,
    ) -> Result<Option<Vec<u8>>, FactsError> {
        let mut git = self.local();
        git.args(["cat-file", "blob"])
            .arg(format!("{}:{path}", id(commit)?));
        let output = git_process::run(git, LOCAL_TIMEOUT, max).await?;
        Ok((output.cut || output.status.success()).then_some(output.stdout))
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

    async fn contact(&self) -> Result<Lister, FactsError> {
        let contacted = self.contacted.get_or_try_init(|| async {
            if let Remote::Http(_) = self.remote.as_ref() {
                // Follows redirects, and gives the HTTP status, which git reports only in prose.
                let advertised = self.remote.capabilities().await?;
                if let Some(format) = listing::object_format(&advertised) {
                    if format == listing::SHA256 {
                        self.home.bare(format)?;
                    }
                    return Ok(Lister::Http(format));
                }
            }
            let mut git = self.networked();
            git.args(["ls-remote", "--"]).arg(self.url()?).arg("HEAD");
            let output = self.ran(git, LIST_TIMEOUT, MAX_LISTING).await?;
            let first = output.stdout.split(|byte| *byte == b'\t').next();
            if first.is_some_and(|id| id.len() == 64) {
                self.home.bare(listing::SHA256)?;
            }
            Ok::<Lister, FactsError>(Lister::Git)
        });
        contacted.await.copied()
    }

    fn url(&self) -> std::io::Result<OsString> {
        self.remote.url()
    }

    fn local(&self) -> Command {
        self.command(Errand::Untrusted)
    }

    fn command(&self, errand: Errand) -> Command {
        let mut git = git_process::command(self.home.git(errand));
        git.arg("--git-dir").arg(&self.repo);
        git
    }

    fn networked(&self) -> Command {
        let mut git = self.command(Errand::Trusted);
        authorize(&mut git, &self.remote);
        git
    }

    /// Runs a command on what was fetched: if it takes too much, so does each further attempt.
    async fn computed(&self, git: Command, cap: usize) -> Result<Output, FactsError> {
        let output = git_process::run(git, LOCAL_TIMEOUT, cap).await;
        let output = output.map_err(|error| match error.kind() {
            std::io::ErrorKind::TimedOut => FactsError::TooLarge(error.to_string()),
            _ => error.into(),
        })?;
        match output.cut || output.status.success() {
            true => Ok(output),
            false => Err(exceeded(&output).unwrap_or_else(|| failure(&output))),
        }
    }

    async fn ran(&self, git: Command, limit: Duration, cap: usize) -> Result<Output, FactsError> {
        let output = git_process::run(git, limit, cap).await?;
        if output.cut || output.status.success() {
            return Ok(output);
        }
        Err(failure(&output))
    }
}

/// Lets git reach the repository, with the token in the environment of this process alone.
pub(crate) fn authorize(git: &mut Command, remote: &Remote) {
    match remote {
        Remote::Http(http) => {
            git.env("GIT_ALLOW_PROTOCOL", "http:https");
            if let Some(value) = http.authorization() {
                let header = format!("Authorization: {}", value.expose());
                git_process::configure(git, &[("http.extraHeader", header)]);
            }
            // The worker's own variable of this name would override a setting.
            if let Some(file) = http.authorities() {
                git.env("GIT_SSL_CAINFO", file);
            }
        }
        Remote::Path(_) => {
            git.env("GIT_ALLOW_PROTOCOL", "file");
        }
    }
}

/// For the quarantine of a push.
impl BareRepo {
    /// Git on this repository, with no protocol allowed.
    pub(crate) fn git(&self) -> Command {
        self.local()
    }

    /// Fetches the commits of all branches, without their files if upstream supports that.
    pub(crate) async fn fetch_history(&self) -> Result<(), FactsError> {
        self.fetch_commits("+refs/heads/*:refs/upstream/heads/*")
            .await
    }

    /// The same of all tags. Not together with the branches: git takes the answer to be broken if a tag is at a file or
    /// a folder of a commit whose files were omitted.
    pub(crate) async fn fetch_tags(&self) -> Result<(), FactsError> {
        self.fetch_commits("+refs/tags/*:refs/upstream/tags/*")
            .await
    }

    async fn fetch_commits(&self, refspec: &str) -> Result<(), FactsError> {
        let mut git = self.networked();
        let mut url = std::ffi::OsString::from("remote.upstream.url=");
        url.push(self.url()?);
        git.arg("-c").arg(url);
        git.args(FETCH).args(["--filter=tree:0", "upstream"]);
        git.arg(refspec);
        self.ran(git, FETCH_TIMEOUT, MAX_LISTING).await.map(drop)
    }

    /// Fetches the folders of commits, without their files if upstream supports that.
    pub(crate) async fn fetch_trees(&self, commits: &[&str]) -> Result<(), FactsError> {
        let mut git = self.networked();
        let mut url = std::ffi::OsString::from("remote.upstream.url=");
        url.push(self.url()?);
        git.arg("-c").arg(url);
        git.args(NO_NEGOTIATION)
            .args(FETCH)
            .args(["--depth=1", "--filter=blob:none", "upstream"]);
        for commit in commits {
            let commit = id(commit)?;
            git.arg(format!("+{commit}:refs/facts/{commit}"));
        }
        self.ran(git, FETCH_TIMEOUT, MAX_LISTING).await.map(drop)
    }

    /// Fetches files by their ids.
    pub(crate) async fn fetch_files(&self, files: &[&str]) -> Result<(), FactsError> {
        let mut git = self.networked();
        git.args(NO_NEGOTIATION).args(FETCH);
        git.arg("--").arg(self.url()?);
        for file in files {
            let file = id(file)?;
            git.arg(format!("+{file}:refs/facts/{file}"));
        }
        self.ran(git, FETCH_TIMEOUT, MAX_LISTING).await.map(drop)
    }

    /// The id of what a commit whose folders were fetched has at a path.
    pub(crate) async fn object_at(
        &self,
        commit: &str,
        path: &str,
    ) -> Result<Option<String>, FactsError> {
        let mut git = self.local();
        git.args(["rev-parse", "--verify", "--quiet"])
            .arg(format!("{}:{path}", id(commit)?));
        let output = git_process::run(git, LOCAL_TIMEOUT, MAX_LISTING).await?;
        let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(output.status.success().then_some(found))
    }

    /// An empty repository for the same upstream.
    pub(crate) fn another(&self, object_format: &str) -> std::io::Result<Self> {
        Self::beside(Arc::clone(&self.remote), object_format)
    }

    /// Whether `old` is `new` or one of its ancestors, as far as history was fetched.
    pub(crate) async fn is_ancestor(&self, old: &str, new: &str) -> Result<bool, FactsError> {
        let mut git = self.local();
        git.args(["merge-base", "--is-ancestor", id(old)?, id(new)?]);
        let output = git_process::run(git, LOCAL_TIMEOUT, MAX_LISTING).await?;
        match output.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(failure(&output)),
        }
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
