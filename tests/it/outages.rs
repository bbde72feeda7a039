//! Services go away and come back: no task fails for it, and no attempt is counted.

use std::time::Duration;

use agentmine_domain::{EndState, SessionEnd, Task, TaskState};
use agentmine_tests::forge::{DEMO, Fault as ForgeFault};

use crate::gate::{Gate, Service};
use crate::rig::{Process, REQUEST, Rig, on_both_forges, solves_demo};

async fn issues(rig: &Rig, count: usize) {
    for n in 0..count {
        let title = format!("greet.sh greets nobody ({n})");
        rig.forge
            .add_issue(DEMO, &title, "It should greet.", &[REQUEST]);
    }
    rig.produce().await;
}

/// Waits until an outage has ended a session.
async fn wait_for_a_released_session(rig: &Rig) {
    for _ in 0..600 {
        let sessions = rig.sessions().await;
        if sessions
            .iter()
            .any(|it| it.end == Some(SessionEnd::Released))
        {
            return;
        }
        // Another process cannot await a change of a row.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no session was ended by the outage");
}

fn assert_done_at_first_attempt(tasks: &[Task], log: &str) {
    for task in tasks {
        assert_eq!(
            (task.state, task.attempt),
            (TaskState::Ended(EndState::Done), 1),
            "#{}: {:?}\n{log}",
            task.item.number,
            task.reason
        );
    }
}

async fn a_task_outlives_an_outage_of_the_tracker(mut rig: Rig) {
    rig.config["consumer"]["max_attempts"] = 1.into();
    issues(&rig, 1).await;
    rig.model.hold_at(4);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    let away = ForgeFault::on("*", "/api/v").times(usize::MAX);
    rig.forge.inject(away.status(503));
    rig.model.release();
    wait_for_a_released_session(&rig).await;
    rig.forge.heal();
    rig.wait_ended(1).await;
    consumer.terminate();
    let (_, log) = consumer.end().await;
    assert_done_at_first_attempt(&rig.tasks().await, &log);
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
}

/// The git host is away for longer than a request is repeated.
async fn a_task_outlives_an_outage_of_the_git_host(mut rig: Rig) {
    rig.config["consumer"]["max_attempts"] = 1.into();
    issues(&rig, 1).await;
    let away = ForgeFault::on("GET", "/octo/demo.git/info/refs");
    rig.forge.inject(away.times(usize::MAX).status(503));
    let consumer = rig.spawn("consumer", &[]);
    wait_for_a_released_session(&rig).await;
    rig.forge.heal();
    rig.wait_ended(1).await;
    consumer.terminate();
    let (_, log) = consumer.end().await;
    assert_done_at_first_attempt(&rig.tasks().await, &log);
    let sessions = rig.sessions().await;
    let reason = sessions[1].reason.clone().unwrap_or_default();
    assert!(
        reason.contains("127.0.0.1"),
        "the host is not named: {reason}"
    );
}

/// A task with one attempt, and a consumer that reaches the container engine through a gate. The model holds the
/// third call.
async fn work_behind_a_gate() -> (Rig, Gate, Process) {
    let socket = Service::Unix("/var/run/docker.sock".into());
    let engine = Gate::before(socket).await;
    let mut rig = Rig::new(solves_demo()).await;
    rig.config["consumer"]["max_attempts"] = 1.into();
    issues(&rig, 1).await;
    rig.model.hold_at(2);
    let address = format!("tcp://{}", engine.address());
    let consumer = rig.spawn_with("consumer", ("DOCKER_HOST", &address));
    (rig, engine, consumer)
}

#[tokio::test]
async fn a_task_outlives_an_outage_of_the_container_engine() {
    let (rig, engine, consumer) = work_behind_a_gate().await;
    rig.model.wait_for_held(1).await;
    engine.take_away();
    rig.model.release();
    wait_for_a_released_session(&rig).await;
    engine.give_back();
    rig.wait_ended(1).await;
    consumer.terminate();
    let (_, log) = consumer.end().await;
    assert_done_at_first_attempt(&rig.tasks().await, &log);
}

/// A command of the task may be what ends the engine each time: it is delayed, and after the first time charged.
#[tokio::test]
async fn an_engine_that_ends_again_while_the_task_works_costs_an_attempt() {
    let (rig, engine, consumer) = work_behind_a_gate().await;
    let counted = async |attempts| {
        rig.wait("the session to end", |tasks| {
            tasks[0].attempt == attempts && !matches!(tasks[0].state, TaskState::Leased(_))
        })
        .await
    };
    rig.model.wait_for_held(1).await;
    engine.take_away();
    rig.model.release();
    counted(0).await;
    rig.model.hold_at(3);
    engine.give_back();
    rig.model.wait_for_held(1).await;
    engine.take_away();
    rig.model.release();
    let task = counted(1).await.remove(0);
    engine.give_back();
    consumer.terminate();
    let (_, log) = consumer.end().await;
    assert_eq!(task.state, TaskState::Ended(EndState::Failed), "{log}");
    let reason = task.reason.unwrap_or_default();
    assert!(
        reason.contains("engine has now stopped during more than one session"),
        "{reason}"
    );
}

/// A failover: the server that the sessions are connected to takes no writes for longer than a lease. Nobody
/// closes the connections that were opened meanwhile.
#[tokio::test]
async fn a_session_waits_for_the_end_of_a_read_only_failover() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["consumer"]["max_attempts"] = 1.into();
    issues(&rig, 1).await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    let mut server = rig.sql().await.acquire().await.unwrap();
    let database: String = sqlx::query_scalar("SELECT current_database()")
        .fetch_one(&mut *server)
        .await
        .unwrap();
    let mut execute = async |sql: &str| {
        let query = sqlx::query(sqlx::AssertSqlSafe(sql.to_owned()));
        query.execute(&mut *server).await.unwrap();
    };
    let read_only = "SET default_transaction_read_only = on";
    execute(&format!("ALTER DATABASE {database} {read_only}")).await;
    let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                  WHERE datname = current_database() AND pid <> pg_backend_pid()";
    execute(others).await;
    rig.model.release();
    consumer.wait_for("no heartbeat for too long").await;
    // For longer than a lease.
    tokio::time::sleep(Duration::from_secs(6)).await;
    execute(&format!("ALTER DATABASE {database} RESET ALL")).await;
    rig.wait_ended(1).await;
    consumer.terminate();
    let (_, log) = consumer.end().await;
    assert_done_at_first_attempt(&rig.tasks().await, &log);
    let sessions = rig.sessions().await;
    assert_eq!(sessions.len(), 1, "{sessions:#?}\n{log}");
}

