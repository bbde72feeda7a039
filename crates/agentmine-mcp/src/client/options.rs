//! How to connect, and how to call.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::ask::{Declining, Elicitation, SamplingHandler};
use crate::config::Capabilities;
use crate::{Era, McpLimits, Redact};

/// How a connection is made.
#[derive(Clone)]
pub struct ConnectOptions {
    /// The limits of the connection.
    pub limits: McpLimits,
    /// What the configuration lets us offer to the server.
    pub capabilities: Capabilities,
    /// The roots for a server with that capability, as (URI, name).
    pub roots: Vec<(String, String)>,
    /// The era of an earlier connection to the same command; `None`: it is detected.
    pub era: Option<Era>,
    /// Makes model calls for the server. `None`: sampling is not offered, whatever the configuration says.
    pub sampling: Option<Arc<dyn SamplingHandler>>,
    /// Answers the server's questions.
    pub elicitation: Arc<dyn Elicitation>,
    /// Removes secrets from results before they are cut.
    pub redact: Option<Redact>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            limits: McpLimits::default(),
            capabilities: Capabilities::default(),
            roots: Vec::new(),
            era: None,
            sampling: None,
            elicitation: Arc::new(Declining),
            redact: None,
        }
    }
}

/// How one call is made.
#[derive(Debug, Clone, Default)]
pub struct CallOptions {
    /// Replaces [`McpLimits::call`]: the longest time without progress.
    pub timeout: Option<Duration>,
    /// Receives progress. What does not fit is dropped.
    pub progress: Option<mpsc::Sender<CallProgress>>,
}

/// The progress of a call as the server reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct CallProgress {
    /// Grows with each message.
    pub progress: f64,
    /// The final value, if known.
    pub total: Option<f64>,
    /// The server's words; hostile, shortened.
    pub message: Option<String>,
}
