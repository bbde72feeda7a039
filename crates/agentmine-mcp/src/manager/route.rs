//! Routes calls, reads and prompts to their server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::Manager;
use crate::server::{CallResult, Live, Server};
use crate::text::{head_of, shortened};
use crate::{CallFault, CallOptions, Catalog, McpError, Tool};

/// Bytes of names in a message.
const MAX_NAMES: usize = 1_000;
/// How long to wait for the cause of a connection's end.
const CAUSE: Duration = Duration::from_millis(700);
/// A shorter wait for a server is not subtracted from a call's time.
const NO_WAIT: Duration = Duration::from_millis(10);

impl Manager {
    /// Calls a tool of the catalog, within the server's time limit.
    ///
    /// # Errors
    /// As [`Self::call_with`].
    pub async fn call(&self, server: &str, tool: &str, arguments: Value) -> CallResult {
        self.call_with(server, tool, arguments, CallOptions::default())
            .await
    }

    /// Calls a tool of the catalog. While its server is being restarted, the call waits, within its time limit.
    ///
    /// # Errors
    /// [`McpError::ToolExecution`] if there is no such server or tool (the error lists the existing names), if
    /// the server is not running, or if no answer came in time; [`McpError::Process`] or
    /// [`McpError::Protocol`] if the server ended in the meantime: the call may have had its effect.
    pub async fn call_with(
        &self,
        server: &str,
        tool: &str,
        arguments: Value,
        options: CallOptions,
    ) -> CallResult {
        let server = self.find(server, tool)?;
        self.request(server, tool, options, |live, options| async move {
            let catalog = self.catalog();
            let known = known(&catalog, server, tool)?;
            live.client.call(known, arguments, options).await
        })
        .await
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// As [`Self::call_with`].
    pub async fn read(&self, server: &str, uri: &str) -> CallResult {
        let server = self.find(server, uri)?;
        let options = CallOptions::default();
        self.request(server, uri, options, |live, options| async move {
            live.client.read(uri, options).await
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
    ) -> CallResult {
        let server = self.find(server, name)?;
        let options = CallOptions::default();
        self.request(server, name, options, |live, options| async move {
            live.client.prompt(name, arguments, options).await
        })
        .await
    }

    fn find(&self, name: &str, what: &str) -> Result<&Arc<Server>, McpError> {
        self.servers.get(name).ok_or_else(|| {
            let known = self.servers.values();
            let known = names(known.filter(|it| it.is_used()).map(|it| it.name()));
            let why = format!(
                "there is no MCP server {:?}; there are: {known}",
                shortened(name)
            );
            refused(name, what, why)
        })
    }

    /// Makes a request once the server is ready, and ends it when the server ends. The wait is subtracted from
    /// the request's time.
    async fn request<'a, F, R>(
        &self,
        server: &'a Server,
        what: &str,
        options: CallOptions,
        request: F,
    ) -> CallResult
    where
        F: FnOnce(Arc<Live>, CallOptions) -> R,
        R: Future<Output = CallResult> + 'a,
    {
        let began = Instant::now();
        let limit = options.timeout.unwrap_or(server.config.timeout);
        let result = match server.ready_within(limit).await {
            Err(why) => Err(refused(server.name(), what, why)),
            Ok(live) => {
                let waited = began.elapsed();
                let left = (waited > NO_WAIT).then(|| limit.saturating_sub(waited));
                let timeout = left.or(options.timeout);
                let request = request(live.clone(), CallOptions { timeout, ..options });
                tokio::select! {
                    biased;
                    result = Box::pin(request) => caused(&live, result).await,
                    error = live.gone() => Err(error),
                }
            }
        };
        server.metrics.called(&result, began.elapsed());
        result
    }
}

/// The tool in the catalog, if the server still offers it.
fn known<'a>(catalog: &'a Catalog, server: &Server, name: &str) -> Result<&'a Tool, McpError> {
    // It may have changed, and been refused, since the last refresh.
    let offer = server.offer();
    let withdrawn = offer.is_some_and(|offer| !offer.tools.iter().any(|it| it.name == name));
    match catalog.tool(server.name(), name) {
        Some(tool) if !withdrawn => Ok(tool),
        _ => {
            let offer = catalog.servers.get(server.name());
            let tools = offer.iter().flat_map(|offer| &offer.tools);
            let known = names(tools.map(|tool| tool.name.as_str()));
            let short = shortened(name);
            let why = format!("there is no tool {short:?} on it; there are: {known}");
            Err(refused(server.name(), name, why))
        }
    }
}

/// If the connection ended first, the error that says how the process ended.
async fn caused(live: &Live, result: CallResult) -> CallResult {
    match result {
        Err(error @ (McpError::Protocol { .. } | McpError::Connection { .. }))
            if live.client.closed() =>
        {
            Err(timeout(CAUSE, live.gone()).await.unwrap_or(error))
        }
        result => result,
    }
}

fn refused(server: &str, what: &str, why: String) -> McpError {
    McpError::ToolExecution {
        server: shortened(server),
        tool: shortened(what),
        fault: CallFault::Unavailable(why),
    }
}

/// A list of names of limited length.
fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let list = names.collect::<Vec<_>>().join(", ");
    match head_of(&list, MAX_NAMES) {
        "" => "none".to_owned(),
        head if head.len() < list.len() => format!("{head}…"),
        _ => list,
    }
}
