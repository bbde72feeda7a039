//! How many tasks one consumer finishes in a minute: the real program, with the store and the broker of a fleet.
//!
//! Each task runs the cycle of `step` (a no-op command, a new file of 2 KB, an edit of it, a view of it), ten steps in
//! all, and is then committed, pushed, measured, and reported. The repository has no check, so nothing is to be run on a
//! fresh clone, unless one is requested: then each task takes a second sandbox and clone. Forge, git server and model, which
//! answers at once, run on the same machine; their CPU time is shown apart.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use agentmine_domain::TaskState;
use agentmine_process::descendants;
use agentmine_store::TaskFilter;
use agentmine_tests::model::{
    Answer, Scenario, ScriptedModel, commit_and_push, edit_create, edit_replace, edit_view, say,
    shell,
};
use anyhow::{Context as _, ensure};

use crate::Backend;
use crate::cycle::Act;
use crate::fleet::{Database, Fleet};
use crate::memory::{delete_queues, end, memory_of, service, start_consumer, write_config};
use crate::step::write_files;
use crate::tree::time_of;

/// Files of the repository.
const FILES: u32 = 100;
const PATIENCE: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(100);

pub(crate) async fn run(
    backend: Backend,
    (slots, tasks): (usize, u32),
    (publish, checks): (bool, bool),
) -> anyhow::Result<()> {
    let database = Database::new(&service(
        "AGENTMINE_TEST_POSTGRES_URL",
        "postgres://postgres@127.0.0.1:54329/postgres",
    ));
    let write = move |folder: &Path| {
        write_files(folder, FILES);
        if checks {
            std::fs::write(folder.join("test.sh"), "exit 0\n")
                .unwrap_or_else(|error| panic!("test.sh: {error}"));
        }
    };
    let fleet = Fleet::with(Some(&database.url()?), write).await?;
    let model = ScriptedModel::start(Scenario::new("cycle").replies(cycle(publish))).await;
    let folder = tempfile::tempdir()?;
    let config = write_config(folder.path(), &fleet, &model, &database, (backend, slots))?;
    for _ in 0..tasks {
        fleet.enqueue().await?;
    }
    let mut consumer = start_consumer(&config, fleet.forge.token()).await?;
    let pid = consumer.id().context("the consumer has ended")?;
    let finished = finish(&fleet, pid, tasks).await;
    end(&mut consumer, pid).await?;
    fleet.store.close().await;
    delete_queues(&database.name).await?;
    database.drop().await?;
    let Finished {
        took,
        done,
        peak,
        worker,
        rest,
    } = finished?;
    let all_done = done == usize::try_from(tasks)?;
    ensure!(all_done || !publish, "{done} of {tasks} tasks are done");
    let each = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(tasks);
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{tasks} tasks of 10 steps, {slots} slots: {:.1} s, {:.0} a minute, {done} of them done; goal: 300 a minute",
        took.as_secs_f64(),
        f64::from(tasks) * 60.0 / took.as_secs_f64()
    )?;
    writeln!(
        out,
        "CPU a task: consumer and its processes {:.0} ms; forge, git server and model {:.0} ms; peak memory of the \
         consumer {:.1} MiB\n",
        each(worker),
        each(rest),
        peak as f64 / 1024.0
    )?;
    Ok(())
}

/// Ten steps, and what follows.
fn cycle(publish: bool) -> Vec<Answer> {
    let step = |n| match Act::at(n) {
        Act::Command(command) => shell(&command),
        Act::Create { file, text } => edit_create(&file, &text),
        Act::Edit { file, old, new } => edit_replace(&file, &old, &new),
        Act::View { file } => edit_view(&file),
    };
    let mut answers: Vec<Answer> = (0..10).map(step).collect();
    if publish {
        answers.push(commit_and_push("Add files"));
    }
    answers.push(say("Done."));
    answers
}

struct Finished {
    took: Duration,
    /// Tasks with a result; the others ended without one.
    done: usize,
    /// Resident memory of the consumer, in KiB.
    peak: u64,
    worker: Duration,
    rest: Duration,
}

async fn finish(fleet: &Fleet, pid: u32, tasks: u32) -> anyhow::Result<Finished> {
    let begun = Instant::now();
    let before = cpu(pid);
    let mut peak = 0;
    loop {
        peak = peak.max(memory_of(pid)?.rss);
        let (queued, leased) = fleet.store.queued_and_leased().await?;
        if queued + leased == 0 {
            break;
        }
        ensure!(
            begun.elapsed() < PATIENCE,
            "{queued} tasks are queued, and {leased} leased"
        );
        tokio::time::sleep(LOOK).await;
    }
    let took = begun.elapsed();
    let after = cpu(pid);
    let filter = TaskFilter {
        limit: tasks,
        ..TaskFilter::default()
    };
    let all = fleet.store.tasks(&filter).await?;
    let is_done = |state| matches!(state, TaskState::Ended(agentmine_domain::EndState::Done));
    Ok(Finished {
        took,
        done: all.iter().filter(|task| is_done(task.state)).count(),
        peak,
        worker: after.0.saturating_sub(before.0),
        rest: after.1.saturating_sub(before.1),
    })
}

/// CPU time of the consumer with all processes that it has waited for, and of this process with those of its own.
fn cpu(consumer: u32) -> (Duration, Duration) {
    let consumer = consumer.cast_signed();
    let below: Duration = descendants(consumer)
        .into_iter()
        .map(|process| time_of(process.pid(), true))
        .sum();
    let own = std::process::id().cast_signed();
    (time_of(consumer, true) + below, time_of(own, true))
}
