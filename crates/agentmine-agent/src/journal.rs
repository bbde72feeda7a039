//! The journal: everything that is recorded about a task, as one type with its encoding.
//!
//! A worker appends an [`Entry`] before anything else begins. The history of a resumed conversation,
//! the start of the work, and the transcript are all decoded from the same entries.
//! The encoding is tagged and versioned; `testdata/journal.json` holds every variant as it is stored.
//! A step that cannot be decoded is an error that names the step; nothing is guessed or skipped.

use std::collections::BTreeSet;

use agentmine_domain::{Phase, Seq, Step, StepKind, StepPayload, Usage};
use agentmine_llm::{Message, ModelReply};
use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::incoming::Hidden;
use crate::note::NoteFact;
use crate::start::Start;

/// The version of the encoding that this program writes. Version 0, without tag and version, can still
/// be read.
const VERSION: u32 = 1;

/// One entry of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Entry {
    /// A phase began.
    Phase {
        /// Which phase.
        phase: Phase,
    },
    /// The start, determined before the agent begins.
    Start {
        /// The base commit and the project's checks.
        start: Start,
    },
    /// A message from the worker to the model.
    Prompt {
        /// The role of the message.
        role: PromptRole,
        /// The text.
        text: String,
        /// What was omitted from what people wrote, if the text has anything of theirs. Earlier versions did not
        /// record it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hidden: Option<Hidden>,
        /// The ids of the remarks of people that the text has, if it is one that has any. Earlier versions did not
        /// record them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remarks: Option<Vec<String>>,
    },
    /// The model's reply.
    ModelReply {
        /// Text and tool calls.
        reply: ModelReply,
        /// The usage of this reply.
        usage: Usage,
    },
    /// The result of one tool call.
    ToolResult {
        /// The result, as the model sees it.
        result: CallResult,
    },
    /// The result of a measurement.
    Facts {
        /// The facts.
        facts: Facts,
        /// Why the work was stopped before it was measured, if it was. Earlier versions did not record it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stopped: Option<String>,
    },
    /// Use of the model outside of the loop: a server's sampling request.
    ModelUse {
        /// A description for the transcript.
        text: String,
        /// The usage.
        usage: Usage,
    },
    /// A note for readers of the transcript.
    Note {
        /// The text.
        text: String,
        /// Its machine-readable part, if any; earlier versions recorded only the text.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "known_fact"
        )]
        fact: Option<NoteFact>,
    },
}

/// A fact that a later version recorded is skipped; its note remains.
fn known_fact<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<NoteFact>, D::Error> {
    let fact = serde_json::Value::deserialize(from)?;
    Ok(serde_json::from_value(fact).ok())
}

/// The role of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptRole {
    /// The system prompt.
    System,
    /// The task, or a correction.
    User,
}

/// The result of one tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallResult {
    /// The call's id.
    pub call_id: String,
    /// The wire name of the tool.
    pub name: String,
    /// The text that the model sees.
    pub text: String,
    /// Whether the tool failed.
    pub is_error: bool,
}

/// A step that cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("step {seq} of the journal ({kind}) cannot be read: {problem}")]
pub struct JournalError {
    /// Which step.
    pub seq: Seq,
    /// The kind of the step.
    pub kind: StepKind,
    problem: Problem,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{0}")]
    Shape(#[from] serde_json::Error),
    #[error("it has version {0}, but this program only supports versions up to {VERSION}")]
    Version(u32),
    #[error("its content is of the kind {0}")]
    Kind(StepKind),
    #[error("the usage of the reply is missing")]
    NoUsage,
}

impl JournalError {
    /// Whether a later version recorded the step: its version, or one of the names in it, is not known here.
    #[must_use]
    pub fn is_of_later_version(&self) -> bool {
        match &self.problem {
            Problem::Version(_) => true,
            Problem::Shape(error) => error.to_string().starts_with("unknown variant"),
            Problem::Kind(_) | Problem::NoUsage => false,
        }
    }
}

impl Entry {
    /// A note.
    pub fn note(text: impl Into<String>) -> Self {
        Self::Note {
            text: text.into(),
            fact: None,
        }
    }

    /// The kind of step that records this entry.
    #[must_use]
    pub fn kind(&self) -> StepKind {
        match self {
            Self::Phase { .. } => StepKind::Phase,
            Self::Start { .. } | Self::Facts { .. } => StepKind::Fact,
            Self::Prompt { .. } => StepKind::Prompt,
            Self::ModelReply { .. } => StepKind::ModelReply,
            Self::ToolResult { .. } => StepKind::ToolResult,
            Self::ModelUse { .. } | Self::Note { .. } => StepKind::Note,
        }
    }

