//! The scripted model as Anthropic's own SDK sees it, which `tests/services/model.sh` installed.

use agentmine_tests::mcp::installed;
use agentmine_tests::model::{Fault, Scenario, Script, ScriptedModel, call, say};
use serde_json::json;
use tokio::process::Command;

use crate::rig::PATIENCE;

const KEY: &str = "sk-ant-scripted";

/// A call, and then what it returned.
fn script() -> Script {
    let scenario = Scenario::new("knows the weather").reply(|turn| match turn.number {
        0 => say("I look at the weather.").and(call("weather", json!({ "city": "Orléans" }))),
        _ => say(turn.last()),
    });
    Script::from(scenario).key(KEY)
}

/// Runs `it/clients/messages.py` to its end.
async fn walks(script: Script, more: &[&str]) {
    let model = ScriptedModel::start(script).await;
    let overloaded =
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    for fault in [
        Fault::Status(429, Some(7)),
        Fault::Status(529, None),
        Fault::Event(overloaded),
    ] {
        model.inject(&fault, 1);
    }
    let client = std::env::var("AGENTMINE_TEST_MODEL_CLIENT").expect("run tests/run");
    let packages = format!("{client}:{}/python", installed().display());
    let walk = concat!(env!("CARGO_MANIFEST_DIR"), "/it/clients/messages.py");
    let mut command = Command::new("/usr/bin/python3");
    command
        .arg(walk)
        .arg(format!("http://{}", model.address()))
        .arg(KEY)
        .args(more)
        // A proxy or a key of whoever runs the tests.
        .env_clear()
        .env("PYTHONPATH", packages)
        .env("PYTHONUTF8", "1")
        .kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output.expect("it ends").unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(output.stdout, b"walked\n", "{errors}");
}

#[tokio::test]
async fn the_sdk_of_anthropic_understands_the_scripted_model() {
    walks(script(), &[]).await;
}

#[tokio::test]
async fn the_sdk_of_anthropic_returns_what_the_scripted_model_thought() {
    walks(script().thinking(), &["thinks"]).await;
}
