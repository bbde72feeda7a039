//! What a server offers, page by page, each entry read on its own: a malformed one leaves out itself.
//!
//! A list ends at its last page, at a cursor that was there before, or at a cap on pages or entries;
//! the last two are told in [`Offer::left_out`].

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use rmcp::model::{
    ClientRequest, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest,
    ListToolsRequest, PaginatedRequestParams, ServerCapabilities,
};
use serde_json::Value;

use crate::client::{Client, NoReply, Reply};
use crate::output::{Checker, head_of, shortened, weight};
use crate::{McpError, Offer, Prompt, PromptArgument, Resource, ResourceTemplate, Tool, schema};

/// Entries taken of one list.
const MAX_ENTRIES: usize = 1_000;
/// Pages read: a server may make up new cursors for ever.
const MAX_PAGES: usize = 100;
/// Bytes of a cursor, which we must send back.
const MAX_CURSOR: usize = 64 * 1024;
const MAX_NAME: usize = 256;
const MAX_URI: usize = 4 * 1024;
/// Bytes of a description; a longer one is cut.
const MAX_DESCRIPTION: usize = 16 * 1024;
const MAX_ANNOTATIONS: usize = 4 * 1024;
/// Arguments of a prompt.
const MAX_ARGUMENTS: usize = 100;
/// How long all of a server's promises about results may take to be tried.
const PROMISES: Duration = Duration::from_secs(3);
/// Reasons told for what was left out of one list.
const MAX_TOLD: usize = 50;

/// Lists all there is.
pub(crate) async fn list(client: &Client, has: &ServerCapabilities) -> Result<Offer, McpError> {
    let (tools, resources, templates, prompts) = tokio::join!(
        pages(client, Kind::Tool, has.tools.is_some()),
        pages(client, Kind::Resource, has.resources.is_some()),
        pages(client, Kind::Template, has.resources.is_some()),
        pages(client, Kind::Prompt, has.prompts.is_some()),
    );
    let tools = tools.map_err(|reason| client.broken(reason))?;
    // Schemas are much work, and a server's choice.
    let reading = move || read(Ok(tools), resources, templates, prompts);
    let read = tokio::task::spawn_blocking(reading).await;
    read.map_err(|_| client.broken("what it offers cannot be read".to_owned()))
}

fn read(
    tools: Result<Raw, String>,
    resources: Result<Raw, String>,
    templates: Result<Raw, String>,
    prompts: Result<Raw, String>,
) -> Offer {
    let mut offer = Offer::default();
    let told = &mut offer.left_out;
    let until = Instant::now() + PROMISES;
    offer.tools = sorted(Kind::Tool, tools, told, |entry, told| {
        tool(entry, told, until)
    });
    offer.resources = sorted(Kind::Resource, resources, told, resource);
    offer.templates = sorted(Kind::Template, templates, told, template);
    offer.prompts = sorted(Kind::Prompt, prompts, told, prompt);
    offer
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Tool,
    Resource,
    Template,
    Prompt,
}

impl Kind {
    /// What one is called, what the list is called, and by what one is known.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Tool => ("tool", "tools", "name"),
            Self::Resource => ("resource", "resources", "uri"),
            Self::Template => ("resource template", "resourceTemplates", "uriTemplate"),
            Self::Prompt => ("prompt", "prompts", "name"),
        }
    }

    /// Of all entries of a list in memory, by [`weight`].
    fn max_bytes(self) -> usize {
        match self {
            Self::Tool => 4 * 1024 * 1024,
            Self::Resource | Self::Template | Self::Prompt => 2 * 1024 * 1024,
        }
    }

    fn request(self, cursor: Option<String>) -> ClientRequest {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        match self {
            Self::Tool => ClientRequest::ListToolsRequest(ListToolsRequest::with_param(page)),
            Self::Resource => {
                ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(page))
            }
            Self::Template => ClientRequest::ListResourceTemplatesRequest(
                ListResourceTemplatesRequest::with_param(page),
            ),
            Self::Prompt => ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(page)),
        }
    }
}

