//! Snapshots of the project: a commit on a hidden ref, and a bundle of what is new.
//!
//! The commit contains every file that is tracked or not ignored, and is made with a separate index. Its
//! parents are the previous snapshot and HEAD, so that it includes the agent's own commits; its message names
//! HEAD and the branch. The bundle leaves out what the remote has. Not preserved: the difference between
//! staged and other changes, the content of a repository nested in the project, and files that are larger than
//! the bundle may be: they would not fit, and to read a sparse file of some terabytes takes for ever.

use std::io;
use std::path::{Path, PathBuf};

use agentmine_guest::mux::MuxStream;
use agentmine_guest::protocol::{MAX_LEFT_OUT, SnapshotDone};
use anyhow::{Context as _, Result, ensure};
use tokio::io::AsyncWriteExt as _;

use crate::git::{Git, SNAPSHOT_REF};
use crate::reply::{finish, reply};
use crate::state::{SnapshotIndex, State};

/// How many files are excluded by name; each takes a part of a command line.
const MAX_EXCLUDED: usize = 1000;
/// Maximum length of a name of a file that was left out, in characters.
const MAX_NAME: usize = 200;

pub(crate) async fn run(
    mut stream: MuxStream,
    since: Option<String>,
    max_bundle: u64,
    state: &State,
) -> io::Result<()> {
    let taken = {
        let mut memory = state.snapshots.lock().await;
        take(since, max_bundle, state, &mut memory).await
    };
    let (commit, bundle, left_out) = match taken {
        Ok(taken) => taken,
        Err(err) => {
            reply::<SnapshotDone>(&mut stream, Err(err)).await?;
            return finish(&mut stream).await;
        }
    };
    let bundle_len = bundle.as_ref().map(|bundle| bundle.len() as u64);
    let done = SnapshotDone {
        commit,
        bundle_len,
        left_out,
    };
    reply(&mut stream, Ok(done)).await?;
    stream.write_all(&bundle.unwrap_or_default()).await?;
    finish(&mut stream).await
}

async fn take(
    since: Option<String>,
    max_bundle: u64,
    state: &State,
    memory: &mut SnapshotIndex,
) -> Result<(String, Option<Vec<u8>>, Vec<String>)> {
    let git = Git::open(state).await?;
    let head = git.commit("HEAD").await?;
    let (tree, left_out) = write_tree(&git, head.as_deref(), memory, max_bundle).await?;
    let branch = git
        .run(["symbolic-ref", "--quiet", "HEAD"])
        .await
        .unwrap_or_default();
    let since = match since {
        Some(since) => git.commit(&since).await?,
        None => None,
    };
    let message = message(head.as_deref(), &branch);
    if let Some(since) = &since {
        let same_tree = git.run(["rev-parse", &format!("{since}^{{tree}}")]).await? == tree;
        if same_tree && git.run(["log", "-1", "--format=%B", since]).await? == message.trim_end() {
            return Ok((since.clone(), None, left_out));
        }
    }
    let mut args = vec!["commit-tree".to_owned(), tree, "-m".into(), message];
    for parent in since.iter().chain(&head) {
        args.extend(["-p".to_owned(), parent.clone()]);
    }
    let commit = git.run(args).await?;
    git.run(["update-ref", SNAPSHOT_REF, &commit]).await?;
    let bundle = bundle(&git, since.as_deref(), max_bundle).await?;
    Ok((commit, Some(bundle), left_out))
}

/// All files of the project as a tree, and the names of those that are too large for it.
async fn write_tree(
    git: &Git,
    head: Option<&str>,
    memory: &mut SnapshotIndex,
    max_file: u64,
) -> Result<(String, Vec<String>)> {
    let ours = git.folder.join("agentmine-index");
    let with_ours = git.with_index(&ours);
    let theirs = git.folder.join("index");
    let seen = std::fs::metadata(&theirs).ok();
    let seen = seen.and_then(|seen| Some((seen.modified().ok()?, seen.len())));
    // A fresh copy includes ignored files that the agent has staged. If the agent's index has not changed,
    // ours is better: it has the hashes of what is not staged.
    if memory.0 != seen || !ours.exists() {
        let _ = std::fs::remove_file(&ours);
        if seen.is_some() {
            std::fs::copy(&theirs, &ours).context("copying the index")?;
        } else if let Some(head) = head {
            with_ours.run(["read-tree", head]).await?;
        }
        memory.0 = seen;
    }
    let changed = with_ours
        .run([
            "ls-files",
            "-z",
            "--others",
            "--modified",
            "--deleted",
            "--exclude-standard",
        ])
        .await?;
    let mut complaint = String::new();
    let too_large = larger_than(max_file, &git.project, &changed);
    if !changed.is_empty() {
        // If a file cannot be read or vanishes meanwhile, git fails, but only after it has added the others.
        let mut add: Vec<String> = ["add", "--all", "--ignore-errors", "--", "."]
            .map(str::to_owned)
            .into();
        let exclude = |path: &&str| format!(":(top,exclude,literal){path}");
        add.extend(too_large.iter().take(MAX_EXCLUDED).map(exclude));
        (_, _, complaint) = with_ours.attempt(add).await?;
    }
    let tree = with_ours.run(["write-tree"]).await;
    let left_out = too_large.iter().take(MAX_LEFT_OUT);
    let left_out = left_out.map(|path| path.chars().take(MAX_NAME).collect());
    Ok((tree.with_context(|| complaint)?, left_out.collect()))
}

/// The changed files (each followed by NUL) whose size exceeds `limit`, holes included.
fn larger_than<'a>(limit: u64, project: &Path, changed: &'a str) -> Vec<&'a str> {
    let is_larger = |path: &&str| {
        let metadata = std::fs::symlink_metadata(project.join(path));
        metadata.is_ok_and(|metadata| metadata.is_file() && metadata.len() > limit)
    };
    changed.split('\0').filter(is_larger).collect()
}

async fn bundle(git: &Git, since: Option<&str>, max: u64) -> Result<Vec<u8>> {
    let file = TemporaryFile(git.folder.join("agentmine-bundle"));
    let path = file.0.to_string_lossy().into_owned();
    let mut args = vec![
        "bundle",
        "create",
        "--quiet",
        &path,
        SNAPSHOT_REF,
        "--not",
        "--remotes",
    ];
    args.extend(since);
    git.run(args).await?;
    let len = std::fs::metadata(&file.0)?.len();
    ensure!(
        len <= max,
        "the snapshot's bundle has {len} bytes; the limit is {max}"
    );
    Ok(std::fs::read(&file.0)?)
}

fn message(head: Option<&str>, branch: &str) -> String {
    format!(
        "agentmine snapshot\n\nhead {}\nbranch {branch}\n",
        head.unwrap_or("none")
    )
}

#[derive(Debug)]
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
