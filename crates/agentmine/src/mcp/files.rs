//! Archives a project's files for a jail.
//!
//! In a repository, these are the files that git tracks, and new ones that are not ignored; elsewhere, all
//! files. A project over the limits is rejected, not cut: a part of a project would be misleading.
//!
//! The list is not trusted: a folder in it may have become a link. The kernel opens each file below the project
//! in one step, without following links, and its content is read from that handle.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2, readlinkat};
use rustix::io::Errno;

use crate::git;

/// Bytes of all files together; what the sandbox takes at once is 64 MiB.
const MAX_BYTES: u64 = 48 * 1024 * 1024;
/// How many files.
const MAX_FILES: usize = 20_000;
/// Left out if git does not list the files.
const LEFT_OUT: [&str; 4] = [".git", "node_modules", "target", ".venv"];

/// All files of `project` as a tar archive. Links are kept as links.
pub(super) async fn archive(project: PathBuf) -> Result<Vec<u8>> {
    let listed = listed_by_git(&project).await;
    tokio::task::spawn_blocking(move || {
        let files = match listed {
            Some(files) => files,
            // Without git's list, ignored files would be included, which are often secrets.
            None => {
                ensure!(
                    !project.ancestors().any(|folder| folder.join(".git").exists()),
                    "git cannot list the files of {}, so ignored files cannot be determined; does `git -C {0} status` work?",
                    project.display()
                );
                walked(&project)?
            }
        };
        packed(&project, &files)
    })
    .await?
}

fn packed(project: &Path, files: &BTreeSet<PathBuf>) -> Result<Vec<u8>> {
    ensure!(
        files.len() <= MAX_FILES,
        "the project has {} files; at most {MAX_FILES} are put into a jail (files that .gitignore names are not)",
        files.len()
    );
    let unreadable = |path: &Path| format!("{} cannot be read", project.join(path).display());
    let root = open(project, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
        .with_context(|| unreadable(Path::new("")))?;
    let mut archive = tar::Builder::new(Vec::new());
    let mut room = MAX_BYTES;
    for path in files {
        let found = find(&root, path, room).with_context(|| unreadable(path))?;
        let Some((mut header, content)) = found else {
            continue;
        };
        let taken = match content {
            Content::Link(target) => {
                archive.append_link(&mut header, path, OsStr::from_bytes(&target))?;
                target.len()
            }
            Content::File(bytes) => {
                header.set_size(bytes.len() as u64);
                archive.append_data(&mut header, path, bytes.as_slice())?;
                bytes.len()
            }
        };
        room = room.checked_sub(taken as u64).with_context(|| {
            format!(
                "the project's files are more than {} MiB; no more are put into a jail (files that .gitignore names are not)",
                MAX_BYTES / 1024 / 1024
            )
        })?;
    }
    Ok(archive.into_inner()?)
}

enum Content {
    /// Where it points to.
    Link(Vec<u8>),
    File(Vec<u8>),
}

/// A file or link below `root`, opened once; at most one byte more than there is `room` for. `None` if it is
/// neither, is gone (git still lists it), or has a link in its path, and so would be a file from elsewhere.
fn find(root: &OwnedFd, path: &Path, room: u64) -> Result<Option<(tar::Header, Content)>> {
    let below = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let open = |flags| {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat2(root, path, flags, Mode::empty(), below).map(File::from)
    };
    // Non-blocking, in case it is a pipe.
    let opened = match open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
        // A link: if it is the last component, this opens the link itself.
        Err(Errno::LOOP) => open(OFlags::PATH),
        other => other,
    };
    let file = match opened {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NXIO) => {
            return Ok(None);
        }
        Err(errno) => return Err(errno.into()),
    };
    let meta = file.metadata()?;
    let content = if meta.is_symlink() {
        Content::Link(readlinkat(&file, "", Vec::new())?.into_bytes())
    } else if meta.is_file() {
        let mut bytes = Vec::new();
        file.take(room + 1).read_to_end(&mut bytes)?;
        Content::File(bytes)
    } else {
        return Ok(None);
    };
    let mut header = tar::Header::new_gnu();
    header.set_metadata(&meta);
    header.set_size(0);
    Ok(Some((header, content)))
}

