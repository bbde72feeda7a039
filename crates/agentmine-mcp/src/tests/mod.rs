//! Against real servers, and against ones that are written by hand and do everything wrong.

mod asks;
mod calls;
mod http;
mod listing;
mod real;
mod start;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex,
};

use super::*;

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

    /// The next message of a method; what comes before it is passed over.
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

    async fn refuse(&mut self, request: &Value, code: i64, message: &str) {
        self.send(json!({"jsonrpc": "2.0", "id": request["id"],
            "error": {"code": code, "message": message}}))
            .await;
    }

    async fn handshake_with(&mut self, capabilities: Value) -> Value {
        let request = self.request("initialize").await;
        self.answer(
            &request,
            json!({"protocolVersion": "2025-06-18", "capabilities": capabilities,
                "serverInfo": {"name": "faulty", "version": "0"}}),
        )
        .await;
        request
    }

    async fn handshake(&mut self) {
        self.handshake_with(json!({"tools": {}})).await;
    }

    async fn discovered(&mut self, capabilities: Value) -> Value {
        let request = self.request("server/discover").await;
        self.describe_itself(&request, capabilities).await;
        request
    }

    async fn describe_itself(&mut self, probe: &Value, capabilities: Value) {
        self.answer(
            probe,
            json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private",
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "new", "version": "1"}}}),
        )
        .await;
    }

    async fn refuse_initialize(&mut self, request: &Value) {
        self.send(
            json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32022,
            "message": "the initialize handshake is not accepted",
            "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"}}}),
        )
        .await;
    }

    /// Until the client lets go.
    async fn stay(mut self) {
        while self
            .lines
            .next_line()
            .await
            .is_ok_and(|line| line.is_some())
        {}
    }
}

/// The older handshake, without a probe.
fn older() -> ConnectOptions {
    ConnectOptions {
        era: Some(Era::Handshake),
        ..ConnectOptions::default()
    }
}

fn with(limits: McpLimits) -> ConnectOptions {
    ConnectOptions { limits, ..older() }
}

fn tool(name: &str) -> Tool {
    Tool {
        name: name.into(),
        description: String::new(),
        input_schema: json!({}),
        output_schema: None,
        annotations: Value::Null,
    }
}

impl Client {
    async fn say(&self, name: &str, arguments: Value) -> Result<ToolOutput, McpError> {
        self.call(&tool(name), arguments, CallOptions::default())
            .await
    }
}

/// Connects to a server that does this once its tool is called, and calls it.
async fn call_of<F, Fut>(limits: McpLimits, behave: F) -> (Client, Result<ToolOutput, McpError>)
where
    F: FnOnce(Faulty, Value) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let (ours, mut server) = faulty();
    tokio::spawn(async move {
        server.handshake().await;
        let call = server.request("tools/call").await;
        behave(server, call).await;
    });
    let client = Client::connect("faulty", ours, &with(limits))
        .await
        .unwrap();
    let output = client.say("t", json!({})).await;
    (client, output)
}

async fn output_of(result: Value) -> ToolOutput {
    let (_client, output) = call_of(McpLimits::default(), |mut server, call| async move {
        server.answer(&call, result).await;
        server.stay().await;
    })
    .await;
    output.unwrap()
}
