//! What is sent to GitHub's GraphQL API: all of its texts, and the only way to send one.
//!
//! Guaranteed: no other text can be sent, since only this file makes a [`Text`]; a test validates each of
//! [`GRAPHQL_TEXTS`] with GitHub's own schema.

use agentmine_runtime::permit::Permit;
use http::Method;
use serde_json::{Value, json};
use url::Url;

use super::api::{Api, refused};
use crate::error::TrackerError;
use crate::forge::Call;

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
        let mut call = Call::query(self.graphql()).json(&body);
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
