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

/// The wire names of tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WireTable(BTreeMap<String, ToolKey>);

/// A server and its tool.
type ToolKey = (String, String);

impl WireTable {
    /// The table of the built-in tools, as (wire name, server, tool), and of other tools. A built-in tool keeps
    /// its name.
    pub(crate) fn new(
        fixed: &[(String, String, String)],
        tools: impl IntoIterator<Item = ToolKey>,
    ) -> Self {
        let fixed = fixed.iter().cloned();
        let mut by_wire: BTreeMap<String, ToolKey> = fixed
            .map(|(wire, server, tool)| (wire, (server, tool)))
            .collect();
        let mut new: BTreeSet<ToolKey> = tools.into_iter().collect();
        new.retain(|tool| !by_wire.values().any(|fixed| fixed == tool));
        let mut wanted: BTreeMap<String, Vec<ToolKey>> = BTreeMap::new();
        for tool in new {
            wanted.entry(plain(&tool)).or_default().push(tool);
        }
        let mut to_hash = Vec::new();
        for (wire, mut tools) in wanted {
            let is_free = wire.len() <= MAX_NAME && !by_wire.contains_key(&wire);
            match (tools.len(), tools.pop()) {
                (1, Some(tool)) if is_free => drop(by_wire.insert(wire, tool)),
                (_, last) => to_hash.extend(tools.into_iter().chain(last)),
            }
        }
        for tool in to_hash {
            // A server can choose names whose ten digits collide.
            let mut wires = (0..).map(|round| hashed(&tool, round));
            let wire = wires.find(|wire| !by_wire.contains_key(wire));
            by_wire.extend(wire.map(|wire| (wire, tool)));
        }
        Self(by_wire)
    }

    /// The (server, tool) that a wire name stands for.
    #[must_use]
    pub fn resolve(&self, wire: &str) -> Option<(&str, &str)> {
        let (server, tool) = self.0.get(wire)?;
        Some((server, tool))
    }

    /// All of it as (wire name, server, tool), sorted by wire name: the same tools always make the same
    /// prompt.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let all = self.0.iter();
        all.map(|(wire, (server, tool))| (wire.as_str(), server.as_str(), tool.as_str()))
    }
}

/// The wire name of a tool that shares it with no other.
pub(crate) fn wire_name(server: &str, tool: &str) -> String {
    let tool = (server.to_owned(), tool.to_owned());
    let plain = plain(&tool);
    match plain.len() <= MAX_NAME {
        true => plain,
        false => hashed(&tool, 0),
    }
}

fn plain((server, tool): &ToolKey) -> String {
    format!("mcp__{}__{}", allowed(server), allowed(tool))
}

fn hashed(tool: &ToolKey, round: usize) -> String {
    let mut hash = Sha256::new();
    // Names have no NUL, so the inputs of two tools differ.
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

    fn wire_names<S: AsRef<str>, T: AsRef<str>>(tools: &[(S, T)]) -> WireTable {
        let tools = tools.iter();
        let owned = |(server, tool): &(S, T)| (server.as_ref().into(), tool.as_ref().into());
        WireTable::new(&[], tools.map(owned))
    }

    impl WireTable {
        fn wire(&self, server: &str, tool: &str) -> Option<&str> {
            let mut all = self.iter();
            let found = all.find(|(_, by, name)| (*by, *name) == (server, tool));
            found.map(|(wire, ..)| wire)
        }
    }

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
        let fixed = [
            ("text_editor", "text-editor", "text_editor"),
            ("mcp__a__b", "built-in", "b"),
        ];
        let fixed = fixed.map(|(wire, by, tool)| (wire.into(), by.into(), tool.into()));
        let tools = [("text-editor", "text_editor"), ("a", "b")];
        let tools = tools.map(|(server, tool)| (server.into(), tool.into()));
        let table = WireTable::new(&fixed, tools);
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
