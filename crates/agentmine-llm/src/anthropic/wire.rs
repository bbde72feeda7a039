//! The request in the shape of Messages.
//!
//! Guaranteed: the same conversation gives the same bytes, and a longer one the same blocks followed by more. Only the cache
//! breakpoints move: one after tools and system prompt, and one at the end of each of the last two
//! turns of the user. The last one writes what the next step reads, and the one before it is what the step before wrote.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Serialize;
use serde_json::{Map, Value};

use super::layout::{self, Part};
use crate::api::tool;
use crate::message::{Message, ModelReply, ToolCall, ToolSpec};
use crate::model::ModelRequest;

const USER: &str = "user";
const ASSISTANT: &str = "assistant";
/// Newer models refuse a conversation that does not end with a message of the user, and all one that begins with a reply.
const CONTINUE: &str = "Continue.";
/// The API refuses a failure without a text.
const NO_TEXT: &str = "It failed without a message.";
/// The member of a request that lets a model think.
const THINKING: &str = "thinking";
/// Turns of the user with a cache breakpoint.
const MARKED_TURNS: usize = 2;

/// A refusal of `max_tokens` above the model's maximum: the text before the value sent, and before the maximum.
const OVER_LIMIT: (&str, &str) = ("max_tokens: ", " > ");
const OVER_LIMIT_END: &str = "maximum allowed number of output tokens";
/// The same from Bedrock: the text before the maximum.
const OVER_BEDROCKS_LIMIT: &str = "maximum tokens you requested exceeds the model limit of ";
/// A refusal of a conversation that fits the window, but not with `max_tokens` for the reply: the text before both sizes.
const OVER_WINDOW: &str = "exceed context limit: ";
/// The smallest `max_tokens` worth a request.
const SHORT_REPLY: u32 = 4_096;
/// A refusal of thinking in a tool loop that began without it.
const WITHOUT_THOUGHTS: &str = "must start with a thinking block";

/// The part of each request that comes from the configuration.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// The model's name.
    pub(super) model: String,
    /// Ask for a stream.
    pub(super) stream: bool,
    /// Stream the arguments of a call as the model writes them.
    pub(super) eager: bool,
    /// Sampling temperature.
    pub(super) temperature: Option<f64>,
    /// More members of the request.
    pub(super) more: Map<String, Value>,
}

/// Whether the configuration may ask for thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thinking {
    AsConfigured,
    Omitted,
}

/// What servers and models accept differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    /// Tokens of the reply at most.
    pub(super) max_tokens: u32,
    pub(super) thinking: Thinking,
}

impl Form {
    /// The form to try after a server refused a request in this one with these words; `None` if they name nothing that could
    /// be sent differently.
    pub(super) fn after_refusal(self, words: &str, settings: &Settings) -> Option<Self> {
        let Self {
            max_tokens,
            thinking,
        } = self;
        if let Some(max_tokens) = limit_in(words).filter(|limit| (1..max_tokens).contains(limit)) {
            return Some(Self { max_tokens, ..self });
        }
        let asks = thinking == Thinking::AsConfigured && settings.more.contains_key(THINKING);
        (asks && words.contains(WITHOUT_THOUGHTS)).then_some(Self {
            thinking: Thinking::Omitted,
            ..self
        })
    }

    /// The form to try after a server said that the conversation and the reply together do not fit into the window: a shorter
    /// reply, if there is room for one.
    pub(super) fn after_overflow(self, words: &str, settings: &Settings) -> Option<Self> {
        let max_tokens = room_in(words)?;
        let budget = settings.more.get(THINKING);
        let budget = budget.and_then(|thinking| thinking["budget_tokens"].as_u64());
        let is_enough = u64::from(max_tokens) > budget.unwrap_or(0);
        let is_less = (SHORT_REPLY..self.max_tokens).contains(&max_tokens);
        (is_enough && is_less).then_some(Self { max_tokens, ..self })
    }
}

/// The tokens that are left for a reply: "… exceed context limit: 190000 + 20000 > 200000, decrease input length …".
fn room_in(words: &str) -> Option<u32> {
    let (_, rest) = words.split_once(OVER_WINDOW)?;
    let (prompt, rest) = rest.split_once(" + ")?;
    let (_, rest) = rest.split_once(" > ")?;
    leading_number(rest)?.checked_sub(prompt.parse().ok()?)
}

/// The limit that a refusal names: "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for …", or
/// from Bedrock "The maximum tokens you requested exceeds the model limit of 4096."
fn limit_in(words: &str) -> Option<u32> {
    if let Some((_, rest)) = words.split_once(OVER_BEDROCKS_LIMIT) {
        return leading_number(rest);
    }
    let (_, rest) = words.split_once(OVER_LIMIT.0)?;
    let (sent, rest) = rest.split_once(OVER_LIMIT.1)?;
    let (limit, rest) = rest.split_once(',')?;
    let is_it = rest.contains(OVER_LIMIT_END) && sent.parse::<u32>().is_ok();
    limit.trim().parse().ok().filter(|_| is_it)
}

fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().ok()
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<OwnBlock<'a>>,
    #[serde(flatten)]
    more: Cow<'a, Map<String, Value>>,
    messages: Vec<WireTurn<'a>>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: Value,
    /// Otherwise the API sends nothing until an argument is complete, for minutes if it is a long file.
    #[serde(skip_serializing_if = "Option::is_none")]
    eager_input_streaming: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct WireTurn<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Block<'a> {
    Own(OwnBlock<'a>),
    /// As it came.
    Thinking(&'a Value),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OwnBlock<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolUse {
        id: String,
        name: Cow<'a, str>,
        input: Value,
    },
    ToolResult {
        tool_use_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        is_error: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
}

#[derive(Clone, Copy, Serialize)]
struct CacheControl {
    r#type: &'static str,
}

/// For five minutes after each use.
const EPHEMERAL: CacheControl = CacheControl {
    r#type: "ephemeral",
};

/// The body of one request.
pub(super) fn body(
    settings: &Settings,
    form: Form,
    request: &ModelRequest<'_>,
) -> serde_json::Result<Vec<u8>> {
    let Settings {
        model,
        stream,
        eager,
        temperature,
        more,
    } = settings;
    let Form {
        max_tokens,
        thinking,
    } = form;
    let mut tools: Vec<Tool<'_>> = request
        .tools
        .iter()
        .map(|spec| offered(spec, *eager))
        .collect();
    let mut system = system(request.messages);
    let mut turns = Turns::of(request.messages);
    if thinking == Thinking::Omitted {
        turns.forget_thinking();
    }
    // Writing to the cache costs more, and only a conversation that grows reads from it.
    if request.conversation.is_some() {
        match (system.last_mut(), tools.last_mut()) {
            (Some(last), _) => last.mark(),
            (None, Some(last)) => last.cache_control = Some(EPHEMERAL),
            (None, None) => {}
        }
        turns.mark();
    }
    let mut more = Cow::Borrowed(more);
    if thinking == Thinking::Omitted {
        more.to_mut().shift_remove(THINKING);
    }
    serde_json::to_vec(&Body {
        model,
        max_tokens,
        stream: *stream,
        temperature: *temperature,
        tools,
        system,
        more,
        messages: turns.done,
    })
}

fn offered(spec: &ToolSpec, eager: bool) -> Tool<'_> {
    Tool {
        name: &spec.name,
        description: &spec.description,
        input_schema: tool::parameters(spec),
        eager_input_streaming: eager.then_some(true),
        cache_control: None,
    }
}

fn system(messages: &[Message]) -> Vec<OwnBlock<'_>> {
    let texts = messages.iter().filter_map(|message| match message {
        Message::System { text } => OwnBlock::text(text),
        Message::User { .. } | Message::Assistant(_) | Message::Tool { .. } => None,
    });
    texts.collect()
}

impl<'a> OwnBlock<'a> {
    /// `None` where there is nothing to read, which the API refuses.
    fn text(text: &'a str) -> Option<Self> {
        (!text.trim().is_empty()).then_some(Self::Text {
            text,
            cache_control: None,
        })
    }

    /// Lets the cache be written up to its end.
    fn mark(&mut self) {
        match self {
            Self::Text { cache_control, .. } | Self::ToolResult { cache_control, .. } => {
                *cache_control = Some(EPHEMERAL);
            }
            // No turn of the user ends with one.
            Self::ToolUse { .. } => {}
        }
    }
}

/// The turns of a conversation, by turns of the user and of the model.
#[derive(Default)]
struct Turns<'a> {
    done: Vec<WireTurn<'a>>,
    ids: Ids<'a>,
}

impl<'a> Turns<'a> {
    fn of(messages: &'a [Message]) -> Self {
        let mut turns = Self::default();
        for message in messages {
            match message {
                // Sent as `system`.
                Message::System { .. } => {}
                Message::User { text } => {
                    if let Some(block) = OwnBlock::text(text) {
                        turns.of_role(USER).push(Block::Own(block));
                    }
                }
                Message::Assistant(reply) => turns.add_reply(reply),
                Message::Tool {
                    call_id,
                    name: _,
                    text,
                    is_error,
                } => turns.add_result(call_id, text, *is_error),
            }
        }
        if turns.done.first().is_none_or(|first| first.role != USER) {
            turns.done.insert(0, user_turn());
        }
        if turns.done.last().is_some_and(|last| last.role != USER) {
            turns.done.push(user_turn());
        }
        turns
    }

