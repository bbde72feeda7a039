//! What a fleet executes for each task, among all that it has recorded in a year: the time of a statement must not
//! grow with the tasks that are over, nor with those that wait. And no statement of any fact may need a whole table.

use super::*;

facts! {
    no_statement_of_a_task_s_life_reads_a_whole_table,
    what_a_worker_says_of_its_task_reads_no_list_of_waiting_tasks,
    what_is_said_of_a_task_reads_no_list_of_tasks_where_almost_all_are_over,
}

/// What begins the names of the indexes that list tasks: each entry stays until the table is vacuumed.
const LISTS: [&str; 9] = [
    "tasks_waiting",
    "tasks_queued",
    "tasks_leased",
    "tasks_at_rest",
    "tasks_unreported",
    "tasks_in_turn",
    "tasks_admitted",
    "tasks_by_status",
    "tasks_by_assignee",
];

/// From the request to the report of the end, with what the relay and the sweep do meanwhile.
async fn life_of_a_task(world: &World) {
    let store = &world.store;
    let task = world.new_task(1).await;
    let known = store.enqueue(&issue(1, "e1")).await.unwrap();
    assert!(matches!(known, Enqueued::Known(_)), "{known:?}");
    assert_eq!(world.relay().await, [task.id]);
    store.claimable(NONE, 0, 200).await.unwrap();
    let admitted = store.admitted(TrackerKind::GitHub, "github.com");
    admitted.await.unwrap();
    store.task(task.id).await.unwrap();
    let lease = world.claim(task.id, MINUTE).await.unwrap().lease;
    assert!(
        world.claim(task.id, MINUTE).await.is_none(),
        "claimed twice"
    );
    store.heartbeat(&lease, MINUTE).await.unwrap();
    store.check(&lease).await.unwrap();
    store.set_phase(&lease, Phase::Running).await.unwrap();
    let step = note("a step");
    let seq = store.append_step(&lease, &step).await.unwrap();
    assert_eq!(store.append_step(&lease, &step).await.unwrap(), seq);
    let used = Usage::default();
    let reply = note("a reply");
    let with_usage = store.append_step_with_usage(&lease, &reply, "m", &used);
    with_usage.await.unwrap();
    let checkpoint = Checkpoint {
        seq,
        commit: "commit".into(),
        bundle: vec![1],
    };
    store.save_checkpoint(&lease, &checkpoint).await.unwrap();
    let usage = Usage::default();
    store.record_usage(&lease, "m", &usage).await.unwrap();
    store.steps(task.id).await.unwrap();
    store.checkpoints(task.id).await.unwrap();
    let label = EffectKey::label(TaskLabel::Processing, lease.epoch);
    let begun = store.effect_begin(task.id, Some(&lease), &label).await;
    assert_eq!(begun.unwrap(), EffectState::Fresh);
    let result = json!({});
    store.effect_done(task.id, &label, &result).await.unwrap();
    store.effect(task.id, &label).await.unwrap();
    store.label_names(task.id).await.unwrap();
    store.worker_died("other/1", MINUTE).await.unwrap();
    store.sandbox_fate(task.id, lease.epoch).await.unwrap();
    world.sweep(NONE).await;
    let given_back = release(Attempt::Refunded, NONE);
    store.end_lease(&lease, &given_back).await.unwrap();
    world.relay().await;
    let lease = world.claim(task.id, MINUTE).await.unwrap().lease;
    store.end_lease(&lease, &done()).await.unwrap();
    let task = world.task(task.id).await;
    store.latest_task(&task.item).await.unwrap();
    let claimed = store.claim_report(&task, Uuid::new_v4(), MINUTE).await;
    claimed.unwrap().unwrap();
    world.unreported().await;
    let none = TaskNumber(0);
    store.unconfirmed(MINUTE, DAY, none, 9).await.unwrap();
}

