//! Detects an agent that repeats itself.
//!
//! Three calls with one result may also be a model that waits for something, or that wrote one call three times in a reply. It
//! is warned first, and stopped when it continues.

use agentmine_llm::ToolCall;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Longest cycle of calls that is detected: one call again and again, or some in turn, such as files that a model reads again
/// because not all of them fit its window.
const MAX_CYCLE: usize = 6;
/// Fields of a command's result that differ from run to run.
const VOLATILE: [&str; 1] = ["duration_ms"];
/// How often a model is warned. One that does something else after each warning, and then the same again, is stopped too.
const MAX_WARNINGS: u32 = 3;

/// The calls so far, each with its result.
#[derive(Default)]
pub(crate) struct Repeats {
    digests: Vec<[u8; 32]>,
    /// Whether the model was warned of the repetition that is under way.
    is_warned: bool,
    warnings: u32,
}

/// What a call repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repetition {
    /// Nothing, or not often enough.
    None,
    /// A cycle that has run so often that the model is to be warned.
    Warned(usize),
    /// A cycle of which the model was warned.
    Stuck(usize),
}

impl Repeats {
    /// Adds a call. A cycle that has run `limit` times is a repetition.
    pub(crate) fn add(&mut self, call: &ToolCall, result: &str, limit: usize) -> Repetition {
        let count = self.count(call, result);
        if count < limit {
            self.is_warned = false;
            return Repetition::None;
        }
        if self.is_warned || self.warnings == MAX_WARNINGS {
            return Repetition::Stuck(count);
        }
        self.is_warned = true;
        self.warnings += 1;
        Repetition::Warned(count)
    }

    /// Adds a call. Returns how often the cycle that it ends has run without a change in its results;
    /// 1 if it ends none.
    fn count(&mut self, call: &ToolCall, result: &str) -> usize {
        self.digests.push(digest(call, result));
        let cycles = (1..=MAX_CYCLE).map(|length| self.runs_of(length));
        cycles.max().unwrap_or(1)
    }

    /// How often the newest `length` calls ran in a row.
    fn runs_of(&self, length: usize) -> usize {
        let mut runs = self.digests.rchunks_exact(length);
        let newest = runs.next();
        1 + runs.take_while(|run| Some(*run) == newest).count()
    }
}

fn digest(call: &ToolCall, result: &str) -> [u8; 32] {
    let (arguments, result) = (lasting(&call.arguments, &[]), lasting(result, &VOLATILE));
    let mut hash = Sha256::new();
    for part in [&call.name, &arguments, &result] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

/// The text without what differs from run to run: these fields, and in JSON the order of keys and the space
/// between them.
fn lasting(text: &str, volatile: &[&str]) -> String {
    match serde_json::from_str(text) {
        Ok(Value::Object(mut fields)) => {
            fields.retain(|field, _| !volatile.contains(&field.as_str()));
            let mut value = Value::Object(fields);
            value.sort_all_objects();
            value.to_string()
        }
        Ok(_) | Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(calls: &[(&str, &str)]) -> Vec<usize> {
        let mut repeats = Repeats::default();
        let count = |(command, result): &(&str, &str)| {
            let call = ToolCall {
                id: "1".into(),
                name: "run".into(),
                arguments: (*command).into(),
                ..ToolCall::default()
            };
            repeats.count(&call, result)
        };
        calls.iter().map(count).collect()
    }

    #[test]
    fn a_call_with_the_same_result_is_counted_until_something_changes() {
        let calls = [("a", "x"), ("a", "x"), ("a", "x"), ("a", "y"), ("a", "x")];
        assert_eq!(counts(&calls), [1, 2, 3, 1, 1]);
    }

    #[test]
    fn calls_that_are_made_in_turn_are_counted_together() {
        let files = ["a", "b", "c"].map(|file| (file, "x"));
        assert_eq!(counts(&files.repeat(3))[6..], [2, 2, 3]);
    }

    #[test]
    fn a_repetition_is_stuck_after_a_warning_and_after_three_of_them_at_once() {
        let mut repeats = Repeats::default();
        let mut add = |command: &str| {
            let call = ToolCall {
                arguments: command.into(),
                ..ToolCall::default()
            };
            repeats.add(&call, "x", 3)
        };
        let (warned, stuck) = (Repetition::Warned, Repetition::Stuck);
        for _ in 0..2 {
            assert_eq!([add("a"), add("a")], [Repetition::None; 2]);
            assert_eq!(add("a"), warned(3));
            assert_eq!(add("b"), Repetition::None);
        }
        assert_eq!([add("a"), add("a")], [Repetition::None; 2]);
        assert_eq!([add("a"), add("a")], [warned(3), stuck(4)]);
        assert_eq!([add("c"), add("c")], [Repetition::None; 2]);
        assert_eq!(add("c"), stuck(3));
    }

    #[test]
    fn the_duration_of_a_command_makes_no_difference() {
        let calls = [
            ("a", r#"{"exit_code":1,"duration_ms":12}"#),
            ("a", r#"{"exit_code":1,"duration_ms":345}"#),
            ("a", r#"{"exit_code":0,"duration_ms":12}"#),
        ];
        assert_eq!(counts(&calls), [1, 2, 1]);
    }

    #[test]
    fn the_order_of_keys_makes_no_difference() {
        let calls = [
            (r#"{"path":"a","text":"b"}"#, r#"{"x":{"a":1,"b":2},"y":3}"#),
            (
                r#"{"text": "b", "path": "a"}"#,
                r#"{"y":3,"x":{"b":2,"a":1}}"#,
            ),
            (r#"{"text":"a","path":"b"}"#, r#"{"x":{"a":1,"b":2},"y":3}"#),
        ];
        assert_eq!(counts(&calls), [1, 2, 1]);
    }

    #[test]
    fn two_calls_in_turn_are_a_cycle() {
        let calls = [("a", "x"), ("b", "y")].repeat(3);
        assert_eq!(counts(&calls), [1, 1, 1, 2, 2, 3]);
        let working = [
            ("test", "1 failed"),
            ("edit 1", "ok"),
            ("test", "1 failed"),
            ("edit 2", "ok"),
        ];
        assert_eq!(counts(&working), [1, 1, 1, 1]);
    }
}
