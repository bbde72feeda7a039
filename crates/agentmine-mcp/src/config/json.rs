//! JSON that knows on which line each value stands.
//!
//! Whether a text is JSON is serde_json's decision: no comments, no trailing commas, bounded depth.
//! What passed is read again by a parser that keeps places and duplicate keys.

use jsonc_parser::ast;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

/// A value and its line, from 1.
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

pub(super) enum Value {
    Null,
    Bool(bool),
    /// As it was written.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Prop>),
}

/// One key of an object. A key that was written twice is there twice.
pub(super) struct Prop {
    pub(super) key: String,
    /// Where the key stands.
    pub(super) line: usize,
    pub(super) node: Node,
}

/// Why a text is no JSON. No part of the text is in it.
pub(super) struct NoJson {
    pub(super) line: usize,
    pub(super) detail: String,
}

impl Node {
    /// What it is, in words; never its content.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "an object",
        }
    }
}

/// Reads one JSON value.
pub(super) fn parse(text: &str) -> Result<Node, NoJson> {
    // Some editors put a byte order mark in front.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Err(error) = serde_json::from_str::<serde_json::Value>(text) {
        return Err(no_json(text, &error));
    }
    let lines = Lines::of(text);
    let parsed = parse_to_ast(text, &CollectOptions::default(), &strict());
    match parsed.map(|parsed| parsed.value) {
        Ok(Some(value)) => Ok(node(&lines, value)),
        Ok(None) | Err(_) => Err(NoJson {
            line: 1,
            detail: "the text cannot be read; expected plain JSON".into(),
        }),
    }
}

fn strict() -> ParseOptions {
    ParseOptions {
        allow_comments: false,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

fn no_json(text: &str, error: &serde_json::Error) -> NoJson {
    let line = error.line().max(1);
    let said = error.to_string();
    let said = said.split(" at line").next().unwrap_or(&said).to_owned();
    if text.trim().is_empty() {
        return NoJson {
            line,
            detail: "the file is empty; expected {\"mcpServers\": {…}}".into(),
        };
    }
    // The parser stops at the comment's first character.
    let here = text.lines().nth(line - 1).unwrap_or("");
    let rest = here
        .get(error.column().saturating_sub(1)..)
        .unwrap_or_default();
    let hint = if ["//", "/*", "#"].iter().any(|mark| rest.starts_with(mark)) {
        "; JSON has no comments: remove it"
    } else if said.contains("trailing comma") {
        "; remove the comma in front of the closing bracket"
    } else if rest.starts_with('\'') {
        "; JSON texts stand in double quotes"
    } else {
        ""
    };
    NoJson {
        line,
        detail: format!("{said}, expected plain JSON{hint}"),
    }
}

/// Where each line begins.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let after = text.match_indices('\n').map(|(at, _)| at + 1);
        Self(std::iter::once(0).chain(after).collect())
    }

    fn at(&self, offset: usize) -> usize {
        self.0.partition_point(|start| *start <= offset)
    }
}

fn node(lines: &Lines, value: ast::Value<'_>) -> Node {
    let (start, value) = match value {
        ast::Value::NullKeyword(it) => (it.range.start, Value::Null),
        ast::Value::BooleanLit(it) => (it.range.start, Value::Bool(it.value)),
        ast::Value::NumberLit(it) => (it.range.start, Value::Number(it.value.to_owned())),
        ast::Value::StringLit(it) => (it.range.start, Value::Text(it.value.into_owned())),
        ast::Value::Array(it) => {
            let items = it.elements.into_iter().map(|item| node(lines, item));
            (it.range.start, Value::List(items.collect()))
        }
        ast::Value::Object(it) => {
            let props = it.properties.into_iter().map(|prop| Prop {
                line: lines.at(prop.range.start),
                key: prop.name.into_string(),
                node: node(lines, prop.value),
            });
            (it.range.start, Value::Map(props.collect()))
        }
    };
    Node {
        line: lines.at(start),
        value,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(node: Node) -> serde_json::Value {
        match node.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(it) => it.into(),
            Value::Number(it) => serde_json::from_str(&it).unwrap(),
            Value::Text(it) => it.into(),
            Value::List(items) => items.into_iter().map(plain).collect(),
            Value::Map(props) => props
                .into_iter()
                .map(|prop| (prop.key, plain(prop.node)))
                .collect(),
        }
    }

    #[test]
    fn text_is_what_json_says_it_is() {
        let text = r#"{"a\/b": "\ud83d\ude00\u00e9\n", "c": [1, -2.5e3, true, null, "é"]}"#;
        let read = parse(text).ok().map(plain).unwrap();
        assert_eq!(
            read,
            serde_json::from_str::<serde_json::Value>(text).unwrap()
        );
    }

    #[test]
    fn lines_are_counted_from_one() {
        let node = parse("\u{feff}{\r\n  \"a\": [\n1,\n2]}").ok().unwrap();
        let Value::Map(props) = node.value else {
            panic!("no map")
        };
        assert_eq!((node.line, props[0].line), (1, 2));
        let Value::List(items) = &props[0].node.value else {
            panic!("no list")
        };
        assert_eq!((items[0].line, items[1].line), (3, 4));
    }

    #[test]
    fn what_other_parsers_let_pass_is_refused_with_its_line_and_a_hint() {
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
            let Err(fault) = parse(text) else {
                panic!("{text} was taken")
            };
            assert!(fault.detail.contains(word), "{text}: {}", fault.detail);
            assert!(fault.line.abs_diff(line) <= 1, "{text}: {}", fault.line);
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let text = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse(&text).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in any::<String>()) {
            let _ = parse(&text);
        }

        #[test]
        fn whatever_serde_json_takes_is_taken_alike(text in "[\\[\\]{}\",:0-9a\\\\ue.\n\t -]{0,40}") {
            let ours = parse(&text);
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            prop_assert_eq!(ours.ok().map(plain), theirs.ok());
        }
    }
}
