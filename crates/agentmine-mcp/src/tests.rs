//! Against a real server, and against one that is written by hand and does everything wrong.

use std::time::Duration;

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer, ServiceExt};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex,
};

use super::*;

// --- a real server ------------------------------------------------------------------------------

struct Echo;

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("echo", "1.2.3"))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, rmcp::ErrorData> {
        let schema: JsonObject = serde_json::from_value(json!({"type": "object"})).unwrap();
        let tool = |name: &'static str| rmcp::model::Tool::new(name, "Echoes.", schema.clone());
        Ok(ListToolsResult::with_all_items(vec![
            tool("say"),
            tool("fail"),
        ]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, rmcp::ErrorData> {
        let text = Value::Object(request.arguments.unwrap_or_default()).to_string();
        match request.name.as_ref() {
            "say" => Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into()),
            "fail" => Ok(CallToolResult::error(vec![ContentBlock::text(text)]).into()),
            other => Err(rmcp::ErrorData::invalid_params(format!("no {other}"), None)),
        }
    }
}

async fn echo() -> Client {
    let (ours, theirs) = duplex(4096);
    tokio::spawn(async move {
        let running = Echo.serve(tokio::io::split(theirs)).await.unwrap();
        running.waiting().await.unwrap();
    });
    Client::connect("echo", ours, Limits::default())
        .await
        .unwrap()
}

#[tokio::test]
async fn real_server_is_connected_listed_and_called() {
    let client = echo().await;
    assert_eq!(client.server(), "echo");
    assert_eq!(client.server_info(), ("echo", "1.2.3"));
    let names: Vec<&str> = client
        .tools()
        .iter()
        .map(|tool| tool.name.as_str())
        .collect();
    assert_eq!(names, ["fail", "say"]);
    assert_eq!(client.tools()[0].description, "Echoes.");
    assert_eq!(client.tools()[0].input_schema, json!({"type": "object"}));
    let said = client.call("say", json!({"a": "b"})).await.unwrap();
    assert_eq!((said.text.as_str(), said.is_error), (r#"{"a":"b"}"#, false));
    let failed = client.call("fail", Value::Null).await.unwrap();
    assert_eq!((failed.text.as_str(), failed.is_error), ("{}", true));
    let unknown = client.call("other", json!({})).await.unwrap();
    assert!(
        unknown.is_error && unknown.text.contains("no other"),
        "{unknown:?}"
    );
    let wrong = client.call("say", json!([1])).await.unwrap();
    assert!(wrong.is_error && wrong.text.contains("JSON object"));
}

#[tokio::test]
async fn shut_down_client_is_closed() {
    let client = echo().await;
    assert!(!client.closed());
    client.shutdown().await;
    assert!(client.closed());
    let error = client.call("say", json!({})).await.unwrap_err();
    assert!(matches!(error, McpError::Protocol { .. }), "{error}");
    client.shutdown().await;
}

#[tokio::test]
async fn calls_at_the_same_time_get_their_own_answers() {
    let client = std::sync::Arc::new(echo().await);
    let calls: Vec<_> = (0..50)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move { client.call("say", json!({"n": number})).await })
        })
        .collect();
    for (number, call) in calls.into_iter().enumerate() {
        let said = call.await.unwrap().unwrap();
        assert_eq!(said.text, json!({"n": number}).to_string());
    }
}

// --- a faulty server ----------------------------------------------------------------------------

/// The server's end of a connection, by hand.
struct Faulty {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    out: WriteHalf<DuplexStream>,
}

fn faulty() -> (DuplexStream, Faulty) {
    let (ours, theirs) = duplex(64 * 1024);
    let (read, out) = tokio::io::split(theirs);
    let lines = BufReader::new(read).lines();
    (ours, Faulty { lines, out })
}

impl Faulty {
    async fn next(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap();
        serde_json::from_str(&line.expect("the client has closed")).unwrap()
    }

