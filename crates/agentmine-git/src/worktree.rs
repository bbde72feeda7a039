//! Work trees of a repository on this machine, one for each task.
//!
//! They are made by hand, from the files that `gitrepository-layout` describes, and filled through a [`View`]: so no
//! hook, no filter and no other program of the repository's own configuration runs. A file that a filter would change
//! (Git LFS) is checked out as it is stored.

use std::io;
use std::path::{Path, PathBuf};

use crate::view::{View, ViewError};

/// Why a work tree was not made or not removed.
#[derive(Debug, thiserror::Error)]
pub enum WorktreeError {
    /// The repository cannot be used.
    #[error(transparent)]
    View(#[from] ViewError),
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Git refused.
    #[error("git {what}: {why}")]
    Git {
        /// The command.
        what: &'static str,
        /// What it printed.
        why: String,
    },
    /// The repository has no commit to start from.
    #[error("{0} has no commit yet, expected one to start from")]
    NoCommit(PathBuf),
    /// The branch is checked out elsewhere.
    #[error("the branch {branch} is checked out in {place}")]
    InUse {
        /// The branch.
        branch: String,
        /// Where.
        place: PathBuf,
    },
    /// The repository is of a kind that is not supported here.
    #[error("{0} keeps its refs in a reftable, expected files")]
    Unsupported(PathBuf),
    /// The folder for a work tree holds something else: perhaps the only copy of somebody's work.
    #[error(
        "{0} exists already and is not a work tree of this repository, expected no such folder"
    )]
    Occupied(PathBuf),
    /// There is no such work tree.
    #[error("there is no work tree {0:?}")]
    Missing(String),
    /// It has changes that are not committed.
    #[error("{path} has {} not committed: {}", count(.files.len()), .files.join(", "))]
    Uncommitted {
        /// The work tree.
        path: PathBuf,
        /// Some of the files.
        files: Vec<String>,
    },
}

/// A work tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worktree {
    /// Its name in the repository.
    pub name: String,
    /// Its folder.
    pub path: PathBuf,
    /// The branch that is checked out there, without `refs/heads/`; `None`: no branch.
    pub branch: Option<String>,
}

/// Whether a work tree is removed although work in it would be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// It is.
    Yes,
    /// It is kept.
    No,
}

