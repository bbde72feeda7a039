//! One request: its time limits, its progress, and the questions that may come in place of a result.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ErrorData;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::link::{Link, Pending};
use super::options::{CallOptions, CallProgress};
use crate::McpLimits;
use crate::text::shortened;

/// How often a server may answer with questions before it answers.
const MAX_ROUNDS: usize = 10;
/// Questions of one round.
const MAX_QUESTIONS: usize = 16;

/// A server's reply to a request.
pub(super) enum Reply {
    Result(Value),
    Refused(ErrorData),
}

/// Why there is no reply.
pub(super) enum NoReply {
    /// This time limit passed.
    Late(Duration),
    /// There can be none, for this reason.
    Broken(String),
}

/// Sends the requests of a connection whose handshake is done.
#[derive(Clone)]
pub(super) struct Requests {
    pub(super) link: Arc<Link>,
    pub(super) limits: McpLimits,
    /// Sent with every request.
    pub(super) meta: Arc<Map<String, Value>>,
}

impl Requests {
    /// Sends a request that the server may answer with questions. It is then sent again with our answers.
    pub(super) async fn converse(
        &self,
        method: &str,
        mut params: Map<String, Value>,
        options: &CallOptions,
    ) -> Result<Reply, NoReply> {
        let idle = options.timeout.unwrap_or(self.limits.call);
        let total = self.limits.total.max(idle);
        let until = Instant::now() + total;
        for _ in 0..MAX_ROUNDS {
            let progress = options.progress.clone();
            let pending = self.send(method, params.clone(), progress);
            let reply = self.reply(pending, idle, (total, until)).await?;
            let Reply::Result(result) = &reply else {
                return Ok(reply);
            };
            if result["resultType"] != "input_required" {
                return Ok(reply);
            }
            let answers = timeout_at(until, self.answers(&result["inputRequests"])).await;
            let answers = match answers.map_err(|_| NoReply::Late(total))? {
                Ok(answers) => answers,
                Err(error) => return Ok(Reply::Refused(error)),
            };
            let state = result["requestState"].clone();
            for (key, value) in [("inputResponses", answers), ("requestState", state)] {
                match value {
                    Value::Null => params.remove(key),
                    value => params.insert(key.into(), value),
                };
            }
        }
        let words = format!("the server asked for input more than {MAX_ROUNDS} times");
        Ok(Reply::Refused(ErrorData::internal_error(words, None)))
    }

    /// Sends a request and waits for its reply. The reply is JSON, so that one that deviates from the
    /// protocol can still be read.
    pub(super) async fn request(
        &self,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Reply, NoReply> {
        let (idle, total) = (self.limits.call, self.limits.total);
        let until = (total, Instant::now() + total.max(idle));
        self.reply(self.send(method, params, None), idle, until)
            .await
    }

    /// Sends a request with what every request of this connection carries.
    pub(super) fn send(
        &self,
        method: &str,
        mut params: Map<String, Value>,
        progress: Option<mpsc::Sender<CallProgress>>,
    ) -> Result<Pending, String> {
        let id = self.link.next_id();
        let mut meta = self.meta.as_ref().clone();
        meta.insert("progressToken".into(), id.into());
        params.insert("_meta".into(), meta.into());
        self.link.request(id, method, params, progress)
    }

    /// Waits until `idle` has passed without progress, and in total until the instant of `until`, which is
    /// after that duration.
    async fn reply(
        &self,
        pending: Result<Pending, String>,
        idle: Duration,
        until: (Duration, Instant),
    ) -> Result<Reply, NoReply> {
        let mut pending = pending.map_err(NoReply::Broken)?;
        let (total, until) = until;
        let mut since = pending.last_sign();
        loop {
            let deadline = until.min(since + idle);
            if let Ok(response) = timeout_at(deadline, pending.response()).await {
                return match response.map_err(NoReply::Broken)? {
                    Ok(result) => Ok(Reply::Result(result)),
                    Err(refusal) => Ok(Reply::Refused(refusal)),
                };
            }
            let now = Instant::now();
            if now >= until {
                return Err(NoReply::Late(total));
            }
            since = match pending.last_sign() {
                progress if progress > since => progress,
                // Answering a question may take longer.
                _ if self.link.shared.handler.is_busy() => now,
                _ => return Err(NoReply::Late(idle)),
            };
        }
    }

    /// Answers the questions in a result. An error ends the call: the server needs all answers to continue.
    async fn answers(&self, questions: &Value) -> Result<Value, ErrorData> {
        let Value::Object(questions) = questions else {
            return Ok(Value::Null);
        };
        if questions.len() > MAX_QUESTIONS {
            let words = format!("the server asked more than {MAX_QUESTIONS} things at once");
            return Err(ErrorData::internal_error(words, None));
        }
        let mut answers = Map::new();
        for (key, question) in questions {
            let method = question["method"].as_str().unwrap_or_default();
            let answer = match self.link.shared.handler.answer_request(question).await {
                Ok(answer) => answer,
                // A result has a form for this refusal.
                Err(_) if method == "elicitation/create" => json!({"action": "decline"}),
                Err(error) => {
                    let (method, why) = (shortened(method), error.message);
                    let words =
                        format!("the server asked for {method:?}, which is not available: {why}");
                    return Err(ErrorData::new(error.code, words, None));
                }
            };
            answers.insert(key.clone(), answer);
        }
        Ok(Value::Object(answers))
    }
}
