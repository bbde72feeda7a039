//! The manager with a server that does everything wrong (`tests/src/bin/faulty-mcp-server`): each mode
//! has a required outcome, a healthy server beside it keeps answering, the manager's memory stays
//! bounded, and no process is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agentmine_mcp::config::ServerPlace;
use agentmine_mcp::{
    Manager, ManagerPolicy, McpError, McpLimits, NoticeKind, ServerState, ToolOutput,
};
use agentmine_tests::mcp::{resident_kib, server};
use serde_json::json;
use tokio::time::timeout;

use super::rig;
use crate::rig::binary;

/// Time limits of the servers.
#[derive(Debug, Clone, Copy)]
struct Times {
    start: Duration,
    /// Without progress.
    call: Duration,
    total: Duration,
}

impl Times {
    /// Short where the mode ends at a limit. Elsewhere a limit only has to outlast a loaded machine.
    fn of(mode: &str, outcome: Outcome) -> Self {
        let mut times = Self {
            start: rig::PATIENCE / 2,
            call: rig::PATIENCE / 2,
            total: rig::PATIENCE / 2,
        };
        match (mode, outcome) {
            (_, Outcome::NeverReady(_, "5")) => times.start = Duration::from_secs(5),
            ("stops-reading" | "progress-for-ever", _)
            | (_, Outcome::Ends | Outcome::Fails(_, "no answer within", _)) => {
                times.call = Duration::from_secs(2);
                times.total = Duration::from_secs(4);
            }
            _ => {}
        }
        times
    }
}

/// How much this process's peak memory may grow, although the modes include a 40 MB line, 100 MB of
/// stderr and floods.
const MAX_GROWTH_KIB: u64 = 128 * 1024;

/// The required outcome of a mode.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    /// It never becomes ready: one of these codes and this text.
    NeverReady(&'static [&'static str], &'static str),
    /// It may become ready; if it does, `echo` works.
    Either(fn(&Manager)),
    /// Both tools work.
    Works,
    /// `fault` returns this text.
    Returns(&'static str),
    /// `fault` returns an error with this text.
    ReturnsError(&'static str),
    /// `fault` fails with one of these codes and this text; then `After` applies.
    Fails(&'static [&'static str], &'static str, After),
    /// `fault` succeeds or fails within the limit. Afterwards, `echo` works.
    Ends,
    /// Has a separate test.
    Separate,
}

/// What happens to a server whose call has failed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum After {
    /// `echo` still works, in the same process.
    WorksOn,
    /// It is restarted.
    Restarted,
}

const CONNECTION: &[&str] = &["mcp_connection_error"];
const PROCESS: &[&str] = &["mcp_process_error"];
const STARTED_WRONG: &[&str] = &[
    "mcp_connection_error",
    "mcp_process_error",
    "mcp_protocol_error",
];
const ENDED: &[&str] = &["mcp_process_error", "mcp_protocol_error"];
const TOOL: &[&str] = &["mcp_tool_execution_error"];

macro_rules! modes {
    ($($test:ident: $mode:literal => $outcome:expr,)*) => {
        const TESTED: &[&str] = &[$($mode),*];
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                run_mode($mode, $outcome).await;
            }
        )*
    };
}

