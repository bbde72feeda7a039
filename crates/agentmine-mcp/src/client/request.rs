//! One request: its time limits, its progress, and the questions that may come in place of a result.

use std::time::Duration;

use rmcp::ErrorData;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::connection::Response;
use super::link::{Link, Next, Pending};
use super::{CallOptions, CallProgress, Client};
use crate::output::shortened;

/// How often a server may answer with questions before it answers.
const MAX_ROUNDS: usize = 10;
/// Questions of one round.
const MAX_QUESTIONS: usize = 16;

/// How long a request may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    /// Without progress.
    idle: Duration,
    /// In all.
    total: Duration,
    until: Instant,
}

/// A server's reply to a request.
pub(crate) enum Reply {
    Result(Value),
    Refused(ErrorData),
}

/// Why there is no reply.
pub(crate) enum NoReply {
    /// The time limit that passed.
    Late(Duration),
    /// Why there can be none.
    Broken(String),
}

impl Client {
    pub(crate) fn time(&self, own: Option<Duration>) -> Time {
        let idle = own.unwrap_or(self.limits.call);
        let total = self.limits.total.max(idle);
        Time {
            idle,
            total,
            until: Instant::now() + total,
        }
    }

    /// Sends a request that the server may answer with questions of its own; it is then sent again with
    /// our answers.
    pub(crate) async fn converse(
        &self,
        method: &str,
        mut params: Map<String, Value>,
        options: &CallOptions,
    ) -> Result<Reply, NoReply> {
        let time = self.time(options.timeout);
        for _ in 0..MAX_ROUNDS {
            let reply = self
                .request(method, params.clone(), time, options.progress.as_ref())
                .await?;
            let Reply::Result(result) = &reply else {
                return Ok(reply);
            };
            if result["resultType"] != "input_required" {
                return Ok(reply);
            }
            let answers = timeout_at(time.until, self.answers(&result["inputRequests"])).await;
            let answers = match answers.map_err(|_| NoReply::Late(time.total))? {
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

    /// Answers the questions in a result. An error ends the call: the server goes on only with all.
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
                    let words = format!(
                        "the server asked for {:?}, which it does not get here: {}",
                        shortened(method),
                        error.message
                    );
                    return Err(ErrorData::new(error.code, words, None));
                }
            };
            answers.insert(key.clone(), answer);
        }
        Ok(Value::Object(answers))
    }

    /// Sends one request and waits for its reply. It is JSON, since a reply that is not quite what the
    /// protocol says is better read leniently than lost.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: Map<String, Value>,
        time: Time,
        progress: Option<&mpsc::Sender<CallProgress>>,
    ) -> Result<Reply, NoReply> {
        let mut pending = send(&self.link, &self.meta, method, params).map_err(NoReply::Broken)?;
        let mut idle = Instant::now() + time.idle;
        loop {
            let deadline = idle.min(time.until);
            let step = match timeout_at(deadline, pending.next()).await {
                Ok(Next::Response(response)) => return reply(*response),
                Ok(Next::Progress(step)) => Some(step),
                Err(_) => None,
            };
            let now = Instant::now();
            // Looked at here too: a storm of progress would never give the timer its turn.
            if now >= time.until {
                return Err(NoReply::Late(time.total));
            }
            match step {
                Some(step) => {
                    let _ = progress.map(|progress| progress.try_send(step));
                }
                // Whoever answers a question may take their time.
                None if self.link.shared.handler.is_busy() => {}
                None => return Err(NoReply::Late(time.idle)),
            }
            idle = now + time.idle;
        }
    }
}

/// Sends a request with what every request of this connection carries.
pub(super) fn send(
    link: &Link,
    meta: &Map<String, Value>,
    method: &str,
    mut params: Map<String, Value>,
) -> Result<Pending, String> {
    let id = link.next_id();
    let mut meta = meta.clone();
    meta.insert("progressToken".into(), id.into());
    params.insert("_meta".into(), meta.into());
    link.request(id, method, params.into())
}

fn reply(response: Result<Response, String>) -> Result<Reply, NoReply> {
    match response.map_err(NoReply::Broken)? {
        Ok(result) => {
            let result = serde_json::to_value(result);
            let result = result.map_err(|error| NoReply::Broken(error.to_string()))?;
            Ok(Reply::Result(result))
        }
        Err(refusal) => Ok(Reply::Refused(refusal)),
    }
}
