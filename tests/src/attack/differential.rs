//! The gateway against a real `git receive-pack`: the same raw requests to both, made from a seed.
//!
//! What the gateway let through must be what `git receive-pack` would have done with the request, on the one branch,
//! and its record must name exactly what moved.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use agentmine_gateway::{Gateway, GatewayConfig, GitAccess, TrafficEvent, Upstream};
use agentmine_runtime::config::Network;
use anyhow::{Context as _, ensure};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::fence::Held;
use crate::random::Random;

const WORK: &str = "refs/heads/work";
const ZERO: &str = "0000000000000000000000000000000000000000";

/// What a run of requests showed.
#[derive(Debug, Default)]
pub struct Difference {
    /// Requests sent.
    pub requests: usize,
    /// Those that `git receive-pack` alone would have carried out in part or in whole.
    pub carried_out_by_git: usize,
    /// Those that the gateway let through.
    pub let_through: usize,
    /// What must not be.
    pub faults: Vec<String>,
}

/// References and their commits.
type Refs = BTreeMap<String, String>;

/// Sends requests that follow from a seed.
///
/// # Errors
/// When git or the gateway cannot be started.
pub async fn differential(seed: u64, requests: usize) -> anyhow::Result<Difference> {
    let folder = tempfile::Builder::new()
        .prefix("agentmine-attacks-")
        .tempdir()?;
    let stock = Stock::make(folder.path())?;
    let behind = folder.path().join("behind.git");
    let alone = folder.path().join("alone.git");
    let client = reqwest::Client::new();
    let mut random = Random::new(seed);
    let mut difference = Difference::default();
    for at in 0..requests {
        // Both start from the same references in each round, with the branch there or not.
        let present = random.chance(50);
        stock.lay_out(&behind, present)?;
        stock.lay_out(&alone, present)?;
        let request = stock.request(&mut random);
        // One for each, since a gateway remembers what its branch was at.
        let (gateway, url, serving) = serve(&behind).await?;
        let (before, events) = (refs(&behind)?, gateway.events().len());
        let sent = client
            .post(&url)
            .header("content-type", "application/x-git-receive-pack-request")
            .body(request.bytes.clone())
            .send()
            .await;
        let answer = match sent {
            Ok(answer) => {
                let status = answer.status().as_u16();
                format!(
                    "{status} {}",
                    String::from_utf8_lossy(&answer.bytes().await.unwrap_or_default())
                )
            }
            Err(error) => format!("no answer: {error}"),
        };
        by_git_alone(&alone, &request.bytes)?;
        let case = Case {
            before,
            behind: refs(&behind)?,
            alone: refs(&alone)?,
            events: gateway.events().split_off(events),
            answer,
        };
        serving.abort();
        difference.requests += 1;
        difference.carried_out_by_git += usize::from(case.alone != case.before);
        difference.let_through += usize::from(case.behind != case.before);
        for fault in case.faults() {
            let text = String::from_utf8_lossy(&request.bytes[..request.bytes.len().min(300)])
                .into_owned();
            difference.faults.push(format!(
                "seed {seed} request {at}: {fault}; answer {:?}; request {text:?}",
                case.answer
            ));
        }
    }
    Ok(difference)
}

/// A gateway before a repository, and the URL for pushes.
async fn serve(behind: &Path) -> anyhow::Result<(Gateway, String, JoinHandle<()>)> {
    let gateway = Gateway::new(GatewayConfig {
        git: GitAccess::ReadWrite {
            upstream: Upstream::Path(behind.to_owned()),
            branch: "work".into(),
            max_push_bytes: 1 << 20,
            fence: Arc::new(Held),
        },
        network: Network::default(),
    })?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let path = gateway.remote_path().unwrap_or_default();
    let url = format!("http://{}{path}/git-receive-pack", listener.local_addr()?);
    let served = gateway.clone();
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let gateway = served.clone();
            tokio::spawn(async move { gateway.serve_git(stream).await });
        }
    });
    Ok((gateway, url, serving))
}

struct Case {
    before: Refs,
    behind: Refs,
    alone: Refs,
    events: Vec<TrafficEvent>,
    answer: String,
}

