//! `agentmine mcp call`, `read` and `prompt`: one request, its result on stdout.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Duration;

use agentmine_mcp::{CallOptions, CallProgress, Manager, McpError, Tool, ToolOutput};
use agentmine_runtime::exit::{Exit, Failure};
use anyhow::Result;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::print::{body, clean, line, note, one_line};

use super::args::With;
use super::session;
use super::setup;

/// Time to show the last progress after the result has come.
const LAST_PROGRESS: Duration = Duration::from_millis(200);
/// Largest JSON that is read from stdin.
const MAX_STDIN: u64 = 16 * 1024 * 1024;

/// `call`
pub(super) async fn run(
    with: With,
    tool: &str,
    arguments: Vec<String>,
    timeout: Option<Duration>,
) -> Result<Exit> {
    let Some((server, tool)) = tool.split_once(':') else {
        return Err(Failure::new(
            Exit::Validation,
            format!("{:?} is not a tool, expected SERVER:TOOL", clean(tool)),
        )
        .hint("`agentmine mcp tools` lists them")
        .into());
    };
    let arguments = Given::read(arguments)?;
    ask(with, server, async |manager| {
        let catalog = manager.catalog();
        let known = catalog
            .tool(server, tool)
            .ok_or_else(|| no_such_tool(&catalog, server, tool))?;
        let arguments = arguments.for_tool(known)?;
        let (sender, progress) = mpsc::channel(64);
        let showing = tokio::spawn(show(progress));
        let options = CallOptions {
            timeout,
            progress: Some(sender),
        };
        let outcome = manager.call_with(server, tool, arguments, options).await;
        let _ = tokio::time::timeout(LAST_PROGRESS, showing).await;
        Ok(outcome)
    })
    .await
}

/// `read`
pub(super) async fn read(with: With, server: &str, uri: &str) -> Result<Exit> {
    ask(with, server, async |manager| {
        Ok(manager.read(server, uri).await)
    })
    .await
}

/// `prompt`
pub(super) async fn prompt(
    with: With,
    server: &str,
    name: &str,
    arguments: &[String],
) -> Result<Exit> {
    let pairs = pairs(arguments)?;
    let arguments: BTreeMap<String, String> = pairs.into_iter().collect();
    ask(with, server, async |manager| {
        Ok(manager.prompt(server, name, arguments).await)
    })
    .await
}

/// Starts the one server, makes the request, and prints the result.
async fn ask(
    with: With,
    server: &str,
    request: impl AsyncFnOnce(&Manager) -> Result<Result<ToolOutput, McpError>>,
) -> Result<Exit> {
    let setup = setup::load(&with)?;
    let servers = setup.chosen(Some(server))?;
    let output = session::run(&with, &setup, servers, async |servers| {
        servers.ready(server).await?;
        request(&servers.manager).await?.map_err(|error| {
            Failure::new(Exit::Other, one_line(&error.to_string(), 1000))
                .hint(one_line(&error.hint(), 400))
                .into()
        })
    })
    .await?;
    if with.which.json {
        line(serde_json::to_string_pretty(&json!({
            "isError": output.is_error,
            "text": output.text,
            "structured": output.structured,
        }))?);
    } else {
        body(&output.text);
    }
    Ok(match output.is_error {
        true => Exit::Other,
        false => Exit::Done,
    })
}

async fn show(mut progress: mpsc::Receiver<CallProgress>) {
    while let Some(CallProgress {
        progress,
        total,
        message,
    }) = progress.recv().await
    {
        let total = total.map(|it| format!("/{it}")).unwrap_or_default();
        let message = message.unwrap_or_default();
        note(format!(
            "progress {progress}{total} {}",
            one_line(&message, 200)
        ));
    }
}

fn no_such_tool(catalog: &agentmine_mcp::Catalog, server: &str, tool: &str) -> anyhow::Error {
    let offer = catalog.servers.get(server);
    let tools = offer.into_iter().flat_map(|offer| &offer.tools);
    let names: Vec<String> = tools.map(|tool| one_line(&tool.name, 60)).collect();
    let hint = match names.is_empty() {
        true => "it offers none".to_owned(),
        false => format!("it offers: {}", one_line(&names.join(", "), 600)),
    };
    let message = format!("MCP server '{server}' has no tool {:?}", one_line(tool, 60));
    Failure::new(Exit::NotFound, message).hint(hint).into()
}

/// The arguments after the tool's name.
#[derive(Debug, PartialEq)]
enum Given {
    Whole(Map<String, Value>),
    Pairs(Vec<(String, String)>),
}

impl Given {
    fn read(mut words: Vec<String>) -> Result<Self> {
        let whole = match words.as_mut_slice() {
            [only] if only == "-" => {
                let mut text = String::new();
                std::io::stdin()
                    .take(MAX_STDIN)
                    .read_to_string(&mut text)
                    .map_err(|error| {
                        Failure::new(Exit::Validation, "stdin cannot be read").because(error)
                    })?;
                text
            }
            [only] if only.trim_start().starts_with('{') => std::mem::take(only),
            _ => return Ok(Self::Pairs(pairs(&words)?)),
        };
        match serde_json::from_str(&whole) {
            Ok(Value::Object(whole)) => Ok(Self::Whole(whole)),
            Ok(_) => Err(wrong_arguments("not a JSON object".to_owned())),
            Err(error) => Err(wrong_arguments(format!("not JSON: {error}"))),
        }
    }

