//! Ends, tokens and cost of the fleet in the metrics, against those of the database, after kills.

use agentmine_domain::{SessionEnd, TaskState, Usage};
use agentmine_tests::forge::DEMO;

use crate::endpoint::{free_address, get};
use crate::rig::{REQUEST, Rig, solves_demo};

const TASKS: usize = 6;
const KILLS: usize = 4;

/// The value of a series.
fn value(metrics: &str, series: &str) -> f64 {
    let mut lines = metrics.lines();
    let found = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let found = found.unwrap_or_else(|| panic!("{series} is not in\n{metrics}"));
    found.parse().unwrap()
}

/// The producer's metrics, read from the store after this call.
async fn fresh(address: &str) -> String {
    const READ: &str = "agentmine_figures_timestamp_seconds";
    let begun = std::time::Instant::now();
    let first = value(&get(address, "/metrics").await.1, READ);
    let mut turns = 0;
    let mut last = first;
    loop {
        let metrics = get(address, "/metrics").await.1;
        let read = value(&metrics, READ);
        turns += usize::from(read > last);
        last = read;
        // The first of them may have begun before this call.
        if turns == 2 {
            return metrics;
        }
        assert!(
            begun.elapsed().as_secs() < 90,
            "the figures are not read any more"
        );
        // Another process cannot await it.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn after_kills_ends_tokens_and_cost_in_the_metrics_are_those_of_the_database() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["model"]["input_price"] = 3.into();
    rig.config["model"]["cached_input_price"] = 1.into();
    rig.config["model"]["output_price"] = 15.into();
    for n in 0..TASKS {
        let title = format!("greet.sh greets nobody ({n})");
        rig.forge
            .add_issue(DEMO, &title, "It should greet.", &[REQUEST]);
    }
    let address = free_address();
    rig.config["http"]["listen"] = address.clone().into();
    let producer = rig.spawn("producer", &[]);
    producer.wait_for("serving /live").await;
    rig.config["http"] = serde_json::json!({});
    rig.config["consumer"]["max_attempts"] = (KILLS + 2).into();
    for _ in 0..KILLS {
        let before = rig.store.totals().await.unwrap().output_tokens;
        let consumer = rig.spawn("consumer", &[]);
        let begun = std::time::Instant::now();
        while rig.store.totals().await.unwrap().output_tokens <= before {
            assert!(begun.elapsed().as_secs() < 120, "{}", consumer.log());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        consumer.kill_nine();
        consumer.end().await;
    }
    let consumer = rig.spawn("consumer", &[]);
    let tasks = rig.wait_ended(TASKS).await;
    consumer.terminate();
    consumer.end().await;

    let metrics = fresh(&address).await;
    let sessions = rig.sessions().await;
    assert!(
        sessions
            .iter()
            .any(|it| it.end == Some(SessionEnd::Expired))
    );
    for end in SessionEnd::ALL {
        let name = end.as_str();
        let series = format!("agentmine_fleet_sessions_ended_total{{end=\"{name}\"}}");
        let found = sessions.iter().filter(|it| it.end == Some(*end)).count();
        assert_eq!(value(&metrics, &series), found as f64, "{sessions:#?}");
    }
    for state in ["done", "failed", "stopped"] {
        let series = format!("agentmine_fleet_tasks_over{{state=\"{state}\"}}");
        let is_so = |it: &&agentmine_domain::Task| it.state.as_str() == state;
        let found = tasks.iter().filter(is_so).count();
        assert_eq!(value(&metrics, &series), found as f64, "{tasks:#?}");
    }
    assert!(
        tasks
            .iter()
            .all(|it| matches!(it.state, TaskState::Ended(_)))
    );
    let mut used = Usage::default();
    sessions.iter().for_each(|session| used += session.usage);
    assert!(used.cost_micros > 0 && used.cached_tokens > 0, "{used:?}");
    for (direction, tokens) in [
        ("input", used.input_tokens - used.cached_tokens),
        ("cached_input", used.cached_tokens),
        ("output", used.output_tokens),
    ] {
        let series = format!("agentmine_fleet_tokens_total{{direction=\"{direction}\"}}");
        assert_eq!(value(&metrics, &series), tokens as f64, "{used:?}");
    }
    let cost = value(&metrics, "agentmine_fleet_cost_microdollars_total");
    assert_eq!(cost, used.cost_micros as f64);
    producer.terminate();
    let (status, log) = producer.end().await;
    assert!(status.success(), "{log}");
}
