//! What `deploy/compose.yaml` promises about a stop and about the consumer's files. `.ci/run` has Compose read it.

use std::path::Path;

/// The part of the consumer, and the number of seconds at a key of the configuration.
fn deployed() -> (String, impl Fn(&str) -> u64) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let (compose, config) = (read("compose.yaml"), read("config.yaml"));
    let (_, consumer) = compose.split_once("\n  consumer:\n").unwrap();
    let (consumer, _) = consumer.split_once("\n\n").unwrap();
    let seconds = move |key: &str| {
        let mut lines = config.lines();
        let value = lines.find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "));
        value.unwrap().parse().unwrap()
    };
    (consumer.to_owned(), seconds)
}

#[test]
fn a_consumer_has_time_to_hand_its_tasks_over() {
    let (consumer, seconds) = deployed();
    let mut lines = consumer.lines();
    let grace = lines.find_map(|line| line.trim().strip_prefix("stop_grace_period: "));
    let grace: u64 = grace.unwrap().strip_suffix('s').unwrap().parse().unwrap();
    let drain = seconds("drain_seconds");
    assert!(grace >= drain + 90, "{grace} s for a drain of {drain} s");
}

#[test]
fn a_consumer_can_write_to_the_home_of_its_image() {
    let (consumer, _) = deployed();
    assert!(consumer.contains("- home:/home/agentmine\n"), "{consumer}");
    // A list of its own replaces the common one.
    let config = "- ./config.yaml:/etc/agentmine/config.yaml:ro\n";
    assert!(consumer.contains(config), "{consumer}");
}
