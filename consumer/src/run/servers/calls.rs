//! Calls of the session's servers.

use std::collections::BTreeMap;

use agentmine_mcp::{CallFault, McpError, ToolOutput};
use serde_json::Value;

use super::Servers;

/// The result of a call that the worker had to cancel.
const CANCELLED: &str = "the call was cancelled and its outcome is unknown, since the worker could not reach its database. Check the current state before you repeat the call.";

impl Servers {
    /// Reads a resource; dropping the future cancels the request.
    pub(crate) async fn read(&self, server: &str, uri: &str) -> Result<ToolOutput, McpError> {
        let read = Box::pin(self.manager.read(server, uri));
        self.while_certain(server, uri, read).await
    }

    /// Gets a prompt; dropping the future cancels the request.
    pub(crate) async fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: BTreeMap<String, String>,
    ) -> Result<ToolOutput, McpError> {
        let prompt = Box::pin(self.manager.prompt(server, name, arguments));
        self.while_certain(server, name, prompt).await
    }

    /// Calls a tool; dropping the future cancels the call.
    pub(crate) async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: Value,
    ) -> Result<ToolOutput, McpError> {
        let call = Box::pin(self.manager.call(server, tool, arguments));
        self.while_certain(server, tool, call).await
    }

    /// A call of a server on the worker begins only while the lease certainly holds, and is cancelled if that
    /// ends. Servers in the sandbox are frozen with it.
    async fn while_certain(
        &self,
        server: &str,
        tool: &str,
        call: impl Future<Output = Result<ToolOutput, McpError>>,
    ) -> Result<ToolOutput, McpError> {
        if self.in_sandbox(server) {
            return call.await;
        }
        self.certainty.restored().await;
        tokio::select! {
            biased;
            done = call => done,
            () = self.certainty.lapsed() => Err(McpError::ToolExecution {
                server: server.to_owned(),
                tool: tool.to_owned(),
                fault: CallFault::Unavailable(CANCELLED.into()),
            }),
        }
    }
}
