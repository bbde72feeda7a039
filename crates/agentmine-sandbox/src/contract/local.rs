//! What only the local jails promise.

use super::*;

/// Both jails show the machine's certificates; what lies beside them stays unseen.
#[tokio::test]
async fn private_keys_of_the_machine_cannot_be_read() {
    for kind in [Kind::Namespaces, Kind::Alone] {
        let bench = bench(kind).await;
        let sandbox = bench.start().await;
        for folder in ["/etc/ssl/private", "/etc/pki/tls/private"] {
            let listed = sandbox.shell(&format!("ls {folder}")).await;
            assert_ne!(listed.exit_code, 0, "{kind:?}: {}", text(&listed.stdout));
            // Where the machine has some that this test may read, the sandbox must not.
            for key in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let read = sandbox
                    .shell(&format!("cat '{}'", key.path().display()))
                    .await;
                assert_ne!(read.exit_code, 0, "{kind:?}: {:?}", key.path());
            }
        }
        if std::path::Path::new("/etc/ssl/certs/ca-certificates.crt").exists() {
            sandbox
                .output("head -c 1 /etc/ssl/certs/ca-certificates.crt")
                .await;
        }
        sandbox.remove().await.unwrap();
    }
}

/// Without namespaces the terminals are the machine's, and other processes are the user's own.
#[tokio::test]
async fn without_namespaces_no_terminal_and_no_other_process_is_reached() {
    let bench = bench(Kind::Alone).await;
    let sandbox = bench.start().await;
    for line in ["ls /dev/pts", "exec 3<> /dev/ptmx", "head -c 0 /dev/tty"] {
        let result = sandbox.shell(line).await;
        assert!(
            text(&result.stderr).contains("Permission denied"),
            "{line}: {}",
            text(&result.stderr)
        );
    }
    sandbox
        .output("for d in zero random urandom; do head -c 1 /dev/$d > /dev/null; done")
        .await;
    // As root, which drops its capabilities, too: the scope refuses it, not the owner.
    let own = std::process::id();
    let signalled = sandbox.shell(&format!("kill -0 {own}")).await;
    assert!(
        text(&signalled.stderr).contains("not permitted"),
        "{}",
        text(&signalled.stderr)
    );
    sandbox.remove().await.unwrap();
}

/// Without namespaces they are those of the user's other processes, and of other jails.
#[tokio::test]
async fn without_namespaces_no_message_queue_is_opened() {
    let bench = bench(Kind::Alone).await;
    let sandbox = bench.start().await;
    let open = "python3 -c 'import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         opened = libc.mq_open(b\"/agentmine-contract\", os.O_RDWR | os.O_CREAT, 0o600, None)\n\
         print(opened, ctypes.get_errno())'";
    assert_eq!(sandbox.output(open).await, "-1 1");
    sandbox.remove().await.unwrap();
}

/// So a process of another fleet can remove a jail whose worker is gone.
#[tokio::test]
async fn it_shows_whether_the_worker_of_a_jail_lives() {
    for kind in [Kind::Namespaces, Kind::Alone] {
        let bench = bench(kind).await;
        let sandbox = bench.start().await;
        let name = sandbox.name().to_owned();
        assert_eq!(bench.found(&name).await.worker, WorkerState::Alive);
        // As the end of its worker would: nothing is removed.
        drop(sandbox);
        // A process that another test starts at this moment has the lock until it begins.
        while bench.found(&name).await.worker == WorkerState::Alive {
            tokio::task::yield_now().await;
        }
        let found = bench.found(&name).await;
        assert_eq!((found.worker, found.is_spare), (WorkerState::Gone, false));
        bench.backend.remove(&found).await.unwrap();
    }
}

/// Room that is missing when a process starts may be there for a later sandbox.
#[tokio::test]
async fn a_disk_without_room_is_reported_and_tried_again_for_each_jail() {
    if !crate::volume::is_root() {
        return;
    }
    let state = tempfile::tempdir_in(scratch()).unwrap();
    let mut config = CommandExecutor::default();
    config.docker.resources.disk_limit = "2t".parse().unwrap();
    config.local.accept_weaker_limits = true;
    let backend = LocalBackend::new(&config, state.path()).unwrap();
    let says = backend.disk_limit().await;
    for part in [
        "held by the kernel",
        "at present it has none: ",
        " MiB are free",
    ] {
        assert!(says.contains(part), "{says}");
    }
    let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
    sandbox.output("echo fine > file").await;
    sandbox.remove().await.unwrap();
}

