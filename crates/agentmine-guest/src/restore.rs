//! Restores the project to a snapshot: files, HEAD, and the branch with the agent's commits.
//!
//! The clone may be at a newer commit than the one from which the snapshots started. Commits that a bundle
//! needs and the clone does not have are fetched from the remote.

use std::io;
use std::path::Path;

use agentmine_guest::mux::MuxStream;
use agentmine_guest::protocol::read_exactly;
use anyhow::{Context as _, Result, bail, ensure};

use crate::git::{Git, SNAPSHOT_REF};
use crate::git_state;
use crate::reply::{finish, reply};
use crate::snapshot::INDEX;
use crate::state::State;

pub(crate) async fn run(
    mut stream: MuxStream,
    commit: &str,
    bundles: &[u64],
    state: &State,
) -> io::Result<()> {
    let done = receive_and_apply(&mut stream, commit, bundles, state).await;
    reply(&mut stream, done).await?;
    finish(&mut stream).await
}

async fn receive_and_apply(
    stream: &mut MuxStream,
    commit: &str,
    bundles: &[u64],
    state: &State,
) -> Result<()> {
    let mut memory = state.snapshots.lock().await;
    // The bundles are read in any case: the worker writes them before it reads the reply.
    let git = Git::open(&state.git_place()).await;
    let mut applied = Ok(());
    for &len in bundles {
        let bundle = read_exactly(stream, len).await?;
        if let (Ok(git), Ok(())) = (&git, &applied) {
            applied = apply(git, &bundle).await;
        }
    }
    let git = git?;
    applied?;
    *memory = Default::default();
    ensure!(
        git.commit(commit).await?.as_deref() == Some(commit),
        "the bundles do not contain the snapshot {commit}"
    );
    restore(&git, commit).await
}

/// Restores a snapshot that is in the repository.
pub(crate) async fn restore(git: &Git, commit: &str) -> Result<()> {
    git.run(["update-ref", SNAPSHOT_REF, commit]).await?;
    restore_files(git, commit).await?;
    restore_head(git, commit).await
}

pub(crate) async fn apply(git: &Git, bundle: &[u8]) -> Result<()> {
    let path = git.folder.join("agentmine-bundle");
    std::fs::write(&path, bundle)?;
    let done = fetch(git, &path, bundle).await;
    let _ = std::fs::remove_file(&path);
    done.context("applying a snapshot's bundle")
}

async fn fetch(git: &Git, path: &Path, bundle: &[u8]) -> Result<()> {
    for needed in prerequisites(bundle) {
        if git.commit(&needed).await?.is_none() {
            let args = [
                "fetch",
                "--quiet",
                "--no-tags",
                "--depth",
                "1",
                "origin",
                &needed,
            ];
            git.run(args)
                .await
                .context("fetching a commit that a bundle needs")?;
        }
    }
    let path = path.to_string_lossy();
    let refspec = format!("+{SNAPSHOT_REF}:{SNAPSHOT_REF}");
    git.run([
        "fetch",
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        &path,
        &refspec,
    ])
    .await?;
    Ok(())
}

/// The commits that a bundle needs but does not contain: the lines `-HASH comment` of its header.
fn prerequisites(bundle: &[u8]) -> Vec<String> {
    let lines = bundle
        .split(|&byte| byte == b'\n')
        .take_while(|line| !line.is_empty());
    lines
        .filter_map(|line| line.strip_prefix(b"-"))
        .filter_map(|line| line.split(|&byte| byte == b' ').next())
        .filter(|hash| hash.len() >= 40 && hash.iter().all(u8::is_ascii_hexdigit))
        .map(|hash| String::from_utf8_lossy(hash).into_owned())
        .collect()
}

/// Replaces the files with those of the snapshot. Ignored files stay.
async fn restore_files(git: &Git, commit: &str) -> Result<()> {
    let ours = git.folder.join(INDEX);
    for file in [INDEX, &format!("{INDEX}.lock")] {
        let _ = std::fs::remove_file(git.folder.join(file));
    }
    if git.folder.join("index").exists() {
        std::fs::copy(git.folder.join("index"), &ours).context("copying the index")?;
    }
    let with_ours = git.with_index(&ours);
    // First adds all existing files, so that those that are not in the snapshot are removed.
    with_ours
        .attempt(["add", "--all", "--ignore-errors", "."])
        .await?;
    with_ours
        .run(["read-tree", "--reset", "-u", commit])
        .await?;
    Ok(())
}

async fn restore_head(git: &Git, commit: &str) -> Result<()> {
    let message = git.run(["log", "-1", "--format=%B", commit]).await?;
    let field = |name: &str| message.lines().find_map(|line| line.strip_prefix(name));
    let (Some(head), Some(branch)) = (field("head "), field("branch ").or(Some(""))) else {
        bail!("{commit} is not a snapshot");
    };
    if !branch.is_empty() {
        ensure!(
            branch.starts_with("refs/heads/"),
            "{branch:?} is not a branch"
        );
        git.run(["check-ref-format", branch])
            .await
            .context("the snapshot's branch name")?;
        git.run(["symbolic-ref", "HEAD", branch]).await?;
    }
    if head == "none" {
        return Ok(());
    }
    ensure!(
        git.commit(head).await?.is_some(),
        "the snapshot's HEAD is missing"
    );
    let mut args = vec!["update-ref"];
    if branch.is_empty() {
        args.push("--no-deref");
    }
    args.extend(["HEAD", head]);
    git.run(args).await?;
    git.run(["reset", "--quiet", "--mixed"]).await?;
    if let Some(state) = field("state ") {
        // Best effort: the files are there, and without it the repository is as after a fresh clone.
        let _ = git_state::restore(git, state).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prerequisites_are_read_from_the_header_only() {
        let hash = "0123456789012345678901234567890123456789";
        let other = "abcdef0123012345678901234567890123456789";
        let bundle =
            format!("# v2 git bundle\n-{hash} base\n{other} refs/x\n\nPACK\n-{other} no\n");
        assert_eq!(prerequisites(bundle.as_bytes()), [hash]);
        assert!(prerequisites(b"-nonsense\n-\n").is_empty());
    }
}
