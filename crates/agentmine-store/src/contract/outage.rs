//! A database that is away, read-only or busy with other processes.

use super::*;

facts! {
    every_error_names_the_database,
    many_processes_may_start_at_once_and_heartbeats_have_their_own_pool,
}

async fn many_processes_may_start_at_once_and_heartbeats_have_their_own_pool(world: World) {
    let config = world.database.config();
    let again = futures::future::join_all((0..4).map(|_| connect(&config))).await;
    for store in again {
        let store = store.unwrap();
        store.healthy().await.unwrap();
        store.close().await;
    }
    let lease = world.leased(1).await;
    let heart = connect_heartbeat(&config).await.unwrap();
    assert_eq!(
        heart.heartbeat(&lease, MINUTE).await.unwrap(),
        LeaseRequest::Continue
    );
    heart.close().await;
    assert!(matches!(
        heart.healthy().await,
        Err(StoreError::Unavailable(_))
    ));
}

async fn every_error_names_the_database(world: World) {
    let address = world.database.address();
    let key = EffectKey::progress_comment();
    let fault = world
        .store
        .effect_done(TaskId::new(), &key, &json!({}))
        .await;
    let Err(StoreError::Fault(reason)) = fault else {
        panic!("{fault:?}");
    };
    assert!(reason.starts_with(&address), "{reason}");
    world.store.close().await;
    let away = world.store.task(TaskId::new()).await;
    let Err(StoreError::Unavailable(reason)) = away else {
        panic!("{away:?}");
    };
    assert!(reason.starts_with(&address), "{reason}");
}

#[tokio::test]
async fn a_lease_that_ran_out_during_an_outage_is_left_to_its_holder() {
    const CUT: &str =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'NAME'";
    const LEASE: Duration = Duration::from_secs(2);
    on(Database::postgres(), async |world: World| {
        let (store, database) = (&world.store, &world.database);
        let task = world.new_task(1).await.id;
        let lease = world.claim(task, LEASE).await.unwrap().lease;
        let read_only =
            format!("ALTER DATABASE \"NAME\" SET default_transaction_read_only = on; {CUT}");
        database.on_server(&read_only).await;
        let begun = std::time::Instant::now();
        while begun.elapsed() < LEASE {
            let away = store.heartbeat(&lease, LEASE).await;
            assert!(matches!(away, Err(StoreError::Unavailable(_))), "{away:?}");
        }
        let writable = format!("ALTER DATABASE \"NAME\" RESET ALL; {CUT}");
        database.on_server(&writable).await;
        assert_eq!(world.sweep(MINUTE).await.requeued, []);
        assert!(world.claim(task, LEASE).await.is_none());
        let request = store.heartbeat(&lease, LEASE).await.unwrap();
        assert_eq!(request, LeaseRequest::Continue);
        let row = world.task(task).await;
        assert_eq!((row.epoch, row.attempt), (lease.epoch, 1));
        // Its holder is gone too: another worker has it after the length of a lease.
        let begun = std::time::Instant::now();
        let taken = loop {
            if let Some(claim) = world.claim(task, LEASE).await {
                break claim;
            }
            assert!(begun.elapsed() < 4 * LEASE, "nobody can take it");
            tokio::time::sleep(LEASE / 20).await;
        };
        assert_eq!(taken.task.attempt, 2);
    })
    .await;
}

#[tokio::test]
async fn a_read_only_server_after_a_failover_is_unavailable() {
    const CUT: &str =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'NAME'";
    on(Database::postgres(), async |world: World| {
        let (store, database) = (&world.store, &world.database);
        let lease = world.leased(1).await;
        let read_only =
            format!("ALTER DATABASE \"NAME\" SET default_transaction_read_only = on; {CUT}");
        database.on_server(&read_only).await;
        for outcome in [
            store.set_phase(&lease, Phase::Running).await,
            store.append_step(&lease, &note("x")).await.map(|_| ()),
            store.end_lease(&lease, &done()).await,
            store.healthy().await,
            store.figures().await.map(|_| ()),
            connect(&database.config()).await.map(|_| ()),
        ] {
            let Err(StoreError::Unavailable(reason)) = outcome else {
                panic!("{outcome:?}");
            };
            assert!(reason.starts_with(&database.address()), "{reason}");
            assert!(reason.contains("read-only"), "{reason}");
        }
        assert_eq!(
            world.task(lease.task).await.epoch,
            lease.epoch,
            "it can be read"
        );
        let writable = format!("ALTER DATABASE \"NAME\" RESET ALL; {CUT}");
        database.on_server(&writable).await;
        store.set_phase(&lease, Phase::Running).await.unwrap();
        store.healthy().await.unwrap();
    })
    .await;
}