impl Case {
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let others = |refs: &Refs| {
            let mut refs = refs.clone();
            refs.remove(WORK);
            refs
        };
        if others(&self.behind) != others(&self.before) {
            faults.push(format!("other references moved: {:?}", self.behind));
        }
        let (old, new) = (self.before.get(WORK), self.behind.get(WORK));
        let moved = old != new;
        if moved && self.alone.get(WORK) != new {
            faults.push(format!(
                "git alone left {:?} instead of {new:?}",
                self.alone.get(WORK)
            ));
        }
        if moved && new.is_none() {
            faults.push("the branch was deleted".into());
        }
        let recorded: Vec<_> = self.events.iter().filter_map(pushed).collect();
        let expected: Vec<_> = new
            .filter(|_| moved)
            .map(|new| (old.map_or(ZERO, String::as_str), new.as_str()))
            .into_iter()
            .collect();
        if recorded != expected {
            faults.push(format!("recorded {recorded:?}, but {expected:?} moved"));
        }
        let refused = self
            .events
            .iter()
            .any(|it| matches!(it, TrafficEvent::PushRefused { .. }));
        // A request that is none, as HTTP says, is not a push.
        if !moved && !refused && self.answer.starts_with("200") && self.alone != self.before {
            faults.push("it was refused without a record".into());
        }
        faults
    }
}

fn pushed(event: &TrafficEvent) -> Option<(&str, &str)> {
    match event {
        TrafficEvent::Pushed { old, new, .. } => Some((old, new)),
        _ => None,
    }
}

/// A repository, commits that it does not have, and their packs.
struct Stock {
    origin: PathBuf,
    base: String,
    /// On top of `base`, on top of that, and without a parent.
    commits: [String; 3],
    packs: Vec<Vec<u8>>,
}

struct Request {
    bytes: Vec<u8>,
}

impl Stock {
    fn make(folder: &Path) -> anyhow::Result<Self> {
        let origin = folder.join("origin.git");
        let tree = folder.join("tree");
        for path in [&origin, &tree, &folder.join("behind.git")] {
            std::fs::create_dir(path)?;
        }
        git(&origin, &["init", "-q", "--bare", "-b", "main"], b"")?;
        git(
            &folder.join("behind.git"),
            &["init", "-q", "--bare", "-b", "main"],
            b"",
        )?;
        git(&tree, &["init", "-q", "-b", "main"], b"")?;
        let commit = |name: &str| -> anyhow::Result<String> {
            std::fs::write(tree.join(name), name)?;
            git(&tree, &["add", "-A"], b"")?;
            git(&tree, &["commit", "-q", "-m", name], b"")?;
            Ok(text(git(&tree, &["rev-parse", "HEAD"], b"")?))
        };
        let base = commit("base")?;
        let target = origin.display().to_string();
        git(
            &tree,
            &[
                "push",
                "-q",
                &target,
                "main",
                "main:refs/heads/other",
                "main:refs/tags/v0",
            ],
            b"",
        )?;
        let (one, two) = (commit("one")?, commit("two")?);
        git(&tree, &["checkout", "-q", "--orphan", "alone"], b"")?;
        let commits = [one, two, commit("three")?];
        let mut packs = vec![Vec::new()];
        for wanted in [&commits[..1], &commits[..2], &commits[2..], &commits[..]] {
            let list = format!("{}\n^{base}\n", wanted.join("\n"));
            packs.push(git(
                &tree,
                &["pack-objects", "--revs", "--stdout", "-q"],
                list.as_bytes(),
            )?);
        }
        Ok(Self {
            origin,
            base,
            commits,
            packs,
        })
    }

    /// The repository as it is before each request.
    fn lay_out(&self, at: &Path, work: bool) -> anyhow::Result<()> {
        if at.exists() {
            std::fs::remove_dir_all(at)?;
        }
        let done = Command::new("cp")
            .arg("-a")
            .arg(&self.origin)
            .arg(at)
            .status()?;
        ensure!(done.success(), "cp: {done}");
        if work {
            git(at, &["update-ref", WORK, &self.base], b"")?;
        }
        Ok(())
    }

