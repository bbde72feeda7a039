//! The price of the hardening: the same task with it and without, in turns.
//!
//! Without it: a container on the engine's defaults and the host's network (a folder and plain processes, where the jail
//! is compared), git that talks to the forge itself with the token, and `exec` by the engine. With it: everything that a
//! consumer puts between. Model and tracker take no part.

mod place;

use std::fmt;
use std::time::{Duration, Instant};

use agentmine_guest::mux::End;
use agentmine_guest::seal::{KEY, Key, Sealed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use self::place::Place;
use super::arena::{Limits, backend};
use super::cell::Cell;
use crate::forge::{Forge, write_demo};

/// Ten commits with two hundred files, of which some are large enough to be worth a search.
const WORK: &str = "cd project && for n in 1 2 3 4 5 6 7 8 9 10; do for m in $(seq 20); do \
    seq $n$m $((n * m * 7 + 400)) > file-$n-$m.txt; done; git add -A && git commit -q -m \"Step $n\"; done";
const CALLS: &str = "import os\nfor _ in range(1000000): os.getppid()";
const BYTES: usize = 64 << 20;

/// How long a part took without the hardening and with it, in each round.
#[derive(Debug)]
pub struct Part {
    name: &'static str,
    plain: Vec<Duration>,
    hardened: Vec<Duration>,
}

impl Part {
    fn of(name: &'static str) -> Self {
        Self {
            name,
            plain: Vec::new(),
            hardened: Vec::new(),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plain, hardened) = (median(&self.plain), median(&self.hardened));
        let ratio = hardened.as_secs_f64() / plain.as_secs_f64().max(1e-9);
        write!(
            f,
            "{:<48} {:>9.1} ms {:>9.1} ms {ratio:>7.2}x",
            self.name,
            plain.as_secs_f64() * 1000.0,
            hardened.as_secs_f64() * 1000.0
        )
    }
}

fn median(all: &[Duration]) -> Duration {
    let mut sorted = all.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Does the task in turns, and measures each part. The first round, which warms the caches, does not count.
///
/// # Errors
/// When a sandbox cannot be started, or a part of the task fails.
pub async fn price(cell: Cell, rounds: usize) -> anyhow::Result<Vec<Part>> {
    let forge = Forge::start().await;
    let backend = backend(cell, Limits::Default).await?;
    let names = [
        "start of a sandbox",
        "clone",
        "a command (of 20)",
        "a million system calls",
        "200 files in 10 commits",
        "push of them",
        "checks: another sandbox, a clone, the tests",
        "removal of both sandboxes",
        "the whole task",
        "64 MB through the seal",
    ];
    let mut parts: Vec<Part> = names.into_iter().map(Part::of).collect();
    for round in 0..=rounds {
        for hardened in [false, true] {
            let repository = format!("octo/round-{round}-{hardened}");
            forge.add_repo(&repository, write_demo);
            let open = async || match hardened {
                true => Place::hardened(backend.as_ref(), &forge, &repository).await,
                false => Place::plain(cell, &forge, &repository).await,
            };
            let mut times = task(open).await?;
            times.push(stream(hardened).await?);
            for (part, time) in parts.iter_mut().zip(times) {
                let all = if hardened {
                    &mut part.hardened
                } else {
                    &mut part.plain
                };
                if round > 0 {
                    all.push(time);
                }
            }
        }
    }
    Ok(parts)
}

/// The times of the parts, and of the whole.
async fn task(open: impl AsyncFn() -> anyhow::Result<Place>) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    let began = Instant::now();
    let place = open().await?;
    times.push(began.elapsed());
    let mut at = Instant::now();
    let mut done = |times: &mut Vec<Duration>| {
        times.push(at.elapsed());
        at = Instant::now();
    };
    place.clone_project().await?;
    done(&mut times);
    for _ in 0..20 {
        place.run("true").await?;
    }
    done(&mut times);
    place.run(&format!("python3 -c '{CALLS}'")).await?;
    done(&mut times);
    place.run(WORK).await?;
    done(&mut times);
    place.push().await?;
    done(&mut times);
    let second = open().await?;
    second.clone_project().await?;
    second.run("cd project && sh greet.sh && ls").await?;
    done(&mut times);
    place.remove().await?;
    second.remove().await?;
    done(&mut times);
    if let Some(twenty) = times.get_mut(2) {
        *twenty /= 20;
    }
    times.push(began.elapsed());
    Ok(times)
}

/// Bytes from a guest to the worker, in memory.
async fn stream(sealed: bool) -> anyhow::Result<Duration> {
    let (mut from, mut to) = tokio::io::duplex(1 << 16);
    let began = Instant::now();
    let piece = vec![7; 1 << 16];
    let key = || Key::new([7; KEY]);
    let write = async {
        if sealed {
            let mut from = Sealed::new(&mut from, End::Guest, key().halves(End::Guest));
            for _ in 0..BYTES / piece.len() {
                from.write_all(&piece).await?;
            }
            from.shutdown().await
        } else {
            for _ in 0..BYTES / piece.len() {
                from.write_all(&piece).await?;
            }
            from.shutdown().await
        }
    };
    let read = async {
        let mut sink = vec![0; 1 << 16];
        let mut left = BYTES;
        if sealed {
            let mut to = Sealed::new(&mut to, End::Worker, key().halves(End::Worker));
            while left > 0 {
                left -= to.read(&mut sink).await?.min(left);
            }
        } else {
            while left > 0 {
                left -= to.read(&mut sink).await?.min(left);
            }
        }
        std::io::Result::Ok(())
    };
    let (written, read) = tokio::join!(write, read);
    written?;
    read?;
    Ok(began.elapsed())
}