impl View {
    /// Makes a work tree called `name` in `path`, on `branch`, which starts from the current commit unless it exists.
    /// One of that name and path is returned as it is, except that files that an interrupted call did not write are added.
    ///
    /// # Errors
    /// [`WorktreeError`]; then nothing is left of it but the branch, and what was there before is unchanged.
    pub fn add_worktree(
        &self,
        name: &str,
        path: &Path,
        branch: &str,
    ) -> Result<Worktree, WorktreeError> {
        if !self.refs_are_files() {
            return Err(WorktreeError::Unsupported(self.top().to_owned()));
        }
        let admin = self.worktrees_folder()?.join(name);
        if let Some(found) = read(&admin, name)
            && found.path.join(".git").is_file()
        {
            if !is_same(&found.path, path) {
                // Somebody has moved it.
                return Err(WorktreeError::InUse {
                    branch: branch.to_owned(),
                    place: found.path,
                });
            }
            // Git writes it last. One that was killed before leaves its lock.
            if !admin.join("index").is_file() {
                let _ = std::fs::remove_file(admin.join("index.lock"));
                check_out(path)?;
            }
            return Ok(found);
        }
        self.start_branch(branch)?;
        self.refuse_branch_in_use(branch, &admin)?;
        // An empty folder is left if a process ends before it has written anything there.
        match std::fs::remove_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(WorktreeError::Occupied(path.to_owned()));
            }
            Ok(()) | Err(_) => {}
        }
        // One whose folder is gone.
        remove_folder(&admin)?;
        let made = self.make(&admin, path, branch);
        if made.is_err() {
            let _ = remove_folder(&admin);
        }
        made?;
        Ok(Worktree {
            name: name.to_owned(),
            path: path.to_owned(),
            branch: Some(branch.to_owned()),
        })
    }

    /// The work trees whose name begins with `prefix`, in the order of their names.
    ///
    /// # Errors
    /// [`WorktreeError::Io`].
    pub fn worktrees(&self, prefix: &str) -> Result<Vec<Worktree>, WorktreeError> {
        let folder = self.common_dir().join("worktrees");
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(at(&folder, error)),
        };
        let names = entries.flatten().map(|entry| entry.file_name());
        let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
        names.retain(|name| name.starts_with(prefix));
        names.sort();
        Ok(names
            .iter()
            .filter_map(|name| read(&folder.join(name), name))
            .collect())
    }

    /// Removes a work tree. Its branch stays.
    ///
    /// # Errors
    /// [`WorktreeError::Uncommitted`] where work would be lost, unless it is forced.
    pub fn remove_worktree(&self, name: &str, force: Force) -> Result<Worktree, WorktreeError> {
        let admin = self.common_dir().join("worktrees").join(name);
        let found = read(&admin, name).ok_or_else(|| WorktreeError::Missing(name.to_owned()))?;
        if found.path.join(".git").is_file() {
            if force == Force::No {
                refuse_lost_work(&found.path)?;
            }
            std::fs::remove_dir_all(&found.path).map_err(|error| at(&found.path, error))?;
        }
        remove_folder(&admin)?;
        Ok(found)
    }

    /// Made if it is not there. A link could lead out of the repository.
    fn worktrees_folder(&self) -> Result<PathBuf, WorktreeError> {
        let folder = self.common_dir().join("worktrees");
        match std::fs::create_dir(&folder) {
            Ok(()) => Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let found = std::fs::symlink_metadata(&folder);
                match found.map_err(|error| at(&folder, error))?.is_dir() {
                    true => Ok(folder),
                    false => Err(at(&folder, io::Error::other("expected a folder"))),
                }
            }
            Err(error) => Err(at(&folder, error)),
        }
    }

    fn start_branch(&self, branch: &str) -> Result<(), WorktreeError> {
        let name = format!("refs/heads/{branch}");
        if run(self, "rev-parse", &["--verify", "--quiet", &name]).is_ok() {
            return Ok(());
        }
        let head = ["--verify", "--quiet", "HEAD^{commit}"];
        let head = run(self, "rev-parse", &head)
            .map_err(|_| WorktreeError::NoCommit(self.top().to_owned()))?;
        // The empty value: only if there is no such branch.
        run(self, "update-ref", &[&name, head.trim(), ""]).map(drop)
    }

    fn refuse_branch_in_use(&self, branch: &str, own: &Path) -> Result<(), WorktreeError> {
        let head = format!("ref: refs/heads/{branch}");
        let is_there = |folder: &Path| {
            std::fs::read_to_string(folder.join("HEAD")).is_ok_and(|text| text.trim() == head)
        };
        let in_use = |place: PathBuf| WorktreeError::InUse {
            branch: branch.to_owned(),
            place,
        };
        if is_there(self.common_dir()) {
            return Err(in_use(self.common_dir().to_owned()));
        }
        for other in self.worktrees("")? {
            let admin = self.common_dir().join("worktrees").join(&other.name);
            if admin != own && other.path.exists() && is_there(&admin) {
                return Err(in_use(other.path));
            }
        }
        Ok(())
    }

    fn make(&self, admin: &Path, path: &Path, branch: &str) -> Result<(), WorktreeError> {
        std::fs::create_dir(admin).map_err(|error| at(admin, error))?;
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|error| at(parent, error))?;
        }
        std::fs::create_dir(path).map_err(|error| at(path, error))?;
        let filled = fill(admin, path, branch);
        if filled.is_err() {
            // It was created just now, so nobody's work is in it.
            let _ = std::fs::remove_dir_all(path);
        }
        filled
    }
}

/// Writes the files of a new work tree.
fn fill(admin: &Path, path: &Path, branch: &str) -> Result<(), WorktreeError> {
    let link = path.join(".git");
    for (file, text) in [
        (admin.join("commondir"), "../..\n".to_owned()),
        (admin.join("gitdir"), format!("{}\n", link.display())),
        (admin.join("HEAD"), format!("ref: refs/heads/{branch}\n")),
        (link.clone(), format!("gitdir: {}\n", admin.display())),
    ] {
        std::fs::write(&file, text).map_err(|error| at(&file, error))?;
    }
    check_out(path)
}

/// Writes the files of the commit that is checked out in a work tree, and its index.
fn check_out(path: &Path) -> Result<(), WorktreeError> {
    let inside = View::open(path)?;
    run(&inside, "read-tree", &["--reset", "-u", "HEAD"]).map(drop)
}

/// Whether two paths are those of one folder, whatever links lead to it.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    one == other || real(one).is_some_and(|it| real(other) == Some(it))
}

fn read(admin: &Path, name: &str) -> Option<Worktree> {
    let gitdir = std::fs::read_to_string(admin.join("gitdir")).ok()?;
    // Relative to this folder with `worktree.useRelativePaths`.
    let path = admin.join(Path::new(gitdir.trim_end_matches('\n')).parent()?);
    let path = match gitdir.starts_with('/') {
        true => path,
        false => path.canonicalize().unwrap_or(path),
    };
    let head = std::fs::read_to_string(admin.join("HEAD")).ok()?;
    let branch = head.trim().strip_prefix("ref: refs/heads/");
    Some(Worktree {
        name: name.to_owned(),
        path,
        branch: branch.map(ToOwned::to_owned),
    })
}

