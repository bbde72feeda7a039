//! A repository on the worker's own disk, without its configuration.
//!
//! The view is a git folder of its own. Objects, refs, the index and the list of work trees are links into
//! the repository; `HEAD` is a copy, made again for each command, since git accepts no link there. The
//! configuration is written here. Of the repository's own, four values are taken over that decide how its
//! files are read; each is checked, and none names a file or a program.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::home::GitHome;
use crate::layout::Layout;
use crate::limits::Errand;
use crate::owner;

/// What is linked from the common folder, if it is there. A lock of a linked file is made beside its target.
const SHARED: [&str; 7] = [
    "objects",
    "refs",
    "packed-refs",
    "reftable",
    "worktrees",
    "logs",
    "shallow",
];
/// Upper limit of a configuration whose values are taken over, in bytes.
const MAX_CONFIG: u64 = 1024 * 1024;

/// Why there is no view of a repository. [`Self::hint`] is not part of its text.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// No repository there.
    #[error("{0} is not a git repository")]
    NoRepository(PathBuf),
    /// Git cannot be started.
    #[error("cannot start git: {0}")]
    NoGit(io::Error),
    /// It belongs to another user, and this process is root.
    #[error("{folder} belongs to user {owner}, who could no longer use what root writes there")]
    Foreign {
        /// The top of its work tree, or the repository itself if it is bare.
        folder: PathBuf,
        /// The user's id.
        owner: u32,
    },
    /// Its configuration is not one that git understands.
    #[error("the git configuration of {folder} cannot be read: {why}")]
    Configuration {
        /// The repository.
        folder: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Something in it cannot be read, or the temporary folder cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ViewError {
    /// What a person can do about it, if that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            // Any other error, such as too many open files, is no sign that git is missing.
            Self::NoGit(error) if error.kind() == io::ErrorKind::NotFound => {
                Some("install git".to_owned())
            }
            Self::Foreign { folder, .. } => Some(format!(
                "run this as that user, or allow it with `git config --global --add safe.directory {}`",
                folder.display()
            )),
            Self::NoGit(_) | Self::NoRepository(_) | Self::Configuration { .. } | Self::Io(_) => {
                None
            }
        }
    }

    /// The text with the hint, for whoever has no place for a hint of its own.
    #[must_use]
    pub fn with_hint(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self}. hint: {hint}"),
            None => self.to_string(),
        }
    }
}

/// A repository on the worker's own disk, without its configuration.
#[derive(Debug)]
pub struct View {
    home: GitHome,
    layout: Layout,
    /// Where commands run.
    here: PathBuf,
    folder: PathBuf,
    format: Format,
}

/// How the repository's files are to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Format {
    objects: &'static str,
    refs: &'static str,
    shared: Option<String>,
    file_mode: bool,
}

impl View {
    /// Of the repository that `folder` is in, for commands that run there.
    ///
    /// # Errors
    /// [`ViewError`].
    pub fn open(folder: &Path) -> Result<Self, ViewError> {
        let here = folder.canonicalize()?;
        let layout = Layout::find(&here)?;
        let layout = layout.ok_or_else(|| ViewError::NoRepository(folder.to_owned()))?;
        Self::of(here, layout)
    }

    /// As [`Self::open`], for work whose result is written to the repository.
    ///
    /// # Errors
    /// [`ViewError`]; only here [`ViewError::Foreign`].
    pub fn open_to_write(folder: &Path) -> Result<Self, ViewError> {
        let view = Self::open(folder)?;
        match owner::foreign(&view.layout)? {
            None => Ok(view),
            Some(owner) => Err(ViewError::Foreign {
                folder: view.layout.top.clone(),
                owner,
            }),
        }
    }

    /// Of the repository at `folder`, for git's server programs. `HEAD` is that of the main work tree; the
    /// others are known too, so that no branch is pushed to that is checked out anywhere.
    ///
    /// # Errors
    /// [`ViewError`].
    pub fn serve(folder: &Path) -> Result<Self, ViewError> {
        let here = folder.canonicalize()?;
        let layout = Layout::find(&here)?.filter(|found| found.top == here);
        let layout = layout.ok_or_else(|| ViewError::NoRepository(folder.to_owned()))?;
        let git_dir = layout.common_dir.clone();
        Self::of(here, Layout { git_dir, ..layout })
    }

