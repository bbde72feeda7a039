//! `agentmine mcp tools`, `resources` and `prompts`.

use agentmine_mcp::{Catalog, Offer};
use agentmine_runtime::exit::Exit;
use anyhow::Result;
use serde_json::{Value, json};

use super::With;
use super::list::nothing;
use super::session::Session;
use super::setup;
use crate::print::{line, one_line, table, trimmed};

/// One thing that is offered: as JSON, and as the cells of a table.
type Row = (Value, Vec<String>);

/// `tools`
pub(super) async fn tools(with: With, server: Option<String>) -> Result<Exit> {
    let header = ["TOOL", "WIRE NAME", "ARGUMENTS", "DESCRIPTION"];
    show(with, server, "no tools", &header, |catalog| {
        let tools = catalog.tools();
        let rows = tools.into_iter().map(|(wire, server, tool)| {
            let json = json!({
                "server": server,
                "name": tool.name,
                "wireName": wire,
                "description": tool.description,
                "inputSchema": tool.input_schema,
                "outputSchema": tool.output_schema,
                "annotations": tool.annotations,
            });
            let cells = vec![
                format!("{server}:{}", one_line(&tool.name, 60)),
                wire.to_owned(),
                one_line(&arguments(&tool.input_schema), 60),
                one_line(&tool.description, 80),
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
        of_each(catalog, |server, offer| {
            let resources = offer.resources.iter().map(|it| ("uri", it));
            let templates = offer.templates.iter().map(|it| ("uriTemplate", it));
            let rows = resources.chain(templates).map(|(key, it)| {
                let json = json!({
                    "server": server,
                    key: it.uri,
                    "name": it.name,
                    "mimeType": it.mime_type,
                    "description": it.description,
                });
                let cells = vec![
                    server.to_owned(),
                    one_line(&it.uri, 100),
                    one_line(&it.name, 40),
                    one_line(it.mime_type.as_deref().unwrap_or_default(), 40),
                    one_line(&it.description, 60),
                ];
                (json, cells)
            });
            rows.collect()
        })
    })
    .await
}

/// `prompts`
pub(super) async fn prompts(with: With, server: Option<String>) -> Result<Exit> {
    let header = ["SERVER", "PROMPT", "ARGUMENTS", "DESCRIPTION"];
    show(with, server, "no prompts", &header, |catalog| {
        of_each(catalog, |server, offer| {
            let rows = offer.prompts.iter().map(|prompt| {
                let arguments = prompt.arguments.iter();
                let for_programs: Vec<Value> = arguments
                    .clone()
                    .map(|it| json!({"name": it.name, "description": it.description, "required": it.required}))
                    .collect();
                let json = json!({
                    "server": server,
                    "name": prompt.name,
                    "description": prompt.description,
                    "arguments": for_programs,
                });
                let names = arguments.map(|it| match it.required {
                    true => it.name.clone(),
                    false => format!("{}?", it.name),
                });
                let cells = vec![
                    server.to_owned(),
                    one_line(&prompt.name, 60),
                    one_line(&names.collect::<Vec<_>>().join(", "), 60),
                    one_line(&prompt.description, 80),
                ];
                (json, cells)
            });
            rows.collect()
        })
    })
    .await
}

fn of_each(catalog: &Catalog, rows: impl Fn(&str, &Offer) -> Vec<Row>) -> Vec<Row> {
    let servers = catalog.servers.iter();
    servers
        .flat_map(|(server, offer)| rows(server, offer))
        .collect()
}

/// Starts the servers, shows the rows of their offers, and reports on stderr which servers are missing. A
/// server that is named must run.
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
    let session = Session::start(&with, &setup, chosen).await?;
    session
        .run(async |servers| {
            let exit = match &server {
                Some(name) => {
                    servers.ready(name).await?;
                    Exit::Done
                }
                None => servers.report_absent().await,
            };
            let rows = rows(&servers.manager.catalog());
            if as_json {
                let rows: Vec<Value> = rows.into_iter().map(|(json, _)| json).collect();
                line(serde_json::to_string_pretty(&rows)?);
            } else if rows.is_empty() {
                line(none);
            } else {
                let mut shown = table(header);
                shown.add_rows(rows.into_iter().map(|(_, cells)| cells));
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
