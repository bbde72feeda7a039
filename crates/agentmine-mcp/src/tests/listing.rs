//! What a server offers.

use std::sync::Arc;

use super::*;

async fn offered<F, Fut>(capabilities: Value, serve: F) -> Result<Offer, McpError>
where
    F: FnOnce(Faulty) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.handshake_with(capabilities).await;
        serve(server).await;
    });
    let client = Client::connect("s", ours, &older()).await.unwrap();
    client.offer().await
}

/// Answers each listing by its method, for ever.
async fn serve_lists(mut server: Faulty, lists: Value) {
    while let Ok(Some(line)) = server.lines.next_line().await {
        let request: Value = serde_json::from_str(&line).unwrap();
        if let Some(list) = request["method"]
            .as_str()
            .and_then(|method| lists.get(method))
        {
            server.answer(&request, list.clone()).await;
        } else if request.get("id").is_some() {
            server.refuse(&request, -32601, "no").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn server_that_never_lists_its_tools_is_given_up() {
    let error = offered(json!({"tools": {}}), Faulty::stay)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("did not"), "{error}");
    assert!(matches!(error, McpError::Protocol { .. }));
}

#[tokio::test]
async fn repeated_cursor_ends_the_listing() {
    let offer = offered(json!({"tools": {}}), |mut server| async move {
        for number in 0.. {
            let request = server.request("tools/list").await;
            let tool = json!({"name": format!("t{number}"), "inputSchema": {}});
            server
                .answer(&request, json!({"tools": [tool], "nextCursor": "same"}))
                .await;
        }
    });
    let offer = offer.await.unwrap();
    assert_eq!(offer.tools.len(), 2);
    assert_eq!(
        offer.left_out,
        ["the listing of its tools comes back to a page that was there before"]
    );
}

#[tokio::test]
async fn endless_pages_are_read_up_to_a_limit() {
    let offer = offered(json!({"tools": {}}), |mut server| async move {
        for number in 0.. {
            let request = server.request("tools/list").await;
            if number > 0 {
                assert_eq!(request["params"]["cursor"], format!("c{number}"));
            }
            let tool = json!({"name": format!("t{number}"), "inputSchema": {}});
            let next = format!("c{}", number + 1);
            server
                .answer(&request, json!({"tools": [tool], "nextCursor": next}))
                .await;
        }
    });
    let offer = offer.await.unwrap();
    assert_eq!(offer.tools.len(), 100);
    assert!(
        offer.left_out[0].contains("does not end after 100 pages"),
        "{:?}",
        offer.left_out
    );
}

#[tokio::test]
async fn endless_list_is_cut_at_a_thousand() {
    let tools: Vec<Value> = (0..3_000)
        .map(|n| json!({"name": format!("t{n}"), "inputSchema": {}}))
        .collect();
    let lists = json!({"tools/list": {"tools": tools}});
    let offer = offered(json!({"tools": {}}), |server| serve_lists(server, lists))
        .await
        .unwrap();
    assert_eq!(offer.tools.len(), 1_000);
    assert!(
        offer.left_out[0].contains("more than 1000 tools"),
        "{:?}",
        offer.left_out
    );
}

#[tokio::test]
async fn secret_in_what_a_server_offers_is_redacted() {
    let lists = json!({
        "tools/list": {"tools": [{
            "name": "query",
            "description": "Queries postgres://app:canary-token@db",
            "inputSchema": {"type": "object",
                "properties": {"dsn": {"type": "string", "default": "canary-token"}}},
        }]},
        "resources/list": {"resources": [{"uri": "db://canary-token/t", "description": "canary-token"}]},
    });
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        let capabilities = json!({"tools": {}, "resources": {}});
        server.handshake_with(capabilities).await;
        serve_lists(server, lists).await;
    });
    let redact: Redact = Arc::new(|text: String| text.replace("canary-token", "***"));
    let options = ConnectOptions {
        redact: Some(redact),
        ..older()
    };
    let client = Client::connect("s", ours, &options).await.unwrap();
    let offer = client.offer().await.unwrap();
    let tool = &offer.tools[0];
    assert_eq!(tool.description, "Queries postgres://app:***@db");
    assert_eq!(tool.input_schema["properties"]["dsn"]["default"], "***");
    let resource = &offer.resources[0];
    assert_eq!(
        (resource.uri.as_str(), resource.description.as_str()),
        ("db://canary-token/t", "***")
    );
}

