//! An upstream, a gateway on a TCP port, and a git client in the sandbox's place.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use agentmine_runtime::config::{Network, PushPolicy, Secret};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

use super::forge::Forge;
use crate::{Gateway, GatewayConfig, GitAccess, PushFence, TrafficEvent, Upstream};

pub(super) const TOKEN: &str = "canary-0f9e8d7c6b5a";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Path,
    /// A local repository with SHA-256 ids.
    Sha256,
    Http,
    WrongToken,
    /// The URL redirects within the host.
    Moved,
    /// The URL redirects to another host.
    MovedAway,
}

/// What a test changes about the right to push.
pub(super) struct Rights {
    pub(super) policy: PushPolicy,
    pub(super) max_push_bytes: u64,
    pub(super) fence: Arc<dyn PushFence>,
}

/// The fence of a session that holds its lease.
pub(super) struct Held;

#[async_trait::async_trait]
impl PushFence for Held {
    async fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn check_clock(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The fence of a session that has lost its lease.
pub(super) struct Lost;

#[async_trait::async_trait]
impl PushFence for Lost {
    async fn check(&self) -> Result<(), String> {
        Err("the lease is lost".into())
    }

    fn check_clock(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The fence of a session that was stalled after the store's answer, until its lease had ended.
pub(super) struct StoodStill;

#[async_trait::async_trait]
impl PushFence for StoodStill {
    async fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn check_clock(&self) -> Result<(), String> {
        Err("the permit to write lapsed".into())
    }
}

pub(super) struct World {
    pub(super) home: TempDir,
    pub(super) upstream: PathBuf,
    pub(super) target: Upstream,
    pub(super) gateway: Gateway,
    pub(super) url: String,
    forge: Option<Arc<Forge>>,
    clock: AtomicU32,
}

pub(super) struct Ran {
    success: bool,
    stdout: String,
    stderr: String,
}

impl Ran {
    #[track_caller]
    pub(super) fn ok(self) -> String {
        assert!(self.success, "git failed: {}", self.stderr);
        self.stdout.trim().to_owned()
    }

    #[track_caller]
    pub(super) fn err(self) -> String {
        assert!(!self.success, "git did not fail: {}", self.stderr);
        self.stderr
    }
}

impl World {
    pub(super) async fn new(kind: Kind) -> Self {
        Self::with(kind, |_| {}).await
    }

    pub(super) async fn with(kind: Kind, change: impl FnOnce(&mut Rights)) -> Self {
        let mut rights = Rights {
            policy: PushPolicy::default(),
            max_push_bytes: 50_000_000,
            fence: Arc::new(Held),
        };
        change(&mut rights);
        let Rights {
            policy,
            max_push_bytes,
            fence,
        } = rights;
        let access = |upstream| GitAccess::ReadWrite {
            upstream,
            branch: "work".into(),
            max_push_bytes,
            fence,
        };
        Self::with_policy(kind, policy, access).await
    }

    pub(super) async fn with_access(
        kind: Kind,
        access: impl FnOnce(Upstream) -> GitAccess,
    ) -> Self {
        Self::with_policy(kind, PushPolicy::default(), access).await
    }

    async fn with_policy(
        kind: Kind,
        policy: PushPolicy,
        access: impl FnOnce(Upstream) -> GitAccess,
    ) -> Self {
        let home = tempfile::tempdir().unwrap();
        let upstream = home.path().join("srv/repo.git");
        let (target, forge) = target(kind, &home.path().join("srv"), &upstream).await;
        if let Upstream::Path(path) = &target {
            let format = if kind == Kind::Sha256 {
                "sha256"
            } else {
                "sha1"
            };
            bare(path, format);
        }
        std::fs::create_dir_all(&upstream).unwrap();
        let world = Self::built(home, upstream, target, forge, policy, access).await;
        world.seed(kind).await;
        world
    }

    /// With an upstream of the test's own.
    pub(super) async fn at(
        target: Upstream,
        forge: Option<Arc<Forge>>,
        access: impl FnOnce(Upstream) -> GitAccess,
    ) -> Self {
        let home = tempfile::tempdir().unwrap();
        let upstream = home.path().join("none");
        Self::built(home, upstream, target, forge, PushPolicy::default(), access).await
    }

    async fn built(
        home: TempDir,
        upstream: PathBuf,
        target: Upstream,
        forge: Option<Arc<Forge>>,
        push: PushPolicy,
        access: impl FnOnce(Upstream) -> GitAccess,
    ) -> Self {
        agentmine_runtime::tls::install_default_provider();
        let config = GatewayConfig {
            git: access(target.clone()),
            network: Network {
                push,
                ..Network::default()
            },
        };
        let gateway = Gateway::new(config).unwrap();
        let url = serve(&gateway).await;
        Self {
            home,
            upstream,
            target,
            gateway,
            url,
            forge,
            clock: AtomicU32::new(0),
        }
    }

    /// Three commits on `main`.
    async fn seed(&self, kind: Kind) {
        let format = if kind == Kind::Sha256 {
            "sha256"
        } else {
            "sha1"
        };
        let bare = self.upstream.clone();
        let init = format!("init -q -b main --object-format={format}");
        if !matches!(kind, Kind::Path | Kind::Sha256) {
            self.git(&bare, &format!("{init} --bare")).await.ok();
        }
        self.git(&bare, "config http.receivepack true").await.ok();
        let seed = self.home.path().join("human");
        let path = self.home.path().to_owned();
        self.git(&path, &format!("{init} human")).await.ok();
        let remote = format!("remote add origin {}", bare.display());
        self.git(&seed, &remote).await.ok();
        for n in 1..=3 {
            self.commit(&seed, &format!("file{n}.txt")).await;
        }
        self.git(&seed, "push -q origin main").await.ok();
    }

    async fn run(&self, dir: &Path, command: &str, more: &[(&str, &str)]) -> Ran {
        let tick = self.clock.fetch_add(1, Ordering::SeqCst);
        let date = format!("{} +0000", 1_700_000_000 + tick);
        let output = tokio::process::Command::new("git")
            .args(command.split(' '))
            .current_dir(dir)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.home.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_AUTHOR_NAME", "A")
            .env("GIT_AUTHOR_EMAIL", "a@example.org")
            .env("GIT_COMMITTER_NAME", "A")
            .env("GIT_COMMITTER_EMAIL", "a@example.org")
            .env("GIT_AUTHOR_DATE", &date)
            .env("GIT_COMMITTER_DATE", &date)
            .envs(more.iter().copied())
            .output()
            .await
            .unwrap();
        Ran {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub(super) async fn git(&self, dir: &Path, command: &str) -> Ran {
        self.run(dir, command, &[]).await
    }

    /// Everything that git can be made to show.
    pub(super) async fn git_traced(&self, dir: &Path, command: &str) -> String {
        let traces = [
            ("GIT_TRACE", "1"),
            ("GIT_CURL_VERBOSE", "1"),
            ("GIT_TRACE_CURL", "1"),
            ("GIT_TRACE_PACKET", "1"),
            ("GIT_TRACE_REDACT", "0"),
        ];
        let ran = self.run(dir, command, &traces).await;
        ran.stdout + &ran.stderr
    }

    pub(super) async fn clone_into(&self, name: &str, options: &[&str]) -> PathBuf {
        let options: String = options.iter().map(|text| format!("{text} ")).collect();
        let command = format!("clone -q {options}{} {name}", self.url);
        let home = self.home.path().to_owned();
        self.git(&home, &command).await.ok();
        home.join(name)
    }

    /// Commits everything, and one more file.
    pub(super) async fn commit(&self, repo: &Path, file: &str) -> String {
        std::fs::write(repo.join(file), format!("{file}\n")).unwrap();
        self.git(repo, "add -A").await.ok();
        let message = format!("commit -q --allow-empty -m {file}");
        self.git(repo, &message).await.ok();
        self.git(repo, "rev-parse HEAD").await.ok()
    }

    /// Somebody else pushes a commit to `branch`, past the gateway.
    pub(super) async fn human_commit(&self, branch: &str, file: &str) -> String {
        let human = self.home.path().join("human");
        self.git(&human, "fetch -q origin").await.ok();
        let from = match self.upstream_head(branch).await.as_str() {
            "" => "origin/main".to_owned(),
            head => head.to_owned(),
        };
        self.git(&human, &format!("checkout -q -B {branch} {from}"))
            .await
            .ok();
        let head = self.commit(&human, file).await;
        self.git(&human, &format!("push -q origin {branch}"))
            .await
            .ok();
        head
    }

    /// Somebody else merges `from` into `into`, past the gateway.
    pub(super) async fn human_merge(&self, from: &str, into: &str) {
        let human = self.home.path().join("human");
        self.git(&human, "fetch -q origin").await.ok();
        self.git(&human, &format!("checkout -q -B {into} origin/{into}"))
            .await
            .ok();
        self.git(&human, &format!("merge -q --no-ff --no-edit origin/{from}"))
            .await
            .ok();
        self.git(&human, &format!("push -q origin {into}"))
            .await
            .ok();
    }

    /// The commit of a branch upstream, or nothing.
    pub(super) async fn upstream_head(&self, branch: &str) -> String {
        let command = format!("for-each-ref --format=%(objectname) refs/heads/{branch}");
        self.git(&self.upstream, &command).await.ok()
    }

    pub(super) async fn upstream_refs(&self) -> String {
        self.git(&self.upstream, "for-each-ref").await.ok()
    }

    pub(super) fn refusals(&self) -> Vec<String> {
        let reason = |event| match event {
            TrafficEvent::PushRefused { reason } => Some(reason),
            _ => None,
        };
        self.gateway
            .events()
            .into_iter()
            .filter_map(reason)
            .collect()
    }

    /// Posts a push as it is; returns the status and the text of the answer.
    pub(super) async fn raw_push(&self, body: Vec<u8>) -> String {
        let answer = reqwest::Client::new()
            .post(format!("{}/git-receive-pack", self.url))
            .header("content-type", "application/x-git-receive-pack-request")
            .body(body)
            .send()
            .await
            .unwrap();
        let status = answer.status().as_u16();
        let body = answer.bytes().await.unwrap();
        format!("{status} {}", String::from_utf8_lossy(&body))
    }

    /// Begins a request of `length` bytes to `service`, and sends only `body` of it.
    pub(super) async fn begin_request(
        &self,
        service: &str,
        length: usize,
        body: &[u8],
    ) -> TcpStream {
        use tokio::io::AsyncWriteExt as _;
        let url: url::Url = self.url.parse().unwrap();
        let address = url.socket_addrs(|| None).unwrap()[0];
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST {}/git-{service} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\
             content-type: application/x-git-{service}-request\r\n\r\n",
            url.path()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        stream
    }

    #[track_caller]
    pub(super) fn forge(&self) -> &Forge {
        self.forge.as_ref().unwrap()
    }

    pub(super) fn forge_requests(&self) -> usize {
        self.forge().requests.load(Ordering::SeqCst)
    }

    /// The next `requests` to the forge are answered 503.
    pub(super) fn forge_is_busy_for(&self, requests: usize) {
        self.forge().busy.store(requests, Ordering::SeqCst);
    }

    pub(super) fn forge_fetches(&self) -> usize {
        self.forge().fetches.load(Ordering::SeqCst)
    }

    pub(super) fn forge_pushes(&self) -> usize {
        self.forge().pushes.load(Ordering::SeqCst)
    }
}

/// Serves a gateway; returns the URL of its repository.
pub(super) async fn serve(gateway: &Gateway) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "http://{}{}",
        listener.local_addr().unwrap(),
        gateway.remote_path().unwrap()
    );
    let served = gateway.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let gateway = served.clone();
            tokio::spawn(async move { gateway.serve_git(stream).await });
        }
    });
    url
}

/// An empty repository, which the gateway opens at its start.
pub(super) fn bare(path: &Path, format: &str) {
    let format = format!("--object-format={format}");
    let made = std::process::Command::new("git")
        .args(["init", "-q", "-b", "main", "--bare", &format])
        .arg(path)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

async fn target(kind: Kind, root: &Path, path: &Path) -> (Upstream, Option<Arc<Forge>>) {
    if matches!(kind, Kind::Path | Kind::Sha256) {
        std::fs::create_dir_all(path).unwrap();
        return (Upstream::Path(path.to_owned()), None);
    }
    let pair = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        format!("bot:{TOKEN}"),
    );
    let (forge, origin) = Forge::start(root.to_owned(), format!("Basic {pair}")).await;
    let name = match kind {
        Kind::Moved => "moved.git",
        Kind::MovedAway => "away.git",
        Kind::Path | Kind::Sha256 | Kind::Http | Kind::WrongToken => "repo.git",
    };
    let password = match kind {
        Kind::WrongToken => "wrong",
        Kind::Path | Kind::Sha256 | Kind::Http | Kind::Moved | Kind::MovedAway => TOKEN,
    };
    let target = Upstream::Http {
        url: format!("{origin}/{name}").parse().unwrap(),
        user: "bot".into(),
        password: Some(Secret::new(password).into()),
        authority: None,
    };
    (target, Some(forge))
}

/// Bytes that do not compress.
pub(super) fn noise(length: usize) -> Vec<u8> {
    std::iter::repeat_with(rand::random).take(length).collect()
}
