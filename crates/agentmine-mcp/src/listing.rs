//! The tools of a server, page by page, each read on its own: a malformed one leaves out itself.

use std::collections::BTreeMap;

use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams};
use serde_json::Value;

use crate::client::{Answer, Client};
use crate::output::{head_of, shortened};
use crate::{McpError, Tool};

/// Tools taken of one server.
const MAX_TOOLS: usize = 500;
/// Pages read: a server may make up new cursors for ever.
const MAX_PAGES: usize = 100;
const MAX_NAME: usize = 256;
/// Bytes of a description; a longer one is cut.
const MAX_DESCRIPTION: usize = 16 * 1024;
/// Bytes of a schema as JSON; a tool with a longer one is left out.
const MAX_SCHEMA: usize = 64 * 1024;

pub(crate) async fn list(client: &Client) -> Result<Vec<Tool>, McpError> {
    let mut tools = BTreeMap::new();
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..MAX_PAGES {
        let (page, next) = page(client, seen.last().cloned()).await?;
        for tool in page {
            // Of two tools of the same name only one can be called: the first.
            if tools.len() < MAX_TOOLS {
                tools.entry(tool.name.clone()).or_insert(tool);
            }
        }
        match next {
            Some(cursor) if !seen.contains(&cursor) && tools.len() < MAX_TOOLS => seen.push(cursor),
            _ => return Ok(tools.into_values().collect()),
        }
    }
    tracing::warn!(
        mcp.server = client.server(),
        "the MCP server's list of tools does not end; what came so far is used"
    );
    Ok(tools.into_values().collect())
}

async fn page(
    client: &Client,
    cursor: Option<String>,
) -> Result<(Vec<Tool>, Option<String>), McpError> {
    let params = PaginatedRequestParams::default().with_cursor(cursor);
    let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
    let what = "the listing of its tools";
    let page = match client.request(request, what, client.start_limit()).await? {
        Answer::Result(page) => page,
        Answer::Refused(error) => {
            let detail = shortened(&error.message);
            return Err(client.broken(format!("it refused {what}: {detail}")));
        }
    };
    let Some(Value::Array(entries)) = page.get("tools") else {
        return Err(client.broken(format!("it answered {what} without a list")));
    };
    let tools: Vec<Tool> = entries.iter().filter_map(tool).collect();
    let left_out = entries.len() - tools.len();
    if left_out > 0 {
        tracing::warn!(
            mcp.server = client.server(),
            mcp.tools.left_out = left_out,
            "tools of an MCP server are malformed and left out"
        );
    }
    let next = page.get("nextCursor").and_then(Value::as_str);
    Ok((
        tools,
        next.filter(|next| !next.is_empty()).map(str::to_owned),
    ))
}

fn tool(entry: &Value) -> Option<Tool> {
    let name = entry.get("name")?.as_str()?;
    if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
        return None;
    }
    let schema = entry.get("inputSchema")?;
    if !schema.is_object() || schema.to_string().len() > MAX_SCHEMA {
        return None;
    }
    let description = match entry.get("description") {
        None | Some(Value::Null) => "",
        Some(text) => text.as_str()?,
    };
    Some(Tool {
        name: name.to_owned(),
        description: head_of(description, MAX_DESCRIPTION).to_owned(),
        input_schema: schema.clone(),
    })
}
