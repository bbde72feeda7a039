//! Beginnings and ends of connections.

use super::*;

async fn refused(options: &ConnectOptions, stream: DuplexStream) -> String {
    let error = Client::connect("s", stream, options).await.unwrap_err();
    assert!(matches!(error, McpError::Connection { .. }), "{error}");
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn silent_server_is_given_up() {
    let (ours, _server) = faulty();
    assert_eq!(
        refused(&ConnectOptions::default(), ours).await,
        "the connection to MCP server 's' failed: no answer to the handshake within 30 s"
    );
}

#[tokio::test(start_paused = true)]
async fn probe_that_is_passed_over_in_silence_costs_three_seconds() {
    for (start, costs) in [(30, 3_000), (2, 1_000)] {
        let (ours, mut server) = faulty();
        let began = tokio::time::Instant::now();
        let serving = tokio::spawn(async move {
            let probe = server.request("server/discover").await;
            server.handshake().await;
            // Too late, it is nobody's answer.
            server
                .answer(&probe, json!({"supportedVersions": ["2026-07-28"]}))
                .await;
            let call = server.request("tools/call").await;
            server.answer(&call, json!({"content": []})).await;
            server.stay().await;
        });
        let limits = McpLimits {
            start: Duration::from_secs(start),
            ..McpLimits::default()
        };
        let options = ConnectOptions {
            limits,
            ..ConnectOptions::default()
        };
        let client = Client::connect("s", ours, &options).await.unwrap();
        let took = u64::try_from(began.elapsed().as_millis()).unwrap();
        assert!((costs..costs + 50).contains(&took), "{took} ms");
        assert_eq!(client.greeting().protocol, "2025-06-18");
        assert!(!client.say("t", json!({})).await.unwrap().is_error);
        drop(client);
        serving.await.unwrap();
    }
}

/// The Python SDK lets the first request decide, and refuses the other era's from then on. Its refusal may come before
/// the answer, after it, or not at all.
#[tokio::test(start_paused = true)]
async fn slow_server_of_the_stateless_era_that_gets_both_requests_is_not_started_again() {
    for (refused_first, refused_last) in [(false, true), (true, false), (false, false)] {
        let (ours, mut server) = faulty();
        let serving = tokio::spawn(async move {
            let probe = server.request("server/discover").await;
            let initialize = server.request("initialize").await;
            if refused_first {
                server.refuse_initialize(&initialize).await;
            }
            server.describe_itself(&probe, json!({"tools": {}})).await;
            if refused_last {
                server.refuse_initialize(&initialize).await;
            }
            let call = server.next().await;
            assert_eq!(call["method"], "tools/call", "{call}");
            server
                .answer(&call, json!({"resultType": "complete", "content": []}))
                .await;
            server.stay().await;
        });
        let client = Client::connect("s", ours, &ConnectOptions::default())
            .await
            .unwrap();
        assert_eq!(client.greeting().era, Era::Stateless);
        assert!(!client.say("t", json!({})).await.unwrap().is_error);
        drop(client);
        serving.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_of_a_server_that_never_answers_the_probe_is_reported() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        let request = server.request("initialize").await;
        server.refuse(&request, -32600, "go away").await;
        server.stay().await;
    });
    let error = refused(&ConnectOptions::default(), ours).await;
    assert!(error.contains("it refused: go away"), "{error}");
}

#[tokio::test]
async fn server_that_refuses_the_probe_is_greeted_the_older_way() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        let probe = server.request("server/discover").await;
        server.refuse(&probe, -32601, "Method not found").await;
        server.handshake().await;
        server.stay().await;
    });
    let client = Client::connect("s", ours, &ConnectOptions::default())
        .await
        .unwrap();
    assert_eq!(client.greeting().era, Era::Handshake);
}

