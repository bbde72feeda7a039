//! The disk limit: held by the kernel where the worker can make file systems, watched by the guest elsewhere.

use super::*;
use crate::volume::is_root;

/// Ways around a limit that only walks over folders. Each ends with an error where the kernel holds the limit, and
/// waits for the guest's watch otherwise.
const HIDDEN: &[&str] = &[
    "perl -e 'for (1..300) { mkdir \"d\" x 20; chdir \"d\" x 20 } \
     open F, \">f\" or die; for (1..60) { print F \"x\" x 1000000 or die } close F or die; sleep 20'",
    "exec 3> gone; rm gone; head -c 60M /dev/zero >&3 && sleep 20",
    "mkdir closed; cd closed; chmod 000 .; exec 3> /dev/null; cd ..; \
     chmod 700 closed; head -c 60M /dev/zero > closed/x; ended=$?; chmod 000 closed; test $ended = 0 && sleep 20",
    "python3 -c 'import ctypes, os, time\nctypes.CDLL(None).prctl(4, 0)\n\
     f = os.open(\"s\", os.O_RDWR | os.O_CREAT)\nos.unlink(\"s\")\n\
     for _ in range(60): assert os.write(f, b\"x\" * (1 << 20)) == 1 << 20\ntime.sleep(30)'",
    "mkdir many; cd many; seq 4000 | xargs touch && sleep 20",
    "sh -c 'head -c 60M /dev/zero > \"$0\"' \"$HOME/left\" && sleep 20",
];

/// Only the guest can kill for this one: the kernel ends the program with a signal.
const MAPPED: &str = "python3 -c 'import mmap, os, time\nf = os.open(\"m\", os.O_RDWR | os.O_CREAT)\n\
     os.ftruncate(f, 60 << 20)\nm = mmap.mmap(f, 60 << 20)\nos.close(f)\nos.unlink(\"m\")\n\
     m[:] = b\"x\" * (60 << 20)\nm.flush()\ntime.sleep(30)'";

/// A limit that no other test has, so that its devices are found.
fn odd_limit() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    // Tests are processes of their own, or threads of one.
    (24 << 20) + (u64::from(std::process::id()) % 1000) * 4096 + next * (8 << 20)
}

/// How many block devices of this size have a file without a name behind them.
fn devices_of(size: u64) -> usize {
    let all = std::fs::read_dir("/sys/block").unwrap().flatten();
    all.filter(|device| {
        let read = |name: &str| std::fs::read_to_string(device.path().join(name));
        let sectors = read("size").unwrap_or_default();
        read("loop/backing_file").is_ok_and(|file| file.trim().ends_with("(deleted)"))
            && sectors.trim() == (size / 512).to_string()
    })
    .count()
}

/// The backend with this limit.
pub(super) async fn limited(kind: Kind, limit: u64, state: &std::path::Path) -> Box<dyn Backend> {
    let mut config = docker_config();
    config.docker.resources.disk_limit = limit.to_string().parse().unwrap();
    config.local.accept_weaker_limits = true;
    let jail = match kind {
        Kind::Docker => {
            let backend = DockerBackend::connect(&config).await;
            return Box::new(backend.unwrap_or_else(|err| panic!("{err}\nrun tests/run")));
        }
        Kind::Namespaces => Jail::Namespaces,
        Kind::Alone => Jail::Alone,
    };
    let backend = LocalBackend::new(&config, state).unwrap();
    Box::new(backend.with_jail(jail))
}

/// Only root can make file systems; for others the guest watches, which the tests below try.
async fn the_kernel_holds_it(kind: Kind) {
    if !is_root() {
        return;
    }
    let state = tempfile::tempdir_in(scratch()).unwrap();
    let limit = odd_limit();
    let backend = limited(kind, limit, state.path()).await;
    let says = backend.disk_limit().await;
    assert!(says.contains("held by the kernel"), "{says}");
    let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
    assert_eq!(devices_of(limit), 1);
    assert_eq!(sandbox.output("ls -A ..").await, "project\ntmp");
    let megabytes = sandbox.output("df --output=size -BM . | tail -n 1").await;
    let megabytes: u64 = megabytes.trim_end_matches('M').trim().parse().unwrap();
    assert!(
        (10..=limit.div_ceil(1 << 20)).contains(&megabytes),
        "{megabytes}"
    );
    for line in HIDDEN {
        let began = Instant::now();
        let result = sandbox
            .shell(&format!("({line}) && echo not reached"))
            .await;
        assert_eq!(text(&result.stdout), "", "{line}: {}", text(&result.stderr));
        assert!(!text(&result.stderr).contains("[killed"), "{line}");
        assert!(began.elapsed() < Duration::from_secs(18), "{line}");
        // What was written can be deleted, and the next command works.
        sandbox
            .output("chmod -R u+rwx . 2> /dev/null; rm -rf ../project/* ../tmp/home/left; echo fine > file")
            .await;
    }
    let mapped = sandbox
        .shell(&format!("{MAPPED} && echo not reached"))
        .await;
    assert_eq!(text(&mapped.stdout), "");
    sandbox.remove().await.unwrap();
    none_is_left(limit).await;
}

