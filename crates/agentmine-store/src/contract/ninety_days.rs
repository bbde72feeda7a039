//! Ninety days of a fleet in fast motion: what a task costs on the disk, that the size becomes flat, and that claims stay fast.
//!
//! Days pass by the age of rows: those of day `d` are written as if that day were so long ago, and the policy of that day
//! counts from it. Each day ends with a vacuum, as autovacuum runs many times in a real one.
//!
//! `cargo nextest run -p agentmine-store --run-ignored all --no-capture ninety_days_at_a_thousand_tasks`

use std::time::Instant;

use super::*;
use agentmine_runtime::config::{KeepDays, RetentionConfig};

/// What is kept, in days.
const KEPT: u64 = 14;
const EFFECTS: u32 = 6;

#[derive(Clone, Copy)]
struct Fleet {
    days: u32,
    tasks: u32,
    steps: u32,
    step_bytes: u32,
    claims: u64,
}

const SHORT: Fleet = Fleet {
    days: 40,
    tasks: 10,
    steps: 5,
    step_bytes: 2_000,
    claims: 5,
};
const LONG: Fleet = Fleet {
    days: 90,
    tasks: 1_000,
    steps: 40,
    step_bytes: 1_000,
    claims: 400,
};

#[tokio::test]
async fn the_size_becomes_flat_on_sqlite() {
    on(Database::sqlite(), |world| pass(world, SHORT)).await;
}

#[tokio::test]
async fn the_size_becomes_flat_on_postgres() {
    on(Database::postgres(), |world| pass(world, SHORT)).await;
}

#[tokio::test]
#[ignore = "a measurement of some minutes and 3 GB"]
async fn ninety_days_at_a_thousand_tasks_on_sqlite() {
    on(Database::sqlite(), |world| pass(world, LONG)).await;
}

#[tokio::test]
#[ignore = "a measurement of some minutes and 3 GB"]
async fn ninety_days_at_a_thousand_tasks_on_postgres() {
    on(Database::postgres(), |world| pass(world, LONG)).await;
}

async fn pass(world: World, fleet: Fleet) {
    let empty = size(&world, "").await;
    let mut sizes = Vec::new();
    let (mut removed, mut removing) = (0, Duration::ZERO);
    for day in 0..fleet.days {
        world.database.execute(&a_day(&world, fleet, day)).await;
        let policy = policy(fleet.days - day);
        let begun = Instant::now();
        loop {
            let batch = world.store.prune(&policy).await.unwrap();
            removed += batch.steps;
            if !batch.found_any() {
                break;
            }
        }
        removing += begun.elapsed();
        if let Database::Postgres { .. } = *world.database {
            world.database.execute("VACUUM").await;
        }
        sizes.push(size(&world, "").await);
        if fleet.days > 50 && day % 10 == 9 {
            let steps = size(&world, "steps").await;
            eprintln!(
                "day {}: {} MB, of it steps {} MB",
                day + 1,
                sizes[day as usize] >> 20,
                steps >> 20
            );
        }
    }
    let gone = u64::from(fleet.days) - KEPT;
    let steps = u64::from(fleet.tasks * fleet.steps);
    assert_eq!(removed, gone * steps, "of all but the last days");
    let tasks = u64::from(fleet.tasks);
    let journals = size(&world, "steps").await / (KEPT * tasks);
    let rows = ["tasks", "sessions", "outbox"];
    let mut for_good = 0;
    for table in rows {
        for_good += size(&world, table).await;
    }
    eprintln!(
        "{} tasks: {} bytes for good and {journals} bytes of journal each; {removed} steps removed in {removing:?}; {} MB at first {} MB",
        fleet.days * fleet.tasks,
        for_good / (u64::from(fleet.days) * tasks),
        sizes[sizes.len() - 1] >> 20,
        empty >> 20,
    );
    // From day 20 on, only the rows that stay for good grow.
    let growth = sizes[sizes.len() - 1].saturating_sub(sizes[20]);
    let of_rows = u64::from(fleet.days - 20) * tasks * 3_000 + (1 << 20);
    assert!(growth < of_rows, "it grows by {growth}: {sizes:?}");
    claims(&world, fleet).await;
}

fn policy(ago: u32) -> RetentionConfig {
    let kept = KEPT + u64::from(ago);
    let days = KeepDays {
        done: kept,
        failed: kept,
        stopped: kept,
    };
    RetentionConfig {
        journal_days: days,
        effect_days: days,
        ..RetentionConfig::default()
    }
}

/// Of one table, or of all with an empty name.
async fn size(world: &World, table: &str) -> u64 {
    let sizes = world.store.sizes().await.unwrap();
    let of_it = sizes
        .iter()
        .filter(|it| table.is_empty() || it.table == table);
    of_it.map(|it| it.bytes).sum()
}

