//! How the checks of all open merge requests of the bot stand, by GraphQL: 100 of them in a request. A look at one
//! of them by REST takes several requests, all of which count.

use agentmine_domain::TrackerKind;
use serde::Deserialize;
use serde_json::json;

use super::api::Api;
use crate::error::TrackerError;
use crate::forge::Call;
use crate::rounds::CheckMarks;

const AUTHORED: &str = "authoredMergeRequests(state: opened, first: 100, after: $after) { \
    pageInfo { hasNextPage endCursor } \
    nodes { iid projectId diffHeadSha conflicts mergeStatusEnum headPipeline { id status updatedAt } } }";
/// The most requests for one account.
const MOST_PAGES: usize = 50;

#[derive(Debug, Deserialize)]
struct Answer {
    data: Option<Data>,
    #[serde(default)]
    errors: Vec<Fault>,
}

#[derive(Debug, Deserialize)]
struct Fault {
    #[serde(default)]
    message: String,
}

#[derive(Debug, Deserialize)]
struct Data {
    account: Option<Account>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Account {
    authored_merge_requests: Option<Authored>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Authored {
    page_info: PageInfo,
    nodes: Vec<Option<Node>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageInfo {
    has_next_page: bool,
    end_cursor: Option<String>,
}

/// A merge request. What is not shown to the token is null.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    iid: String,
    project_id: u64,
    diff_head_sha: Option<String>,
    conflicts: Option<bool>,
    merge_status_enum: Option<String>,
    head_pipeline: Option<Pipeline>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pipeline {
    id: String,
    status: String,
    updated_at: Option<String>,
}

impl Node {
    /// A text that differs once its head, its pipeline or what is known of conflicts does.
    fn mark(&self) -> String {
        let Self {
            iid: _,
            project_id: _,
            diff_head_sha,
            conflicts,
            merge_status_enum,
            head_pipeline,
        } = self;
        let pipeline = head_pipeline
            .as_ref()
            .map(|it| (&it.id, &it.status, &it.updated_at));
        format!("{diff_head_sha:?} {conflicts:?} {merge_status_enum:?} {pipeline:?}")
    }
}

impl Api {
    /// Of the bot's open merge requests, those of its former accounts included.
    pub(super) async fn check_marks(&self) -> Result<CheckMarks, TrackerError> {
        let mut marks = CheckMarks::default();
        let former = self.former_logins.iter().map(|login| Some(login.as_str()));
        for login in std::iter::once(None).chain(former) {
            let mut after = None;
            for _ in 0..MOST_PAGES {
                let Some(page) = self.authored(login, after.as_deref()).await? else {
                    break;
                };
                for node in page.nodes.into_iter().flatten() {
                    if let Ok(number) = node.iid.parse() {
                        marks.add(node.project_id.to_string(), number, node.mark());
                    }
                }
                after = page.page_info.end_cursor;
                if !page.page_info.has_next_page || after.is_none() {
                    break;
                }
            }
        }
        Ok(marks)
    }

    /// A page of the merge requests of an account; `None` if there is no such account.
    async fn authored(
        &self,
        login: Option<&str>,
        after: Option<&str>,
    ) -> Result<Option<Authored>, TrackerError> {
        let (query, variables) = match login {
            Some(login) => (
                format!(
                    "query($login: String!, $after: String) {{ account: user(username: $login) {{ {AUTHORED} }} }}"
                ),
                json!({ "login": login, "after": after }),
            ),
            None => (
                format!("query($after: String) {{ account: currentUser {{ {AUTHORED} }} }}"),
                json!({ "after": after }),
            ),
        };
        let body = json!({ "query": query, "variables": variables });
        let call = Call::query(self.client.graphql("v4")).json(&body);
        let reply = self.client.send(&call).await?.ok("GitLab's GraphQL API")?;
        let Answer { data, errors } = reply.json()?;
        if let Some(fault) = errors.first() {
            return Err(TrackerError::Refused {
                tracker: TrackerKind::GitLab,
                detail: format!("a query of merge requests: {:.300}", fault.message),
            });
        }
        Ok(data
            .and_then(|data| data.account)
            .and_then(|account| account.authored_merge_requests))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(change: impl FnOnce(&mut Node)) -> String {
        let mut node = Node {
            iid: "1".into(),
            project_id: 2,
            diff_head_sha: Some("a".into()),
            conflicts: Some(false),
            merge_status_enum: Some("CAN_BE_MERGED".into()),
            head_pipeline: Some(Pipeline {
                id: "gid://gitlab/Ci::Pipeline/3".into(),
                status: "SUCCESS".into(),
                updated_at: Some("2026-01-01T00:00:00Z".into()),
            }),
        };
        change(&mut node);
        node.mark()
    }

    #[test]
    fn a_mark_differs_with_all_that_a_round_could_begin_for() {
        let before = node(|_| {});
        for (what, after) in [
            ("head", node(|it| it.diff_head_sha = Some("b".into()))),
            ("conflict", node(|it| it.conflicts = Some(true))),
            (
                "base",
                node(|it| it.merge_status_enum = Some("UNCHECKED".into())),
            ),
            ("no pipeline", node(|it| it.head_pipeline = None)),
            (
                "another pipeline",
                node(|it| it.head_pipeline.as_mut().unwrap().id = "4".into()),
            ),
            (
                "its outcome",
                node(|it| it.head_pipeline.as_mut().unwrap().status = "FAILED".into()),
            ),
            (
                "a job again",
                node(|it| it.head_pipeline.as_mut().unwrap().updated_at = None),
            ),
        ] {
            assert_ne!(before, after, "{what}");
        }
        assert_eq!(before, node(|_| {}));
    }
}
