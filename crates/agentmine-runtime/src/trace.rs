//! Traces over OTLP: a task is one trace, from the scan that found it through every session to its end.
//!
//! The identity of a task is that of its trace, and task and epoch give the identity of a session's span. So every process
//! knows both from the row, also one that takes a task over, and no context has to be stored or passed on.
//!
//! Guaranteed: a span holds names, numbers and outcomes, and no text of an item, a model, a tool or a file. Ending a span puts
//! it into a queue and waits for nobody: a collector that is slow or away costs the session nothing. What it does not
//! take in time is dropped and counted in `agentmine_trace_spans_total`.

mod encode;
mod export;
mod record;

use std::time::{SystemTime, UNIX_EPOCH};

pub use export::{flush, start};
pub use record::{Attribute, CONVENTIONS, SpanContext, SpanKind};
use record::{Record, identity};

/// A span that has begun. It ends when it is dropped. Without a collector it is empty.
#[derive(Debug)]
pub struct Span(Option<Box<Record>>);

impl Span {
    /// Begins the span of a task.
    #[must_use]
    pub fn of_task(own: SpanContext, name: &str) -> Self {
        Self::begin(own, None, name, SpanKind::Internal)
    }

    /// Begins the span of a session, as a child of the task's.
    #[must_use]
    pub fn of_session(own: SpanContext, name: &str) -> Self {
        let task = SpanContext::of_task(own.trace);
        Self::begin(own, Some(task.span), name, SpanKind::Internal)
    }

    /// Begins a span below another one.
    #[must_use]
    pub fn below(parent: SpanContext, name: &str, kind: SpanKind) -> Self {
        let own = SpanContext {
            trace: parent.trace,
            span: identity(rand::random()),
        };
        Self::begin(own, Some(parent.span), name, kind)
    }

    fn begin(own: SpanContext, parent: Option<u64>, name: &str, kind: SpanKind) -> Self {
        Self(export::is_started().then(|| {
            Box::new(Record {
                own,
                parent,
                name: name.to_owned(),
                kind,
                begun: now(),
                ended: 0,
                attributes: Vec::new(),
                error: None,
            })
        }))
    }

    /// Gives it an attribute.
    pub fn set(&mut self, name: &'static str, value: impl Into<Attribute>) {
        if let Some(record) = &mut self.0 {
            record.attributes.push((name, value.into()));
        }
    }

    /// It failed, for a reason of this kind: a word, no message.
    pub fn fail(&mut self, kind: &str) {
        if let Some(record) = &mut self.0 {
            record.error = Some(kind.to_owned());
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(mut record) = self.0.take() {
            record.ended = now();
            export::queue(record);
        }
    }
}

/// Nanoseconds since 1970, UTC.
fn now() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_its_tasks_trace_and_a_span_of_its_own_in_each_epoch() {
        let task = 0x0190_a1b2_0000_7000_8000_0000_dead_beef;
        let of_task = SpanContext::of_task(task);
        assert_eq!(of_task.trace_id(), "0190a1b20000700080000000deadbeef");
        assert_eq!(of_task.span_id(), "80000000deadbeef");
        let (first, second) = (
            SpanContext::of_session(task, 1),
            SpanContext::of_session(task, 2),
        );
        assert_eq!(
            first,
            SpanContext::of_session(task, 1),
            "after a takeover too"
        );
        assert_eq!(first.trace, second.trace);
        let spans = [of_task.span, first.span, second.span, 0];
        let distinct: std::collections::BTreeSet<u64> = spans.into();
        assert_eq!(distinct.len(), 4);
    }

    #[test]
    fn without_a_collector_a_span_is_empty() {
        let span = Span::of_task(SpanContext::of_task(1), "x");
        assert!(span.0.is_none());
    }
}