    /// Encodes the entry for the store.
    ///
    /// # Errors
    /// Does not fail for the variants of this version; an error would be a bug.
    pub fn encode(&self) -> serde_json::Result<StepPayload> {
        #[derive(Serialize)]
        struct Stored<'a> {
            v: u32,
            #[serde(flatten)]
            entry: &'a Entry,
        }
        StepPayload::encode(&Stored {
            v: VERSION,
            entry: self,
        })
    }

    /// Decodes a step.
    ///
    /// # Errors
    /// Returns an error if the step was written by a newer version, is damaged, or does not match its
    /// kind.
    pub fn decode(step: &Step) -> Result<Self, JournalError> {
        decode(step).map_err(|problem| JournalError {
            seq: step.seq,
            kind: step.kind,
            problem,
        })
    }

    /// The message that the entry adds to the conversation.
    #[must_use]
    pub fn message(&self) -> Option<Message> {
        match self {
            Self::Prompt { role, text, .. } => {
                let text = text.clone();
                Some(match role {
                    PromptRole::System => Message::System { text },
                    PromptRole::User => Message::User { text },
                })
            }
            Self::ModelReply { reply, .. } => Some(Message::Assistant(reply.clone())),
            Self::ToolResult { result } => Some(Message::Tool {
                call_id: result.call_id.clone(),
                name: result.name.clone(),
                text: result.text.clone(),
                is_error: result.is_error,
            }),
            Self::Phase { .. }
            | Self::Start { .. }
            | Self::Facts { .. }
            | Self::ModelUse { .. }
            | Self::Note { .. } => None,
        }
    }

    /// The usage that the entry adds to the task's total.
    #[must_use]
    pub fn usage(&self) -> Usage {
        match self {
            Self::ModelReply { usage, .. } | Self::ModelUse { usage, .. } => *usage,
            Self::ToolResult { .. } => Usage {
                tool_calls: 1,
                ..Usage::default()
            },
            Self::Phase { .. }
            | Self::Start { .. }
            | Self::Prompt { .. }
            | Self::Facts { .. }
            | Self::Note { .. } => Usage::default(),
        }
    }

    /// The same entry with `redact` applied to every text.
    #[must_use]
    pub fn redacted(self, redact: &dyn Fn(String) -> String) -> Self {
        match self {
            Self::Phase { phase } => Self::Phase { phase },
            Self::Start { start } => Self::Start {
                start: start.redacted(redact),
            },
            Self::Prompt {
                role,
                text,
                hidden,
                remarks,
            } => Self::Prompt {
                role,
                text: redact(text),
                hidden,
                remarks: remarks.map(|ids| ids.into_iter().map(redact).collect()),
            },
            Self::ModelReply { reply, usage } => Self::ModelReply {
                reply: reply.redacted(redact),
                usage,
            },
            Self::ToolResult { result } => Self::ToolResult {
                result: result.redacted(redact),
            },
            Self::Facts { facts, stopped } => Self::Facts {
                facts: facts.redacted(redact),
                stopped: stopped.map(redact),
            },
            Self::ModelUse { text, usage } => Self::ModelUse {
                text: redact(text),
                usage,
            },
            Self::Note { text, fact } => Self::Note {
                text: redact(text),
                fact: fact.map(|fact| fact.redacted(redact)),
            },
        }
    }
}

impl CallResult {
    fn redacted(self, redact: &dyn Fn(String) -> String) -> Self {
        let Self {
            call_id,
            name,
            text,
            is_error,
        } = self;
        Self {
            call_id: redact(call_id),
            name: redact(name),
            text: redact(text),
            is_error,
        }
    }
}

/// Decodes a task's whole journal. A message that an old version recorded twice, after a commit whose outcome
/// was unknown, is returned once.
///
/// # Errors
/// Returns an error for the first step that cannot be decoded.
pub fn decode_all(steps: &[Step]) -> Result<Vec<Entry>, JournalError> {
    let mut newest: Option<&Step> = None;
    let mut entries = Vec::with_capacity(steps.len());
    for step in steps {
        if newest.is_some_and(|newest| is_doubled(newest, step)) {
            continue;
        }
        if is_message(step.kind) {
            newest = Some(step);
        }
        entries.push(Entry::decode(step)?);
    }
    Ok(entries)
}

/// Whether a step repeats the message before it. No session does that on purpose: a reply, a result or a
/// prompt of the same session is always followed by something else.
fn is_doubled(newest: &Step, step: &Step) -> bool {
    (newest.epoch, newest.kind) == (step.epoch, step.kind) && newest.payload == step.payload
}