/// A list as it came.
#[derive(Default)]
struct Raw {
    entries: Vec<Value>,
    bytes: usize,
    /// Why it is not the whole list.
    cut: Option<String>,
}

async fn pages(client: &Client, kind: Kind, has: bool) -> Result<Raw, String> {
    let mut raw = Raw::default();
    if !has {
        return Ok(raw);
    }
    let (_, plural, _) = kind.words();
    let what = format!("the listing of its {plural}");
    let mut cursor: Option<String> = None;
    let mut seen = HashSet::new();
    for _ in 0..MAX_PAGES {
        let replied = client
            .request(kind.request(cursor), client.time(None), None)
            .await;
        let mut page = match replied {
            Ok(Reply::Result(page)) => page,
            // Servers with resources and no templates are common.
            Ok(Reply::Refused(error)) if error.code.0 == -32601 && !matches!(kind, Kind::Tool) => {
                return Ok(raw);
            }
            Ok(Reply::Refused(error)) => {
                let words = shortened(&error.message);
                return Err(format!(
                    "it refused {what}: {words} (code {})",
                    error.code.0
                ));
            }
            Err(NoReply::Late(after)) => {
                let after = after.as_secs_f64();
                return Err(format!("it did not answer {what} within {after} s"));
            }
            Err(NoReply::Broken(reason)) => return Err(reason),
        };
        let Some(Value::Array(entries)) = page.get_mut(plural).map(Value::take) else {
            return Err(format!("it answered {what} without a list"));
        };
        let room = MAX_ENTRIES - raw.entries.len();
        let more = entries.len() > room;
        for entry in entries.into_iter().take(room) {
            raw.bytes += weight(&entry);
            if raw.bytes > kind.max_bytes() {
                let max = kind.max_bytes();
                raw.cut = Some(format!(
                    "more than {max} bytes of {plural}: the rest is left out"
                ));
                return Ok(raw);
            }
            raw.entries.push(entry);
        }
        let next = page.get("nextCursor").and_then(Value::as_str);
        let next = next.filter(|next| !next.is_empty());
        if more || (next.is_some() && raw.entries.len() == MAX_ENTRIES) {
            raw.cut = Some(format!(
                "more than {MAX_ENTRIES} {plural}: the rest is left out"
            ));
            return Ok(raw);
        }
        match next {
            None => return Ok(raw),
            Some(next) if next.len() > MAX_CURSOR || !seen.insert(next.to_owned()) => {
                raw.cut = Some(format!("{what} comes back to a page that was there before"));
                return Ok(raw);
            }
            Some(next) => cursor = Some(next.to_owned()),
        }
    }
    raw.cut = Some(format!(
        "{what} does not end after {MAX_PAGES} pages: the rest is left out"
    ));
    Ok(raw)
}

/// Reads the entries of a list and sorts them by what they are known by. Of two that are known by the
/// same only one can be asked for: the first.
fn sorted<T>(
    kind: Kind,
    raw: Result<Raw, String>,
    told: &mut Vec<String>,
    mut read: impl FnMut(&Value, &mut Vec<String>) -> Result<T, String>,
) -> Vec<T> {
    let (one, plural, known_by) = kind.words();
    let raw = raw.unwrap_or_else(|reason| {
        told.push(format!("{plural}: {reason}"));
        Raw::default()
    });
    let mut taken: BTreeMap<String, T> = BTreeMap::new();
    let mut reasons = Vec::new();
    for (number, entry) in raw.entries.iter().enumerate() {
        let max = if known_by == "name" {
            MAX_NAME
        } else {
            MAX_URI
        };
        let name = match entry.get(known_by).and_then(Value::as_str) {
            Some(name) => name,
            None => {
                reasons.push(format!("{one} {}: it has no {known_by}", number + 1));
                continue;
            }
        };
        let shown = || format!("{one} {:?}", shortened(name));
        if name.is_empty() || name.len() > max || name.chars().any(char::is_control) {
            let why = format!("its {known_by} is empty, too long or unprintable");
            reasons.push(format!("{}: {why}", shown()));
        } else if taken.contains_key(name) {
            reasons.push(format!(
                "{}: another one before it is called the same",
                shown()
            ));
        } else {
            match read(entry, &mut reasons) {
                Ok(one) => {
                    taken.insert(name.to_owned(), one);
                }
                Err(why) => reasons.push(format!("{}: {why}", shown())),
            }
        }
    }
    let more = reasons.len().saturating_sub(MAX_TOLD);
    told.extend(reasons.into_iter().take(MAX_TOLD));
    if more > 0 {
        told.push(format!("{plural}: and {more} more of that kind"));
    }
    told.extend(raw.cut);
    taken.into_values().collect()
}

