//! The policy of a manager.

use std::sync::Arc;
use std::time::Duration;

use agentmine_runtime::config::ChangedDescriptions;

use crate::config::{ServerConfig, ServerPlace};
use crate::{ConnectOptions, Declining, Elicitation, Launcher, McpLimits, Redact, SamplingHandler};

/// The policy of a manager.
#[derive(Clone)]
pub struct ManagerPolicy {
    /// The limits of all servers. A server's own `timeoutSeconds` replaces [`McpLimits::call`].
    pub limits: McpLimits,
    /// How often in a row a server is restarted after a crash, unless its entry has another number. After
    /// that it is given up.
    pub max_restarts: u32,
    /// The longest wait before the first restart. It doubles each time; the actual wait is random below it.
    pub restart_backoff: Duration,
    /// What happens to a tool whose description, schema or hints changed since it was first offered.
    pub changed_descriptions: ChangedDescriptions,
    /// The built-in tools, as (wire name, server, tool). No other tool gets these names.
    pub fixed: Vec<(String, String, String)>,
    /// The roots for servers with that capability, by where they run.
    pub roots: ClientRoots,
    /// Makes model calls for servers. `None`: sampling is never offered.
    pub sampling: Option<Arc<dyn SamplingHandler>>,
    /// Answers the servers' questions.
    pub elicitation: Arc<dyn Elicitation>,
    /// Removes secrets from results before they are cut. `None`: nothing is secret.
    pub redact: Option<Redact>,
    /// Whether servers are restarted when the file of their program changes.
    pub watch: Watch,
}

impl Default for ManagerPolicy {
    fn default() -> Self {
        Self {
            limits: McpLimits::default(),
            max_restarts: 3,
            restart_backoff: Duration::from_millis(500),
            changed_descriptions: ChangedDescriptions::Refuse,
            fixed: Vec::new(),
            roots: ClientRoots::default(),
            sampling: None,
            elicitation: Arc::new(Declining),
            redact: None,
            watch: Watch::Executables,
        }
    }
}

impl ManagerPolicy {
    pub(crate) fn connect_options(&self, server: &ServerConfig) -> ConnectOptions {
        let mut limits = self.limits;
        limits.call = server.timeout;
        let roots = match server.place() {
            Some(ServerPlace::Sandbox) => &self.roots.sandbox,
            Some(ServerPlace::Worker) | None => &self.roots.worker,
        };
        ConnectOptions {
            limits,
            capabilities: server.capabilities,
            roots: roots.clone(),
            era: None,
            sampling: self.sampling.clone(),
            elicitation: self.elicitation.clone(),
            redact: self.redact.clone(),
        }
    }
}

/// Roots as (URI, name), for each place: a path means nothing, or something else, in the other place, and
/// servers in the sandbox need not know the worker's folders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientRoots {
    /// For servers that are processes of this machine, and for those with a URL.
    pub worker: Vec<(String, String)>,
    /// For servers in the task's sandbox.
    pub sandbox: Vec<(String, String)>,
}

/// What is watched for changes, for servers on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// The program of a server's command, and the script that an interpreter is given.
    Executables,
    /// Nothing.
    Nothing,
}

/// A launcher for each place. Servers in a place without one are withheld.
#[derive(Clone, Default)]
pub struct Launchers {
    /// For servers that run as processes of this machine.
    pub worker: Option<Arc<dyn Launcher>>,
    /// For servers that run in the task's sandbox.
    pub sandbox: Option<Arc<dyn Launcher>>,
}

impl Launchers {
    pub(crate) fn of(&self, place: ServerPlace) -> Option<&Arc<dyn Launcher>> {
        match place {
            ServerPlace::Worker => self.worker.as_ref(),
            ServerPlace::Sandbox => self.sandbox.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::{Capabilities, Origin, Owner, Transport};

    #[test]
    fn each_place_has_its_own_roots() {
        let root = |uri: &str| vec![(uri.to_owned(), "project".to_owned())];
        let policy = ManagerPolicy {
            roots: ClientRoots {
                worker: root("file:///home/me/project"),
                sandbox: root("file:///workspace/project"),
            },
            ..ManagerPolicy::default()
        };
        let reported = |transport: Transport| {
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
        let stdio = |place: ServerPlace| Transport::Stdio {
            command: vec!["x".into()],
            env: BTreeMap::new(),
            place,
        };
        assert_eq!(
            reported(stdio(ServerPlace::Sandbox)),
            root("file:///workspace/project")
        );
        assert_eq!(
            reported(stdio(ServerPlace::Worker)),
            root("file:///home/me/project")
        );
    }
}
