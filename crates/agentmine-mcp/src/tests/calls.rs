//! Calls, readings and prompts.

use super::*;

#[tokio::test]
async fn line_that_is_too_long_ends_the_connection() {
    let limits = McpLimits {
        max_line: 10_000,
        ..McpLimits::default()
    };
    let (client, output) = call_of(limits, |mut server, _call| async move {
        // Without an end: it must not be waited for.
        let _ = server.out.write_all(&[b'{'; 20_000]).await;
        std::future::pending::<()>().await;
    })
    .await;
    let error = output.unwrap_err().to_string();
    assert!(error.contains("a line of more than 10000 bytes"), "{error}");
    assert!(client.closed());
}

#[tokio::test]
async fn line_of_just_the_limit_passes() {
    let result = json!({"content": [{"type": "text", "text": "x".repeat(5_000)}]});
    let length = json!({"jsonrpc": "2.0", "id": 1, "result": result})
        .to_string()
        .len();
    for (max_line, passes) in [(length, true), (length - 1, false)] {
        let limits = McpLimits {
            max_line,
            ..McpLimits::default()
        };
        let result = result.clone();
        let (_client, output) = call_of(limits, |mut server, call| async move {
            assert_eq!(call["id"], 1, "the length above counts on it");
            server.answer(&call, result).await;
            std::future::pending::<()>().await;
        })
        .await;
        assert_eq!(output.is_ok(), passes, "{output:?}");
    }
}

#[tokio::test]
async fn message_of_too_many_values_ends_the_connection() {
    let (client, output) = call_of(McpLimits::default(), |mut server, call| async move {
        server
            .answer(&call, json!({"content": vec![1; 300_000]}))
            .await;
        server.stay().await;
    })
    .await;
    let error = output.unwrap_err().to_string();
    assert!(error.contains("more than 250000 values"), "{error}");
    assert!(client.closed());
}

#[tokio::test]
async fn optional_argument_that_is_null_is_not_sent() {
    let (ours, mut server) = faulty();
    let served = tokio::spawn(async move {
        server.handshake().await;
        let call = server.request("tools/call").await;
        server.answer(&call, json!({"content": []})).await;
        (call["params"]["arguments"].clone(), server)
    });
    let client = Client::connect("faulty", ours, &older()).await.unwrap();
    let tool = Tool {
        input_schema: json!({"type": "object", "properties": {
            "query": {"type": "string"},
            "country": {"type": "string"},
            "size": {"anyOf": [{"type": "string"}, {"type": "number"}]},
            "after": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "any": {},
        }, "required": ["query"]}),
        ..tool("search")
    };
    let arguments = json!({"query": null, "country": null, "size": null, "after": null, "any": null, "other": null});
    let called = client.call(&tool, arguments, CallOptions::default());
    called.await.unwrap();
    let expected = json!({"query": null, "after": null, "any": null, "other": null});
    let (sent, _server) = served.await.unwrap();
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn crash_within_a_call_is_reported() {
    let (client, output) = call_of(McpLimits::default(), |mut server, _call| async move {
        server.raw(b"{\"jsonrpc\": \"2.0\", \"id\"").await;
    })
    .await;
    let error = output.unwrap_err();
    assert!(matches!(error, McpError::Protocol { .. }), "{error}");
    assert!(
        error.to_string().contains("it has ended in the middle"),
        "{error}"
    );
    assert!(client.closed());
    assert!(client.say("t", json!({})).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn call_without_an_answer_is_cancelled_and_the_server_stays() {
    let (ours, mut server) = faulty();
    let (cancelled, was_cancelled) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        server.handshake().await;
        let first = server.request("tools/call").await;
        let cancel = server.request("notifications/cancelled").await;
        let ids = (first["id"].clone(), cancel["params"]["requestId"].clone());
        cancelled.send(ids).unwrap();
        // Too late: nobody may take it for the answer of the next call.
        server
            .answer(
                &first,
                json!({"content": [{"type": "text", "text": "late"}]}),
            )
            .await;
        let second = server.request("tools/call").await;
        server
            .answer(
                &second,
                json!({"content": [{"type": "text", "text": "second"}]}),
            )
            .await;
        server.stay().await;
    });
    let client = Client::connect("s", ours, &older()).await.unwrap();
    let error = client.say("t", json!({})).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "MCP tool 's:t' failed: no answer within 30 s"
    );
    let (call, cancel) = was_cancelled.await.unwrap();
    assert_eq!(call, cancel);
    assert_eq!(client.say("t", json!({})).await.unwrap().text, "second");
}

