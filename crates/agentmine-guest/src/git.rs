//! Runs git for snapshots: in the project, without hooks, and without touching the agent's index.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

use crate::process::OwnChildren;
use crate::state::State;

/// The hidden ref of the last snapshot.
pub(crate) const SNAPSHOT_REF: &str = "refs/agentmine/snapshot";
const TIME_LIMIT: Duration = Duration::from_secs(300);
const QUIET: &[&str] = &[
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
    "-c",
    "advice.addEmbeddedRepo=false",
    "-c",
    "core.safecrlf=false",
    "-c",
    "protocol.file.allow=always",
];

/// Git in the project.
#[derive(Debug)]
pub(crate) struct Git {
    pub(crate) project: PathBuf,
    env: BTreeMap<String, String>,
    own: OwnChildren,
    /// The git folder, absolute.
    pub(crate) folder: PathBuf,
}

impl Git {
    pub(crate) async fn open(state: &State) -> Result<Self> {
        let mut env = state.env.clone();
        for (key, value) in [
            ("GIT_AUTHOR_NAME", "AgentMine"),
            ("GIT_AUTHOR_EMAIL", "agentmine@localhost"),
            ("GIT_COMMITTER_NAME", "AgentMine"),
            ("GIT_COMMITTER_EMAIL", "agentmine@localhost"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("LC_ALL", "C"),
        ] {
            env.insert(key.into(), value.into());
        }
        let mut git = Self {
            project: state.project(),
            env,
            own: state.own.clone(),
            folder: PathBuf::new(),
        };
        let folder = git.run(["rev-parse", "--absolute-git-dir"]).await;
        git.folder = folder.context("no repository in the project")?.into();
        Ok(git)
    }

    /// The same with a separate index.
    pub(crate) fn with_index(&self, index: &Path) -> Self {
        let mut env = self.env.clone();
        env.insert(
            "GIT_INDEX_FILE".into(),
            index.to_string_lossy().into_owned(),
        );
        let (project, folder) = (self.project.clone(), self.folder.clone());
        Self {
            project,
            env,
            own: self.own.clone(),
            folder,
        }
    }

    /// Its output, trimmed.
    pub(crate) async fn run<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<String> {
        let (code, stdout, stderr) = self.attempt(args).await?;
        if code == Some(0) {
            return Ok(stdout);
        }
        bail!(
            "git: {}",
            stderr
                .lines()
                .last()
                .unwrap_or("failed without an error message")
        )
    }

    /// Its exit code, its output and its stderr, trimmed.
    pub(crate) async fn attempt<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<(Option<i32>, String, String)> {
        let mut command = Command::new("git");
        command
            .args(QUIET)
            .args(args)
            .env_clear()
            .envs(&self.env)
            .current_dir(&self.project)
            .process_group(0)
            .kill_on_drop(true)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().context("git")?;
        let _awaited = self.own.awaits(&child);
        let output = tokio::time::timeout(TIME_LIMIT, child.wait_with_output()).await;
        let output = output.context("git did not finish in time")??;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        Ok((
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        ))
    }

    /// The commit that a name refers to, if there is one.
    pub(crate) async fn commit(&self, name: &str) -> Result<Option<String>> {
        let name = format!("{name}^{{commit}}");
        let args = [
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &name,
        ];
        let (code, stdout, _) = self.attempt(args).await?;
        Ok((code == Some(0)).then_some(stdout))
    }
}