modes! {
    healthy: "healthy" => Outcome::Works,
    silent_start: "silent-start" => Outcome::NeverReady(CONNECTION, "5"),
    exits_at_once: "exits-at-once" => Outcome::NeverReady(PROCESS, "exit code 0"),
    dies_with_words: "dies-with-words" => Outcome::NeverReady(PROCESS, "exit code 3"),
    dies_after_initialize: "dies-after-initialize" => Outcome::NeverReady(STARTED_WRONG, ""),
    refuses_initialize: "refuses-initialize" => Outcome::NeverReady(CONNECTION, "wrong phase"),
    null_initialize: "null-initialize" => Outcome::NeverReady(STARTED_WRONG, ""),
    unsupported_version: "unsupported-version" => Outcome::NeverReady(CONNECTION, "1999-12-31"),
    initialize_twice: "initialize-twice" => Outcome::Works,
    answers_unasked: "answers-unasked" => Outcome::Works,
    closes_on_discover: "closes-on-discover" => Outcome::Works,
    discover_nonsense: "discover-nonsense" => Outcome::Works,
    slow_everything: "slow-everything" => Outcome::Works,

    garbage: "garbage" => Outcome::Works,
    garbage_flood: "garbage-flood" => Outcome::NeverReady(STARTED_WRONG, "not the protocol"),
    half_a_line: "half-a-line" => Outcome::NeverReady(CONNECTION, "5"),
    dies_in_a_line: "dies-in-a-line" => Outcome::Fails(ENDED, "", After::Restarted),
    long_line: "long-line" => Outcome::Fails(ENDED, "line of more than", After::Restarted),
    endless_line: "endless-line" => Outcome::Fails(ENDED, "line of more than", After::Restarted),
    invalid_utf8: "invalid-utf8" => Outcome::Works,
    invalid_utf8_answer: "invalid-utf8-answer" => Outcome::Fails(&["mcp_protocol_error"], "not valid UTF-8", After::WorksOn),
    crlf: "crlf" => Outcome::Works,
    bom: "bom" => Outcome::Works,
    deep_nesting: "deep-nesting" => Outcome::Fails(ENDED, "within each other", After::Restarted),
    trickle: "trickle" => Outcome::Returns("at last"),
    closes_stdout: "closes-stdout" => Outcome::Fails(ENDED, "", After::Restarted),
    stderr_flood: "stderr-flood" => Outcome::Works,
    stops_reading: "stops-reading" => Outcome::Separate,

    endless_pages: "endless-pages" => Outcome::Either(bounded_list),
    same_cursor: "same-cursor" => Outcome::Either(bounded_list),
    malformed_tools: "malformed-tools" => Outcome::Separate,
    many_tools: "many-tools" => Outcome::Either(bounded_list),
    same_name_twice: "same-name-twice" => Outcome::Either(one_echo),
    gigantic_schema: "gigantic-schema" => Outcome::Either(small_schemas),
    recursive_schema: "recursive-schema" => Outcome::Works,
    gigantic_description: "gigantic-description" => Outcome::Separate,
    list_error: "list-error" => Outcome::Either(|_| ()),
    list_null: "list-null" => Outcome::Either(|_| ()),
    lies_about_capabilities: "lies-about-capabilities" => Outcome::Works,

    notification_storm: "notification-storm" => Outcome::Works,
    list_changed_storm: "list-changed-storm" => Outcome::Separate,
    malformed_notifications: "malformed-notifications" => Outcome::Works,
    description_change: "description-change" => Outcome::Separate,
    tools_vanish: "tools-vanish" => Outcome::Separate,
    request_flood: "request-flood" => Outcome::Fails(ENDED, "requests", After::Restarted),
    sampling_unasked: "sampling-unasked" => Outcome::Returns("\"error\""),
    elicits: "elicits" => Outcome::Separate,
    unknown_request: "unknown-request" => Outcome::Returns("-32601"),
    progress_for_ever: "progress-for-ever" => Outcome::Separate,

    wrong_id: "wrong-id" => Outcome::Fails(TOOL, "no answer within", After::WorksOn),
    string_id: "string-id" => Outcome::Returns("by a string"),
    float_id: "float-id" => Outcome::Ends,
    duplicate_answers: "duplicate-answers" => Outcome::Works,
    result_and_error: "result-and-error" => Outcome::Ends,
    null_result: "null-result" => Outcome::Ends,
    no_content: "no-content" => Outcome::Ends,
    malformed_content: "malformed-content" => Outcome::Ends,
    is_error: "is-error" => Outcome::ReturnsError("the disk is full"),
    json_rpc_error: "json-rpc-error" => Outcome::ReturnsError("no luck today"),
    huge_error: "huge-error" => Outcome::ReturnsError("eee"),
    huge_result: "huge-result" => Outcome::Returns("rrr"),
    output_schema_violated: "output-schema-violated" => Outcome::Separate,
    crash_mid_call: "crash-mid-call" => Outcome::Fails(ENDED, "", After::Restarted),
    ignores_cancellation: "ignores-cancellation" => Outcome::Fails(TOOL, "no answer within", After::WorksOn),

    ignores_eof: "ignores-eof" => Outcome::Works,
    ignores_sigterm: "ignores-sigterm" => Outcome::Works,
    leaves_a_child: "leaves-a-child" => Outcome::Works,
    daemon_holds_stdout: "daemon-holds-stdout" => Outcome::Fails(ENDED, "", After::Restarted),
}

