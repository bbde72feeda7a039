//! Programs of two versions share one schema during a deploy (migrations/README.md).
//!
//! `testdata/statements/NNNN-DATABASE.jsonl` holds the statements of the programs whose newest migration was
//! NNNN, in the order in which they executed them in [`life`], with their arguments and the number of rows that
//! each returned or changed. They are executed again on the schema as it is now, and this version then works
//! with the rows that they leave.

use std::path::PathBuf;

use agentmine_runtime::config::Migrations;
use serde_json::Value;
use sqlx::migrate::Migrator;

use super::*;
use crate::migrations::{self, Embedded, migrator};
use crate::sql::Dialect;

/// Levels at which no deployed version ever stood: several migrations came with one version.
const NEVER_DEPLOYED: [i64; 18] = [
    1, 2, 3, 5, 7, 10, 11, 13, 15, 16, 18, 19, 20, 21, 23, 24, 25, 26,
];

/// A scan of the future, since the statement of a recorded one is executed again long after it.
const LATER: ScanTime = ScanTime {
    millis: 4_102_444_800_000,
};

/// The nonce of the claim that [`life`] leaves open.
const OPEN: Uuid = Uuid::from_u128(5);

fn file(level: i64, database: &str) -> PathBuf {
    let name = format!("testdata/statements/{level:04}-{database}.jsonl");
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Every operation of the store, as a fleet uses them. Leaves item 2 queued, 3 paused and 5 leased.
async fn life(world: &World) {
    let store = &world.store;
    let worker = WorkerId("host/1/0".into());
    let claim = async |task: &Task, nonce: u128, lease| {
        let nonce = Uuid::from_u128(nonce);
        let claim = store.claim(task.id, &worker, nonce, lease, 3).await;
        claim.unwrap().unwrap().lease
    };
    store.healthy().await.unwrap();
    let mut tasks = Vec::new();
    for number in 1..=6 {
        tasks.push(world.new_task(number).await);
    }
    store.enqueue(&issue(1, "e1")).await.unwrap();
    assert_eq!(world.relay().await.len(), 6);

    // One that ends.
    let lease = claim(&tasks[0], 1, MINUTE).await;
    let id = lease.task;
    store.heartbeat(&lease, MINUTE).await.unwrap();
    store.check(&lease).await.unwrap();
    store.set_phase(&lease, Phase::Running).await.unwrap();
    let step = note("one");
    store.append_step(&lease, &step).await.unwrap();
    store.append_step(&lease, &step).await.unwrap();
    let two = store.append_step(&lease, &note("two")).await.unwrap();
    let session = store.session(lease.session).await.unwrap().unwrap();
    store.follow_reply(&session).await.unwrap();
    assert!(store.show_reply(&lease, two, "three").await.unwrap());
    let usage = Usage::default();
    store.record_usage(&lease, "m", &usage).await.unwrap();
    let checkpoint = Checkpoint {
        seq: Seq(2),
        commit: "abc".into(),
        bundle: vec![1, 2, 3],
    };
    store.save_checkpoint(&lease, &checkpoint).await.unwrap();
    assert_eq!(store.checkpoints(id).await.unwrap().len(), 1);
    let key = EffectKey::pull_request("branch");
    store.effect_begin(id, Some(&lease), &key).await.unwrap();
    store.effect_begin(id, Some(&lease), &key).await.unwrap();
    let result = json!({"number": 1, "url": "u", "commit": "c"});
    store.effect_done(id, &key, &result).await.unwrap();
    store.end_lease(&lease, &done()).await.unwrap();
    assert_eq!(world.unreported().await, [id]);
    let key = EffectKey::label(TaskLabel::Done, lease.epoch);
    store.effect_done(id, &key, &Value::Null).await.unwrap();
    assert_eq!(store.steps(id).await.unwrap().len(), 2);

    // One whose worker dies, and which is given back twice.
    let id = tasks[1].id;
    claim(&tasks[1], 2, NONE).await;
    assert_eq!(world.sweep(MINUTE).await.requeued, [id]);
    assert_eq!(world.claimable(NONE, 1).await, [id]);
    let lease = claim(&tasks[1], 3, MINUTE).await;
    let later = release(Attempt::Refunded, MINUTE);
    store.end_lease(&lease, &later).await.unwrap();
    assert!(store.skip_delay(id).await.unwrap());
    let lease = claim(&tasks[1], 4, MINUTE).await;
    let now = release(Attempt::Refunded, NONE);
    store.end_lease(&lease, &now).await.unwrap();

    // What people ask of waiting tasks.
    let id = tasks[2].id;
    store.request_pause(id, "lunch").await.unwrap();
    assert!(store.resume(id).await.unwrap());
    store.request_pause(id, "more lunch").await.unwrap();
    store.scan_time().await.unwrap();
    assert!(store.answer_request(id, "e2", LATER).await.unwrap());
    store.request_pause(id, "still lunch").await.unwrap();
    store.request_stop(tasks[3].id, "no").await.unwrap();
    assert!(
        store
            .fail_queued(tasks[5].id, "dead letters")
            .await
            .unwrap()
    );

    // And of one at work.
    let lease = claim(&tasks[4], OPEN.as_u128(), MINUTE).await;
    store.append_step(&lease, &note("one")).await.unwrap();
    store.request_pause(lease.task, "lunch").await.unwrap();
    store.heartbeat(&lease, MINUTE).await.unwrap();

    // One that waits for its turn.
    let waiting = store.enqueue_waiting(&issue(7, "e1")).await.unwrap();
    let Enqueued::Created(waiting) = waiting else {
        panic!("known: {waiting:?}");
    };
    let place = waiting.item.repository();
    store.loads().await.unwrap();
    store.waiting_requests().await.unwrap();
    store.next_waiting(&place, 4).await.unwrap();
    store.pull_requests_of(&place).await.unwrap();
    store.opened_within(&place, MINUTE).await.unwrap();
    store.hold_repository(&place, "full").await.unwrap();
    store.hold_task(waiting.id, "odd", NONE).await.unwrap();
    store.turn(&waiting).await.unwrap();
    let high = Priority::High;
    store.prioritize(waiting.id, high).await.unwrap();
    let room = Room {
        tasks: None,
        on_issues: None,
        since: LATER,
    };
    store.admit(&waiting, &room).await.unwrap();
    store.request_stop(waiting.id, "no").await.unwrap();
    let key = EffectKey::label(TaskLabel::Stopped, waiting.epoch);
    let stopped = store.effect_done(waiting.id, &key, &Value::Null).await;
    stopped.unwrap();

    store.sandbox_fate(lease.task, lease.epoch).await.unwrap();
    let filter = TaskFilter {
        status: Some(PublicStatus::Open),
        limit: 9,
        ..TaskFilter::default()
    };
    store.tasks(&filter).await.unwrap();
    store.task_by_number(TaskNumber(1)).await.unwrap();
    store.sessions(Some(lease.task), 9).await.unwrap();
    store.session(lease.session).await.unwrap();
    store.figures().await.unwrap();
    memory_life(world).await;
    assert!(world.relay().await.contains(&tasks[1].id));
}

/// A record that is proposed and activated.
async fn memory_life(world: &World) {
    let (store, project) = (
        &world.store,
        ProjectName::of_forge("github.com", "acme/shop"),
    );
    let entry = MemoryEntry {
        id: "linter".parse().unwrap(),
        category: "tooling".into(),
        title: "Clippy".into(),
        summary: String::new(),
        content: String::new(),
        status: MemoryStatus::Draft,
        tags: vec!["rust".into()],
        source: MemorySource::Session,
        confidence: Confidence::Medium,
        expires_at: None,
    };
    let nonces = [Uuid::from_u128(6), Uuid::from_u128(7)];
    let added = store.add_memory(&project, &entry, nonces[0]).await;
    assert!(matches!(added.unwrap(), MemoryAdded::Added(_)));
    let updated = store.update_memory(&project, &entry, 1, nonces[1]).await;
    assert!(matches!(updated.unwrap(), MemoryUpdated::Updated(_)));
    let stale = store.update_memory(&project, &entry, 1, nonces[0]).await;
    assert!(matches!(stale.unwrap(), MemoryUpdated::Conflict(_)));
    let all = MemoryFilter::default();
    assert_eq!(store.memory(&project, &all).await.unwrap().len(), 1);
    let found = store.memory_record(&project, &entry.id).await;
    assert!(found.unwrap().is_some());
}

/// This version continues with what [`life`] left.
async fn continues(world: &World) {
    let store = &world.store;
    let tasks = store.tasks(&TaskFilter::default()).await.unwrap();
    let of = |number| {
        tasks
            .iter()
            .find(|task| task.item.number == number)
            .unwrap()
    };
    let states = [1, 2, 3, 4, 5, 6].map(|number| of(number).state.as_str());
    let expected = ["done", "queued", "paused", "stopped", "leased", "failed"];
    assert_eq!(states, expected);

    // The same worker, in a program of this version.
    let held = of(5);
    let lease = Lease {
        task: held.id,
        session: store.sessions(Some(held.id), 1).await.unwrap()[0].id,
        epoch: held.epoch,
        nonce: OPEN,
        worker: WorkerId("host/1/0".into()),
    };
    let request = store.heartbeat(&lease, MINUTE).await.unwrap();
    assert_eq!(request, LeaseRequest::Pause);
    assert_eq!(
        store.append_step(&lease, &note("two")).await.unwrap(),
        Seq(2)
    );
    store.end_lease(&lease, &done()).await.unwrap();

    assert_eq!(world.claimable(NONE, 9).await, [of(2).id]);
    let lease = world.claim(of(2).id, NONE).await.unwrap().lease;
    assert_eq!(lease.epoch, Epoch(4));
    assert_eq!(world.sweep(MINUTE).await.requeued, [lease.task]);
    assert!(world.answer(of(3).id, "e3").await);
    let stale = store.enqueue(&issue(1, "e1")).await.unwrap();
    assert!(matches!(stale, Enqueued::Known(task) if task.id == of(1).id));
    let again = store.enqueue(&issue(1, "e2")).await.unwrap();
    assert!(matches!(again, Enqueued::Created(_)));
    let mut unreported = world.unreported().await;
    unreported.sort();
    let mut expected = [of(4).id, of(5).id, of(6).id];
    expected.sort();
    assert_eq!(unreported, expected);
    world.assert_totals().await;
}

fn recorded(level: i64, database: &str) -> Vec<Value> {
    let file = file(level, database);
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| {
        panic!(
            "{}: {error}. hint: see \"Statements of the previous version\" in migrations/README.md",
            file.display()
        )
    });
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The levels before the newest whose programs were deployed.
fn earlier(files: &[Embedded]) -> Vec<i64> {
    let newest = migrations::newest(files).unwrap_or(0);
    let versions = files.iter().map(|file| file.version);
    versions
        .filter(|version| *version < newest && !NEVER_DEPLOYED.contains(version))
        .collect()
}

async fn replay<D: Dialect>(pool: &Pool<D>, level: i64, database: &str) {
    for (n, statement) in recorded(level, database).iter().enumerate() {
        let rows = trace::replay(pool, statement).await;
        let rows = rows.unwrap_or_else(|error| panic!("{level}, {n}: {error:?}\n{statement}"));
        assert_eq!(
            Some(rows),
            statement["rows"].as_u64(),
            "{level}, {n}: {statement}"
        );
    }
}

/// A schema of an earlier version.
fn until(files: &'static [Embedded], level: i64) -> Migrator {
    let end = files.iter().position(|file| file.version > level);
    migrator(&files[..end.unwrap_or(files.len())])
}

/// Programs of the previous version continue on this schema.
#[tokio::test]
async fn statements_of_earlier_versions_work_on_this_schema() {
    for level in earlier(migrations::POSTGRES) {
        on(Database::postgres(), async |world: World| {
            let pool = Pool::<Postgres>::connect(&world.database.url())
                .await
                .unwrap();
            replay(&pool, level, "postgres").await;
            pool.close().await;
            continues(&world).await;
        })
        .await;
        on(Database::sqlite(), async |world: World| {
            let pool = Pool::<Sqlite>::connect(&world.database.url())
                .await
                .unwrap();
            replay(&pool, level, "sqlite").await;
            pool.close().await;
            continues(&world).await;
        })
        .await;
    }
}

/// This version starts on the schema of an earlier one, with the rows of its programs.
#[tokio::test]
async fn this_version_migrates_the_schema_and_rows_of_earlier_ones() {
    for level in earlier(migrations::POSTGRES) {
        let database = Database::postgres();
        database.on_server(r#"CREATE DATABASE "NAME""#).await;
        let pool = Pool::<Postgres>::connect(&database.url()).await.unwrap();
        until(migrations::POSTGRES, level).run(&pool).await.unwrap();
        replay(&pool, level, "postgres").await;
        pool.close().await;
        on(database, async |world: World| continues(&world).await).await;

        let database = Database::sqlite();
        let folder = PathBuf::from(database.address());
        std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
        let url = format!("{}?mode=rwc", database.url());
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        let migrator = until(migrations::SQLITE, level);
        migrator.run(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        let pool = Pool::<Sqlite>::connect(&database.url()).await.unwrap();
        replay(&pool, level, "sqlite").await;
        pool.close().await;
        on(database, async |world: World| continues(&world).await).await;
    }
}

/// A database that was restored to an earlier schema under a running program.
#[tokio::test]
async fn an_older_schema_is_one_clear_error() {
    on(Database::postgres(), async |world: World| {
        let pool = Pool::<Postgres>::connect(&world.database.url())
            .await
            .unwrap();
        let newest = migrations::newest(migrations::POSTGRES).unwrap();
        sqlx::query("DELETE FROM _sqlx_migrations WHERE version = $1")
            .bind(newest)
            .execute(&pool)
            .await
            .unwrap();
        let Err(StoreError::Fault(error)) = world.store.healthy().await else {
            panic!("it is not noticed");
        };
        let versions = migrations::POSTGRES.iter().map(|file| file.version);
        let before = versions.filter(|version| *version < newest).max().unwrap();
        let versions = format!("at version {before}, this program needs {newest}");
        assert!(error.contains(&versions), "{error}");
        pool.close().await;
    })
    .await;
}

/// A program whose user may not change the schema refuses to start on an older one.
#[tokio::test]
async fn a_user_who_may_not_migrate_gets_one_error() {
    let database = Database::postgres();
    database.on_server(r#"CREATE DATABASE "NAME""#).await;
    let pool = Pool::<Postgres>::connect(&database.url()).await.unwrap();
    // It changes a table. One that only adds a table is allowed to a user who may create one.
    let altering = 9;
    until(migrations::POSTGRES, altering - 1)
        .run(&pool)
        .await
        .unwrap();
    pool.close().await;
    let role = r#"CREATE ROLE "NAME" LOGIN"#;
    database.on_server(role).await;
    let Database::Postgres { name, .. } = &database else {
        panic!("not on Postgres");
    };
    let grant = format!(
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO \"{name}\"; GRANT CREATE ON SCHEMA public TO \"{name}\""
    );
    let mut owner = PgConnection::connect(&database.url()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(grant))
        .execute(&mut owner)
        .await
        .unwrap();
    let url = database.url();
    let (_, host) = url.split_once('@').unwrap();
    let config = StoreConfig {
        url: Secret::new(format!("postgres://{name}@{host}")),
        max_connections: 1,
        ..StoreConfig::default()
    };
    let Err(StoreError::Fault(error)) = connect(&config).await.map(|_| ()) else {
        panic!("it started");
    };
    assert!(error.contains(&format!("migration {altering}")), "{error}");
    assert!(error.contains("hint: "), "{error}");
    let clean = format!("DROP OWNED BY \"{name}\"");
    sqlx::raw_sql(AssertSqlSafe(clean))
        .execute(&mut owner)
        .await
        .unwrap();
    owner.close().await.unwrap();
    database.on_server(r#"DROP ROLE "NAME""#).await;
    database.remove().await;
}

/// With `store.migrations: wait`, a process needs no right to change the schema.
#[tokio::test]
async fn a_process_that_waits_for_the_migration_starts_without_the_right_to_change_the_schema() {
    let database = Database::postgres();
    database.on_server(r#"CREATE DATABASE "NAME""#).await;
    database.on_server(r#"CREATE ROLE "NAME" LOGIN"#).await;
    let Database::Postgres { name, .. } = &database else {
        panic!("not on Postgres");
    };
    let as_owner = async |sql: String| {
        let mut owner = PgConnection::connect(&database.url()).await.unwrap();
        let sql = AssertSqlSafe(sql);
        sqlx::raw_sql(sql).execute(&mut owner).await.unwrap();
        owner.close().await.unwrap();
    };
    as_owner(format!(
        r#"ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO "{name}";
           ALTER DEFAULT PRIVILEGES GRANT USAGE ON SEQUENCES TO "{name}""#
    ))
    .await;
    let url = database.url();
    let (_, host) = url.split_once('@').unwrap();
    let config = StoreConfig {
        url: Secret::new(format!("postgres://{name}@{host}")),
        migrations: Migrations::Wait,
        ..StoreConfig::default()
    };
    let mut waiting = Box::pin(connect(&config));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut waiting);
    assert!(early.await.is_err(), "it did not wait");
    crate::migrate(&database.config()).await.unwrap();
    let store = waiting.await.unwrap();
    store.healthy().await.unwrap();
    let Enqueued::Created(task) = store.enqueue(&issue(1, "e1")).await.unwrap() else {
        panic!("not recorded");
    };
    assert_eq!(task.number, TaskNumber(1));
    let figures = store.figures().await.unwrap();
    assert_eq!(figures.slots, 2, "one task, and its wake-up is owed");
    store.close().await;
    as_owner(format!("DROP OWNED BY \"{name}\"")).await;
    database.on_server(r#"DROP ROLE "NAME""#).await;
    database.remove().await;
}

/// With `store.migrations: run`, which is the default.
#[tokio::test]
async fn a_user_who_may_create_no_table_starts_once_the_schema_is_complete() {
    let database = Database::postgres();
    database.on_server(r#"CREATE DATABASE "NAME""#).await;
    database.on_server(r#"CREATE ROLE "NAME" LOGIN"#).await;
    let Database::Postgres { name, .. } = &database else {
        panic!("not on Postgres");
    };
    let as_owner = async |sql: String| {
        let mut owner = PgConnection::connect(&database.url()).await.unwrap();
        let sql = AssertSqlSafe(sql);
        sqlx::raw_sql(sql).execute(&mut owner).await.unwrap();
        owner.close().await.unwrap();
    };
    as_owner(format!(
        r#"REVOKE CREATE ON SCHEMA public FROM PUBLIC;
           ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO "{name}";
           ALTER DEFAULT PRIVILEGES GRANT USAGE ON SEQUENCES TO "{name}""#
    ))
    .await;
    let url = database.url();
    let (_, host) = url.split_once('@').unwrap();
    let config = StoreConfig {
        url: Secret::new(format!("postgres://{name}@{host}")),
        ..StoreConfig::default()
    };
    let Err(StoreError::Fault(error)) = connect(&config).await.map(|_| ()) else {
        panic!("it started");
    };
    assert!(error.contains("hint: run `producer migrate`"), "{error}");
    crate::migrate(&database.config()).await.unwrap();
    let store = connect(&config).await.unwrap();
    store.healthy().await.unwrap();
    store.close().await;
    as_owner(format!("DROP OWNED BY \"{name}\"")).await;
    database.on_server(r#"DROP ROLE "NAME""#).await;
    database.remove().await;
}

#[tokio::test]
#[ignore = "records the statements of this version: see migrations/README.md"]
async fn record_statements() {
    for (database, name) in [
        (Database::postgres(), "postgres"),
        (Database::sqlite(), "sqlite"),
    ] {
        on(database, async |world: World| {
            trace::start();
            life(&world).await;
            let statements = trace::take();
            let level = migrations::newest(migrations::POSTGRES).unwrap();
            let file = file(level, name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            let lines: Vec<String> = statements.iter().map(Value::to_string).collect();
            std::fs::write(file, lines.join("\n") + "\n").unwrap();
        })
        .await;
    }
}
