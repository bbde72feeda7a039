//! One request: its time, its progress, its cancellation, and the questions that come instead of an
//! answer.

#![expect(
    deprecated,
    reason = "the log of a server is deprecated in the protocol, and in use"
)]

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, GetExtensions, GetPromptRequest,
    GetPromptRequestParams, InputResponses, LoggingLevel, ReadResourceRequest,
    ReadResourceRequestParams, RequestMetaObject, ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::filter::ProgressTo;
use super::hub::MAX_PROGRESS;
use super::{CallOptions, CallProgress, Client};
use crate::output::shortened;

/// How long the news that a call is given up may take to be written.
const CANCELLATION: Duration = Duration::from_secs(5);
/// How often a server may answer with questions before it answers.
const MAX_ROUNDS: usize = 10;
/// Questions of one round.
const MAX_QUESTIONS: usize = 16;

/// How long a request may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    /// Without progress.
    pub(crate) idle: Duration,
    /// In all.
    pub(crate) until: Instant,
}

/// What a server said to a request.
pub(crate) enum Reply {
    Result(Value),
    Refused(ErrorData),
}

/// Why there is no reply.
pub(crate) enum NoReply {
    /// In time: after how long.
    Late(Duration),
    /// At all, and why.
    Broken(String),
}

/// A request that a server may answer with questions of its own, and then gets again.
#[derive(Clone)]
pub(crate) enum Ask {
    Call(CallToolRequestParams),
    Read(ReadResourceRequestParams),
    Prompt(GetPromptRequestParams),
}

impl Ask {
    fn request(&self) -> ClientRequest {
        match self.clone() {
            Self::Call(params) => ClientRequest::CallToolRequest(CallToolRequest::new(params)),
            Self::Read(params) => {
                ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params))
            }
            Self::Prompt(params) => ClientRequest::GetPromptRequest(GetPromptRequest::new(params)),
        }
    }

    fn answered(&mut self, answers: Option<InputResponses>, state: Option<String>) {
        match self {
            Self::Call(params) => {
                (params.input_responses, params.request_state) = (answers, state);
            }
            Self::Read(params) => {
                (params.input_responses, params.request_state) = (answers, state);
            }
            Self::Prompt(params) => {
                (params.input_responses, params.request_state) = (answers, state);
            }
        }
    }
}

impl Client {
    pub(crate) fn time(&self, own: Option<Duration>) -> Time {
        let idle = own.unwrap_or(self.limits.call);
        Time {
            idle,
            until: Instant::now() + self.limits.total.max(idle),
        }
    }

    /// Asks until there is an answer that is no question.
    pub(crate) async fn converse(
        &self,
        mut ask: Ask,
        options: &CallOptions,
    ) -> Result<Reply, NoReply> {
        let time = self.time(options.timeout);
        for _ in 0..MAX_ROUNDS {
            let reply = self
                .request(ask.request(), time, options.progress.as_ref())
                .await?;
            let Reply::Result(result) = &reply else {
                return Ok(reply);
            };
            let text = |key: &str| result.get(key).and_then(Value::as_str);
            if text("resultType") != Some("input_required") {
                return Ok(reply);
            }
            let state = text("requestState").map(str::to_owned);
            let answers = tokio::time::timeout_at(time.until, self.answers(result)).await;
            match answers.map_err(|_| NoReply::Late(self.limits.total))? {
                Ok(answers) => ask.answered(answers, state),
                Err(error) => return Ok(Reply::Refused(error)),
            }
        }
        let words = format!("the server asked for input more than {MAX_ROUNDS} times");
        Ok(Reply::Refused(ErrorData::internal_error(words, None)))
    }

