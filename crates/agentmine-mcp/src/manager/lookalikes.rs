//! Names that imitate others.
//!
//! A model, and a person who reads a transcript, identifies tools by their names. So a tool is omitted
//! 1. if its name contains characters that are invisible or change the reading direction;
//! 2. if its name or its wire name looks like the name or wire name of a built-in tool;
//! 3. if its name looks like that of a tool of a server that ranks before it, but is not the same:
//!    `Search` or `sеarch` (with a Cyrillic letter) beside `search`. The same name on two servers is not an
//!    imitation: the names of the servers distinguish them.
//!
//! Two names look alike if their skeletons for confusable characters (Unicode UTS 39) are equal, ignoring
//! case. A repository's server whose *name* looks like that of an operator's or a built-in server is not
//! started. The operator's servers rank before a repository's, then by name, so the result depends on the
//! set of servers only, not on the order in which they became ready.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Offer;
use crate::config::{Owner, ServerConfig};
use crate::names::wire_name;

/// The file in the origin of our own servers.
const BUILT_IN: &str = "(built in)";

/// Equal for names that look alike.
fn skeleton(name: &str) -> String {
    let lower = name.to_lowercase();
    // Twice: a lookalike may represent a capital letter.
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
pub(super) fn imitates<'a>(
    server: &ServerConfig,
    others: impl Iterator<Item = &'a ServerConfig>,
    fixed: &[(String, String, String)],
) -> Option<String> {
    if server.origin.owner == Owner::Operator {
        return None;
    }
    let own = skeleton(&server.name);
    let operators = others
        .filter(|other| other.origin.owner == Owner::Operator)
        .map(|other| &other.name);
    let builtin = fixed.iter().map(|(_, server, _)| server);
    let mut names = operators.chain(builtin);
    let twin = names.find(|other| skeleton(other) == own)?;
    Some(format!(
        "its name looks like {twin:?}, which is not the repository's"
    ))
}

/// The server with the smaller rank keeps its names.
pub(super) fn rank(server: &ServerConfig) -> (bool, &str) {
    (server.origin.owner == Owner::Repository, &server.name)
}

/// Checks the tools of the servers in the order of [`rank`].
pub(super) struct Check<'a> {
    fixed: &'a [(String, String, String)],
    /// The names of built-in tools, by skeleton.
    builtin: BTreeMap<String, &'a str>,
    /// By the skeleton of a tool's name: the name, and the first server that has it.
    names: BTreeMap<String, (String, String)>,
}

impl<'a> Check<'a> {
    pub(super) fn new(fixed: &'a [(String, String, String)]) -> Self {
        let names = fixed.iter().flat_map(|(wire, _, tool)| [wire, tool]);
        Self {
            fixed,
            builtin: names.map(|name| (skeleton(name), name.as_str())).collect(),
            names: BTreeMap::new(),
        }
    }

    /// The offer without what is omitted, and the reasons.
    pub(super) fn keep(
        &mut self,
        server: &ServerConfig,
        mut offer: Arc<Offer>,
    ) -> (Arc<Offer>, Vec<String>) {
        let ours = server.origin.file.as_os_str() == BUILT_IN;
        let mut refused = BTreeMap::new();
        for tool in &offer.tools {
            // A built-in tool may itself be served by a server of AgentMine.
            let is_itself =
                |(_, by, name): &(String, String, String)| *by == server.name && *name == tool.name;
            if ours && self.fixed.iter().any(is_itself) {
                continue;
            }
            if let Some(fault) = self.fault(&server.name, &tool.name) {
                refused.insert(tool.name.clone(), format!("tool {:?}: {fault}", tool.name));
            }
        }
        if !refused.is_empty() {
            let offer = Arc::make_mut(&mut offer);
            offer.tools.retain(|tool| !refused.contains_key(&tool.name));
            offer.left_out.extend(refused.values().cloned());
        }
        (offer, refused.into_values().collect())
    }

    fn fault(&mut self, server: &str, tool: &str) -> Option<String> {
        if tool.chars().any(is_hidden) {
            return Some("its name contains invisible characters".to_owned());
        }
        let own = skeleton(tool);
        let wire = skeleton(&wire_name(server, tool));
        if let Some(builtin) = self.builtin.get(&own).or_else(|| self.builtin.get(&wire)) {
            return Some(format!("its name looks like the built-in {builtin:?}"));
        }
        let first = self.names.entry(own);
        let (name, owner) = first.or_insert_with(|| (tool.to_owned(), server.to_owned()));
        (name != tool && owner != server)
            .then(|| format!("its name looks like {name:?} of {owner:?}"))
    }
}
