//! How to connect, and how to call.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::ask::{Declining, Elicitation, SamplingHandler};
use crate::config::Capabilities;
use crate::{Era, McpLimits};

/// How a connection is made.
#[derive(Clone)]
pub struct ConnectOptions {
    /// How far the server is trusted.
    pub limits: McpLimits,
    /// What the configuration lets us offer it.
    pub capabilities: Capabilities,
    /// What a server with `roots` is told, as (URI, name).
    pub roots: Vec<(String, String)>,
    /// The era that an earlier connection to the same command spoke; `None`: it is found out.
    pub era: Option<Era>,
    /// Who makes model calls for it. `None`: sampling is not offered, whatever the configuration says.
    pub sampling: Option<Arc<dyn SamplingHandler>>,
    /// Who answers its questions.
    pub elicitation: Arc<dyn Elicitation>,
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
        }
    }
}

/// How one call is made.
#[derive(Debug, Clone, Default)]
pub struct CallOptions {
    /// In place of [`McpLimits::call`]: the longest time without progress.
    pub timeout: Option<Duration>,
    /// Where progress is told. What does not fit in is dropped.
    pub progress: Option<mpsc::Sender<CallProgress>>,
}

/// How far a call has come, by the server's own word.
#[derive(Debug, Clone, PartialEq)]
pub struct CallProgress {
    /// Grows with each message.
    pub progress: f64,
    /// What it grows to, where known.
    pub total: Option<f64>,
    /// Words for a person; hostile, shortened.
    pub message: Option<String>,
}
