//! The benchmarks: the short form, as CI runs it, and the table of other agents without the others.

use agentmine_tests::on_disk;
use tokio::process::Command;

use crate::rig::binary;

#[tokio::test]
async fn no_ratio_to_a_floor_got_worse_by_half() {
    passes(&["short"]).await;
}

/// Few repositories, no wait before answers, and little time in which nothing changes.
#[tokio::test]
async fn scans_of_many_repositories_meet_their_goals() {
    let size = ["--repositories", "60", "--items", "240", "--changes", "5"];
    let short = ["--wait", "0", "--idle", "10", "--check"];
    let args = [&["scan"][..], &size, &short];
    passes(&args.concat()).await;
}

async fn passes(args: &[&str]) {
    // The recorded ratios are those of sandboxes and floors on a disk.
    let folder = on_disk::folder().unwrap();
    let mut bench = Command::new(binary("bench"));
    bench.args(args).env("XDG_STATE_HOME", folder.path());
    bench.env("TMPDIR", folder.path());
    let out = bench.output().await.unwrap();
    let said = [&out.stdout, &out.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
    assert!(out.status.success(), "{}", said.concat());
}

#[tokio::test]
async fn other_agents_that_are_not_installed_are_not_in_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Command::new(binary("bench"));
    bench.args(["peers", "--agents", "least,local,pi", "--steps", "6"]);
    bench.args(["--rounds", "1", "--tasks", "2", "--at-once", "2"]);
    bench.arg("--installed").arg(folder.path());
    let out = bench.output().await.unwrap();
    let table = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{table}{out:?}");
    let row = |agent: &str| {
        let row = table.lines().find(|line| line.starts_with(agent));
        row.unwrap_or_else(|| panic!("no {agent}:\n{table}"))
    };
    // Each has made its edits, or its row would say that it is omitted.
    assert!(
        row("least a correct agent can do").contains("1.0x"),
        "{table}"
    );
    assert!(row("AgentMine, local jail").contains(" MB "), "{table}");
    assert!(
        row("pi").contains("left out: ") && row("pi").contains("npm install"),
        "{table}"
    );
}
