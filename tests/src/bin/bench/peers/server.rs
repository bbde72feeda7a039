//! A model server that forwards each request of an agent's loop to the task that it belongs to.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use bytes::Bytes;
use http::{StatusCode, Uri, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::api::{Api, Reply};

/// Maximum size of a request, in bytes.
const MAX_BODY: usize = 64 << 20;

/// A request of a task's agent.
pub(crate) struct Asked {
    pub(crate) at: Instant,
    /// The names of the tools that it offers.
    pub(crate) tools: Vec<String>,
    pub(crate) reply: oneshot::Sender<(usize, Reply)>,
}

type Tasks = Arc<Mutex<HashMap<String, mpsc::UnboundedSender<Asked>>>>;

/// The running server. It stops when this is dropped.
pub(crate) struct ModelServer {
    address: SocketAddr,
    tasks: Tasks,
    serving: JoinHandle<()>,
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl ModelServer {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let tasks = Tasks::default();
        let router = Router::new()
            .fallback(answer)
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .with_state(Arc::clone(&tasks));
        let serving = tokio::spawn(async move {
            // It serves until the task is aborted.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self {
            address,
            tasks,
            serving,
        })
    }

    /// The base URL of one task, without a version, and its requests.
    pub(crate) fn open(&self) -> (String, mpsc::UnboundedReceiver<Asked>) {
        let (send, receive) = mpsc::unbounded_channel();
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let id = tasks.len().to_string();
        let url = format!("http://{}/{id}", self.address);
        tasks.insert(id, send);
        (url, receive)
    }
}

async fn answer(State(tasks): State<Tasks>, uri: Uri, body: Bytes) -> Response {
    let at = Instant::now();
    let path = uri.path();
    let Some(api) = Api::of(path) else {
        // Lists of models, telemetry: none of it is needed.
        return (StatusCode::NOT_FOUND, Json(json!({}))).into_response();
    };
    let Ok(request) = serde_json::from_slice::<Value>(&body) else {
        return (StatusCode::BAD_REQUEST, "the body is not JSON").into_response();
    };
    let tools = api.tools(&request);
    if tools.is_empty() {
        // A request for a title, for instance: no step of the agent.
        return stream(api.events(&Reply::Text("Add files"), 0));
    }
    let task = path.split('/').nth(1).unwrap_or_default();
    let task = {
        let tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.get(task).cloned()
    };
    let (reply, replied) = oneshot::channel();
    let sent = task.is_some_and(|task| task.send(Asked { at, tools, reply }).is_ok());
    match replied.await {
        Ok((id, reply)) if sent => stream(api.events(&reply, id)),
        _ => (StatusCode::GONE, Json(json!({}))).into_response(),
    }
}

fn stream(events: String) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream")], events).into_response()
}
