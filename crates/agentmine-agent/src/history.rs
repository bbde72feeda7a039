//! The conversation: append-only, and rebuilt from the journal on resume. Once it is too long for the model, the oldest results
//! are omitted from it; the journal keeps them, and records how many are omitted.
//!
//! Guaranteed after a replay: each result answers a call of the reply before it, and only calls of the newest
//! reply may be without a result. Model APIs refuse any other conversation.

use agentmine_domain::Usage;
use agentmine_llm::{Message, ModelReply, Stop, ToolCall};

use crate::journal::Entry;
use crate::note::NoteFact;
use crate::prompt::CORRECTION;

/// The conversation so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    messages: Vec<Message>,
    /// The newest measurement, if it found a result.
    result: Option<MeasuredResult>,
}

/// What a request has besides the model's replies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Texts {
    /// Bytes of prompts and results.
    pub bytes: usize,
    /// How many of them are user messages.
    pub from_users: usize,
}

/// A result that was pushed and measured by an earlier session of the task.
#[derive(Debug, Clone, PartialEq)]
struct MeasuredResult {
    /// Why the work on it was stopped, if it was.
    stopped: Option<String>,
    /// Messages at that time.
    after: usize,
}

impl History {
    /// Rebuilds the conversation and the usage from the journal.
    #[must_use]
    pub fn replay(entries: &[Entry]) -> (Self, Usage) {
        let mut usage = Usage::default();
        for entry in entries {
            usage += entry.usage();
        }
        let mut history = Self::default();
        for entry in entries {
            if let Some(message) = entry.message() {
                history.add_fitting(message);
            }
            match entry {
                Entry::Facts { facts, stopped } => {
                    history.result = facts.head.is_some().then(|| MeasuredResult {
                        stopped: stopped.clone(),
                        after: history.messages.len(),
                    });
                }
                Entry::Note {
                    fact: Some(NoteFact::ResultsOmitted(count)),
                    ..
                } => history.omit_results(*count),
                _ => {}
            }
        }
        (history, usage)
    }

    /// Adds a message of a journal that may be damaged: a result without a call is dropped, and a call
    /// without a result is closed.
    fn add_fitting(&mut self, message: Message) {
        let open = self.open_calls();
        match &message {
            Message::Tool { call_id, .. } => {
                if !open.iter().any(|call| call.id == *call_id) {
                    return;
                }
            }
            Message::System { .. } | Message::User { .. } | Message::Assistant(_) => {
                self.messages.extend(open.iter().map(interrupted));
            }
        }
        self.messages.push(message);
    }

    /// The same conversation for an API that refused it although it is in order: without empty
    /// messages, and without two messages of one role in a row. `None` if there is nothing to change, or no reply yet: then
    /// the API does not refuse the conversation, but the request.
    #[must_use]
    pub fn tidied(&self) -> Option<Self> {
        self.rewritten(Change::Order)
    }

    /// A simpler form for an API that refuses that as well: new call ids and a reply between a result and a user message, as
    /// Mistral requires, and no provider-specific members such as reasoning.
    #[must_use]
    pub fn simplified(&self) -> Option<Self> {
        self.rewritten(Change::Everything)
    }

    fn rewritten(&self, change: Change) -> Option<Self> {
        if !self.has_reply() {
            return None;
        }
        let mut simple = Simplified::new(change);
        for message in &self.messages {
            simple.add(message.clone());
        }
        let messages = simple.messages;
        (messages != self.messages).then_some(Self {
            messages,
            result: None,
        })
    }

    /// How many results, the oldest of the conversation, to omit for an API that finds it too long: half of their text goes.
    /// Those of the newest calls stay as long as there are others, and the last one in any case. `None` if there is nothing to
    /// omit.
    #[must_use]
    pub(crate) fn omissible_results(&self) -> Option<usize> {
        let has_calls = |message: &Message| matches!(message, Message::Assistant(reply) if !reply.calls.is_empty());
        let newest = self.messages.iter().rposition(has_calls)?;
        let lengths = |messages: &[Message]| -> Vec<usize> {
            let texts = messages.iter().filter_map(|message| match message {
                Message::Tool { text, .. } => Some(text),
                Message::System { .. } | Message::User { .. } | Message::Assistant(_) => None,
            });
            texts
                .map(|text| text.len().saturating_sub(OMITTED.len()))
                .collect()
        };
        let (older, newer) = self.messages.split_at(newest);
        let (mut older, newer) = (lengths(older), lengths(newer));
        let all: usize = older.iter().chain(&newer).sum();
        if older.iter().all(|length| *length == 0) {
            older.extend(newer.iter().take(newer.len().saturating_sub(1)));
        }
        let mut gained = 0;
        let mut count = 0;
        for (at, length) in older.into_iter().enumerate() {
            if gained >= all.div_ceil(2) {
                break;
            }
            gained += length;
            if length > 0 {
                count = at + 1;
            }
        }
        (count > 0).then_some(count)
    }

