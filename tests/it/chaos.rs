//! The chaos suite with fixed seeds (tests/README.md).

use std::collections::BTreeMap;
use std::time::Duration;

use agentmine_tests::chaos::{
    Plan, Rhythm, SandboxKind, Services, Setup, StoreKind, Table, binaries, run_seed, walk,
};

fn setup(store: StoreKind, sandbox: SandboxKind) -> Setup {
    Setup {
        store,
        sandbox,
        rhythm: Rhythm::FAST,
        consumers: 3,
        concurrency: 2,
        without: Vec::new(),
        binaries: binaries(),
    }
}

/// Runs the seeds; fails with the table and the list of faults of each seed that broke a promise. Returns the
/// faults that happened, by kind.
async fn assert_kept(setup: &Setup, arguments: &str, seeds: &[u64]) -> BTreeMap<String, usize> {
    let mut services = Services::start(setup.store, setup.sandbox).await.unwrap();
    let mut table = Table::default();
    let mut broken = Vec::new();
    let mut faults = BTreeMap::new();
    for &seed in seeds {
        let plan = Plan {
            seed,
            tasks: 12,
            faults: 16,
            length: Duration::from_secs(12),
            only: None,
        };
        let outcome = run_seed(setup, &mut services, &plan).await.unwrap();
        table.add(&outcome);
        faults.extend(outcome.faults);
        if !outcome.findings.is_empty() {
            let findings: Vec<_> = outcome.findings.iter().map(ToString::to_string).collect();
            broken.push(format!(
                "seed {seed}:\n  {}\nfaults:\n  {}\nhint: chaos shrink{arguments} --tasks 12 --faults 16 --seconds 12 --seed {seed}",
                findings.join("\n  "),
                outcome.list.join("\n  ")
            ));
        }
    }
    assert!(broken.is_empty(), "{}\n{table}", broken.join("\n"));
    faults
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_in_which_everything_fails_loses_and_doubles_nothing() {
    let setup = setup(StoreKind::Postgres, SandboxKind::Local);
    assert_kept(&setup, "", &[11, 12]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_share_one_sqlite_file_lose_and_double_nothing() {
    let setup = setup(StoreKind::Sqlite, SandboxKind::Local);
    assert_kept(&setup, " --store sqlite", &[3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_with_containers_loses_and_doubles_nothing() {
    let setup = setup(StoreKind::Postgres, SandboxKind::Docker);
    let faults = assert_kept(&setup, " --sandbox docker", &[5]).await;
    assert!(faults.contains_key("partition engine"), "{faults:?}");
    // Only root can start an engine that may be killed.
    // SAFETY: `geteuid` has no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    assert!(
        !is_root || faults.contains_key("engine restart"),
        "{faults:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a worker killed last leaves a git folder until the next one is made: nextest run --run-ignored only chaos::"]
async fn a_process_may_be_killed_at_every_failpoint() {
    let setup = setup(StoreKind::Postgres, SandboxKind::Local);
    let mut services = Services::start(setup.store, setup.sandbox).await.unwrap();
    let limit = Duration::from_secs(200);
    let outcome = walk(&setup, &mut services, 21, limit).await.unwrap();
    let findings: Vec<_> = outcome.findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    assert!(
        outcome.missed.is_empty(),
        "not killed at {:?}",
        outcome.missed
    );
}