    fn request(&self, random: &mut Random) -> Request {
        let count = random.of(&[1, 1, 1, 1, 2, 3, 0]);
        let capabilities = self.capabilities(random);
        let mut bytes = Vec::new();
        for at in 0..count {
            let mut line = self.command(random).into_bytes();
            if at == 0 && !random.chance(8) {
                line.push(0);
                line.extend_from_slice(capabilities.as_bytes());
            }
            if random.chance(20) {
                line.push(b'\n');
            }
            packet(&mut bytes, &line, random);
        }
        if !random.chance(4) {
            bytes.extend_from_slice(b"0000");
        }
        if capabilities.contains("push-options") && random.chance(70) {
            packet(&mut bytes, b"ci.skip", random);
            bytes.extend_from_slice(b"0000");
        }
        if random.chance(10) {
            // A byte of the commands is another.
            let at = random.between(0, bytes.len().max(1) as u64) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.between(0, 256) as u8;
            }
        }
        let mut pack = if random.chance(75) {
            self.packs.last().cloned().unwrap_or_default()
        } else {
            random.pick(&self.packs).cloned().unwrap_or_default()
        };
        if random.chance(6) {
            pack.truncate(random.between(0, pack.len() as u64 + 1) as usize);
        }
        if random.chance(4) {
            pack.extend_from_slice(b"0000PACK");
        }
        bytes.extend(pack);
        Request { bytes }
    }

    fn command(&self, random: &mut Random) -> String {
        let all: Vec<&str> = self.commits.iter().map(String::as_str).collect();
        let old = random.of(&[ZERO, ZERO, self.base.as_str(), self.base.as_str(), all[0]]);
        let new = random.of(&[
            all[0],
            all[0],
            all[1],
            all[2],
            ZERO,
            self.base.as_str(),
            "1111111111111111111111111111111111111111",
        ]);
        let name = random.of(&[
            WORK,
            WORK,
            WORK,
            WORK,
            WORK,
            WORK,
            "refs/heads/main",
            "refs/heads/other",
            "refs/tags/v1",
            "refs/heads/work2",
            "refs/heads/work ",
            "refs/heads//work",
            "refs/heads/work/x",
            "HEAD",
            "refs/heads/../heads/main",
            "refs/heads/WORK",
        ]);
        let space = if random.chance(3) { "  " } else { " " };
        format!("{old}{space}{new} {name}")
    }

    fn capabilities(&self, random: &mut Random) -> String {
        let all = [
            "report-status",
            "report-status-v2",
            "side-band-64k",
            "side-band-64k=1",
            "atomic",
            "delete-refs",
            "ofs-delta",
            "quiet",
            "push-options",
            "agent=x",
            "object-format=sha1",
            "object-format=sha256",
            "session-id=x",
        ];
        let chosen = all.iter().filter(|it| {
            random.chance(if it.starts_with("object-format") {
                5
            } else {
                40
            })
        });
        chosen.copied().collect::<Vec<_>>().join(" ")
    }
}

/// A packet line, now and then with a length that is not quite right.
fn packet(bytes: &mut Vec<u8>, line: &[u8], random: &mut Random) {
    let length = line.len() + 4;
    let length = match random.between(0, 60) {
        0 => format!("{length:04X}"),
        1 => format!("{:04x}", length + 1),
        2 => format!("{:04x}", length.saturating_sub(1)),
        3 => format!("+{length:03x}"),
        _ => format!("{length:04x}"),
    };
    bytes.extend_from_slice(length.as_bytes());
    bytes.extend_from_slice(line);
}

fn refs(repository: &Path) -> anyhow::Result<Refs> {
    let listing = git(
        repository,
        &["for-each-ref", "--format=%(refname) %(objectname)"],
        b"",
    )?;
    let listing = text(listing);
    let pairs = listing.lines().filter_map(|line| line.split_once(' '));
    Ok(pairs
        .map(|(name, id)| (name.to_owned(), id.to_owned()))
        .collect())
}

/// What git does with the request when nobody is in front of it. It may refuse.
fn by_git_alone(repository: &Path, request: &[u8]) -> anyhow::Result<()> {
    let mut child = command(repository)
        .args(["receive-pack", "--stateless-rpc", "."])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut stdin = child.stdin.take().context("stdin")?;
    // It may end before it has read everything.
    let _ = stdin.write_all(request);
    drop(stdin);
    child.wait()?;
    Ok(())
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .args([
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.org",
            "-c",
            "receive.autogc=false",
        ])
        .current_dir(folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0");
    command
}

fn git(folder: &Path, arguments: &[&str], input: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut child = command(folder)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("stdin")?.write_all(input)?;
    let output = child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {arguments:?}: {errors}");
    Ok(output.stdout)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).trim().to_owned()
}