fn limited(state: &std::path::Path) -> LocalBackend {
    let mut config = CommandExecutor::default();
    config.docker.resources.memory_limit = "200m".parse().unwrap();
    config.docker.resources.cpu_limit = 0.5;
    config.docker.pids_limit = 40;
    config.local.accept_weaker_limits = true;
    LocalBackend::new(&config, state).unwrap()
}

/// `/ready` asks every few seconds, also while tasks use all CPUs.
#[tokio::test]
async fn a_jail_without_namespaces_is_tried_once() {
    let folder = tempfile::tempdir_in(scratch()).unwrap();
    let state = folder.path().join("sandboxes");
    let backend = limited(&state).with_jail(Jail::Alone);
    backend.check().await.unwrap();
    assert_eq!(backend.list().await.unwrap().len(), 0);
    // No jail can be started there.
    std::fs::remove_dir_all(&state).unwrap();
    std::fs::write(&state, "").unwrap();
    backend.check().await.unwrap();
}

/// For root the kernel counts no processes but in a cgroup.
#[tokio::test]
async fn a_jail_of_root_without_a_cgroup_is_refused() {
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    for jail in [Jail::Namespaces, Jail::Alone] {
        let state = tempfile::tempdir_in(scratch()).unwrap();
        let backend = LocalBackend::new(&CommandExecutor::default(), state.path()).unwrap();
        let backend = backend.with_jail(jail).without_cgroups();
        let checked = backend.check().await.err();
        let started = backend.start(&spec(TaskId::new())).await.err();
        for error in [checked, started] {
            let why = error.unwrap().to_string();
            let hint = "command_executor.local.accept_weaker_limits: true";
            assert!(
                why.contains("none in this test") && why.contains(hint),
                "{why}"
            );
        }
        assert_eq!(backend.list().await.unwrap().len(), 0);
    }
}

fn is_root_with_cgroups() -> bool {
    // SAFETY: takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let probe = std::path::Path::new("/sys/fs/cgroup/pids/agentmine-test");
    let one = || std::fs::create_dir(probe).is_ok() && std::fs::remove_dir(probe).is_ok();
    let two = || {
        let controllers = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers");
        controllers.is_ok_and(|it| it.contains("memory"))
    };
    is_root && (one() || two())
}

const EAT: &str = "python3 -c 'x = bytearray(400 << 20); print(len(x))'; echo exit $?";
const FILL: &str =
    "python3 -c 'import time; x = b\"x\" * (400 << 20); time.sleep(20)'; echo not reached";
const SHARE: &str = "python3 -c 'import mmap, time\nx = mmap.mmap(-1, 400 << 20)\nfor _ in range(400): x.write(b\"x\" * (1 << 20))\ntime.sleep(20)'; echo not reached";
const FORK: &str = "python3 -c 'import os, time\nrunning = []\ntry:\n    for _ in range(100):\n        pid = os.fork()\n        if pid == 0: time.sleep(20)\n        running.append(pid)\nexcept OSError: pass\nprint(len(running))\nfor pid in running: os.kill(pid, 9)'";
/// Half a second of CPU time, and how long that takes.
const SPIN: &str = "python3 -c 'import time; b, c = time.time(), time.process_time()\nwhile time.process_time() - c < 0.5: pass\nprint(time.time() - b)'";

/// As root, or where systemd delegates a cgroup, in both jails.
#[tokio::test]
async fn cpu_memory_and_processes_are_limited_by_a_cgroup() {
    for jail in [Jail::Namespaces, Jail::Alone] {
        let state = tempfile::tempdir_in(scratch()).unwrap();
        let backend = limited(state.path()).with_jail(jail);
        let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
        let weaker = |warning: &String| warning.starts_with("the limits of this sandbox");
        if sandbox.warnings().iter().any(weaker) {
            // This machine has no cgroup for this user; the next test is about that.
            assert!(!is_root_with_cgroups(), "{:?}", sandbox.warnings());
            sandbox.remove().await.unwrap();
            return;
        }
        let ends_whole = |warning: &String| warning.contains("is ended as a whole");
        if !sandbox.warnings().iter().any(ends_whole) {
            let eaten = sandbox.shell(EAT).await;
            assert!(!text(&eaten.stdout).contains("419430400"), "{eaten:?}");
        }
        let forked = sandbox.shell(FORK).await;
        let running: u32 = text(&forked.stdout).trim().parse().unwrap_or(0);
        assert!(running < 40, "{forked:?}");
        let took: f64 = sandbox.output(SPIN).await.parse().unwrap();
        assert!(took > 0.8, "{took} s for 0.5 s of CPU time");
        assert_eq!(sandbox.output("echo alive").await, "alive");
        sandbox.remove().await.unwrap();
    }
}

