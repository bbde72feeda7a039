//! What servers ask of us.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::*;

/// Answers, and notes the questions.
#[derive(Default)]
struct Person {
    asked: Mutex<Vec<Question>>,
    slow: Option<Duration>,
}

#[async_trait]
impl Elicitation for Person {
    async fn ask(&self, _server: &str, question: Question) -> Answer {
        self.asked.lock().unwrap().push(question);
        if let Some(slow) = self.slow {
            tokio::time::sleep(slow).await;
        }
        Answer::Accept(json!({"name": "Ada"}))
    }
}

struct Model;

#[async_trait]
impl SamplingHandler for Model {
    async fn create(&self, server: &str, request: Value) -> Result<Value, String> {
        match request["maxTokens"].as_i64() {
            Some(5) => Ok(json!({"role": "assistant", "model": "m",
                "content": {"type": "text", "text": format!("for {server}")}})),
            _ => Err("too much".into()),
        }
    }
}

fn all(person: &Arc<Person>, era: Era) -> ConnectOptions {
    ConnectOptions {
        capabilities: config::Capabilities {
            roots: true,
            sampling: true,
            logging: true,
        },
        roots: vec![("file:///workspace".into(), "workspace".into())],
        era: Some(era),
        sampling: Some(Arc::new(Model)),
        elicitation: person.clone(),
        ..ConnectOptions::default()
    }
}

const FORM: &str =
    r#"{"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}"#;

/// What each of these requests is answered with.
async fn answers(
    options: &ConnectOptions,
    requests: &'static [(&str, &str)],
) -> (Value, Vec<Value>) {
    let (ours, mut server) = faulty();
    let serving = tokio::spawn(async move {
        let greeted = server.handshake_with(json!({"tools": {}})).await;
        let mut answers = Vec::new();
        for (id, (method, params)) in requests.iter().enumerate() {
            let params: Value = serde_json::from_str(params).unwrap();
            server
                .send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
                .await;
            loop {
                let answer = server.next().await;
                if answer["id"] == id && answer.get("method").is_none() {
                    answers.push(answer);
                    break;
                }
            }
        }
        (greeted["params"]["capabilities"].clone(), answers)
    });
    let _client = Client::connect("s", ours, options).await.unwrap();
    serving.await.unwrap()
}

#[tokio::test]
async fn nothing_is_offered_unless_somebody_stands_behind_it() {
    let (offered, answers) = answers(
        &older(),
        &[
            ("ping", "{}"),
            ("roots/list", "{}"),
            (
                "sampling/createMessage",
                r#"{"messages": [], "maxTokens": 5}"#,
            ),
            ("elicitation/create", FORM),
            ("something/else", "{}"),
        ],
    )
    .await;
    assert_eq!(offered, json!({}));
    assert_eq!(answers[0]["result"], json!({}));
    for answer in &answers[1..] {
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
    }
}

#[tokio::test]
async fn configured_requests_are_answered() {
    let person = Arc::new(Person::default());
    let (offered, answers) = answers(&all(&person, Era::Handshake), &[
        ("roots/list", "{}"),
        ("sampling/createMessage", r#"{"messages": [], "maxTokens": 5}"#),
        ("sampling/createMessage", r#"{"messages": [], "maxTokens": 6}"#),
        ("elicitation/create", FORM),
        ("elicitation/create", r#"{"mode": "url", "message": "Go", "url": "https://example.com/", "elicitationId": "1"}"#),
        ("elicitation/create", r#"{"mode": "dance", "message": "Go"}"#),
    ])
    .await;
    assert_eq!(
        offered,
        json!({"roots": {}, "sampling": {}, "elicitation": {"form": {}, "url": {}}})
    );
    assert_eq!(
        answers[0]["result"]["roots"],
        json!([{"uri": "file:///workspace", "name": "workspace"}])
    );
    assert_eq!(answers[1]["result"]["content"]["text"], "for s");
    assert_eq!(
        answers[2]["error"],
        json!({"code": -1, "message": "too much"})
    );
    assert_eq!(
        answers[3]["result"],
        json!({"action": "accept", "content": {"name": "Ada"}})
    );
    assert_eq!(answers[4]["result"]["action"], "accept");
    assert_eq!(answers[5]["error"]["code"], -32602);
    let asked = person.asked.lock().unwrap();
    assert_eq!(
        asked[1],
        Question::Url {
            message: "Go".into(),
            url: "https://example.com/".into()
        }
    );
}

#[tokio::test]
async fn log_is_asked_for_and_kept_up_to_a_hundred() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server
            .handshake_with(json!({"logging": {}, "tools": {}}))
            .await;
        let level = server.request("logging/setLevel").await;
        assert_eq!(level["params"]["level"], "info");
        server.answer(&level, json!({})).await;
        for number in 0..150 {
            let params = json!({"level": "warning", "logger": "l", "data": format!("{number} {}", "x".repeat(1000))});
            server
                .send(
                    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}),
                )
                .await;
        }
        let call = server.request("tools/call").await;
        server.answer(&call, json!({"content": []})).await;
        server.stay().await;
    });
    let person = Arc::new(Person::default());
    let client = Client::connect("s", ours, &all(&person, Era::Handshake))
        .await
        .unwrap();
    client.say("t", json!({})).await.unwrap();
    let logs = client.logs();
    assert_eq!(logs.len(), 100);
    assert!(
        logs[0].starts_with("warning: l: 50 x") && logs[0].len() < 600,
        "{}",
        logs[0]
    );
}

