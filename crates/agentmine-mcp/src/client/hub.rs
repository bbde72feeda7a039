//! What the parts of one connection share, and what a server's notifications do.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, OnceLock};

use rmcp::model::{ProgressToken, ServerNotification};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::desk::Desk;
use super::ending::Ending;
use super::{CallProgress, ConnectOptions};
use crate::output::shortened;
use crate::{Era, lock};

/// Log messages kept.
const MAX_LOGS: usize = 100;
/// Messages of progress that wait for a call to take them in; more are dropped.
pub(crate) const MAX_PROGRESS: usize = 16;

pub(crate) struct Hub {
    pub(crate) server: String,
    pub(crate) ending: Ending,
    pub(crate) desk: Desk,
    pub(crate) era: OnceLock<Era>,
    pub(crate) changes: watch::Sender<u64>,
    /// `None`: nobody wants them.
    logs: Option<Mutex<VecDeque<String>>>,
    progress: Mutex<HashMap<ProgressToken, mpsc::Sender<CallProgress>>>,
}

impl Hub {
    pub(crate) fn new(server: &str, options: &ConnectOptions) -> Self {
        Self {
            server: server.to_owned(),
            ending: Ending::default(),
            desk: Desk::new(server, options),
            era: OnceLock::new(),
            changes: watch::Sender::new(0),
            logs: options.capabilities.logging.then(Mutex::default),
            progress: Mutex::default(),
        }
    }

    pub(crate) fn stateless(&self) -> bool {
        self.era.get() == Some(&Era::Stateless)
    }

    /// From here on the progress of a request goes to its call.
    pub(crate) fn expect_progress(&self, token: ProgressToken, call: mpsc::Sender<CallProgress>) {
        let mut expected = lock(&self.progress);
        // Calls that are over have dropped their end.
        expected.retain(|_, call| !call.is_closed());
        expected.insert(token, call);
    }

    /// Takes in a notification. None piles up: changes are counted, progress and logs are bounded.
    pub(crate) fn notified(&self, notification: ServerNotification) {
        match notification {
            ServerNotification::ToolListChangedNotification(_)
            | ServerNotification::ResourceListChangedNotification(_)
            | ServerNotification::PromptListChangedNotification(_) => {
                self.changes
                    .send_modify(|count| *count = count.wrapping_add(1));
            }
            ServerNotification::ProgressNotification(progress) => {
                let progress = progress.params;
                if let Some(call) = lock(&self.progress).get(&progress.progress_token) {
                    let _ = call.try_send(CallProgress {
                        progress: progress.progress,
                        total: progress.total,
                        message: progress.message.as_deref().map(shortened),
                    });
                }
            }
            ServerNotification::LoggingMessageNotification(message) => {
                let message = serde_json::to_value(&message.params).unwrap_or_default();
                self.log(&message);
            }
            // Cancellations are the filter's; resources are not subscribed to; tasks not made.
            _ => {}
        }
    }

    fn log(&self, message: &Value) {
        let Some(logs) = &self.logs else {
            return;
        };
        let text = |key: &str| message.get(key).and_then(Value::as_str);
        let level = text("level").unwrap_or("info");
        let words = match message.get("data") {
            Some(Value::String(words)) => words.clone(),
            Some(data) => data.to_string(),
            None => String::new(),
        };
        let words = shortened(&words);
        let line = match text("logger") {
            Some(logger) => format!("{level}: {}: {words}", shortened(logger)),
            None => format!("{level}: {words}"),
        };
        let mut logs = lock(logs);
        if logs.len() == MAX_LOGS {
            logs.pop_front();
        }
        logs.push_back(line);
    }

    pub(crate) fn logs(&self) -> Vec<String> {
        let logs = self.logs.as_ref().map(lock);
        logs.map(|logs| logs.iter().cloned().collect())
            .unwrap_or_default()
    }
}
