//! The tools with which the model lists and uses the resources and prompts of the session's MCP servers
//! (spec 002 §3.1). They are offered while a server that may be used has some.
//!
//! `mcp.allowed_tools` and `mcp.denied_tools` apply to them as to tools of each server with the names
//! `read_resource` and `get_prompt`.

use std::collections::BTreeMap;

use agentmine_llm::ToolSpec;
use agentmine_mcp::{Offer, Resource, ServerPrompt};
use serde_json::{Map, Value, json};

/// One of the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OfferTool {
    ListResources,
    ReadResource,
    ListPrompts,
    GetPrompt,
}

/// What the model asks of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OfferCall {
    /// A list, of one server or of all.
    List(Option<String>),
    Read {
        server: String,
        uri: String,
    },
    Prompt {
        server: String,
        name: String,
        arguments: BTreeMap<String, String>,
    },
}

impl OfferTool {
    pub(super) const ALL: [Self; 4] = [
        Self::ListResources,
        Self::ReadResource,
        Self::ListPrompts,
        Self::GetPrompt,
    ];

    /// The tool of this wire name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Its wire name. Those of servers' tools begin with `mcp__`.
    fn name(self) -> &'static str {
        match self {
            Self::ListResources => "mcp_list_resources",
            Self::ReadResource => "mcp_read_resource",
            Self::ListPrompts => "mcp_list_prompts",
            Self::GetPrompt => "mcp_get_prompt",
        }
    }

    /// Its name in the rules for a server's tools.
    pub(super) fn rule(self) -> &'static str {
        match self {
            Self::ListResources | Self::ReadResource => "read_resource",
            Self::ListPrompts | Self::GetPrompt => "get_prompt",
        }
    }

    /// Whether a server has something for it.
    pub(super) fn is_of_use(self, offer: &Offer) -> bool {
        match self {
            Self::ListResources | Self::ReadResource => {
                !offer.resources.is_empty() || !offer.templates.is_empty()
            }
            Self::ListPrompts | Self::GetPrompt => !offer.prompts.is_empty(),
        }
    }

    pub(super) fn spec(self) -> ToolSpec {
        let server = json!({"type": "string", "description": "The server's name."});
        let any =
            json!({"type": "string", "description": "Only of this server. Default: all servers."});
        let (description, properties, required) = match self {
            Self::ListResources => (
                "List the resources of the MCP servers: documents and data that can be read with mcp_read_resource.",
                json!({"server": any}),
                json!([]),
            ),
            Self::ReadResource => (
                "Read a resource of an MCP server.",
                json!({
                    "server": server,
                    "uri": {"type": "string", "description": "The resource's URI from mcp_list_resources, or one made from a template by replacing the parts in braces."},
                }),
                json!(["server", "uri"]),
            ),
            Self::ListPrompts => (
                "List the prompts of the MCP servers: prepared instructions that can be fetched with mcp_get_prompt.",
                json!({"server": any}),
                json!([]),
            ),
            Self::GetPrompt => (
                "Get a prompt of an MCP server: its messages, each with its role.",
                json!({
                    "server": server,
                    "name": {"type": "string", "description": "The prompt's name."},
                    "arguments": {"type": "object", "description": "The prompt's arguments, as strings.", "additionalProperties": {"type": "string"}},
                }),
                json!(["server", "name"]),
            ),
        };
        ToolSpec {
            name: self.name().into(),
            description: description.into(),
            input_schema: json!({
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            }),
        }
    }

    /// Reads the arguments; an error is what was expected.
    pub(super) fn read(self, arguments: &Map<String, Value>) -> Result<OfferCall, String> {
        let given = |name: &str| match arguments.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("`{name}` must be a string")),
        };
        let required = |name| given(name)?.ok_or_else(|| format!("`{name}` is required: a string"));
        Ok(match self {
            Self::ListResources | Self::ListPrompts => OfferCall::List(given("server")?),
            Self::ReadResource => OfferCall::Read {
                server: required("server")?,
                uri: required("uri")?,
            },
            Self::GetPrompt => OfferCall::Prompt {
                server: required("server")?,
                name: required("name")?,
                arguments: strings(arguments.get("arguments"))?,
            },
        })
    }

    /// The lines of a list, for one server.
    pub(super) fn lines(self, server: &str, offer: &Offer) -> Vec<String> {
        match self {
            Self::ListResources | Self::ReadResource => {
                let resources = offer.resources.iter().map(|it| resource(server, "", it));
                let templates = offer.templates.iter();
                let templates = templates.map(|it| resource(server, "template ", it));
                resources.chain(templates).collect()
            }
            Self::ListPrompts | Self::GetPrompt => {
                let prompts = offer.prompts.iter();
                prompts.map(|it| prompt(server, it)).collect()
            }
        }
    }
}