/// The relays in front of the services of a fleet.
struct Gates {
    model: Gate,
    store: Gate,
    broker: Gate,
}

impl Gates {
    /// Puts a relay in front of each service that the configuration names.
    async fn before(rig: &mut Rig) -> Self {
        Self {
            model: Gate::of_url(&mut rig.config["model"]["base_url"]).await,
            store: Gate::of_url(&mut rig.config["store"]["url"]).await,
            broker: Gate::of_url(&mut rig.config["queue"]["url"]).await,
        }
    }
}

/// One second here is a minute of a real fleet: a lease lasts 6 s here and 60 s there with heartbeats in
/// proportion, and each service is away for 10 s, longer than a lease and than a request is repeated.
async fn thirty_tasks_outlive_an_hour_of_outages_in_fast_motion(mut rig: Rig) {
    const TASKS: usize = 30;
    const AWAY: Duration = Duration::from_secs(10);
    let gates = Gates::before(&mut rig).await;
    rig.config["consumer"]["max_attempts"] = 1.into();
    rig.config["consumer"]["concurrency"] = 4.into();
    rig.config["model"]["retry_seconds"] = 3.into();
    issues(&rig, TASKS).await;
    let consumer = rig.spawn("consumer", &[]);
    let producer = rig.spawn("producer", &[]);
    let tracker = ForgeFault::on("*", "/api/v").times(usize::MAX);
    let git_host = ForgeFault::on("*", "/octo/demo.git/").times(usize::MAX);
    let mut round = 0;
    loop {
        // At work again between two outages.
        let ended = |tasks: &[Task]| {
            let ended = tasks
                .iter()
                .filter(|task| matches!(task.state, TaskState::Ended(_)));
            ended.count()
        };
        let before = ended(&rig.tasks().await);
        let more = before + 1;
        let tasks = rig
            .wait("another task to end", |tasks| {
                ended(tasks) >= more.min(TASKS)
            })
            .await;
        if ended(&tasks) == TASKS && round >= 5 {
            break;
        }
        match round % 5 {
            0 => gates.model.take_away(),
            1 => rig.forge.inject(tracker.clone().status(503)),
            2 => rig.forge.inject(git_host.clone().dropped()),
            3 => gates.broker.take_away(),
            _ => gates.store.take_away(),
        }
        // The outage itself is a length of time.
        tokio::time::sleep(AWAY).await;
        rig.forge.heal();
        for gate in [&gates.model, &gates.broker, &gates.store] {
            gate.give_back();
        }
        round += 1;
    }
    producer.terminate();
    consumer.terminate();
    producer.end().await;
    let (_, log) = consumer.end().await;
    let tasks = rig.tasks().await;
    assert_eq!(tasks.len(), TASKS);
    assert_done_at_first_attempt(&tasks, &log);
    assert_eq!(rig.forge.pulls(DEMO).len(), TASKS);
    let released = rig.sessions().await.into_iter();
    let released = released
        .filter(|it| it.end == Some(SessionEnd::Released))
        .count();
    assert!(released > 0, "no outage was noticed");
}

on_both_forges! { solves_demo() =>
    a_task_outlives_an_outage_of_the_tracker,
    a_task_outlives_an_outage_of_the_git_host,
    thirty_tasks_outlive_an_hour_of_outages_in_fast_motion,
}
