//! The tables of all tools and resources of the server. An operation that is not in them is not offered.

use super::resources::ResourceKind;
use super::tool::ToolDef;
use super::{agents, memory, queue, sessions, tasks, workers};

/// All tools, in the order in which they are listed.
#[must_use]
pub fn tools() -> Vec<ToolDef> {
    let mut tools = Vec::new();
    tools.extend(tasks::tools());
    tools.extend(workers::tools());
    tools.extend(sessions::tools());
    tools.extend(queue::tools());
    tools.extend(agents::tools());
    tools.extend(memory::tools());
    tools
}

/// All kinds of resources. Tasks are last: there may be many, and a client may read the first part alone.
pub(super) fn resources() -> Vec<ResourceKind> {
    vec![memory::resource(), agents::resource(), tasks::resource()]
}