/// A prompt's arguments are strings; numbers and booleans are written as such.
fn strings(arguments: Option<&Value>) -> Result<BTreeMap<String, String>, String> {
    let expected = || "`arguments` must be an object whose values are strings".to_owned();
    match arguments {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::Object(entries)) => entries
            .iter()
            .map(|(name, value)| match value {
                Value::String(text) => Ok((name.clone(), text.clone())),
                Value::Number(_) | Value::Bool(_) => Ok((name.clone(), value.to_string())),
                Value::Null | Value::Array(_) | Value::Object(_) => Err(expected()),
            })
            .collect(),
        Some(_) => Err(expected()),
    }
}

fn resource(server: &str, kind: &str, resource: &Resource) -> String {
    let Resource {
        uri,
        name,
        description,
        mime_type,
    } = resource;
    let mime = mime_type
        .as_ref()
        .map_or_else(String::new, |mime| format!(", {mime}"));
    on_one_line(&format!(
        "{server}: {kind}{uri} ({name}{mime}) {description}"
    ))
}

fn prompt(server: &str, prompt: &ServerPrompt) -> String {
    let ServerPrompt {
        name,
        description,
        arguments,
    } = prompt;
    let arguments: Vec<String> = arguments
        .iter()
        .map(|argument| {
            let optional = if argument.required { "" } else { ", optional" };
            format!("{}{optional}: {}", argument.name, argument.description)
        })
        .collect();
    let arguments = arguments.join("; ");
    on_one_line(&format!("{server}: {name} ({arguments}) {description}"))
}

/// A server's words, so that none of them looks like an entry of another server.
fn on_one_line(words: &str) -> String {
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use agentmine_mcp::PromptArgument;

    use super::*;

    fn offer() -> Offer {
        let resource = |uri: &str| Resource {
            uri: uri.into(),
            name: "notes".into(),
            description: "What\nwas said".into(),
            mime_type: Some("text/plain".into()),
        };
        Offer {
            resources: vec![resource("file:///notes")],
            templates: vec![resource("file:///{day}")],
            prompts: vec![ServerPrompt {
                name: "review".into(),
                description: "Review a file".into(),
                arguments: vec![PromptArgument {
                    name: "path".into(),
                    description: "the file".into(),
                    required: true,
                }],
            }],
            ..Offer::default()
        }
    }

    #[test]
    fn each_entry_is_one_line_with_its_server() {
        assert_eq!(
            OfferTool::ListResources.lines("docs", &offer()),
            [
                "docs: file:///notes (notes, text/plain) What was said",
                "docs: template file:///{day} (notes, text/plain) What was said",
            ]
        );
        assert_eq!(
            OfferTool::ListPrompts.lines("docs", &offer()),
            ["docs: review (path: the file) Review a file"]
        );
    }

    #[test]
    fn wrong_arguments_are_refused_with_what_is_expected() {
        let read = |tool: OfferTool, arguments: Value| tool.read(arguments.as_object().unwrap());
        for (tool, arguments, expected) in [
            (
                OfferTool::ReadResource,
                json!({"server": "a"}),
                "`uri` is required",
            ),
            (
                OfferTool::ListPrompts,
                json!({"server": 1}),
                "`server` must be a string",
            ),
            (
                OfferTool::GetPrompt,
                json!({"server": "a", "name": "b", "arguments": {"c": []}}),
                "values are strings",
            ),
        ] {
            let error = read(tool, arguments).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let arguments = json!({"server": "a", "name": "b", "arguments": {"c": 1}});
        let expected = OfferCall::Prompt {
            server: "a".into(),
            name: "b".into(),
            arguments: [("c".to_owned(), "1".to_owned())].into(),
        };
        assert_eq!(read(OfferTool::GetPrompt, arguments), Ok(expected));
    }
}
