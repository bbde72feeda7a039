//! Bytes through tunnel and gateway, beside a bare pipe and a bare `git push` in the same run: output of a command,
//! a stream out of the sandbox, a file into it and out of it, and pushes of one commit each.
//!
//! The two sides take turns. CPU time is that of this process (worker and forge), of all its children, and of the
//! sandbox; for the bare side, of this process and its children.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_consumer::Traffic;
use agentmine_gateway::{Gateway, GatewayConfig, GitAccess, PushFence, Upstream};
use agentmine_runtime::config::{Network, Secret};
use agentmine_sandbox::{Command, Sandbox};
use agentmine_tests::forge::{Forge, write_demo};
use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use base64::Engine as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::Backend;
use crate::fleet::sandbox;
use crate::tree::{container_time, sandboxes_time, time_of};

const OUTPUT: usize = 100_000_000;
const FILE: usize = 10_000_000;
const BRANCH: &str = "work";
/// Pushes of one side before the other takes its turn.
const BATCH: u32 = 20;
/// Pushes as many commits as the first argument says, each with a change of its own, and prints how many
/// nanoseconds the pushes took.
const PUSHES: &str = r#"
rounds=$1; i=0; sum=0
while [ $i -lt $rounds ]; do
    date +%N >> changes; git commit -qam "Change" || exit 1
    a=$(date +%s%N); git push -q origin work || exit 1; b=$(date +%s%N)
    sum=$((sum + b - a)); i=$((i + 1))
done
echo $sum
"#;

/// A transfer of the bare side.
type Bare<'a> = std::pin::Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'a>>;

/// What one side took.
#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    time: Duration,
    cpu: Duration,
}

pub(crate) async fn run(backend: Backend, rounds: u32, pushes: u32) -> anyhow::Result<()> {
    let sandbox = sandbox(backend).await?;
    let served = Arc::clone(&sandbox);
    let measured = tokio::spawn(async move { measure(backend, &served, rounds, pushes).await });
    let measured = measured.await;
    sandbox.remove().await?;
    measured?
}

async fn measure(
    backend: Backend,
    sandbox: &Arc<dyn Sandbox>,
    rounds: u32,
    pushes: u32,
) -> anyhow::Result<()> {
    let clock = Clock {
        backend,
        sandbox: Arc::clone(sandbox),
    };
    let mut out = std::io::stdout();
    let head = ["bytes", "time", "throughput", "CPU", "time of bare"];
    writeln!(
        out,
        "{:<44} {:>10} {:>12} {:>10} {:>13}",
        head[0], head[1], head[2], head[3], head[4]
    )?;
    let zeros = ["head", "-c", "100000000", "/dev/zero"];
    let output = pair(rounds, &clock, bare_output(&zeros), || {
        run_in(sandbox, &zeros, Vec::new())
    })
    .await?;
    print("100 MB of a command's output", OUTPUT, output)?;
    let stream = pair(rounds, &clock, bare_output(&zeros), || {
        stream_out(sandbox, &zeros)
    })
    .await?;
    print("100 MB of a stdio program's output", OUTPUT, stream)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file");
    let content = pseudo_random(FILE);
    let inside = ["/bin/sh", "-c", "cat > /workspace/project/file"];
    let written = pair(rounds, &clock, bare_write(&file, &content), || {
        run_in(sandbox, &inside, content.clone())
    })
    .await?;
    print("a file of 10 MB into the sandbox", FILE, written)?;
    let bare = file.display().to_string();
    let read = pair(rounds, &clock, bare_output(&["cat", &bare]), || {
        get_file(sandbox)
    })
    .await?;
    print("a file of 10 MB out of it", FILE, read)?;
    pushed(&clock, sandbox, pushes).await
}

/// The medians without and with AgentMine, in turns. The first round warms the caches.
async fn pair<B, O>(
    rounds: u32,
    clock: &Clock,
    bare: impl Fn() -> B,
    ours: impl Fn() -> O,
) -> anyhow::Result<[Taken; 2]>
where
    B: Future<Output = anyhow::Result<()>>,
    O: Future<Output = anyhow::Result<()>>,
{
    let mut taken = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        let both = [clock.of(bare()).await?, clock.of(ours()).await?];
        if round > 0 {
            for (all, one) in taken.iter_mut().zip(both) {
                all.push(one);
            }
        }
    }
    Ok(taken.map(|all| median(&all)))
}

