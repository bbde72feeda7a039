//! `agentmine mcp list`.

use agentmine_mcp::config::{Place, ServerConfig, Transport};
use agentmine_mcp::{
    Catalog, Era, Greeting, Manager, McpConfigFault, Offer, ServerState, ServerStatus,
};
use agentmine_runtime::exit::Exit;
use anyhow::Result;
use serde_json::{Value, json};

use crate::print::{clean, line, note, one_line, table, trimmed};

use super::With;
use super::session::{Session, Trouble, further, tell_left_out, trouble};
use super::setup::{self, Setup};

/// Shows what is configured; with `start` also how it does.
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
                enabled(server).to_owned(),
                origin(server),
                one_line(&target(server), 60),
            ]);
        }
        line(trimmed(&rows));
    }
    setup.tell_faults();
    Ok(Exit::Done)
}

async fn started(with: With, setup: Setup) -> Result<Exit> {
    // Disabled ones too: the manager knows them as that.
    let all: Vec<ServerConfig> = setup.loaded.servers.values().cloned().collect();
    let session = Session::start(&with, &setup, all).await?;
    let no_jail = session.no_jail.clone();
    let as_json = with.which.json;
    session
        .run(async |manager| {
            let catalog = manager.catalog();
            let statuses = manager.status();
            let mut troubles = Vec::new();
            for status in &statuses {
                troubles.push(trouble(manager, status, no_jail.as_deref()).await);
            }
            if as_json {
                let rows = statuses.iter().zip(&troubles);
                let servers = rows.map(|(s, t)| status_json(s, &catalog, t.as_ref()));
                print_json(&setup, servers.collect())?;
            } else {
                show(&statuses, &catalog, &troubles, manager);
                setup.tell_faults();
            }
            let failed = statuses
                .iter()
                .any(|s| !matches!(s.state, ServerState::Ready | ServerState::Disabled));
            Ok(if failed { Exit::Other } else { Exit::Done })
        })
        .await
}

fn show(
    statuses: &[ServerStatus],
    catalog: &Catalog,
    troubles: &[Option<Trouble>],
    manager: &Manager,
) {
    let mut rows = table(&[
        "SERVER", "WHERE", "STATE", "SECONDS", "PROTOCOL", "IS", "OFFERS",
    ]);
    for status in statuses {
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
    for (status, trouble) in statuses.iter().zip(troubles) {
        let Some(trouble) = trouble else { continue };
        if status.state == ServerState::Disabled {
            continue;
        }
        note(format!("{}: {}", status.config.name, trouble.what));
        for said in trouble.stderr.lines() {
            note(format!("  | {said}"));
        }
        note(format!("  hint: {}", trouble.next));
    }
    tell_left_out(catalog);
    for notice in further(manager) {
        note(format!(
            "{}: {}",
            notice.server,
            one_line(&notice.text, 300)
        ));
    }
}

/// Nothing is configured: what to write, and where.
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

pub(super) fn faults_json(faults: &[McpConfigFault]) -> Vec<Value> {
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

/// An entry for programs: names of variables and headers, never their values.
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

/// A status for programs.
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
    match &server.transport {
        Transport::Stdio {
            place: Place::Worker,
            ..
        } => "this machine",
        Transport::Stdio {
            place: Place::Sandbox,
            ..
        } => "sandbox",
        Transport::Http { .. } => "http",
    }
}

/// Its command; or its URL, without what may be a key in it.
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

fn enabled(server: &ServerConfig) -> &'static str {
    if server.enabled {
        "enabled"
    } else {
        "disabled"
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

/// How many of each, leaving out what there is none of.
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
