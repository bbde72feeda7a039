//! The server: HTTP, the record of requests, temporary faults, gates.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::grammar;
use super::messages;
use super::script::{Answer, Fault, Grammar, Refusal, Script, Turn};
use super::wire::{Completion, Counted, signature, thought};

/// Time limit of a test's waits.
const PATIENCE: Duration = Duration::from_secs(120);

/// Maximum size of a request, in bytes.
const MAX_BODY: usize = 64 << 20;

/// The API that a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// `OpenAI`'s Chat Completions.
    Chat,
    /// Anthropic's Messages.
    Messages,
}

impl Api {
    /// A request's body in the form of Chat Completions.
    fn in_chat(self, body: &Value) -> Value {
        match self {
            Self::Chat => body.clone(),
            Self::Messages => messages::in_chat(body),
        }
    }

    /// The body of an error.
    fn error(self, status: u16, message: &str) -> Value {
        match self {
            Self::Chat => {
                json!({ "error": { "message": message, "type": "scripted", "code": null } })
            }
            Self::Messages => messages::error(status, message),
        }
    }

    /// An error as the last event of a stream.
    fn error_event(self, error: &str) -> String {
        match self {
            Self::Chat => format!("data: {error}\n\n"),
            Self::Messages => format!("event: error\ndata: {error}\n\n"),
        }
    }
}

/// A request that the server got.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its API.
    pub api: Api,
    /// Its headers, `authorization` included.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Value,
    /// Size of its body, in bytes.
    pub bytes: usize,
    /// The scenario that matched.
    pub scenario: Option<String>,
    /// Number of replies in the conversation.
    pub turn: usize,
    /// Identifies the conversation; computed from its beginning.
    pub conversation: u64,
}

/// A running server. It stops when this is dropped.
#[derive(Debug)]
pub struct ScriptedModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
struct Shared {
    script: Script,
    state: Mutex<Record>,
    /// Requests received, requests held now, times that the gate was opened.
    counts: watch::Sender<Counts>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    seen: usize,
    held: usize,
    released: usize,
}

#[derive(Debug, Default)]
struct Record {
    requests: Vec<Seen>,
    /// Marker in the task, and turn.
    holds: Vec<(Option<String>, usize)>,
    /// How often each fault was injected: by its place in the script, the conversation, and the turn.
    faults: HashMap<(usize, u64, usize), usize>,
    /// Of the next requests, in order.
    injected: VecDeque<Fault>,
    /// The newest body of each conversation, to count the tokens that a cache would contain.
    bodies: HashMap<u64, Bytes>,
}

impl ScriptedModel {
    /// Starts on a free port.
    ///
    /// # Panics
    /// If it cannot listen on 127.0.0.1.
    pub async fn start(script: impl Into<Script>) -> Self {
        match Self::listen(SocketAddr::from(([127, 0, 0, 1], 0)), script).await {
            Ok(model) => model,
            Err(error) => panic!("the scripted model cannot listen: {error}"),
        }
    }

