//! Traces, received by a real collector (rotel), and what a collector that is away costs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agentmine_runtime::metrics::{self, Metrics};
use agentmine_runtime::trace::{self, SpanContext, SpanKind};
use agentmine_tests::model::{Scenario, commit_and_push, edit_replace, say, shell};

use crate::endpoint::{free_address, get};
use crate::rig::{Rig, assert_done, solves_demo};

/// A collector that writes what it receives to a file.
struct Collector {
    process: Child,
    address: String,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

impl Collector {
    async fn start() -> Self {
        let program = std::env::var("AGENTMINE_TEST_COLLECTOR")
            .expect("AGENTMINE_TEST_COLLECTOR, which tests/run sets: the program rotel-agent");
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let (address, grpc) = (free_address(), free_address());
        let output = std::fs::File::create(&log).unwrap();
        let process = Command::new(program)
            .args(["start", "--otlp-http-endpoint", &address])
            .args(["--otlp-grpc-endpoint", &grpc])
            .args(["--exporter", "blackhole"])
            .args(["--debug-log", "traces", "--debug-log-verbosity", "detailed"])
            .env("NO_COLOR", "1")
            .current_dir(folder.path())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let collector = Self {
            process,
            address,
            log,
            _folder: folder,
        };
        let begun = Instant::now();
        while tokio::net::TcpStream::connect(&collector.address)
            .await
            .is_err()
        {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{}",
                collector.log()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        collector
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// The spans that arrived until one of this name did, for so many sessions.
    async fn spans(&self, name: &str, count: usize) -> Vec<Span> {
        let begun = Instant::now();
        loop {
            let spans = parse(&self.log());
            if spans
                .iter()
                .filter(|span| span.name.starts_with(name))
                .count()
                >= count
            {
                return spans;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "no {count} spans {name} in\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Debug, Default, Clone)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    name: String,
    attributes: BTreeMap<String, String>,
}

fn parse(log: &str) -> Vec<Span> {
    let mut spans = Vec::new();
    for part in log.split("\nSpan #").skip(1) {
        let mut span = Span::default();
        for line in part.lines() {
            if line.starts_with("Resource") || line.starts_with("ScopeSpans") {
                break;
            }
            if let Some(attribute) = line.trim().strip_prefix("-> ") {
                let (name, value) = attribute.split_once(": ").unwrap();
                span.attributes.insert(name.to_owned(), value.to_owned());
            } else if let Some((key, value)) = line.split_once(':') {
                let value = value.trim().to_owned();
                match key.trim() {
                    "Trace ID" => span.trace = value,
                    "ID" => span.id = value,
                    "Parent ID" => span.parent = value,
                    "Name" => span.name = value,
                    _ => {}
                }
            }
        }
        spans.push(span);
    }
    spans
}

/// From the scan over a worker that dies to the end by another one.
#[tokio::test]
async fn a_task_is_one_trace_over_scan_sessions_and_takeover_without_its_content() {
    let collector = Collector::start().await;
    let slow = Scenario::new("solves the sample").replies([
        shell("sleep 3; sh test.sh"),
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        say("`greet.sh` greets its argument."),
    ]);
    let mut rig = Rig::local(slow).await;
    rig.config["traces"]["endpoint"] = format!("http://{}", collector.address).into();
    rig.config["log"]["format"] = "json".into();
    rig.label_issue();
    let (status, log) = rig.spawn("producer", &["--once"]).end().await;
    assert!(status.success(), "{log}");
    let task = rig.tasks().await.remove(0);
    let trace = task.id.0.simple().to_string();
    assert!(log.contains(&format!("\"trace.id\":\"{trace}\"")), "{log}");
    // The worker dies in its first command, after its first model call was sent.
    let dying = rig.spawn("consumer", &[]);
    collector.spans("chat ", 1).await;
    dying.kill_nine();
    let (_, log) = dying.end().await;
    assert!(log.contains(&format!("\"trace.id\":\"{trace}\"")), "{log}");
    let consumer = rig.spawn("consumer", &[]);
    let tasks = rig.wait_ended(1).await;
    assert_done(&tasks[0]);
    consumer.terminate();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{log}");

    let spans = collector.spans("invoke_agent", 1).await;
    let of = |name: &str| {
        spans
            .iter()
            .filter(|span| span.name.starts_with(name))
            .collect::<Vec<_>>()
    };
    let (root, sessions) = (of("enqueue_task"), of("invoke_agent"));
    assert_eq!((root.len(), sessions.len()), (1, 1), "{spans:#?}");
    assert_eq!(root[0].parent, "");
    let session = sessions[0];
    assert_eq!(session.parent, root[0].id);
    assert_eq!(
        session.attributes["agentmine.session.takes_over"],
        "Bool(true)"
    );
    assert_eq!(
        session.attributes["gen_ai.operation.name"],
        "Str(invoke_agent)"
    );
    let chats = of("chat ");
    assert!(!chats.is_empty());
    for chat in &chats {
        assert_eq!(chat.attributes["gen_ai.operation.name"], "Str(chat)");
        assert!(
            chat.attributes.contains_key("gen_ai.usage.input_tokens"),
            "{chat:?}"
        );
    }
    let tools = of("execute_tool ");
    assert!(
        tools
            .iter()
            .any(|it| it.attributes["gen_ai.tool.name"] == "Str(command)"),
        "{tools:?}"
    );
    assert_eq!(of("verifying").len(), 1);
    let traces: BTreeSet<&str> = spans.iter().map(|span| span.trace.as_str()).collect();
    assert_eq!(traces, [trace.as_str()].into());
    // What both sessions did has a session as its parent; the span of the killed one never ended.
    let parents: BTreeSet<&str> = chats.iter().map(|span| span.parent.as_str()).collect();
    assert_eq!(parents.len(), 2, "{chats:#?}");
    assert!(parents.contains(session.id.as_str()));
    let received = collector.log();
    for content in ["greet", "hello", "Fix the", "sh test.sh", "octo"] {
        assert!(!received.contains(content), "{content} is in\n{received}");
    }
}

/// Nothing listens, and an address that swallows what is sent.
#[tokio::test]
async fn a_collector_that_is_away_stops_no_session_and_its_losses_are_counted() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    for endpoint in [free_address(), silent.local_addr().unwrap().to_string()] {
        let mut rig = Rig::local(solves_demo()).await;
        rig.config["traces"]["endpoint"] = format!("http://{endpoint}").into();
        let metrics = free_address();
        rig.config["http"]["listen"] = metrics.clone().into();
        rig.label_issue();
        let (status, log) = rig.spawn("producer", &["--once"]).end().await;
        assert!(status.success(), "{log}");
        let consumer = rig.spawn("consumer", &[]);
        let tasks = rig.wait_ended(1).await;
        assert_done(&tasks[0]);
        let begun = Instant::now();
        loop {
            let text = get(&metrics, "/metrics").await.1;
            let lost = text
                .lines()
                .find_map(|line| {
                    line.strip_prefix("agentmine_trace_spans_total{outcome=\"not_taken\"} ")
                })
                .expect("it exists at zero");
            if lost != "0" {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{text}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        consumer.terminate();
        let (status, log) = consumer.end().await;
        assert!(status.success(), "{log}");
        let warned = log.matches("the collector accepts no traces").count();
        assert_eq!(warned, 1, "once for each outage: {log}");
    }
}

/// Steps of a session that is faster than any collector.
const STEPS: usize = 20_000;
/// Spans of a step: one of the model's call, one of the tool's.
const SPANS: u64 = 2 * STEPS as u64;
/// Spans that may wait or be on their way: the queue, and two requests.
const WAITING: u64 = 2048 + 2 * 256;

/// Ends the spans of all steps, and returns what the steps took, in order of their length.
fn traced_steps() -> Vec<Duration> {
    let session = SpanContext::of_session(1, 1);
    let step = |_| {
        let begun = Instant::now();
        let mut chat = trace::Span::below(session, "chat scripted", SpanKind::Client);
        chat.set("gen_ai.operation.name", "chat");
        chat.set("gen_ai.usage.input_tokens", 1000_u64);
        drop(chat);
        let mut tool = trace::Span::below(session, "execute_tool command", SpanKind::Internal);
        tool.set("gen_ai.tool.name", "command");
        drop(tool);
        begun.elapsed()
    };
    let mut steps: Vec<Duration> = (0..STEPS).map(step).collect();
    steps.sort_unstable();
    steps
}

/// How many spans had this outcome.
fn spans_that(metrics: &Metrics, outcome: &str) -> u64 {
    let series = format!("agentmine_trace_spans_total{{outcome=\"{outcome}\"}} ");
    let text = metrics.render();
    let value = text.lines().find_map(|line| line.strip_prefix(&series));
    value.expect("it exists at zero").parse().unwrap()
}

/// A step beside this collector is short, and what the collector does not take is counted.
async fn steps_are_short_and_losses_counted(collector: String) {
    let metrics = metrics::install("test");
    let endpoint = format!("http://{collector}").parse().unwrap();
    trace::start(Some(&endpoint), "test");
    let steps = tokio::task::spawn_blocking(traced_steps).await.unwrap();
    let mean = steps.iter().sum::<Duration>() / STEPS as u32;
    let slow = steps[STEPS * 99 / 100];
    let limit = Duration::from_millis(1);
    assert!(mean < limit && slow < limit, "{mean:?} {slow:?}");
    let begun = Instant::now();
    loop {
        let lost = ["queue_full", "not_taken"].map(|it| spans_that(&metrics, it));
        if lost[0] + lost[1] + WAITING >= SPANS && lost[1] > 0 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{lost:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(spans_that(&metrics, "exported"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_costs_a_step_less_than_a_millisecond() {
    // Connections are taken by the kernel, and nobody reads.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    steps_are_short_and_losses_counted(silent.local_addr().unwrap().to_string()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_not_there_costs_a_step_less_than_a_millisecond() {
    steps_are_short_and_losses_counted(free_address()).await;
}
