//! Answers a server's requests.
//!
//! A capability is declared only if it is implemented: roots and sampling if the configuration allows them,
//! elicitation if the [`Elicitation`] takes questions. Other requests except `ping` get "method not found".

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::ErrorData;
use rmcp::model::ErrorCode;
use serde_json::{Value, json};

use super::options::ConnectOptions;
use crate::ask::{Answer, Elicitation, Question, SamplingHandler};
use crate::text::shortened;

/// Questions of one server at the same time.
const MAX_QUESTIONS: usize = 16;

pub(super) struct RequestHandler {
    server: String,
    roots: Option<Vec<(String, String)>>,
    sampling: Option<Arc<dyn SamplingHandler>>,
    elicitation: Option<Arc<dyn Elicitation>>,
    open: AtomicUsize,
}

impl RequestHandler {
    pub(super) fn new(server: &str, options: &ConnectOptions) -> Self {
        let allowed = options.capabilities;
        let takes_questions = options.elicitation.takes_questions();
        Self {
            server: server.to_owned(),
            roots: allowed.roots.then(|| options.roots.clone()),
            sampling: options.sampling.clone().filter(|_| allowed.sampling),
            elicitation: takes_questions.then(|| options.elicitation.clone()),
            open: AtomicUsize::new(0),
        }
    }

    /// The capabilities that are announced to the server.
    pub(super) fn capabilities(&self) -> Value {
        let declared = [
            ("roots", self.roots.as_ref().map(|_| json!({}))),
            ("sampling", self.sampling.as_ref().map(|_| json!({}))),
            (
                "elicitation",
                self.elicitation
                    .as_ref()
                    .map(|_| json!({"form": {}, "url": {}})),
            ),
        ];
        let declared = declared.into_iter();
        declared
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect()
    }

    /// Whether a person or a model is working on an answer.
    pub(super) fn is_busy(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Answers a request with its `method` and `params`.
    pub(super) async fn answer_request(&self, request: &Value) -> Result<Value, ErrorData> {
        let params = request["params"].clone();
        let method = request["method"].as_str().unwrap_or_default();
        let unknown = || {
            let method = shortened(method);
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None)
        };
        match method {
            "ping" => Ok(json!({})),
            "roots/list" => {
                let roots = self.roots.as_ref().ok_or_else(unknown)?.iter();
                let roots: Vec<Value> = roots
                    .map(|(uri, name)| json!({"uri": uri, "name": name}))
                    .collect();
                Ok(json!({ "roots": roots }))
            }
            "sampling/createMessage" => {
                let sampling = self.sampling.as_ref().ok_or_else(unknown)?;
                let _open = self.open()?;
                let made = sampling.create(&self.server, params).await;
                // The code that the protocol gives for a user's rejection.
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
    let wrong = |words: &'static str| ErrorData::invalid_params(words, None);
    let message = shortened(params["message"].as_str().unwrap_or_default());
    match params["mode"].as_str() {
        None | Some("form") => match &params["requestedSchema"] {
            schema @ Value::Object(_) => Ok(Question::Form {
                message,
                schema: schema.clone(),
            }),
            _ => Err(wrong("requestedSchema is not an object")),
        },
        Some("url") => match params["url"].as_str() {
            Some(url) => Ok(Question::Url {
                message,
                url: url.to_owned(),
            }),
            None => Err(wrong("url is missing")),
        },
        Some(_) => Err(wrong("mode is neither form nor url")),
    }
}
