//! The chaos suite with fixed seeds, one fresh seed, and a kill at every failpoint (tests/README.md).

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agentmine_tests::chaos::{
    ForgeKind, GUARDS, Outcome, Plan, Rhythm, SandboxKind, Services, Setup, StoreKind, Table,
    binaries, notice, run_seed, walk,
};

fn setup(store: StoreKind, sandbox: SandboxKind) -> Setup {
    Setup {
        forge: ForgeKind::Github,
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
        let outcome = run_seed(setup, &mut services, &Plan::of(seed))
            .await
            .unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
        table.add(&outcome);
        faults.extend(outcome.faults.clone());
        if !outcome.findings.is_empty() {
            broken.push(format!(
                "{}\nhint: chaos shrink{arguments} --tasks 12 --faults 16 --seconds 12 --seed {seed}",
                described(&outcome)
            ));
        }
    }
    assert!(broken.is_empty(), "{}\n{table}", broken.join("\n"));
    faults
}

fn described(outcome: &Outcome) -> String {
    let findings: Vec<_> = outcome.findings.iter().map(ToString::to_string).collect();
    format!(
        "seed {}:\n  {}\nfaults:\n  {}",
        outcome.seed,
        findings.join("\n  "),
        outcome.list.join("\n  ")
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_in_which_everything_fails_loses_and_doubles_nothing() {
    let setup = setup(StoreKind::Postgres, SandboxKind::Local);
    assert_kept(&setup, "", &[11, 12]).await;
}

/// A seed of this run of the tests alone. A repetition of the test within the run has the same seed.
fn fresh_seed() -> u64 {
    if let Ok(run) = std::env::var("NEXTEST_RUN_ID") {
        let digits: String = run.chars().filter(char::is_ascii_hexdigit).collect();
        if let Ok(seed) = u64::from_str_radix(digits.get(..8).unwrap_or_default(), 16) {
            return seed;
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_seed_loses_and_doubles_nothing() {
    let seed = fresh_seed();
    println!("fresh seed {seed}");
    let setup = setup(StoreKind::Postgres, SandboxKind::Local);
    assert_kept(&setup, "", &[seed]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_share_one_sqlite_file_lose_and_double_nothing() {
    let setup = setup(StoreKind::Sqlite, SandboxKind::Local);
    assert_kept(&setup, " --store sqlite", &[3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_on_gitlab_loses_and_doubles_nothing() {
    let setup = Setup {
        forge: ForgeKind::Gitlab,
        ..setup(StoreKind::Postgres, SandboxKind::Local)
    };
    assert_kept(&setup, " --forge gitlab", &[6]).await;
}

/// The bridges of the machine, which other engines use.
fn bridges() -> Vec<String> {
    let interfaces = std::fs::read_dir("/sys/class/net").unwrap();
    let interfaces = interfaces.map(|it| it.unwrap());
    let bridges = interfaces.filter(|it| it.path().join("bridge").exists());
    let mut names: Vec<_> = bridges
        .map(|it| it.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Nor does the engine of the suite change anything for another one of the machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_with_containers_loses_and_doubles_nothing() {
    let setup = setup(StoreKind::Postgres, SandboxKind::Docker);
    let before = bridges();
    let faults = assert_kept(&setup, " --sandbox docker", &[5]).await;
    assert_eq!(bridges(), before);
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
async fn a_process_may_be_killed_at_every_failpoint() {
    let setup = setup(StoreKind::Postgres, SandboxKind::Local);
    let mut services = Services::start(setup.store, setup.sandbox).await.unwrap();
    // It takes two minutes on an idle machine.
    let limit = Duration::from_secs(240);
    let outcome = walk(&setup, &mut services, 21, limit).await.unwrap();
    let findings: Vec<_> = outcome.findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    assert!(
        outcome.missed.is_empty(),
        "not killed at {:?}",
        outcome.missed
    );
}

/// Seeds at most until a protection that is switched off is noticed. Of four in a row each begins another scenario.
const SEEDS: u64 = 12;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "many seeds: nextest run --run-ignored only each_guard"]
async fn each_guard_that_is_switched_off_is_noticed() {
    let setup = setup(StoreKind::Postgres, SandboxKind::Local);
    let mut services = Services::start(setup.store, setup.sandbox).await.unwrap();
    let mut table = Vec::new();
    let mut missed = Vec::new();
    for guard in GUARDS {
        let noticed = notice(&setup, &mut services, guard, 1..1 + SEEDS)
            .await
            .unwrap();
        if noticed.findings.is_empty() {
            missed.push(guard);
        }
        table.push(noticed.to_string());
        println!("{noticed}");
    }
    assert!(missed.is_empty(), "{}", table.join("\n"));
}
