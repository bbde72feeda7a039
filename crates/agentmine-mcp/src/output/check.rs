//! Whether a tool gives what its `outputSchema` promises.
//!
//! A mismatch is told at the end of the text, and the result stays what it is: the tool has done its
//! work, and a model that is told "failed" would have it done again.
//!
//! The schema is a server's, so it is hostile: its references are put in under bounds (none is ever
//! fetched, none is left to recur), patterns are few and run in an engine that takes linear time and
//! bounded memory, and a result is checked only where schema times result is small enough. A schema
//! that cannot be used so is no promise. Even so, to make one and to check by it belongs on a thread
//! that may block. `format` is not checked: it is a remark, as JSON Schema has it since 2019-09.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::shortened;
use crate::schema;

/// Bytes of a schema.
const MAX_SCHEMA: usize = 64 * 1024;
/// Bytes of one compiled pattern.
const MAX_PATTERN: usize = 64 * 1024;
/// Patterns of a schema.
const MAX_PATTERNS: usize = 50;
/// Bytes of a result's texts times patterns of the schema.
const MAX_MATCHED: usize = 10_000_000;
/// Values of the schema times values of the result.
const MAX_WORK: usize = 5_000_000;
/// Mismatches told.
const MAX_TOLD: usize = 3;

/// A promise, ready to be checked.
pub(crate) struct Checker {
    validator: Validator,
    size: usize,
    patterns: usize,
}

impl Checker {
    /// An error reads on from "its outputSchema".
    pub(crate) fn new(promise: &Value) -> Result<Self, String> {
        if !promise.is_object() {
            return Err("is no object".into());
        }
        if promise.to_string().len() > MAX_SCHEMA {
            return Err(format!("has more than {MAX_SCHEMA} bytes"));
        }
        let promise = schema::inline(promise)?;
        let count = patterns(&promise);
        if count > MAX_PATTERNS {
            return Err(format!("has more than {MAX_PATTERNS} patterns"));
        }
        let patterns = PatternOptions::regex()
            .size_limit(MAX_PATTERN)
            .dfa_size_limit(MAX_PATTERN);
        let validator = jsonschema::options()
            .with_pattern_options(patterns)
            .should_validate_formats(false)
            .offline()
            .build(&promise)
            .map_err(|error| format!("cannot be used: {}", shortened(&error.to_string())))?;
        Ok(Self {
            validator,
            size: size(&promise),
            patterns: count,
        })
    }

    /// What of a result is not as promised, for the end of its text.
    pub(crate) fn check(&self, result: &Value) -> Option<String> {
        let note = match result.get("structuredContent") {
            None | Some(Value::Null) => {
                "[note: the tool promises structured output and gave none]".to_owned()
            }
            Some(given) if size(given).saturating_mul(self.size) > MAX_WORK => return None,
            Some(given) if text(given).saturating_mul(self.patterns) > MAX_MATCHED => return None,
            Some(given) => {
                let errors = self.validator.iter_errors(given).take(MAX_TOLD);
                let errors: Vec<String> = errors
                    .map(|error| {
                        let place = error.instance_path().to_string();
                        let place = if place.is_empty() {
                            "the whole"
                        } else {
                            &place
                        };
                        format!("{}: {}", shortened(place), shortened(&error.to_string()))
                    })
                    .collect();
                if errors.is_empty() {
                    return None;
                }
                let errors = errors.join("; ");
                format!(
                    "[note: structuredContent is not what the tool's outputSchema promises: {errors}]"
                )
            }
        };
        Some(note)
    }
}

fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(values) => values.iter().map(size).sum::<usize>(),
        Value::Object(values) => values.values().map(size).sum(),
        _ => 0,
    }
}

/// Bytes of all texts, keys included.
fn text(value: &Value) -> usize {
    match value {
        Value::String(words) => words.len(),
        Value::Array(values) => values.iter().map(text).sum(),
        Value::Object(values) => values.iter().map(|(key, it)| key.len() + text(it)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Patterns of a schema; what only looks like one counts too.
fn patterns(schema: &Value) -> usize {
    match schema {
        Value::Array(values) => values.iter().map(patterns).sum(),
        Value::Object(values) => values
            .iter()
            .map(|(key, it)| {
                let own = match (key.as_str(), it) {
                    ("pattern", Value::String(_)) => 1,
                    ("patternProperties", Value::Object(named)) => named.len(),
                    _ => 0,
                };
                own + patterns(it)
            })
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