fn tool(entry: &Value, told: &mut Vec<String>, until: Instant) -> Result<Tool, String> {
    let name = text(entry, "name").unwrap_or_default();
    let description = described(entry)?;
    let input = entry.get("inputSchema").ok_or("it has no inputSchema")?;
    let input_schema = schema::clean(input).map_err(|why| format!("its inputSchema {why}"))?;
    let mut output_schema = entry
        .get("outputSchema")
        .filter(|it| !it.is_null())
        .cloned();
    // Only tried: what is ready to check takes much more memory than what it is made of.
    let usable = match &output_schema {
        Some(_) if Instant::now() >= until => Err("is one of too many".to_owned()),
        Some(promise) => Checker::new(promise).map(drop),
        None => Ok(()),
    };
    if let Err(why) = usable {
        told.push(format!(
            "tool {:?}: its results are not checked, since its outputSchema {why}",
            shortened(name)
        ));
        output_schema = None;
    }
    let annotations = entry.get("annotations").filter(|it| it.is_object());
    let annotations = annotations.filter(|it| it.to_string().len() <= MAX_ANNOTATIONS);
    Ok(Tool {
        name: name.to_owned(),
        description,
        input_schema,
        output_schema,
        annotations: annotations.cloned().unwrap_or_default(),
    })
}

fn resource(entry: &Value, _told: &mut Vec<String>) -> Result<Resource, String> {
    Ok(Resource {
        uri: text(entry, "uri").unwrap_or_default().to_owned(),
        name: titled(entry),
        description: described(entry)?,
        mime_type: text(entry, "mimeType").map(shortened),
    })
}

fn template(entry: &Value, _told: &mut Vec<String>) -> Result<ResourceTemplate, String> {
    Ok(ResourceTemplate {
        uri_template: text(entry, "uriTemplate").unwrap_or_default().to_owned(),
        name: titled(entry),
        description: described(entry)?,
        mime_type: text(entry, "mimeType").map(shortened),
    })
}

fn prompt(entry: &Value, _told: &mut Vec<String>) -> Result<Prompt, String> {
    let arguments = match entry.get("arguments") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(arguments)) => arguments.as_slice(),
        Some(_) => return Err("its arguments are no list".into()),
    };
    if arguments.len() > MAX_ARGUMENTS {
        return Err(format!("it has more than {MAX_ARGUMENTS} arguments"));
    }
    let arguments = arguments.iter().map(|argument| {
        let name = text(argument, "name").filter(|name| !name.is_empty());
        let name = name.filter(|name| name.len() <= MAX_NAME);
        Ok(PromptArgument {
            name: name
                .ok_or("an argument of it has no usable name")?
                .to_owned(),
            description: described(argument)?,
            required: argument.get("required").and_then(Value::as_bool) == Some(true),
        })
    });
    Ok(Prompt {
        name: text(entry, "name").unwrap_or_default().to_owned(),
        description: described(entry)?,
        arguments: arguments.collect::<Result<_, String>>()?,
    })
}

fn text<'a>(entry: &'a Value, key: &str) -> Option<&'a str> {
    entry.get(key).and_then(Value::as_str)
}

fn titled(entry: &Value) -> String {
    shortened(
        text(entry, "title")
            .or(text(entry, "name"))
            .unwrap_or_default(),
    )
}

fn described(entry: &Value) -> Result<String, String> {
    match entry.get("description") {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(head_of(text, MAX_DESCRIPTION).to_owned()),
        Some(_) => Err("its description is no text".into()),
    }
}
