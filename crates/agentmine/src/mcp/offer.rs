//! `agentmine mcp tools`, `resources` and `prompts`.

use agentmine_mcp::Catalog;
use agentmine_runtime::exit::Exit;
use anyhow::Result;
use serde_json::{Value, json};

use super::args::With;
use super::session;
use super::setup;
use super::show::nothing;
use crate::print::{brief, line, table, trimmed};

/// An offered tool, resource or prompt: as JSON, and as the cells of a table.
type Row = (Value, Vec<String>);

/// `tools`
pub(super) async fn tools(with: With, server: Option<String>) -> Result<Exit> {
    let header = ["TOOL", "WIRE NAME", "ARGUMENTS", "DESCRIPTION"];
    show(with, server, "no tools", &header, |catalog| {
        let tools = catalog.tools().into_iter();
        let rows = tools.map(|(wire, server, tool)| {
            let mut json = of(server, json!(tool));
            json["wireName"] = wire.into();
            let cells = vec![
                format!("{server}:{}", brief(&tool.name, 60)),
                wire.to_owned(),
                brief(&arguments(&tool.input_schema), 60),
                brief(&tool.description, 80),
            ];
            (json, cells)
        });
        rows.collect()
    })
    .await
}

/// `path, overwrite?`
fn arguments(schema: &Value) -> String {
    let required = schema["required"].as_array().into_iter().flatten();
    let required: Vec<&str> = required.filter_map(Value::as_str).collect();
    let names = schema["properties"].as_object().into_iter().flatten();
    let names = names.map(|(name, _)| name.as_str());
    let (must, may): (Vec<&str>, Vec<&str>) = names.partition(|name| required.contains(name));
    let may = may.iter().map(|name| format!("{name}?"));
    let must = must.iter().map(|name| (*name).to_owned());
    must.chain(may).collect::<Vec<_>>().join(", ")
}

/// `resources`
pub(super) async fn resources(with: With, server: Option<String>) -> Result<Exit> {
    let header = ["SERVER", "URI", "NAME", "TYPE", "DESCRIPTION"];
    show(with, server, "no resources", &header, |catalog| {
        let mut rows = Vec::new();
        for (server, offer) in &catalog.servers {
            let resources = offer.resources.iter().map(|it| ("uri", it));
            let templates = offer.templates.iter().map(|it| ("uriTemplate", it));
            rows.extend(resources.chain(templates).map(|(key, it)| {
                let json = json!({
                    "server": server,
                    key: it.uri,
                    "name": it.name,
                    "mimeType": it.mime_type,
                    "description": it.description,
                });
                let cells = vec![
                    server.clone(),
                    brief(&it.uri, 100),
                    brief(&it.name, 40),
                    brief(it.mime_type.as_deref().unwrap_or_default(), 40),
                    brief(&it.description, 60),
                ];
                (json, cells)
            }));
        }
        rows
    })
    .await
}

/// `prompts`
pub(super) async fn prompts(with: With, server: Option<String>) -> Result<Exit> {
    let header = ["SERVER", "PROMPT", "ARGUMENTS", "DESCRIPTION"];
    show(with, server, "no prompts", &header, |catalog| {
        let mut rows = Vec::new();
        for (server, offer) in &catalog.servers {
            rows.extend(offer.prompts.iter().map(|prompt| {
                let names = prompt.arguments.iter().map(|it| match it.required {
                    true => it.name.clone(),
                    false => format!("{}?", it.name),
                });
                let cells = vec![
                    server.clone(),
                    brief(&prompt.name, 60),
                    brief(&names.collect::<Vec<_>>().join(", "), 60),
                    brief(&prompt.description, 80),
                ];
                (of(server, json!(prompt)), cells)
            }));
        }
        rows
    })
    .await
}

fn of(server: &str, mut offered: Value) -> Value {
    offered["server"] = server.into();
    offered
}

/// Starts the servers, shows the rows of their offers, and reports on stderr which servers are not running. A
/// named server must be running.
async fn show(
    with: With,
    server: Option<String>,
    none: &str,
    header: &[&str],
    rows: impl FnOnce(&Catalog) -> Vec<Row>,
) -> Result<Exit> {
    let setup = setup::load(&with)?;
    let chosen = setup.chosen(server.as_deref())?;
    let as_json = with.which.json;
    if setup.loaded.servers.is_empty() && !as_json {
        nothing(&setup);
        return Ok(Exit::Done);
    }
    session::run(&with, &setup, chosen, async |servers| {
        let exit = match &server {
            Some(name) => {
                servers.ready(name).await?;
                Exit::Done
            }
            None => servers.report_absent().await,
        };
        let rows = rows(&servers.manager.catalog());
        let (json, cells): (Vec<Value>, Vec<Vec<String>>) = rows.into_iter().unzip();
        if as_json {
            line(serde_json::to_string_pretty(&json)?);
        } else if cells.is_empty() {
            line(none);
        } else {
            let mut shown = table(header);
            shown.add_rows(cells);
            line(trimmed(&shown));
        }
        Ok(exit)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_arguments_come_first() {
        let schema = json!({"properties": {"a": {}, "b": {}}, "required": ["b"]});
        assert_eq!(arguments(&schema), "b, a?");
        assert_eq!(arguments(&json!([])), "");
    }
}
