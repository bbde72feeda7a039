//! A home folder for git processes: a clean environment and a configuration of our own.
//!
//! No configuration of the system, the user or a repository is read, no hook runs, nothing asks for input,
//! and no protocol is allowed unless the caller allows it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::limits::Errand;
use crate::temporary::{self, HeldFolder};

/// Variables that git inherits from the worker: where programs, certificates and a proxy are.
const PASSED_ON: [&str; 12] = [
    "PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_SSL_CAINFO",
    "GIT_SSL_CAPATH",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
];

/// The whole configuration of git. Large files are streamed and packs are mapped in small windows, so
/// that ordinary repositories of any size fit into the limit on address space.
///
/// For the refs of an alternate object store, git would start itself in the repository there, with that
/// repository's configuration; `true` lists none.
const CONFIG: &str = "\
[core]
\tbigFileThreshold = 32m
\tpackedGitWindowSize = 32m
\tpackedGitLimit = 256m
\tdeltaBaseCacheLimit = 64m
\thooksPath = /dev/null
\tattributesFile = /dev/null
\tfsmonitor = false
\tquotePath = false
\talternateRefsCommand = true
[gc]
\tauto = 0
[maintenance]
\tauto = false
[http]
\tfollowRedirects = false
[credential]
\thelper =
[fetch]
\trecurseSubmodules = false
\twriteCommitGraph = false
[advice]
\tgraftFileDeprecated = false
";

/// A home folder for git processes, with its own configuration. Removed when dropped.
#[derive(Debug)]
pub struct GitHome {
    dir: HeldFolder,
}

impl GitHome {
    /// Makes the folder.
    ///
    /// # Errors
    /// When the temporary folder cannot be written.
    pub fn new() -> io::Result<Self> {
        let dir = temporary::folder()?;
        let config = format!("{CONFIG}[core]\n\texcludesFile = /dev/null\n");
        std::fs::write(dir.path().join("config"), config)?;
        Ok(Self { dir })
    }

    /// Files that the operator's own git ignores are also ignored here.
    pub(crate) fn ignoring(excludes: &Path) -> io::Result<Self> {
        let home = Self::new()?;
        let file = excludes.to_string_lossy();
        let file = file.replace('\\', "\\\\").replace('"', "\\\"");
        let config = format!("{CONFIG}[core]\n\texcludesFile = \"{file}\"\n");
        std::fs::write(home.dir.path().join("config"), config)?;
        Ok(home)
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// `git` in the clean environment, with no streams; the caller adds arguments.
    #[must_use]
    pub fn git(&self, errand: Errand) -> Command {
        let limits = errand.limits();
        let mut command = limits.git();
        command
            .env_clear()
            .envs(
                PASSED_ON
                    .iter()
                    .filter_map(|name| std::env::var_os(name).map(|value| (name, value))),
            )
            .env("HOME", self.path())
            .env("XDG_CONFIG_HOME", self.path())
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", self.path().join("config"))
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ASKPASS", "")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_ALLOW_PROTOCOL", "none")
            .env("GIT_ALLOC_LIMIT", limits.allocation.to_string())
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Creates an empty bare repository here, by hand: `git init` would copy templates.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn bare(&self, object_format: &str) -> io::Result<PathBuf> {
        let repo = self.path().join("repo.git");
        Self::bare_at(&repo, object_format)?;
        Ok(repo)
    }

    /// Creates an empty bare repository in a folder that lasts.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn bare_at(repo: &Path, object_format: &str) -> io::Result<()> {
        for folder in ["objects/info", "objects/pack", "refs/heads", "info"] {
            std::fs::create_dir_all(repo.join(folder))?;
        }
        std::fs::write(repo.join("HEAD"), "ref: refs/heads/none\n")?;
        Self::configure_bare(repo, object_format)
    }

    /// Writes the whole configuration of a bare repository again, and removes what would make git read objects from
    /// elsewhere.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn configure_bare(repo: &Path, object_format: &str) -> io::Result<()> {
        let version = i32::from(object_format != "sha1");
        let mut config = format!("[core]\n\trepositoryformatversion = {version}\n\tbare = true\n");
        if version == 1 {
            config.push_str(&format!("[extensions]\n\tobjectFormat = {object_format}\n"));
        }
        let mut part = tempfile::NamedTempFile::new_in(repo)?;
        io::Write::write_all(&mut part, config.as_bytes())?;
        part.persist(repo.join("config"))
            .map_err(|error| error.error)?;
        for foreign in [
            "objects/info/alternates",
            "objects/info/http-alternates",
            "commondir",
            "config.worktree",
        ] {
            match std::fs::remove_file(repo.join(foreign)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}