    /// The blocks of the newest turn, which has this role.
    fn of_role(&mut self, role: &'static str) -> &mut Vec<Block<'a>> {
        let at = match self.done.last() {
            Some(last) if last.role == role => self.done.len() - 1,
            Some(_) | None => {
                self.done.push(WireTurn {
                    role,
                    content: Vec::new(),
                });
                self.done.len() - 1
            }
        };
        &mut self.done[at].content
    }

    /// All results come before any text, as the API requires.
    fn add_result(&mut self, call_id: &'a str, text: &'a str, is_error: bool) {
        let text = Some(text).filter(|text| !text.trim().is_empty());
        let block = OwnBlock::ToolResult {
            tool_use_id: self.ids.of(call_id),
            content: text.or(is_error.then_some(NO_TEXT)),
            is_error: is_error.then_some(true),
            cache_control: None,
        };
        let content = self.of_role(USER);
        let is_text = |block: &Block<'_>| matches!(block, Block::Own(OwnBlock::Text { .. }));
        let at = content.iter().position(is_text).unwrap_or(content.len());
        content.insert(at, Block::Own(block));
    }

    fn add_reply(&mut self, reply: &'a ModelReply) {
        let ModelReply {
            text,
            calls,
            stop: _,
            extra,
        } = reply;
        let mut blocks = Vec::new();
        let mut rest = text.as_str();
        let mut of_calls = calls.iter();
        for part in layout::parts(extra, text, calls.len()) {
            match part {
                Part::Text(length) => {
                    let end = rest.char_indices().nth(length);
                    let (piece, after) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
                    rest = after;
                    blocks.extend(OwnBlock::text(piece).map(Block::Own));
                }
                Part::Call => {
                    let call = of_calls.next().map(|call| self.ids.call(call));
                    blocks.extend(call.map(Block::Own));
                }
                Part::Thinking(block) => blocks.push(Block::Thinking(block)),
            }
        }
        // The API refuses a turn that ends with thinking, or is empty.
        while matches!(blocks.last(), Some(Block::Thinking(_))) {
            blocks.pop();
        }
        if !blocks.is_empty() {
            self.of_role(ASSISTANT).append(&mut blocks);
        }
    }

    /// The API refuses thinking in the conversation where the model may not think.
    fn forget_thinking(&mut self) {
        for turn in &mut self.done {
            turn.content.retain(|block| matches!(block, Block::Own(_)));
        }
    }

    fn mark(&mut self) {
        let users = self.done.iter_mut().rev().filter(|turn| turn.role == USER);
        for turn in users.take(MARKED_TURNS) {
            if let Some(Block::Own(last)) = turn.content.last_mut() {
                last.mark();
            }
        }
    }
}

fn user_turn() -> WireTurn<'static> {
    let block = OwnBlock::Text {
        text: CONTINUE,
        cache_control: None,
    };
    WireTurn {
        role: USER,
        content: vec![Block::Own(block)],
    }
}

/// The ids of calls as they are sent. The API accepts few characters, and each id once in a conversation; a conversation that
/// another model began may have others. What an id becomes depends only on what is before it.
#[derive(Default)]
struct Ids<'a> {
    sent: HashSet<String>,
    /// Of the newest reply with calls: as they were, and as they are sent.
    newest: Vec<(&'a str, String)>,
    /// Whether a result came since.
    is_answered: bool,
}

impl<'a> Ids<'a> {
    fn call(&mut self, call: &'a ToolCall) -> OwnBlock<'a> {
        let ToolCall {
            id,
            name,
            arguments,
            extra: _,
        } = call;
        if std::mem::take(&mut self.is_answered) {
            self.newest.clear();
        }
        let plain = plain(id);
        let (mut sent, mut again) = (plain.clone(), 1);
        while !self.sent.insert(sent.clone()) {
            again += 1;
            sent = format!("{plain}_{again}");
        }
        self.newest.push((id.as_str(), sent.clone()));
        OwnBlock::ToolUse {
            id: sent,
            name: tool::wire_name(name),
            input: tool::arguments(arguments),
        }
    }

    /// The id of the call that a result belongs to.
    fn of(&mut self, id: &str) -> String {
        self.is_answered = true;
        let newest = self.newest.iter().find(|(was, _)| *was == id);
        newest.map_or_else(|| plain(id), |(_, sent)| sent.clone())
    }
}

fn plain(id: &str) -> String {
    match id.is_empty() {
        true => "call".to_owned(),
        false => id
            .chars()
            .map(|c| if tool::is_plain(c) { c } else { '_' })
            .collect(),
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
