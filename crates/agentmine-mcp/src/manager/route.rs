//! Calls, reads and prompts, brought to the server they are for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::{Manager, Outcome, Running, Slot};
use crate::supervisor::{Live, Shared, unavailable};
use crate::{CallFault, CallOptions, McpError, ToolOutput};

/// Bytes of names that a message lists.
const MAX_NAMES: usize = 1_000;
/// How long the reason for a connection's end may take to be known.
const REASON: Duration = Duration::from_millis(700);

impl Manager {
    /// Calls a tool of the catalog, within the server's time limit.
    ///
    /// # Errors
    /// As [`Self::call_with`].
    pub async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: Value,
    ) -> Result<ToolOutput, McpError> {
        self.call_with(server, tool, arguments, CallOptions::default())
            .await
    }

    /// Calls a tool of the catalog. While its server is being started again the call waits, within its
    /// time limit.
    ///
    /// # Errors
    /// [`McpError::ToolExecution`] where there is no such server or tool (the names that exist are
    /// told), where it does not run, or where no answer came in time; [`McpError::Process`] or
    /// [`McpError::Protocol`] where the server ended meanwhile: the call may have had its effect.
    pub async fn call_with(
        &self,
        server: &str,
        tool: &str,
        arguments: Value,
        options: CallOptions,
    ) -> Result<ToolOutput, McpError> {
        let running = self.find(server, tool)?;
        let limit = options.timeout.unwrap_or(running.shared.config.timeout);
        self.metered(running, tool, limit, |live, left| async move {
            let known = self.known(&running.shared, tool)?;
            let timeout = left.or(options.timeout);
            let options = CallOptions { timeout, ..options };
            live.client.call(&known, arguments, options).await
        })
        .await
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// As [`Self::call_with`].
    pub async fn read(&self, server: &str, uri: &str) -> Result<ToolOutput, McpError> {
        let running = self.find(server, uri)?;
        let limit = running.shared.config.timeout;
        self.metered(running, uri, limit, |live, left| async move {
            within(&running.shared, uri, left, limit, live.client.read(uri)).await
        })
        .await
    }

    /// Gets a prompt.
    ///
    /// # Errors
    /// As [`Self::call_with`].
    pub async fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: BTreeMap<String, String>,
    ) -> Result<ToolOutput, McpError> {
        let running = self.find(server, name)?;
        let limit = running.shared.config.timeout;
        self.metered(running, name, limit, |live, left| async move {
            let prompt = live.client.prompt(name, arguments);
            within(&running.shared, name, left, limit, prompt).await
        })
        .await
    }

    fn find(&self, server: &str, what: &str) -> Result<&Running, McpError> {
        let why = match self.servers.get(server) {
            Some(Slot::Running(running)) => return Ok(running),
            Some(Slot::Idle(_, state)) => unavailable(server, state),
            None => {
                let known = names(self.running().map(|running| running.shared.name()));
                format!(
                    "there is no MCP server {:?}; there are: {known}",
                    short(server)
                )
            }
        };
        Err(refused(server, what, why))
    }

    /// A tool as the model was told of it.
    fn known(&self, server: &Shared, name: &str) -> Result<crate::Tool, McpError> {
        let catalog = self.catalog();
        let offered = server.offer();
        // What it has become since the last refresh may be refused already.
        let withdrawn =
            offered.is_some_and(|offer| !offer.tools.iter().any(|tool| tool.name == name));
        match catalog.tool(server.name(), name) {
            Some(tool) if !withdrawn => Ok(tool.clone()),
            _ => {
                let tools = catalog.servers.get(server.name());
                let known = names(
                    tools
                        .iter()
                        .flat_map(|offer| &offer.tools)
                        .map(|tool| tool.name.as_str()),
                );
                let why = format!(
                    "there is no tool {:?} on it; there are: {known}",
                    short(name)
                );
                Err(refused(server.name(), name, why))
            }
        }
    }

    /// Runs a request on the server once it is ready, and ends it when the server does. The request is
    /// told how much of its time is left, if it had to wait.
    async fn metered<'a, F, R>(
        &self,
        running: &'a Running,
        what: &str,
        limit: Duration,
        request: F,
    ) -> Result<ToolOutput, McpError>
    where
        F: FnOnce(Arc<Live>, Option<Duration>) -> R,
        R: Future<Output = Result<ToolOutput, McpError>> + 'a,
    {
        let shared = &running.shared;
        let began = Instant::now();
        let result = match shared.ready_within(limit).await {
            Err(why) => Err(refused(shared.name(), what, why)),
            Ok(live) => {
                let waited = began.elapsed();
                let left =
                    (waited > Duration::from_millis(10)).then(|| limit.saturating_sub(waited));
                let request = Box::pin(request(live.clone(), left));
                let answer = tokio::select! {
                    biased;
                    answer = request => answer,
                    error = live.gone() => Err(error),
                };
                match answer {
                    // The connection's end came first; how the process ended says more.
                    Err(McpError::Protocol { .. } | McpError::Connection { .. })
                        if live.client.closed() =>
                    {
                        let known = timeout(REASON, live.gone()).await;
                        Err(known.unwrap_or_else(|_| McpError::Protocol {
                            server: shared.name().to_owned(),
                            detail: "the connection has ended".into(),
                        }))
                    }
                    answer => answer,
                }
            }
        };
        shared.metrics.called(outcome(&result), began.elapsed());
        result
    }
}

/// Reads and prompts have no limit of their own to shorten.
async fn within(
    server: &Shared,
    what: &str,
    left: Option<Duration>,
    limit: Duration,
    request: impl Future<Output = Result<ToolOutput, McpError>>,
) -> Result<ToolOutput, McpError> {
    let Some(left) = left else {
        return request.await;
    };
    let late = McpError::ToolExecution {
        server: server.name().to_owned(),
        tool: short(what),
        fault: CallFault::Timeout { after: limit },
    };
    timeout(left, request).await.unwrap_or(Err(late))
}

fn outcome(result: &Result<ToolOutput, McpError>) -> Outcome {
    match result {
        Ok(output) if output.is_error => Outcome::ToolError,
        Ok(_) => Outcome::Success,
        Err(McpError::ToolExecution { fault, .. }) => match fault {
            CallFault::Refused { .. } => Outcome::ToolError,
            CallFault::Timeout { .. } => Outcome::Timeout,
            CallFault::Unavailable(_) => Outcome::Unavailable,
        },
        Err(
            McpError::Configuration { .. }
            | McpError::Process { .. }
            | McpError::Connection { .. }
            | McpError::Protocol { .. },
        ) => Outcome::Broken,
    }
}

fn refused(server: &str, what: &str, why: String) -> McpError {
    McpError::ToolExecution {
        server: short(server),
        tool: short(what),
        fault: CallFault::Unavailable(why),
    }
}

/// What a model made up may be long.
fn short(name: &str) -> String {
    name.chars().take(200).collect()
}

/// Names in a row, as many as are good to read.
fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut row = String::new();
    for name in names {
        if row.len() + name.len() > MAX_NAMES {
            row.push_str(", …");
            break;
        }
        if !row.is_empty() {
            row.push_str(", ");
        }
        row.push_str(name);
    }
    if row.is_empty() { "none".into() } else { row }
}
