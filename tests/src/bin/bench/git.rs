//! One start of git: by a worker, and in the ways that were or could be taken to limit it.
//!
//! CPU time of this process and of git, from start to end. This process holds memory as a busy worker does, since a copy of
//! its page tables takes longer the larger they are. The ways take turns.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agentmine_git::{Errand, GitHome};
use anyhow::{Context as _, ensure};

const GIT: &str = "/usr/bin/git";
/// Starts of one way before the others take their turn.
const BATCH: u32 = 10;
const LIMITED: &str = r#"ulimit -v "$1" && ulimit -t "$2" && ulimit -c 0 || exit 126
{ echo 1000 > /proc/self/oom_score_adj; } 2> /dev/null
shift 2
exec "$0" "$@""#;

/// A way, and a command of it.
type Way<'a> = (&'static str, Box<dyn Fn() -> Command + 'a>);

pub(crate) fn run(rounds: u32, megabytes: usize) -> anyhow::Result<()> {
    let home = GitHome::new()?;
    let memory = vec![1_u8; megabytes << 20];
    let ways: [Way<'_>; 4] = [
        ("git alone, without limits", Box::new(|| Command::new(GIT))),
        (
            "through the launcher",
            Box::new(|| home.git(Errand::Untrusted)),
        ),
        ("through a shell", Box::new(by_shell)),
        ("forked, limited before exec", Box::new(forked)),
    ];
    let mut spent = [(Duration::ZERO, Duration::ZERO); 4];
    // The first batch warms the page cache.
    for batch in 0..=rounds.div_ceil(BATCH) {
        for ((_, way), (cpu, time)) in ways.iter().zip(&mut spent) {
            let (began, before) = (Instant::now(), cpu_time()?);
            for _ in 0..BATCH {
                start(way())?;
            }
            if batch > 0 {
                *cpu += cpu_time()? - before;
                *time += began.elapsed();
            }
        }
    }
    std::hint::black_box(memory);
    let starts = rounds.div_ceil(BATCH) * BATCH;
    let mut out = io::stdout();
    writeln!(out, "{:<30}{:>12}{:>12}", "a start of git", "CPU", "time")?;
    for ((what, _), (cpu, time)) in ways.iter().zip(spent) {
        let [cpu, time] = [cpu, time].map(|it| (it / starts).as_secs_f64() * 1000.0);
        writeln!(out, "{what:<30}{cpu:>9.2} ms{time:>9.2} ms")?;
    }
    Ok(())
}

fn start(mut git: Command) -> anyhow::Result<()> {
    let status = git
        .arg("version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("starting git")?;
    ensure!(status.success(), "git failed: {status}");
    Ok(())
}

fn by_shell() -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", LIMITED, GIT, "786432", "300"]);
    command
}

fn forked() -> Command {
    let mut command = Command::new(GIT);
    let limit = || {
        for (resource, most) in [
            (libc::RLIMIT_AS, 768 << 20),
            (libc::RLIMIT_CPU, 300),
            (libc::RLIMIT_CORE, 0),
        ] {
            let limit = libc::rlimit {
                rlim_cur: most,
                rlim_max: most,
            };
            // SAFETY: the call reads the local struct.
            if unsafe { libc::setrlimit(resource, &raw const limit) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls on local values alone.
    unsafe { command.pre_exec(limit) };
    command
}

/// CPU time of this process and of those that it waited for.
fn cpu_time() -> anyhow::Result<Duration> {
    let mut total = Duration::ZERO;
    for who in [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN] {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the call fills the local struct, which zeroes also make valid.
        let usage = unsafe {
            libc::getrusage(who, usage.as_mut_ptr());
            usage.assume_init()
        };
        for time in [usage.ru_utime, usage.ru_stime] {
            total += Duration::from_secs(u64::try_from(time.tv_sec)?);
            total += Duration::from_micros(u64::try_from(time.tv_usec)?);
        }
    }
    Ok(total)
}
