//! The figures of the fleet, and what an autoscaler reads of it.

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use super::*;

facts! {
    demand_is_never_below_what_runs_or_is_owed,
    figures_show_every_priority_and_return_to_zero,
    a_task_is_not_due_while_another_one_changes_the_same_files,
    a_pick_up_counts_from_when_a_worker_could_take_the_task,
    sums_since_the_beginning_are_those_over_all_rows,
}

async fn slots(world: &World) -> u64 {
    world.store.figures().await.unwrap().slots
}

async fn demand_is_never_below_what_runs_or_is_owed(world: World) {
    let store = &world.store;
    assert_eq!(slots(&world).await, 0);
    // Due, and its wake-up is not published: one consumer for the task, one for the wake-up.
    let task = world.new_task(1).await;
    assert_eq!(slots(&world).await, 2);
    world.relay().await;
    assert_eq!(slots(&world).await, 1);
    // A lease counts, also after it has run out.
    let lease = world.claim(task.id, NONE).await.unwrap().lease;
    assert_eq!(slots(&world).await, 1);
    world.sweep(MINUTE).await;
    world.relay().await;
    assert_eq!(slots(&world).await, 1, "it waits for another worker");
    assert!(is_fenced(store.end_lease(&lease, &done()).await));
    // A delay is no demand until it ends.
    let lease = world.claim(task.id, MINUTE).await.unwrap().lease;
    let later = release(Attempt::Refunded, MINUTE);
    store.end_lease(&lease, &later).await.unwrap();
    assert_eq!(slots(&world).await, 0);
    assert!(store.skip_delay(task.id).await.unwrap());
    world.relay().await;
    assert_eq!(slots(&world).await, 1);
    // The end has to be reported by somebody.
    let lease = world.claim(task.id, MINUTE).await.unwrap().lease;
    store.end_lease(&lease, &done()).await.unwrap();
    assert_eq!(slots(&world).await, 1);
    let figures = store.figures().await.unwrap();
    assert_eq!(figures.unreported.count, 1);
    let label = EffectKey::label(TaskLabel::Done, lease.epoch);
    store
        .effect_done(task.id, &label, &json!({}))
        .await
        .unwrap();
    assert_eq!(slots(&world).await, 0);
    // A paused task waits for a person.
    let paused = world.new_task(2).await;
    world.relay().await;
    store.request_pause(paused.id, "lunch").await.unwrap();
    assert_eq!(slots(&world).await, 1, "its label is owed");
    let epoch = world.task(paused.id).await.epoch;
    let label = EffectKey::label(TaskLabel::Paused, epoch);
    store
        .effect_done(paused.id, &label, &json!({}))
        .await
        .unwrap();
    assert_eq!(slots(&world).await, 0);
}

async fn figures_show_every_priority_and_return_to_zero(world: World) {
    let store = &world.store;
    let count = async |priority, standing| {
        let figures = store.figures().await.unwrap();
        assert_eq!(
            figures.tasks.len(),
            Priority::ALL.len() * TaskStanding::ALL.len()
        );
        let found = figures.tasks.iter();
        let mut found = found.filter(|it| it.priority == priority && it.standing == standing);
        found.next().unwrap().backlog
    };
    assert_eq!(
        count(Priority::Medium, TaskStanding::Due).await,
        Backlog::default()
    );
    let mut high = issue(1, "e1");
    high.priority = Priority::High;
    store.enqueue(&high).await.unwrap();
    let lease = world.leased(2).await;
    world.new_task(3).await;
    world
        .database
        .execute(match &*world.database {
            Database::Sqlite(_) => {
                "UPDATE tasks SET updated_at = updated_at - 90000 WHERE number = 3"
            }
            Database::Postgres { .. } => {
                "UPDATE tasks SET updated_at = updated_at - interval '90 s' WHERE number = 3"
            }
        })
        .await;
    assert_eq!(count(Priority::High, TaskStanding::Due).await.count, 1);
    assert_eq!(count(Priority::Medium, TaskStanding::Leased).await.count, 1);
    let waiting = count(Priority::Medium, TaskStanding::Due).await;
    assert_eq!(waiting.count, 1);
    assert!(waiting.oldest >= Duration::from_secs(90), "{waiting:?}");
    assert!(waiting.oldest < Duration::from_secs(120), "{waiting:?}");
    let later = release(Attempt::Refunded, MINUTE);
    store.end_lease(&lease, &later).await.unwrap();
    assert_eq!(
        count(Priority::Medium, TaskStanding::Delayed).await.count,
        1
    );
    assert_eq!(count(Priority::Medium, TaskStanding::Leased).await.count, 0);
    let key = EffectKey::progress_comment();
    store.effect_begin(lease.task, None, &key).await.unwrap();
    assert_eq!(store.figures().await.unwrap().effects.count, 1);
    store
        .effect_done(lease.task, &key, &json!({}))
        .await
        .unwrap();
    assert_eq!(store.figures().await.unwrap().effects.count, 0);
    assert!(store.figures().await.unwrap().outbox.count > 0);
    world.relay().await;
    assert_eq!(store.figures().await.unwrap().outbox.count, 0);
}