    /// Starts on an address.
    ///
    /// # Errors
    /// If it cannot listen on the address.
    pub async fn listen(address: SocketAddr, script: impl Into<Script>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            script: script.into(),
            state: Mutex::default(),
            counts: watch::Sender::new(Counts::default()),
        });
        let router = Router::new()
            .route("/v1/chat/completions", post(chat))
            .route("/v1/messages", post(message))
            .route("/v1/models", get(models))
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .with_state(shared.clone());
        let task = tokio::spawn(async move {
            // It serves until the task is aborted.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self {
            address,
            shared,
            task,
        })
    }

    /// The value for `model.base_url`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes the next `times` requests fail, whatever their conversation.
    pub fn inject(&self, fault: &Fault, times: usize) {
        let faults = std::iter::repeat_n(fault.clone(), times);
        self.shared.state().injected.extend(faults);
    }

    /// Removes what was injected and has not happened yet.
    pub fn heal(&self) {
        self.shared.state().injected.clear();
    }

    /// What a strict API would have refused, of all requests so far: the conversation's number and the reason.
    #[must_use]
    pub fn refused(&self) -> Vec<(u64, String)> {
        let requests = self.requests();
        let refused = requests.iter().filter_map(|seen| {
            let reason = problem(&Turn::read(&seen.api.in_chat(&seen.body)))?;
            Some((seen.conversation, reason))
        });
        refused.collect()
    }

    /// Every request so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<Seen> {
        self.shared.state().requests.clone()
    }

    /// Requests at this turn of any conversation wait until [`Self::release`].
    pub fn hold_at(&self, turn: usize) {
        self.shared.state().holds.push((None, turn));
    }

    /// The same for conversations whose task contains `marker`.
    pub fn hold_when(&self, marker: &str, turn: usize) {
        self.shared
            .state()
            .holds
            .push((Some(marker.to_owned()), turn));
    }

    /// Opens the gates: waiting requests continue, and no more are held.
    pub fn release(&self) {
        self.shared.state().holds.clear();
        self.shared
            .counts
            .send_modify(|counts| counts.released += 1);
    }

    /// Waits until no request is held any more, because the clients have given them up.
    ///
    /// # Panics
    /// When they do not within two minutes.
    pub async fn wait_for_none_held(&self) {
        self.wait("no held request", |counts| counts.held == 0)
            .await;
    }

    /// Waits until `n` requests have arrived since the start.
    ///
    /// # Panics
    /// When they do not come within two minutes.
    pub async fn wait_for_requests(&self, n: usize) {
        self.wait(&format!("{n} requests"), |counts| counts.seen >= n)
            .await;
    }

    /// Waits until `n` requests wait at a gate.
    ///
    /// # Panics
    /// When they do not come within two minutes.
    pub async fn wait_for_held(&self, n: usize) {
        self.wait(&format!("{n} held requests"), |counts| counts.held >= n)
            .await;
    }

    async fn wait(&self, what: &str, reached: impl Fn(&Counts) -> bool) {
        let mut counts = self.shared.counts.subscribe();
        let result = tokio::time::timeout(PATIENCE, counts.wait_for(|counts| reached(counts)))
            .await
            .is_ok();
        assert!(
            result,
            "the scripted model waited for {what}, and saw {:?}",
            *self.shared.counts.borrow()
        );
    }

    /// Waits forever, for a server that a person started.
    pub async fn run(mut self) {
        let _ = (&mut self.task).await;
    }
}

/// Counts a request as held while this exists: a client may disconnect while it waits.
struct Held<'a>(&'a Shared);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.counts.send_modify(|counts| counts.held -= 1);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, Record> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits at the gate, if there is one for this request.
    async fn hold(&self, turn: &Turn) {
        let mut counts = self.counts.subscribe();
        let released = counts.borrow_and_update().released;
        let is_held = self.state().holds.iter().any(|(marker, at)| {
            *at == turn.number
                && marker
                    .as_ref()
                    .is_none_or(|marker| turn.task().contains(marker))
        });
        if is_held {
            self.counts.send_modify(|counts| counts.held += 1);
            let _held = Held(self);
            // The sender lives in `self`, so this ends only by a release.
            let _ = counts.wait_for(|counts| counts.released > released).await;
        }
    }

    /// The fault to inject now, if any.
    fn fault(&self, scenario: Option<usize>, conversation: u64, turn: usize) -> Option<Fault> {
        let mut due: Vec<_> = self
            .script
            .faults
            .iter()
            .enumerate()
            // These are counted over all conversations and turns.
            .map(|(n, (fault, times))| ((n, 0, 0), fault, *times))
            .collect();
        if let Some(n) = scenario {
            let faults = self.script.scenarios[n].faults.iter().enumerate();
            due.extend(faults.filter(|(_, (at, _, _))| *at == turn).map(
                |(k, (_, fault, times))| ((1000 * (n + 1) + k, conversation, turn), fault, *times),
            ));
        }
        let mut state = self.state();
        if let Some(fault) = state.injected.pop_front() {
            return Some(fault);
        }
        due.into_iter().find_map(|(key, fault, times)| {
            let made = state.faults.entry(key).or_default();
            (*made < times).then(|| {
                *made += 1;
                fault.clone()
            })
        })
    }

    fn count(&self, conversation: u64, body: &Bytes) -> Counted {
        let mut state = self.state();
        let before = state.bodies.insert(conversation, body.clone());
        let common = before.map_or(0, |before| {
            before.iter().zip(body).take_while(|(a, b)| a == b).count()
        });
        Counted {
            input: body.len() / 4,
            cached: common / 4,
        }
    }
}

async fn models() -> impl IntoResponse {
    Json(json!({ "object": "list", "data": [{ "id": "scripted", "object": "model" }] }))
}

