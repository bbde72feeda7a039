//! Real servers of both eras.

use std::borrow::Cow;

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    JsonObject, ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities,
    ServerConfig, SubscriptionFilter,
};
use rmcp::service::{RequestContext, RoleServer, ServiceExt, SubscriptionContext};

use super::*;

#[derive(Clone)]
pub(super) struct Echo(pub(super) &'static [ProtocolVersion]);

pub(super) const OLD: &[ProtocolVersion] =
    &[ProtocolVersion::V_2024_11_05, ProtocolVersion::V_2025_11_25];
pub(super) const NEW: &[ProtocolVersion] = &[ProtocolVersion::V_2026_07_28];

impl ServerHandler for Echo {
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(self.0)
    }

    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("echo", "1.2.3"))
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

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), rmcp::ErrorData> {
        context.sink().notify_tool_list_changed().await.unwrap();
        context.cancelled().await;
        Ok(())
    }
}

async fn echo(versions: &'static [ProtocolVersion], options: &ConnectOptions) -> Client {
    let (ours, theirs) = duplex(4096);
    tokio::spawn(async move {
        if let Ok(running) = Echo(versions).serve(tokio::io::split(theirs)).await {
            running.waiting().await.unwrap();
        }
    });
    Client::connect("echo", ours, options).await.unwrap()
}

/// What every server of this kind must do, however it is reached.
pub(super) async fn speaks(client: &Client) {
    assert_eq!(client.server(), "echo");
    let greeting = client.greeting();
    assert_eq!(
        (greeting.name.as_str(), greeting.version.as_str()),
        ("echo", "1.2.3")
    );
    let offer = client.offer().await.unwrap();
    assert_eq!(offer.left_out, Vec::<String>::new());
    let names: Vec<&str> = offer.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["fail", "say"]);
    assert_eq!(offer.tools[0].description, "Echoes.");
    assert_eq!(
        offer.tools[0].input_schema,
        json!({"type": "object", "properties": {}})
    );
    let said = client.say("say", json!({"a": "b"})).await.unwrap();
    assert_eq!((said.text.as_str(), said.is_error), (r#"{"a":"b"}"#, false));
    let failed = client.say("fail", Value::Null).await.unwrap();
    assert_eq!((failed.text.as_str(), failed.is_error), ("{}", true));
    let unknown = client.say("other", json!({})).await.unwrap();
    assert_eq!(
        (unknown.text.as_str(), unknown.is_error),
        (
            r#"{"status":"error","error":{"code":-32602,"message":"no other"}}"#,
            true
        )
    );
    let wrong = client.say("say", json!([1])).await.unwrap();
    assert!(wrong.is_error && wrong.text.contains("JSON object"));
}

#[tokio::test]
async fn server_of_the_older_era_is_found_out_and_spoken_to() {
    for era in [None, Some(Era::Handshake)] {
        let options = ConnectOptions {
            era,
            ..ConnectOptions::default()
        };
        let client = echo(OLD, &options).await;
        let greeting = client.greeting();
        assert_eq!(
            (greeting.era, greeting.protocol.as_str()),
            (Era::Handshake, "2025-11-25")
        );
        speaks(&client).await;
    }
}

#[tokio::test]
async fn server_of_the_newer_era_is_found_out_and_spoken_to() {
    for era in [None, Some(Era::Stateless)] {
        let options = ConnectOptions {
            era,
            ..ConnectOptions::default()
        };
        let client = echo(NEW, &options).await;
        let greeting = client.greeting();
        assert_eq!(
            (greeting.era, greeting.protocol.as_str()),
            (Era::Stateless, "2026-07-28")
        );
        speaks(&client).await;
    }
}

#[tokio::test]
async fn news_of_a_change_comes_by_listening_in_the_newer_era() {
    let client = echo(NEW, &ConnectOptions::default()).await;
    let mut changes = client.changes();
    changes.wait_for(|count| *count == 1).await.unwrap();
}

#[tokio::test]
async fn shut_down_client_is_closed() {
    let client = echo(OLD, &older()).await;
    assert!(!client.closed());
    client.shutdown().await;
    assert!(client.closed());
    assert_eq!(client.ended().await, "it was shut down");
    let error = client.say("say", json!({})).await.unwrap_err();
    assert!(matches!(error, McpError::Protocol { .. }), "{error}");
    client.shutdown().await;
}

#[tokio::test]
async fn calls_at_the_same_time_get_their_own_answers() {
    let client = std::sync::Arc::new(echo(OLD, &older()).await);
    let calls: Vec<_> = (0..50)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move { client.say("say", json!({"n": number})).await })
        })
        .collect();
    for (number, call) in calls.into_iter().enumerate() {
        let said = call.await.unwrap().unwrap();
        assert_eq!(said.text, json!({"n": number}).to_string());
    }
}