    /// The next request of a method; what comes before it is passed over.
    async fn request(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await;
            if message["method"] == method {
                return message;
            }
        }
    }

    async fn send(&mut self, message: Value) {
        self.raw(format!("{message}\n").as_bytes()).await;
    }

    async fn raw(&mut self, bytes: &[u8]) {
        self.out.write_all(bytes).await.unwrap();
    }

    async fn answer(&mut self, request: &Value, result: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
            .await;
    }

    async fn handshake(&mut self) {
        let request = self.request("initialize").await;
        self.answer(
            &request,
            json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "faulty", "version": "0"}}),
        )
        .await;
    }

    async fn list(&mut self, tools: Value) {
        let request = self.request("tools/list").await;
        self.answer(&request, json!({"tools": tools})).await;
    }

    async fn start(&mut self) {
        self.handshake().await;
        self.list(json!([{"name": "t", "inputSchema": {}}])).await;
    }
}

/// Connects to a server that does this after its start, and calls its tool.
async fn call_of<F, Fut>(limits: Limits, behave: F) -> (Client, Result<ToolOutput, McpError>)
where
    F: FnOnce(Faulty, Value) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.start().await;
        let call = server.request("tools/call").await;
        behave(server, call).await;
    });
    let client = Client::connect("faulty", ours, limits).await.unwrap();
    let output = client.call("t", json!({})).await;
    (client, output)
}

async fn output_of(result: Value) -> ToolOutput {
    let limits = Limits::default();
    let (_client, output) = call_of(limits, |mut server, call| async move {
        server.answer(&call, result).await;
        while server
            .lines
            .next_line()
            .await
            .is_ok_and(|line| line.is_some())
        {}
    })
    .await;
    output.unwrap()
}

#[tokio::test(start_paused = true)]
async fn silent_server_is_given_up() {
    let (ours, _server) = faulty();
    let error = Client::connect("s", ours, Limits::default())
        .await
        .unwrap_err();
    assert!(matches!(error, McpError::Timeout { .. }));
    assert_eq!(
        error.to_string(),
        "MCP server \"s\" did not answer the handshake and the listing of its tools within 30 s"
    );
}

#[tokio::test(start_paused = true)]
async fn server_that_never_lists_its_tools_is_given_up() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.handshake().await;
        server.request("tools/list").await;
        std::future::pending::<()>().await;
    });
    let error = Client::connect("s", ours, Limits::default())
        .await
        .unwrap_err();
    assert!(matches!(error, McpError::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn server_that_ends_at_once_is_told() {
    let (ours, server) = faulty();
    drop(server);
    let error = Client::connect("s", ours, Limits::default())
        .await
        .unwrap_err();
    assert!(matches!(error, McpError::Connection { .. }), "{error}");
}

#[tokio::test]
async fn refused_handshake_is_told() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        let request = server.request("initialize").await;
        let long = "x".repeat(100_000);
        server
            .send(json!({"jsonrpc": "2.0", "id": request["id"],
                "error": {"code": -1, "message": format!("too old {long}")}}))
            .await;
        std::future::pending::<()>().await;
    });
    let error = Client::connect("s", ours, Limits::default())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("too old") && error.len() < 1000, "{error}");
}

#[tokio::test]
async fn garbage_between_messages_is_dropped() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server
            .raw(b"Starting server...\n\n\xff\xfe\x00\n[1, 2]\n\"text\"\n{\"a\": \n")
            .await;
        server.start().await;
        server.raw(b"listening\r\n").await;
        let call = server.request("tools/call").await;
        server.raw(b"calling {\n").await;
        server.answer(&call, json!({"content": []})).await;
        server.lines.next_line().await.unwrap();
    });
    let client = Client::connect("s", ours, Limits::default()).await.unwrap();
    assert!(!client.call("t", json!({})).await.unwrap().is_error);
}

#[tokio::test]
async fn endless_garbage_ends_the_connection() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move { while server.out.write_all(b"y\n").await.is_ok() {} });
    let error = Client::connect("s", ours, Limits::default())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("more than 1000 lines"), "{error}");
}