#[tokio::test]
async fn without_a_cgroup_the_guest_watches_and_the_start_names_the_limits() {
    for jail in [Jail::Namespaces, Jail::Alone] {
        let state = tempfile::tempdir_in(scratch()).unwrap();
        let backend = limited(state.path()).with_jail(jail).without_cgroups();
        let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
        let warnings = sandbox.warnings().join("\n");
        for part in [
            "memory: 200 MiB, by a check",
            "processes: 40, by a check",
            "CPU: no limit",
        ] {
            assert!(warnings.contains(part), "{warnings}");
        }
        let exceeded = "bytes of memory and the limit is 209715200";
        // One process; one whose memory is shared; one that a program cannot map, which the kernel refuses.
        for line in [FILL, SHARE] {
            let filled = sandbox.shell(line).await;
            let (out, err) = (text(&filled.stdout), text(&filled.stderr));
            assert!(
                err.contains(exceeded) && !out.contains("not reached"),
                "{filled:?}"
            );
        }
        let nameless = sandbox
            .shell("python3 -c 'import os; os.memfd_create(\"x\")'")
            .await;
        assert!(
            text(&nameless.stderr).contains("Function not implemented"),
            "{nameless:?}"
        );
        // Three processes, each below the limit.
        let each = "python3 -c 'import time; x = bytearray(120 << 20); time.sleep(20)' &";
        let together = sandbox
            .shell(&format!("{each} {each} {each} wait; echo not reached"))
            .await;
        assert!(text(&together.stderr).contains(exceeded), "{together:?}");
        let forked = sandbox
            .shell("for i in $(seq 60); do sleep 20 & done; wait; echo not reached")
            .await;
        let (out, err) = (text(&forked.stdout), text(&forked.stderr));
        // As another user than root, the kernel refuses the processes first.
        let refused = err.contains("processes run in the sandbox and the limit is 40")
            || err.contains("fork");
        assert!(refused && !out.contains("not reached"), "{forked:?}");
        assert_eq!(sandbox.output("echo alive").await, "alive");
        sandbox.remove().await.unwrap();
    }
}

/// Their shadow is terabytes of memory that is mapped and never touched.
#[tokio::test]
async fn sanitizers_work_where_memory_is_watched() {
    const RACE: &str = "#include <pthread.h>\nstatic int x;\nstatic void *f(void *a) { x = 1; return a; }\n\
        int main(int n, char **a) { pthread_t t; pthread_create(&t, 0, f, 0); if (n > 1) x = 2; \
        pthread_join(t, 0); return 0; }";
    for jail in [Jail::Namespaces, Jail::Alone] {
        let state = tempfile::tempdir_in(scratch()).unwrap();
        let backend = limited(state.path()).with_jail(jail).without_cgroups();
        let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
        sandbox.write("race.c", RACE).await;
        for sanitizer in ["address", "thread"] {
            let build = format!("gcc -g -fsanitize={sanitizer} race.c -o {sanitizer} -pthread");
            sandbox.output(&build).await;
            sandbox.output(&format!("./{sanitizer}")).await;
        }
        // Of two writes at the very same moment it sees none.
        let race = sandbox
            .shell("for i in 1 2 3 4 5; do ./thread 1 || exit $?; done")
            .await;
        let found = text(&race.stderr).contains("WARNING: ThreadSanitizer: data race");
        assert!(found && race.exit_code == 66, "{race:?}");
        sandbox.remove().await.unwrap();
    }
}

#[tokio::test]
async fn nothing_of_a_cgroup_is_left_after_the_removal() {
    let state = tempfile::tempdir_in(scratch()).unwrap();
    let backend = limited(state.path());
    let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
    let name = sandbox.name().to_owned();
    let found = backend.list().await.unwrap();
    let found = found.into_iter().find(|found| found.name == name).unwrap();
    let record = state.path().join(&found.instance).join("sandbox.json");
    let record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
    let groups: Vec<std::path::PathBuf> = serde_json::from_value(record["groups"].clone()).unwrap();
    assert!(groups.iter().all(|group| group.exists()), "{groups:?}");
    sandbox
        .shell("(setsid sleep 300 < /dev/null > /dev/null 2>&1 &)")
        .await;
    sandbox.remove().await.unwrap();
    assert!(!groups.iter().any(|group| group.exists()), "{groups:?}");
}

