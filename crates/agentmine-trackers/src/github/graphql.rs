//! What is sent to GitHub's GraphQL API: all of its texts.
//!
//! Guaranteed: no other text can be sent by `graphql_calls`, since only this file makes a [`Text`]; a test validates each of
//! [`GRAPHQL_TEXTS`] with GitHub's own schema.

/// A query or mutation of this file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text(&'static str);

impl Text {
    pub(super) fn as_str(self) -> &'static str {
        self.0
    }
}

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
        nodes { id isResolved comments(first: 1) { nodes { fullDatabaseId } } }
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
