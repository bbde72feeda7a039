//! `agentmine mcp tools`, `resources` and `prompts`.

use agentmine_mcp::{Catalog, Prompt};
use agentmine_runtime::exit::Exit;
use anyhow::Result;
use serde_json::{Value, json};

use crate::print::{line, one_line, table, trimmed};

use super::With;
use super::list::nothing;
use super::session::{Session, ready, tell_absent};
use super::setup;

/// `tools`
pub(super) async fn tools(with: With, server: Option<String>) -> Result<Exit> {
    show(with, server, |catalog, as_json| {
        let tools = catalog.tools();
        if as_json {
            let tools = tools.iter().map(|(wire, server, tool)| {
                json!({
                    "server": server,
                    "name": tool.name,
                    "wireName": wire,
                    "description": tool.description,
                    "inputSchema": tool.input_schema,
                    "outputSchema": tool.output_schema,
                    "annotations": tool.annotations,
                })
            });
            return Shown::Json(tools.collect());
        }
        let mut rows = table(&["TOOL", "WIRE NAME", "ARGUMENTS", "DESCRIPTION"]);
        for (wire, server, tool) in &tools {
            rows.add_row(vec![
                format!("{server}:{}", one_line(&tool.name, 60)),
                (*wire).to_owned(),
                one_line(&arguments(&tool.input_schema), 60),
                one_line(&tool.description, 80),
            ]);
        }
        Shown::table(&rows, tools.is_empty(), "no tools")
    })
    .await
}

/// `path, overwrite?`
fn arguments(schema: &Value) -> String {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let names = schema["properties"].as_object().into_iter().flatten();
    let (must, may): (Vec<&str>, Vec<&str>) = names
        .map(|(name, _)| name.as_str())
        .partition(|name| required.contains(name));
    let may = may.iter().map(|name| format!("{name}?"));
    let must = must.iter().map(|name| (*name).to_owned());
    must.chain(may).collect::<Vec<_>>().join(", ")
}

/// `resources`
pub(super) async fn resources(with: With, server: Option<String>) -> Result<Exit> {
    show(with, server, |catalog, as_json| {
        if as_json {
            return Shown::Json(resources_json(catalog));
        }
        let mut rows = table(&["SERVER", "URI", "NAME", "TYPE", "DESCRIPTION"]);
        let mut none = true;
        for (server, offer) in &catalog.servers {
            let resources = offer.resources.iter();
            let resources = resources.map(|r| (&r.uri, &r.name, &r.mime_type, &r.description));
            let templates = offer.templates.iter();
            let templates = templates.map(|t| (&t.uri, &t.name, &t.mime_type, &t.description));
            for (uri, name, mime_type, description) in resources.chain(templates) {
                none = false;
                rows.add_row(vec![
                    server.clone(),
                    one_line(uri, 100),
                    one_line(name, 40),
                    one_line(mime_type.as_deref().unwrap_or(""), 40),
                    one_line(description, 60),
                ]);
            }
        }
        Shown::table(&rows, none, "no resources")
    })
    .await
}

fn resources_json(catalog: &Catalog) -> Vec<Value> {
    let mut all = Vec::new();
    for (server, offer) in &catalog.servers {
        all.extend(offer.resources.iter().map(|resource| {
            json!({
                "server": server,
                "uri": resource.uri,
                "name": resource.name,
                "mimeType": resource.mime_type,
                "description": resource.description,
            })
        }));
        all.extend(offer.templates.iter().map(|template| {
            json!({
                "server": server,
                "uriTemplate": template.uri,
                "name": template.name,
                "mimeType": template.mime_type,
                "description": template.description,
            })
        }));
    }
    all
}

/// `prompts`
pub(super) async fn prompts(with: With, server: Option<String>) -> Result<Exit> {
    show(with, server, |catalog, as_json| {
        let offers = catalog.servers.iter();
        let prompts: Vec<(&String, &Prompt)> = offers
            .flat_map(|(server, offer)| offer.prompts.iter().map(move |prompt| (server, prompt)))
            .collect();
        if as_json {
            let prompts = prompts.iter().map(|(server, prompt)| {
                let arguments: Vec<Value> = prompt
                    .arguments
                    .iter()
                    .map(|it| json!({"name": it.name, "description": it.description, "required": it.required}))
                    .collect();
                json!({
                    "server": server,
                    "name": prompt.name,
                    "description": prompt.description,
                    "arguments": arguments,
                })
            });
            return Shown::Json(prompts.collect());
        }
        let mut rows = table(&["SERVER", "PROMPT", "ARGUMENTS", "DESCRIPTION"]);
        for (server, prompt) in &prompts {
            let arguments: Vec<String> = prompt
                .arguments
                .iter()
                .map(|it| format!("{}{}", it.name, if it.required { "" } else { "?" }))
                .collect();
            rows.add_row(vec![
                (*server).clone(),
                one_line(&prompt.name, 60),
                one_line(&arguments.join(", "), 60),
                one_line(&prompt.description, 80),
            ]);
        }
        Shown::table(&rows, prompts.is_empty(), "no prompts")
    })
    .await
}

enum Shown {
    Json(Vec<Value>),
    Text(String),
}

impl Shown {
    fn table(rows: &comfy_table::Table, none: bool, words: &str) -> Self {
        Self::Text(if none {
            words.to_owned()
        } else {
            trimmed(rows)
        })
    }
}

/// Starts the servers, shows what `make` makes of their offers, and tells on stderr which servers are
/// not among them. The one that was named must run.
async fn show(
    with: With,
    server: Option<String>,
    make: impl FnOnce(&Catalog, bool) -> Shown,
) -> Result<Exit> {
    let setup = setup::load(&with)?;
    let servers = setup.chosen(server.as_deref())?;
    if setup.loaded.servers.is_empty() && !with.which.json {
        nothing(&setup);
        return Ok(Exit::Done);
    }
    let session = Session::start(&with, &setup, servers).await?;
    let no_jail = session.no_jail.clone();
    let as_json = with.which.json;
    session
        .run(async |manager| {
            let absent = match &server {
                Some(name) => {
                    ready(manager, name, no_jail.as_deref()).await?;
                    Exit::Done
                }
                None => tell_absent(manager, no_jail.as_deref()).await,
            };
            match make(&manager.catalog(), as_json) {
                Shown::Json(rows) => line(serde_json::to_string_pretty(&rows)?),
                Shown::Text(text) => line(text),
            }
            Ok(absent)
        })
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_arguments_stand_first() {
        let schema = json!({"properties": {"a": {}, "b": {}}, "required": ["b"]});
        assert_eq!(arguments(&schema), "b, a?");
        assert_eq!(arguments(&json!([])), "");
    }
}
