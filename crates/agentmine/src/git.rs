//! Git in a folder that may be hostile: through a view, without the repository's own configuration.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Output, Stdio};

use agentmine_git::{Errand, GitHome, View};
use tokio::process::Command;

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
    let home = GitHome::new()?;
    let mut git = Command::from(home.git(Errand::Untrusted));
    git.arg("--version").stdout(Stdio::piped());
    git.stderr(Stdio::piped()).kill_on_drop(true).output().await
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