async fn a_task_is_not_due_while_another_one_changes_the_same_files(world: World) {
    let mut tasks = Vec::new();
    for (number, pattern) in [(1, "src"), (2, "src/lib.rs"), (3, "docs")] {
        let task = world.new_task(number).await;
        let edit = TaskEdit {
            write_scope: Some(WriteScope::new(vec![pattern.into()]).unwrap()),
            ..TaskEdit::default()
        };
        tasks.push(world.edited(task.id, edit).await.id);
    }
    world.new_task(4).await;
    let counts = async || {
        let figures = world.store.figures().await.unwrap();
        let of = |standing| {
            let found = figures.tasks.iter().filter(|it| it.standing == standing);
            found.map(|it| it.backlog.count).sum::<u64>()
        };
        let [due, waiting, leased] = [
            TaskStanding::Due,
            TaskStanding::Waiting,
            TaskStanding::Leased,
        ]
        .map(of);
        (due, waiting, leased)
    };
    assert_eq!(counts().await, (4, 0, 0));
    let lease = world.claim(tasks[0], MINUTE).await.unwrap().lease;
    assert_eq!(counts().await, (2, 1, 1));
    world.store.end_lease(&lease, &done()).await.unwrap();
    assert_eq!(counts().await, (3, 0, 0));
}

/// The measured pick-ups: how many, and their seconds together.
fn pick_ups(recorder: &PrometheusRecorder) -> (f64, f64) {
    let shown = recorder.handle().render();
    let of = |series: &str| -> f64 {
        let mut lines = shown.lines();
        let value = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().unwrap())
    };
    let name = "agentmine_task_pickup_seconds";
    (of(&format!("{name}_count")), of(&format!("{name}_sum")))
}

async fn a_pick_up_counts_from_when_a_worker_could_take_the_task(world: World) {
    let store = &world.store;
    let recorder = PrometheusBuilder::new().build_recorder();
    // All on this one thread.
    let _guard = ::metrics::set_default_local_recorder(&recorder);
    let of_an_hour_ago = async |number| {
        let task = world.new_task(number).await;
        let hour = match *world.database {
            Database::Sqlite(_) => "3600000",
            Database::Postgres { .. } => "interval '1 hour'",
        };
        let sql = format!(
            "UPDATE tasks SET created_at = created_at - {hour}, updated_at = updated_at - {hour}
             WHERE number = {number}"
        );
        world.database.execute(&sql).await;
        task
    };
    let forgotten = of_an_hour_ago(1).await;
    let lease = world.claim(forgotten.id, MINUTE).await.unwrap().lease;
    let (count, forgotten_for) = pick_ups(&recorder);
    assert!(count == 1.0 && forgotten_for >= 3600.0, "{forgotten_for}");

    let paused = of_an_hour_ago(2).await;
    store.request_pause(paused.id, "lunch").await.unwrap();
    store.resume(paused.id).await.unwrap();
    world.claim(paused.id, MINUTE).await.unwrap();
    let (count, seconds) = pick_ups(&recorder);
    let paused_for = seconds - forgotten_for;
    assert!(count == 2.0 && paused_for < 600.0, "{paused_for}");

    let dependent = of_an_hour_ago(3).await;
    let on = TaskEdit {
        depends_on: Some(vec![forgotten.number]),
        ..TaskEdit::default()
    };
    world.edited(dependent.id, on).await;
    store.end_lease(&lease, &done()).await.unwrap();
    world.claim(dependent.id, MINUTE).await.unwrap();
    assert_eq!(pick_ups(&recorder), (2.0, seconds));
}