    fn of(here: PathBuf, layout: Layout) -> Result<Self, ViewError> {
        let home = match operators_excludes() {
            Some(excludes) => GitHome::ignoring(&excludes)?,
            None => GitHome::new()?,
        };
        let format = Format::of(&home, &layout)?;
        let folder = home.path().join("view.git");
        std::fs::create_dir_all(folder.join("info"))?;
        std::fs::write(folder.join("config"), format.config(&layout))?;
        let view = Self {
            home,
            layout,
            here,
            folder,
            format,
        };
        view.link()?;
        view.copy_head()?;
        Ok(view)
    }

    /// The top of the work tree, or the repository itself if it is bare.
    #[must_use]
    pub fn top(&self) -> &Path {
        &self.layout.top
    }

    /// Whether there is no work tree.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.layout.bare
    }

    /// With the objects, refs and configuration of the repository, shared by its work trees.
    pub(crate) fn common_dir(&self) -> &Path {
        &self.layout.common_dir
    }

    pub(crate) fn refs_are_files(&self) -> bool {
        self.format.refs == "files"
    }

    /// `sha1` or `sha256`.
    #[must_use]
    pub fn object_format(&self) -> &'static str {
        self.format.objects
    }

    /// `git` on the repository, in the folder that was named; the caller adds arguments, and may read its output.
    ///
    /// # Errors
    /// When `HEAD` cannot be read.
    pub fn git(&self) -> io::Result<Command> {
        self.copy_head()?;
        let mut git = self.home.git(Errand::Trusted);
        git.env("GIT_DIR", &self.folder);
        if !self.layout.bare {
            git.env("GIT_WORK_TREE", &self.layout.top);
        }
        git.current_dir(&self.here)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(git)
    }

    /// `git` outside of any repository, for a server program that is given [`Self::served`].
    #[must_use]
    pub fn server(&self) -> Command {
        self.home.git(Errand::Trusted)
    }

    /// The folder to give to git's server programs and to a fetch.
    ///
    /// # Errors
    /// When `HEAD` cannot be read.
    pub fn served(&self) -> io::Result<&Path> {
        self.copy_head()?;
        Ok(&self.folder)
    }

    fn link(&self) -> io::Result<()> {
        let Layout {
            git_dir,
            common_dir,
            ..
        } = &self.layout;
        for name in SHARED {
            let target = common_dir.join(name);
            // Git makes this file when it first needs it; a link that points nowhere yet works.
            if name == "packed-refs" || target.exists() {
                symlink(target, self.folder.join(name))?;
            }
        }
        for name in ["exclude", "sparse-checkout"] {
            let of = if name == "exclude" {
                common_dir
            } else {
                git_dir
            };
            symlink(
                of.join("info").join(name),
                self.folder.join("info").join(name),
            )?;
        }
        symlink(git_dir.join("index"), self.folder.join("index"))?;
        for entry in std::fs::read_dir(git_dir)? {
            let name = entry?.file_name();
            if name.to_string_lossy().starts_with("sharedindex.") {
                symlink(git_dir.join(&name), self.folder.join(&name))?;
            }
        }
        Ok(())
    }

    /// Git accepts no link here. Renamed into place, for commands that run at the same time.
    fn copy_head(&self) -> io::Result<()> {
        let head = std::fs::read(self.layout.git_dir.join("HEAD"))?;
        let mut part = tempfile::NamedTempFile::new_in(&self.folder)?;
        io::Write::write_all(&mut part, &head)?;
        part.persist(self.folder.join("HEAD"))
            .map_err(|error| error.error)?;
        Ok(())
    }
}

impl Format {
    fn of(home: &GitHome, layout: &Layout) -> Result<Self, ViewError> {
        let mut format = Self {
            objects: "sha1",
            refs: "files",
            shared: None,
            file_mode: true,
        };
        for (key, value) in entries(home, layout)? {
            match (key.as_str(), value.to_ascii_lowercase().as_str()) {
                ("extensions.objectformat", "sha256") => format.objects = "sha256",
                ("extensions.refstorage", "reftable") => format.refs = "reftable",
                ("core.filemode", "false") => format.file_mode = false,
                ("core.sharedrepository", shared) if is_sharing(shared) => {
                    format.shared = Some(shared.to_owned());
                }
                _ => {}
            }
        }
        Ok(format)
    }

