//! Answers what a server asks of us.
//!
//! Told to a server as a capability, and answered, is only what somebody stands behind: roots and
//! sampling where the configuration says so, elicitation where the [`Elicitation`] takes questions.
//! All else but `ping` is "method not found". So is, in the stateless era, every request that does
//! not come as part of a result: that era has none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::ErrorData;
use rmcp::model::{ClientCapabilities, ErrorCode};
use serde_json::{Map, Value, json};

use super::ConnectOptions;
use crate::ask::{Answer, Elicitation, Question, SamplingHandler};
use crate::output::shortened;

/// Questions of one server at the same time.
const MAX_QUESTIONS: usize = 16;

pub(crate) struct Desk {
    server: String,
    roots: Option<Vec<(String, String)>>,
    sampling: Option<Arc<dyn SamplingHandler>>,
    elicitation: Option<Arc<dyn Elicitation>>,
    open: AtomicUsize,
}

impl Desk {
    pub(crate) fn new(server: &str, options: &ConnectOptions) -> Self {
        let said = options.capabilities;
        let takes_questions = options.elicitation.takes_questions();
        Self {
            server: server.to_owned(),
            roots: said.roots.then(|| options.roots.clone()),
            sampling: options.sampling.clone().filter(|_| said.sampling),
            elicitation: takes_questions.then(|| options.elicitation.clone()),
            open: AtomicUsize::new(0),
        }
    }

    /// What a server is told that it may ask.
    pub(crate) fn declared(&self) -> ClientCapabilities {
        let mut said = Map::new();
        if self.roots.is_some() {
            said.insert("roots".into(), json!({}));
        }
        if self.sampling.is_some() {
            said.insert("sampling".into(), json!({}));
        }
        if self.elicitation.is_some() {
            said.insert("elicitation".into(), json!({"form": {}, "url": {}}));
        }
        serde_json::from_value(Value::Object(said)).unwrap_or_default()
    }

    /// Whether an answer is being waited for, by a person or a model.
    pub(crate) fn busy(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    pub(crate) async fn answer(&self, method: &str, params: Value) -> Result<Value, ErrorData> {
        let unknown = || {
            let method = shortened(method);
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None)
        };
        match method {
            "ping" => Ok(json!({})),
            "roots/list" => {
                let roots = self.roots.as_ref().ok_or_else(unknown)?;
                let roots: Vec<Value> = roots
                    .iter()
                    .map(|(uri, name)| json!({"uri": uri, "name": name}))
                    .collect();
                Ok(json!({ "roots": roots }))
            }
            "sampling/createMessage" => {
                let sampling = self.sampling.as_ref().ok_or_else(unknown)?;
                let _open = self.open()?;
                let made = sampling.create(&self.server, params).await;
                // The code that the specification gives for a person's no.
                made.map_err(|words| ErrorData::new(ErrorCode(-1), words, None))
            }
            "elicitation/create" => {
                let elicitation = self.elicitation.as_ref().ok_or_else(unknown)?;
                let question = question(&params)?;
                let _open = self.open()?;
                Ok(match elicitation.ask(&self.server, question).await {
                    Answer::Accept(content @ Value::Object(_)) => {
                        json!({"action": "accept", "content": content})
                    }
                    Answer::Accept(_) => json!({"action": "accept"}),
                    Answer::Decline => json!({"action": "decline"}),
                    Answer::Cancel => json!({"action": "cancel"}),
                })
            }
            _ => Err(unknown()),
        }
    }

    fn open(&self) -> Result<Open<'_>, ErrorData> {
        let open = Open(&self.open);
        if self.open.fetch_add(1, Ordering::Relaxed) >= MAX_QUESTIONS {
            let words = format!("more than {MAX_QUESTIONS} questions at the same time");
            return Err(ErrorData::new(ErrorCode(-32000), words, None));
        }
        Ok(open)
    }
}

/// A question without an answer yet.
struct Open<'a>(&'a AtomicUsize);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn question(params: &Value) -> Result<Question, ErrorData> {
    let text = |key: &str| params.get(key).and_then(Value::as_str);
    let wrong = |words: &str| ErrorData::new(ErrorCode::INVALID_PARAMS, words.to_owned(), None);
    let message = shortened(text("message").unwrap_or_default());
    match text("mode") {
        None | Some("form") => {
            let schema = params
                .get("requestedSchema")
                .filter(|schema| schema.is_object());
            let schema = schema
                .ok_or_else(|| wrong("requestedSchema is no object"))?
                .clone();
            Ok(Question::Form { message, schema })
        }
        Some("url") => {
            let url = text("url")
                .ok_or_else(|| wrong("url is missing"))?
                .to_owned();
            Ok(Question::Url { message, url })
        }
        Some(_) => Err(wrong("mode is neither form nor url")),
    }
}