/// The rows of tasks that ended on that day.
fn a_day(world: &World, fleet: Fleet, day: u32) -> String {
    let Fleet {
        days,
        tasks,
        steps,
        step_bytes,
        claims: _,
    } = fleet;
    let ago = days - day;
    let first = day * tasks;
    let (id, token, text, then) = match *world.database {
        Database::Sqlite(_) => (
            "printf('%08x-0000-7000-8000-%012x', 7, n)".to_owned(),
            "printf('%08x-0000-7000-8000-%012x', s, n)".to_owned(),
            format!("hex(randomblob({}))", step_bytes / 2),
            format!("CAST(round(unixepoch('subsec') * 1000) AS INTEGER) - {ago} * 86400000"),
        ),
        Database::Postgres { .. } => (
            "('00000007-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid".to_owned(),
            "(lpad(to_hex(s), 8, '0') || '-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid"
                .to_owned(),
            format!("repeat(md5(n || '.' || s), {})", step_bytes / 32),
            format!("now() - interval '{ago} days'"),
        ),
    };
    let numbers = |name: &str, from: u32, count: u32| {
        format!(
            "{name}({name}) AS (SELECT {from} UNION ALL SELECT {name} + 1 FROM {name} WHERE {name} < {})",
            from + count - 1
        )
    };
    let n = numbers("n", first + 1, tasks);
    let s = numbers("s", 1, steps);
    let e = numbers("e", 1, EFFECTS);
    format!(
        "WITH RECURSIVE {n}
         INSERT INTO tasks (id, number, tracker, host, repo_id, repo_path, item_kind, item_number, item_key, trigger_event,
             dedup_key, title, url, priority, state, epoch, attempt, last_seq, created_at, updated_at, end_reported)
         SELECT {id}, n, 'github', 'github.com', '42', 'acme/shop', 'issue', n, 'github|github.com|42|issue|' || n, 'e' || n,
             'github|github.com|42|issue|' || n || '|e' || n, 'Fix the greeting that is not printed',
             'https://github.com/acme/shop/issues/' || n, 1, 'done', 1, 1, {steps}, {then}, {then}, true FROM n;
         WITH RECURSIVE {n}
         INSERT INTO sessions (task, epoch, worker, model, started_at, ended_at, ending, cost_micros)
         SELECT {id}, 1, 'host/1/0', 'model', {then}, {then}, 'done', 5 FROM n;
         WITH RECURSIVE {n}, {s}
         INSERT INTO steps (task, seq, epoch, kind, payload, duration_ms, recorded_at, token)
         SELECT {id}, s, 1, 'tool_result', '{{\"text\":\"' || {text} || '\"}}', 5, {then}, {token} FROM n, s;
         WITH RECURSIVE {n}, {e}
         INSERT INTO effects (task, kind, key, epoch, result, begun_at, done_at)
         SELECT {id}, 'comment', 'c' || e, 0, '{{\"comment\":7}}', {then}, {then} FROM n, e;"
    )
}

/// Claims in turns in this database, while retention removes more, and in an empty one.
async fn claims(world: &World, fleet: Fleet) {
    let other = Arc::new(match *world.database {
        Database::Sqlite(_) => Database::sqlite(),
        Database::Postgres { .. } => Database::postgres(),
    });
    let empty = World {
        store: connect(&other.config()).await.unwrap(),
        database: Arc::clone(&other),
    };
    let first = u64::from(fleet.days * fleet.tasks) + 1;
    for number in first..first + fleet.claims {
        world.new_task(number).await;
        empty.new_task(number).await;
    }
    let waiting = |world: &World| {
        let filter = TaskFilter {
            status: Some(PublicStatus::Open),
            ..TaskFilter::default()
        };
        let store = Arc::clone(&world.store);
        async move { store.tasks(&filter).await.unwrap() }
    };
    let (here, there) = (waiting(world).await, waiting(&empty).await);
    // Another four days fall due, and are removed as the producer does it.
    let store = Arc::clone(&world.store);
    let pruning = tokio::spawn(async move {
        let mut policy = policy(0);
        policy.journal_days.done -= 3;
        policy.effect_days.done -= 3;
        loop {
            let begun = Instant::now();
            if !store.prune(&policy).await.unwrap().found_any() {
                return;
            }
            tokio::time::sleep(begun.elapsed() * 4).await;
        }
    });
    let (mut aged, mut fresh, mut while_pruning) = (Vec::new(), Vec::new(), 0);
    for (here, there) in here.iter().zip(&there) {
        while_pruning += u32::from(!pruning.is_finished());
        for (world, task, times) in [(world, here, &mut aged), (&empty, there, &mut fresh)] {
            let begun = Instant::now();
            world.claim(task.id, MINUTE).await.unwrap();
            times.push(begun.elapsed());
        }
    }
    pruning.await.unwrap();
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let (aged, fresh) = (median(&mut aged), median(&mut fresh));
    eprintln!(
        "a claim takes {aged:?}, {while_pruning} of {} while journals are removed, and {fresh:?} in an empty database: {:.3}x",
        fleet.claims,
        aged.as_secs_f64() / fresh.as_secs_f64()
    );
    empty.store.close().await;
    if let Ok(other) = Arc::try_unwrap(other) {
        other.remove().await;
    }
}