#[tokio::test]
async fn line_that_is_too_long_ends_the_connection() {
    let limits = Limits {
        max_line: 10_000,
        ..Limits::default()
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

/// The guard holds a line in memory before anything can judge it, once for each server.
#[tokio::test]
async fn two_mebibytes_are_the_longest_line_unless_told_otherwise() {
    let (_client, output) = call_of(Limits::default(), |mut server, _call| async move {
        let _ = server.out.write_all(&vec![b'{'; 2 * 1024 * 1024 + 1]).await;
        std::future::pending::<()>().await;
    })
    .await;
    let error = output.unwrap_err().to_string();
    assert!(
        error.contains("a line of more than 2097152 bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn line_of_just_the_limit_passes() {
    let result = json!({"content": [{"type": "text", "text": "x".repeat(5_000)}]});
    let (probe, _) = (
        json!({"jsonrpc": "2.0", "id": 2, "result": result})
            .to_string()
            .len(),
        (),
    );
    for (max_line, passes) in [(probe, true), (probe - 1, false)] {
        let limits = Limits {
            max_line,
            ..Limits::default()
        };
        let result = result.clone();
        let (_client, output) = call_of(limits, |mut server, call| async move {
            assert_eq!(call["id"], 2, "the length above counts on it");
            server.answer(&call, result).await;
            std::future::pending::<()>().await;
        })
        .await;
        assert_eq!(output.is_ok(), passes, "{output:?}");
    }
}

#[tokio::test]
async fn crash_within_a_call_is_seen() {
    let (client, output) = call_of(Limits::default(), |mut server, _call| async move {
        server.raw(b"{\"jsonrpc\": \"2.0\", \"id\"").await;
    })
    .await;
    let error = output.unwrap_err();
    assert!(matches!(error, McpError::Protocol { .. }), "{error}");
    assert!(error.to_string().contains("it has ended"), "{error}");
    assert!(client.closed());
    assert!(client.call("t", json!({})).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn call_without_an_answer_is_cancelled_and_the_server_stays() {
    let (ours, mut server) = faulty();
    let (cancelled, was_cancelled) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        server.start().await;
        let first = server.request("tools/call").await;
        let cancel = server.request("notifications/cancelled").await;
        cancelled
            .send((first["id"].clone(), cancel["params"]["requestId"].clone()))
            .unwrap();
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
        std::future::pending::<()>().await;
    });
    let client = Client::connect("s", ours, Limits::default()).await.unwrap();
    let error = client.call("t", json!({})).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "MCP server \"s\" did not answer a call of \"t\" within 300 s"
    );
    let (call, cancel) = was_cancelled.await.unwrap();
    assert_eq!(call, cancel);
    assert_eq!(client.call("t", json!({})).await.unwrap().text, "second");
}

#[tokio::test]
async fn abandoned_call_is_cancelled() {
    let (ours, mut server) = faulty();
    let (called, was_called) = tokio::sync::oneshot::channel();
    let seen = tokio::spawn(async move {
        server.start().await;
        server.request("tools/call").await;
        called.send(()).unwrap();
        server.request("notifications/cancelled").await;
    });
    let client = Client::connect("s", ours, Limits::default()).await.unwrap();
    tokio::select! {
        output = client.call("t", json!({})) => panic!("{output:?}"),
        _ = was_called => {}
    }
    seen.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn server_that_does_not_read_is_given_up() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.start().await;
        std::future::pending::<()>().await;
    });
    let client = Client::connect("s", ours, Limits::default()).await.unwrap();
    let much = "x".repeat(1024 * 1024);
    let error = client.call("t", json!({"much": much})).await.unwrap_err();
    assert!(matches!(error, McpError::Timeout { .. }), "{error}");
    client.shutdown().await;
    assert!(client.closed());
}

#[tokio::test]
async fn repeated_cursor_ends_the_listing() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.handshake().await;
        for number in 0.. {
            let request = server.request("tools/list").await;
            let tool = json!({"name": format!("t{number}"), "inputSchema": {}});
            server
                .answer(&request, json!({"tools": [tool], "nextCursor": "same"}))
                .await;
        }
    });
    let client = Client::connect("s", ours, Limits::default()).await.unwrap();
    assert_eq!(client.tools().len(), 2);
}

