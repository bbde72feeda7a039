//! Outbound traffic of a sandbox: each connection in its tunnel is handed to the gateway.

use std::sync::Arc;

use agentmine_gateway::Gateway;
use agentmine_sandbox::{OutboundKind, Sandbox};
use tokio::task::JoinSet;

/// Maximum number of concurrent connections out of one sandbox; further ones wait.
const MAX_CONNECTIONS: usize = 256;

/// The outbound traffic of one sandbox. Dropping it closes all connections.
#[derive(Debug)]
pub struct Traffic(JoinSet<()>);

impl Traffic {
    /// Serves every connection out of `sandbox` until the sandbox is gone.
    #[must_use]
    pub fn serve(sandbox: Arc<dyn Sandbox>, gateway: Gateway) -> Self {
        let mut task = JoinSet::new();
        task.spawn(serve(sandbox, gateway));
        Self(task)
    }

    /// Closes all connections and waits until the tasks that serve them have ended.
    pub async fn stop(mut self) {
        self.0.shutdown().await;
    }
}

async fn serve(sandbox: Arc<dyn Sandbox>, gateway: Gateway) {
    let mut connections = JoinSet::new();
    while let Some(outbound) = sandbox.next_outbound().await {
        while connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        while connections.try_join_next().is_some() {}
        let gateway = gateway.clone();
        connections.spawn(async move {
            match outbound.kind {
                OutboundKind::Git => gateway.serve_git(outbound.stream).await,
                OutboundKind::Web => gateway.serve_web(outbound.stream).await,
            }
        });
    }
}
