//! `agentmine mcp list`.

use agentmine_mcp::{Catalog, ServerState, ServerStatus};
use agentmine_runtime::exit::Exit;
use anyhow::Result;

use crate::print::{brief, line, note, one_line, table, trimmed};

use super::args::With;
use super::session;
use super::setup::{self, Setup};
use super::show::{
    counts, entry_json, name_and_version, nothing, origin, place, print_json, protocol, seconds,
    status_json, target,
};
use super::trouble::{Servers, Trouble, report_left_out};

/// Shows the configuration; with `start` also the status of each server.
pub(super) async fn run(with: With, start: bool) -> Result<Exit> {
    let setup = setup::load(&with)?;
    if start {
        return started(with, setup).await;
    }
    if with.which.json {
        let servers = setup.loaded.servers.values().map(entry_json).collect();
        print_json(&setup, servers)?;
        return Ok(Exit::Done);
    }
    if setup.loaded.servers.is_empty() {
        nothing(&setup);
    } else {
        let mut rows = table(&["SERVER", "WHERE", "STATE", "FROM", "COMMAND"]);
        for server in setup.loaded.servers.values() {
            let state = if server.enabled {
                "enabled"
            } else {
                "disabled"
            };
            rows.add_row(vec![
                server.name.clone(),
                place(server).to_owned(),
                state.to_owned(),
                origin(server),
                brief(&target(server), 60),
            ]);
        }
        line(trimmed(&rows));
    }
    setup.report_faults();
    Ok(Exit::Done)
}

async fn started(with: With, setup: Setup) -> Result<Exit> {
    // Disabled ones too, which the manager does not start.
    let all = setup.loaded.servers.values().cloned().collect();
    session::run(&with, &setup, all, async |servers| {
        let catalog = servers.manager.catalog();
        let statuses = servers.statuses().await;
        if with.which.json {
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
        let offer = catalog.servers.get(&status.config.name);
        rows.add_row(vec![
            status.config.name.clone(),
            place(&status.config).to_owned(),
            status.state.word().to_owned(),
            seconds(status),
            greeting.map(protocol).unwrap_or_default(),
            greeting.map(name_and_version).unwrap_or_default(),
            offer.map(|offer| counts(offer)).unwrap_or_default(),
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
