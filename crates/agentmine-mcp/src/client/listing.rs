//! What a server offers, page by page. A malformed entry is skipped, and the rest is used. An entry is redacted like a
//! result before anything of it is cut, since the model reads it too.
//!
//! A list ends at its last page, at a repeated cursor, or at a limit of pages, entries or bytes; all but the
//! first are reported in [`Offer::left_out`].

use std::collections::{BTreeMap, HashSet};

use rmcp::model::{ErrorCode, ServerCapabilities};
use serde_json::{Map, Value};

use super::request::{NoReply, Reply, Requests};
use crate::output::{Shown, usable};
use crate::text::{head_of, shortened, weight};
use crate::{Offer, PromptArgument, Resource, ServerPrompt, Tool, schema};

/// Entries of one list.
const MAX_ENTRIES: usize = 1_000;
/// Pages of one list: a server may make up new cursors for ever.
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
/// Reasons that are kept for what one list omits.
const MAX_REASONS: usize = 50;

/// One of a server's lists.
struct Kind {
    method: &'static str,
    /// The name of an entry.
    one: &'static str,
    /// The list's key.
    plural: &'static str,
    /// The key that identifies an entry, and the bytes that it may have.
    key: (&'static str, usize),
    /// Bytes of all entries in memory, by [`weight`].
    max_bytes: usize,
}

const TOOLS: Kind = Kind {
    method: "tools/list",
    one: "tool",
    plural: "tools",
    key: ("name", MAX_NAME),
    max_bytes: 4 * 1024 * 1024,
};
const RESOURCES: Kind = Kind {
    method: "resources/list",
    one: "resource",
    plural: "resources",
    key: ("uri", MAX_URI),
    max_bytes: 2 * 1024 * 1024,
};
const TEMPLATES: Kind = Kind {
    method: "resources/templates/list",
    one: "resource template",
    plural: "resourceTemplates",
    key: ("uriTemplate", MAX_URI),
    max_bytes: 2 * 1024 * 1024,
};
const PROMPTS: Kind = Kind {
    method: "prompts/list",
    one: "prompt",
    plural: "prompts",
    key: ("name", MAX_NAME),
    max_bytes: 2 * 1024 * 1024,
};

/// Lists everything that the server declares. An error is the reason why the tools cannot be listed.
pub(super) async fn list(
    requests: &Requests,
    has: &ServerCapabilities,
    shown: &Shown,
) -> Result<Offer, String> {
    let (tools, resources, templates, prompts) = tokio::join!(
        pages(requests, &TOOLS, has.tools.is_some()),
        pages(requests, &RESOURCES, has.resources.is_some()),
        pages(requests, &TEMPLATES, has.resources.is_some()),
        pages(requests, &PROMPTS, has.prompts.is_some()),
    );
    let (tools, shown) = (tools?, shown.clone());
    // Schemas take much work, and the server chooses how much.
    let reading = move || {
        let mut offer = Offer::default();
        let left_out = &mut offer.left_out;
        offer.tools = entries(&TOOLS, Ok(tools), &shown, left_out, tool);
        offer.resources = entries(&RESOURCES, resources, &shown, left_out, resource);
        offer.templates = entries(&TEMPLATES, templates, &shown, left_out, resource);
        offer.prompts = entries(&PROMPTS, prompts, &shown, left_out, prompt);
        offer
    };
    let read = tokio::task::spawn_blocking(reading).await;
    read.map_err(|_| "what it offers cannot be read".to_owned())
}

/// A list as the server sent it.
#[derive(Default)]
struct Raw {
    entries: Vec<Value>,
    bytes: usize,
    /// Why it is not the whole list.
    cut: Option<String>,
}

async fn pages(requests: &Requests, kind: &Kind, has: bool) -> Result<Raw, String> {
    let mut raw = Raw::default();
    if !has {
        return Ok(raw);
    }
    let mut params = Map::new();
    let mut seen = HashSet::new();
    let what = format!("the listing of its {}", kind.plural);
    for _ in 0..MAX_PAGES {
        let Some(mut page) = page(requests, kind, params.clone(), &what).await? else {
            return Ok(raw);
        };
        let Value::Array(entries) = page[kind.plural].take() else {
            return Err(format!("it answered {what} without a list"));
        };
        let next = page["nextCursor"].as_str().filter(|next| !next.is_empty());
        raw.cut = raw.take(kind, entries, next.is_some());
        match next {
            None => return Ok(raw),
            Some(_) if raw.cut.is_some() => return Ok(raw),
            Some(next) if next.len() > MAX_CURSOR || !seen.insert(next.to_owned()) => {
                raw.cut = Some(format!("{what} comes back to a page that was there before"));
                return Ok(raw);
            }
            Some(next) => params.insert("cursor".into(), next.into()),
        };
    }
    raw.cut = Some(format!(
        "{what} does not end after {MAX_PAGES} pages: the rest is ignored"
    ));
    Ok(raw)
}

/// One page; `None` where the server has no such list.
async fn page(
    requests: &Requests,
    kind: &Kind,
    params: Map<String, Value>,
    what: &str,
) -> Result<Option<Value>, String> {
    match requests.request(kind.method, params).await {
        Ok(Reply::Result(page @ Value::Object(_))) => Ok(Some(page)),
        Ok(Reply::Result(_)) => Err(format!("it answered {what} without a list")),
        // Servers with resources and no templates are common.
        Ok(Reply::Refused(error))
            if error.code == ErrorCode::METHOD_NOT_FOUND && kind.plural != TOOLS.plural =>
        {
            Ok(None)
        }
        Ok(Reply::Refused(error)) => {
            let (words, code) = (shortened(&error.message), error.code.0);
            Err(format!("it refused {what}: {words} (code {code})"))
        }
        Err(NoReply::Late(after)) => {
            let after = after.as_secs_f64();
            Err(format!("it did not answer {what} within {after} s"))
        }
        Err(NoReply::Broken(reason)) => Err(reason),
    }
}

impl Raw {
    /// Takes the entries of a page, and returns why that is not all of them.
    fn take(&mut self, kind: &Kind, entries: Vec<Value>, more: bool) -> Option<String> {
        let Kind {
            plural, max_bytes, ..
        } = kind;
        let room = MAX_ENTRIES - self.entries.len();
        let count = entries.len();
        for entry in entries.into_iter().take(room) {
            self.bytes += weight(&entry);
            if self.bytes > *max_bytes {
                let cut = format!("more than {max_bytes} bytes of {plural}: the rest is ignored");
                return Some(cut);
            }
            self.entries.push(entry);
        }
        (count > room || (more && count == room))
            .then(|| format!("more than {MAX_ENTRIES} {plural}: the rest is ignored"))
    }
}

/// Reads the entries of a list, sorted by key. Of two with the same key only the first is kept.
fn entries<T>(
    kind: &Kind,
    raw: Result<Raw, String>,
    shown: &Shown,
    left_out: &mut Vec<String>,
    read: impl Fn(String, &Value, &mut Vec<String>) -> Result<T, String>,
) -> Vec<T> {
    let (one, plural, (key, max)) = (kind.one, kind.plural, kind.key);
    let raw = raw.unwrap_or_else(|reason| {
        left_out.push(format!("{plural}: {reason}"));
        Raw::default()
    });
    let mut taken: BTreeMap<String, T> = BTreeMap::new();
    let mut reasons = Vec::new();
    for (number, entry) in raw.entries.iter().enumerate() {
        let Some(name) = entry[key].as_str() else {
            reasons.push(format!("{one} {}: it has no {key}", number + 1));
            continue;
        };
        let result = if name.is_empty() || name.len() > max || name.chars().any(char::is_control) {
            Err(format!("its {key} is empty, too long or unprintable"))
        } else if taken.contains_key(name) {
            Err("an earlier one has the same name".to_owned())
        } else {
            read(name.to_owned(), &redacted(entry, key, shown), &mut reasons)
        };
        match result {
            Ok(value) => drop(taken.insert(name.to_owned(), value)),
            Err(why) => reasons.push(format!("{one} {:?}: {why}", shortened(name))),
        }
    }
    let more = reasons.len().saturating_sub(MAX_REASONS);
    left_out.extend(reasons.into_iter().take(MAX_REASONS));
    if more > 0 {
        left_out.push(format!("{plural}: and {more} more of that kind"));
    }
    left_out.extend(raw.cut);
    taken.into_values().collect()
}

/// The entry without secrets. What identifies it stays, since the server is asked by it.
fn redacted(entry: &Value, key: &str, shown: &Shown) -> Value {
    let mut redacted = shown.redacted(entry.clone());
    if let (Value::Object(redacted), Some(own)) = (&mut redacted, entry.get(key)) {
        redacted.insert(key.to_owned(), own.clone());
    }
    redacted
}

fn tool(name: String, entry: &Value, reasons: &mut Vec<String>) -> Result<Tool, String> {
    let description = description(entry)?;
    let input = entry.get("inputSchema").ok_or("it has no inputSchema")?;
    let input_schema = schema::clean(input).map_err(|why| format!("its inputSchema {why}"))?;
    let mut output_schema = Some(entry["outputSchema"].clone()).filter(|it| !it.is_null());
    if let Some(Err(why)) = output_schema.as_ref().map(usable) {
        reasons.push(format!(
            "tool {:?}: its results are not checked, since its outputSchema {why}",
            shortened(&name)
        ));
        output_schema = None;
    }
    let annotations = entry.get("annotations").filter(|it| it.is_object());
    let annotations = annotations.filter(|it| it.to_string().len() <= MAX_ANNOTATIONS);
    Ok(Tool {
        name,
        description,
        input_schema,
        output_schema,
        annotations: annotations.cloned().unwrap_or_default(),
    })
}

/// Resources and their templates have the same form.
fn resource(uri: String, entry: &Value, _: &mut Vec<String>) -> Result<Resource, String> {
    let name = entry["title"].as_str().or(entry["name"].as_str());
    Ok(Resource {
        uri,
        name: shortened(name.unwrap_or_default()),
        description: description(entry)?,
        mime_type: entry["mimeType"].as_str().map(shortened),
    })
}

fn prompt(name: String, entry: &Value, _: &mut Vec<String>) -> Result<ServerPrompt, String> {
    let arguments = match &entry["arguments"] {
        Value::Null => &[],
        Value::Array(arguments) => arguments.as_slice(),
        _ => return Err("its arguments are not a list".into()),
    };
    if arguments.len() > MAX_ARGUMENTS {
        return Err(format!("it has more than {MAX_ARGUMENTS} arguments"));
    }
    let arguments = arguments.iter().map(|argument| {
        let name = argument["name"].as_str();
        let name = name.filter(|name| (1..=MAX_NAME).contains(&name.len()));
        Ok(PromptArgument {
            name: name
                .ok_or("an argument of it has no usable name")?
                .to_owned(),
            description: description(argument)?,
            required: argument["required"] == true,
        })
    });
    Ok(ServerPrompt {
        name,
        description: description(entry)?,
        arguments: arguments.collect::<Result<_, String>>()?,
    })
}

fn description(entry: &Value) -> Result<String, String> {
    match &entry["description"] {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(head_of(text, MAX_DESCRIPTION).to_owned()),
        _ => Err("its description is not text".into()),
    }
}