    /// Answers what a result asks for. An error ends the call: the server goes on only with all.
    async fn answers(&self, result: &Value) -> Result<Option<InputResponses>, ErrorData> {
        let Some(Value::Object(questions)) = result.get("inputRequests") else {
            return Ok(None);
        };
        if questions.len() > MAX_QUESTIONS {
            let words = format!("the server asked more than {MAX_QUESTIONS} things at once");
            return Err(ErrorData::internal_error(words, None));
        }
        let mut answers = InputResponses::new();
        for (key, question) in questions {
            let method = question
                .get("method")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let params = question.get("params").cloned().unwrap_or_default();
            let answer = match self.hub.desk.answer(method, params).await {
                Ok(answer) => answer,
                // A result has room for this no.
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
        Ok(Some(answers))
    }

    /// Asks once. The answer is JSON, since one that is not quite what the protocol says is better
    /// read leniently than lost.
    pub(crate) async fn request(
        &self,
        mut request: ClientRequest,
        time: Time,
        told: Option<&mpsc::Sender<CallProgress>>,
    ) -> Result<Reply, NoReply> {
        let (to, mut progress) = mpsc::channel(MAX_PROGRESS);
        request.extensions_mut().insert(ProgressTo(to));
        let mut options = PeerRequestOptions::no_options();
        if self.wants_logs && self.hub.stateless() {
            // That era has no `logging/setLevel`: each request says what it wants to hear.
            let mut meta = RequestMetaObject::new();
            meta.set_log_level(LoggingLevel::Info);
            options = options.with_meta(meta);
        }
        let mut idle = Instant::now() + time.idle;
        let sent = self.peer.send_cancellable_request(request, options);
        let handle = match tokio::time::timeout_at(idle.min(time.until), sent).await {
            Ok(Ok(handle)) => handle,
            Ok(Err(error)) => return reply(Err(error)),
            Err(_) => return Err(NoReply::Late(time.idle)),
        };
        let mut pending = Pending(Some(handle));
        loop {
            let until = idle.min(time.until);
            tokio::select! {
                biased;
                answer = pending.answer() => {
                    pending.0 = None;
                    // What came before the answer is told before it.
                    while let (Some(told), Ok(step)) = (told, progress.try_recv()) {
                        let _ = told.try_send(step);
                    }
                    return reply(answer);
                }
                Some(step) = progress.recv() => {
                    idle = Instant::now() + time.idle;
                    if let Some(told) = told {
                        let _ = told.try_send(step);
                    }
                    // A storm of progress would never let the timer have its turn.
                    if idle > time.until && Instant::now() >= time.until {
                        return Err(NoReply::Late(self.limits.total));
                    }
                }
                () = sleep_until(until) => {
                    // Whoever is asked something may take their time.
                    if self.hub.desk.busy() && until < time.until {
                        idle = Instant::now() + time.idle;
                        continue;
                    }
                    let total = until == time.until && time.until != idle;
                    return Err(NoReply::Late(if total { self.limits.total } else { time.idle }));
                }
            }
        }
    }
}

fn reply(answer: Result<ServerResult, ServiceError>) -> Result<Reply, NoReply> {
    match answer {
        Ok(result) => match serde_json::to_value(result) {
            Ok(result) => Ok(Reply::Result(result)),
            Err(error) => Err(NoReply::Broken(error.to_string())),
        },
        Err(ServiceError::McpError(error)) => Ok(Reply::Refused(error)),
        // Without the name of the transport's type.
        Err(ServiceError::TransportSend(error)) => {
            Err(NoReply::Broken(shortened(&error.error.to_string())))
        }
        Err(ServiceError::TransportClosed) => Err(NoReply::Broken("it has ended".to_owned())),
        Err(error) => Err(NoReply::Broken(shortened(&error.to_string()))),
    }
}

/// A request without an answer. Dropped as such, it is cancelled on the server: by
/// `notifications/cancelled` over a stream, and over HTTP in the stateless era by closing the
/// response.
struct Pending(Option<RequestHandle<RoleClient>>);

impl Pending {
    async fn answer(&mut self) -> Result<ServerResult, ServiceError> {
        match &mut self.0 {
            Some(handle) => {
                let answer = (&mut handle.rx).await;
                answer.unwrap_or(Err(ServiceError::TransportClosed))
            }
            None => Err(ServiceError::TransportClosed),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let (Some(handle), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        // On a task of its own: writing to a server that does not read may take for ever.
        runtime.spawn(async move {
            let cancel = handle.cancel(Some("given up by the caller".into()));
            let _ = timeout(CANCELLATION, cancel).await;
        });
    }
}