async fn chat(State(shared): State<Arc<Shared>>, headers: HeaderMap, bytes: Bytes) -> Response {
    serve(&shared, Api::Chat, headers, bytes).await
}

async fn message(State(shared): State<Arc<Shared>>, headers: HeaderMap, bytes: Bytes) -> Response {
    serve(&shared, Api::Messages, headers, bytes).await
}

async fn serve(shared: &Shared, api: Api, headers: HeaderMap, bytes: Bytes) -> Response {
    let Ok(raw) = serde_json::from_slice::<Value>(&bytes) else {
        return refuse(api, 400, "the body is not JSON");
    };
    let body = api.in_chat(&raw);
    let turn = Turn::read(&body);
    let scenario = shared
        .script
        .scenarios
        .iter()
        .position(|scenario| scenario.matches(&turn));
    let conversation = conversation(&turn);
    let authorized = is_authorized(shared, api, &headers);
    let refused = match api {
        Api::Chat => forgotten(&turn).filter(|_| shared.script.thinks),
        Api::Messages => messages::problem(&raw, shared.script.thinks),
    };
    shared.state().requests.push(Seen {
        api,
        headers,
        body: raw,
        bytes: bytes.len(),
        scenario: scenario.map(|n| shared.script.scenarios[n].name.clone()),
        turn: turn.number,
        conversation,
    });
    shared.counts.send_modify(|counts| counts.seen += 1);
    if !authorized {
        return refuse(api, 401, "Incorrect API key provided");
    }
    if let Some(problem) = problem(&turn) {
        return refuse(api, 400, &problem);
    }
    if let Some(problem) = refused {
        return refuse(api, 400, &problem);
    }
    shared.hold(&turn).await;
    let fault = shared.fault(scenario, conversation, turn.number);
    let Some(scenario) = scenario.map(|n| &shared.script.scenarios[n]) else {
        return refuse(api, 400, "no scenario of the script fits this task");
    };
    let mut answer = scenario.answer(&turn);
    answer.fault = fault.or(answer.fault);
    if shared.script.grammar == Grammar::Enforced {
        grammar::constrain(&mut answer.calls, &body["tools"]);
    }
    let counted = shared.count(conversation, &bytes);
    let thinks = shared.script.thinks;
    respond(&answer, (api, &body), (&turn, thinks), counted).await
}

/// What a conversation lacks of the thoughts and signatures in its replies.
fn forgotten(turn: &Turn) -> Option<String> {
    let replies = turn.messages.iter().filter(|it| it["role"] == "assistant");
    replies.enumerate().find_map(|(n, reply)| {
        if reply["reasoning_content"] != thought(n) {
            return Some(
                "the reasoning_content in the thinking mode must be passed back".to_owned(),
            );
        }
        let calls = reply["tool_calls"].as_array().into_iter().flatten();
        calls
            .enumerate()
            .any(|(at, call)| call["extra_content"] != signature(n, at))
            .then(|| "function call is missing a thought_signature".to_owned())
    })
}

/// All requests of a conversation begin with the same messages, up to the task.
fn conversation(turn: &Turn) -> u64 {
    let mut hasher = DefaultHasher::new();
    for message in &turn.messages {
        message.to_string().hash(&mut hasher);
        if message["role"] == "user" {
            break;
        }
    }
    hasher.finish()
}

fn is_authorized(shared: &Shared, api: Api, headers: &HeaderMap) -> bool {
    shared.script.key.as_ref().is_none_or(|key| {
        let has = |name: &str, expected: &str| {
            let value = headers.get(name);
            value.is_some_and(|value| value.as_bytes() == expected.as_bytes())
        };
        let has_token = has("authorization", &format!("Bearer {key}"));
        match api {
            Api::Chat => has_token,
            // Newer versions of its SDK send the key as a token.
            Api::Messages => has_token || has("x-api-key", key),
        }
    })
}