async fn no_statement_of_a_task_s_life_reads_a_whole_table(world: World) {
    world.crowded().await;
    with_checkpoints(&world).await;
    trace::start();
    life_of_a_task(&world).await;
    let statements = trace::take();
    assert!(statements.len() >= 50, "{}", statements.len());
    let mut found = Vec::new();
    for statement in statements {
        let plan = world.database.plan(&statement).await;
        let lines = plan.into_iter().filter(|line| reads_all(line));
        found.extend(lines.map(|line| format!("{line}: {}", statement["sql"])));
    }
    assert!(found.is_empty(), "{found:#?}");
}

async fn with_checkpoints(world: &World) {
    if let Database::Postgres { .. } = *world.database {
        // Postgres reads the whole of a small table.
        let checkpoints =
            "INSERT INTO checkpoints (task, seq, epoch, commit_hash, bundle, recorded_at)
             SELECT id, 1, 1, '0123456789', '0123456789', now() FROM tasks; ANALYZE checkpoints";
        world.database.execute(checkpoints).await;
    }
}

/// All that a worker sends while it has a task, among thousands that wait.
async fn what_a_worker_says_of_its_task_reads_no_list_of_waiting_tasks(world: World) {
    world.crowded().await;
    with_checkpoints(&world).await;
    let store = &world.store;
    let task = world.new_task(1).await;
    trace::start();
    let lease = world.claim(task.id, MINUTE).await.unwrap().lease;
    store.heartbeat(&lease, MINUTE).await.unwrap();
    store.set_phase(&lease, Phase::Running).await.unwrap();
    store.append_step(&lease, &note("a step")).await.unwrap();
    store.end_lease(&lease, &done()).await.unwrap();
    let found = lists_that_are_read(&world, trace::take(), &LISTS[..2]).await;
    assert!(found.is_empty(), "{found:#?}");
}

/// The usual state of a fleet: when the server last analyzed the table, no task waited and none was leased, so that it
/// takes the indexes of those for empty.
async fn what_is_said_of_a_task_reads_no_list_of_tasks_where_almost_all_are_over(world: World) {
    world.crowded().await;
    let over = "UPDATE tasks SET state = 'done', end_reported = true, phase = NULL, owner = NULL, nonce = NULL,
                    lease_until = NULL, lease_since = NULL
                WHERE state IN ('queued', 'leased', 'paused')";
    for statement in [over, "ANALYZE tasks"] {
        world.database.execute(statement).await;
    }
    with_checkpoints(&world).await;
    let store = &world.store;
    let task = world.new_task(1).await;
    trace::start();
    let lease = world.claim(task.id, MINUTE).await.unwrap().lease;
    assert!(world.claim(task.id, MINUTE).await.is_none());
    store.heartbeat(&lease, MINUTE).await.unwrap();
    store.check(&lease).await.unwrap();
    store.set_phase(&lease, Phase::Running).await.unwrap();
    store.append_step(&lease, &note("a step")).await.unwrap();
    let usage = Usage::default();
    store.record_usage(&lease, "m", &usage).await.unwrap();
    let label = EffectKey::label(TaskLabel::Processing, lease.epoch);
    let begun = store.effect_begin(task.id, Some(&lease), &label).await;
    assert_eq!(begun.unwrap(), EffectState::Fresh);
    store
        .effect_begin(task.id, Some(&lease), &label)
        .await
        .unwrap();
    let given_back = release(Attempt::Refunded, NONE);
    store.end_lease(&lease, &given_back).await.unwrap();
    store.request_pause(task.id, "a pause").await.unwrap();
    store.resume(task.id).await.unwrap();
    let lease = world.claim(task.id, MINUTE).await.unwrap().lease;
    store.request_stop(task.id, "a stop").await.unwrap();
    store.end_lease(&lease, &done()).await.unwrap();
    let task = world.task(task.id).await;
    let claimed = store.claim_report(&task, Uuid::new_v4(), MINUTE).await;
    claimed.unwrap().unwrap();
    let mut found = lists_that_are_read(&world, trace::take(), &LISTS).await;
    // Which tasks of the same repository may begin now is a question about such a list.
    found.retain(|line| !line.contains("tasks ended"));
    assert!(found.is_empty(), "{found:#?}");
}

