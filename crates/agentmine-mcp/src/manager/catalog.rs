//! The tools of all running servers, under unique names.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Offer, Tool, WireTable};

/// What all servers together offer, as of the last refresh.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog {
    /// The names that model APIs accept, the built-in tools' among them.
    pub wire: WireTable,
    /// By server. A server that is being restarted is included, and its calls wait; a server that failed is
    /// not. Refused tools are not included.
    pub servers: BTreeMap<String, Arc<Offer>>,
}

impl Catalog {
    /// The servers' tools as (wire name, server, tool), sorted by wire name.
    #[must_use]
    pub fn tools(&self) -> Vec<(&str, &str, &Tool)> {
        let all = self.wire.iter();
        all.filter_map(|(wire, server, tool)| Some((wire, server, self.tool(server, tool)?)))
            .collect()
    }

    /// A tool by the name it has on its server.
    #[must_use]
    pub fn tool(&self, server: &str, tool: &str) -> Option<&Tool> {
        let tools = &self.servers.get(server)?.tools;
        tools.iter().find(|known| known.name == tool)
    }
}
