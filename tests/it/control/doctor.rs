//! `agentmine doctor` on set-ups that work and on what first-time users get wrong.

use agentmine_tests::model::Scenario;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::World;
use crate::rig::{Rig, on_both_forges};

/// The findings of one check.
fn of<'a>(report: &'a Value, name: &str) -> Vec<&'a Value> {
    let checks = report["checks"].as_array().unwrap();
    let found: Vec<&Value> = checks.iter().filter(|it| it["name"] == name).collect();
    assert!(!found.is_empty(), "no {name}: {report}");
    found
}

fn report(world: &World, args: &[&str], code: i32) -> Value {
    let args = [args, &["doctor", "--json"]].concat();
    let output = world.run(&args);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(code), "{shown}");
    serde_json::from_str(&shown).unwrap()
}

async fn a_fleet_that_works_has_no_failed_check(mut rig: Rig) {
    rig.config["command_executor"]["backend"] = "docker".into();
    rig.tracker()["token"] = rig.forge.token().into();
    let config = rig.config_file().display().to_string();
    let world = World::new();
    let report = report(&world, &["--config", &config], 0);
    assert_eq!(report["failed"], 0, "{report:#}");
    for name in ["trackers", "database", "broker", "sandbox", "clock"] {
        assert_eq!(of(&report, name)[0]["outcome"], "ok", "{report:#}");
    }
}

async fn each_mistake_is_named_with_its_fix_and_without_secrets(mut rig: Rig) {
    rig.serve(&["nobody/nothing"]);
    rig.tracker()["token"] = "hunter2hunter2".into();
    let mut config = rig.config.clone();
    config["store"]["url"] = "postgres://postgres:hunter2hunter2@127.0.0.1:1/x".into();
    config["queue"]["url"] = "amqp://guest:hunter2hunter2@127.0.0.1:1/%2f".into();
    config["model"]["base_url"] = "http://127.0.0.1:1/v1".into();
    config["model"]["api_key"] = "hunter2hunter2".into();
    config["command_executor"]["backend"] = "docker".into();
    config["command_executor"]["docker"]["host"] = "unix:///does/not/exist.sock".into();
    let world = World::new();
    let file = world.home.path().join("fleet.yaml");
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.display().to_string();
    let report = report(&world, &["--config", &file], 1);
    for name in ["trackers", "database", "broker", "sandbox", "model"] {
        for finding in of(&report, name) {
            assert_eq!(finding["outcome"], "failed", "{report:#}");
            assert!(
                finding["fix"].as_str().is_some_and(|it| it.len() > 10),
                "{finding}"
            );
        }
    }
    assert_eq!(of(&report, "clock")[0]["outcome"], "skipped");
    let table = world.shown(&["--config", &file, "doctor"], 1);
    for text in [report.to_string(), table] {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

on_both_forges! { Scenario::new("nothing") =>
    a_fleet_that_works_has_no_failed_check,
    each_mistake_is_named_with_its_fix_and_without_secrets,
}

/// What the model API says is shown, and it may say anything.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_repeats_secrets_is_shown_without_them() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let answer = "hunter2-of-the-model and hunter2-of-the-tracker are no keys";
    let refuse = async move || (StatusCode::UNAUTHORIZED, answer);
    let app = axum::Router::new().fallback(refuse);
    tokio::spawn(async move { axum::serve(listener, app).await });
    let world = World::new();
    let config = json!({
        "model": { "base_url": url, "name": "x", "api_key": "hunter2-of-the-model" },
        "trackers": { "github": {
            "api_url": "http://127.0.0.1:1/", "repositories": ["octo/demo"], "token": "hunter2-of-the-tracker",
        } },
    });
    std::fs::write(world.project().join("config.yaml"), config.to_string()).unwrap();
    let report = report(&world, &[], 1);
    let detail = of(&report, "model")[0]["detail"].as_str().unwrap();
    assert!(detail.contains("*** and *** are no keys"), "{detail}");
    let table = world.shown(&["doctor"], 1);
    for text in [report.to_string(), table] {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn every_fault_of_the_configuration_is_a_finding_and_the_rest_is_skipped() {
    let world = World::new();
    let config = "consumr: {}\nagent: {max_rounds: many}\n";
    std::fs::write(world.project().join("config.yaml"), config).unwrap();
    let report = report(&world, &[], 3);
    let faults = of(&report, "configuration");
    assert_eq!(faults.len(), 2, "{report:#}");
    assert!(
        faults[0]["fix"].as_str().unwrap().contains("consumer"),
        "{report:#}"
    );
    assert!(
        faults[1]["detail"]
            .as_str()
            .unwrap()
            .contains("config.yaml:2:"),
        "{report:#}"
    );
    for name in ["git", "database", "model"] {
        assert_eq!(of(&report, name)[0]["outcome"], "skipped");
    }
}

#[test]
fn a_check_without_an_answer_ends_with_its_time_limit() {
    // A server that accepts and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let world = World::new();
    let config = format!("model: {{base_url: 'http://127.0.0.1:{port}/v1', name: x}}\n");
    std::fs::write(world.project().join("config.yaml"), config).unwrap();
    let begun = std::time::Instant::now();
    let output = world.run(&["doctor", "--json", "--timeout", "3"]);
    assert!(begun.elapsed().as_secs() < 20);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let detail = of(&report, "model")[0]["detail"].as_str().unwrap();
    assert_eq!(detail, "no answer within 3 s", "{report:#}");
}
