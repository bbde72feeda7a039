//! `agentmine store`: sizes, retention, and what follows a restore.

use super::World;

#[test]
fn the_store_shows_its_size_prunes_only_what_is_due_and_lifts_epochs_after_a_restore() {
    let world = World::new();
    world.shown(&["task", "add", "One"], 0);
    let sizes = world.json(&["store", "size"]);
    let tasks = sizes.as_array().unwrap().iter();
    let mut tasks = tasks.filter(|it| it["table"] == "tasks");
    assert_eq!(tasks.next().unwrap()["rows"], 1);
    let table = world.shown(&["store", "size"], 0);
    assert!(table.contains("TABLE") && table.contains("KiB"), "{table}");

    let due = world.json(&["store", "prune", "--dry-run"]);
    let due = due.as_array().unwrap();
    assert_eq!(due.len(), 9, "of each kind and outcome: {due:?}");
    assert!(due.iter().all(|it| it["rows"] == 0));
    let shown = world.shown(&["store", "prune", "--dry-run"], 0);
    assert!(shown.contains("Nothing was removed"), "{shown}");
    let removed = world.shown(&["store", "prune"], 0);
    assert_eq!(removed, "removed 0 checkpoints, 0 steps and 0 effects\n");

    let refused = world.shown(&["store", "restored"], 2);
    assert!(refused.contains("hint: add --yes"), "{refused}");
    let restored = world.shown(&["store", "restored", "--yes"], 0);
    let expected = "lifted the epochs of 0 tasks that are not over";
    assert!(
        restored.starts_with(expected),
        "a person's task: {restored}"
    );
}

#[test]
fn a_retention_that_would_remove_what_is_still_looked_at_is_refused() {
    let world = World::new();
    let config = "store: {retention: {effect_days: {done: 1}, journal_days: {failed: -3}}}\n";
    std::fs::write(world.project().join("config.yaml"), config).unwrap();
    let faults = world.shown(&["config", "check"], 3);
    assert!(
        faults.contains("store.retention.effect_days.done"),
        "{faults}"
    );
    assert!(faults.contains("at least 2, or 0 to keep"), "{faults}");
    assert!(
        faults.contains("store.retention.journal_days.failed"),
        "{faults}"
    );
}