#[test]
fn every_mode_of_the_faulty_server_has_a_test() {
    let list = std::process::Command::new(binary("faulty-mcp-server"))
        .arg("--list")
        .output()
        .unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let modes: Vec<&str> = list
        .lines()
        .filter_map(|line| line.split('\t').next())
        .collect();
    assert_eq!(modes, TESTED);
    assert!(modes.len() > 25, "{modes:?}");
}

async fn run_mode(mode: &str, outcome: Outcome) {
    let bench = Bench::start(mode, Times::of(mode, outcome)).await;
    let manager = &bench.manager;
    match outcome {
        Outcome::NeverReady(codes, words) => {
            let ServerState::Failed(error) = rig::status(manager, "faulty").state else {
                panic!("{:#?}", rig::status(manager, "faulty"));
            };
            assert_error(&error, codes, words);
            assert!(!manager.catalog().servers.contains_key("faulty"));
            if mode == "dies-with-words" {
                let stderr = manager.stderr("faulty").await;
                assert!(stderr.contains("flux capacitor"), "{stderr}");
            }
        }
        Outcome::Either(check) => {
            check(manager);
            if bench.offers("echo") {
                bench.echo().await;
            } else {
                let state = rig::status(manager, "faulty").state;
                assert!(
                    matches!(state, ServerState::Failed(_) | ServerState::Ready),
                    "{state:?}"
                );
            }
        }
        Outcome::Works => {
            bench.echo().await;
            let output = bench.fault().await.unwrap();
            assert_eq!((output.text.as_str(), output.is_error), ("no fault", false));
            bench.echo().await;
        }
        Outcome::Returns(words) => {
            let output = bench.fault().await.unwrap();
            assert!(
                !output.is_error && output.text.contains(words),
                "{}",
                start_of(&output)
            );
            assert!(
                output.text.len() <= McpLimits::default().max_output + 1000,
                "{}",
                output.text.len()
            );
            bench.echo().await;
        }
        Outcome::ReturnsError(words) => {
            let output = bench.fault().await.unwrap();
            assert!(
                output.is_error && output.text.contains(words),
                "{}",
                start_of(&output)
            );
            assert!(
                output.text.len() <= McpLimits::default().max_output + 1000,
                "{}",
                output.text.len()
            );
            bench.echo().await;
        }
        Outcome::Fails(codes, words, after) => {
            let before = rig::status(manager, "faulty");
            let began = Instant::now();
            let error = bench.fault().await.unwrap_err();
            let took = began.elapsed();
            assert_error(&error, codes, words);
            if after == After::Restarted {
                if mode != "long-line" && mode != "endless-line" && mode != "request-flood" {
                    assert!(took < bench.times.call / 2, "reported only after {took:?}");
                }
                rig::wait_for(manager, "faulty", "restarted", |s| {
                    s.state == ServerState::Ready && s.restarts > 0
                })
                .await;
                bench.manager.refresh().await;
            }
            bench.echo().await;
            let same = rig::status(manager, "faulty").pid == before.pid;
            assert_eq!(same, after == After::WorksOn, "{before:#?}");
        }
        Outcome::Ends => {
            let ended = bench.fault().await;
            if let Err(error) = ended {
                assert_error(
                    &error,
                    &["mcp_tool_execution_error", "mcp_protocol_error"],
                    "",
                );
            }
            bench.echo().await;
        }
        Outcome::Separate => bench.run_separate(mode).await,
    }
    bench.end().await;
}

