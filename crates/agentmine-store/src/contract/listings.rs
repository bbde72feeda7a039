//! What people and editors read, among all that a fleet has recorded in a year.

use super::*;

facts! {
    no_listing_reads_all_tasks_sessions_or_steps,
    a_listing_shows_the_newest_of_its_kind,
    the_steps_of_one_session_are_read_in_parts,
    the_work_on_a_task_reads_no_other_tasks,
    sessions_are_listed_with_their_tasks,
}

impl World {
    /// 10,000 tasks and 100,000 steps.
    pub(super) async fn crowded(&self) {
        self.database
            .execute(match *self.database {
                Database::Sqlite(_) => include_str!("../../testdata/crowd/sqlite.sql"),
                Database::Postgres { .. } => include_str!("../../testdata/crowd/postgres.sql"),
            })
            .await;
    }
}

fn filters() -> Vec<TaskFilter> {
    let mut filters = Vec::new();
    for status in [
        None,
        Some(PublicStatus::InProgress),
        Some(PublicStatus::Failed),
    ] {
        for assignee in [
            None,
            Some("assignee-3".to_owned()),
            Some("nobody".to_owned()),
        ] {
            for before in [None, Some(TaskNumber(5000))] {
                for limit in [21, 501] {
                    let (assignee, limit) = (assignee.clone(), limit);
                    filters.push(TaskFilter {
                        status,
                        assignee,
                        before,
                        limit,
                    });
                }
            }
        }
    }
    filters
}

async fn no_listing_reads_all_tasks_sessions_or_steps(world: World) {
    world.crowded().await;
    let store = &world.store;
    let number = async |number| {
        let found = store.task_by_number(TaskNumber(number)).await;
        found.unwrap().unwrap()
    };
    trace::start();
    for filter in filters() {
        store.tasks(&filter).await.unwrap();
    }
    let long = number(1).await;
    for limit in [20, 500] {
        store.sessions(None, limit).await.unwrap();
        store.sessions(Some(long.id), limit).await.unwrap();
    }
    for task in [None, Some(long.id)] {
        for which in [
            None,
            Some(WhichSessions::Running),
            Some(WhichSessions::Ended),
        ] {
            for before in [None, Some(SessionId(5000))] {
                let filter = SessionFilter {
                    task,
                    which,
                    before,
                    limit: 21,
                };
                let listed = store.list_sessions(&filter).await.unwrap();
                assert!(listed.windows(2).all(|pair| pair[0].id > pair[1].id));
                for session in listed {
                    assert!(
                        before.is_none_or(|before| session.id < before),
                        "{filter:?}"
                    );
                    assert!(task.is_none_or(|task| session.task == task), "{filter:?}");
                    let running = which.is_none_or(|which| {
                        (which == WhichSessions::Running) == session.end.is_none()
                    });
                    assert!(running, "{filter:?}");
                }
            }
        }
    }
    let session = store.sessions(Some(long.id), 1).await.unwrap().remove(0);
    store.session(session.id).await.unwrap();
    let steps = store.session_steps(&session, Seq(4000), 51).await.unwrap();
    assert_eq!(steps.len(), 51);
    for task in [number(9020).await, number(9015).await, number(9999).await] {
        store.task(task.id).await.unwrap();
        store.dependencies(task.id).await.unwrap();
        store.scope_conflict(&task).await.unwrap();
        store.due_at(task.id).await.unwrap();
        store.lease_ran_out_at(task.id).await.unwrap();
    }
    for (which, limit) in [(WhichSessions::Running, 500), (WhichSessions::Ended, 20)] {
        store.sessions_with_tasks(which, limit).await.unwrap();
    }
    store.figures().await.unwrap();
    store.claimable(NONE, 0, 20).await.unwrap();
    let (queued, leased) = store.queued_and_leased().await.unwrap();
    assert!(queued > 800 && leased == 45, "{queued} {leased}");
    let statements = trace::take();
    assert!(statements.len() >= 50, "{}", statements.len());
    for statement in statements {
        for line in world.database.plan(&statement).await {
            assert!(!reads_all(&line, &statement), "{line}: {statement}");
        }
    }
}

/// From the scan that finds it to its end, whatever else there is and was.
async fn the_work_on_a_task_reads_no_other_tasks(world: World) {
    world.crowded().await;
    let store = &world.store;
    trace::start();
    let task = world.new_task(20_001).await.id;
    world.relay().await;
    store.claimable(NONE, 0, 200).await.unwrap();
    let lease = world.claim(task, MINUTE).await.unwrap().lease;
    assert!(world.claim(task, MINUTE).await.is_none());
    store.heartbeat(&lease, MINUTE).await.unwrap();
    store.check(&lease).await.unwrap();
    store.set_phase(&lease, Phase::Running).await.unwrap();
    store.append_step(&lease, &note("a step")).await.unwrap();
    let usage = Usage::default();
    store.record_usage(&lease, "model", &usage).await.unwrap();
    store.steps(task).await.unwrap();
    store.checkpoints(task).await.unwrap();
    let key = EffectKey::pull_request("branch");
    let begun = store.effect_begin(task, Some(&lease), &key).await;
    begun.unwrap();
    store.effect(task, &key).await.unwrap();
    store.sandbox_fate(task, lease.epoch).await.unwrap();
    let back = release(Attempt::Refunded, NONE);
    store.end_lease(&lease, &back).await.unwrap();
    world.relay().await;
    let lease = world.claim(task, MINUTE).await.unwrap().lease;
    store.end_lease(&lease, &done()).await.unwrap();
    let item = issue(20_001, "e1").item;
    store.latest_task(&item).await.unwrap();
    let statements = trace::take();
    assert!(statements.len() >= 30, "{}", statements.len());
    for statement in statements {
        for line in world.database.plan(&statement).await {
            assert!(!reads_whole_table(&line), "{line}: {statement}");
        }
    }
}

