//! Servers, their status and their offers as text and as JSON.

use agentmine_mcp::config::{ServerConfig, ServerPlace, Transport};
use agentmine_mcp::{Catalog, Era, Greeting, Offer, ServerStatus};
use anyhow::Result;
use serde_json::{Value, json};

use super::setup::Setup;
use super::trouble::Trouble;
use crate::print::{clean, line, one_line};

/// Reports that no server is configured, and how to configure one.
pub(super) fn nothing(setup: &Setup) {
    if !setup.loaded.faults.is_empty() {
        line("no MCP server can be used: correct these faults");
        return;
    }
    line("no MCP server is configured");
    line(format!(
        "hint: write {{\"mcpServers\": {{\"memory\": {{\"command\": [\"npx\", \"-y\", \"@modelcontextprotocol/server-memory\"]}}}}}} to {}",
        setup.usual_file()
    ));
}

/// The whole configuration as JSON, with its servers.
pub(super) fn print_json(setup: &Setup, servers: Vec<Value>) -> Result<()> {
    let whole = json!({
        "files": setup.loaded.files,
        "servers": servers,
        "faults": setup.loaded.faults,
    });
    line(serde_json::to_string_pretty(&whole)?);
    Ok(())
}

/// An entry as JSON: names of variables and headers, never their values.
pub(super) fn entry_json(server: &ServerConfig) -> Value {
    let mut entry = json!({
        "name": server.name,
        "file": server.origin.file,
        "line": server.origin.line,
        "where": place(server),
        "enabled": server.enabled,
        "timeoutSeconds": server.timeout.as_secs_f64(),
        "capabilities": server.capabilities,
    });
    let (key, value, secrets, names) = match &server.transport {
        Transport::Stdio { command, env, .. } => ("command", json!(command), "env", env),
        Transport::Http { headers, .. } => ("url", json!(target(server)), "headers", headers),
    };
    entry[key] = value;
    entry[secrets] = names.keys().map(String::as_str).collect();
    entry
}

/// A status as JSON.
pub(super) fn status_json(
    status: &ServerStatus,
    catalog: &Catalog,
    trouble: Option<&Trouble>,
) -> Value {
    let mut whole = entry_json(&status.config);
    whole["state"] = status.state.word().into();
    whole["startedInMs"] = json!(status.started_in.map(|it| it.as_secs_f64() * 1000.0));
    if let Some(greeting) = &status.greeting {
        whole["protocol"] = json!({"version": greeting.protocol, "era": era(greeting)});
        whole["is"] = json!({"name": greeting.name, "version": greeting.version});
    }
    if let Some(offer) = catalog.servers.get(&status.config.name) {
        whole["offers"] = json!({
            "tools": offer.tools.len(),
            "resources": offer.resources.len(),
            "templates": offer.templates.len(),
            "prompts": offer.prompts.len(),
            "leftOut": offer.left_out,
        });
    }
    if let Some(Trouble { what, stderr, next }) = trouble {
        whole["trouble"] = json!({"what": what, "stderr": stderr, "next": next});
    }
    whole
}

/// Where it runs.
pub(super) fn place(server: &ServerConfig) -> &'static str {
    match server.place() {
        Some(ServerPlace::Worker) => "this machine",
        Some(ServerPlace::Sandbox) => "sandbox",
        None => "http",
    }
}

/// Its command; or its URL without the query, which may contain a key.
pub(super) fn target(server: &ServerConfig) -> String {
    match &server.transport {
        Transport::Stdio { command, .. } => command.join(" "),
        Transport::Http { url, .. } => {
            let mut url = url.clone();
            if url.query().is_some() {
                url.set_query(Some("…"));
            }
            url.to_string()
        }
    }
}

pub(super) fn origin(server: &ServerConfig) -> String {
    format!("{}:{}", server.origin.file.display(), server.origin.line)
}

pub(super) fn seconds(status: &ServerStatus) -> String {
    let took = status.started_in;
    took.map(|it| format!("{:.2}", it.as_secs_f64()))
        .unwrap_or_default()
}

fn era(greeting: &Greeting) -> &'static str {
    match greeting.era {
        Era::Handshake => "initialize",
        Era::Stateless => "stateless",
    }
}

pub(super) fn protocol(greeting: &Greeting) -> String {
    format!("{} ({})", one_line(&greeting.protocol, 20), era(greeting))
}

pub(super) fn name_and_version(greeting: &Greeting) -> String {
    let text = format!("{} {}", greeting.name, greeting.version);
    clean(&one_line(text.trim(), 50))
}

/// `2 tools, 1 prompt`
pub(super) fn counts(offer: &Offer) -> String {
    let counted = [
        (offer.tools.len(), "tool"),
        (offer.resources.len(), "resource"),
        (offer.templates.len(), "template"),
        (offer.prompts.len(), "prompt"),
    ];
    let words: Vec<String> = counted
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}{}", if count == 1 { "" } else { "s" }))
        .collect();
    if words.is_empty() {
        return "nothing".to_owned();
    }
    words.join(", ")
}
