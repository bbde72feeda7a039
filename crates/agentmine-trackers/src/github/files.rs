//! A repository's address for git, and single files of it.

use agentmine_domain::{ItemRef, TrackerKind};
use base64::Engine;
use http::StatusCode;
use serde_json::Value;

use super::api::{Api, Credentials};
use super::fault::{invalid, refused, unavailable};
use super::wire::Content;
use crate::error::TrackerError;
use crate::forge::clone_url;
use crate::item::{GitSource, Repository};

/// The largest file that is read.
const MAX_FILE: u64 = 256 << 10;

impl Api {
    pub(super) async fn repository(&self, item: &ItemRef) -> Result<Repository, TrackerError> {
        self.forget(&item.repo_path);
        let repo = self.repo_of(item).await?;
        if repo.archived {
            let tracker = TrackerKind::GitHub;
            let what = repo.full_name;
            return Err(TrackerError::archived(tracker, what));
        }
        if repo.lacks_pull_requests() {
            return Err(refused(format!(
                "pull requests are turned off in {}, so that no result can be reported. hint: turn them on in the \
                 repository's settings, then request the work again",
                repo.full_name
            )));
        }
        Ok(Repository {
            source: GitSource::Http {
                url: clone_url(TrackerKind::GitHub, &repo.clone_url, self.client.base())?,
                user: "x-access-token".to_owned(),
                password: Some(match &self.credentials {
                    Credentials::Token(token) => token.clone().into(),
                    Credentials::App(app) => app.git_token(&repo.full_name).await?,
                }),
                authority: self.authority.clone(),
            },
            default_branch: repo.default_branch,
        })
    }

    pub(super) async fn file(
        &self,
        item: &ItemRef,
        branch: &str,
        path: &str,
    ) -> Result<Option<String>, TrackerError> {
        let segments: Vec<&str> = path.split('/').collect();
        if segments.iter().any(|part| matches!(*part, "" | "." | "..")) {
            return Err(invalid(format!("{path:?} is not a path in a repository")));
        }
        let mut all = vec!["contents"];
        all.extend(segments);
        let repo = self.repo_of(item).await?;
        let mut url = self.repo_url(&repo.full_name, &all)?;
        url.query_pairs_mut().append_pair("ref", branch);
        let reply = self.client.get(url).await?;
        if reply.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let value: Value = reply.ok(path)?.json()?;
        if value.is_array() {
            return Ok(None);
        }
        let content = serde_json::from_value(value)
            .map_err(|error| unavailable(format!("{path}: unexpected JSON: {error}")))?;
        text_of(path, content)
    }
}

fn text_of(path: &str, content: Content) -> Result<Option<String>, TrackerError> {
    if content.kind != "file" {
        return Ok(None);
    }
    if content.size > MAX_FILE || content.encoding != "base64" {
        return Err(refused(format!("{path} is larger than {MAX_FILE} bytes")));
    }
    let packed: String = content.content.split_whitespace().collect();
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(packed)
        .map_err(|error| unavailable(format!("{path}: bad base64: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|_| refused(format!("{path} is not UTF-8")))?;
    Ok(Some(text))
}
