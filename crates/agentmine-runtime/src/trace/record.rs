//! What is recorded of a span.

/// The version of OpenTelemetry's semantic conventions whose names the spans have: `gen_ai.*` of `invoke_agent`, `chat` and
/// `execute_tool`.
pub const CONVENTIONS: &str = "https://opentelemetry.io/schemas/1.37.0";

/// A span of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    pub(super) trace: u128,
    pub(super) span: u64,
}

impl SpanContext {
    /// The span of a task, from which its trace begins; `task` is its UUID.
    #[must_use]
    pub fn of_task(task: u128) -> Self {
        Self {
            trace: task,
            span: identity(task as u64),
        }
    }

    /// The span of a task's session.
    #[must_use]
    pub fn of_session(task: u128, epoch: i64) -> Self {
        let span = mixed((task as u64) ^ mixed(epoch.unsigned_abs()));
        Self {
            trace: task,
            span: identity(span),
        }
    }

    /// The trace's id as logs and collectors show it.
    #[must_use]
    pub fn trace_id(self) -> String {
        format!("{:032x}", self.trace)
    }

    pub(super) fn span_id(self) -> String {
        format!("{:016x}", self.span)
    }
}

/// A span id is not zero.
pub(super) fn identity(number: u64) -> u64 {
    number.max(1)
}

/// Spreads a number over all bits: the finalizer of SplitMix64.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What a span is to the process at its other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// There is no other process.
    Internal,
    /// A request to a server.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    /// A text.
    Text(String),
    /// A number.
    Int(i64),
    /// A yes or no.
    Bool(bool),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Attribute {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Attribute {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<u64> for Attribute {
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Attribute {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// The parts of a span that ended.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) own: SpanContext,
    pub(super) parent: Option<u64>,
    pub(super) name: String,
    pub(super) kind: SpanKind,
    pub(super) begun: u128,
    pub(super) ended: u128,
    pub(super) attributes: Vec<(&'static str, Attribute)>,
    /// `error.type`, where it failed.
    pub(super) error: Option<String>,
}