    /// Omits the oldest results of the conversation. The calls stay, and so does what people wrote.
    pub(crate) fn omit_results(&mut self, count: usize) {
        let results = self
            .messages
            .iter_mut()
            .filter_map(|message| match message {
                Message::Tool { text, .. } => Some(text),
                Message::System { .. } | Message::User { .. } | Message::Assistant(_) => None,
            });
        for text in results.take(count).filter(|it| it.len() > OMITTED.len()) {
            OMITTED.clone_into(text);
        }
    }

    /// How many corrections the model was sent. None counts while there is no result: who asks for the task again then
    /// wants it worked on.
    #[must_use]
    pub fn corrections(&self) -> u32 {
        let is_correction = |message: &&Message| match message {
            Message::User { text } => text.starts_with(CORRECTION),
            Message::System { .. } | Message::Assistant(_) | Message::Tool { .. } => false,
        };
        match self.result {
            Some(_) => {
                let count = self.messages.iter().filter(is_correction).count();
                u32::try_from(count).unwrap_or(u32::MAX)
            }
            None => 0,
        }
    }

    /// Why the work was stopped, if it was, its result was measured, and nothing was said since.
    #[must_use]
    pub fn stopped(&self) -> Option<&str> {
        let result = self.result.as_ref()?;
        let is_newest = result.after == self.messages.len();
        result.stopped.as_deref().filter(|_| is_newest)
    }

    /// The messages, in order.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Size of the texts that every server reads whole. Replies do not count: chat templates drop what the model thought
    /// before a user message.
    #[must_use]
    pub fn texts(&self) -> Texts {
        let mut texts = Texts::default();
        for message in &self.messages {
            match message {
                Message::User { text } => {
                    texts.from_users += 1;
                    texts.bytes += text.len();
                }
                Message::System { text } | Message::Tool { text, .. } => texts.bytes += text.len(),
                Message::Assistant(_) => {}
            }
        }
        texts
    }

    /// Appends a message.
    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// The model's newest reply, if it is the last message of the conversation.
    #[must_use]
    pub fn last_reply(&self) -> Option<&ModelReply> {
        match self.messages.last() {
            Some(Message::Assistant(reply)) => Some(reply),
            _ => None,
        }
    }

    /// Whether the task was described to the model.
    #[must_use]
    pub fn has_task(&self) -> bool {
        let is_task = |message: &Message| matches!(message, Message::User { .. });
        self.messages.iter().any(is_task)
    }

    /// Whether the model was sent a message that begins like this.
    #[must_use]
    pub(crate) fn was_sent(&self, beginning: &str) -> bool {
        let begins = |message: &Message| matches!(message, Message::User { text } if text.starts_with(beginning));
        self.messages.iter().any(begins)
    }

    /// Whether the model has replied yet.
    #[must_use]
    pub fn has_reply(&self) -> bool {
        let is_reply = |message: &Message| matches!(message, Message::Assistant(_));
        self.messages.iter().any(is_reply)
    }

    /// Calls of the newest reply without a result: they were interrupted.
    #[must_use]
    pub fn open_calls(&self) -> Vec<ToolCall> {
        let Some(at) = self
            .messages
            .iter()
            .rposition(|m| matches!(m, Message::Assistant(_)))
        else {
            return Vec::new();
        };
        let Message::Assistant(reply) = &self.messages[at] else {
            return Vec::new();
        };
        let answered: Vec<&str> = self.messages[at..]
            .iter()
            .filter_map(|m| match m {
                Message::Tool { call_id, .. } => Some(call_id.as_str()),
                Message::System { .. } | Message::User { .. } | Message::Assistant(_) => None,
            })
            .collect();
        reply
            .calls
            .iter()
            .filter(|call| !answered.contains(&call.id.as_str()))
            .cloned()
            .collect()
    }
}

/// What a call gets whose result was never recorded.
pub(crate) const INTERRUPTED: &str = "interrupted, outcome unknown: the worker was replaced while this call ran. Check the current state before you repeat the call.";

/// What stands for the result of an older call once the conversation was too long for the model.
const OMITTED: &str = "omitted, since the conversation was too long for the model. If you still need this result, make the call again.";

fn interrupted(call: &ToolCall) -> Message {
    Message::Tool {
        call_id: call.id.clone(),
        name: call.name.clone(),
        text: INTERRUPTED.to_owned(),
        is_error: true,
    }
}

/// The reply between a result and a user message.
const UNDERSTOOD: &str = "Understood.";

/// What changes in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Which messages there are.
    Order,
    /// Also ids, and what the API wants back.
    Everything,
}

/// A conversation that is being simplified.
struct Simplified {
    change: Change,
    messages: Vec<Message>,
    /// Calls so far.
    calls: usize,
    /// The ids of the newest reply's calls: as they were, and as they are.
    ids: Vec<(String, String)>,
}

impl Simplified {
    fn new(change: Change) -> Self {
        Self {
            change,
            messages: Vec::new(),
            calls: 0,
            ids: Vec::new(),
        }
    }

