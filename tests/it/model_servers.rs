//! What real model servers do: llama.cpp's server, vLLM, proxies, providers under load.

use agentmine_domain::{EndState, TaskState};
use agentmine_tests::forge::DEMO;
use agentmine_tests::model::{
    Grammar, Scenario, Script, call, commit_and_push, edit_replace, edit_view, say, shell,
};
use serde_json::json;

use crate::rig::Rig;

async fn one_issue(rig: &Rig) -> u64 {
    let (title, body) = ("greet.sh greets nobody", "It should greet.");
    let number = rig.forge.add_issue(DEMO, title, body, &["coding agent"]);
    rig.produce().await;
    number
}

#[tokio::test]
async fn a_server_that_enforces_the_order_of_schemas_lets_the_model_edit() {
    let insert = json!({
        "command": "insert",
        "path": "{project}/README.md",
        "insert_line": 0,
        "new_str": "Greets.",
    });
    let scenario = Scenario::new("constrained by a grammar").replies([
        edit_view("greet.sh"),
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        call("text_editor", insert),
        shell("sh test.sh"),
        commit_and_push("Greet the person named"),
        say("Done."),
    ]);
    let rig = Rig::local(Script::from(scenario).grammar(Grammar::Enforced)).await;
    one_issue(&rig).await;
    rig.consume().await;
    let task = rig.task().await;
    let failed: Vec<_> = rig.results(&task).await;
    let failed: Vec<_> = failed.iter().filter(|(_, it)| it.is_error).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(task.state, TaskState::Ended(EndState::Done));
}