/// The device ends with its last user, a moment after it.
async fn none_is_left(limit: u64) {
    let until = Instant::now() + Duration::from_secs(20);
    while devices_of(limit) > 0 {
        assert!(Instant::now() < until, "a device is left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_kernel_holds_the_limit_of_a_container() {
    the_kernel_holds_it(Kind::Docker).await;
}

#[tokio::test]
async fn the_kernel_holds_the_limit_of_a_jail() {
    the_kernel_holds_it(Kind::Namespaces).await;
}

#[tokio::test]
async fn the_kernel_holds_the_limit_of_a_jail_without_namespaces() {
    the_kernel_holds_it(Kind::Alone).await;
}

/// What a worker that was killed left is removed by another, which has the folder alone.
#[tokio::test]
async fn the_file_system_of_a_jail_whose_worker_died_is_removed() {
    if !is_root() {
        return;
    }
    let state = tempfile::tempdir_in(scratch()).unwrap();
    let limit = odd_limit();
    let backend = limited(Kind::Namespaces, limit, state.path()).await;
    let sandbox = backend.start(&spec(TaskId::new())).await.unwrap();
    let name = sandbox.name().to_owned();
    sandbox.end_saving();
    // Its worker never removes it.
    std::mem::forget(sandbox);
    let other = limited(Kind::Namespaces, limit, state.path()).await;
    let found = other.list().await.unwrap();
    let found = found.into_iter().find(|found| found.name == name).unwrap();
    other.remove(&found).await.unwrap();
    assert!(other.list().await.unwrap().is_empty());
    none_is_left(limit).await;
}

#[tokio::test]
async fn a_command_that_fills_the_disk_is_killed_with_the_reason() {
    let state = tempfile::tempdir_in(scratch()).unwrap();
    let mut config = CommandExecutor::default();
    config.docker.resources.disk_limit = "20m".parse().unwrap();
    let backend = LocalBackend::new(&config, state.path()).unwrap();
    let backend = backend.without_volumes();
    let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
    let result = sandbox
        .shell("head -c 60M /dev/zero > big; sleep 20; echo not reached")
        .await;
    assert_eq!(text(&result.stdout), "");
    assert!(
        text(&result.stderr).contains("the limit is 20971520"),
        "{}",
        text(&result.stderr)
    );
    // What frees space may run.
    sandbox.output("sleep 1; rm big; sleep 1").await;
    sandbox.output("sleep 1; echo fine").await;
    sandbox.remove().await.unwrap();
}

/// The guest counts what is hidden, and takes what it cannot count for the sandbox's.
#[tokio::test]
async fn what_is_written_in_hidden_places_counts_to_the_watched_limit() {
    let left = "(cd /; exec setsid sh -c 'head -c 60M /dev/zero > \"$0\"; sleep 60' \"$HOME/left\" \
                > /dev/null 2>&1 < /dev/null &) ; sleep 20";
    let state = tempfile::tempdir_in(scratch()).unwrap();
    let mut config = CommandExecutor::default();
    config.docker.resources.disk_limit = "20m".parse().unwrap();
    let backend = LocalBackend::new(&config, state.path()).unwrap();
    let backend = backend.without_volumes();
    for line in HIDDEN.iter().chain([&MAPPED, &left]) {
        let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
        let result = sandbox.shell(&format!("{line}; echo not reached")).await;
        let why = text(&result.stderr);
        assert!(
            why.contains("[killed: ") && why.contains("delete something"),
            "{line}: {why}"
        );
        assert_eq!(text(&result.stdout), "", "{line}");
        sandbox.remove().await.unwrap();
    }
}