#[tokio::test]
async fn abandoned_call_is_cancelled_in_both_eras() {
    for newer in [false, true] {
        let (ours, mut server) = faulty();
        let (called, was_called) = tokio::sync::oneshot::channel();
        let seen = tokio::spawn(async move {
            if newer {
                server.discovered(json!({"tools": {}})).await;
            } else {
                server.handshake().await;
            }
            let call = server.request("tools/call").await;
            called.send(()).unwrap();
            let cancel = server.request("notifications/cancelled").await;
            assert_eq!(cancel["params"]["requestId"], call["id"]);
        });
        let era = Some(if newer {
            Era::Stateless
        } else {
            Era::Handshake
        });
        let options = ConnectOptions {
            era,
            ..ConnectOptions::default()
        };
        let client = Client::connect("s", ours, &options).await.unwrap();
        tokio::select! {
            output = client.say("t", json!({})) => panic!("{output:?}"),
            _ = was_called => {}
        }
        seen.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn progress_extends_a_call_up_to_its_time_in_all() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.handshake().await;
        for end in [true, false] {
            let call = server.request("tools/call").await;
            let token = call["params"]["_meta"]["progressToken"].clone();
            assert!(!token.is_null());
            for step in 1..=if end { 5 } else { 100 } {
                tokio::time::sleep(Duration::from_secs(20)).await;
                let params =
                    json!({"progressToken": token, "progress": step, "total": 5, "message": "m"});
                server.send(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})).await;
                // Another's progress extends nothing.
                let params = json!({"progressToken": 999, "progress": step});
                server.send(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})).await;
            }
            if end {
                server.answer(&call, json!({"content": []})).await;
            }
        }
    });
    let limits = McpLimits {
        total: Duration::from_secs(300),
        ..McpLimits::default()
    };
    let client = Client::connect("s", ours, &with(limits)).await.unwrap();
    let (to, mut reported) = tokio::sync::mpsc::channel(10);
    let options = CallOptions {
        progress: Some(to),
        ..CallOptions::default()
    };
    let output = client.call(&tool("t"), json!({}), options).await.unwrap();
    assert!(!output.is_error);
    let mut steps = Vec::new();
    while let Some(step) = reported.recv().await {
        assert_eq!(
            (step.total, step.message.as_deref()),
            (Some(5.0), Some("m"))
        );
        steps.push(step.progress);
    }
    assert_eq!(steps, [1.0, 2.0, 3.0, 4.0, 5.0]);
    let began = tokio::time::Instant::now();
    let error = client.say("t", json!({})).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "MCP tool 's:t' failed: no answer within 300 s"
    );
    assert_eq!(began.elapsed().as_secs(), 300);
}