fn refuse_lost_work(path: &Path) -> Result<(), WorktreeError> {
    const SHOWN: usize = 20;
    let view = View::open(path)?;
    let status = [
        "--porcelain",
        "-z",
        "--untracked-files=normal",
        "--ignore-submodules=all",
    ];
    let listed = run(&view, "status", &status)?;
    let entries = listed.split('\0').filter(|entry| entry.len() > 3);
    let files: Vec<String> = entries
        .take(SHOWN)
        .map(|entry| entry[3..].to_owned())
        .collect();
    match files.is_empty() {
        true => Ok(()),
        false => Err(WorktreeError::Uncommitted {
            path: path.to_owned(),
            files,
        }),
    }
}

fn run(view: &View, what: &'static str, args: &[&str]) -> Result<String, WorktreeError> {
    let failed = |why: String| WorktreeError::Git { what, why };
    let mut git = view.git().map_err(|error| failed(error.to_string()))?;
    let done = git.arg(what).args(args).output();
    let done = done.map_err(|error| failed(error.to_string()))?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => {
            let why = String::from_utf8_lossy(&done.stderr);
            Err(failed(why.lines().next().unwrap_or("it failed").to_owned()))
        }
    }
}

fn remove_folder(folder: &Path) -> Result<(), WorktreeError> {
    match std::fs::remove_dir_all(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(at(folder, error)),
    }
}

fn at(path: &Path, error: io::Error) -> WorktreeError {
    WorktreeError::Io {
        path: path.to_owned(),
        error,
    }
}

