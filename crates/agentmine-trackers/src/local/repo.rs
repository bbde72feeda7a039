//! The git repository beside the issues, read through the git command line.
//!
//! Guaranteed: no command here reads the repository's configuration, or runs anything that it could name.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use agentmine_git::{View, ViewError};
use sha2::{Digest, Sha256};

use super::error::{invalid, refused, unavailable};
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
        let view = View::open(&folder).map_err(|error| match error {
            ViewError::NoRepository(_) => invalid(format!(
                "{shown} is not a git repository. hint: run `git init` and commit there"
            )),
            ViewError::NoGit(_) => unavailable(error.to_string()),
            ViewError::Configuration { .. } | ViewError::Io(_) => {
                invalid(format!("{shown}: {error}"))
            }
        })?;
        let path = view.top().to_owned();
        let head = ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"];
        if text(git(&view, &head)?).is_none() {
            return Err(invalid(format!(
                "{shown} has no commit. hint: create one first"
            )));
        }
        let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
        Ok(Self {
            id: hex::encode(&digest[..8]),
            path,
            view: Arc::new(view),
        })
    }

    /// The branch that is checked out.
    pub(super) fn default_branch(&self) -> Result<String, TrackerError> {
        let branch = text(git(
            &self.view,
            &["symbolic-ref", "--quiet", "--short", "HEAD"],
        )?);
        branch.map(|name| name.trim().to_owned()).ok_or_else(|| {
            refused(format!(
                "{} has no branch checked out. hint: run `git switch` to the branch to work from",
                self.path.display()
            ))
        })
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

fn git(view: &View, args: &[&str]) -> Result<Output, TrackerError> {
    view.git()
        .and_then(|mut git| git.args(args).output())
        .map_err(|error| unavailable(format!("cannot start git: {error}. hint: install git")))
}

fn text(output: Output) -> Option<String> {
    let fine = output.status.success();
    fine.then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