#[tokio::test(start_paused = true)]
async fn limit_of_a_call_replaces_that_of_the_server() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.handshake().await;
        server.stay().await;
    });
    let client = Client::connect("s", ours, &older()).await.unwrap();
    for seconds in [1, 1_000] {
        let timeout = Some(Duration::from_secs(seconds));
        let options = CallOptions {
            timeout,
            ..CallOptions::default()
        };
        let error = client
            .call(&tool("t"), json!({}), options)
            .await
            .unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with(&format!("no answer within {seconds} s")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn answers_that_nobody_asked_for_are_dropped() {
    let (client, output) = call_of(McpLimits::default(), |mut server, call| async move {
        let stray = json!({"content": [{"type": "text", "text": "stray"}]});
        for id in [json!(77), json!("77"), json!("x"), json!(-1)] {
            server
                .send(json!({"jsonrpc": "2.0", "id": id, "result": stray}))
                .await;
        }
        server
            .send(json!({"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "m"}}))
            .await;
        // The id as a string, as some servers make it; and once more.
        let id = call["id"].to_string();
        for text in ["first", "second"] {
            let result = json!({"content": [{"type": "text", "text": text}]});
            server
                .send(json!({"jsonrpc": "2.0", "id": id, "result": result}))
                .await;
        }
        let call = server.request("tools/call").await;
        server
            .answer(
                &call,
                json!({"content": [{"type": "text", "text": "third"}]}),
            )
            .await;
        server.stay().await;
    })
    .await;
    assert_eq!(output.unwrap().text, "first");
    assert_eq!(client.say("t", json!({})).await.unwrap().text, "third");
}

#[tokio::test]
async fn every_kind_of_content_has_its_text() {
    let output = output_of(json!({"content": [
        {"type": "text", "text": "first"},
        {"type": "image", "data": "AAECAwQF", "mimeType": "image/png"},
        {"type": "audio", "data": "AAE=", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain",
            "description": "The file."},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "content"}},
        {"type": "resource", "resource": {"uri": "file:///c", "blob": "AAEC"}},
        {"type": "hologram", "data": "x"},
        {"text": "of no type"},
        5,
    ]}))
    .await;
    assert!(!output.is_error);
    assert_eq!(
        output.text,
        "first\n\
         [image: image/png, 6 bytes, not shown]\n\
         [audio: audio/wav, 2 bytes, not shown]\n\
         [link to a resource: file:///a (a, text/plain)] The file.\n\
         [resource: file:///b]\ncontent\n\
         [resource: file:///c, unknown type, 3 bytes, not shown]\n\
         [content of type \"hologram\", not shown]\n\
         [content of no type, not shown]\n\
         [content of no type, not shown]"
    );
}

#[tokio::test]
async fn structured_content_is_used_where_there_is_no_text() {
    let output = output_of(json!({"structuredContent": {"a": 1}, "content": []})).await;
    assert_eq!(output.text, r#"{"a":1}"#);
    assert_eq!(output.structured, Some(json!({"a": 1})));
    let output = output_of(json!({"structuredContent": {"a": 1}, "isError": true,
        "content": [{"type": "text", "text": "a is 1"}]}))
    .await;
    assert_eq!((output.text.as_str(), output.is_error), ("a is 1", true));
    let large = json!({"structuredContent": {"a": "x".repeat(200_000)}});
    assert_eq!(output_of(large).await.structured, None);
}

#[tokio::test]
async fn result_is_held_against_the_promise_of_its_tool() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.handshake().await;
        loop {
            let message = server.next().await;
            if message["method"] == "tools/list" {
                let schema = json!({"type": "object", "required": ["n"], "properties": {
                    "n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}});
                let tools = json!([{"name": "t", "inputSchema": {}, "outputSchema": schema}]);
                server.answer(&message, json!({"tools": tools})).await;
            } else if message["method"] == "tools/call" {
                server
                    .answer(&message, message["params"]["arguments"].clone())
                    .await;
            }
        }
    });
    let client = Client::connect("s", ours, &older()).await.unwrap();
    let offer = client.offer().await.unwrap();
    let tool = &offer.tools[0];
    let text = json!([{"type": "text", "text": "did it"}]);
    for (result, note) in [
        (
            json!({"content": text, "structuredContent": {"n": 1}}),
            None,
        ),
        (
            json!({"content": text, "structuredContent": {"n": "1"}}),
            Some("outputSchema promises: /n: "),
        ),
        (
            json!({"content": text, "structuredContent": {}}),
            Some("the whole: "),
        ),
        (json!({"content": text}), Some("and gave none")),
        (json!({"content": text, "isError": true}), None),
    ] {
        let output = client
            .call(tool, result.clone(), CallOptions::default())
            .await
            .unwrap();
        assert_eq!(output.is_error, result["isError"] == true);
        match note {
            None => assert_eq!(output.text, "did it"),
            Some(note) => assert!(
                output.text.starts_with("did it\n[note: ") && output.text.contains(note),
                "{}",
                output.text
            ),
        }
    }
}

#[test]
fn promise_that_cannot_be_used_is_refused_with_the_reason() {
    let refused = |schema: Value| crate::output::usable(&schema).unwrap_err();
    assert!(refused(json!(true)).contains("not an object"));
    assert!(refused(json!({"properties": {"a": {"type": 7}}})).contains("cannot be used"));
    assert!(refused(json!({"type": ["object", "thing"]})).contains("cannot be used"));
    assert!(refused(json!({"title": "x".repeat(70_000)})).contains("bytes"));
    let mut deep = json!({});
    for _ in 0..100 {
        deep = json!({"items": deep});
    }
    assert!(refused(deep).contains("deep"));
    assert!(crate::output::usable(&json!({"$ref": "http://127.0.0.1:1/x"})).is_ok());
    assert!(crate::output::usable(&json!({"$ref": "#"})).is_ok());
}

#[tokio::test]
async fn empty_result_says_so() {
    for result in [json!({"content": []}), json!({}), json!({"isError": false})] {
        assert_eq!(output_of(result).await.text, "(the tool returned nothing)");
    }
}

#[tokio::test]
async fn answer_that_is_not_utf8_is_reported_as_such() {
    let (client, output) = call_of(McpLimits::default(), |mut server, call| async move {
        let id = &call["id"];
        let start = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"caf");
        let line = [start.as_bytes(), b"\xe9\"}]}}\n"].concat();
        server.raw(&line).await;
        let call = server.request("tools/call").await;
        server.answer(&call, json!({"content": []})).await;
        server.stay().await;
    })
    .await;
    let error = output.unwrap_err().to_string();
    assert!(
        error.contains("its answer is not valid UTF-8: the byte 0xe9 at offset "),
        "{error}"
    );
    // The connection continues.
    assert!(!client.say("t", json!({})).await.unwrap().is_error);
}

#[tokio::test]
async fn long_output_keeps_head_and_tail() {
    let limits = McpLimits {
        max_output: 101,
        ..McpLimits::default()
    };
    let text = format!("head{}tail", "é".repeat(1000));
    let total = text.len();
    let (_client, output) = call_of(limits, |mut server, call| async move {
        server
            .answer(&call, json!({"content": [{"type": "text", "text": text}]}))
            .await;
        server.stay().await;
    })
    .await;
    let text = output.unwrap().text;
    assert!(
        text.starts_with("headé") && text.ends_with("étail"),
        "{text}"
    );
    let (head, rest) = text.split_once("\n[... ").unwrap();
    let (note, tail) = rest.split_once(" ...]\n").unwrap();
    let kept = head.len() + tail.len();
    assert!(kept <= 101);
    let (cut, how) = note.split_once(' ').unwrap();
    assert_eq!(cut.parse(), Ok(total - kept));
    assert_eq!(
        how,
        "bytes, 0 lines left out: ask for less at a time to see it"
    );
}

#[tokio::test]
async fn error_of_the_protocol_is_reported_to_the_model() {
    let (client, output) = call_of(McpLimits::default(), |mut server, call| async move {
        server
            .send(json!({"jsonrpc": "2.0", "id": call["id"],
                "error": {"code": -32602, "message": "no such argument", "data": {"name": "x"}}}))
            .await;
        server.stay().await;
    })
    .await;
    let output = output.unwrap();
    assert!(output.is_error);
    let reported: Value = serde_json::from_str(&output.text).unwrap();
    assert_eq!(
        reported,
        json!({"status": "error",
        "error": {"code": -32602, "message": "no such argument", "data": {"name": "x"}}})
    );
    assert!(!client.closed());
}

#[tokio::test]
async fn answer_that_is_no_result_breaks_the_call_only() {
    for result in [json!({"tools": []}), json!("text"), json!({"content": 5})] {
        let (client, output) = call_of(McpLimits::default(), |mut server, call| async move {
            server.answer(&call, result).await;
            server.stay().await;
        })
        .await;
        let error = output.unwrap_err();
        assert!(matches!(error, McpError::Protocol { .. }), "{error}");
        assert!(!client.closed());
    }
}

async fn asked(method: &'static str, result: Value) -> Client {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.handshake().await;
        let request = server.request(method).await;
        server.answer(&request, result).await;
        server.stay().await;
    });
    Client::connect("s", ours, &older()).await.unwrap()
}

#[tokio::test]
async fn resource_is_read_as_text_and_its_bytes_are_described() {
    let one = json!({"contents": [{"uri": "file:///a", "text": "all of it"}]});
    let read = asked("resources/read", one)
        .await
        .read("file:///a", CallOptions::default())
        .await
        .unwrap();
    assert_eq!(read.text, "all of it");
    let two = json!({"contents": [{"uri": "file:///a", "text": "x"},
        {"uri": "file:///b", "blob": "AAEC", "mimeType": "image/png"}]});
    let read = asked("resources/read", two)
        .await
        .read("file:///a", CallOptions::default())
        .await
        .unwrap();
    assert_eq!(
        read.text,
        "[resource: file:///a]\nx\n[resource: file:///b, image/png, 3 bytes, not shown]"
    );
    let none = asked("resources/read", json!({"contents": []})).await;
    assert_eq!(
        none.read("x", CallOptions::default()).await.unwrap().text,
        "(the resource is empty)"
    );
    let wrong = asked("resources/read", json!({"contents": 5})).await;
    assert!(wrong.read("x", CallOptions::default()).await.is_err());
}

#[tokio::test]
async fn prompt_is_its_messages_with_their_roles() {
    let result = json!({"messages": [
        {"role": "user", "content": {"type": "text", "text": "Review this."}},
        {"role": "assistant", "content": {"type": "image", "data": "AAEC", "mimeType": "image/png"}},
    ]});
    let client = asked("prompts/get", result).await;
    let prompt = client
        .prompt(
            "p",
            [("a".into(), "b".into())].into(),
            CallOptions::default(),
        )
        .await
        .unwrap();
    assert_eq!(
        prompt.text,
        "user: Review this.\n\nassistant: [image: image/png, 3 bytes, not shown]"
    );
}

#[tokio::test]
async fn storm_of_progress_ends_at_the_limit_in_all() {
    let limits = McpLimits {
        call: Duration::from_millis(200),
        total: Duration::from_millis(400),
        ..McpLimits::default()
    };
    let began = std::time::Instant::now();
    let (_client, output) = call_of(limits, |mut server, call| async move {
        let token = &call["params"]["_meta"]["progressToken"];
        let step = json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": token, "progress": 1}});
        let storm = format!("{step}\n").repeat(100);
        while server.out.write_all(storm.as_bytes()).await.is_ok() {}
    })
    .await;
    let error = output.unwrap_err().to_string();
    assert!(error.contains("0.4 s"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn what_a_server_says_in_an_error_moves_no_cursor_and_is_bounded() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        let request = server.request("initialize").await;
        server
            .refuse(&request, -1, "no\u{1b}[2J\r\n\u{202e}yes")
            .await;
        server.stay().await;
    });
    let error = Client::connect("s", ours, &older()).await.unwrap_err();
    assert!(error.to_string().contains("no [2J   yes"), "{error:?}");
    let limits = McpLimits {
        max_output: 6_000,
        ..McpLimits::default()
    };
    let (_client, output) = call_of(limits, |mut server, call| async move {
        server.refuse(&call, -1, &"\u{1}".repeat(100_000)).await;
        server.stay().await;
    })
    .await;
    let text = output.unwrap().text;
    assert!(text.len() < 7_000, "{}", text.len());
    let reported: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&reported["status"], &reported["error"]["code"]),
        (&json!("error"), &json!(-1))
    );
}