#[tokio::test]
async fn endless_pages_are_read_up_to_a_limit() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.handshake().await;
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
    let client = Client::connect("s", ours, Limits::default()).await.unwrap();
    assert_eq!(client.tools().len(), 100);
}

#[tokio::test]
async fn malformed_tool_leaves_out_itself_only() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.handshake().await;
        server
            .list(json!([
                {"name": "good", "description": "d", "inputSchema": {"type": "object"}},
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
                null,
            ]))
            .await;
        std::future::pending::<()>().await;
    });
    let client = Client::connect("s", ours, Limits::default()).await.unwrap();
    let [good, long] = client.tools() else {
        panic!("{:?}", client.tools());
    };
    assert_eq!(
        (good.name.as_str(), good.description.as_str()),
        ("good", "d")
    );
    assert_eq!(long.description.len(), 16 * 1024);
}

#[tokio::test]
async fn server_without_tools_is_not_asked_for_them() {
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        let request = server.request("initialize").await;
        server
            .answer(
                &request,
                json!({"protocolVersion": "2025-11-25", "capabilities": {},
                    "serverInfo": {"name": "n", "version": "0"}}),
            )
            .await;
        std::future::pending::<()>().await;
    });
    let client = Client::connect("s", ours, Limits::default()).await.unwrap();
    assert!(client.tools().is_empty());
}

#[tokio::test]
async fn listing_that_is_refused_is_told() {
    for answer in [
        json!({"error": {"code": -32603, "message": "broken"}}),
        json!({"result": {"tools": {}}}),
        json!({"result": {}}),
    ] {
        let (ours, mut server) = faulty();
        tokio::spawn(async move {
            server.handshake().await;
            let request = server.request("tools/list").await;
            let mut answer = answer;
            answer["jsonrpc"] = "2.0".into();
            answer["id"] = request["id"].clone();
            server.send(answer).await;
            std::future::pending::<()>().await;
        });
        let error = Client::connect("s", ours, Limits::default())
            .await
            .unwrap_err();
        assert!(matches!(error, McpError::Protocol { .. }), "{error}");
    }
}

#[tokio::test]
async fn requests_of_a_server_are_declined_and_notifications_ignored() {
    let (ours, mut server) = faulty();
    let asked = tokio::spawn(async move {
        server.start().await;
        for method in [
            "notifications/message",
            "notifications/tools/list_changed",
            "x/y",
        ] {
            server
                .send(json!({"jsonrpc": "2.0", "method": method, "params": {}}))
                .await;
        }
        let mut answers = Vec::new();
        for (id, method, params) in [
            (101, "roots/list", json!({})),
            (
                102,
                "sampling/createMessage",
                json!({"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
                    "maxTokens": 5}),
            ),
            (
                103,
                "elicitation/create",
                json!({"message": "password?",
                    "requestedSchema": {"type": "object", "properties": {}}}),
            ),
            (104, "ping", json!({})),
            (105, "something/else", json!({})),
        ] {
            server
                .send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
                .await;
            loop {
                let answer = server.next().await;
                if answer["id"] == id {
                    answers.push(answer);
                    break;
                }
            }
        }
        let call = server.request("tools/call").await;
        server.answer(&call, json!({"content": []})).await;
        answers
    });
    let client = Client::connect("s", ours, Limits::default()).await.unwrap();
    assert!(!client.call("t", json!({})).await.unwrap().is_error);
    let answers = asked.await.unwrap();
    assert_eq!(answers[0]["error"]["code"], -32601);
    assert_eq!(answers[1]["error"]["code"], -32601);
    assert_eq!(answers[2]["result"]["action"], "decline");
    assert_eq!(answers[3]["result"], json!({}));
    assert_eq!(answers[4]["error"]["code"], -32601);
}

#[tokio::test]
async fn flood_of_requests_ends_the_connection() {
    let (client, output) = call_of(Limits::default(), |mut server, _call| async move {
        for id in 0.. {
            let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
            if server
                .out
                .write_all(format!("{ping}\n").as_bytes())
                .await
                .is_err()
            {
                break;
            }
        }
    })
    .await;
    let error = output.unwrap_err().to_string();
    assert!(error.contains("more than 10000 requests"), "{error}");
    assert!(client.closed());
}

