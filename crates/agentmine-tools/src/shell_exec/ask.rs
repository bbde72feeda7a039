//! Asks the user, through the client, whether a command may be run.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequestParams, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, InputRequest, InputRequiredResult, ProtocolVersion,
};
use rmcp::service::{RequestContext, RoleServer};
use uuid::Uuid;

/// How long a question stays open.
const PATIENCE: Duration = Duration::from_secs(300);
/// Maximum number of open questions whose answers come with another request.
const MAX_OPEN: usize = 100;
/// The name of the question in a response that requires input.
const KEY: &str = "run";

/// The open questions whose answers come with another request.
#[derive(Default)]
pub(super) struct Questions {
    open: Mutex<HashMap<String, Question>>,
}

struct Question {
    identity: String,
    asked: Instant,
}

/// The result of a question.
pub(super) enum Answer {
    Agreed,
    /// The client must ask its user and call again.
    Later(InputRequiredResult),
    /// Why it was refused, and what to do next.
    Refused(String),
}

impl Questions {
    /// Asks whether a call may run. `identity` distinguishes it from every other call.
    pub(super) async fn ask(
        &self,
        shown: &str,
        why: &str,
        identity: &str,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Answer {
        if let Some(answer) = self.answered(identity, request) {
            return answer;
        }
        if !can_ask(context) {
            return Answer::Refused(format!(
                "{why}, so the user must agree, but this client cannot ask (it did not declare \
                 elicitation): ask the user to run it, or to allow it with --allow"
            ));
        }
        let params = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: format!("Run {shown}? Your agreement is needed because {why}."),
            // An empty form: accepting it means agreement.
            requested_schema: ElicitationSchema::new(BTreeMap::new()),
        };
        let stateless = context
            .protocol_version()
            .is_some_and(|version| version >= ProtocolVersion::NO_INITIALIZE);
        if stateless {
            return self.later(identity, params);
        }
        let asking = context
            .peer
            .create_elicitation_with_timeout(params, Some(PATIENCE));
        tokio::select! {
            answer = asking => match answer {
                Ok(result) => answer_of(&result),
                Err(error) => Answer::Refused(format!("the user could not be asked: {error}")),
            },
            () = context.ct.cancelled() => Answer::Refused("the call was cancelled".to_owned()),
        }
    }

    /// The answer in a request, if it has one.
    fn answered(&self, identity: &str, request: &CallToolRequestParams) -> Option<Answer> {
        let response = request.input_responses.as_ref()?.get(KEY)?;
        let state = request.request_state.as_ref();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let question = state.and_then(|state| open.remove(state));
        let holds = question.is_some_and(|question| {
            question.identity == identity && question.asked.elapsed() < PATIENCE
        });
        if !holds {
            // The user was not asked about this call, so the user is asked now.
            return None;
        }
        Some(match serde_json::from_value(response.clone()) {
            Ok(result) => answer_of(&result),
            Err(_) => Answer::Refused("the user's answer could not be read".to_owned()),
        })
    }

    fn later(&self, identity: &str, params: ElicitRequestParams) -> Answer {
        let state = Uuid::new_v4().to_string();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, question| question.asked.elapsed() < PATIENCE);
        if open.len() >= MAX_OPEN {
            return Answer::Refused("too many questions are open: answer those first".to_owned());
        }
        open.insert(
            state.clone(),
            Question {
                identity: identity.to_owned(),
                asked: Instant::now(),
            },
        );
        let request = InputRequest::Elicitation(ElicitRequest::new(params));
        Answer::Later(InputRequiredResult::new(
            Some([(KEY.to_owned(), request)].into()),
            Some(state),
        ))
    }
}

fn can_ask(context: &RequestContext<RoleServer>) -> bool {
    let declared = context
        .client_capabilities()
        .and_then(|capabilities| capabilities.elicitation);
    // A client that declares neither form nor URL supports forms.
    declared.is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
}

fn answer_of(result: &ElicitResult) -> Answer {
    match result.action {
        ElicitationAction::Accept => Answer::Agreed,
        _ => Answer::Refused(
            "the user did not agree: continue without it, or ask the user what to do instead"
                .to_owned(),
        ),
    }
}