/// The lines of the plans that read a whole table or one of these lists, each with its statement.
async fn lists_that_are_read(
    world: &World,
    statements: Vec<serde_json::Value>,
    lists: &[&str],
) -> Vec<String> {
    assert!(statements.len() >= 10, "{}", statements.len());
    let mut found = Vec::new();
    for statement in statements {
        let plan = world.database.plan(&statement).await;
        let lines = plan
            .into_iter()
            .filter(|line| reads_all(line) || lists.iter().any(|list| line.contains(list)));
        found.extend(lines.map(|line| format!("{line}: {}", statement["sql"])));
    }
    found
}

/// No statement that a fact executed has to read a whole table that grows: an index leads to what it needs.
///
/// The tables of a test are small, so Postgres is set to prefer any index, and may then read a whole small index where a
/// large one is searched. `SQLite`, which executes the same statements, does not look at the sizes.
pub(super) async fn no_statement_reads_all(database: &Database) {
    let statements = trace::take_all();
    if let Database::Postgres { .. } = database {
        database.execute(UNTIL_ALL_INDEXES_SERVE).await;
    }
    let plans = database
        .plans("?options=-c%20enable_seqscan%3Doff", &statements)
        .await;
    let mut found = Vec::new();
    for (statement, plan) in statements.iter().zip(plans) {
        let sql = statement["sql"].as_str().unwrap_or_default();
        let is_meant_to = READ_ALL.iter().any(|it| sql.contains(it));
        let reads = plan.iter().any(|line| reads_all(line));
        if reads && !is_meant_to {
            found.push(format!("{sql}\n{}", plan.join("\n")));
        }
    }
    assert!(found.is_empty(), "they read all:\n{}", found.join("\n"));
}

/// Postgres plans without an index that a migration made of rows that it had just changed, as long as a transaction that is
/// older than the migration runs anywhere on the server (`indcheckxmin`).
const UNTIL_ALL_INDEXES_SERVE: &str = "
    DO $$ BEGIN
        WHILE EXISTS (SELECT 1 FROM pg_index
                      WHERE indcheckxmin AND xmin::text::bigint >= txid_snapshot_xmin(txid_current_snapshot()) % (1::bigint << 32))
        LOOP
            PERFORM pg_sleep(0.05);
        END LOOP;
    END $$";

/// Statements that are there to read all, or that stop when they have enough.
const READ_ALL: [&str; 4] = [
    // The retention, in batches: what it reads, it removes, apart from the checkpoints of tasks that ended of late.
    "DELETE FROM checkpoints WHERE (task, seq) IN",
    // What the retention would remove, and how large the tables are: for an operator who asks.
    "SELECT count(DISTINCT t.id) AS tasks, count(*) AS rows",
    "FROM dbstat",
    // From the newest session on, until there are enough that are over.
    "ended_at IS NOT NULL ORDER BY id DESC LIMIT",
];

/// Whether a line of a plan reads a whole table that grows with the tasks.
pub(super) fn reads_all(line: &str) -> bool {
    // These indexes hold only tasks that wait or run, or ends and effects that are not over.
    const FEW: [&str; 12] = [
        "sessions_running",
        "tasks_one_open_per_item",
        "tasks_waiting",
        "tasks_queued",
        "tasks_leased",
        "tasks_at_rest",
        "tasks_unreported",
        "tasks_with_scope",
        "tasks_in_turn",
        "tasks_admitted",
        "effects_unfinished",
        "outbox_unsent",
    ];
    const TABLES: [&str; 13] = [
        "tasks",
        "t",
        "before",
        "opener",
        "later",
        "steps",
        "sessions",
        "s",
        "checkpoints",
        "effects",
        "e",
        "outbox",
        "o",
    ];
    let scanned = ["SCAN ", "Seq Scan on "]
        .iter()
        .find_map(|scan| line.split_once(scan));
    let Some((_, rest)) = scanned else {
        return false;
    };
    let table = rest.split([' ', '(']).next().unwrap_or_default();
    TABLES.contains(&table) && !FEW.iter().any(|index| line.contains(index))
}
