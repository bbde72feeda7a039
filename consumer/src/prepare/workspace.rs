//! A sandbox with a gateway and a clone of the repository.
//!
//! Used twice: for the agent's sandbox, and for the fresh one in which the pushed commit is checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_gateway::{Gateway, GatewayConfig, Mirrors};
use agentmine_sandbox::{
    Backend, Command, CommandOutput, CommandResult, Sandbox, SandboxSpec, trust, with_presets,
};

use super::traffic::Traffic;
use crate::error::WorkspaceError;

/// The project's folder in every sandbox.
pub(crate) const PROJECT: &str = "/workspace/project";
/// Time limit for one git command of the worker; large repositories take long.
const GIT_TIMEOUT: Duration = Duration::from_secs(1800);
/// How many requests to one host that are refused, or cannot be forwarded, end a set-up command. npm never ends by itself if its
/// registry cannot be reached.
const MOST_IN_VAIN: u64 = 300;
/// Maximum size in bytes of the output of one git command of the worker.
const GIT_OUTPUT: usize = 256 * 1024;

/// A sandbox whose outbound traffic is served.
pub(crate) struct Workspace {
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) gateway: Gateway,
    _traffic: Traffic,
}

impl Workspace {
    /// Starts a sandbox and serves its outbound traffic.
    pub(crate) async fn start(
        backend: &dyn Backend,
        spec: &SandboxSpec,
        config: GatewayConfig,
        mirrors: Option<&Mirrors>,
    ) -> Result<Self, WorkspaceError> {
        let sandbox = backend.start(spec).await.map_err(WorkspaceError::Start)?;
        Self::of(sandbox, config, mirrors).await
    }

    /// Serves the outbound traffic of a sandbox that has just started.
    pub(crate) async fn of(
        sandbox: Box<dyn Sandbox>,
        config: GatewayConfig,
        mirrors: Option<&Mirrors>,
    ) -> Result<Self, WorkspaceError> {
        let sandbox: Arc<dyn Sandbox> = Arc::from(sandbox);
        let gateway = match gateway(sandbox.as_ref(), config, mirrors).await {
            Ok(gateway) => gateway,
            Err(error) => {
                // If this fails, the sweep removes it.
                let _ = sandbox.remove().await;
                return Err(error);
            }
        };
        let traffic = Traffic::serve(Arc::clone(&sandbox), gateway.clone());
        Ok(Self {
            sandbox,
            gateway,
            _traffic: traffic,
        })
    }

    /// The remote's URL as the sandbox sees it.
    pub(crate) fn remote_url(&self) -> String {
        let git_port = self.sandbox.ports().git;
        let path = self.gateway.remote_path().unwrap_or_default();
        format!("http://127.0.0.1:{git_port}{path}")
    }

    /// Runs a git command in the project. A non-zero exit code is not an error here.
    pub(crate) async fn git(&self, args: &[&str]) -> Result<CommandResult, WorkspaceError> {
        self.git_in(PROJECT, args).await
    }

    pub(crate) async fn git_in(
        &self,
        cwd: &str,
        args: &[&str],
    ) -> Result<CommandResult, WorkspaceError> {
        let mut argv = vec!["git".to_owned()];
        argv.extend(args.iter().map(|a| (*a).to_owned()));
        self.run(argv, cwd, GIT_TIMEOUT, GIT_OUTPUT).await
    }

