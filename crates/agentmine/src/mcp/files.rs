//! A project's files as one archive, to be put into a jail.
//!
//! Git's own list where the project is a repository: what is tracked, and what is new and not ignored.
//! Else every file. A project over the caps is refused, not cut: half a project misleads.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

/// Bytes of all files together; what the sandbox takes at once is 64 MiB.
const MAX_BYTES: u64 = 48 * 1024 * 1024;
/// How many files.
const MAX_FILES: usize = 20_000;
/// Passed over where there is no git to tell what is ignored.
const PASSED_OVER: [&str; 4] = [".git", "node_modules", "target", ".venv"];

/// All files of `project` as a tar archive. Links are kept as links.
pub(super) fn archive(project: &Path) -> Result<Vec<u8>> {
    let files = match listed_by_git(project) {
        Some(files) => files,
        None => walked(project)?,
    };
    ensure!(
        files.len() <= MAX_FILES,
        "the project has {} files; at most {MAX_FILES} are put into a jail (what .gitignore names is not)",
        files.len()
    );
    let mut archive = tar::Builder::new(Vec::new());
    archive.follow_symlinks(false);
    let mut bytes = 0;
    for file in files {
        let path = project.join(&file);
        // What was deleted and is still tracked is in git's list.
        let Ok(meta) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        if !meta.is_file() && !meta.is_symlink() {
            continue;
        }
        bytes += meta.len();
        ensure!(
            bytes <= MAX_BYTES,
            "the project's files are more than {} MiB; no more is put into a jail (what .gitignore names is not)",
            MAX_BYTES / 1024 / 1024
        );
        archive
            .append_path_with_name(&path, &file)
            .with_context(|| format!("{} cannot be read", path.display()))?;
    }
    Ok(archive.into_inner()?)
}

/// `None` where the folder is in no repository, or there is no git.
fn listed_by_git(project: &Path) -> Option<BTreeSet<PathBuf>> {
    let output = Command::new("git")
        // A repository's own settings must not start a program.
        .args(["-c", "core.fsmonitor=false", "-C"])
        .arg(project)
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let names = output.stdout.split(|byte| *byte == 0);
    let paths = names
        .filter(|name| !name.is_empty())
        .map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name)));
    Some(paths.filter(|path| is_below(path)).collect())
}

fn is_below(path: &Path) -> bool {
    path.components()
        .all(|part| matches!(part, Component::Normal(name) if name != ".git"))
}

fn walked(project: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let here = project.join(&folder);
        let entries = std::fs::read_dir(&here)
            .with_context(|| format!("{} cannot be read", here.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            if PASSED_OVER.iter().any(|passed| name == *passed) {
                continue;
            }
            let path = folder.join(&name);
            match entry.file_type()? {
                kind if kind.is_dir() => folders.push(path),
                kind if kind.is_file() || kind.is_symlink() => {
                    files.insert(path);
                }
                _ => {}
            }
            if files.len() > MAX_FILES || folders.len() > MAX_FILES {
                bail!("the project has more than {MAX_FILES} files; no more is put into a jail");
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(archive: &[u8]) -> Vec<String> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap();
        entries
            .map(|it| it.unwrap().path().unwrap().display().to_string())
            .collect()
    }

    fn git(folder: &Path, args: &[&str]) {
        let done = Command::new("git")
            .arg("-C")
            .arg(folder)
            .args(args)
            .output();
        assert!(done.unwrap().status.success());
    }

    #[test]
    fn a_repository_gives_what_is_tracked_or_new_but_not_what_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        git(folder.path(), &["init", "--quiet"]);
        std::fs::write(file(".gitignore"), "secret.env\n").unwrap();
        std::fs::write(file("secret.env"), "x").unwrap();
        std::fs::write(file("gone"), "x").unwrap();
        std::fs::create_dir(file("src")).unwrap();
        std::fs::write(file("src/new.py"), "x").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", file("link")).unwrap();
        git(folder.path(), &["add", "gone"]);
        std::fs::remove_file(file("gone")).unwrap();
        let archive = archive(folder.path()).unwrap();
        assert_eq!(names(&archive), [".gitignore", "link", "src/new.py"]);
        // The link itself, not what it points to.
        assert!(!String::from_utf8_lossy(&archive).contains("root:"));
    }

    #[test]
    fn a_plain_folder_gives_its_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("node_modules/x")).unwrap();
        std::fs::write(folder.path().join("node_modules/x/y"), "x").unwrap();
        std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
        std::fs::write(folder.path().join("a/b/c"), "x").unwrap();
        assert_eq!(names(&archive(folder.path()).unwrap()), ["a/b/c"]);
    }

    #[test]
    fn a_project_over_the_cap_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join("big")).unwrap();
        file.set_len(MAX_BYTES + 1).unwrap();
        let error = archive(folder.path()).unwrap_err().to_string();
        assert!(error.contains("48 MiB"), "{error}");
    }
}
