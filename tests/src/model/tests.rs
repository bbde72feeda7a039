use std::time::Duration;

use agentmine_llm::{
    CallState, LlmError, Message, Model, ModelReply, ModelRequest, Stop, ToolSpec,
    anthropic::Anthropic, openai::OpenAi,
};
use agentmine_runtime::config;
use serde_json::json;

use super::*;

fn client(model: &ScriptedModel, change: impl FnOnce(&mut config::ModelConfig)) -> OpenAi {
    let mut config = config::ModelConfig {
        base_url: model.base_url().parse().unwrap(),
        name: "scripted".into(),
        ..config::ModelConfig::default()
    };
    change(&mut config);
    OpenAi::new(&config).unwrap()
}

fn task(text: &str) -> Vec<Message> {
    vec![
        Message::System {
            text: "You work in `/workspace/project/`.".into(),
        },
        Message::User {
            text: format!(
                "Task: {text}\n\nIssue #7 of octo/demo\n\nWork on the branch `agentmine/issue-7-ab`."
            ),
        },
    ]
}

async fn ask(client: &dyn Model, messages: &[Message]) -> Result<ModelReply, LlmError> {
    let request = ModelRequest {
        messages,
        tools: &[],
        conversation: None,
        state: CallState::default(),
    };
    client.reply(request, None).await.map(|(reply, _)| reply)
}

/// Adds a reply and a result for each of its calls.
fn go_on(messages: &mut Vec<Message>, reply: ModelReply) {
    let results: Vec<_> = reply
        .calls
        .iter()
        .map(|call| Message::Tool {
            call_id: call.id.clone(),
            name: call.name.clone(),
            text: "{}".into(),
            is_error: false,
        })
        .collect();
    messages.push(Message::Assistant(reply));
    messages.extend(results);
}

/// Every reply to a task, until one without calls.
async fn play(client: &dyn Model, text: &str) -> Vec<ModelReply> {
    let mut messages = task(text);
    loop {
        let reply = ask(client, &messages).await.unwrap();
        let is_last = reply.calls.is_empty();
        go_on(&mut messages, reply);
        if is_last {
            return messages
                .into_iter()
                .filter_map(|message| match message {
                    Message::Assistant(reply) => Some(reply),
                    _ => None,
                })
                .collect();
        }
    }
}

#[tokio::test]
async fn a_script_is_the_same_over_messages_and_over_chat_completions() {
    let scenario = Scenario::new("two").replies([
        say("I look.").and(shell("ls")).and(edit_view("a")),
        shell("true"),
    ]);
    let model = ScriptedModel::start(Script::from(scenario).thinking().key("sk-ant-1")).await;
    let config = |stream| config::ModelConfig {
        base_url: model.base_url().parse().unwrap(),
        name: "scripted".into(),
        api_key: Some(config::Secret::new("sk-ant-1")),
        stream,
        ..config::ModelConfig::default()
    };
    let chat = play(&OpenAi::new(&config(true)).unwrap(), "go").await;
    let plain = |replies: Vec<ModelReply>| -> Vec<ModelReply> {
        let without_extra = |mut reply: ModelReply| {
            reply.extra.clear();
            for call in &mut reply.calls {
                call.extra.clear();
            }
            reply
        };
        replies.into_iter().map(without_extra).collect()
    };
    let chat = plain(chat);
    for stream in [true, false] {
        let replies = play(&Anthropic::new(&config(stream)).unwrap(), "go").await;
        assert!(replies.iter().all(|reply| !reply.extra.is_empty()));
        assert_eq!(plain(replies), chat);
    }
    let requests = model.requests();
    let of_messages = requests.iter().filter(|it| it.api == Api::Messages);
    assert_eq!((requests.len(), of_messages.count()), (9, 6));
    let wrong = config::ModelConfig {
        api_key: None,
        ..config(true)
    };
    let refused = ask(&Anthropic::new(&wrong).unwrap(), &task("go")).await;
    assert!(matches!(refused, Err(LlmError::Unauthorized { .. })));
}

fn arguments(reply: &ModelReply, n: usize) -> serde_json::Value {
    serde_json::from_str(&reply.calls[n].arguments).unwrap()
}

