//! What the token allows, for a person who sets the fleet up.

use serde::Deserialize;

use super::api::Api;
use super::wire::User;
use crate::error::TrackerError;
use crate::forge::{Call, MOST_ASKED, lacks, refusal};
use crate::item::Access;

/// A Developer may push and open merge requests.
const DEVELOPER: u32 = 30;

#[derive(Debug, Deserialize)]
struct Token {
    scopes: Vec<String>,
}

/// What a project says of our permissions.
#[derive(Debug, Deserialize)]
pub(super) struct Allowed {
    #[serde(default)]
    permissions: Option<Permissions>,
}

#[derive(Debug, Deserialize)]
struct Permissions {
    project_access: Option<Level>,
    group_access: Option<Level>,
}

#[derive(Debug, Deserialize)]
struct Level {
    access_level: u32,
}

impl Allowed {
    /// Our access level; `None`: the server says nothing of it, as to an administrator.
    pub(super) fn level(&self) -> Option<u32> {
        self.permissions.as_ref().and_then(Permissions::level)
    }
}

impl Permissions {
    /// `None`: the server says nothing of it, as to an administrator.
    fn level(&self) -> Option<u32> {
        let levels = [&self.project_access, &self.group_access];
        levels.into_iter().flatten().map(|it| it.access_level).max()
    }
}

impl Api {
    pub(super) async fn access(&self, projects: &[String]) -> Result<Access, TrackerError> {
        let call = Call::get(self.client.url(["user"]));
        let reply = self.client.send(&call).await?.ok("the token's user")?;
        let mut access = Access {
            login: reply.json::<User>()?.username,
            scopes: self.scopes().await?,
            missing: Vec::new(),
            server_time: reply.server_time(),
        };
        if lacks(access.scopes.as_deref(), &["api"]) {
            access.missing.push(
                "the token has no scope `api`. hint: make one with `api` and `write_repository`"
                    .into(),
            );
        }
        for path in projects.iter().take(MOST_ASKED) {
            access.missing.extend(self.refusal_of(path).await?);
        }
        Ok(access)
    }

    /// The token's scopes; tokens of OAuth and old servers name none.
    async fn scopes(&self) -> Result<Option<Vec<String>>, TrackerError> {
        let url = self.client.url(["personal_access_tokens", "self"]);
        let reply = match self.client.get(url).await {
            Ok(reply) => reply,
            Err(TrackerError::Unauthorized { .. } | TrackerError::Forbidden { .. }) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        match reply.status.is_success() {
            true => Ok(reply.json::<Token>().ok().map(|token| token.scopes)),
            false => Ok(None),
        }
    }

    /// Why the fleet cannot work on a project.
    async fn refusal_of(&self, path: &str) -> Result<Option<String>, TrackerError> {
        let reply = self.client.get(self.project_url(path, &[])).await;
        let reply = reply.and_then(|reply| reply.ok(&format!("project {path}")));
        match reply.and_then(|reply| reply.json::<Allowed>()) {
            Ok(allowed) => {
                let level = allowed.level();
                Ok(level.is_some_and(|level| level < DEVELOPER).then(|| {
                    format!("the token's user is not a Developer of {path}. hint: give it at least that role")
                }))
            }
            Err(error) => refusal(
                path,
                error,
                format!(
                    "{path} does not exist, or the token may not see it. hint: correct {}.projects, or give the token access",
                    self.section
                ),
            ),
        }
    }
}
