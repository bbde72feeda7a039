//! The only way to send a text to GitHub's GraphQL API.

use agentmine_runtime::permit::Permit;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::Api;
use super::fault::{LIMITS, refused};
use super::graphql::Text;
use crate::error::TrackerError;
use crate::forge::{BodyFault, Call};

/// How GitHub begins the message of a query that it broke off, mostly for its time.
const BROKEN_OFF: &str = "Something went wrong while executing your query";

impl Api {
    /// The answer to a query about the repository `path`; it may hold errors. An App's installation sees the
    /// repositories of its owner alone.
    pub(super) async fn ask_graphql<T: serde::de::DeserializeOwned>(
        &self,
        (text, variables): (Text, Value),
        path: Option<&str>,
        what: &str,
    ) -> Result<T, TrackerError> {
        let body = json!({ "query": text.as_str(), "variables": variables });
        let mut call = Call::query(self.client.graphql("v3"))
            .json(&body)
            .fault_in(fault_in);
        if let Some(path) = path {
            call = call.within(format!("repos/{path}"));
        }
        self.client.send(&call).await?.ok(what)?.json()
    }

    /// Changes something in the repository `path`.
    pub(super) async fn change_by_graphql(
        &self,
        (text, variables): (Text, Value),
        path: &str,
        what: &str,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let body = json!({ "query": text.as_str(), "variables": variables });
        let call = Call::write(Method::POST, self.client.graphql("v3"), permit)
            .json(&body)
            .fault_in(fault_in)
            .within(format!("repos/{path}"));
        let answer: Value = self.client.send(&call).await?.ok(what)?.json()?;
        match answer["errors"][0]["message"].as_str() {
            Some(said) => Err(refused(format!("{what}: {said:.300}"))),
            None => Ok(()),
        }
    }
}

/// The errors of an answer, which has the status 200 whatever happened.
#[derive(Deserialize)]
struct Errors {
    errors: Option<Vec<ErrorOf>>,
}

#[derive(Deserialize)]
struct ErrorOf {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    message: String,
    /// What is wrong with a query by its schema.
    extensions: Option<Value>,
}

/// What the errors of an answer mean, if they are no final refusal as `NOT_FOUND` and `FORBIDDEN` are.
fn fault_in(body: &[u8]) -> Option<BodyFault> {
    let errors = serde_json::from_slice::<Errors>(body).ok()?.errors?;
    let is_limit = |error: &ErrorOf| {
        let kind = error.kind.as_deref();
        matches!(kind, Some("RATE_LIMITED" | "RATE_LIMIT")) || LIMITS.is_announced(&error.message)
    };
    let may_pass = |error: &ErrorOf| {
        let is_named = error.kind.is_some() || error.extensions.is_some();
        !is_named || error.message.starts_with(BROKEN_OFF)
    };
    if errors.iter().any(is_limit) {
        return Some(BodyFault::Limited);
    }
    (!errors.is_empty() && errors.iter().all(may_pass)).then_some(BodyFault::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_limits_failures_or_refusals() {
        let read = |errors: Value| fault_in(json!({ "errors": errors }).to_string().as_bytes());
        let (limited, failed) = (Some(BodyFault::Limited), Some(BodyFault::Failed));
        let typed = |kind: &str| read(json!([{ "type": kind, "message": "x" }]));
        assert_eq!(typed("RATE_LIMITED"), limited);
        assert_eq!(typed("RATE_LIMIT"), limited);
        assert_eq!(typed("NOT_FOUND"), None);
        assert_eq!(typed("FORBIDDEN"), None);
        let said = "You have exceeded a secondary rate limit. Please wait.";
        assert_eq!(read(json!([{ "message": said }])), limited);
        assert_eq!(read(json!([{ "message": "x" }])), failed);
        let said = format!("{BROKEN_OFF}. This may be the result of a timeout.");
        assert_eq!(read(json!([{ "type": "X", "message": said }])), failed);
        assert_eq!(
            read(json!([{ "message": "x" }, { "type": "FORBIDDEN", "message": "y" }])),
            None
        );
        let code = json!({ "code": "undefinedField" });
        assert_eq!(read(json!([{ "message": "x", "extensions": code }])), None);
        assert_eq!(read(json!([])), None);
        assert_eq!(read(Value::Null), None);
        assert_eq!(fault_in(br#"{"data":{}}"#), None);
        assert_eq!(fault_in(b"no JSON"), None);
    }
}