/// A guest that a command killed takes everything with it, even where no namespace does.
#[tokio::test]
async fn nothing_survives_the_guest_without_namespaces() {
    let bench = bench(Kind::Alone).await;
    let sandbox = bench.start().await;
    let pid = sandbox
        .output("(setsid sleep 300 < /dev/null > /dev/null 2>&1 & echo $!)")
        .await;
    let pid: u32 = pid.parse().unwrap();
    let alive = || std::path::Path::new(&format!("/proc/{pid}/cmdline")).exists();
    assert!(alive());
    let killed = sandbox.run(shell("kill -9 $PPID; sleep 10")).await;
    assert!(matches!(killed, Err(SandboxError::Gone(_))), "{killed:?}");
    sandbox.gone().await;
    let deadline = Instant::now() + Duration::from_secs(10);
    while alive() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!alive());
    sandbox.remove().await.unwrap();
}

/// A worker that is killed while it starts a jail leaves a process that is not in the record: bubblewrap's child
/// waits for its parent for ever.
#[tokio::test]
async fn processes_of_a_start_that_was_cut_off_are_removed_with_the_jail() {
    for kind in [Kind::Namespaces, Kind::Alone] {
        let bench = bench(kind).await;
        let sandbox = bench.start().await;
        let found = bench.found(sandbox.name()).await;
        let mut orphan = tokio::process::Command::new("sleep")
            .arg("300")
            .env_clear()
            .env("AGENTMINE_SANDBOX", &found.instance)
            .spawn()
            .unwrap();
        bench.backend.remove(&found).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(5), orphan.wait()).await;
        assert!(ended.is_ok(), "{kind:?}: it still runs");
        sandbox.remove().await.unwrap();
    }
}

#[tokio::test]
async fn the_processes_of_a_jail_carry_its_mark_until_the_guest_begins() {
    for kind in [Kind::Namespaces, Kind::Alone] {
        let bench = bench(kind).await;
        let sandbox = bench.start().await;
        let found = bench.found(sandbox.name()).await;
        let mark = agentmine_process::Mark::of("AGENTMINE_SANDBOX", found.instance.clone());
        assert!(!mark.processes().is_empty(), "{kind:?}");
        let seen = sandbox.output("env").await;
        assert!(!seen.contains("AGENTMINE_SANDBOX"), "{kind:?}: {seen}");
        sandbox.remove().await.unwrap();
        assert_eq!(mark.processes(), [], "{kind:?}");
    }
}

/// Folders in each other exhaust the stack and the open files of a removal that follows them, and no path reaches
/// the last one.
#[tokio::test]
async fn whatever_a_jail_leaves_is_removed() {
    let nested = "perl -e 'for (1..5000) { mkdir \"d\" x 20; chdir \"d\" x 20 }'; \
                  mkdir -p closed/inner && touch closed/inner/x && chmod -R 000 closed; \
                  ln -s / root; ln -s nowhere broken; mkfifo pipe";
    for kind in [Kind::Namespaces, Kind::Alone] {
        let bench = bench(kind).await;
        let sandbox = bench.start().await;
        let done = sandbox.shell(nested).await;
        assert_eq!(done.exit_code, 0, "{kind:?}: {done:?}");
        let found = bench.found(sandbox.name()).await;
        sandbox.remove().await.unwrap();
        let left = bench.backend.list().await.unwrap();
        assert!(
            !left.iter().any(|it| it.instance == found.instance),
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn a_jail_starts_after_the_folder_of_all_jails_was_cleared() {
    for jail in [Jail::Namespaces, Jail::Alone] {
        let state = tempfile::tempdir_in(scratch()).unwrap();
        let folder = state.path().join("sandboxes");
        let backend = LocalBackend::new(&CommandExecutor::default(), &folder).unwrap();
        let backend = backend.with_jail(jail);
        std::fs::remove_dir_all(&folder).unwrap();
        let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
        sandbox.output("echo fine").await;
        sandbox.remove().await.unwrap();
    }
}