#[tokio::test]
async fn the_default_script_solves_the_sample_issue_with_and_without_streaming() {
    let model = ScriptedModel::start(default_script()).await;
    let mut seen = Vec::new();
    for stream in [true, false] {
        let client = client(&model, |config| config.stream = stream);
        seen.push(play(&client, "greet.sh greets nobody").await);
    }
    assert_eq!(seen[0], seen[1]);
    let replies = &seen[0];
    assert_eq!(replies.len(), 6);
    assert_eq!(replies[2].calls[0].name, "text_editor");
    assert_eq!(
        arguments(&replies[2], 0),
        json!({
            "command": "str_replace",
            "path": "/workspace/project/greet.sh",
            "old_str": "name=\"\"",
            "new_str": "name=\"${1:-world}\"",
        })
    );
    let push = arguments(&replies[4], 0);
    assert!(
        push["command"]
            .as_str()
            .unwrap()
            .ends_with("git push origin HEAD:refs/heads/agentmine/issue-7-ab")
    );
    assert!(
        model
            .requests()
            .iter()
            .all(|seen| seen.scenario.as_deref() == Some("greeting"))
    );
}

#[tokio::test]
async fn concurrent_tasks_do_not_affect_each_other() {
    let scenario = |marker: &str| {
        Scenario::new(marker)
            .when(marker)
            .replies([shell(&format!("echo {marker} {{number}}")), say(marker)])
    };
    let script = Script::new()
        .scenario(scenario("red"))
        .scenario(scenario("blue"));
    let model = ScriptedModel::start(script).await;
    let client = client(&model, |_| {});
    let (red, blue) = tokio::join!(play(&client, "red"), play(&client, "blue"));
    assert_eq!(arguments(&red[0], 0), json!({ "command": "echo red 7" }));
    assert_eq!(red[1].text, "red");
    assert_eq!(arguments(&blue[0], 0), json!({ "command": "echo blue 7" }));
    assert!(ask(&client, &task("green")).await.is_err());
}

#[tokio::test]
async fn a_function_may_decide_by_tool_results() {
    let model = ScriptedModel::start(Scenario::new("echo").find("word", "say (\\w+)").reply(
        |turn| match turn.number {
            0 => shell("ls").and(edit_create("a.txt", "{word} {unknown}")),
            _ => say(&format!("it said {}", turn.last())),
        },
    ))
    .await;
    let replies = play(&client(&model, |_| {}), "say hello").await;
    assert_eq!(arguments(&replies[0], 1)["file_text"], "hello {unknown}");
    assert_eq!(replies[1].text, "it said {}");
}

#[tokio::test]
async fn after_the_faults_the_reply_is_sent() {
    let script = Script::from(
        Scenario::new("faulty")
            .replies([say("Here I am, with a text of several pieces.")])
            .fault_at(0, Fault::BreakOff, 1)
            .fault_at(0, Fault::Drop, 1)
            .fault_at(0, Fault::Delay(Duration::from_millis(20)), 1),
    )
    .fault_first(Fault::Status(429, Some(0)), 2);
    let model = ScriptedModel::start(script).await;
    let client = client(&model, |config| config.max_tries = 8);
    let reply = ask(&client, &task("x")).await.unwrap();
    assert_eq!(reply.text, "Here I am, with a text of several pieces.");
    assert_eq!(model.requests().len(), 5);
}

#[tokio::test]
async fn the_known_wordings_of_overflow_name_prompt_and_window() {
    for stream in [true, false] {
        for (server, fault) in overflows() {
            let scenario = Scenario::new(server).fault_at(0, fault, usize::MAX);
            let model = ScriptedModel::start(scenario).await;
            let client = client(&model, |config| config.stream = stream);
            let error = ask(&client, &task("x")).await.unwrap_err();
            let LlmError::ContextTooLong(overflow) = error else {
                panic!("{server}: {error}");
            };
            let sizes = (overflow.prompt, overflow.window);
            assert_eq!(sizes, (Some(9120), Some(8192)), "{server}: {overflow:?}");
        }
    }
}

