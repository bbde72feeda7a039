//! Metrics, rules and dashboards, checked by Prometheus' own tools.
//!
//! There is no Grafana here: its dashboards are read as JSON, and each of their queries is parsed by promtool.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use agentmine_domain::TaskState;
use serde_json::Value;

use crate::endpoint::{free_address, get};
use crate::rig::{Rig, assert_done, solves_demo};

/// Series of one process, at most.
const MOST_SERIES: usize = 2000;

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(path)
}

/// Runs a tool of Prometheus and returns its output; fails with it.
fn tool(program: &str, args: &[&str], folder: &Path, input: &str) -> Result<String, String> {
    let mut tool = Command::new(program)
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}; run tests/run"));
    tool.stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = tool.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    match output.status.success() {
        true => Ok(text.concat()),
        false => Err(text.concat()),
    }
}

#[test]
fn rules_and_configurations_are_valid_and_every_alert_fires_and_clears() {
    let folder = deploy("prometheus");
    let run = |program: &str, args: &[&str]| {
        let output = tool(program, args, &folder, "");
        output.unwrap_or_else(|faults| panic!("{program} {args:?}:\n{faults}"))
    };
    run("promtool", &["check", "config", "prometheus.yaml"]);
    run("promtool", &["check", "rules", "rules.yaml"]);
    run("promtool", &["test", "rules", "rules_test.yaml"]);
    run("amtool", &["check-config", "alertmanager.yaml"]);
    // Debian's Prometheus has no discovery of Kubernetes, so that part is omitted.
    let copy = tempfile::tempdir().unwrap();
    let kubernetes = std::fs::read_to_string(folder.join("kubernetes.yaml")).unwrap();
    let (before, rest) = kubernetes
        .split_once("    kubernetes_sd_configs:\n")
        .unwrap();
    let (_, after) = rest.split_once("    relabel_configs:").unwrap();
    std::fs::copy(folder.join("rules.yaml"), copy.path().join("rules.yaml")).unwrap();
    let rest = format!("{before}    relabel_configs:{after}");
    assert!(rest.contains("\nalerting:\n"), "alerts reach nobody");
    std::fs::write(copy.path().join("kubernetes.yaml"), rest).unwrap();
    tool(
        "promtool",
        &["check", "config", "kubernetes.yaml"],
        copy.path(),
        "",
    )
    .unwrap();

    // Each alert of each severity has a test in which it fires, and one in which it does not.
    let tests = std::fs::read_to_string(folder.join("rules_test.yaml")).unwrap();
    for (name, severity) in alerts() {
        let of_alert: Vec<&str> = tests
            .split("- eval_time:")
            .filter(|it| it.contains(&format!("alertname: {name}\n")))
            .collect();
        let fires = of_alert
            .iter()
            .any(|it| it.contains(&format!("severity: {severity}\n")));
        let clears = of_alert.iter().any(|it| it.contains("exp_alerts: []"));
        assert!(fires, "no test in which {name} ({severity}) fires");
        assert!(clears, "no test in which {name} clears");
    }
    // The tests notice an alert that never fires.
    let rules = std::fs::read_to_string(folder.join("rules.yaml")).unwrap();
    std::fs::write(copy.path().join("rules_test.yaml"), &tests).unwrap();
    std::fs::write(
        copy.path().join("rules.yaml"),
        rules.replace("> 600 and", "> 60000 and"),
    )
    .unwrap();
    let missed = tool(
        "promtool",
        &["test", "rules", "rules_test.yaml"],
        copy.path(),
        "",
    );
    assert!(missed.unwrap_err().contains("AgentMineTasksWaiting"));
}

/// Names and severities of the alerts.
fn alerts() -> Vec<(String, String)> {
    let rules = std::fs::read_to_string(deploy("prometheus/rules.yaml")).unwrap();
    let alerts = rules.split("- alert: ").skip(1).map(|alert| {
        let name = alert.lines().next().unwrap().to_owned();
        let severity = alert
            .lines()
            .find_map(|line| line.trim().strip_prefix("severity: "));
        (name, severity.unwrap().to_owned())
    });
    alerts.collect()
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/runbooks.md");
    let runbooks = std::fs::read_to_string(docs).unwrap();
    let headings: BTreeSet<&str> = runbooks
        .lines()
        .filter_map(|line| line.strip_prefix("## AgentMine"))
        .collect();
    let alerts = alerts();
    let alerts: BTreeSet<&str> = alerts
        .iter()
        .map(|(name, _)| name.strip_prefix("AgentMine").unwrap())
        .collect();
    assert_eq!(headings, alerts);
    let rules = std::fs::read_to_string(deploy("prometheus/rules.yaml")).unwrap();
    for name in alerts {
        let link = format!("docs/runbooks.md#agentmine{}", name.to_lowercase());
        assert!(rules.contains(&link), "{link}");
    }
}

