//! What the model gets of long results: whole lines, an exact note, and no secrets.

use agentmine_tests::forge::DEMO;
use agentmine_tests::model::{
    Answer, Scenario, call, commit_and_push, edit_create, edit_view, say, shell,
};
use serde_json::{Value, json};

use crate::rig::Rig;

const LIMIT: usize = 20_000;
const REPLIER: &str = r#"
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    method, id = request["method"], request.get("id")
    if id is None:
        continue
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "replier", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "long", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        text = "x" * 9990 + "TOKEN" + "y" * 90000
        result = {"content": [{"type": "text", "text": text}]}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
"#;

/// The parts around a note, its bytes and its lines.
fn around(text: &str) -> (&str, usize, usize, &str) {
    let (head, rest) = text.split_once("[... ").unwrap();
    let (note, tail) = rest.split_once(" ...]\n").unwrap();
    let words: Vec<&str> = note.split([' ', ',']).collect();
    let number = |at: usize| words[at].parse().unwrap();
    (head, number(0), number(3), tail)
}

/// A fleet whose model makes these calls first.
async fn calling(calls: impl IntoIterator<Item = Answer>) -> Rig {
    let ends = [
        edit_create("done.txt", "done\n"),
        commit_and_push("Do it"),
        say("Done."),
    ];
    let scenario = Scenario::new("long results").replies(calls.into_iter().chain(ends));
    let mut rig = Rig::local(scenario).await;
    rig.config["mcp"]["max_output_size"] = LIMIT.into();
    rig.config["command_executor"]["execution"] = json!({ "max_output_size": LIMIT });
    rig
}

/// The results of the calls of the only session.
async fn results(rig: &Rig) -> Vec<String> {
    rig.forge
        .add_issue(DEMO, "Long results", "Look.", &["coding agent"]);
    rig.produce().await;
    let log = rig.consume().await;
    let task = rig.task().await;
    let results = rig.results(&task).await;
    assert!(results.len() > 2, "{:?}\n{log}", task.reason);
    results.into_iter().map(|(_, result)| result.text).collect()
}

#[tokio::test]
async fn a_long_file_is_shown_in_whole_lines_and_the_rest_can_be_viewed() {
    let rig = calling([edit_view("long.rs")]).await;
    let line = |n: usize| format!("\tlet text_{n} = \"quoted\";\n");
    let text: String = (1..=4_000).map(line).collect();
    rig.forge.commit(DEMO, "main", "main", |dir| {
        std::fs::write(dir.join("long.rs"), &text).unwrap();
    });
    let results = results(&rig).await;
    let json: Value = serde_json::from_str(&results[0]).unwrap();
    assert!(results[0].len() <= LIMIT && results[0].len() > LIMIT - 1_000);
    let content = json["content"].as_str().unwrap();
    let (shown, bytes, lines, end) = around(content);
    let last = shown.lines().count();
    assert_eq!((lines, end), (4_000 - last, ""));
    let rest: usize = (last + 1..=4_000).map(|n| line(n).len()).sum();
    assert_eq!(bytes, rest);
    let how = format!("see them with view_range [{}, 4000] ...]\n", last + 1);
    assert!(content.ends_with(&how), "{content}");
}

#[tokio::test]
async fn a_command_that_prints_much_obeys_the_limit_and_reports_the_true_amount() {
    let calls = [
        shell("seq 1 2000000"),
        shell("seq 1 100; seq 1 1000000 >&2"),
    ];
    let results = results(&calling(calls).await).await;
    let all = |last: usize| (1..=last).map(|n| n.to_string().len() + 1).sum::<usize>();
    for (result, name, last) in [
        (&results[0], "stdout", 2_000_000),
        (&results[1], "stderr", 1_000_000),
    ] {
        let json: Value = serde_json::from_str(result).unwrap();
        let outputs = ["stdout", "stderr"].map(|name| json[name].as_str().unwrap());
        let (head, bytes, lines, tail) = around(json[name].as_str().unwrap());
        let kept = head.len() + tail.len();
        assert_eq!(kept + bytes, all(last));
        assert_eq!(head.lines().count() + lines + tail.lines().count(), last);
        assert!(tail.ends_with(&format!("\n{last}\n")));
        let shown = outputs[0].len() + outputs[1].len();
        assert!(shown > LIMIT - 100 && shown < LIMIT + 200, "{shown}");
        if name == "stderr" {
            assert_eq!(outputs[0].len(), all(100));
        }
    }
}

#[tokio::test]
async fn a_secret_on_the_edge_of_a_cut_is_redacted() {
    const TOKEN: &str = "canary-token-0123456789-of-a-server";
    let print = format!(
        "head -c 9990 /dev/zero | tr '\\0' x; printf 'canary-to'; printf 'ken{}'; head -c 90000 /dev/zero | tr '\\0' y",
        TOKEN.strip_prefix("canary-token").unwrap()
    );
    let calls = [call("mcp__replier__long", json!({})), shell(&print)];
    let mut rig = calling(calls).await;
    let script = rig.folder.path().join("replier.py");
    std::fs::write(&script, REPLIER.replace("TOKEN", TOKEN)).unwrap();
    let file = rig.folder.path().join("mcp_config.json");
    let server = json!({ "command": ["python3", script], "env": { "REPLIER_TOKEN": TOKEN } });
    std::fs::write(
        &file,
        json!({ "mcpServers": { "replier": server } }).to_string(),
    )
    .unwrap();
    rig.config["mcp"]["config_file"] = file.to_str().unwrap().into();
    let results = results(&rig).await;
    for result in &results[..2] {
        assert!(result.contains(" left out: "), "{result:.300}");
        assert!(!result.contains("canary"), "{result}");
    }
}