// --- what a call gives --------------------------------------------------------------------------

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
async fn structured_content_stands_in_where_there_is_no_text() {
    let output = output_of(json!({"structuredContent": {"a": 1}, "content": []})).await;
    assert_eq!(output.text, r#"{"a":1}"#);
    let output = output_of(json!({"structuredContent": {"a": 1}, "isError": true,
        "content": [{"type": "text", "text": "a is 1"}]}))
    .await;
    assert_eq!((output.text.as_str(), output.is_error), ("a is 1", true));
}

#[tokio::test]
async fn empty_result_says_so() {
    for result in [json!({"content": []}), json!({}), json!({"isError": false})] {
        let output = output_of(result).await;
        assert_eq!(output.text, "(the tool returned nothing)");
    }
}

#[tokio::test]
async fn long_output_keeps_head_and_tail() {
    let limits = Limits {
        max_output: 101,
        ..Limits::default()
    };
    let text = format!("head{}tail", "é".repeat(1000));
    let total = text.len();
    let (_client, output) = call_of(limits, |mut server, call| async move {
        server
            .answer(&call, json!({"content": [{"type": "text", "text": text}]}))
            .await;
        std::future::pending::<()>().await;
    })
    .await;
    let text = output.unwrap().text;
    assert!(
        text.starts_with("headé") && text.ends_with("étail"),
        "{text}"
    );
    let cut: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    let kept = text.len() - format!("\n[... {cut} bytes cut ...]\n").len();
    assert_eq!(kept + cut, total);
    assert!(kept <= 101);
}

#[tokio::test]
async fn error_of_the_protocol_is_told_to_the_model() {
    let (client, output) = call_of(Limits::default(), |mut server, call| async move {
        server
            .send(json!({"jsonrpc": "2.0", "id": call["id"],
                "error": {"code": -32602, "message": "no such argument", "data": {"name": "x"}}}))
            .await;
        std::future::pending::<()>().await;
    })
    .await;
    let output = output.unwrap();
    assert!(output.is_error);
    assert_eq!(
        output.text,
        "the MCP server refused the call: no such argument (code -32602)\n{\"name\":\"x\"}"
    );
    assert!(!client.closed());
}

#[tokio::test]
async fn answer_that_is_no_result_breaks_the_call_only() {
    for result in [json!({"tools": []}), json!("text"), json!({"content": 5})] {
        let (client, output) = call_of(Limits::default(), |mut server, call| async move {
            server.answer(&call, result).await;
            std::future::pending::<()>().await;
        })
        .await;
        let error = output.unwrap_err();
        assert!(matches!(error, McpError::Protocol { .. }), "{error}");
        assert!(!client.closed());
    }
    let output = output_of(json!({"resultType": "input_required", "inputRequests": {}})).await;
    assert!(
        output.is_error && output.text.contains("not supported"),
        "{output:?}"
    );
}

#[tokio::test]
async fn dropped_client_lets_go_of_the_stream() {
    let (ours, mut server) = faulty();
    let ended = tokio::spawn(async move {
        server.start().await;
        while server.lines.next_line().await.unwrap().is_some() {}
    });
    let client = Client::connect("s", ours, Limits::default()).await.unwrap();
    drop(client);
    tokio::time::timeout(Duration::from_secs(10), ended)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn client_dropped_within_a_write_lets_go_of_the_stream() {
    let (ours, mut server) = faulty();
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let ended = tokio::spawn(async move {
        server.start().await;
        gone.await.unwrap();
        // Nothing is read, so only a closed stream lets a write fail.
        while server.out.write_all(b"\n").await.is_ok() {}
    });
    let client = Client::connect("s", ours, Limits::default()).await.unwrap();
    let much = "x".repeat(1024 * 1024);
    client.call("t", json!({"much": much})).await.unwrap_err();
    drop(client);
    go.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(10), ended)
        .await
        .unwrap()
        .unwrap();
}