/// A connection that was opened while the server was read-only stays so. Nobody closes it from outside, as
/// nobody does after a failover.
#[tokio::test]
async fn connections_to_a_read_only_server_are_replaced() {
    on(Database::postgres(), async |world: World| {
        let (store, database) = (&world.store, &world.database);
        let lease = world.leased(1).await;
        let heart = connect_heartbeat(&database.config()).await.unwrap();
        let read_only = "ALTER DATABASE \"NAME\" SET default_transaction_read_only = on;
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'NAME'";
        database.on_server(read_only).await;
        for store in [store, &heart] {
            let outcome = store.heartbeat(&lease, MINUTE).await;
            assert!(
                matches!(outcome, Err(StoreError::Unavailable(_))),
                "{outcome:?}"
            );
        }
        database
            .on_server("ALTER DATABASE \"NAME\" RESET ALL")
            .await;
        for store in [store, &heart] {
            store.heartbeat(&lease, MINUTE).await.unwrap();
        }
        store.append_step(&lease, &note("x")).await.unwrap();
        store.end_lease(&lease, &done()).await.unwrap();
        heart.close().await;
    })
    .await;
}

/// Connections that were used a moment ago are not tested before they are used again.
#[tokio::test]
async fn a_restart_of_the_server_between_two_operations_is_not_noticed() {
    on(Database::postgres(), async |world: World| {
        let (store, database) = (&world.store, &world.database);
        let lease = world.leased(1).await;
        let steps: Vec<NewStep> = (0..8).map(|_| note("x")).collect();
        for cut in [true, false, true, true] {
            let appends = steps.iter().map(|step| store.append_step(&lease, step));
            for appended in futures::future::join_all(appends).await {
                appended.unwrap();
            }
            if cut {
                database
                    .on_server("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'NAME'")
                    .await;
            }
            store.append_step(&lease, &note("y")).await.unwrap();
        }
        assert_eq!(store.steps(lease.task).await.unwrap().len(), 8 + 4);
    })
    .await;
}

/// An administrator may limit how long a session is idle.
#[tokio::test]
async fn the_end_of_an_idle_session_is_not_noticed() {
    on(Database::postgres(), async |world: World| {
        let database = &world.database;
        let limit = r#"ALTER DATABASE "NAME" SET idle_session_timeout = '500ms'"#;
        database.on_server(limit).await;
        let store = connect(&database.config()).await.unwrap();
        let lease = world.leased(1).await;
        store.append_step(&lease, &note("x")).await.unwrap();
        // Too short a time for a test of the connection before its next use.
        tokio::time::sleep(Duration::from_millis(850)).await;
        store.append_step(&lease, &note("y")).await.unwrap();
        store.close().await;
        database
            .on_server("ALTER DATABASE \"NAME\" RESET ALL")
            .await;
    })
    .await;
}

/// An administrator may set another isolation level, at which a transaction that waited for a lock does not see what its
/// holder wrote.
#[tokio::test]
async fn the_isolation_that_the_server_prefers_changes_nothing() {
    on(Database::postgres(), async |world: World| {
        let database = &world.database;
        let isolation =
            r#"ALTER DATABASE "NAME" SET default_transaction_isolation = 'serializable'"#;
        database.on_server(isolation).await;
        let store = connect(&database.config()).await.unwrap();
        let new: Vec<NewTask> = (1..=32).map(|number| issue(number, "e1")).collect();
        let enqueued = new.iter().map(|new| store.enqueue(new));
        for enqueued in futures::future::join_all(enqueued).await {
            assert!(matches!(enqueued, Ok(Enqueued::Created(_))), "{enqueued:?}");
        }
        store.close().await;
        database
            .on_server("ALTER DATABASE \"NAME\" RESET ALL")
            .await;
    })
    .await;
}

#[tokio::test]
async fn a_new_database_that_lacks_characters_is_refused() {
    let database = Database::postgres();
    let create = r#"CREATE DATABASE "NAME" ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"#;
    database.on_server(create).await;
    let Err(StoreError::Fault(reason)) = connect(&database.config()).await.map(|_| ()) else {
        panic!("it is used");
    };
    for part in ["LATIN1", "hint: ", "UTF8"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    database.remove().await;
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_unavailable() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        url: Secret::new(format!("sqlite:{}", folder.path().display())),
        max_connections: 1,
        ..StoreConfig::default()
    };
    let Err(StoreError::Unavailable(reason)) = connect(&config).await.map(|_| ()) else {
        panic!("a folder was opened");
    };
    let address = folder.path().display().to_string();
    assert!(reason.starts_with(&address), "{reason}");
}
