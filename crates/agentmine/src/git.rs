//! Git in a folder that may be hostile: through a view, without the repository's own configuration.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Output, Stdio};

use agentmine_git::{Errand, GitHome, View};
use agentmine_runtime::exit::{Exit, Failure};
use anyhow::Result;
use tokio::process::Command;

/// The first release that reads its configuration where AgentMine writes it (`GIT_CONFIG_GLOBAL`). One before 2.28 also
/// does not read the repository of a [`View`], and would find no commit in it.
const OLDEST: (u32, u32) = (2, 32);
/// What to do about a git that is too old.
pub(crate) const NEWER: &str =
    "install a newer git, for example from your distribution's backports, and put it first on PATH";

/// The output of a git command in `folder`; `None` if that is in no repository, or git cannot be started.
pub(crate) async fn output(folder: &Path, args: &[&str]) -> Option<Output> {
    let folder = folder.to_owned();
    let opened = tokio::task::spawn_blocking(move || View::open(&folder)).await;
    let view = opened.ok()?.ok()?;
    let mut git = Command::from(view.git().ok()?);
    git.args(args).kill_on_drop(true).output().await.ok()
}

/// Whether `folder` is in a repository with a work tree.
pub(crate) async fn has_work_tree(folder: &Path) -> bool {
    let folder = folder.to_owned();
    let opened = tokio::task::spawn_blocking(move || View::open(&folder)).await;
    matches!(opened, Ok(Ok(view)) if !view.is_bare())
}

/// What git on this machine answers when it is asked for its version.
pub(crate) async fn version() -> std::io::Result<Output> {
    let home =
        GitHome::new().map_err(|error| no_temporary_folder(&std::env::temp_dir(), &error))?;
    let mut git = Command::from(home.git(Errand::Untrusted));
    git.arg("--version").stdout(Stdio::piped());
    git.stderr(Stdio::piped()).kill_on_drop(true).output().await
}

/// Never of the kind `NotFound`, which callers report as a missing git.
fn no_temporary_folder(folder: &Path, error: &std::io::Error) -> std::io::Error {
    std::io::Error::other(format!(
        "the temporary folder {} cannot be written: {error}. hint: make room there, or name another one with TMPDIR",
        folder.display()
    ))
}

/// Checks, before anything is made, that git on this machine can be used.
///
/// # Errors
/// [`Exit::NotFound`] if there is none, or it is too old.
pub(crate) async fn require() -> Result<()> {
    let asked = version().await.map_err(|error| {
        let failure = Failure::new(Exit::NotFound, "git cannot be started");
        let failure = match error.kind() {
            std::io::ErrorKind::NotFound => {
                failure.hint("install git, for example with `apt-get install git`")
            }
            _ => failure,
        };
        failure.because(error)
    })?;
    if !asked.status.success() {
        let said = String::from_utf8_lossy(&asked.stderr).trim().to_owned();
        return Err(Failure::new(Exit::NotFound, format!("git --version failed: {said}")).into());
    }
    match too_old(&String::from_utf8_lossy(&asked.stdout)) {
        None => Ok(()),
        Some(what) => Err(Failure::new(Exit::NotFound, what).hint(NEWER).into()),
    }
}

/// What is wrong with a git that answers this when it is asked for its version. An answer that cannot be parsed counts as new enough.
pub(crate) fn too_old(answer: &str) -> Option<String> {
    let version = answer.trim().strip_prefix("git version ")?;
    let version = version.split_whitespace().next()?;
    let mut numbers = version.split('.').map(|part| part.parse::<u32>());
    let seen = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    let (major, minor) = OLDEST;
    (seen < OLDEST).then(|| format!("git is {version}, expected {major}.{minor} or newer"))
}