#[tokio::test(start_paused = true)]
async fn person_may_take_longer_than_a_call() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.handshake().await;
        let call = server.request("tools/call").await;
        let params: Value = serde_json::from_str(FORM).unwrap();
        server.send(json!({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": params})).await;
        let answer = server.next().await;
        server
            .answer(
                &call,
                json!({"content": [{"type": "text", "text": answer["result"]["content"]["name"]}]}),
            )
            .await;
        server.stay().await;
    });
    let person = Arc::new(Person {
        slow: Some(Duration::from_secs(200)),
        ..Person::default()
    });
    let client = Client::connect("s", ours, &all(&person, Era::Handshake))
        .await
        .unwrap();
    assert_eq!(client.say("t", json!({})).await.unwrap().text, "Ada");
}

#[tokio::test]
async fn flood_of_requests_ends_the_connection() {
    let person = Arc::new(Person {
        slow: Some(Duration::from_secs(3600)),
        ..Person::default()
    });
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.handshake().await;
        // Never reads, so its answers pile up.
        for id in 0.. {
            let ping = json!({"jsonrpc": "2.0", "id": id, "method": "x".repeat(400)});
            if server
                .out
                .write_all(format!("{ping}\n").as_bytes())
                .await
                .is_err()
            {
                break;
            }
        }
    });
    let client = Client::connect("s", ours, &all(&person, Era::Handshake))
        .await
        .unwrap();
    assert_eq!(
        client.ended().await,
        "it made more than 1000 requests at the same time"
    );
}

/// Questions that come as the result of a call, in the newer era.
async fn rounds(options: &ConnectOptions, questions: Value, rounds: usize) -> (Value, Vec<Value>) {
    let (ours, mut server) = faulty();
    let serving = tokio::spawn(async move {
        server.discovered(json!({"tools": {}})).await;
        let mut calls = Vec::new();
        for round in 0..=rounds {
            let Ok(Some(line)) = server.lines.next_line().await else {
                break;
            };
            let call: Value = serde_json::from_str(&line).unwrap();
            let result = if round < rounds {
                json!({"resultType": "input_required", "inputRequests": questions, "requestState": format!("s{round}")})
            } else {
                json!({"resultType": "complete", "content": [{"type": "text", "text": "done"}]})
            };
            server.answer(&call, result).await;
            calls.push(call["params"].clone());
        }
        calls
    });
    let client = Client::connect("s", ours, options).await.unwrap();
    let output = client.say("t", json!({"a": 1})).await.unwrap();
    drop(client);
    (
        json!([output.text, output.is_error]),
        serving.await.unwrap(),
    )
}

#[tokio::test]
async fn questions_within_a_result_are_answered_and_the_call_made_again() {
    let person = Arc::new(Person::default());
    let form: Value = serde_json::from_str(FORM).unwrap();
    let questions = json!({"who": {"method": "elicitation/create", "params": form},
        "where": {"method": "roots/list"},
        "what": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}});
    let (output, calls) = rounds(&all(&person, Era::Stateless), questions, 1).await;
    assert_eq!(output, json!(["done", false]));
    assert_eq!(
        calls[0]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["roots"],
        json!({})
    );
    let again = &calls[1];
    assert_eq!(
        (&again["requestState"], &again["arguments"]),
        (&json!("s0"), &json!({"a": 1}))
    );
    let answers = &again["inputResponses"];
    assert_eq!(
        answers["who"],
        json!({"action": "accept", "content": {"name": "Ada"}})
    );
    assert_eq!(answers["where"]["roots"][0]["name"], "workspace");
    assert_eq!(answers["what"]["content"]["text"], "for s");
}

#[tokio::test]
async fn question_that_was_not_offered_is_declined_or_ends_the_call() {
    let newer = ConnectOptions {
        era: Some(Era::Stateless),
        ..ConnectOptions::default()
    };
    let form: Value = serde_json::from_str(FORM).unwrap();
    let questions = json!({"who": {"method": "elicitation/create", "params": form}});
    let (output, calls) = rounds(&newer, questions, 1).await;
    assert_eq!(
        (output, &calls[1]["inputResponses"]["who"]),
        (json!(["done", false]), &json!({"action": "decline"}))
    );
    let (output, calls) = rounds(&newer, json!({"where": {"method": "roots/list"}}), 1).await;
    assert_eq!((output[1].clone(), calls.len()), (json!(true), 1));
    assert!(
        output[0].as_str().unwrap().contains("roots/list"),
        "{output}"
    );
}

#[tokio::test]
async fn endless_questions_end_the_call() {
    let newer = ConnectOptions {
        era: Some(Era::Stateless),
        ..ConnectOptions::default()
    };
    let (output, calls) = rounds(&newer, json!({}), 100).await;
    assert!(
        output[0].as_str().unwrap().contains("more than 10 times"),
        "{output}"
    );
    assert_eq!(calls.len(), 10);
}

#[tokio::test]
async fn request_with_a_huge_id_ends_the_connection_and_a_huge_one_is_refused() {
    let (ours, mut server) = faulty();
    let (reported, mut answers) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        server.handshake().await;
        server.request("notifications/initialized").await;
        let large = "x".repeat(5_000_000);
        server
            .send(json!({"jsonrpc": "2.0", "id": 7, "method": "x/y", "params": {"a": large}}))
            .await;
        reported.send(server.next().await).await.unwrap();
        server
            .send(json!({"jsonrpc": "2.0", "id": "x".repeat(1_000), "method": "ping"}))
            .await;
        server.stay().await;
    });
    let client = Client::connect("s", ours, &older()).await.unwrap();
    let answer = answers.recv().await.unwrap();
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(7), &json!(-32600))
    );
    let reason = client.ended().await;
    assert!(reason.contains("more than 256 bytes"), "{reason}");
}