/// Whether a line of a plan reads all of a table that has a row for each task, or more (the crowd has no checkpoints).
fn reads_whole_table(line: &str) -> bool {
    const TABLES: [&str; 5] = ["tasks", "sessions", "steps", "effects", "outbox"];
    // What is waiting or running, of all that there ever was.
    const FEW: [&str; 5] = [
        "tasks_waiting",
        "tasks_queued",
        "tasks_leased",
        "outbox_unsent",
        "effects_unfinished",
    ];
    let scans = ["SCAN ", "Seq Scan on "].into_iter();
    let scanned = scans.filter_map(|scan| line.split_once(scan)).next();
    let table = scanned.and_then(|(_, rest)| rest.split_whitespace().next());
    table.is_some_and(|table| TABLES.contains(&table)) && !FEW.iter().any(|few| line.contains(few))
}

/// Whether a line of a plan reads a whole table of what only grows, or sorts a listing.
fn reads_all(line: &str, statement: &serde_json::Value) -> bool {
    let sql = statement["sql"].as_str().unwrap_or_default();
    // The newest ones come from the end of the index by number or of the rows, as far as the limit goes.
    let of_all = sql.contains("FROM tasks WHERE number < $1")
        || sql
            .trim_end_matches(')')
            .ends_with("ORDER BY id DESC LIMIT $1");
    let is_listing =
        sql.ends_with("ORDER BY number DESC LIMIT $2") || (of_all && !sql.contains("task = $2"));
    // Postgres also sorts where it finds no more than it shows.
    let sorts = line.contains("TEMP B-TREE");
    if of_all && !sql.contains("task = $2") {
        return sorts || line.contains("Seq Scan") || line.contains("SCAN tasks");
    }
    const FEW: [&str; 5] = [
        "tasks_waiting",
        "tasks_queued",
        "tasks_leased",
        "tasks_unreported",
        "effects_unfinished",
    ];
    const WHOLE: [&str; 9] = [
        "SCAN tasks",
        "SCAN t",
        "SCAN before",
        "SCAN s",
        "SCAN sessions",
        "SCAN steps",
        "Seq Scan on tasks",
        "Seq Scan on sessions",
        "Seq Scan on steps",
    ];
    let is_of = |name: &&str| {
        let rest = line.split_once(*name).map(|(_, rest)| rest);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let few = FEW.iter().any(|index| line.contains(index));
    (WHOLE.iter().any(is_of) && !few) || (is_listing && sorts)
}

async fn a_listing_shows_the_newest_of_its_kind(world: World) {
    world.crowded().await;
    let all = world.store.tasks(&TaskFilter::default()).await.unwrap();
    assert_eq!(all.len(), 10_000);
    for filter in filters() {
        let found = world.store.tasks(&filter).await.unwrap();
        let expected: Vec<TaskId> = all
            .iter()
            .filter(|task| {
                filter
                    .status
                    .is_none_or(|status| task.state.public() == status)
            })
            .filter(|task| filter.assignee.is_none() || filter.assignee == task.card.assignee)
            .filter(|task| filter.before.is_none_or(|before| task.number < before))
            .map(|task| task.id)
            .take(filter.limit as usize)
            .collect();
        let found: Vec<TaskId> = found.iter().map(|task| task.id).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
}

async fn the_steps_of_one_session_are_read_in_parts(world: World) {
    world.crowded().await;
    let store = &world.store;
    let task = store.task_by_number(TaskNumber(1)).await.unwrap().unwrap();
    let [second, first] = &store.sessions(Some(task.id), 0).await.unwrap()[..] else {
        panic!("not two sessions");
    };
    let of = async |session, after, limit| -> Vec<i64> {
        let steps = store.session_steps(session, Seq(after), limit).await;
        steps.unwrap().iter().map(|step| step.seq.0).collect()
    };
    assert_eq!(of(first, 0, 3).await, [1, 2, 3]);
    assert_eq!(of(first, 8, 3).await, [9, 10]);
    assert_eq!(of(second, 0, 2).await, [11, 12]);
    assert_eq!(of(second, 5008, 0).await, [5009, 5010]);
}

async fn sessions_are_listed_with_their_tasks(world: World) {
    world.crowded().await;
    let store = &world.store;
    let listed = async |which, limit| {
        let found = store.sessions_with_tasks(which, limit).await.unwrap();
        for (session, task) in &found {
            assert_eq!(task.number, session.task_number);
        }
        let sessions = found.into_iter().map(|(session, _)| session);
        sessions.collect::<Vec<_>>()
    };
    let all = store.sessions(None, 0).await.unwrap();
    let running: Vec<_> = all.iter().filter(|it| it.end.is_none()).cloned().collect();
    assert_eq!(running.len(), 45);
    assert_eq!(listed(WhichSessions::Running, 0).await, running);
    assert_eq!(listed(WhichSessions::Running, 7).await, running[..7]);
    let ended: Vec<_> = all.into_iter().filter(|it| it.end.is_some()).collect();
    assert_eq!(listed(WhichSessions::Ended, 20).await, ended[..20]);
}