#[tokio::test]
async fn malformed_tool_leaves_out_itself_only() {
    let lists = json!({"tools/list": {"tools": [
        {"name": "good", "description": "d", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
        {"name": "no schema"},
        {"name": "schema is text", "inputSchema": "object"},
        {"name": 5, "inputSchema": {}},
        {"name": "", "inputSchema": {}},
        {"name": "line\nbreak", "inputSchema": {}},
        {"name": "d", "description": 7, "inputSchema": {}},
        {"name": "x".repeat(300), "inputSchema": {}},
        {"name": "big", "inputSchema": {"a": "x".repeat(70_000)}},
        {"name": "long", "description": "é".repeat(20_000), "inputSchema": {}},
        {"name": "good", "description": "another", "inputSchema": {}},
        {"name": "promise", "inputSchema": {}, "outputSchema": {"type": 7}},
        null,
    ]}});
    let offer = offered(json!({"tools": {}}), |server| serve_lists(server, lists))
        .await
        .unwrap();
    let [good, long, promise] = offer.tools.as_slice() else {
        panic!("{:?}", offer.tools);
    };
    assert_eq!(
        (good.name.as_str(), good.description.as_str()),
        ("good", "d")
    );
    assert_eq!(good.annotations, json!({"readOnlyHint": true}));
    assert_eq!(long.description.len(), 16 * 1024);
    assert_eq!(
        (promise.name.as_str(), &promise.output_schema),
        ("promise", &None)
    );
    assert_eq!(offer.left_out.len(), 11, "{:#?}", offer.left_out);
    assert_eq!(
        offer.left_out[0],
        "tool \"no schema\": it has no inputSchema"
    );
    assert_eq!(
        offer.left_out[1],
        "tool \"schema is text\": its inputSchema is not an object"
    );
    assert_eq!(
        offer.left_out[8],
        "tool \"good\": an earlier one has the same name"
    );
    assert!(offer.left_out[9].starts_with("tool \"promise\": its results are not checked"));
}

#[tokio::test]
async fn all_kinds_are_listed_and_sorted() {
    let lists = json!({
        "tools/list": {"tools": [{"name": "b", "inputSchema": {}}, {"name": "a", "inputSchema": {}}]},
        "resources/list": {"resources": [
            {"uri": "file:///b", "name": "b", "title": "B"},
            {"uri": "file:///a", "name": "a", "mimeType": "text/plain", "description": "d"}, {"name": "c"}]},
        "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "file:///{path}", "name": "files"}]},
        "prompts/list": {"prompts": [
            {"name": "p", "arguments": [{"name": "x", "required": true}, {"name": "y"}]},
            {"name": "q", "arguments": 5}]},
    });
    let has = json!({"tools": {}, "resources": {}, "prompts": {}});
    let offer = offered(has, |server| serve_lists(server, lists))
        .await
        .unwrap();
    assert_eq!(
        offer
            .tools
            .iter()
            .map(|it| it.name.as_str())
            .collect::<Vec<_>>(),
        ["a", "b"]
    );
    assert_eq!(offer.resources[0].mime_type.as_deref(), Some("text/plain"));
    assert_eq!(offer.resources[1].name, "B");
    assert_eq!(offer.templates[0].uri, "file:///{path}");
    assert_eq!(offer.prompts.len(), 1);
    assert_eq!(
        offer.prompts[0]
            .arguments
            .iter()
            .map(|it| it.required)
            .collect::<Vec<_>>(),
        [true, false]
    );
    assert_eq!(
        offer.left_out,
        [
            "resource 3: it has no uri",
            "prompt \"q\": its arguments are not a list"
        ]
    );
}

#[tokio::test]
async fn what_is_not_said_to_be_there_is_not_asked_for() {
    let offer = offered(json!({}), |mut server| async move {
        server.request("notifications/initialized").await;
        if let Ok(Some(line)) = server.lines.next_line().await {
            panic!("{line}");
        }
    });
    assert_eq!(offer.await.unwrap(), Offer::default());
}

#[tokio::test]
async fn missing_templates_are_no_fault_and_refused_prompts_are_reported() {
    let lists = json!({"resources/list": {"resources": []}, "prompts/list": {"prompts": 5}});
    let has = json!({"resources": {}, "prompts": {}});
    let offer = offered(has, |server| serve_lists(server, lists))
        .await
        .unwrap();
    assert_eq!(
        offer.left_out,
        ["prompts: it answered the listing of its prompts without a list"]
    );
}

#[tokio::test]
async fn tools_that_cannot_be_listed_are_an_error() {
    for answer in [json!({"tools": {}}), json!({}), json!(null)] {
        let lists = json!({"tools/list": answer});
        let offer = offered(json!({"tools": {}}), |server| serve_lists(server, lists)).await;
        let error = offer.unwrap_err();
        assert!(matches!(error, McpError::Protocol { .. }), "{error}");
    }
    let error = offered(json!({"tools": {}}), |server| {
        serve_lists(server, json!({}))
    })
    .await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("it refused the listing of its tools: no (code -32601)"),
        "{error}"
    );
}

#[tokio::test]
async fn storm_of_changes_is_counted_and_nothing_else() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.handshake().await;
        let change = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        let storm = format!("{change}\n").repeat(20_000);
        server.raw(storm.as_bytes()).await;
        let call = server.request("tools/call").await;
        server.answer(&call, json!({"content": []})).await;
        server.stay().await;
    });
    let client = Client::connect("s", ours, &older()).await.unwrap();
    let changes = client.changes();
    assert!(!client.say("t", json!({})).await.unwrap().is_error);
    assert_eq!(*changes.borrow(), 20_000);
}

#[tokio::test]
async fn list_of_very_many_bytes_is_cut() {
    let large = "x".repeat(60_000);
    let tool = |number: usize| {
        json!({"name": format!("t{number:03}"),
            "inputSchema": {"type": "object", "properties": {"a": {"description": large}}}})
    };
    let tools: Vec<Value> = (0..100).map(tool).collect();
    let offer = offered(json!({"tools": {}}), move |server| {
        serve_lists(server, json!({"tools/list": {"tools": tools}}))
    })
    .await
    .unwrap();
    assert!(
        (50..80).contains(&offer.tools.len()),
        "{}",
        offer.tools.len()
    );
    assert!(offer.bytes() < 5 * 1024 * 1024, "{}", offer.bytes());
    assert!(
        offer.left_out[0].contains("bytes of tools"),
        "{:?}",
        offer.left_out
    );
}