impl World {
    /// The sums that the store keeps are those over all sessions and tasks.
    pub(super) async fn assert_totals(&self) {
        let sessions = self.store.sessions(None, 0).await.unwrap();
        let tasks = self.store.tasks(&TaskFilter::default()).await.unwrap();
        let Totals {
            sessions: ended,
            tasks: over,
            input_tokens,
            cached_tokens,
            output_tokens,
            cost_micros,
            rows: _,
        } = self.store.totals().await.unwrap();
        for (end, count) in ended {
            let found = sessions.iter().filter(|it| it.end == Some(end)).count();
            assert_eq!(count, found as u64, "{end:?}: {sessions:#?}");
        }
        for (end, count) in over {
            let is_so = |it: &&Task| it.state == TaskState::Ended(end);
            let found = tasks.iter().filter(is_so).count();
            assert_eq!(count, found as u64, "{end:?}: {tasks:#?}");
        }
        let mut usage = Usage::default();
        sessions.iter().for_each(|session| usage += session.usage);
        assert_eq!(
            (input_tokens, cached_tokens, output_tokens, cost_micros),
            (
                usage.input_tokens,
                usage.cached_tokens,
                usage.output_tokens,
                usage.cost_micros
            )
        );
    }
}

async fn sums_since_the_beginning_are_those_over_all_rows(world: World) {
    let store = &world.store;
    world.assert_totals().await;
    let usage = |n: u64| Usage {
        model_calls: 1,
        tool_calls: 1,
        input_tokens: 1000 * n,
        cached_tokens: 100 * n,
        output_tokens: 10 * n,
        cost_micros: n,
    };
    // A session that runs counts with what it has used so far, and once after its end.
    let ends = world.leased(1).await;
    store.record_usage(&ends, "m", &usage(1)).await.unwrap();
    assert_eq!(store.totals().await.unwrap().input_tokens, 1000);
    store.record_usage(&ends, "m", &usage(2)).await.unwrap();
    store.end_lease(&ends, &done()).await.unwrap();
    world.assert_totals().await;
    let totals = store.totals().await.unwrap();
    assert_eq!((totals.input_tokens, totals.cost_micros), (2000, 2));
    assert_eq!(totals.tasks[0], (EndState::Done, 1));

    // One that is given back, one whose worker dies, and the end by too many attempts.
    let lost = world.new_task(2).await;
    for n in 3..6 {
        let lease = world.claim(lost.id, NONE).await.unwrap().lease;
        store.record_usage(&lease, "m", &usage(n)).await.unwrap();
        world.sweep(MINUTE).await;
        world.assert_totals().await;
    }
    let given_back = world.leased(3).await;
    store
        .record_usage(&given_back, "m", &usage(6))
        .await
        .unwrap();
    let later = release(Attempt::Refunded, MINUTE);
    store.end_lease(&given_back, &later).await.unwrap();
    // One that people stop, and one that waits.
    store
        .request_stop(world.new_task(4).await.id, "no")
        .await
        .unwrap();
    world.new_task(5).await;
    world.assert_totals().await;
    let before = store.totals().await.unwrap();
    assert!(before.rows > 15, "{before:?}");

    // Folding changes no sum, and what is added later comes on top.
    store.fold_totals().await.unwrap();
    store.fold_totals().await.unwrap();
    let folded = store.totals().await.unwrap();
    assert!(folded.rows <= 12, "{folded:?}");
    let rows = folded.rows;
    assert_eq!(folded, Totals { rows, ..before });
    let runs = world.leased(6).await;
    store.record_usage(&runs, "m", &usage(7)).await.unwrap();
    world.assert_totals().await;
    store.restored().await.unwrap();
    world.assert_totals().await;
    // Two at once fold everything once.
    let (first, second) = tokio::join!(store.fold_totals(), store.fold_totals());
    first.and(second).unwrap();
    world.assert_totals().await;
}

/// As for a change of the server by logical replication.
#[tokio::test]
async fn the_sums_are_folded_where_a_publication_has_all_tables() {
    on(Database::postgres(), async |world: World| {
        let publish = "CREATE PUBLICATION everything FOR ALL TABLES";
        world.database.execute(publish).await;
        let lease = world.leased(1).await;
        world.store.end_lease(&lease, &done()).await.unwrap();
        world.store.fold_totals().await.unwrap();
        world.assert_totals().await;
    })
    .await;
}