    /// Runs a git command that has to succeed; returns its trimmed stdout.
    pub(crate) async fn git_ok(&self, args: &[&str]) -> Result<String, WorkspaceError> {
        let done = self.git(args).await?;
        if done.exit_code == 0 {
            return Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned());
        }
        if args.first() == Some(&"fetch") {
            self.reached("git fetch", &done)?;
        }
        Err(WorkspaceError::Git {
            command: args.first().copied().unwrap_or_default().to_owned(),
            output: output_tail(&done),
        })
    }

    /// Runs a program of the worker's in the project.
    pub(crate) async fn program(
        &self,
        argv: Vec<String>,
        timeout: Duration,
    ) -> Result<CommandResult, WorkspaceError> {
        self.run(argv, PROJECT, timeout, GIT_OUTPUT).await
    }

    /// What a git command in the project lists, up to a size in bytes.
    pub(crate) async fn git_listing(
        &self,
        args: &[&str],
        timeout: Duration,
        max_output: usize,
    ) -> Result<CommandResult, WorkspaceError> {
        let argv = ["git"].iter().chain(args).map(|it| (*it).to_owned());
        self.run(argv.collect(), PROJECT, timeout, max_output).await
    }

    /// A file as it is at a commit of the clone, through symbolic links of that commit.
    pub(crate) async fn file_at(&self, commit: &str, path: &str) -> Result<FileAt, WorkspaceError> {
        let command = Command {
            argv: ["git", "cat-file", "--batch", "--follow-symlinks"]
                .map(str::to_owned)
                .into(),
            cwd: PROJECT.to_owned(),
            env: BTreeMap::new(),
            stdin: format!("{commit}:{path}\n").into_bytes(),
            timeout: GIT_TIMEOUT,
            max_output: GIT_OUTPUT,
        };
        let done = self.sandbox.run(command).await;
        let done = done.map_err(WorkspaceError::Command)?;
        if done.exit_code != 0 {
            return Err(WorkspaceError::Git {
                command: "cat-file".into(),
                output: output_tail(&done),
            });
        }
        Ok(FileAt::read(&done.stdout, done.stdout.is_cut()))
    }

    /// Runs a shell command in the project.
    pub(crate) async fn shell(
        &self,
        line: &str,
        timeout: Duration,
        max_output: usize,
    ) -> Result<CommandResult, WorkspaceError> {
        self.run(shell_line(line), PROJECT, timeout, max_output)
            .await
    }

    /// Runs a command of the project's set-up. It is ended early if it requests a host over and over in vain.
    pub(crate) async fn set_up(
        &self,
        line: &str,
        timeout: Duration,
        max_output: usize,
    ) -> Result<CommandResult, WorkspaceError> {
        let begun = Instant::now();
        tokio::select! {
            biased;
            done = self.shell(line, timeout, max_output) => done,
            host = self.gateway.often_in_vain(MOST_IN_VAIN) => {
                let reason = format!("ended after {MOST_IN_VAIN} requests in vain: {host}");
                Ok(CommandResult {
                    exit_code: 137,
                    stdout: CommandOutput::default(),
                    stderr: reason.into_bytes().into(),
                    timed_out: false,
                    duration: begun.elapsed(),
                })
            }
        }
    }

    /// Runs a check of the project: a shell command whose result is evidence.
    pub(crate) async fn check(
        &self,
        line: &str,
        timeout: Duration,
        max_output: usize,
    ) -> Result<CommandResult, WorkspaceError> {
        let command = Command {
            argv: shell_line(line),
            cwd: PROJECT.to_owned(),
            env: BTreeMap::new(),
            stdin: Vec::new(),
            timeout,
            max_output,
        };
        self.sandbox
            .check(command)
            .await
            .map_err(WorkspaceError::Command)
    }

    /// Runs a shell script of any length in the project.
    pub(crate) async fn script(
        &self,
        script: &str,
        timeout: Duration,
    ) -> Result<CommandResult, WorkspaceError> {
        let command = Command {
            argv: vec!["/bin/sh".into()],
            cwd: PROJECT.to_owned(),
            env: BTreeMap::new(),
            stdin: script.as_bytes().to_vec(),
            timeout,
            max_output: GIT_OUTPUT,
        };
        self.sandbox
            .run(command)
            .await
            .map_err(WorkspaceError::Command)
    }

    async fn run(
        &self,
        argv: Vec<String>,
        cwd: &str,
        timeout: Duration,
        max_output: usize,
    ) -> Result<CommandResult, WorkspaceError> {
        let command = Command {
            argv,
            cwd: cwd.to_owned(),
            env: BTreeMap::new(),
            stdin: Vec::new(),
            timeout,
            max_output,
        };
        self.sandbox
            .run(command)
            .await
            .map_err(WorkspaceError::Command)
    }

    /// Clones `branch` into the project folder (spec 001 §4). The credentials stay on the worker.
    /// `settings` (`key=value`) are written to the clone's configuration.
    pub(crate) async fn clone_branch(
        &self,
        branch: &str,
        depth: Option<u32>,
        settings: &[String],
    ) -> Result<(), WorkspaceError> {
        let url = self.remote_url();
        let depth = depth.map(|d| d.to_string());
        let mut args = vec![
            "-c",
            "advice.detachedHead=false",
            "clone",
            "--quiet",
            "--branch",
            branch,
        ];
        for setting in settings {
            args.extend(["-c", setting]);
        }
        if let Some(depth) = &depth {
            args.extend(["--depth", depth, "--single-branch"]);
        }
        // A relative path, because the jail without namespaces has a different root.
        args.extend([url.as_str(), "project"]);
        let done = self.git_in("/workspace", &args).await?;
        if done.exit_code == 0 {
            return Ok(());
        }
        self.reached("the repository could not be cloned", &done)?;
        Err(clone_error(branch, output_tail(&done)))
    }

    /// Fails if a command of git did so because the repository's host is away or refuses the worker.
    pub(crate) fn reached(
        &self,
        during: &'static str,
        done: &CommandResult,
    ) -> Result<(), WorkspaceError> {
        self.authorized(during)?;
        match self.gateway.host_failure() {
            Some(detail) if done.exit_code != 0 => Err(WorkspaceError::HostAway { during, detail }),
            Some(_) | None => Ok(()),
        }
    }

    /// Pushes that were refused and web hosts that were requested since the last call, for the transcript.
    pub(crate) fn news(&self) -> Option<String> {
        let news = self.gateway.news();
        (!news.is_empty()).then(|| news.join("\n"))
    }

    /// Fails if the repository's host has refused the worker's credentials, or all requests.
    pub(crate) fn authorized(&self, during: &'static str) -> Result<(), WorkspaceError> {
        match self.gateway.auth_refused() {
            Some(status) => Err(WorkspaceError::Unauthorized { during, status }),
            None => match self.gateway.host_refusal() {
                Some(detail) => Err(WorkspaceError::Refused { during, detail }),
                None => Ok(()),
            },
        }
    }
}

