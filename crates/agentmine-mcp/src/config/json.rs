//! JSON whose values know their lines.
//!
//! serde_json decides whether a text is JSON: no comments, no trailing commas. Then the reader of `config.yaml`
//! reads it again, since JSON is YAML too, for places and duplicate keys. That reader takes much stack for each
//! level, so a text of more than [`MAX_DEPTH`] levels is rejected. Accepted: it also rejects keys of more than
//! 1,024 characters.

use agentmine_runtime::config::tree::{self, Node};

use serde_json::Value as Json;

use super::faults::line_of;

/// Values within each other; a server's entry has four.
const MAX_DEPTH: usize = 16;

/// Why a text is not JSON. It contains no part of the text.
pub(super) struct NotJson {
    pub(super) line: usize,
    pub(super) detail: String,
}

/// Reads one JSON value of the file `name`.
pub(super) fn parse(name: &str, text: &str) -> Result<Node, NotJson> {
    // Some editors put a byte order mark in front.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match serde_json::from_str(text) {
        Ok(value) if depth(&value) > MAX_DEPTH => {
            let detail = format!("values are nested more than {MAX_DEPTH} deep");
            return Err(NotJson { line: 1, detail });
        }
        Ok(_) => {}
        Err(error) => return Err(not_json(text, &error)),
    }
    tree::parse(&name.into(), text).map_err(|(place, _)| NotJson {
        line: line_of(&place).unwrap_or(1),
        detail: "a key is too long, expected at most 1,024 characters".into(),
    })
}

fn depth(value: &Json) -> usize {
    let inner = match value {
        Json::Array(items) => items.iter().map(depth).max(),
        Json::Object(entries) => entries.values().map(depth).max(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => None,
    };
    1 + inner.unwrap_or_default()
}

fn not_json(text: &str, error: &serde_json::Error) -> NotJson {
    let line = error.line().max(1);
    if text.trim().is_empty() {
        let detail = "the file is empty, expected {\"mcpServers\": {…}}".into();
        return NotJson { line, detail };
    }
    let message = error.to_string();
    let message = message.split(" at line").next().unwrap_or(&message);
    // The parser stops at the first character that does not belong there.
    let here = text.lines().nth(line - 1).unwrap_or_default();
    let rest = here.get(error.column().saturating_sub(1)..);
    let rest = rest.unwrap_or_default();
    let hint = if ["//", "/*", "#"].iter().any(|mark| rest.starts_with(mark)) {
        "; JSON has no comments: remove it"
    } else if message.contains("trailing comma") {
        "; remove the comma before the closing bracket"
    } else if rest.starts_with('\'') {
        "; JSON strings are in double quotes"
    } else {
        ""
    };
    NotJson {
        line,
        detail: format!("{message}, expected plain JSON{hint}"),
    }
}

#[cfg(test)]
mod tests {
    use agentmine_runtime::config::tree::Value;
    use proptest::prelude::*;

    use super::*;

    fn plain(node: &Node) -> Json {
        match &node.value {
            Value::Null => Json::Null,
            Value::Bool(it) => (*it).into(),
            Value::Int(it) => serde_json::from_str(&it.to_string()).unwrap(),
            Value::Float(it) => (*it).into(),
            Value::Text(it) => it.as_str().into(),
            Value::List(items) => items.iter().map(plain).collect(),
            Value::Map(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), plain(&entry.node)))
                .collect(),
        }
    }

    fn without_negative_zero(value: Json) -> Json {
        match value {
            Json::Number(number) if number.as_f64() == Some(0.0) => 0.into(),
            Json::Array(items) => items.into_iter().map(without_negative_zero).collect(),
            Json::Object(entries) => entries
                .into_iter()
                .map(|(key, value)| (key, without_negative_zero(value)))
                .collect(),
            other => other,
        }
    }

    fn read(text: &str) -> Option<Json> {
        parse("f", text).ok().map(|node| plain(&node))
    }

    #[test]
    fn text_is_what_json_says_it_is() {
        let text = "{\"a\\/b\": \"\\ud83d\\ude00\\u00e9\\n\",\n\t\"c\": [1, -2.5e3, true, null, \"é\"], \"<<\": {\"~\": \"yes\"}}";
        let expected = serde_json::from_str::<Json>(text).unwrap();
        assert_eq!(read(text), Some(expected));
        assert_eq!(read("-0"), Some(0.into()));
    }

    #[test]
    fn lines_are_counted_from_one() {
        let node = parse("f", "\u{feff}{\r\n  \"a\": [\n1,\n2]}").ok().unwrap();
        let line = |path: &str| line_of(&node.place_of(path));
        assert_eq!((line(""), line("a")), (Some(1), Some(2)));
        assert_eq!((line("a.0"), line("a.1")), (Some(3), Some(4)));
    }

    #[test]
    fn what_other_parsers_accept_is_refused_with_its_line_and_a_hint() {
        for (text, line, word) in [
            ("{\n\"a\": 1, // x\n\"b\": 2}", 2, "no comments"),
            ("{\n/* x */ \"a\": 1}", 2, "no comments"),
            ("{\"a\": [1,\n]}", 2, "comma"),
            ("{\"a\": 1,\n}", 2, "comma"),
            ("{'a': 1}", 1, "double quotes"),
            ("{a: 1}", 1, "plain JSON"),
            ("{\"a\": 0x1}", 1, "plain JSON"),
            ("{\"a\": 1} {}", 1, "plain JSON"),
            (" \n", 2, "empty"),
        ] {
            let Err(fault) = parse("f", text) else {
                panic!("{text} was accepted")
            };
            assert!(fault.detail.contains(word), "{text}: {}", fault.detail);
            assert!(fault.line.abs_diff(line) <= 1, "{text}: {}", fault.line);
        }
    }

    #[test]
    fn deep_nesting_and_huge_keys_are_refused() {
        let text = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse("f", &text).is_err());
        let text = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert!(parse("f", &text).is_err());
        let text = format!("{{\"{}\": 1}}", "k".repeat(2_000));
        assert!(parse("f", &text).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in any::<String>()) {
            let _ = parse("f", &text);
        }

        #[test]
        fn whatever_serde_json_accepts_is_read_alike(text in "[\\[\\]{}\",:0-9a\\\\ue.\n\t -]{0,40}") {
            let theirs = serde_json::from_str::<Json>(&text).ok();
            // Large whole numbers and `-0` are floats there.
            prop_assume!(theirs.as_ref().is_none_or(|it| it.to_string().len() <= 15));
            prop_assert_eq!(read(&text).map(without_negative_zero), theirs.map(without_negative_zero));
        }
    }
}