#[tokio::test]
async fn older_revision_that_the_refusing_server_lists_is_used() {
    for era in [None, Some(Era::Handshake)] {
        let (ours, mut server) = faulty();
        tokio::spawn(async move {
            if era.is_none() {
                let probe = server.request("server/discover").await;
                server.refuse(&probe, -32601, "Method not found").await;
            }
            let first = server.request("initialize").await;
            assert_eq!(first["params"]["protocolVersion"], "2025-11-25");
            server
                .send(json!({"jsonrpc": "2.0", "id": first["id"], "error": {"code": -32602,
                    "message": "Unsupported protocol version",
                    "data": {"supported": ["2024-11-05", "2025-03-26"], "requested": "2025-11-25"}}}))
                .await;
            let second = server.request("initialize").await;
            let version = second["params"]["protocolVersion"].clone();
            server
                .answer(
                    &second,
                    json!({"protocolVersion": version, "capabilities": {},
                    "serverInfo": {"name": "strict", "version": "0"}}),
                )
                .await;
            server.stay().await;
        });
        let options = ConnectOptions {
            era,
            ..ConnectOptions::default()
        };
        let client = Client::connect("s", ours, &options).await.unwrap();
        assert_eq!(client.greeting().protocol, "2025-03-26");
    }
}

#[tokio::test]
async fn server_that_keeps_refusing_is_given_up() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        for _ in 0..2 {
            let request = server.request("initialize").await;
            server
                .send(
                    json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32602,
                    "message": "not that one", "data": {"supported": ["2024-11-05"]}}}),
                )
                .await;
        }
        server.stay().await;
    });
    let error = refused(&older(), ours).await;
    assert!(
        error.contains("it refused: not that one (code -32602)"),
        "{error}"
    );
}

#[tokio::test]
async fn server_that_names_older_revisions_only_is_greeted_the_older_way() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        let probe = server.request("server/discover").await;
        server
            .send(json!({"jsonrpc": "2.0", "id": probe["id"], "error": {"code": -32022,
                "message": "unsupported", "data": {"supported": ["2025-06-18"], "requested": "2026-07-28"}}}))
            .await;
        server.handshake().await;
        server.stay().await;
    });
    let client = Client::connect("s", ours, &ConnectOptions::default())
        .await
        .unwrap();
    assert_eq!(client.greeting().era, Era::Handshake);
}

#[tokio::test]
async fn server_that_ends_is_reported() {
    let (ours, server) = faulty();
    drop(server);
    assert!(refused(&older(), ours).await.ends_with("it has ended"));
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.request("server/discover").await;
        server.raw(b"{\"jsonrpc\"").await;
    });
    let error = refused(&ConnectOptions::default(), ours).await;
    assert!(
        error.ends_with("it has ended in the middle of a line"),
        "{error}"
    );
}

#[tokio::test]
async fn refused_handshake_is_reported() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        let request = server.request("initialize").await;
        let long = "x".repeat(100_000);
        server
            .refuse(&request, -1, &format!("too old {long}"))
            .await;
        server.stay().await;
    });
    let error = refused(&older(), ours).await;
    assert!(error.contains("too old") && error.len() < 1000, "{error}");
}

#[tokio::test]
async fn version_that_we_do_not_speak_is_reported_with_both_sides() {
    for version in ["2077-01-01", "1.0", "2026-07-28"] {
        let (ours, mut server) = faulty();
        tokio::spawn(async move {
            let request = server.request("initialize").await;
            let answer = json!({"protocolVersion": version, "capabilities": {},
                "serverInfo": {"name": "n", "version": "0"}});
            server.answer(&request, answer).await;
            server.stay().await;
        });
        if version == "2026-07-28" {
            // A server that takes the older greeting for the newer era speaks it.
            let client = Client::connect("s", ours, &older()).await.unwrap();
            assert_eq!(client.greeting().era, Era::Stateless);
            continue;
        }
        let error = refused(&older(), ours).await;
        assert!(
            error.contains(&format!(
                "the server speaks {version}; the client speaks 2026-07-28, 2025-11-25"
            )),
            "{error}"
        );
    }
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        let request = server.request("server/discover").await;
        let answer = json!({"resultType": "complete", "supportedVersions": ["2077-01-01"],
            "capabilities": {}, "ttlMs": 0, "cacheScope": "private"});
        server.answer(&request, answer).await;
        server.stay().await;
    });
    let error = refused(&ConnectOptions::default(), ours).await;
    assert!(
        error.contains("the server speaks 2077-01-01; the client speaks 2026-07-28"),
        "{error}"
    );
}

