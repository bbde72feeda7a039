//! Names for the tools of many servers that every model API accepts.
//!
//! Model APIs accept `[A-Za-z0-9_-]`, at most 64 characters. A tool's name there is `mcp__server__tool`, with
//! `_` for other characters. A name that is too long, or that several tools would have, is cut and gets `_`
//! and ten hex digits of a SHA-256. A name depends only on the set of tools, not on their order, and is
//! resolved by the table, never parsed.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

const MAX_NAME: usize = 64;
const HASH_DIGITS: usize = 10;

/// Wire name to (server, tool), and back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WireTable {
    by_wire: BTreeMap<String, (String, String)>,
    by_tool: BTreeMap<(String, String), String>,
}

/// The table of these (server, tool) pairs.
#[must_use]
pub fn wire_names<S: AsRef<str>, T: AsRef<str>>(tools: &[(S, T)]) -> WireTable {
    WireTable::default().with_tools(tools)
}

impl WireTable {
    /// A table of tools with fixed names, as (wire name, server, tool): the built-in ones. Add the others
    /// with [`Self::with_tools`].
    #[must_use]
    pub fn with_fixed<W, S, T>(fixed: &[(W, S, T)]) -> Self
    where
        W: AsRef<str>,
        S: AsRef<str>,
        T: AsRef<str>,
    {
        let mut table = Self::default();
        for (wire, server, tool) in fixed {
            let tool = (server.as_ref().to_owned(), tool.as_ref().to_owned());
            table.insert(wire.as_ref().to_owned(), tool);
        }
        table
    }

    /// Adds these (server, tool) pairs. A pair that is in the table already keeps its name.
    #[must_use]
    pub fn with_tools<S: AsRef<str>, T: AsRef<str>>(mut self, tools: &[(S, T)]) -> Self {
        let new: BTreeSet<(String, String)> = tools
            .iter()
            .map(|(server, tool)| (server.as_ref().to_owned(), tool.as_ref().to_owned()))
            .filter(|tool| !self.by_tool.contains_key(tool))
            .collect();
        let mut wanted: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
        for tool in new {
            wanted.entry(plain(&tool)).or_default().push(tool);
        }
        let mut shortened = Vec::new();
        for (wire, mut tools) in wanted {
            match (tools.len(), tools.pop()) {
                (1, Some(tool)) if wire.len() <= MAX_NAME && !self.by_wire.contains_key(&wire) => {
                    self.insert(wire, tool);
                }
                (_, last) => shortened.extend(tools.into_iter().chain(last)),
            }
        }
        for tool in shortened {
            let mut wire = hashed(&tool, 0);
            // Whoever chooses the names can make ten digits collide.
            let mut round = 1;
            while self.by_wire.contains_key(&wire) {
                wire = hashed(&tool, round);
                round += 1;
            }
            self.insert(wire, tool);
        }
        self
    }

    /// The wire name of a tool.
    #[must_use]
    pub fn wire(&self, server: &str, tool: &str) -> Option<&str> {
        let key = (server.to_owned(), tool.to_owned());
        self.by_tool.get(&key).map(String::as_str)
    }

    /// The (server, tool) that a wire name stands for.
    #[must_use]
    pub fn resolve(&self, wire: &str) -> Option<(&str, &str)> {
        let (server, tool) = self.by_wire.get(wire)?;
        Some((server, tool))
    }

    /// All of it as (wire name, server, tool), sorted by wire name: the same tools always make the
    /// same prompt.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.by_wire
            .iter()
            .map(|(wire, (server, tool))| (wire.as_str(), server.as_str(), tool.as_str()))
    }

    fn insert(&mut self, wire: String, tool: (String, String)) {
        self.by_tool.insert(tool.clone(), wire.clone());
        self.by_wire.insert(wire, tool);
    }
}

fn plain((server, tool): &(String, String)) -> String {
    format!("mcp__{}__{}", allowed(server), allowed(tool))
}

