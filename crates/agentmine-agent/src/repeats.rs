//! Detects an agent that repeats itself.

use agentmine_llm::ToolCall;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Longest cycle of calls that is detected: one call again and again, or two in turn.
const MAX_CYCLE: usize = 2;
/// Fields of a command's result that differ from run to run.
const VOLATILE: [&str; 1] = ["duration_ms"];

/// The calls so far, each with its result.
#[derive(Default)]
pub(crate) struct Repeats {
    digests: Vec<[u8; 32]>,
}

impl Repeats {
    /// Adds a call. Returns how often the cycle that it ends has run without a change in its results;
    /// 1 if it ends none.
    pub(crate) fn count(&mut self, call: &ToolCall, result: &str) -> usize {
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
