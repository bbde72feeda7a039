//! What the figures of the fleet cost among a million tasks that are over.
//!
//! `cargo nextest run --release -p agentmine-store --run-ignored all --no-capture figures_among_a_million_tasks`

use std::time::Instant;

use super::*;

/// 1,000,000 tasks that are over and as many sessions, labels and wake-ups; with them 900 that wait, 50 that run, 100 whose end is
/// not reported and 20 that are paused.
const MILLION: &str = "
    INSERT INTO tasks (id, number, tracker, host, repo_id, repo_path, item_kind, item_number, item_key, trigger_event,
        dedup_key, title, url, priority, state, phase, epoch, attempt, owner, nonce, lease_until, lease_since, created_at,
        updated_at, end_reported)
    SELECT ('018f0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, n, 'github', 'github.com', '42', 'acme/shop', 'issue',
        n, 'item|' || n, 'event', 'item|' || n || '|event', 'Task ' || n, 'https://github.com/acme/shop/issues/' || n, n % 4,
        state, CASE state WHEN 'leased' THEN 'running' END, 1, 1, CASE state WHEN 'leased' THEN 'host/1/0' END,
        CASE state WHEN 'leased' THEN ('018f0000-0000-7000-8001-' || lpad(to_hex(n), 12, '0'))::uuid END,
        CASE state WHEN 'leased' THEN now() + interval '1 hour' END, CASE state WHEN 'leased' THEN now() END, now(), now(),
        n <= 1000000
    FROM (SELECT n, CASE WHEN n > 1001050 THEN 'paused' WHEN n > 1000950 THEN 'done' WHEN n > 1000900 THEN 'leased'
                         WHEN n > 1000000 THEN 'queued' WHEN n % 50 = 0 THEN 'failed' ELSE 'done' END AS state
          FROM generate_series(1, 1001070) AS n) AS numbers;
    INSERT INTO sessions (task, epoch, worker, model, started_at, ended_at, ending, input_tokens, output_tokens, cost_micros)
    SELECT id, 1, 'host/1/0', 'm', now(), CASE WHEN state = 'leased' THEN NULL ELSE now() END,
        CASE WHEN state = 'leased' THEN NULL ELSE 'done' END, 1000, 100, 7
    FROM tasks WHERE state <> 'queued';
    INSERT INTO outbox (task, due_at, sent_at) SELECT id, now(), now() FROM tasks;
    INSERT INTO effects (task, kind, key, epoch, result, begun_at, done_at)
    SELECT id, 'label', state, epoch, '{}', now(), now() FROM tasks WHERE state IN ('done', 'failed') AND end_reported;
    INSERT INTO totals (what, amount) VALUES ('task.done', 980100), ('task.failed', 20000), ('session.done', 1000120),
        ('input_tokens', 1000120000), ('output_tokens', 100012000), ('cost_micros', 7000840);
    INSERT INTO totals (what, amount) SELECT 'session.done', 1 FROM generate_series(1, 500)";

/// The goal for one reading.
const MOST: Duration = Duration::from_millis(5);

/// The median of 51 readings, and the shortest: the one that waited least for others on the machine.
async fn timed<T>(read: impl AsyncFn() -> T) -> (Duration, Duration) {
    let mut times = Vec::new();
    for _ in 0..51 {
        let begun = Instant::now();
        read().await;
        times.push(begun.elapsed());
    }
    times.sort();
    (times[times.len() / 2], times[0])
}

#[tokio::test]
#[ignore = "a measurement of some minutes and 2 GB"]
async fn figures_among_a_million_tasks_on_postgres() {
    on(Database::postgres(), async |world: World| {
        world.database.execute(MILLION).await;
        world.database.execute("VACUUM ANALYZE").await;
        let store = &world.store;
        trace::start();
        let figures = store.figures().await.unwrap();
        let totals = store.totals().await.unwrap();
        for statement in trace::take() {
            eprintln!("{}", statement["sql"]);
            for line in world.database.plan(&statement).await {
                eprintln!("    {line}");
            }
        }
        assert_eq!((figures.slots, figures.unreported.count), (951, 120));
        assert_eq!(totals.tasks[0], (EndState::Done, 980_100));
        let (figures, shortest) = timed(async || store.figures().await.unwrap()).await;
        let (totals, _) = timed(async || store.totals().await.unwrap()).await;
        eprintln!("figures {figures:?}, totals {totals:?}, medians of 51; the shortest of figures {shortest:?}");
        assert!(figures < MOST && totals < MOST, "{figures:?} {totals:?}");
    })
    .await;
}
