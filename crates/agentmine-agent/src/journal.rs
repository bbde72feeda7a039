//! The journal: everything that is recorded of a task, as one type with its encoding.
//!
//! A worker appends an [`Entry`] before the next thing begins. The history of a resumed conversation,
//! the start of the work, and the transcript that people read are all decoded from the same entries.
//! The encoding is tagged and versioned; `testdata/journal.json` holds every variant as it is stored.
//! A step that cannot be decoded is an error that names the step: nothing is guessed or left out.

use agentmine_domain::{Phase, Seq, Step, StepKind, StepPayload, Usage};
use agentmine_llm::{Message, ModelReply};
use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::start::Start;

/// The version of the encoding that this program writes. Version 0 had no tag and no version; its
/// steps are still read.
const VERSION: u32 = 1;

/// Something that is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Entry {
    /// A phase began.
    Phase {
        /// Which.
        phase: Phase,
    },
    /// What was settled before the agent began.
    Start {
        /// The base commit and the project's checks.
        start: Start,
    },
    /// A message of the worker to the model.
    Prompt {
        /// On whose behalf.
        role: PromptRole,
        /// The text.
        text: String,
    },
    /// The model's reply.
    ModelReply {
        /// Text and tool calls.
        reply: ModelReply,
        /// What the reply cost.
        usage: Usage,
    },
    /// The result of one tool call.
    ToolResult {
        /// The result, as the model sees it.
        result: CallResult,
    },
    /// What was measured.
    Facts {
        /// On the pushed commit.
        facts: Facts,
    },
    /// Use of the model by something other than the loop: a server's sampling request.
    ModelUse {
        /// By what, for a reader of the transcript.
        text: String,
        /// What it cost.
        usage: Usage,
    },
    /// Something that a reader of the transcript should know.
    Note {
        /// The text.
        text: String,
    },
}

/// On whose behalf the worker speaks to the model.
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
    /// What it should record.
    pub kind: StepKind,
    problem: Problem,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{0}")]
    Shape(#[from] serde_json::Error),
    #[error("it was written in version {0}, and this program reads up to {VERSION}")]
    Version(u32),
    #[error("it is recorded as {0}")]
    Kind(StepKind),
    #[error("a reply without its usage")]
    NoUsage,
}

impl Entry {
    /// A note.
    pub fn note(text: impl Into<String>) -> Self {
        Self::Note { text: text.into() }
    }

    /// What kind of step records it.
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

    /// Encodes it for the store.
    ///
    /// # Errors
    /// Never for the variants of this version; an error is a fault of this program.
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
    /// When the step was written by a newer version, is damaged, or records something else than its
    /// kind says.
    pub fn decode(step: &Step) -> Result<Self, JournalError> {
        decode(step).map_err(|problem| JournalError {
            seq: step.seq,
            kind: step.kind,
            problem,
        })
    }

    /// What it adds to the conversation.
    #[must_use]
    pub fn message(&self) -> Option<Message> {
        match self {
            Self::Prompt { role, text } => {
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

    /// What it adds to what the task has used.
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

    /// The same entry with `redact` applied to every text that comes from outside of this program.
    #[must_use]
    pub fn redacted(self, redact: &dyn Fn(String) -> String) -> Self {
        match self {
            Self::Phase { phase } => Self::Phase { phase },
            Self::Start { start } => Self::Start {
                start: start.redacted(redact),
            },
            Self::Prompt { role, text } => Self::Prompt {
                role,
                text: redact(text),
            },
            Self::ModelReply { reply, usage } => Self::ModelReply {
                reply: reply.redacted(redact),
                usage,
            },
            Self::ToolResult { result } => Self::ToolResult {
                result: result.redacted(redact),
            },
            Self::Facts { facts } => Self::Facts {
                facts: facts.redacted(redact),
            },
            Self::ModelUse { text, usage } => Self::ModelUse {
                text: redact(text),
                usage,
            },
            Self::Note { text } => Self::Note { text: redact(text) },
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

/// Decodes a task's whole journal.
///
/// # Errors
/// For the first step that cannot be decoded.
pub fn decode_all(steps: &[Step]) -> Result<Vec<Entry>, JournalError> {
    steps.iter().map(Entry::decode).collect()
}

/// What the work is measured from: the newest recorded start.
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

/// The content of a step of version 0, which had no tag: told by its fields.
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
            Version0::Facts { facts } => Self::Facts { facts },
            Version0::ModelUse { text, usage } => Self::ModelUse { text, usage },
            Version0::Note { text } => Self::Note { text },
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
    Ok(Entry::Prompt { role, text })
}

#[cfg(test)]
mod tests;
