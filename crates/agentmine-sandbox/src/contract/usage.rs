//! What sandboxes use is in the metrics of their worker, as long as they run.

use super::*;

contract![what_a_sandbox_uses_is_shown_while_it_runs];

/// 30 MB on disk; then a process with 60 MB of memory that uses two seconds of a core, beside one that sleeps.
const WORK: &str = "head -c 30M /dev/zero > file; sleep 60 & \
     exec python3 -c 'import time\nheld = b\"x\" * 60_000_000\n\
     while time.process_time() < 2: pass\ntime.sleep(60)'";

async fn what_a_sandbox_uses_is_shown_while_it_runs(bench: Bench) {
    let metrics = agentmine_runtime::metrics::install("test");
    crate::metrics::describe();
    let backend = match bench.kind {
        Kind::Docker => "docker",
        Kind::Namespaces | Kind::Alone => "local",
    };
    let shown = |name: &str| -> f64 {
        let series = format!("agentmine_{name}{{backend=\"{backend}\"}} ");
        let text = metrics.render();
        let value = text.lines().find_map(|line| line.strip_prefix(&series));
        let value = value.unwrap_or_else(|| panic!("{series} is not in\n{text}"));
        value.parse().unwrap()
    };
    let expected = [
        ("sandboxes_running", 1.0),
        ("sandbox_memory_bytes", 60e6),
        ("sandbox_cpu_seconds_total", 1.0),
        ("sandbox_processes", 2.0),
        ("sandbox_disk_bytes", 30e6),
    ];
    let before = expected.map(|(name, _)| shown(name));
    let sandbox = bench.start().await;
    let working = sandbox.run(shell(WORK));
    let seen = async {
        for ((name, least), before) in expected.into_iter().zip(before) {
            while shown(name) < before + least {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    tokio::select! {
        done = working => panic!("{done:?}"),
        () = seen => {}
        () = tokio::time::sleep(Duration::from_secs(25)) => panic!("{}", metrics.render()),
    }
    assert!(shown("sandbox_memory_bytes") < before[1] + 200e6);
    assert!(shown("sandbox_disk_bytes") < before[4] + 200e6);
    sandbox.remove().await.unwrap();
    drop(sandbox);
    // The time that was used stays.
    for name in [
        "sandboxes_running",
        "sandbox_memory_bytes",
        "sandbox_disk_bytes",
    ] {
        let at = expected.iter().position(|it| it.0 == name).unwrap();
        assert!(shown(name) <= before[at], "{name}: {}", shown(name));
    }
    assert!(shown("sandbox_cpu_seconds_total") >= before[2] + 1.0);
}