/// Rejects what real APIs reject too: a call without a result, a result without a call, and the same reply
/// twice.
fn problem(turn: &Turn) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut reply: Option<&Value> = None;
    for message in &turn.messages {
        if reply == Some(message) {
            return Some("the same reply is in the conversation twice".to_owned());
        }
        reply = Some(message).filter(|message| message["role"] == "assistant");
        let id = message["tool_call_id"].as_str().unwrap_or_default();
        if message["role"] == "tool" {
            let Some(at) = open.iter().position(|open| *open == id) else {
                return Some(format!("tool message {id:?} answers no call before it"));
            };
            open.remove(at);
            continue;
        }
        if let Some(id) = open.first() {
            return Some(format!("tool call {id:?} has no result"));
        }
        let calls = message["tool_calls"].as_array();
        open.extend(
            calls
                .into_iter()
                .flatten()
                .filter_map(|call| call["id"].as_str()),
        );
    }
    open.first()
        .map(|id| format!("tool call {id:?} has no result"))
}

fn refuse(api: Api, status: u16, message: &str) -> Response {
    let body = api.error(status, message);
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, Json(body)).into_response()
}

/// How much of an answer is sent, and what happens then.
enum Ending {
    Whole,
    Stall,
    BreakOff,
    Event(Api, &'static str),
}

fn refused_as(refusal: &Refusal) -> Response {
    let mut response = Response::new(Body::from(refusal.body.clone()));
    *response.status_mut() =
        StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in &refusal.headers {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(*name, value);
        }
    }
    response
}

/// A comment every tenth of a second, as a proxy sends them every few seconds.
fn comments() -> Response {
    let ticks = tokio::time::interval(Duration::from_millis(100));
    let pieces = stream::unfold(ticks, |mut ticks| async {
        ticks.tick().await;
        Some((Ok::<_, io::Error>(Bytes::from(": ping\n\n")), ticks))
    });
    let body = Body::from_stream(pieces);
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

async fn respond(
    answer: &Answer,
    (api, body): (Api, &Value),
    (turn, thinks): (&Turn, bool),
    counted: Counted,
) -> Response {
    let ending = match &answer.fault {
        Some(Fault::Status(status, after)) => {
            let mut response = refuse(api, *status, "the script says so");
            if let Some(after) = after {
                response
                    .headers_mut()
                    .insert(header::RETRY_AFTER, (*after).into());
            }
            return response;
        }
        Some(Fault::Refusal(refusal)) => return refused_as(refusal),
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Comments) => return comments(),
        Some(Fault::Drop) => return sent(vec![], Ending::BreakOff, "application/json"),
        Some(Fault::Delay(delay)) => {
            tokio::time::sleep(*delay).await;
            Ending::Whole
        }
        Some(Fault::Stall) => Ending::Stall,
        Some(Fault::BreakOff) => Ending::BreakOff,
        Some(Fault::Event(error)) => Ending::Event(api, error),
        Some(Fault::BrokenArguments) | None => Ending::Whole,
    };
    let completion = Completion {
        answer,
        model: body["model"].as_str().unwrap_or("scripted"),
        turn: turn.number,
        thinks,
        counted,
    };
    if body["stream"] == true {
        let include_usage = body["stream_options"]["include_usage"] == true;
        let events = match api {
            Api::Chat => completion.events(include_usage),
            Api::Messages => completion.message_events(),
        };
        return sent(events, ending, "text/event-stream");
    }
    if let Ending::Event(_, error) = ending {
        return Response::new(Body::from(error));
    }
    let text = match api {
        Api::Chat => completion.whole().to_string(),
        Api::Messages => completion.whole_message().to_string(),
    };
    let middle = text.ceil_char_boundary(text.len() / 2);
    let (a, b) = text.split_at(middle);
    sent(vec![a.to_owned(), b.to_owned()], ending, "application/json")
}

/// A body of these pieces, each sent separately.
fn sent(mut pieces: Vec<String>, ending: Ending, content_type: &'static str) -> Response {
    if !matches!(ending, Ending::Whole) {
        pieces.truncate(pieces.len() / 2);
    }
    let pieces = stream::iter(pieces).then(|piece| async move {
        // Lets the connection flush, so that the pieces are sent separately.
        tokio::task::yield_now().await;
        Ok::<_, io::Error>(Bytes::from(piece))
    });
    let body = match ending {
        Ending::Event(api, error) => {
            let event = Bytes::from(api.error_event(error));
            Body::from_stream(pieces.chain(stream::once(async { Ok(event) })))
        }
        Ending::Whole => Body::from_stream(pieces),
        Ending::Stall => Body::from_stream(pieces.chain(stream::pending())),
        Ending::BreakOff => {
            let broken = stream::once(async { Err(io::Error::other("broken off by the script")) });
            Body::from_stream(pieces.chain(broken))
        }
    };
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}