/// A file at a commit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileAt {
    Missing,
    TooLarge,
    Content(Vec<u8>),
}

impl FileAt {
    /// From the answer of `git cat-file --batch`: a line with id, kind and size, and the content; or a line that says why there is
    /// none, as for a link that leads to nothing or out of the repository.
    fn read(answer: &[u8], is_cut: bool) -> Self {
        let mut parts = answer.splitn(2, |byte| *byte == b'\n');
        let (header, rest) = (parts.next().unwrap_or_default(), parts.next());
        let header = String::from_utf8_lossy(header);
        let mut words = header.split(' ').skip(1);
        match (words.next(), words.next().map(str::parse::<usize>), rest) {
            (Some("blob"), Some(Ok(_)), Some(_)) if is_cut => Self::TooLarge,
            (Some("blob"), Some(Ok(size)), Some(rest)) => rest
                .get(..size)
                .map_or(Self::TooLarge, |content| Self::Content(content.to_vec())),
            _ => Self::Missing,
        }
    }
}

/// The program that runs a line of shell.
fn shell_line(line: &str) -> Vec<String> {
    vec!["/bin/sh".into(), "-c".into(), line.to_owned()]
}

/// Classifies a failed clone (spec 001 §8.1): a missing repository or branch is final, another failure may
/// be temporary.
fn clone_error(branch: &str, output: String) -> WorkspaceError {
    let branch = branch.to_owned();
    let lower = output.to_lowercase();
    let missing = ["not found", "does not exist", "not a git repository"];
    // Otherwise a filter of the checkout, as that of Git LFS, says that something was not found.
    let was_fetched = lower.contains("clone succeeded");
    if !was_fetched && missing.iter().any(|sign| lower.contains(sign)) {
        WorkspaceError::NoSuchBranch { branch, output }
    } else {
        WorkspaceError::Clone { branch, output }
    }
}

async fn gateway(
    sandbox: &dyn Sandbox,
    config: GatewayConfig,
    mirrors: Option<&Mirrors>,
) -> Result<Gateway, WorkspaceError> {
    let GatewayConfig { git, network } = config;
    let network = with_presets(sandbox, network)
        .await
        .map_err(WorkspaceError::Start)?;
    let gateway = Gateway::with_mirrors(GatewayConfig { git, network }, mirrors)
        .map_err(WorkspaceError::Gateway)?;
    if let Some(authority) = gateway.authority() {
        let trusted = trust(sandbox, &authority).await;
        trusted.map_err(WorkspaceError::Start)?;
    }
    Ok(gateway)
}

/// The end of a command's output for an error message, after `…` if it is longer: its stderr, or else its stdout.
pub(crate) fn output_tail(done: &CommandResult) -> String {
    let text = String::from_utf8_lossy(if done.stderr.is_empty() {
        &done.stdout
    } else {
        &done.stderr
    });
    let text = text.trim();
    let from = text.ceil_char_boundary(text.len().saturating_sub(1500));
    let cut = if from > 0 { "…" } else { "" };
    format!("{cut}{} (exit code {})", &text[from..], done.exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sh;

    #[test]
    fn a_file_of_a_commit_is_read_through_links_within_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        sh(
            folder,
            "git init -q . && mkdir real && printf 'a\\nb' > real/file && touch empty && ln -s real link && ln -s /etc/passwd out
            ln -s nothing lost && git add . && git commit -qm files",
        );
        let at = |path: &str| {
            let line = format!("echo HEAD:{path} | git cat-file --batch --follow-symlinks");
            FileAt::read(sh(folder, &line).as_bytes(), false)
        };
        let content = |text: &str| FileAt::Content(text.into());
        assert_eq!(at("real/file"), content("a\nb"));
        assert_eq!(at("link/file"), content("a\nb"));
        assert_eq!(at("empty"), content(""));
        for path in ["out", "lost", "none", "real/file/x"] {
            assert_eq!(at(path), FileAt::Missing, "{path}");
        }
        assert_eq!(FileAt::read(b"1 tree 3\nabc\n", false), FileAt::Missing);
        assert_eq!(FileAt::read(b"1 blob 9\nabc", true), FileAt::TooLarge);
    }
}
