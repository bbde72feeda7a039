//! What the manager may do, and must not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Place, ServerConfig, Transport};
use crate::{ConnectOptions, Declining, Elicitation, Launcher, McpLimits, SamplingHandler};

/// What the manager may do, and must not.
#[derive(Clone)]
pub struct ManagerPolicy {
    /// How far servers are trusted. A server's own `timeoutSeconds` replaces [`McpLimits::call`].
    pub limits: McpLimits,
    /// How often in a row a server is started again after it crashed, unless its entry says another
    /// number. After that it is given up.
    pub max_restarts: u32,
    /// The longest wait before the first restart. It doubles each time, and is drawn anew each time.
    pub restart_backoff: Duration,
    /// A server that ran this long was well: the count of its crashes begins anew.
    pub stable_after: Duration,
    /// What becomes of a tool whose description, schema or hints are not what they were at first.
    pub changed_descriptions: Changed,
    /// Servers that are not started, by name: `github` and `gitlab` where the text editor is on.
    pub withheld: BTreeSet<String>,
    /// The built-in tools, as (wire name, server, tool). Their names are theirs alone.
    pub fixed: Vec<(String, String, String)>,
    /// What servers with the capability `roots` are told, by where they run.
    pub roots: ClientRoots,
    /// Who makes model calls for servers. `None`: sampling is never offered.
    pub sampling: Option<Arc<dyn SamplingHandler>>,
    /// Who answers the servers' questions.
    pub elicitation: Arc<dyn Elicitation>,
    /// Whether servers are started again when their program's file changes.
    pub watch: Watch,
}

impl Default for ManagerPolicy {
    fn default() -> Self {
        Self {
            limits: McpLimits::default(),
            max_restarts: 3,
            restart_backoff: Duration::from_millis(500),
            stable_after: Duration::from_secs(60),
            changed_descriptions: Changed::Refuse,
            withheld: BTreeSet::new(),
            fixed: Vec::new(),
            roots: ClientRoots::default(),
            sampling: None,
            elicitation: Arc::new(Declining),
            watch: Watch::Executables,
        }
    }
}

impl ManagerPolicy {
    pub(crate) fn connect_options(&self, server: &ServerConfig) -> ConnectOptions {
        let mut limits = self.limits;
        limits.call = server.timeout;
        ConnectOptions {
            limits,
            capabilities: server.capabilities,
            roots: self.roots.of(server).to_vec(),
            era: None,
            sampling: self.sampling.clone(),
            elicitation: self.elicitation.clone(),
        }
    }
}

/// Roots as (URI, name), for each place: a path of one means nothing, or something else, in the other,
/// and what runs in the sandbox need not know where the worker keeps things.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientRoots {
    /// For servers that are processes of this machine, and for those that are reached by URL.
    pub worker: Vec<(String, String)>,
    /// For servers in the task's sandbox.
    pub sandbox: Vec<(String, String)>,
}

impl ClientRoots {
    fn of(&self, server: &ServerConfig) -> &[(String, String)] {
        match &server.transport {
            Transport::Stdio {
                place: Place::Sandbox,
                ..
            } => &self.sandbox,
            Transport::Stdio {
                place: Place::Worker,
                ..
            }
            | Transport::Http { .. } => &self.worker,
        }
    }
}

/// What becomes of a tool that changes after its server's first offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// It is told and no longer offered, until it is again what it was.
    Refuse,
    /// It is told.
    Record,
}

/// What is watched for changes. Only servers on this machine are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// The program of a server's command, and the script that an interpreter is given.
    Executables,
    /// Nothing.
    Nothing,
}

/// A launcher for each place. Servers of a place without one are withheld.
#[derive(Clone, Default)]
pub struct Launchers {
    /// For servers that run as processes of this machine.
    pub worker: Option<Arc<dyn Launcher>>,
    /// For servers that run in the task's sandbox.
    pub sandbox: Option<Arc<dyn Launcher>>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::{Capabilities, Origin, Owner};

    #[test]
    fn each_place_is_told_its_own_roots() {
        let root = |uri: &str| vec![(uri.to_owned(), "project".to_owned())];
        let policy = ManagerPolicy {
            roots: ClientRoots {
                worker: root("file:///home/me/project"),
                sandbox: root("file:///workspace/project"),
            },
            ..ManagerPolicy::default()
        };
        let told = |transport: Transport| {
            let server = ServerConfig {
                name: "a".into(),
                origin: Origin {
                    file: "f".into(),
                    line: 1,
                    owner: Owner::Operator,
                },
                transport,
                enabled: true,
                capabilities: Capabilities::default(),
                timeout: Duration::from_secs(1),
                max_restarts: None,
            };
            policy.connect_options(&server).roots
        };
        let stdio = |place: Place| Transport::Stdio {
            command: vec!["x".into()],
            env: BTreeMap::new(),
            place,
        };
        assert_eq!(
            told(stdio(Place::Sandbox)),
            root("file:///workspace/project")
        );
        assert_eq!(told(stdio(Place::Worker)), root("file:///home/me/project"));
    }
}
