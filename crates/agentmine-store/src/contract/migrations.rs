//! Rows that an older schema holds.

use std::path::Path;

use super::*;
use crate::migrations::{self, migrator};

/// Rows of the first schema, as a version wrote them that had no later one.
const FIRST_ROWS: &str = "
    INSERT INTO tasks (id, number, tracker, host, repo_id, repo_path, item_kind, item_number, item_key,
        trigger_event, dedup_key, title, url, priority, state, phase, epoch, attempt, owner, nonce,
        lease_until, wish, wish_reason, created_at, updated_at)
    VALUES ('018f0000-0000-7000-8000-000000000001', 1, 'github', 'github.com', '42', 'acme/shop', 'issue',
        1, 'i1', 'e1', 'd1', 'Issue 1', 'https://x', 1, 'leased', 'running', 2, 1, 'w',
        '018f0000-0000-7000-8000-00000000000a', NOW, 'cancel', 'enough', NOW, NOW),
        ('018f0000-0000-7000-8000-000000000002', 2, 'github', 'github.com', '42', 'acme/shop', 'issue',
        2, 'i2', 'e1', 'd2', 'Issue 2', 'https://x', 1, 'done', NULL, 3, 1, 'w', NULL, NULL, NULL, NULL,
        NOW, NOW);
    INSERT INTO sessions (task, epoch, worker, started_at)
    VALUES ('018f0000-0000-7000-8000-000000000001', 2, 'w', NOW);
    INSERT INTO effects (task, kind, key, epoch, intent, result, begun_at, done_at)
    VALUES ('018f0000-0000-7000-8000-000000000002', 'label', 'done:3', 3, '{}', '{}', NOW, NOW),
        ('018f0000-0000-7000-8000-000000000002', 'label', 'processing:0', NULL, '{}', '{}', NOW, NOW),
        ('018f0000-0000-7000-8000-000000000002', 'comment', 'progress', 3, '{}', '{\"comment\":7}', NOW,
        NOW);";

async fn carried_over(world: &World) {
    let store = &world.store;
    let id = |n: u8| -> TaskId {
        format!("018f0000-0000-7000-8000-00000000000{n}")
            .parse()
            .unwrap()
    };
    let leased = store.task(id(1)).await.unwrap().unwrap();
    assert_eq!(leased.state, TaskState::Leased(Phase::Running));
    let lease = Lease {
        task: id(1),
        session: store.sessions(Some(id(1)), 0).await.unwrap()[0].id,
        epoch: Epoch(2),
        nonce: "018f0000-0000-7000-8000-00000000000a".parse().unwrap(),
        worker: WorkerId("w".into()),
    };
    let request = store.heartbeat(&lease, MINUTE).await.unwrap();
    assert_eq!(request, LeaseRequest::Stop);
    let close = release(Attempt::Charged, NONE);
    store.end_lease(&lease, &close).await.unwrap();
    let stopped = store.task(id(1)).await.unwrap().unwrap();
    assert_eq!(stopped.reason.as_deref(), Some("enough"));

    let unreported = store.unreported(NONE, TaskNumber(0), 9).await.unwrap();
    assert_eq!(unreported.iter().map(|t| t.id).collect::<Vec<_>>(), [id(1)]);
    let state = async |key| store.effect_begin(id(2), None, &key).await.unwrap();
    let comment = EffectState::Done(json!({"comment": 7}));
    assert_eq!(state(EffectKey::progress_comment()).await, comment);
    let processing = EffectKey::label(TaskLabel::Processing, Epoch(0));
    assert_eq!(state(processing).await, EffectState::Done(json!({})));
    world.assert_totals().await;
}

#[tokio::test]
async fn rows_of_the_first_schema_are_carried_over_on_sqlite() {
    let database = Database::sqlite();
    std::fs::create_dir_all(Path::new(&database.address()).parent().unwrap()).unwrap();
    let url = format!("{}?mode=rwc", database.url());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let first = migrator(&migrations::SQLITE[..1]);
    first.run(&mut connection).await.unwrap();
    let rows = AssertSqlSafe(FIRST_ROWS.replace("NOW", "1000"));
    sqlx::raw_sql(rows).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    on(database, async |world: World| {
        carried_over(&world).await;
        // Foreign keys are on again.
        let key = EffectKey::progress_comment();
        let nobody = world
            .store
            .effect_done(TaskId::new(), &key, &json!({}))
            .await;
        assert!(matches!(nobody, Err(StoreError::Fault(_))));
    })
    .await;
}

#[tokio::test]
async fn rows_of_the_first_schema_are_carried_over_on_postgres() {
    let database = Database::postgres();
    database.on_server(r#"CREATE DATABASE "NAME""#).await;
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    let first = migrator(&migrations::POSTGRES[..1]);
    first.run(&mut connection).await.unwrap();
    let rows = AssertSqlSafe(FIRST_ROWS.replace("NOW", "now()"));
    sqlx::raw_sql(rows).execute(&mut connection).await.unwrap();
    on(database, async |world: World| carried_over(&world).await).await;
}

/// A backup reads each table until it has ended, and every session behind a migration that waits for that table waits too.
#[tokio::test]
async fn a_migration_that_waits_for_a_backup_lets_others_write_meanwhile() {
    const PATIENCE: Duration = Duration::from_secs(20);
    let database = Database::postgres();
    database.on_server(r#"CREATE DATABASE "NAME""#).await;
    let mut worker = PgConnection::connect(&database.url()).await.unwrap();
    let first = migrator(&migrations::POSTGRES[..1]);
    first.run(&mut worker).await.unwrap();
    let mut backup = PgConnection::connect(&database.url()).await.unwrap();
    let reads = "BEGIN; SELECT count(*) FROM tasks";
    sqlx::raw_sql(reads).execute(&mut backup).await.unwrap();
    let meanwhile = async {
        let writes = async {
            let waits = "SELECT count(*) > 0 FROM pg_locks WHERE relation = 'tasks'::regclass AND NOT granted";
            let mut is_waiting = false;
            while !is_waiting {
                let seen = sqlx::query_scalar(waits).fetch_one(&mut worker);
                is_waiting = seen.await.unwrap();
            }
            let write = "UPDATE tasks SET title = 'another'";
            sqlx::raw_sql(write).execute(&mut worker).await.unwrap();
        };
        let written = tokio::time::timeout(PATIENCE, writes).await;
        backup.close().await.unwrap();
        written.expect("nobody can write while it waits");
    };
    let config = database.config();
    let (migrated, ()) = tokio::join!(connect(&config), meanwhile);
    let store = migrated.unwrap();
    store.healthy().await.unwrap();
    store.close().await;
    database.remove().await;
}
