//! How much of a result is shown, and what is redacted in it.

use std::sync::Arc;

use agentmine_process::Excerpt;
use serde_json::Value;

/// How to see what is omitted.
const HOW: &str = "ask for less at a time to see it";
/// Bytes that a note of what is omitted may take, with its escapes.
const NOTE: usize = 128;
/// Strings of a value that are not longer are never cut.
const SHORT: usize = 2 * NOTE;
/// How often a value is cut a little more, since escapes are not spread evenly.
const ATTEMPTS: usize = 8;

/// Removes secrets from a text.
pub type Redact = Arc<dyn Fn(String) -> String + Send + Sync>;

/// How a result is shown.
#[derive(Clone)]
pub(crate) struct Shown {
    /// Bytes of the whole.
    pub(crate) max: usize,
    /// Applied before the cut, since a part of a secret is not found.
    pub(crate) redact: Option<Redact>,
}

impl Shown {
    /// Parts on lines of their own, redacted, then cut between lines.
    pub(crate) fn text(&self, parts: impl IntoIterator<Item = String>) -> String {
        let parts: Vec<String> = parts.into_iter().collect();
        let text = self.redacted_text(parts.join("\n"));
        Excerpt::whole(text).fit(self.max).into_text(HOW)
    }

    /// A value as JSON, redacted and cut within its longest strings. `json` is how the server wrote it,
    /// which is kept where nothing changes.
    pub(crate) fn json(&self, value: &Value, json: &str) -> String {
        let redacted = self.redacted(value.clone());
        let json = match redacted == *value {
            true => json.to_owned(),
            false => redacted.to_string(),
        };
        if json.len() <= self.max {
            return json;
        }
        self.fitted(&redacted).unwrap_or_else(|| self.text([json]))
    }

    /// Whether a value is shown whole.
    pub(crate) fn has_room_for(&self, value: &Value) -> bool {
        value.to_string().len() <= self.max
    }

    /// A redacted value.
    pub(crate) fn redacted(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.redacted_text(text)),
            Value::Array(items) => items.into_iter().map(|item| self.redacted(item)).collect(),
            Value::Object(entries) => entries
                .into_iter()
                .map(|(key, value)| (self.redacted_text(key), self.redacted(value)))
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }

    fn redacted_text(&self, text: String) -> String {
        match &self.redact {
            Some(redact) => redact(text),
            None => text,
        }
    }

    /// `None` if the strings are not what makes it long.
    fn fitted(&self, value: &Value) -> Option<String> {
        let json = value.to_string();
        let mut lengths = Vec::new();
        strings(value, &mut |text| lengths.push(quoted_len(text)));
        lengths.sort_unstable();
        let mut aim = self.max;
        for _ in 0..ATTEMPTS {
            let over = json.len().saturating_sub(aim);
            let each = limit_of_each(&lengths, over)?;
            let cut = cut_strings(value.clone(), each).to_string();
            if cut.len() <= self.max {
                return Some(cut);
            }
            aim = aim.saturating_sub(cut.len() - self.max);
        }
        None
    }
}

fn strings(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => see(text),
        Value::Array(items) => items.iter().for_each(|item| strings(item, see)),
        Value::Object(entries) => entries.values().for_each(|value| strings(value, see)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The length to which each longer string is cut, so that all together lose `over` bytes: the longest lose
/// most. `lengths` are those of the quoted strings, sorted.
fn limit_of_each(lengths: &[usize], over: usize) -> Option<usize> {
    let mut sum = 0;
    for (count, length) in (1..).zip(lengths.iter().rev()) {
        if *length <= SHORT {
            return None;
        }
        sum += length;
        let next = lengths.get(lengths.len().wrapping_sub(count + 1)).copied();
        // All of these strings together, without what they lose and with their notes.
        let each = sum
            .checked_sub(over + count * NOTE)
            .map(|left| left / count);
        if let Some(each) = each
            && each >= next.unwrap_or(0).max(SHORT / 2)
        {
            return Some(each);
        }
        if next.is_none() {
            return each.filter(|each| *each >= SHORT / 2);
        }
    }
    None
}

/// Bytes of a text as a JSON string.
fn quoted_len(text: &str) -> usize {
    Value::from(text).to_string().len()
}

fn cut_strings(value: Value, each: usize) -> Value {
    match value {
        Value::String(text) if quoted_len(&text) > each.max(SHORT) => {
            let max = each * text.len() / quoted_len(&text);
            Value::String(Excerpt::whole(text).fit(max).into_text(HOW))
        }
        Value::Array(items) => items
            .into_iter()
            .map(|item| cut_strings(item, each))
            .collect(),
        Value::Object(entries) => entries
            .into_iter()
            .map(|(key, value)| (key, cut_strings(value, each)))
            .collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(max: usize) -> Shown {
        let redact: Redact = Arc::new(|text| text.replace("canary-token", "***"));
        Shown {
            max,
            redact: Some(redact),
        }
    }

    #[test]
    fn long_json_is_cut_within_its_longest_strings() {
        let text: String = (0..10_000).map(|n| format!("{n}\t\"x\"\n")).collect();
        let value = json!({"short": "s", "numbers": [1, 2, 3], "long": text, "also": text});
        for max in [1024, 3000, 48 * 1024] {
            let cut = shown(max).json(&value, &value.to_string());
            assert!(
                cut.len() <= max && cut.len() > max * 2 / 3,
                "{max}: {}",
                cut.len()
            );
            let parsed: Value = serde_json::from_str(&cut).unwrap();
            assert_eq!(parsed["numbers"], json!([1, 2, 3]));
            for name in ["long", "also"] {
                let part = parsed[name].as_str().unwrap();
                let (head, rest) = part.split_once("[... ").unwrap();
                let (note, tail) = rest.split_once(" ...]\n").unwrap();
                let bytes = text.len() - head.len() - tail.len();
                let lines = 10_000 - head.lines().count() - tail.lines().count();
                let expected = format!("{bytes} bytes, {lines} lines left out: {HOW}");
                assert_eq!(note, expected);
            }
        }
    }

    #[test]
    fn json_that_is_long_without_long_strings_is_cut_as_text() {
        let value = json!((0..10_000).collect::<Vec<u32>>());
        let cut = shown(1000).json(&value, &value.to_string());
        assert!(cut.len() < 1100 && cut.contains("left out"), "{cut}");
    }

    #[test]
    fn a_secret_on_the_cut_is_redacted_before() {
        let padding = "x".repeat(495);
        let text = format!("{padding}canary-token{}", "y".repeat(100_000));
        let value = json!({"text": text});
        for cut in [
            shown(1000).json(&value, &value.to_string()),
            shown(1000).text([text.clone()]),
        ] {
            assert!(!cut.contains("canary"), "{cut}");
        }
    }
}