    fn config(&self, layout: &Layout) -> String {
        let Self {
            objects,
            refs,
            shared,
            file_mode,
        } = self;
        let bare = layout.bare;
        let mut config = format!(
            "[core]\n\trepositoryformatversion = 1\n\tbare = {bare}\n\tfileMode = {file_mode}\n"
        );
        if let Some(shared) = shared {
            config.push_str(&format!("\tsharedRepository = {shared}\n"));
        }
        if !layout.common_dir.join("logs").is_dir() {
            config.push_str("\tlogAllRefUpdates = false\n");
        }
        config.push_str(&format!("[extensions]\n\tobjectFormat = {objects}\n"));
        if *refs != "files" {
            config.push_str(&format!("\trefStorage = {refs}\n"));
        }
        config
    }
}

/// The repository's own configuration as data: no file that it includes is read, and git reads it as none of
/// its own.
fn entries(home: &GitHome, layout: &Layout) -> Result<Vec<(String, String)>, ViewError> {
    let file = layout.common_dir.join("config");
    let wrong = |why: String| ViewError::Configuration {
        folder: layout.top.clone(),
        why,
    };
    match std::fs::metadata(&file) {
        Ok(metadata) if metadata.is_file() && metadata.len() <= MAX_CONFIG => {}
        Ok(_) => return Err(wrong("it is not a file of ordinary size".into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    let listed = home
        .git(Errand::Trusted)
        .args(["config", "--no-includes", "--list", "-z", "--file"])
        .arg(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .map_err(ViewError::NoGit)?;
    if !listed.status.success() {
        let said = String::from_utf8_lossy(&listed.stderr);
        return Err(wrong(said.lines().next().unwrap_or_default().to_owned()));
    }
    let listed = String::from_utf8_lossy(&listed.stdout);
    let pair = |entry: &str| {
        let (key, value) = entry.split_once('\n').unwrap_or((entry, "true"));
        (key.to_owned(), value.to_owned())
    };
    Ok(listed.split('\0').map(pair).collect())
}

/// The repository that `folder` is in: where its work trees and its memory belong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryOrigin {
    /// The top of the main work tree, or the repository itself if it is bare. The same for every work tree of it.
    pub main: PathBuf,
    /// The top of the work tree that `folder` is in.
    pub top: PathBuf,
    /// The URL of the remote `origin`, if it has one. It may hold credentials.
    pub remote: Option<String>,
}

/// Finds the repository that `folder` is in, and reads its remote as data.
///
/// # Errors
/// [`ViewError`].
pub fn origin(folder: &Path) -> Result<RepositoryOrigin, ViewError> {
    let here = folder.canonicalize()?;
    let layout = Layout::find(&here)?;
    let layout = layout.ok_or_else(|| ViewError::NoRepository(folder.to_owned()))?;
    let home = GitHome::new()?;
    let mut remotes = entries(&home, &layout)?.into_iter();
    let remote = remotes.find(|(key, _)| key == "remote.origin.url");
    let common = &layout.common_dir;
    let main = match common.file_name() {
        Some(name) if name == ".git" => common.parent().unwrap_or(common),
        Some(_) | None => common,
    };
    Ok(RepositoryOrigin {
        main: main.to_owned(),
        top: layout.top,
        remote: remote.map(|(_, url)| url),
    })
}

/// `umask`, `group`, `all` and their like, or octal permissions.
fn is_sharing(value: &str) -> bool {
    let named = [
        "umask",
        "group",
        "all",
        "world",
        "everybody",
        "true",
        "false",
    ];
    named.contains(&value)
        || (value.len() <= 4
            && !value.is_empty()
            && value.bytes().all(|c| matches!(c, b'0'..=b'7')))
}

/// The file of patterns that the operator's own git ignores everywhere. Read as data, for the same reason.
fn operators_excludes() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let home = variable("HOME").map(PathBuf::from);
    let shown = Command::new("git")
        .args(["config", "--global", "--includes", "--path", "--get"])
        .arg("core.excludesFile")
        .env("GIT_DIR", "/dev/null")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C in a terminal must not make the files unknown.
        .process_group(0)
        .output()
        .ok()?;
    let named = String::from_utf8(shown.stdout).ok()?;
    let named = named.trim_end_matches('\n');
    if !named.is_empty() {
        return Some(PathBuf::from(named));
    }
    let config = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| home.map(|home| home.join(".config")))?;
    Some(config.join("git/ignore"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_git_is_missing_the_hint_is_to_install_it() {
        let shown = |code| ViewError::NoGit(io::Error::from_raw_os_error(code)).with_hint();
        assert!(shown(libc::ENOENT).ends_with(". hint: install git"));
        let exhausted = shown(libc::EMFILE);
        assert!(exhausted.contains("Too many open files"), "{exhausted}");
        assert!(!exhausted.contains("hint"), "{exhausted}");
    }
}
