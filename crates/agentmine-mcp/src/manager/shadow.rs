//! Names that could be taken for another's.
//!
//! A model, and a person who reads a transcript, goes by names. So a tool is left out
//! 1. if its name holds characters that cannot be seen or that turn the reading direction;
//! 2. if its name, or its wire name, looks like a built-in's name or wire name;
//! 3. if its name looks like that of a tool of a server that goes before it, without being the same:
//!    `Search` or `sеarch` (with a Cyrillic letter) where another has `search`. The very same name on two
//!    servers is no imitation: both are told apart by their servers' names.
//!
//! Two names look alike if they are equal after Unicode's skeleton for confusable characters (UTS 39)
//! and without regard to case. A repository's server whose *name* looks like that of an operator's or a
//! built-in server is not started at all. The operator's servers go before a repository's, then by name;
//! so what is left out depends on the set of servers only, not on who was ready first.

use std::collections::BTreeMap;

use crate::config::{Owner, ServerConfig};
use crate::{Offer, WireTable};

/// The file that the origin of our own servers names.
const BUILT_IN: &str = "(built in)";

/// What two names that look alike share.
pub(super) fn skeleton(name: &str) -> String {
    let lower = name.to_lowercase();
    // Once more: what a look-alike stands for may be a capital letter.
    let seen: String = unicode_security::skeleton(&lower).collect();
    unicode_security::skeleton(&seen.to_lowercase()).collect()
}

fn is_hidden(c: char) -> bool {
    c.is_control()
        || c.is_whitespace() && c != ' '
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Why a repository's server must not be started beside the others.
pub(super) fn imitates(
    server: &ServerConfig,
    others: &[ServerConfig],
    fixed: &[(String, String, String)],
) -> Option<String> {
    if server.origin.owner == Owner::Operator {
        return None;
    }
    let own = skeleton(&server.name);
    let operators = others
        .iter()
        .filter(|other| other.origin.owner == Owner::Operator)
        .map(|other| other.name.as_str());
    let builtin = fixed.iter().map(|(_, server, _)| server.as_str());
    let twin = operators
        .chain(builtin)
        .find(|other| skeleton(other) == own)?;
    Some(format!(
        "its name could be taken for {twin:?}, which is not the repository's"
    ))
}

/// Judges tools one after the other, in the order of [`rank`].
pub(super) struct Judge {
    /// (Skeleton of a built-in's name, the name).
    fixed: BTreeMap<String, String>,
    pairs: Vec<(String, String)>,
    /// Skeleton of a tool's name: the name, and the first server that has it.
    names: BTreeMap<String, (String, String)>,
}

/// Who goes first.
pub(super) fn rank(server: &ServerConfig) -> (bool, &str) {
    (server.origin.owner == Owner::Repository, &server.name)
}

impl Judge {
    pub(super) fn new(fixed: &[(String, String, String)]) -> Self {
        let names = fixed
            .iter()
            .flat_map(|(wire, _, tool)| [wire, tool])
            .map(|name| (skeleton(name), name.clone()));
        Self {
            fixed: names.collect(),
            pairs: fixed
                .iter()
                .map(|(_, server, tool)| (server.clone(), tool.clone()))
                .collect(),
            names: BTreeMap::new(),
        }
    }

    /// The offer without what is left out, and why that is.
    pub(super) fn judge(&mut self, server: &ServerConfig, offer: &Offer) -> (Offer, Vec<String>) {
        let mut why = Vec::new();
        let mut offer = offer.clone();
        let ours = server.origin.file.as_os_str() == BUILT_IN;
        offer.tools.retain(|tool| {
            let pair = (server.name.clone(), tool.name.clone());
            // A built-in tool may itself be served by a server of ours.
            if ours && self.pairs.contains(&pair) {
                return true;
            }
            match self.fault(&server.name, &tool.name) {
                Some(fault) => {
                    why.push(format!("tool {:?}: {fault}", tool.name));
                    false
                }
                None => true,
            }
        });
        offer.left_out.extend(why.iter().cloned());
        (offer, why)
    }

    fn fault(&mut self, server: &str, tool: &str) -> Option<String> {
        if tool.chars().any(is_hidden) {
            return Some("its name holds characters that cannot be seen".to_owned());
        }
        let own = skeleton(tool);
        // The name by which the model will know it.
        let wire = crate::wire_names(&[(server, tool)]);
        let wire = wire.wire(server, tool).map(skeleton).unwrap_or_default();
        if let Some(fixed) = self.fixed.get(&own).or_else(|| self.fixed.get(&wire)) {
            return Some(format!(
                "its name could be taken for the built-in {fixed:?}"
            ));
        }
        let first = self.names.entry(own);
        let (name, owner) = first.or_insert_with(|| (tool.to_owned(), server.to_owned()));
        (name != tool && owner != server)
            .then(|| format!("its name could be taken for {name:?} of {owner:?}"))
    }
}

/// The wire names of all that is left.
pub(super) fn wire<'a>(
    fixed: &[(String, String, String)],
    offers: impl Iterator<Item = (&'a str, &'a Offer)>,
) -> WireTable {
    let pairs: Vec<(&str, &str)> = offers
        .flat_map(|(server, offer)| {
            let tools = offer.tools.iter();
            tools.map(move |tool| (server, tool.name.as_str()))
        })
        .collect();
    WireTable::with_fixed(fixed).with_tools(&pairs)
}
