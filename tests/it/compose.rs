//! What the Compose files of `deploy` promise about a stop, about the consumer's files, about its engine and about logs.
//! `.ci/run` has Compose read them.

use std::path::Path;

/// The part of a program, and the number of seconds at a key of the configuration.
fn deployed(program: &str) -> (String, impl Fn(&str) -> u64) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let (compose, config) = (read("compose.yaml"), read("config.yaml"));
    let (_, part) = compose.split_once(&format!("\n  {program}:\n")).unwrap();
    let (part, _) = part.split_once("\n\n").unwrap();
    let seconds = move |key: &str| {
        let mut lines = config.lines();
        let value = lines.find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "));
        value.unwrap().parse().unwrap()
    };
    (part.to_owned(), seconds)
}

#[test]
fn a_consumer_has_time_to_hand_its_tasks_over_and_a_producer_to_end_its_scan() {
    for (program, after_drain) in [("consumer", 90), ("producer", 1)] {
        let (part, seconds) = deployed(program);
        let mut lines = part.lines();
        let grace = lines.find_map(|line| line.trim().strip_prefix("stop_grace_period: "));
        let grace: u64 = grace.unwrap().strip_suffix('s').unwrap().parse().unwrap();
        let drain = seconds("drain_seconds");
        assert!(
            grace >= drain + after_drain,
            "{program}: {grace} s for a drain of {drain} s"
        );
    }
}

/// That of rootless Docker is in a folder of its user.
#[test]
fn the_socket_of_the_engine_may_be_elsewhere() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let text = std::fs::read_to_string(folder.join("compose.docker-socket.yaml")).unwrap();
    let mount = "- ${DOCKER_SOCKET:-/var/run/docker.sock}:/var/run/docker.sock\n";
    assert!(text.contains(mount), "{text}");
}

#[test]
fn a_consumer_can_write_to_the_home_of_its_image() {
    let (consumer, _) = deployed("consumer");
    assert!(consumer.contains("- home:/home/agentmine\n"), "{consumer}");
    // A list of its own replaces the common one.
    let config = "- ./config.yaml:/etc/agentmine/config.yaml:ro\n";
    assert!(consumer.contains(config), "{consumer}");
}

#[test]
fn the_repositories_of_a_consumer_are_not_in_memory() {
    let (consumer, _) = deployed("consumer");
    assert!(consumer.contains("- tmp:/tmp\n"), "{consumer}");
    assert!(consumer.contains("tmpfs: []\n"), "{consumer}");
}

/// Docker keeps the whole output of a container otherwise.
#[test]
fn the_log_of_each_service_is_limited() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/compose.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let (shared, services) = text.split_once("\nservices:\n").unwrap();
    let (services, _) = services.split_once("\nvolumes:\n").unwrap();
    for expected in ["max-size: ", "max-file: ", "\n  logging: *logging\n"] {
        assert!(shared.contains(expected), "{expected}");
    }
    let names = |line: &&str| {
        let name = line.strip_prefix("  ").and_then(|it| it.strip_suffix(':'));
        name.is_some_and(|it| !it.starts_with([' ', '#']))
    };
    let limited = |line: &&str| {
        let line = line.trim();
        line == "logging: *logging" || line == "<<: *agentmine"
    };
    let names = services.lines().filter(names).count();
    assert!(names >= 8, "{names} services");
    assert_eq!(services.lines().filter(limited).count(), names);
}