#[tokio::test]
async fn garbage_between_messages_is_dropped() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server
            .raw(b"Starting server...\n\n\xff\xfe\x00\n[1, 2]\n\"text\"\n{\"a\": \n")
            .await;
        server.handshake().await;
        server.raw(b"listening\r\n").await;
        let call = server.request("tools/call").await;
        server.raw(b"calling {\n").await;
        server.answer(&call, json!({"content": []})).await;
        server.stay().await;
    });
    let client = Client::connect("s", ours, &older()).await.unwrap();
    assert!(!client.say("t", json!({})).await.unwrap().is_error);
}

#[tokio::test]
async fn server_that_logs_to_stdout_works_as_long_as_it_answers() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.handshake().await;
        for _ in 0..3 {
            let call = server.request("tools/call").await;
            server.raw(&b"INFO working\n".repeat(600)).await;
            server.answer(&call, json!({"content": []})).await;
        }
        server.stay().await;
    });
    let client = Client::connect("s", ours, &older()).await.unwrap();
    for _ in 0..3 {
        assert!(!client.say("t", json!({})).await.unwrap().is_error);
    }
}

#[tokio::test]
async fn endless_garbage_ends_the_connection() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move { while server.out.write_all(b"y\n").await.is_ok() {} });
    let error = refused(&older(), ours).await;
    assert!(error.contains("more than 1000 lines"), "{error}");
}

#[tokio::test]
async fn crash_is_seen_at_once() {
    let (ours, mut server) = faulty();
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        server.handshake().await;
        gone.await.unwrap();
    });
    let client = Client::connect("s", ours, &older()).await.unwrap();
    assert!(!client.closed());
    go.send(()).unwrap();
    assert_eq!(client.ended().await, "it has ended");
    assert!(client.closed());
}

#[tokio::test]
async fn dropped_client_lets_go_of_the_stream() {
    for newer in [false, true] {
        let (ours, mut server) = faulty();
        let ended = tokio::spawn(async move {
            if newer {
                server
                    .discovered(json!({"tools": {"listChanged": true}}))
                    .await;
            } else {
                server.handshake().await;
            }
            server.stay().await;
        });
        let options = if newer {
            ConnectOptions::default()
        } else {
            older()
        };
        drop(Client::connect("s", ours, &options).await.unwrap());
        tokio::time::timeout(Duration::from_secs(10), ended)
            .await
            .unwrap()
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn client_dropped_within_a_write_lets_go_of_the_stream() {
    let (ours, mut server) = faulty();
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let ended = tokio::spawn(async move {
        server.handshake().await;
        gone.await.unwrap();
        // Nothing is read, so only a closed stream lets a write fail.
        while server.out.write_all(b"\n").await.is_ok() {}
    });
    let client = Client::connect("s", ours, &older()).await.unwrap();
    let much = "x".repeat(1024 * 1024);
    client.say("t", json!({"much": much})).await.unwrap_err();
    drop(client);
    go.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(10), ended)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn server_that_does_not_read_is_given_up() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.handshake().await;
        std::future::pending::<()>().await;
        drop(server);
    });
    let client = Client::connect("s", ours, &older()).await.unwrap();
    let much = "x".repeat(1024 * 1024);
    let error = client.say("t", json!({"much": much})).await.unwrap_err();
    assert!(matches!(error, McpError::ToolExecution { .. }), "{error}");
    assert_eq!(client.ended().await, "it read no input for 60 s");
}

#[tokio::test(start_paused = true)]
async fn server_that_was_of_the_newer_era_and_is_silent_now_is_greeted_the_older_way() {
    for refuses in [true, false] {
        let (ours, mut server) = faulty();
        tokio::spawn(async move {
            let probe = server.request("server/discover").await;
            if refuses {
                server.refuse(&probe, -32601, "what?").await;
            }
            server.handshake().await;
            server.stay().await;
        });
        let options = ConnectOptions {
            era: Some(Era::Stateless),
            ..ConnectOptions::default()
        };
        let client = Client::connect("s", ours, &options).await.unwrap();
        assert_eq!(client.greeting().era, Era::Handshake);
    }
}