    /// The values of pairs get the types of the tool's schema.
    fn for_tool(self, tool: &Tool) -> Result<Value> {
        let pairs = match self {
            Self::Whole(whole) => return Ok(Value::Object(whole)),
            Self::Pairs(pairs) => pairs,
        };
        let mut arguments = Map::new();
        for (key, text) in pairs {
            let schema = &tool.input_schema["properties"][&key];
            let value = typed(&text, schema).map_err(|expected| {
                wrong_arguments(format!("{}: expected {expected}", one_line(&key, 60)))
            })?;
            arguments.insert(key, value);
        }
        Ok(Value::Object(arguments))
    }
}

fn wrong_arguments(seen: String) -> anyhow::Error {
    Failure::new(Exit::Validation, format!("the arguments are wrong: {seen}"))
        .hint("expected one JSON object, such as '{\"path\": \"a.txt\"}', or path=a.txt; `agentmine mcp tools --json` shows the schema")
        .into()
}

fn pairs(words: &[String]) -> Result<Vec<(String, String)>> {
    let split = words.iter().map(|word| {
        let pair = word.split_once('=').filter(|(key, _)| !key.is_empty());
        pair.map(|(key, value)| (key.to_owned(), value.to_owned()))
            .ok_or_else(|| wrong_arguments(format!("{:?} is not KEY=VALUE", one_line(word, 60))))
    });
    split.collect()
}

/// A text as a value of the schema's type, or else as a string. The error is what was expected.
fn typed(text: &str, schema: &Value) -> Result<Value, &'static str> {
    let kinds = kinds(schema);
    if text == "null" && kinds.contains(&"null") {
        return Ok(Value::Null);
    }
    let kinds: Vec<&str> = kinds.into_iter().filter(|kind| *kind != "null").collect();
    if kinds.is_empty() || kinds.contains(&"string") {
        return Ok(text.into());
    }
    let value: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    if kinds.iter().any(|kind| is_of(kind, &value)) {
        return Ok(value);
    }
    Err(match kinds[0] {
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a JSON list, such as [\"a\", \"b\"]",
        _ => "a JSON object",
    })
}

/// The types that a schema allows, `null` among them. Both forms of a nullable type are read.
fn kinds(schema: &Value) -> Vec<&str> {
    let mut kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if schema["nullable"] == true {
        kinds.push("null");
    }
    for key in ["anyOf", "oneOf"] {
        for one in schema[key].as_array().into_iter().flatten() {
            kinds.extend(self::kinds(one));
        }
    }
    kinds
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool() -> Tool {
        Tool {
            name: "t".into(),
            description: String::new(),
            input_schema: json!({"properties": {
                "count": {"type": "integer"},
                "deep": {"type": ["boolean", "null"]},
                "list": {"type": "array"},
                "name": {"type": "string"},
                "limit": {"type": ["null", "integer"]},
                "from": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "either": {"oneOf": [{"type": "null"}, {"type": "string"}, {"type": "integer"}]},
            }}),
            output_schema: None,
            annotations: Value::Null,
        }
    }

    fn given(words: &[&str]) -> Result<Value> {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Given::read(words)?.for_tool(&tool())
    }

    #[test]
    fn pairs_become_what_the_schema_says() {
        let given = given(&["count=3", "deep=true", "list=[1]", "name=4=5", "other=7"]);
        assert_eq!(
            super::tests::given(&["limit=7", "from=8", "either=9"]).unwrap(),
            json!({"limit": 7, "from": 8, "either": "9"})
        );
        assert_eq!(
            super::tests::given(&["limit=null", "from=null", "either=null"]).unwrap(),
            json!({"limit": null, "from": null, "either": null})
        );
        let expected = json!({"count": 3, "deep": true, "list": [1], "name": "4=5", "other": "7"});
        assert_eq!(given.unwrap(), expected);
        assert_eq!(
            super::tests::given(&["deep=null"]).unwrap()["deep"],
            Value::Null
        );
    }

    #[test]
    fn a_json_object_is_taken_as_it_is() {
        assert_eq!(
            given(&["{\"count\": \"x\"}"]).unwrap(),
            json!({"count": "x"})
        );
        assert_eq!(given(&[]).unwrap(), json!({}));
    }

    #[test]
    fn wrong_arguments_are_refused_with_what_was_expected() {
        for (words, expected) in [
            (&["count=x"][..], "count: expected a whole number"),
            (&["deep=1"], "deep: expected true or false"),
            (&["limit=x"], "limit: expected a whole number"),
            (&["from=x"], "from: expected a whole number"),
            (&["{\"a\""], "not JSON: "),
            (&["{} {}"], "not JSON: "),
            (&["x"], "\"x\" is not KEY=VALUE"),
            (&["=x"], "is not KEY=VALUE"),
        ] {
            let error = given(words).unwrap_err();
            assert_eq!(Exit::of(&error), Exit::Validation);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
