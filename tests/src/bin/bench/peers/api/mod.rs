//! The model's side of three APIs: which tools a request offers, and a reply as a stream of events.

mod chat;
mod messages;
mod responses;

use serde_json::Value;

/// What the model answers.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Call(Call),
    Text(&'static str),
}

/// A call that the model requests.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) tool: &'static str,
    pub(crate) input: Input,
}

/// What a tool gets.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    Arguments(Value),
    /// Plain text, for a tool without a schema.
    Text(String),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Api {
    /// `OpenAI`'s Chat Completions.
    Chat,
    /// `OpenAI`'s Responses.
    Responses,
    /// Anthropic's Messages.
    Messages,
}

impl Api {
    /// Of a request's path.
    pub(super) fn of(path: &str) -> Option<Self> {
        if path.ends_with("/chat/completions") {
            Some(Self::Chat)
        } else if path.ends_with("/responses") {
            Some(Self::Responses)
        } else if path.ends_with("/messages") {
            Some(Self::Messages)
        } else {
            None
        }
    }

    /// The names of the tools that a request offers.
    pub(super) fn tools(self, request: &Value) -> Vec<String> {
        let tools = request["tools"].as_array().into_iter().flatten();
        let name = |tool: &Value| {
            let tool = match self {
                Self::Chat => &tool["function"],
                Self::Responses | Self::Messages => tool,
            };
            tool["name"].as_str().map(str::to_owned)
        };
        tools.filter_map(name).collect()
    }

    /// The reply as server-sent events; `id` is unique in the conversation.
    pub(super) fn events(self, reply: &Reply, id: usize) -> String {
        match self {
            Self::Chat => chat::events(reply, id),
            Self::Responses => responses::events(reply, id),
            Self::Messages => messages::events(reply, id),
        }
    }
}

/// Events that carry their name, as of [`Api::Responses`] and [`Api::Messages`].
fn named(events: &[Value]) -> String {
    let event = |event: &Value| {
        let name = event["type"].as_str().unwrap_or_default();
        format!("event: {name}\ndata: {event}\n\n")
    };
    events.iter().map(event).collect()
}

impl Input {
    /// As JSON in a string; a text as it is.
    fn text(&self) -> String {
        match self {
            Self::Arguments(arguments) => arguments.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}