fn assert_error(error: &McpError, codes: &[&str], words: &str) {
    assert!(codes.contains(&error.code()), "{}: {error}", error.code());
    assert!(error.to_string().contains(words), "{error}");
    assert!(error.to_string().len() < 4096, "{error}");
    assert!(!error.hint().is_empty());
}

fn start_of(output: &ToolOutput) -> String {
    output.text.chars().take(300).collect()
}

fn bounded_list(manager: &Manager) {
    let tools = manager
        .catalog()
        .servers
        .get("faulty")
        .map_or(0, |offer| offer.tools.len());
    assert!(tools <= 10_000, "{tools}");
}

fn one_echo(manager: &Manager) {
    let catalog = manager.catalog();
    let Some(offer) = catalog.servers.get("faulty") else {
        return;
    };
    let echoes = offer
        .tools
        .iter()
        .filter(|tool| tool.name == "echo")
        .count();
    assert!(echoes <= 1, "{:?}", offer.tools);
}

fn small_schemas(manager: &Manager) {
    let catalog = manager.catalog();
    let Some(offer) = catalog.servers.get("faulty") else {
        return;
    };
    for tool in &offer.tools {
        let size = tool.input_schema.to_string().len();
        assert!(size < 1 << 20, "{}: {size} bytes", tool.name);
    }
}

/// A manager with the faulty server and a healthy one, which is called continuously.
struct Bench {
    manager: Arc<Manager>,
    times: Times,
    mark: agentmine_tests::mcp::Mark,
    healthy: tokio::task::JoinHandle<u32>,
    stop: Arc<AtomicBool>,
    before: u64,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn start(mode: &str, times: Times) -> Self {
        // Measure the peak from here on.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        let before = resident_kib(std::process::id(), "VmHWM").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let program = binary("faulty-mcp-server").display().to_string();
        let entry = |name, mode: &str| server(name, ServerPlace::Worker, [program.as_str(), mode]);
        let mut faulty = entry("faulty", mode);
        faulty.timeout = times.call;
        faulty.max_restarts = Some(1);
        let policy = ManagerPolicy {
            limits: McpLimits {
                start: times.start,
                total: times.total,
                ..McpLimits::default()
            },
            ..rig::policy()
        };
        let began = Instant::now();
        let (manager, mark) =
            rig::start([faulty, entry("healthy", "healthy")], folder.path(), policy).await;
        // A repeated start has the full time limit again.
        assert!(
            began.elapsed() < times.start * 2 + Duration::from_secs(3),
            "started only after {:?}",
            began.elapsed()
        );
        rig::assert_ready(&manager, "healthy");
        let manager = Arc::new(manager);
        let stop = Arc::new(AtomicBool::new(false));
        let healthy = tokio::spawn(keep_calling(Arc::clone(&manager), Arc::clone(&stop)));
        Self {
            manager,
            times,
            mark,
            healthy,
            stop,
            before,
            _folder: folder,
        }
    }

    fn offers(&self, tool: &str) -> bool {
        self.manager.catalog().tool("faulty", tool).is_some()
    }

    async fn echo(&self) {
        let output = self
            .manager
            .call("faulty", "echo", json!({"text": "still here"}))
            .await;
        assert_eq!(
            output.map(|output| output.text),
            Ok("still here".to_owned())
        );
    }

    async fn fault(&self) -> Result<ToolOutput, McpError> {
        let call = self.manager.call("faulty", "fault", json!({}));
        timeout(self.times.total * 2, call)
            .await
            .expect("the call does not end")
    }