    fn add(&mut self, message: Message) {
        if self.change == Change::Everything
            && matches!(message, Message::User { .. })
            && matches!(self.messages.last(), Some(Message::Tool { .. }))
        {
            self.messages.push(Message::Assistant(ModelReply {
                text: UNDERSTOOD.to_owned(),
                ..ModelReply::default()
            }));
        }
        match (self.messages.last_mut(), message) {
            (Some(Message::User { text }), Message::User { text: more })
            | (Some(Message::System { text }), Message::System { text: more }) => {
                text.push_str("\n\n");
                text.push_str(&more);
            }
            (_, Message::Assistant(reply)) => self.add_reply(reply),
            (
                _,
                Message::Tool {
                    call_id,
                    name,
                    text,
                    is_error,
                },
            ) => {
                let renamed = self.ids.iter().find(|(was, _)| *was == call_id);
                self.messages.push(Message::Tool {
                    call_id: renamed.map_or(call_id, |(_, is)| is.clone()),
                    name,
                    text,
                    is_error,
                });
            }
            (_, message) => self.messages.push(message),
        }
    }

    fn add_reply(&mut self, mut reply: ModelReply) {
        // An API that filters requests too refuses the text that it filtered in a reply.
        if reply.stop == Stop::Filtered {
            reply.text.clear();
        }
        if reply.text.trim().is_empty() {
            if reply.calls.is_empty() {
                return;
            }
            reply.text.clear();
        }
        self.ids.clear();
        match self.change {
            Change::Order => {}
            Change::Everything => self.simplify(&mut reply),
        }
        self.messages.push(Message::Assistant(reply));
    }

    fn simplify(&mut self, reply: &mut ModelReply) {
        reply.extra.clear();
        for call in &mut reply.calls {
            call.extra.clear();
            self.calls += 1;
            // Nine letters and digits.
            let id = format!("call{:05}", self.calls);
            self.ids
                .push((std::mem::replace(&mut call.id, id.clone()), id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall {
            id: id.into(),
            name: "shell".into(),
            arguments: "{}".into(),
            ..ToolCall::default()
        }
    }

    fn result(id: &str) -> Message {
        Message::Tool {
            call_id: id.into(),
            name: "shell".into(),
            text: id.into(),
            is_error: false,
        }
    }

    #[test]
    fn a_simpler_conversation_has_ids_of_its_own_for_calls_and_their_results() {
        let reply = |ids: &[&str]| {
            Message::Assistant(ModelReply {
                calls: ids.iter().map(|id| call(id)).collect(),
                ..ModelReply::default()
            })
        };
        let messages = vec![
            reply(&["a|1", "a|2"]),
            result("a|2"),
            result("a|1"),
            // A provider may count again from one in each reply.
            reply(&["a|1"]),
            result("a|1"),
        ];
        let simple = History {
            messages,
            result: None,
        }
        .simplified()
        .unwrap();
        let ids: Vec<&str> = simple
            .messages
            .iter()
            .flat_map(|message| match message {
                Message::Assistant(reply) => reply.calls.iter().map(|it| it.id.as_str()).collect(),
                Message::Tool { call_id, .. } => vec![call_id.as_str()],
                Message::System { .. } | Message::User { .. } => Vec::new(),
            })
            .collect();
        let expected = [1, 2, 2, 1, 3, 3].map(|n| format!("call0000{n}"));
        assert_eq!(ids, expected);
    }

    #[test]
    fn tidying_keeps_the_reasoning_and_simplifying_drops_it() {
        let extra: agentmine_llm::Extra = [("reasoning_content".to_owned(), "So".into())]
            .into_iter()
            .collect();
        let user = |text: &str| Message::User { text: text.into() };
        let reply = |text: &str, calls: Vec<ToolCall>| ModelReply {
            text: text.into(),
            calls,
            extra: extra.clone(),
            ..ModelReply::default()
        };
        let history = |messages: Vec<Message>| History {
            messages,
            result: None,
        };
        let conversation = history(vec![
            user("Fix it."),
            Message::Assistant(reply("\n", vec![call("a|1")])),
            result("a|1"),
            Message::Assistant(reply("", Vec::new())),
            user("Your reply was empty."),
        ]);
        let tidied = history(vec![
            user("Fix it."),
            Message::Assistant(reply("", vec![call("a|1")])),
            result("a|1"),
            user("Your reply was empty."),
        ]);
        assert_eq!(conversation.tidied(), Some(tidied.clone()));
        assert_eq!(tidied.tidied(), None, "there is nothing to change");
        let simple = history(vec![
            user("Fix it."),
            Message::Assistant(ModelReply {
                calls: vec![call("call00001")],
                ..ModelReply::default()
            }),
            Message::Tool {
                call_id: "call00001".into(),
                name: "shell".into(),
                text: "a|1".into(),
                is_error: false,
            },
            Message::Assistant(ModelReply {
                text: "Understood.".into(),
                ..ModelReply::default()
            }),
            user("Your reply was empty."),
        ]);
        assert_eq!(tidied.simplified(), Some(simple));
    }
}
