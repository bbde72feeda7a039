//! The git repository beside the issues, read through the git command line.
//!
//! Guaranteed: no command here reads the repository's configuration, or runs anything that it could name.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use agentmine_git::{View, ViewError};
use sha2::{Digest, Sha256};

use super::error::{invalid, refused, remedy, unavailable};
use crate::error::TrackerError;

const MAX_FILE: u64 = 256 << 10;

/// A repository that exists and has a commit.
#[derive(Debug, Clone)]
pub(super) struct Repo {
    pub(super) path: PathBuf,
    pub(super) id: String,
    view: Arc<View>,
}

impl Repo {
    /// Checks a folder: a git repository, with a commit.
    pub(super) fn open(folder: &Path) -> Result<Self, TrackerError> {
        let shown = folder.display();
        let folder = folder.canonicalize().map_err(|error| {
            invalid(format!(
                "{shown}: {error}. hint: name an existing git repository"
            ))
        })?;
        let view = View::open_to_write(&folder).map_err(|error| match error {
            ViewError::NoRepository(_) => invalid(format!(
                "{shown} is not a git repository. hint: run `git init` and commit there"
            )),
            ViewError::NoGit(_) => unavailable(error.with_hint()),
            ViewError::Foreign { .. } => invalid(error.with_hint()),
            ViewError::Configuration { .. } | ViewError::Io(_) => {
                invalid(format!("{shown}: {error}"))
            }
        })?;
        if let Some(tree) = work_tree_around(&view) {
            return Err(invalid(format!(
                "{shown} is a part of the repository {0}. hint: name {0}",
                tree.display()
            )));
        }
        require_commit(&view, &shown.to_string())?;
        let path = view.top().to_owned();
        let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
        Ok(Self {
            id: hex::encode(&digest[..8]),
            path,
            view: Arc::new(view),
        })
    }

    /// The branch that is checked out. That there is none is a fault of the task.
    pub(super) fn default_branch(&self) -> Result<String, TrackerError> {
        self.branch()?.ok_or_else(|| refused(self.detached()))
    }

    /// Before there is a task: that no branch is checked out is a fault of the repository.
    pub(super) fn require_branch(&self) -> Result<(), TrackerError> {
        match self.branch()? {
            Some(_) => Ok(()),
            None => Err(invalid(self.detached())),
        }
    }

    fn branch(&self) -> Result<Option<String>, TrackerError> {
        // The short name of a branch is longer where a tag has the same one.
        let head = text(git(&self.view, &["symbolic-ref", "--quiet", "HEAD"])?);
        let branch = head
            .as_deref()
            .and_then(|it| it.strip_prefix("refs/heads/"));
        Ok(branch.map(|name| name.trim().to_owned()))
    }

    fn detached(&self) -> String {
        format!(
            "{} has no branch checked out. hint: run `git switch` to the branch to work from",
            self.path.display()
        )
    }

    /// A text file at a branch.
    pub(super) fn file(&self, branch: &str, path: &str) -> Result<Option<String>, TrackerError> {
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(invalid(format!("{path:?} is not a path in a repository")));
        }
        let tree = format!("refs/heads/{branch}");
        let listed = git(
            &self.view,
            &["ls-tree", "-z", "-l", "--full-tree", &tree, "--", path],
        )?;
        // A branch that does not exist has no files; `ls-tree` fails on it.
        let Some(entry) = text(listed) else {
            return Ok(None);
        };
        // MODE TYPE HASH SIZE<tab>PATH
        let mut fields = entry.split_ascii_whitespace();
        let (mode, hash) = (fields.next(), fields.nth(1));
        let size: Option<u64> = fields.next().and_then(|size| size.parse().ok());
        let (Some("100644" | "100755"), Some(hash), Some(size)) = (mode, hash, size) else {
            return Ok(None);
        };
        if size > MAX_FILE {
            return Err(refused(format!("{path} is larger than {MAX_FILE} bytes")));
        }
        let blob = git(&self.view, &["cat-file", "blob", hash])?;
        match String::from_utf8(blob.stdout) {
            Ok(text) if blob.status.success() => Ok(Some(text)),
            Ok(_) => Ok(None),
            Err(_) => Err(refused(format!("{path} is not UTF-8"))),
        }
    }
}

/// The work tree to name instead of its `.git`, or of a folder in that.
fn work_tree_around(view: &View) -> Option<&Path> {
    let mut around = view.top().ancestors().filter(|_| view.is_bare());
    let dot_git = around.find(|folder| folder.file_name().is_some_and(|name| name == ".git"))?;
    dot_git.parent()
}

fn require_commit(view: &View, shown: &str) -> Result<(), TrackerError> {
    let resolve = |name| git(view, &["rev-parse", "--verify", "--quiet", name]).map(text);
    if resolve("HEAD^{commit}")?.is_some() {
        return Ok(());
    }
    // A name is resolved whether or not its object is there.
    Err(invalid(match resolve("HEAD")? {
        None => format!("{shown} has no commit. hint: create one first"),
        Some(hash) => format!(
            "HEAD of {shown} is the commit {}, which is missing or damaged. hint: `git fsck` there shows what else is",
            hash.trim()
        ),
    }))
}

fn git(view: &View, args: &[&str]) -> Result<Output, TrackerError> {
    let top = view.top().display();
    let mut git = view
        .git()
        .map_err(|error| unavailable(format!("{top}: {error}. hint: {}", remedy(&error))))?;
    git.args(args)
        .output()
        .map_err(|error| unavailable(ViewError::NoGit(error).with_hint()))
}

fn text(output: Output) -> Option<String> {
    let fine = output.status.success();
    fine.then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