    /// The server's tools after the manager has processed changes.
    async fn refreshed(&self, is_so: impl Fn(&[agentmine_mcp::Tool]) -> bool) {
        let began = Instant::now();
        loop {
            let catalog = self.manager.refresh().await;
            let tools = catalog
                .servers
                .get("faulty")
                .map(|offer| offer.tools.as_slice());
            if is_so(tools.unwrap_or_default()) {
                return;
            }
            assert!(began.elapsed() < rig::PATIENCE, "{tools:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn run_separate(&self, mode: &str) {
        let manager = &self.manager;
        match mode {
            "stops-reading" => {
                let _ = self.fault().await.unwrap_err();
                let large = json!({"text": "x".repeat(4 << 20)});
                let began = Instant::now();
                let error = manager.call("faulty", "echo", large).await.unwrap_err();
                assert_error(&error, TOOL, "");
                assert!(
                    began.elapsed() < self.times.call * 5,
                    "{:?}",
                    began.elapsed()
                );
            }
            "malformed-tools" => {
                let catalog = manager.catalog();
                let offer = &catalog.servers["faulty"];
                let names: Vec<&str> = offer.tools.iter().map(|tool| tool.name.as_str()).collect();
                // A schema of another type, or a long name, may be repaired instead.
                assert!(
                    names.contains(&"echo") && names.contains(&"fault"),
                    "{names:?}"
                );
                assert!(offer.left_out.len() >= 6, "{:?}", offer.left_out);
                self.echo().await;
            }
            "gigantic-description" => {
                let catalog = manager.catalog();
                let tool = catalog.tool("faulty", "fault");
                let size = tool.map_or(0, |tool| tool.description.len());
                assert!(size < 64 * 1024, "{size}");
                self.echo().await;
            }
            "list-changed-storm" => {
                self.fault().await.unwrap();
                for _ in 0..10 {
                    manager.refresh().await;
                }
                let output = manager.call("faulty", "lists", json!({})).await.unwrap();
                let lists: u32 = output.text.parse().unwrap();
                assert!((1..=30).contains(&lists), "listed {lists} times");
            }
            "description-change" => {
                self.fault().await.unwrap();
                self.refreshed(|tools| tools.iter().all(|tool| tool.name != "fault"))
                    .await;
                let notices = manager.notices();
                assert!(
                    notices
                        .iter()
                        .any(|n| n.kind == NoticeKind::Changed && n.text.contains("fault")),
                    "{notices:#?}"
                );
                let refused = self.fault().await;
                assert!(refused.is_err() || refused.is_ok_and(|output| output.is_error));
                self.echo().await;
            }
            "tools-vanish" => {
                self.fault().await.unwrap();
                self.refreshed(|tools| tools.len() == 1).await;
                self.echo().await;
            }
            "elicits" => {
                let output = self.fault().await.unwrap();
                let refused = output.text.contains("decline") || output.text.contains("\"error\"");
                assert!(refused, "{}", output.text);
                self.echo().await;
            }
            "progress-for-ever" => {
                let began = Instant::now();
                let error = self.fault().await.unwrap_err();
                assert_error(&error, TOOL, "no answer within");
                let took = began.elapsed();
                assert!(
                    (self.times.call..self.times.total * 2).contains(&took),
                    "{took:?}"
                );
                self.echo().await;
            }
            "output-schema-violated" => {
                let output = self.fault().await.unwrap();
                assert!(
                    output.is_error || output.text.contains("outputSchema"),
                    "{output:?}"
                );
                self.echo().await;
            }
            _ => panic!("{mode} has no separate test"),
        }
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let calls = self.healthy.await.expect("the healthy server was harmed");
        assert!(calls > 0);
        let manager = Arc::into_inner(self.manager).unwrap();
        rig::end(manager, &self.mark).await;
        let highest = resident_kib(std::process::id(), "VmHWM").unwrap();
        let growth = highest.saturating_sub(self.before);
        assert!(growth < MAX_GROWTH_KIB, "grew by {growth} KiB");
    }
}

async fn keep_calling(manager: Arc<Manager>, stop: Arc<AtomicBool>) -> u32 {
    let mut calls = 0;
    loop {
        let call = manager.call("healthy", "echo", json!({"text": "well"}));
        let output = timeout(Duration::from_secs(5), call)
            .await
            .expect("it does not answer")
            .unwrap();
        assert_eq!(output.text, "well");
        calls += 1;
        if stop.load(Ordering::Relaxed) {
            return calls;
        }
        // Often, but not constantly, so that the other server gets its share of the machine.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
