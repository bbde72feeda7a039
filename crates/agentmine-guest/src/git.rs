//! Runs git for snapshots: in the project, without hooks, and without touching the agent's index.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

use crate::process::{Family, OwnChildren, find};

/// The hidden ref of the last snapshot.
pub(crate) const SNAPSHOT_REF: &str = "refs/agentmine/snapshot";
/// Time limit of one process. What a caller does with several has a limit of its own.
const TIME_LIMIT: Duration = Duration::from_secs(120);
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

/// Where HEAD is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// `None` before the first commit.
    pub(crate) commit: Option<String>,
    /// Its files, if they are known.
    pub(crate) tree: Option<String>,
    /// With `refs/heads/`. Empty if HEAD is detached.
    pub(crate) branch: String,
}

impl Head {
    /// The git folder and its HEAD, from the four lines that [`Git::open_at_head`] asks for.
    fn of(lines: &str) -> Option<(PathBuf, Self)> {
        let lines: Vec<&str> = lines.lines().collect();
        let [folder, commit, tree, branch] = lines[..] else {
            return None;
        };
        let is_hash = |it: &&str| it.len() >= 40 && it.bytes().all(|byte| byte.is_ascii_hexdigit());
        let branch = match branch {
            "HEAD" => "",
            branch if branch.starts_with("refs/") => branch,
            _ => return None,
        };
        let head = Self {
            commit: Some(commit.into()),
            tree: Some(tree.into()),
            branch: branch.into(),
        };
        ([commit, tree].iter().all(is_hash) && folder.starts_with('/'))
            .then(|| (folder.into(), head))
    }
}

/// Where git runs.
pub(crate) struct GitPlace<'a> {
    pub(crate) project: PathBuf,
    /// The environment of the agent's commands.
    pub(crate) env: &'a BTreeMap<String, String>,
    /// Who collects the processes that end.
    pub(crate) own: &'a OwnChildren,
}

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
    pub(crate) async fn open(at: &GitPlace<'_>) -> Result<Self> {
        let mut git = Self::without_folder(at);
        let folder = git.run(["rev-parse", "--absolute-git-dir"]).await;
        git.folder = folder.context("no repository in the project")?.into();
        Ok(git)
    }

    /// The same, and where HEAD is: one process in the ordinary case.
    pub(crate) async fn open_at_head(at: &GitPlace<'_>) -> Result<(Self, Head)> {
        let mut git = Self::without_folder(at);
        let args = [
            "rev-parse",
            "--absolute-git-dir",
            "HEAD^{commit}",
            "HEAD^{tree}",
            "--symbolic-full-name",
            "HEAD",
        ];
        let (code, lines, _) = git.attempt(args).await?;
        if code == Some(0)
            && let Some((folder, head)) = Head::of(&lines)
        {
            git.folder = folder;
            return Ok((git, head));
        }
        // There is no commit yet, or a branch is named HEAD, or there is no repository.
        let git = Self::open(at).await?;
        let branch = git.run(["symbolic-ref", "--quiet", "HEAD"]).await;
        let head = Head {
            commit: git.commit("HEAD").await?,
            tree: None,
            branch: branch.unwrap_or_default(),
        };
        Ok((git, head))
    }

    fn without_folder(at: &GitPlace<'_>) -> Self {
        let mut env = at.env.clone();
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
        Self {
            project: at.project.clone(),
            env,
            own: at.own.clone(),
            folder: PathBuf::new(),
        }
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
        output(self.attempt(args).await?)
    }

    /// Its output as it is, for paths, which need not be UTF-8.
    pub(crate) async fn bytes<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Vec<u8>> {
        let ended = self.started(args, Stdio::null()).await?;
        output(texts(&ended))?;
        Ok(ended.stdout)
    }

    /// Its exit code, its output and its stderr, trimmed. If this is dropped, git ends with what it has started: a
    /// filter of the repository's may never end by itself.
    pub(crate) async fn attempt<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<(Option<i32>, String, String)> {
        Ok(texts(&self.started(args, Stdio::null()).await?))
    }

    /// Its output, trimmed, after it has read `input`.
    pub(crate) async fn fed<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        input: &[u8],
    ) -> Result<String> {
        let path = self.folder.join("agentmine-input");
        std::fs::write(&path, input)?;
        let file = std::fs::File::open(&path);
        let _ = std::fs::remove_file(&path);
        output(texts(&self.started(args, Stdio::from(file?)).await?))
    }

    async fn started<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        input: Stdio,
    ) -> Result<Output> {
        let git = find("git", &self.env).unwrap_or_else(|| "git".into());
        let mut command = Command::new(git);
        command
            .args(QUIET)
            .args(args)
            .env_clear()
            .envs(&self.env)
            .current_dir(&self.project)
            .process_group(0)
            .kill_on_drop(true)
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().context("git")?;
        let _awaited = self.own.awaits(&child);
        let family = Family::of(&child);
        let output = tokio::time::timeout(TIME_LIMIT, child.wait_with_output()).await;
        let output = output.with_context(|| too_slow(TIME_LIMIT))??;
        family.ended();
        Ok(output)
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

/// The exit code, the output and the stderr, trimmed.
fn texts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn output((code, stdout, stderr): (Option<i32>, String, String)) -> Result<String> {
    if code == Some(0) {
        return Ok(stdout);
    }
    let last = stderr.lines().last();
    bail!("git: {}", last.unwrap_or("failed without an error message"))
}

/// The error of a git that was killed after `limit`.
pub(crate) fn too_slow(limit: Duration) -> String {
    let limit = limit.as_secs_f32();
    format!("git did not finish within {limit} s (does a filter of the repository wait?)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_is_read_from_four_lines_and_from_nothing_else() {
        let hash = "0123456789012345678901234567890123456789";
        let tree = "9876543210987654321098765432109876543210";
        let head = |branch: &str| Head {
            commit: Some(hash.into()),
            tree: Some(tree.into()),
            branch: branch.into(),
        };
        let of = |lines: &[&str]| Head::of(&lines.join("\n"));
        let folder = PathBuf::from("/p/.git");
        assert_eq!(
            of(&["/p/.git", hash, tree, "refs/heads/main"]),
            Some((folder.clone(), head("refs/heads/main")))
        );
        assert_eq!(
            of(&["/p/.git", hash, tree, "HEAD"]),
            Some((folder, head("")))
        );
        for other in [
            &["/p/.git", hash, tree][..],
            &["/p/.git", "HEAD^{commit}", tree, "refs/heads/main"],
            &["/p/.git", hash, "HEAD^{tree}", "refs/heads/main"],
            &["/p/new", "line/.git", hash, tree, "refs/heads/main"],
            &["p/.git", hash, tree, "HEAD"],
            &["/p/.git", hash, tree, "main"],
        ] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }
}
