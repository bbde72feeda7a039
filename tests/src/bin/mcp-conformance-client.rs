//! The client that the official conformance suite starts, with the address of a scenario's server as
//! its last argument. It connects, lists everything the server offers, and uses all of it.
//!
//! `MCP_CONFORMANCE_PROTOCOL_VERSION` selects the era, `MCP_CONFORMANCE_CONTEXT` (JSON) the tools to
//! call and their arguments. The rest is [`agentmine_mcp::Client`], as the manager uses it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agentmine_mcp::config::Capabilities;
use agentmine_mcp::{
    Answer, CallOptions, Client, ConnectOptions, Elicitation, Era, McpLimits, Offer, Question,
    SamplingHandler, Tool,
};
use anyhow::Context as _;
use async_trait::async_trait;
use serde_json::{Map, Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    agentmine_runtime::tls::install_default_provider();
    let url = std::env::args().next_back().context("no address")?;
    let version = std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").ok();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let options = ConnectOptions {
        limits: McpLimits {
            start: Duration::from_secs(10),
            call: Duration::from_secs(10),
            ..McpLimits::default()
        },
        capabilities: Capabilities {
            roots: true,
            sampling: true,
            logging: true,
        },
        roots: vec![("file:///workspace".into(), "workspace".into())],
        era: version.as_deref().map(|version| match version {
            "2026-07-28" => Era::Stateless,
            _ => Era::Handshake,
        }),
        sampling: Some(Arc::new(Canned)),
        elicitation: Arc::new(Canned),
        redact: None,
    };
    let client =
        Client::connect_http("conformance", &url.parse()?, &BTreeMap::new(), &options).await?;
    let offer = client.offer().await?;
    use_all(&client, &offer, &context).await;
    client.shutdown().await;
    Ok(())
}

/// The answers do not matter: the scenario judges the requests that it got.
async fn use_all(client: &Client, offer: &Offer, context: &Value) {
    for tool in &offer.tools {
        for arguments in arguments(tool, context) {
            let _ = client.call(tool, arguments, CallOptions::default()).await;
        }
    }
    for resource in &offer.resources {
        let _ = client.read(&resource.uri, CallOptions::default()).await;
    }
    for prompt in &offer.prompts {
        let arguments = prompt
            .arguments
            .iter()
            .map(|a| (a.name.clone(), "text".to_owned()));
        let options = CallOptions::default();
        let _ = client
            .prompt(&prompt.name, arguments.collect(), options)
            .await;
    }
}

/// The arguments that the scenario specifies, or else some that match the schema.
fn arguments(tool: &Tool, context: &Value) -> Vec<Value> {
    let calls = context["toolCalls"].as_array().into_iter().flatten();
    let wanted: Vec<Value> = calls
        .filter(|call| call["name"] == tool.name)
        .map(|call| call["arguments"].clone())
        .collect();
    if wanted.is_empty() {
        vec![fitting(&tool.input_schema)]
    } else {
        wanted
    }
}

/// A value for every property: its default if it has one.
fn fitting(schema: &Value) -> Value {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let values = properties.map(|(name, property)| {
        let value = match (&property["default"], property["type"].as_str()) {
            (Value::Null, Some("number" | "integer")) => json!(5),
            (Value::Null, Some("boolean")) => json!(true),
            (Value::Null, Some("array")) => json!([]),
            (Value::Null, Some("object")) => json!({}),
            (Value::Null, _) => property["enum"]
                .get(0)
                .cloned()
                .unwrap_or_else(|| json!("text")),
            (default, _) => default.clone(),
        };
        (name.clone(), value)
    });
    Value::Object(values.collect::<Map<_, _>>())
}

/// A user and a model that always give the same answer.
struct Canned;

#[async_trait]
impl Elicitation for Canned {
    async fn ask(&self, _server: &str, question: Question) -> Answer {
        match question {
            Question::Form { schema, .. } => Answer::Accept(fitting(&schema)),
            Question::Url { .. } => Answer::Decline,
        }
    }
}

#[async_trait]
impl SamplingHandler for Canned {
    async fn create(&self, _server: &str, _request: Value) -> Result<Value, String> {
        Ok(json!({
            "role": "assistant",
            "content": { "type": "text", "text": "Of course." },
            "model": "canned",
            "stopReason": "endTurn",
        }))
    }
}