#[test]
fn the_rules_of_prometheus_operator_are_the_same() {
    let of_operator = deploy("kubernetes/components/prometheus-operator/rules.yaml");
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    let body = |text: String| {
        let groups = text.split_once("groups:\n").unwrap().1.to_owned();
        let lines: Vec<String> = groups
            .lines()
            .map(|line| line.trim_start().to_owned())
            .collect();
        lines
    };
    assert_eq!(
        body(read(of_operator)),
        body(read(deploy("prometheus/rules.yaml")))
    );
}

/// The queries of every dashboard.
fn dashboard_queries() -> Vec<(String, String)> {
    let mut queries = Vec::new();
    for file in std::fs::read_dir(deploy("grafana/dashboards")).unwrap() {
        let path = file.unwrap().path();
        let dashboard: Value =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let title = dashboard["title"].as_str().unwrap();
        for panel in dashboard["panels"].as_array().unwrap() {
            let place = format!("{title}: {}", panel["title"]);
            assert_eq!(panel["datasource"]["uid"], "prometheus", "{place}");
            for target in panel["targets"].as_array().unwrap() {
                let query = target["expr"].as_str().unwrap();
                for metric in metrics_in(query) {
                    let selected = format!("{metric}{{namespace=~\"$namespace\"");
                    assert!(query.contains(&selected), "{place}: {query} mixes fleets");
                }
                queries.push((place.clone(), query.replace("$__rate_interval", "5m")));
            }
        }
    }
    queries
}

/// The expressions of the rules.
fn rule_expressions() -> Vec<String> {
    let rules = std::fs::read_to_string(deploy("prometheus/rules.yaml")).unwrap();
    let expressions = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "));
    expressions
        .map(|it| it.trim_matches('\'').replace("''", "'"))
        .collect()
}

/// The names of metrics in an expression, and of recorded ones.
fn metrics_in(expression: &str) -> BTreeSet<String> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = expression.split(|c| !is_of_name(c));
    let of_ours = |word: &&str| {
        ["agentmine_", "agentmine:", "process_"]
            .iter()
            .any(|it| word.starts_with(it))
    };
    words.filter(of_ours).map(str::to_owned).collect()
}

#[test]
fn every_query_of_a_dashboard_parses() {
    let queries = dashboard_queries();
    assert!(queries.len() > 40);
    let rules: Vec<Value> = queries
        .iter()
        .enumerate()
        .map(|(n, (_, query))| serde_json::json!({"record": format!("query:{n}"), "expr": query}))
        .collect();
    let check = |rules: &[Value]| {
        let folder = tempfile::tempdir().unwrap();
        let groups = serde_json::json!({"groups": [{"name": "dashboards", "rules": rules}]});
        std::fs::write(folder.path().join("queries.yaml"), groups.to_string()).unwrap();
        tool(
            "promtool",
            &["check", "rules", "queries.yaml"],
            folder.path(),
            "",
        )
    };
    check(&rules).unwrap_or_else(|faults| panic!("{faults}\n{queries:#?}"));
    let wrong = serde_json::json!({"record": "query:wrong", "expr": "sum(rate(x[5m])"});
    assert!(
        check(&[wrong]).is_err(),
        "a query that does not parse is not noticed"
    );
}