/// Whether steps of this kind are messages of the conversation.
fn is_message(kind: StepKind) -> bool {
    match kind {
        StepKind::Prompt | StepKind::ModelReply | StepKind::ToolResult => true,
        StepKind::Phase | StepKind::Fact | StepKind::Note => false,
    }
}

/// The newest recorded start.
#[must_use]
pub fn newest_start(entries: &[Entry]) -> Option<&Start> {
    entries.iter().rev().find_map(|entry| match entry {
        Entry::Start { start } => Some(start),
        Entry::Phase { .. }
        | Entry::Prompt { .. }
        | Entry::ModelReply { .. }
        | Entry::ToolResult { .. }
        | Entry::Facts { .. }
        | Entry::ModelUse { .. }
        | Entry::Note { .. } => None,
    })
}

/// What was omitted from the text that people wrote, as recorded with the prompt that has that text; `None` if there is
/// no such prompt yet, or an earlier version recorded it.
#[must_use]
pub fn hidden_in_prompt(entries: &[Entry]) -> Option<Hidden> {
    entries.iter().find_map(|entry| match entry {
        Entry::Prompt { hidden, .. } => *hidden,
        Entry::Phase { .. }
        | Entry::Start { .. }
        | Entry::ModelReply { .. }
        | Entry::ToolResult { .. }
        | Entry::Facts { .. }
        | Entry::ModelUse { .. }
        | Entry::Note { .. } => None,
    })
}

/// The ids of the remarks of people that the model has been given; `None` if an earlier version described the task,
/// which recorded none.
#[must_use]
pub fn given_remarks(entries: &[Entry]) -> Option<BTreeSet<String>> {
    let lists = entries.iter().filter_map(|entry| match entry {
        Entry::Prompt { remarks, .. } => remarks.as_ref(),
        Entry::Phase { .. }
        | Entry::Start { .. }
        | Entry::ModelReply { .. }
        | Entry::ToolResult { .. }
        | Entry::Facts { .. }
        | Entry::ModelUse { .. }
        | Entry::Note { .. } => None,
    });
    let mut lists = lists.peekable();
    lists.peek()?;
    Some(lists.flatten().cloned().collect())
}

fn decode(step: &Step) -> Result<Entry, Problem> {
    #[derive(Deserialize)]
    struct Version {
        v: Option<u32>,
    }
    let entry: Entry = match step.payload.decode::<Version>()?.v {
        None => step.payload.decode::<Version0>()?.try_into()?,
        Some(VERSION) => step.payload.decode()?,
        Some(newer) => return Err(Problem::Version(newer)),
    };
    if entry.kind() == step.kind {
        Ok(entry)
    } else {
        Err(Problem::Kind(entry.kind()))
    }
}

/// The content of a step of version 0, which had no tag; its fields distinguish the variants.
#[derive(Deserialize)]
#[serde(untagged)]
enum Version0 {
    Phase { phase: Phase },
    Start { start: Start },
    Facts { facts: Facts },
    Reply { message: Message, usage: Usage },
    Message { message: Message },
    ModelUse { text: String, usage: Usage },
    Note { text: String },
}

impl TryFrom<Version0> for Entry {
    type Error = Problem;

    fn try_from(old: Version0) -> Result<Self, Problem> {
        Ok(match old {
            Version0::Phase { phase } => Self::Phase { phase },
            Version0::Start { start } => Self::Start { start },
            Version0::Facts { facts } => Self::Facts {
                facts,
                stopped: None,
            },
            Version0::ModelUse { text, usage } => Self::ModelUse { text, usage },
            Version0::Note { text } => Self::note(text),
            Version0::Reply {
                message: Message::Assistant(reply),
                usage,
            } => Self::ModelReply { reply, usage },
            Version0::Reply { message, .. } | Version0::Message { message } => prompt(message)?,
        })
    }
}

/// A message of version 0 that is not a reply.
fn prompt(message: Message) -> Result<Entry, Problem> {
    let (role, text) = match message {
        Message::System { text } => (PromptRole::System, text),
        Message::User { text } => (PromptRole::User, text),
        Message::Tool {
            call_id,
            name,
            text,
            is_error,
        } => {
            let result = CallResult {
                call_id,
                name,
                text,
                is_error,
            };
            return Ok(Entry::ToolResult { result });
        }
        Message::Assistant(_) => return Err(Problem::NoUsage),
    };
    Ok(Entry::Prompt {
        role,
        text,
        hidden: None,
        remarks: None,
    })
}

#[cfg(test)]
mod tests;