fn hashed(tool: &(String, String), round: usize) -> String {
    let mut hash = Sha256::new();
    // Names have no NUL, so no two tools have the same input.
    hash.update(format!("{}\0{}", tool.0, tool.1));
    if round > 0 {
        hash.update(format!("\0{round}"));
    }
    let digits = hex::encode(hash.finalize());
    let digits = digits.get(..HASH_DIGITS).unwrap_or_default();
    let plain = plain(tool);
    let kept = plain.get(..MAX_NAME - HASH_DIGITS - 1).unwrap_or(&plain);
    format!("{kept}_{digits}")
}

fn allowed(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '-' => c,
            _ => '_',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_names_are_readable() {
        let table = wire_names(&[("docs", "search"), ("a.b", "read file")]);
        assert_eq!(table.wire("docs", "search"), Some("mcp__docs__search"));
        assert_eq!(table.wire("a.b", "read file"), Some("mcp__a_b__read_file"));
        assert_eq!(table.resolve("mcp__docs__search"), Some(("docs", "search")));
        assert_eq!(table.resolve("mcp__docs__other"), None);
    }

    #[test]
    fn colliding_names_differ_by_their_hash() {
        let table = wire_names(&[("a.b", "c"), ("a_b", "c"), ("a", "b__c"), ("a__b", "c")]);
        let names: Vec<&str> = table.iter().map(|(wire, ..)| wire).collect();
        assert_eq!(names.len(), 4);
        for (wire, server, tool) in table.iter() {
            let base = plain(&(server.to_owned(), tool.to_owned()));
            assert!(
                wire.starts_with(&base) && wire.len() == base.len() + 11,
                "{wire}"
            );
        }
    }

    #[test]
    fn long_name_is_cut_with_its_hash() {
        let tool = "x".repeat(100);
        let table = wire_names(&[("server", tool.as_str())]);
        let wire = table.wire("server", &tool).unwrap();
        assert_eq!(wire.len(), 64);
        // SHA-256 of "server", NUL and a hundred "x": the name must never change.
        let digits = hex::encode(Sha256::digest(format!("server\0{tool}")));
        assert!(wire.ends_with(&format!("x_{}", &digits[..10])), "{wire}");
    }

    #[test]
    fn fixed_names_stay_and_others_give_way() {
        let table = WireTable::with_fixed(&[
            ("text_editor", "text-editor", "text_editor"),
            ("mcp__a__b", "built-in", "b"),
        ])
        .with_tools(&[("text-editor", "text_editor"), ("a", "b")]);
        assert_eq!(
            table.wire("text-editor", "text_editor"),
            Some("text_editor")
        );
        assert_eq!(table.resolve("mcp__a__b"), Some(("built-in", "b")));
        assert!(table.wire("a", "b").unwrap().starts_with("mcp__a__b_"));
        assert_eq!(table.iter().count(), 3);
    }

    #[test]
    fn name_that_equals_a_hashed_one_gets_another() {
        let victim = ("s".to_owned(), "x".repeat(100));
        let taken = hashed(&victim, 0);
        let forged = taken.strip_prefix("mcp__s__").unwrap().to_owned();
        let table = wire_names(&[("s".to_owned(), forged.clone()), victim.clone()]);
        assert_eq!(table.resolve(&taken), Some(("s", forged.as_str())));
        assert_ne!(table.wire("s", &victim.1), Some(taken.as_str()));
    }

    proptest! {
        #[test]
        fn every_tool_has_one_name_that_apis_accept(
            mut tools in prop::collection::vec(("[a_.é-]{0,40}", "[a_.é-]{0,40}"), 0..20),
        ) {
            let table = wire_names(&tools);
            for (server, tool) in &tools {
                let wire = table.wire(server, tool).unwrap();
                prop_assert_eq!(table.resolve(wire), Some((server.as_str(), tool.as_str())));
                prop_assert!(wire.len() <= 64);
                prop_assert!(wire.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)));
            }
            tools.reverse();
            prop_assert_eq!(wire_names(&tools), table);
        }
    }
}
