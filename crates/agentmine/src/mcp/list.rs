//! `agentmine mcp list`.

use agentmine_mcp::config::{Place, ServerConfig, Transport};
use agentmine_mcp::{Catalog, ConfigFault, Era, Greeting, Offer, ServerState, ServerStatus};
use agentmine_runtime::exit::Exit;
use anyhow::Result;
use serde_json::{Value, json};

use crate::print::{clean, line, note, one_line, table, trimmed};

use super::With;
use super::session::Session;
use super::setup::{self, Setup};
use super::trouble::{Servers, Trouble, report_left_out};

/// Shows what is configured; with `start` also the status of each server.
pub(super) async fn run(with: With, start: bool) -> Result<Exit> {
    let setup = setup::load(&with)?;
    if start {
        return started(with, setup).await;
    }
    if with.which.json {
        let servers: Vec<Value> = setup.loaded.servers.values().map(entry).collect();
        print_json(&setup, servers)?;
        return Ok(Exit::Done);
    }
    if setup.loaded.servers.is_empty() {
        nothing(&setup);
    } else {
        let mut rows = table(&["SERVER", "WHERE", "STATE", "FROM", "COMMAND"]);
        for server in setup.loaded.servers.values() {
            rows.add_row(vec![
                server.name.clone(),
                place(server).to_owned(),
                if server.enabled {
                    "enabled"
                } else {
                    "disabled"
                }
                .to_owned(),
                origin(server),
                one_line(&target(server), 60),
            ]);
        }
        line(trimmed(&rows));
    }
    setup.report_faults();
    Ok(Exit::Done)
}

async fn started(with: With, setup: Setup) -> Result<Exit> {
    // Disabled ones too, which the manager does not start.
    let all: Vec<ServerConfig> = setup.loaded.servers.values().cloned().collect();
    let session = Session::start(&with, &setup, all).await?;
    let as_json = with.which.json;
    session
        .run(async |servers| {
            let catalog = servers.manager.catalog();
            let mut statuses = Vec::new();
            for status in servers.manager.status() {
                let trouble = servers.trouble(&status).await;
                statuses.push((status, trouble));
            }
            if as_json {
                let rows = statuses.iter();
                let rows =
                    rows.map(|(status, trouble)| status_json(status, &catalog, trouble.as_ref()));
                print_json(&setup, rows.collect())?;
            } else {
                show(&statuses, &catalog, servers);
                setup.report_faults();
            }
            let is_good =
                |state: &ServerState| matches!(state, ServerState::Ready | ServerState::Disabled);
            let good = statuses.iter().all(|(status, _)| is_good(&status.state));
            Ok(if good { Exit::Done } else { Exit::Other })
        })
        .await
}

fn show(statuses: &[(ServerStatus, Option<Trouble>)], catalog: &Catalog, servers: &Servers) {
    let mut rows = table(&[
        "SERVER", "WHERE", "STATE", "SECONDS", "PROTOCOL", "IS", "OFFERS",
    ]);
    for (status, _) in statuses {
        let greeting = status.greeting.as_ref();
        rows.add_row(vec![
            status.config.name.clone(),
            place(&status.config).to_owned(),
            status.state.word().to_owned(),
            seconds(status),
            greeting.map(protocol).unwrap_or_default(),
            greeting.map(name_and_version).unwrap_or_default(),
            catalog
                .servers
                .get(&status.config.name)
                .map(|offer| counts(offer))
                .unwrap_or_default(),
        ]);
    }
    line(trimmed(&rows));
    for (status, trouble) in statuses {
        let Some(trouble) = trouble else { continue };
        if status.state == ServerState::Disabled {
            continue;
        }
        note(format!("{}: {}", status.config.name, trouble.what));
        for stderr in trouble.stderr.lines() {
            note(format!("  | {stderr}"));
        }
        note(format!("  hint: {}", trouble.next));
    }
    report_left_out(catalog);
    for notice in servers.further() {
        let text = one_line(&notice.text, 300);
        note(format!("{}: {text}", notice.server));
    }
}

/// Nothing is configured: shows what to write, and where.
pub(super) fn nothing(setup: &Setup) {
    line("no MCP server is configured");
    line(format!(
        "hint: write {{\"mcpServers\": {{\"memory\": {{\"command\": [\"npx\", \"-y\", \"@modelcontextprotocol/server-memory\"]}}}}}} to {}",
        setup.usual_file()
    ));
}

fn print_json(setup: &Setup, servers: Vec<Value>) -> Result<()> {
    let whole = json!({
        "files": setup.loaded.files,
        "servers": servers,
        "faults": faults_json(&setup.loaded.faults),
    });
    line(serde_json::to_string_pretty(&whole)?);
    Ok(())
}

pub(super) fn faults_json(faults: &[ConfigFault]) -> Vec<Value> {
    let faults = faults.iter();
    faults
        .map(|fault| {
            json!({
                "file": fault.file,
                "line": fault.line,
                "field": fault.field,
                "detail": fault.detail,
                "server": fault.server,
            })
        })
        .collect()
}

/// An entry as JSON: names of variables and headers, never their values.
fn entry(server: &ServerConfig) -> Value {
    let mut entry = json!({
        "name": server.name,
        "file": server.origin.file,
        "line": server.origin.line,
        "where": place(server),
        "enabled": server.enabled,
        "timeoutSeconds": server.timeout.as_secs_f64(),
        "capabilities": {
            "roots": server.capabilities.roots,
            "sampling": server.capabilities.sampling,
            "logging": server.capabilities.logging,
        },
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
    let mut whole = entry(&status.config);
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
    if let Some(trouble) = trouble {
        whole["trouble"] =
            json!({"what": trouble.what, "stderr": trouble.stderr, "next": trouble.next});
    }
    whole
}

/// Where it runs.
pub(super) fn place(server: &ServerConfig) -> &'static str {
    match server.place() {
        Some(Place::Worker) => "this machine",
        Some(Place::Sandbox) => "sandbox",
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
