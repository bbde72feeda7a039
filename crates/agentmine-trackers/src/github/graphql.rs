//! What is sent to GitHub's GraphQL API: all of its texts, and the only way to send one.
//!
//! Guaranteed: no other text can be sent, since only this file makes a [`Text`]; a test validates each of
//! [`GRAPHQL_TEXTS`] with GitHub's own schema.

use agentmine_runtime::permit::Permit;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::api::{Api, LIMITS, refused};
use crate::error::TrackerError;
use crate::forge::{BodyFault, Call};

/// How GitHub begins the message of a query that it broke off, mostly for its time.
const BROKEN_OFF: &str = "Something went wrong while executing your query";

/// A query or mutation of this file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text(&'static str);

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub(super) const $name: Text = Text($text);)*

        /// Every text that is sent to GraphQL, with its name.
        pub const GRAPHQL_TEXTS: &[(&str, &str)] = &[$((stringify!($name), $text)),*];
    };
}

texts! {
    /// Our own account, for a token that has no user.
    VIEWER = "query { viewer { login } }";

    /// The edits of an issue or a pull request, the newest first.
    EDITS = "\
query($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) {
    issueOrPullRequest(number: $number) {
      ... on Issue { ...edits }
      ... on PullRequest { ...edits }
    }
  }
}
fragment edits on Comment {
  lastEditedAt
  editor { __typename login }
  userContentEdits(first: 100) { nodes { editedAt editor { __typename login } } }
}
";

    /// The threads on lines of a pull request.
    THREADS = "\
query($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      reviewThreads(first: 100, after: $after) {
        pageInfo { hasNextPage endCursor }
        nodes { id isResolved comments(first: 1) { nodes { databaseId } } }
      }
    }
  }
}
";

    /// Resolves a thread.
    RESOLVE = "\
mutation($thread: ID!) {
  resolveReviewThread(input: { threadId: $thread }) { thread { id isResolved } }
}
";

    /// Whether a branch exists, and whether its protection lets us push.
    UPDATES = "\
query($owner: String!, $name: String!, $branch: String!) {
  repository(owner: $owner, name: $name) {
    ref(qualifiedName: $branch) { refUpdateRule { pattern viewerCanPush } }
  }
}
";

    /// Marks a draft as ready for review.
    READY = "\
mutation($pull: ID!) {
  markPullRequestReadyForReview(input: { pullRequestId: $pull }) { pullRequest { id isDraft } }
}
";
}

impl Api {
    /// The answer to a query about the repository `path`; it may hold errors. An App's installation sees the
    /// repositories of its owner alone.
    pub(super) async fn ask_graphql<T: serde::de::DeserializeOwned>(
        &self,
        (text, variables): (Text, Value),
        path: Option<&str>,
        what: &str,
    ) -> Result<T, TrackerError> {
        let body = json!({ "query": text.0, "variables": variables });
        let mut call = Call::query(self.graphql()).json(&body).fault_in(fault_in);
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
        let body = json!({ "query": text.0, "variables": variables });
        let call = Call::write(Method::POST, self.graphql(), permit)
            .json(&body)
            .fault_in(fault_in)
            .within(format!("repos/{path}"));
        let answer: Value = self.client.send(&call).await?.ok(what)?.json()?;
        match answer["errors"][0]["message"].as_str() {
            Some(said) => Err(refused(format!("{what}: {said:.300}"))),
            None => Ok(()),
        }
    }

    /// The address of the GraphQL API.
    fn graphql(&self) -> Url {
        let mut url = self.client.url(["graphql"]);
        if let Some(root) = self.client.base().path().strip_suffix("/v3/") {
            url.set_path(&format!("{root}/graphql"));
        }
        url
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