/// `None` if the folder is not in a repository, or git is not installed.
async fn listed_by_git(project: &Path) -> Option<BTreeSet<PathBuf>> {
    let list = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let output = git::output(project, &list).await?;
    if !output.status.success() {
        return None;
    }
    let names = output.stdout.split(|byte| *byte == 0);
    let paths = names
        .filter(|name| !name.is_empty())
        .map(|name| PathBuf::from(OsStr::from_bytes(name)));
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
            if LEFT_OUT.iter().any(|left_out| name == *left_out) {
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
                bail!("the project has more than {MAX_FILES} files; no more are put into a jail");
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
        let done = std::process::Command::new("git")
            .arg("-C")
            .arg(folder)
            .args(args)
            .output();
        assert!(done.unwrap().status.success());
    }

    #[tokio::test]
    async fn a_repository_gives_what_is_tracked_or_new_but_not_what_is_ignored() {
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
        let archive = archive(folder.path().into()).await.unwrap();
        assert_eq!(names(&archive), [".gitignore", "link", "src/new.py"]);
        // The link itself, not what it points to.
        assert!(!String::from_utf8_lossy(&archive).contains("root:"));
    }

    #[tokio::test]
    async fn a_plain_folder_gives_its_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("node_modules/x")).unwrap();
        std::fs::write(folder.path().join("node_modules/x/y"), "x").unwrap();
        std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
        std::fs::write(folder.path().join("a/b/c"), "x").unwrap();
        assert_eq!(
            names(&archive(folder.path().into()).await.unwrap()),
            ["a/b/c"]
        );
    }

    #[tokio::test]
    async fn a_project_over_the_cap_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join("big")).unwrap();
        file.set_len(MAX_BYTES + 1).unwrap();
        let error = archive(folder.path().into()).await.unwrap_err().to_string();
        assert!(error.contains("48 MiB"), "{error}");
    }

    #[tokio::test]
    async fn a_tracked_file_is_not_read_through_a_folder_that_is_now_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (project, outside) = (folder.path().join("project"), folder.path().join("outside"));
        for it in [&project.join("a"), &outside] {
            std::fs::create_dir_all(it).unwrap();
            std::fs::write(it.join("key"), "harmless").unwrap();
        }
        git(&project, &["init", "--quiet"]);
        git(&project, &["add", "."]);
        std::fs::write(outside.join("key"), "the user's secret").unwrap();
        std::fs::remove_dir_all(project.join("a")).unwrap();
        std::os::unix::fs::symlink(&outside, project.join("a")).unwrap();
        let archive = archive(project).await.unwrap();
        assert!(!String::from_utf8_lossy(&archive).contains("secret"));
        // The link itself is new, and not ignored.
        assert_eq!(names(&archive), ["a"]);
    }

    #[tokio::test]
    async fn what_a_file_is_and_where_a_link_leads_is_kept() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        symlink("program", folder.path().join("link")).unwrap();
        let long = "long/".repeat(30);
        std::fs::create_dir_all(folder.path().join(&long)).unwrap();
        std::fs::write(folder.path().join(&long).join("file"), "text").unwrap();
        let unpacked = tempfile::tempdir().unwrap();
        let archive = archive(folder.path().into()).await.unwrap();
        tar::Archive::new(archive.as_slice())
            .unpack(unpacked.path())
            .unwrap();
        let there = |name: &str| unpacked.path().join(name);
        let mode = std::fs::metadata(there("program")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o755);
        assert_eq!(
            std::fs::read_link(there("link")).unwrap(),
            Path::new("program")
        );
        let file = std::fs::read_to_string(there(&long).join("file"));
        assert_eq!(file.unwrap(), "text");
    }
}