/// The types are those of Grafana's own code; Grafana itself is not here.
#[test]
fn every_dashboard_compiles_with_the_types_that_grafana_publishes() {
    let types = std::env::var("AGENTMINE_TEST_GRAFANA").expect(
        "AGENTMINE_TEST_GRAFANA, which tests/run sets: a folder with @grafana/schema and typescript",
    );
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("services/grafana/check.mjs");
    let compile = |dashboards: &[PathBuf]| {
        let mut args = vec![check.to_str().unwrap(), &types];
        args.extend(dashboards.iter().map(|path| path.to_str().unwrap()));
        tool("node", &args, &deploy("."), "")
    };
    let files = std::fs::read_dir(deploy("grafana/dashboards")).unwrap();
    let files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    assert!(files.len() >= 4);
    compile(&files).unwrap_or_else(|faults| panic!("{faults}"));
    // A key that Grafana does not know, and a value of another type, are noticed.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.json");
    let text = std::fs::read_to_string(&files[0]).unwrap();
    for (right, wrong) in [
        ("\"gridPos\"", "\"gridPoss\""),
        ("\"refresh\": \"30s\"", "\"refresh\": 30"),
    ] {
        assert!(text.contains(right), "{right}");
        std::fs::write(&copy, text.replace(right, wrong)).unwrap();
        let faults = compile(std::slice::from_ref(&copy)).unwrap_err();
        assert!(faults.contains(wrong), "{faults}");
    }
}

/// A whole task with real programs: what they export is what rules and dashboards read, and the other way round.
#[tokio::test]
async fn programs_export_every_metric_that_rules_and_dashboards_use_and_no_other() {
    let mut rig = Rig::local(solves_demo()).await;
    let (of_producer, of_consumer) = (free_address(), free_address());
    rig.config["http"]["listen"] = of_producer.clone().into();
    let producer = rig.spawn("producer", &[]);
    producer.wait_for("serving /live").await;
    rig.config["http"]["listen"] = of_consumer.clone().into();
    let consumer = rig.spawn("consumer", &[]);
    consumer.wait_for("consumer ready").await;
    // Every label value exists before the first event.
    let before = get(&of_consumer, "/metrics").await.1;
    for series in [
        "agentmine_session_results_total{result=\"failed\",cause=\"ours\"} 0",
        "agentmine_claims_total{outcome=\"taken\"} 0",
        "agentmine_task_recovery_seconds_count 0",
        "agentmine_task_pickup_seconds_bucket{le=\"60\"} 0",
        "agentmine_tool_calls_total{tool=\"command\",outcome=\"error\"} 0",
        "agentmine_gateway_pushes_total{outcome=\"refused\"} 0",
        "agentmine_gateway_web_requests_total{outcome=\"allowed\",rule=\"registry\"} 0",
        "agentmine_gateway_web_requests_total{outcome=\"blocked\",rule=\"host\"} 0",
        "agentmine_gateway_git_requests_total{request=\"push\"} 0",
        "agentmine_clone_failures_total{cause=\"host_away\"} 0",
        "agentmine_llm_request_duration_seconds_count{outcome=\"connect\"} 0",
        "agentmine_llm_retries_total{reason=\"status\"} 0",
        "agentmine_sandbox_start_seconds_count{backend=\"docker\"} 0",
        "agentmine_sandboxes_running{backend=\"local\"} 0",
        "agentmine_sandbox_memory_bytes{backend=\"docker\"} 0",
        "agentmine_sandbox_cpu_seconds_total{backend=\"local\"} 0",
        "agentmine_sandbox_processes{backend=\"local\"} 0",
        "agentmine_sandbox_disk_bytes{backend=\"local\"} 0",
        "agentmine_sandboxes_stale{backend=\"docker\"} 0",
        "agentmine_store_connections{pool=\"main\",state=\"used\"} ",
    ] {
        assert!(before.contains(series), "{series} is not in\n{before}");
    }
    rig.label_issue();
    let tasks = rig.wait_ended(1).await;
    assert_done(&tasks[0]);
    // The figures of the store are read every 15 s.
    let (_, producer_metrics) = get(&of_producer, "/metrics").await;
    let (_, consumer_metrics) = get(&of_consumer, "/metrics").await;
    for metrics in [&producer_metrics, &consumer_metrics] {
        let lint = tool("promtool", &["check", "metrics"], &deploy("."), metrics);
        assert_eq!(lint, Ok(String::new()), "promtool check metrics");
        let series = metrics
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .count();
        assert!(series < MOST_SERIES, "{series} series");
    }
    let done = "agentmine_session_results_total{result=\"done\",cause=\"none\"} 1";
    assert!(consumer_metrics.contains(done), "{consumer_metrics}");
    assert!(consumer_metrics.contains("agentmine_task_pickup_seconds_bucket{le=\"60\"} 1"));

    let types = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        lines
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect()
    };
    let mut exported = types(&producer_metrics);
    exported.extend(types(&consumer_metrics));
    let mut used = BTreeSet::new();
    let from_dashboards = dashboard_queries().into_iter().map(|(_, query)| query);
    for expression in rule_expressions().into_iter().chain(from_dashboards) {
        used.extend(metrics_in(&expression));
    }
    let rules = std::fs::read_to_string(deploy("prometheus/rules.yaml")).unwrap();
    for name in &used {
        if name.contains(':') {
            assert!(
                rules.contains(&format!("record: {name}\n")),
                "{name} is not recorded"
            );
            continue;
        }
        let base = ["_bucket", "_count", "_sum"]
            .iter()
            .find_map(|it| name.strip_suffix(it));
        let found = exported.contains(name) || base.is_some_and(|base| exported.contains(base));
        // These appear with their first event: a repeated statement or restart.
        const RARE: [&str; 2] = [
            "agentmine_store_retries_total",
            "agentmine_mcp_restarts_total",
        ];
        let is_rare = RARE
            .iter()
            .any(|it| base.unwrap_or(name) == *it || name == it);
        assert!(
            found || is_rare,
            "{name} is used, but no program exports it: {exported:#?}"
        );
    }
    for name in &exported {
        let is_used = used.iter().any(|it| {
            it == name
                || it
                    .strip_prefix(name.as_str())
                    .is_some_and(|rest| ["_bucket", "_count", "_sum"].contains(&rest))
        });
        assert!(
            is_used,
            "{name} is exported, but neither a rule nor a dashboard uses it"
        );
    }
    assert!(matches!(tasks[0].state, TaskState::Ended(_)));
    for program in [producer, consumer] {
        program.terminate();
        let (status, log) = program.end().await;
        assert!(status.success(), "{log}");
    }
}

