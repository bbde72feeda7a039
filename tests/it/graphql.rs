//! Every text that is sent to GitHub's GraphQL API, validated with its own schema (`@octokit/graphql-schema`).

use std::collections::BTreeMap;
use std::path::Path;

use agentmine_trackers::github::GRAPHQL_TEXTS;

use crate::forge_clients::node;

/// What a validator says that nobody here wrote.
async fn validated(texts: &BTreeMap<&str, String>) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("texts.json");
    std::fs::write(&file, serde_json::to_string(texts).unwrap()).unwrap();
    node("graphql.mjs", &[file.to_str().unwrap()], Path::new("")).await
}

fn texts() -> BTreeMap<&'static str, String> {
    let texts = GRAPHQL_TEXTS.iter();
    texts
        .map(|(name, text)| (*name, (*text).to_owned()))
        .collect()
}

#[tokio::test]
async fn every_graphql_text_fits_the_schema_of_github() {
    let texts = texts();
    assert!(texts.len() >= 5, "{texts:?}");
    assert_eq!(validated(&texts).await.unwrap(), texts.len().to_string());
}

/// The validator notices a field that does not exist, a variable of a wrong type, and one that is missing.
#[tokio::test]
async fn a_broken_graphql_text_is_noticed() {
    for (name, part, broken) in [
        ("THREADS", "isResolved", "isSolved"),
        ("EDITS", "$number: Int!", "$number: String!"),
        ("RESOLVE", "{ threadId: $thread }", "{}"),
        (
            "READY",
            "markPullRequestReadyForReview",
            "markPullRequestReady",
        ),
        ("VIEWER", "login", "logon"),
    ] {
        let mut texts = texts();
        let text = texts.get_mut(name).unwrap();
        assert!(text.contains(part), "{text}");
        *text = text.replace(part, broken);
        let said = validated(&texts).await.unwrap_err();
        assert!(said.contains(&format!("{name}: ")), "{said}");
    }
}
