//! Running git on the worker: a clean environment, a time limit and a cap on its output.
//!
//! No configuration of the system or the user is read, no hook runs, nothing asks for input, and
//! only the protocol of the one upstream is allowed. The token is passed in an environment variable
//! of the git process only, never in its arguments, and never on disk.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use crate::temporary::{self, HeldFolder};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// Bytes of stderr kept.
const MAX_STDERR: usize = 16 * 1024;

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

/// Upper limit of one allocation by git, in bytes: a few kilobytes of a push may expand to any size.
const ALLOC_LIMIT: &str = "536870912";
/// Address space of one git process, in bytes.
const ADDRESS_SPACE: libc::rlim_t = 4 << 30;

/// The whole configuration of git. Large files are streamed and packs are mapped in small windows, so
/// that ordinary repositories of any size fit into [`ADDRESS_SPACE`].
const CONFIG: &str = "\
[core]
\tbigFileThreshold = 32m
\tpackedGitWindowSize = 32m
\tpackedGitLimit = 512m
\thooksPath = /dev/null
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tfsmonitor = false
\tquotePath = false
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

/// A home folder for git processes, with a configuration of its own. Removed when dropped.
#[derive(Debug)]
pub(crate) struct GitHome {
    dir: HeldFolder,
}

/// What a git process printed.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    /// Whether stdout exceeded the cap. The process was then killed.
    pub(crate) cut: bool,
    pub(crate) stderr: String,
}

impl GitHome {
    /// `upstream` is a local repository that may belong to another user of this machine.
    pub(crate) fn new(upstream: Option<&Path>) -> io::Result<Self> {
        let dir = temporary::folder()?;
        let mut config = CONFIG.to_owned();
        if let Some(path) = upstream {
            config.push_str("[safe]\n");
            for path in [path.to_owned(), path.join(".git")] {
                let quoted = path
                    .to_string_lossy()
                    .replace('\\', "\\\\")
                    .replace('"', "\\\"");
                config.push_str(&format!("\tdirectory = \"{quoted}\"\n"));
            }
        }
        std::fs::write(dir.path().join("config"), config)?;
        Ok(Self { dir })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// `git` in the clean environment; the caller adds arguments.
    pub(crate) fn git(&self) -> Command {
        let mut command = Command::new("git");
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
            .env("GIT_ALLOC_LIMIT", ALLOC_LIMIT)
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        // SAFETY: between fork and exec the closure makes one system call on a local struct; it
        // neither allocates nor takes a lock.
        unsafe { command.pre_exec(limit_address_space) };
        command
    }

    /// Creates an empty bare repository here, by hand: `git init` would copy templates.
    pub(crate) fn bare(&self, object_format: &str) -> io::Result<PathBuf> {
        let repo = self.path().join("repo.git");
        for folder in ["objects/info", "objects/pack", "refs/heads", "info"] {
            std::fs::create_dir_all(repo.join(folder))?;
        }
        std::fs::write(repo.join("HEAD"), "ref: refs/heads/none\n")?;
        let version = i32::from(object_format != "sha1");
        let mut config = format!("[core]\n\trepositoryformatversion = {version}\n\tbare = true\n");
        if version == 1 {
            config.push_str(&format!("[extensions]\n\tobjectFormat = {object_format}\n"));
        }
        std::fs::write(repo.join("config"), config)?;
        Ok(repo)
    }
}

/// Limits the calling process, unless it already has a lower limit.
fn limit_address_space() -> io::Result<()> {
    // SAFETY: both calls take a pointer to the local struct and keep none.
    unsafe {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        if libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        limit.rlim_max = limit.rlim_max.min(ADDRESS_SPACE);
        limit.rlim_cur = limit.rlim_cur.min(limit.rlim_max);
        if libc::setrlimit(libc::RLIMIT_AS, &raw const limit) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Runs `command` to its end. It is killed at the time limit, or when it prints more than `cap` bytes.
pub(crate) async fn run(mut command: Command, limit: Duration, cap: usize) -> io::Result<Output> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let missing = || io::Error::other("git was started without pipes");
    let stdout = child.stdout.take().ok_or_else(missing)?;
    let stderr = child.stderr.take().ok_or_else(missing)?;
    let work = async {
        let out = async {
            let (bytes, cut) = capped(stdout, cap).await?;
            if cut {
                child.start_kill()?;
            }
            let status = child.wait().await?;
            io::Result::Ok((bytes, cut, status))
        };
        tokio::try_join!(out, drained(stderr))
    };
    let ended = tokio::time::timeout(limit, work).await;
    let Ok(ended) = ended else {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("git did not finish within {} seconds", limit.as_secs()),
        ));
    };
    let ((stdout, cut, status), stderr) = ended?;
    Ok(Output {
        status,
        stdout,
        cut,
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    })
}

/// The first `cap` bytes, and whether there were more.
async fn capped(reader: impl AsyncRead + Unpin, cap: usize) -> io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    let mut limited = reader.take(cap as u64 + 1);
    limited.read_to_end(&mut bytes).await?;
    let cut = bytes.len() > cap;
    bytes.truncate(cap);
    Ok((bytes, cut))
}

/// Reads to the end, so that the writer never blocks; keeps the first [`MAX_STDERR`] bytes.
async fn drained(mut reader: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let mut buffer = vec![0; 8192];
    loop {
        let n = reader.read(&mut buffer).await?;
        if n == 0 {
            return Ok(kept);
        }
        let room = MAX_STDERR.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..n.min(room)]);
    }
}

/// Adds configuration through the environment.
pub(crate) fn configure<V: AsRef<OsStr>>(command: &mut Command, pairs: &[(&str, V)]) {
    command.env("GIT_CONFIG_COUNT", pairs.len().to_string());
    for (at, (key, value)) in pairs.iter().enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{at}"), key);
        command.env(format!("GIT_CONFIG_VALUE_{at}"), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_git_process_is_limited_in_memory() {
        let home = GitHome::new(None).unwrap();
        let mut git = home.git();
        git.args(["-c", "alias.limits=!ulimit -v; echo $GIT_ALLOC_LIMIT"]);
        git.arg("limits");
        let output = run(git, Duration::from_secs(10), 1000).await.unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "4194304\n536870912\n",
            "{}",
            output.stderr
        );
        let mut git = home.git();
        git.args(["config", "--get", "core.bigFileThreshold"]);
        let output = run(git, Duration::from_secs(10), 1000).await.unwrap();
        assert_eq!(output.stdout, b"32m\n");
    }
}