#[tokio::test]
async fn a_program_says_whether_it_is_healthy_and_the_schema_is_migrated_by_a_command() {
    let mut rig = Rig::local(solves_demo()).await;
    let address = free_address();
    rig.config["http"]["listen"] = address.clone().into();
    rig.config["store"]["migrations"] = "wait".into();
    let (status, log) = rig.spawn("producer", &["healthcheck"]).end().await;
    assert!(
        !status.success() && log.contains("no process answers"),
        "{log}"
    );
    assert!(log.contains("hint:"), "{log}");
    let (status, log) = rig.spawn("producer", &["migrate"]).end().await;
    assert!(status.success(), "{log}");
    let producer = rig.spawn("producer", &[]);
    producer.wait_for("serving /live").await;
    let (status, log) = rig.spawn("producer", &["healthcheck"]).end().await;
    assert!(status.success(), "{log}");
    assert_eq!(get(&address, "/live").await.0, 200);
    producer.terminate();
    let (status, log) = producer.end().await;
    assert!(status.success(), "{log}");
}

#[tokio::test]
async fn a_consumer_that_waits_for_its_engine_is_live_and_not_ready() {
    let mut rig = Rig::local(solves_demo()).await;
    let address = free_address();
    // Accepts connections and never answers, as if it took long to pull the image.
    let engine = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = format!("tcp://{}", engine.local_addr().unwrap());
    rig.config["http"]["listen"] = address.clone().into();
    rig.config["command_executor"]["backend"] = "docker".into();
    rig.config["command_executor"]["docker"]["host"] = host.into();
    let consumer = rig.spawn("consumer", &[]);
    consumer.wait_for("serving /live").await;
    assert_eq!(get(&address, "/live").await.0, 200);
    let (status, body) = get(&address, "/ready").await;
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("still connecting"), "{body}");
    consumer.terminate();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{log}");
}

/// Two faults of `tests/alerts`; tests/README.md describes how to run all of them.
#[test]
fn alerts_fire_reach_their_receiver_with_the_runbook_and_clear() {
    let binaries = crate::rig::binary("producer").parent().unwrap().to_owned();
    let postgres = crate::rig::postgres_url();
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts"))
        .args(["--only", "AgentMineNoProducer,AgentMineModelFailing"])
        .env("CARGO_TARGET_DIR", binaries.parent().unwrap())
        .env("AGENTMINE_TEST_POSTGRES_URL", postgres)
        .env("AGENTMINE_TEST_AMQP_URL", crate::rig::amqp_url())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    let text = text.concat();
    assert!(output.status.success(), "{text}");
    let seen = "2 alerts fired, reached their receiver with their runbook, and cleared";
    assert!(text.contains(seen), "{text}");
}