fn median(all: &[Taken]) -> Taken {
    let of = |part: fn(&Taken) -> Duration| {
        let mut sorted: Vec<Duration> = all.iter().map(part).collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    };
    Taken {
        time: of(|one| one.time),
        cpu: of(|one| one.cpu),
    }
}

fn print(what: &str, bytes: usize, [bare, ours]: [Taken; 2]) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    for (name, taken) in [("bare pipe", bare), (what, ours)] {
        let seconds = taken.time.as_secs_f64().max(1e-9);
        writeln!(
            out,
            "{name:<44} {:>7.1} ms {:>7.0} MB/s {:>7.0} ms {:>12.2}x",
            seconds * 1e3,
            bytes as f64 / 1e6 / seconds,
            taken.cpu.as_secs_f64() * 1e3,
            seconds / bare.time.as_secs_f64().max(1e-9)
        )?;
    }
    Ok(())
}

/// Time and CPU time of all that takes part.
struct Clock {
    backend: Backend,
    sandbox: Arc<dyn Sandbox>,
}

impl Clock {
    async fn of(&self, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<Taken> {
        let (cpu, began) = (self.cpu().await?, Instant::now());
        work.await?;
        let time = began.elapsed();
        let cpu = self.cpu().await?.saturating_sub(cpu);
        Ok(Taken { time, cpu })
    }

    async fn cpu(&self) -> anyhow::Result<Duration> {
        let own = time_of(std::process::id().cast_signed(), true);
        Ok(own
            + match self.backend {
                Backend::Docker => container_time(self.sandbox.name()).await?,
                Backend::Local => sandboxes_time(),
            })
    }
}

fn command(argv: &[&str], stdin: Vec<u8>) -> Command {
    Command {
        argv: argv.iter().map(|&part| part.to_owned()).collect(),
        cwd: "/workspace/project".into(),
        env: BTreeMap::new(),
        stdin,
        timeout: Duration::from_secs(600),
        max_output: 1 << 20,
    }
}

async fn run_in(sandbox: &Arc<dyn Sandbox>, argv: &[&str], stdin: Vec<u8>) -> anyhow::Result<()> {
    let done = sandbox.run(command(argv, stdin)).await?;
    ensure!(done.exit_code == 0, "{argv:?}: {:?}", done.exit_code);
    Ok(())
}

async fn stream_out(sandbox: &Arc<dyn Sandbox>, argv: &[&str]) -> anyhow::Result<()> {
    let argv = argv.iter().map(|&part| part.to_owned()).collect();
    let program = sandbox.start_stdio(argv, BTreeMap::new()).await?;
    let length = drain(program.stream).await?;
    ensure!(length == OUTPUT, "{length} bytes came out");
    Ok(())
}

async fn drain(mut from: impl tokio::io::AsyncRead + Unpin) -> anyhow::Result<usize> {
    let (mut piece, mut length) = (vec![0; 1 << 16], 0);
    loop {
        match from.read(&mut piece).await? {
            0 => return Ok(length),
            read => length += read,
        }
    }
}

async fn get_file(sandbox: &Arc<dyn Sandbox>) -> anyhow::Result<()> {
    let found = sandbox.get_file("/workspace/project/file", FILE).await?;
    ensure!(found.is_some_and(|found| found.len() == FILE), "no file");
    Ok(())
}

/// The same program with a pipe to this process.
fn bare_output<'a>(argv: &'a [&'a str]) -> impl Fn() -> Bare<'a> {
    move || {
        Box::pin(async move {
            let mut child = tokio::process::Command::new(argv[0])
                .args(&argv[1..])
                .stdout(Stdio::piped())
                .spawn()?;
            drain(child.stdout.take().context("no pipe")?).await?;
            ensure!(child.wait().await?.success(), "{argv:?} failed");
            Ok(())
        })
    }
}

fn bare_write<'a>(file: &'a Path, content: &'a [u8]) -> impl Fn() -> Bare<'a> {
    move || {
        Box::pin(async move {
            let mut child = tokio::process::Command::new("/bin/sh")
                .args(["-c", "cat > \"$0\""])
                .arg(file)
                .stdin(Stdio::piped())
                .spawn()?;
            let mut stdin = child.stdin.take().context("no pipe")?;
            stdin.write_all(content).await?;
            drop(stdin);
            ensure!(child.wait().await?.success(), "the file was not written");
            Ok(())
        })
    }
}

/// Bytes that do not compress.
fn pseudo_random(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

/// A lease that is never lost.
struct Held;

#[async_trait]
impl PushFence for Held {
    async fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn check_clock(&self) -> Result<(), String> {
        Ok(())
    }
}

async fn pushed(clock: &Clock, sandbox: &Arc<dyn Sandbox>, pushes: u32) -> anyhow::Result<()> {
    let forge = Forge::start().await;
    for repository in ["octo/bare", "octo/ours"] {
        forge.add_repo(repository, write_demo);
    }
    let gateway = Gateway::new(GatewayConfig {
        git: GitAccess::ReadWrite {
            upstream: Upstream::Http {
                url: forge.git_url("octo/ours"),
                user: "x-access-token".into(),
                password: Some(Secret::new(forge.token()).into()),
                authority: None,
            },
            branch: BRANCH.into(),
            max_push_bytes: 32 << 20,
            fence: Arc::new(Held),
        },
        network: Network::default(),
    })?;
    let path = gateway.remote_path().unwrap_or_default();
    let remote = format!("http://127.0.0.1:{}{path}", sandbox.ports().git);
    let _traffic = Traffic::serve(Arc::clone(sandbox), gateway);
    run_in(sandbox, &["/bin/sh", "-c", &clone(&remote, "")], Vec::new()).await?;
    let basic = format!("x-access-token:{}", forge.token());
    let basic = base64::engine::general_purpose::STANDARD.encode(basic);
    let header = format!("-c http.extraHeader='Authorization: Basic {basic}'");
    let folder = tempfile::tempdir()?;
    let url = forge.git_url("octo/bare").to_string();
    bare_shell(folder.path(), &clone(&url, &header), "").await?;
    let (mut bare, mut ours) = (Taken::default(), Taken::default());
    let rounds = pushes.div_ceil(BATCH);
    for _ in 0..rounds {
        let batch = BATCH.to_string();
        let at = folder.path().join("clone");
        add(clock, &mut bare, bare_shell(&at, PUSHES, &batch)).await?;
        add(clock, &mut ours, push_in(sandbox, &batch)).await?;
    }
    let mut out = std::io::stdout();
    writeln!(out)?;
    let count = rounds * BATCH;
    for (name, taken) in [("bare `git push`", bare), ("through the gateway", ours)] {
        writeln!(
            out,
            "{name:<44} {:>7.1} ms a push {:>18.0} ms {:>12.2}x",
            taken.time.as_secs_f64() * 1e3 / f64::from(count),
            taken.cpu.as_secs_f64() * 1e3 / f64::from(count),
            taken.time.as_secs_f64() / bare.time.as_secs_f64().max(1e-9)
        )?;
    }
    writeln!(
        out,
        "({count} pushes of one commit each; CPU with the commit itself)"
    )?;
    Ok(())
}

fn clone(remote: &str, options: &str) -> String {
    format!(
        "git {options} clone -q {remote} clone && cd clone && git checkout -q -b {BRANCH} && \
         git config user.name a && git config user.email a@example.org && touch changes && git add changes{}",
        match options.strip_prefix("-c http.extraHeader=") {
            Some(header) => format!(" && git config http.extraHeader {header}"),
            None => String::new(),
        }
    )
}

async fn add(
    clock: &Clock,
    to: &mut Taken,
    work: impl Future<Output = anyhow::Result<Duration>>,
) -> anyhow::Result<()> {
    let mut printed = Duration::ZERO;
    let taken = clock.of(async {
        printed = work.await?;
        Ok(())
    });
    let cpu = taken.await?.cpu;
    to.time += printed;
    to.cpu += cpu;
    Ok(())
}

async fn push_in(sandbox: &Arc<dyn Sandbox>, rounds: &str) -> anyhow::Result<Duration> {
    let mut command = command(&["/bin/sh", "-c", PUSHES, "sh", rounds], Vec::new());
    command.cwd = "/workspace/project/clone".into();
    let done = sandbox.run(command).await?;
    ensure!(done.exit_code == 0, "the pushes failed: {done:?}");
    nanos(&done.stdout)
}

async fn bare_shell(at: &Path, script: &str, rounds: &str) -> anyhow::Result<Duration> {
    let done = tokio::process::Command::new("/bin/sh")
        .args(["-c", script, "sh", rounds])
        .current_dir(at)
        .output()
        .await?;
    ensure!(done.status.success(), "the bare side failed: {done:?}");
    nanos(&done.stdout)
}

fn nanos(printed: &[u8]) -> anyhow::Result<Duration> {
    let printed = String::from_utf8_lossy(printed);
    match printed.trim() {
        "" => Ok(Duration::ZERO),
        nanos => Ok(Duration::from_nanos(nanos.parse()?)),
    }
}