fn count(files: usize) -> String {
    match files {
        1 => "1 file".to_owned(),
        n => format!("{n} files"),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn git(folder: &Path, args: &[&str]) -> String {
        let done = Command::new("git")
            .args(["-c", "user.name=x", "-c", "user.email=x@localhost", "-C"])
            .arg(folder)
            .args(args)
            .output()
            .unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    fn repository(folder: &Path) -> PathBuf {
        let repository = folder.join("project");
        std::fs::create_dir(&repository).unwrap();
        git(&repository, &["init", "--quiet", "-b", "main"]);
        std::fs::write(repository.join("a.txt"), "one\n").unwrap();
        git(&repository, &["add", "."]);
        git(&repository, &["commit", "--quiet", "-m", "x"]);
        repository
    }

    #[test]
    fn a_work_tree_is_one_that_git_knows() {
        let folder = tempfile::tempdir().unwrap();
        let repository = repository(folder.path());
        let path = folder.path().join("trees/task-1");
        let view = View::open(&repository).unwrap();
        let made = view
            .add_worktree("agentmine-task-1", &path, "agentmine/task-1")
            .unwrap();
        assert_eq!(
            view.add_worktree("agentmine-task-1", &path, "agentmine/task-1")
                .unwrap(),
            made
        );
        assert_eq!(
            git(&path, &["status", "--porcelain", "--branch"]),
            "## agentmine/task-1"
        );
        assert_eq!(
            std::fs::read_to_string(path.join("a.txt")).unwrap(),
            "one\n"
        );
        std::fs::write(path.join("b.txt"), "two\n").unwrap();
        git(&path, &["add", "."]);
        git(&path, &["commit", "--quiet", "-m", "y"]);
        assert_eq!(
            git(&repository, &["log", "--format=%s", "agentmine/task-1"]),
            "y\nx"
        );
        assert!(git(&repository, &["worktree", "list"]).contains("[agentmine/task-1]"));
        assert_eq!(git(&repository, &["worktree", "prune", "--verbose"]), "");
        assert_eq!(view.worktrees("agentmine-").unwrap(), [made]);
        let other = folder.path().join("trees/other");
        let in_use = view.add_worktree("agentmine-other", &other, "agentmine/task-1");
        assert!(
            matches!(in_use, Err(WorktreeError::InUse { .. })),
            "{in_use:?}"
        );
        assert!(!other.exists());
    }

    #[test]
    fn a_work_tree_with_work_in_it_is_removed_only_by_force() {
        let folder = tempfile::tempdir().unwrap();
        let repository = repository(folder.path());
        let path = folder.path().join("tree");
        let view = View::open(&repository).unwrap();
        view.add_worktree("t", &path, "b").unwrap();
        for (file, text) in [("new.txt", "new\n"), ("a.txt", "changed\n")] {
            std::fs::write(path.join(file), text).unwrap();
            let refused = view
                .remove_worktree("t", Force::No)
                .unwrap_err()
                .to_string();
            assert!(refused.contains(file) && path.exists(), "{refused}");
            std::fs::remove_file(path.join("new.txt")).ok();
        }
        view.remove_worktree("t", Force::Yes).unwrap();
        assert!(!path.exists());
        assert!(!git(&repository, &["worktree", "list"]).contains("tree"));
        assert_eq!(git(&repository, &["branch", "--list", "b"]), "b");
        let gone = view.remove_worktree("t", Force::Yes);
        assert!(matches!(gone, Err(WorktreeError::Missing(_))), "{gone:?}");
        view.add_worktree("t", &path, "b").unwrap();
        view.remove_worktree("t", Force::No).unwrap();
        assert!(!path.exists());
    }

    /// As after a second clone in the place of a first one that was removed.
    #[test]
    fn a_folder_that_is_no_work_tree_of_the_repository_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let view = View::open(&repository(folder.path())).unwrap();
        let path = folder.path().join("tree");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("work.txt"), "of a day\n").unwrap();
        let refused = view.add_worktree("t", &path, "b");
        assert!(
            matches!(refused, Err(WorktreeError::Occupied(_))),
            "{refused:?}"
        );
        assert_eq!(
            std::fs::read_to_string(path.join("work.txt")).unwrap(),
            "of a day\n"
        );
        assert!(view.worktrees("").unwrap().is_empty());
        std::fs::remove_file(path.join("work.txt")).unwrap();
        view.add_worktree("t", &path, "b").unwrap();
        assert!(path.join("a.txt").is_file());
    }

    #[test]
    fn a_work_tree_that_was_moved_keeps_what_git_knows_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let repository = repository(folder.path());
        let (path, moved) = (folder.path().join("tree"), folder.path().join("moved"));
        let view = View::open(&repository).unwrap();
        view.add_worktree("t", &path, "b").unwrap();
        let to = moved.to_str().unwrap();
        git(
            &repository,
            &["worktree", "move", path.to_str().unwrap(), to],
        );
        std::fs::write(moved.join("new.txt"), "new\n").unwrap();
        git(&moved, &["add", "."]);
        let refused = view.add_worktree("t", &path, "b").unwrap_err().to_string();
        assert!(refused.contains(to), "{refused}");
        assert_eq!(git(&moved, &["status", "--porcelain"]), "A  new.txt");
        assert!(!path.exists());
    }

    #[test]
    fn a_work_tree_whose_creation_was_interrupted_is_completed() {
        let folder = tempfile::tempdir().unwrap();
        let repository = repository(folder.path());
        let path = folder.path().join("tree");
        let view = View::open(&repository).unwrap();
        let made = view.add_worktree("t", &path, "b").unwrap();
        // Git writes the index when all files are there.
        std::fs::remove_file(repository.join(".git/worktrees/t/index")).unwrap();
        std::fs::write(repository.join(".git/worktrees/t/index.lock"), "").unwrap();
        std::fs::remove_file(path.join("a.txt")).unwrap();
        assert_eq!(view.add_worktree("t", &path, "b").unwrap(), made);
        assert_eq!(git(&path, &["status", "--porcelain"]), "");
        assert!(path.join("a.txt").is_file());
    }

    #[test]
    fn a_work_tree_with_relative_paths_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let repository = repository(folder.path());
        let path = folder.path().join("tree");
        let view = View::open(&repository).unwrap();
        view.add_worktree("t", &path, "b").unwrap();
        let gitdir = repository.join(".git/worktrees/t/gitdir");
        std::fs::write(gitdir, "../../../../tree/.git\n").unwrap();
        std::fs::write(path.join("new.txt"), "new\n").unwrap();
        view.add_worktree("t", &path, "b").unwrap();
        assert!(path.join("new.txt").is_file());
        view.remove_worktree("t", Force::Yes).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn no_program_of_the_repository_runs() {
        let folder = tempfile::tempdir().unwrap();
        let repository = repository(folder.path());
        std::fs::write(repository.join(".gitattributes"), "*.txt filter=evil\n").unwrap();
        git(&repository, &["add", "."]);
        git(&repository, &["commit", "--quiet", "-m", "attributes"]);
        let ran = folder.path().join("ran");
        let program = format!("touch {}; cat", ran.display());
        for key in ["filter.evil.smudge", "filter.evil.clean", "core.fsmonitor"] {
            git(&repository, &["config", key, &program]);
        }
        let hook = repository.join(".git/hooks/post-checkout");
        std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
        std::fs::write(&hook, format!("#!/bin/sh\n{program}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&hook, mode).unwrap();
        let path = folder.path().join("tree");
        let view = View::open(&repository).unwrap();
        view.add_worktree("t", &path, "b").unwrap();
        view.remove_worktree("t", Force::No).unwrap();
        assert!(!ran.exists());
    }

    #[test]
    fn a_repository_without_a_commit_is_one_clear_error() {
        let folder = tempfile::tempdir().unwrap();
        git(folder.path(), &["init", "--quiet"]);
        let view = View::open(folder.path()).unwrap();
        let refused = view.add_worktree("t", &folder.path().join("tree"), "b");
        assert!(
            matches!(refused, Err(WorktreeError::NoCommit(_))),
            "{refused:?}"
        );
    }
}