/// Files that differ from the last commit, or are not in it, outside of `.agentmine`; sorted. Empty where git cannot say.
pub(crate) async fn uncommitted(folder: &Path) -> Vec<String> {
    let status = [
        "status",
        "--porcelain=v1",
        "-z",
        "--untracked-files=all",
        "--ignore-submodules=all",
        "--no-renames",
    ];
    let Some(listed) = output(folder, &status).await else {
        return Vec::new();
    };
    let entries = listed.stdout.split(|byte| *byte == 0);
    // Two letters of state and a space.
    let names = entries.filter_map(|entry| entry.get(3..));
    let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
    let found: BTreeSet<String> = names
        .filter(|name| !name.starts_with(".agentmine/"))
        .collect();
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_up(folder: &Path, args: &[&str]) -> String {
        let done = std::process::Command::new("git")
            .args(["-c", "user.name=x", "-c", "user.email=x@localhost", "-C"])
            .arg(folder)
            .args(args)
            .output()
            .unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    async fn list(folder: &Path) {
        let list = ["ls-files", "--cached", "--others", "--exclude-standard"];
        let done = output(folder, &list).await.unwrap();
        assert!(String::from_utf8_lossy(&done.stdout).contains("top"));
    }

    #[test]
    fn a_git_that_ignores_our_configuration_is_too_old() {
        for (answer, is_too_old) in [
            ("git version 2.25.1\n", true),
            ("git version 2.31.8", true),
            ("git version 1.9.5", true),
            ("git version 2.32.0", false),
            ("git version 2.39.5 (Apple Git-154)\n", false),
            ("git version 2.54.0.rc1.windows.1", false),
            ("git version 3.0.0", false),
            ("git version unknown", false),
            ("", false),
        ] {
            assert_eq!(too_old(answer).is_some(), is_too_old, "{answer}");
        }
        let why = too_old("git version 2.25.1\n").unwrap();
        assert_eq!(why, "git is 2.25.1, expected 2.32 or newer");
    }

    #[test]
    fn a_missing_temporary_folder_is_no_missing_git() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        let shown = no_temporary_folder(Path::new("/gone"), &missing);
        assert_ne!(shown.kind(), std::io::ErrorKind::NotFound);
        assert!(shown.to_string().contains("/gone cannot be written"));
    }

    #[tokio::test]
    async fn what_differs_from_the_last_commit_is_listed_and_the_index_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        set_up(here, &["init", "--quiet"]);
        std::fs::create_dir(here.join("a folder")).unwrap();
        std::fs::create_dir(here.join(".agentmine")).unwrap();
        for file in ["changed", "removed", "staged", "touched", "a folder/é"] {
            std::fs::write(here.join(file), file).unwrap();
        }
        set_up(here, &["add", "."]);
        set_up(here, &["commit", "--quiet", "-m", "x"]);
        assert_eq!(uncommitted(here).await, Vec::<String>::new());
        for file in ["changed", "staged", "new", "a folder/new", ".agentmine/x"] {
            std::fs::write(here.join(file), "other").unwrap();
        }
        set_up(here, &["add", "staged"]);
        std::fs::remove_file(here.join("removed")).unwrap();
        // As in a copy of the repository.
        std::fs::rename(here.join("touched"), here.join("x")).unwrap();
        std::fs::copy(here.join("x"), here.join("touched")).unwrap();
        std::fs::remove_file(here.join("x")).unwrap();
        let index = std::fs::read(here.join(".git/index")).unwrap();
        let found = uncommitted(here).await;
        assert_eq!(
            found,
            ["a folder/new", "changed", "new", "removed", "staged"]
        );
        assert_eq!(std::fs::read(here.join(".git/index")).unwrap(), index);
    }

    #[tokio::test]
    async fn a_file_system_monitor_is_not_started() {
        let folder = tempfile::tempdir().unwrap();
        let (here, ran) = (folder.path(), folder.path().join("ran"));
        set_up(here, &["init", "--quiet"]);
        std::fs::write(here.join("top"), "x").unwrap();
        let program = format!("touch {};", ran.display());
        set_up(here, &["config", "core.fsmonitor", &program]);
        list(here).await;
        assert!(!ran.exists());
    }

    /// Listing expands a sparse index, which needs a tree that is missing from the repository.
    #[tokio::test]
    async fn nothing_is_fetched_from_a_partial_clones_remote() {
        let folder = tempfile::tempdir().unwrap();
        let (here, ran) = (folder.path().join("clone"), folder.path().join("ran"));
        std::fs::create_dir_all(here.join("in")).unwrap();
        std::fs::create_dir_all(here.join("out")).unwrap();
        set_up(&here, &["init", "--quiet"]);
        for (file, text) in [("top", "1"), ("in/file", "2"), ("out/file", "3")] {
            std::fs::write(here.join(file), text).unwrap();
        }
        set_up(&here, &["add", "."]);
        set_up(&here, &["commit", "--quiet", "-m", "x"]);
        let tree = set_up(&here, &["rev-parse", "HEAD:out"]);
        let sparse = ["sparse-checkout", "set", "--cone", "--sparse-index", "in"];
        set_up(&here, &sparse);
        let (first, rest) = tree.split_at(2);
        std::fs::remove_file(here.join(".git/objects").join(first).join(rest)).unwrap();
        let program = format!("touch {}; false", ran.display());
        for (key, value) in [
            ("core.repositoryformatversion", "1"),
            ("extensions.partialClone", "origin"),
            ("remote.origin.promisor", "true"),
            ("remote.origin.url", folder.path().to_str().unwrap()),
            ("remote.origin.uploadpack", &program),
        ] {
            set_up(&here, &["config", key, value]);
        }
        list(&here).await;
        assert!(!ran.exists());
    }
}