#[tokio::test]
async fn the_known_headers_of_rate_limits_are_obeyed() {
    let waits = rate_limits().into_iter().map(async |fault| {
        let shown = format!("{fault:?}");
        let scenario = Scenario::new("limited").fault_at(0, fault, 1);
        let model = ScriptedModel::start(scenario).await;
        let begun = std::time::Instant::now();
        let client = client(&model, |_| {});
        assert!(ask(&client, &task("x")).await.is_ok(), "{shown}");
        let waited = begun.elapsed();
        assert!(waited >= Duration::from_millis(900), "{waited:?}: {shown}");
        assert_eq!(model.requests().len(), 2, "{shown}");
    });
    futures::future::join_all(waits).await;
}

#[tokio::test]
async fn an_error_inside_a_stream_with_a_string_as_its_code_is_final() {
    for stream in [true, false] {
        let scenario = Scenario::new("proxy")
            .replies([say("Half of this text is sent.")])
            .fault_at(0, string_code(), usize::MAX);
        let model = ScriptedModel::start(scenario).await;
        let client = client(&model, |config| config.stream = stream);
        let error = ask(&client, &task("x")).await.unwrap_err();
        let LlmError::Unauthorized { status: 401, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(model.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_stalled_reply_stays_open() {
    let scenario = Scenario::new("slow")
        .replies([say("Never sent completely.")])
        .fault_at(0, Fault::Stall, 1);
    let model = ScriptedModel::start(scenario).await;
    let client = client(&model, |config| config.idle_timeout_seconds = 1);
    let reply = ask(&client, &task("x")).await.unwrap();
    assert_eq!(reply.text, "Never sent completely.");
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn a_grammar_lets_the_model_write_keys_in_the_order_of_the_schema_only() {
    let wanted = || {
        call(
            "edit",
            json!({ "old": "a", "path": "p", "new": "b", "x": 1 }),
        )
    };
    let script = Script::from(Scenario::new("grammar").reply(move |_| wanted()));
    let model = ScriptedModel::start(script.grammar(Grammar::Enforced)).await;
    let client = client(&model, |_| {});
    let messages = task("x");
    let written = async |properties: &str| {
        let tools = [ToolSpec {
            name: "edit".into(),
            description: "Edits.".into(),
            input_schema: serde_json::from_str(&format!(
                r#"{{"type":"object","properties":{properties},"required":["path"]}}"#
            ))
            .unwrap(),
        }];
        let request = ModelRequest {
            messages: &messages,
            tools: &tools,
            conversation: None,
            state: CallState::default(),
        };
        let (reply, _) = client.reply(request, None).await.unwrap();
        reply.calls[0].arguments.clone()
    };
    let whole = written(r#"{"path":{},"old":{},"new":{}}"#).await;
    assert_eq!(whole, r#"{"path":"p","old":"a","new":"b"}"#);
    let sorted = written(r#"{"new":{},"old":{},"path":{}}"#).await;
    assert_eq!(sorted, r#"{"path":"p","old":"a"}"#);
}

#[tokio::test]
async fn broken_arguments_and_other_finish_reasons_reach_the_client() {
    let scenario = Scenario::new("odd").replies([
        shell("ls -la").with_fault(Fault::BrokenArguments),
        say("cut").finish("length"),
    ]);
    let model = ScriptedModel::start(scenario).await;
    let client = client(&model, |_| {});
    let mut messages = task("x");
    let reply = ask(&client, &messages).await.unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&reply.calls[0].arguments).is_err());
    go_on(&mut messages, reply);
    assert_eq!(ask(&client, &messages).await.unwrap().stop, Stop::Length);
}

#[tokio::test]
async fn a_request_waits_at_the_gate_until_it_is_released() {
    let scenario = Scenario::new("gate").replies([shell("ls"), say("through")]);
    let model = ScriptedModel::start(scenario).await;
    model.hold_when("held", 1);
    let client = std::sync::Arc::new(client(&model, |_| {}));
    assert_eq!(play(&*client, "free").await[1].text, "through");

    let killed = tokio::spawn({
        let client = client.clone();
        async move { play(&*client, "held").await }
    });
    model.wait_for_held(1).await;
    model.wait_for_requests(4).await;
    killed.abort();

    // Another request for the same also waits until the gate opens.
    let resumed = tokio::spawn(async move { play(&*client, "held").await });
    model.wait_for_requests(6).await;
    model.wait_for_held(1).await;
    assert!(!resumed.is_finished());
    model.release();
    assert_eq!(resumed.await.unwrap()[1].text, "through");
}

#[tokio::test]
async fn requests_are_recorded_and_counted() {
    let script =
        Script::from(Scenario::new("counted").replies([shell("ls"), say("done")])).key("sk-1");
    let model = ScriptedModel::start(script).await;
    let stranger = client(&model, |_| {});
    assert!(matches!(
        ask(&stranger, &task("x")).await,
        Err(LlmError::Unauthorized { status: 401, .. })
    ));

    let client = client(&model, |config| {
        config.api_key = Some(config::Secret::new("sk-1"))
    });
    let mut messages = task("x");
    fn request(messages: &[Message]) -> ModelRequest<'_> {
        ModelRequest {
            messages,
            tools: &[],
            conversation: None,
            state: CallState::default(),
        }
    }
    let (reply, first) = client.reply(request(&messages), None).await.unwrap();
    assert!(first.input_tokens > 10 && first.output_tokens > 0);
    assert_eq!(first.cached_tokens, 0);
    go_on(&mut messages, reply);
    let (_, second) = client.reply(request(&messages), None).await.unwrap();
    assert!(
        second.cached_tokens + 2 >= first.input_tokens,
        "the first request is a prefix"
    );
    assert!(second.input_tokens > second.cached_tokens);

    let seen = model.requests();
    assert_eq!(seen[1].headers["authorization"], "Bearer sk-1");
    assert_eq!((seen[1].turn, seen[2].turn), (0, 1));
    assert_eq!(seen[1].conversation, seen[2].conversation);
    assert_eq!(seen[2].body["messages"][2]["role"], "assistant");
}

#[tokio::test]
async fn a_call_without_a_result_is_refused_as_by_the_real_api() {
    let model = ScriptedModel::start(Scenario::new("strict").replies([shell("ls")])).await;
    let client = client(&model, |_| {});
    let mut messages = task("x");
    let reply = ask(&client, &messages).await.unwrap();
    messages.push(Message::Assistant(reply));
    let error = ask(&client, &messages).await.unwrap_err();
    assert!(error.to_string().contains("has no result"), "{error}");
}

#[tokio::test]
async fn scripts_are_read_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let yaml = folder.path().join("script.yaml");
    let text = r#"
scenarios:
  - name: file
    when: [greet]
    find: { who: "greet (\\w+)" }
    replies:
      - { text: "I look at {who}.", shell: "ls", view: greet.sh }
      - { replace: { path: greet.sh, old: a, new: "{who}" }, fault: { status: 503, retry_after: 0, times: 1 } }
      - { calls: [{ name: other, arguments: { deep: ["{number}", 1] } }] }
      - { commit: "Don't" }
"#;
    std::fs::write(&yaml, text).unwrap();
    let model = ScriptedModel::start(load_script(&yaml).unwrap()).await;
    let replies = play(&client(&model, |_| {}), "greet Ada").await;
    assert_eq!(replies[0].text, "I look at Ada.");
    assert_eq!(replies[0].calls.len(), 2);
    assert_eq!(arguments(&replies[1], 0)["new_str"], "Ada");
    assert_eq!(arguments(&replies[2], 0), json!({ "deep": ["7", 1] }));
    assert_eq!(replies[4].text, "Done.");
    assert_eq!(model.requests().len(), 6);

    let lines = folder.path().join("script.jsonl");
    std::fs::write(
        &lines,
        "{\"name\":\"a\",\"replies\":[]}\n\n{\"name\":\"b\"}\n",
    )
    .unwrap();
    let error = format!("{:#}", load_script(&lines).unwrap_err());
    assert!(error.contains("script.jsonl:3"), "{error}");

    std::fs::write(
        &yaml,
        "scenarios:\n  - { name: a, replies: [{ fault: { stall: true, drop: true } }] }\n",
    )
    .unwrap();
    let error = format!("{:#}", load_script(&yaml).unwrap_err());
    assert!(error.contains("exactly one"), "{error}");
}
