//! A project's address for git, and single files of it.

use std::time::Duration;

use agentmine_domain::{ItemRef, TrackerKind};
use base64::Engine;
use http::StatusCode;

use super::api::{Api, invalid, refused, unavailable};
use super::wire::Content;
use crate::error::TrackerError;
use crate::forge::clone_url;
use crate::item::{GitSource, Repository};

/// The largest file that is read.
const MAX_FILE: u64 = 256 << 10;
/// The user name that goes with a token. GitLab takes any.
const GIT_USER: &str = "oauth2";

impl Api {
    pub(super) async fn repository(&self, item: &ItemRef) -> Result<Repository, TrackerError> {
        let project = self.project(&item.repo_id, Duration::ZERO).await?;
        if let Some(error) = project.read_only() {
            return Err(error);
        }
        // Otherwise GitLab refuses only the finished result, with a 403 that looks like a missing permission.
        if project.lacks_merge_requests() {
            return Err(refused(format!(
                "merge requests are turned off in {}, so that no result can be reported. hint: turn them on in the project's \
                 general settings, then request the work again",
                project.path_with_namespace
            )));
        }
        let url = &project.http_url_to_repo;
        let default_branch = project.default_branch.ok_or_else(|| {
            refused(format!(
                "{} has no branch; expected a repository with a commit. hint: push a first commit",
                project.path_with_namespace
            ))
        })?;
        Ok(Repository {
            source: GitSource::Http {
                url: clone_url(TrackerKind::GitLab, url, self.client.base())?,
                user: GIT_USER.to_owned(),
                password: Some(self.token.clone().into()),
                authority: self.authority.clone(),
            },
            default_branch,
        })
    }

    pub(super) async fn file(
        &self,
        item: &ItemRef,
        branch: &str,
        path: &str,
    ) -> Result<Option<String>, TrackerError> {
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(invalid(format!("{path:?} is not a path in a repository")));
        }
        let mut url = self.project_url(&item.repo_id, &["repository", "files", path]);
        url.query_pairs_mut().append_pair("ref", branch);
        let reply = self.client.get(url).await?;
        if reply.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let content: Content = reply.ok(path)?.json()?;
        text_of(path, &content).map(Some)
    }
}

fn text_of(path: &str, content: &Content) -> Result<String, TrackerError> {
    if content.size > MAX_FILE {
        return Err(refused(format!("{path} is larger than {MAX_FILE} bytes")));
    }
    if content.encoding != "base64" {
        return Err(unavailable(format!("{path}: an unknown encoding")));
    }
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(&content.content)
        .map_err(|error| unavailable(format!("{path}: bad base64: {error}")))?;
    String::from_utf8(bytes).map_err(|_| refused(format!("{path} is not UTF-8")))
}
