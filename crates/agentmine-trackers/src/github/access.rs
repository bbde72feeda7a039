//! What the token allows, for a person who sets the fleet up.
//!
//! Only classic tokens name their scopes. Of the others, each repository says what they may do with it.

use agentmine_domain::TrackerKind;
use serde::Deserialize;

use super::api::{Api, Credentials};
use super::wire::User;
use crate::error::TrackerError;
use crate::forge::{Call, Lists, MOST_ASKED, lacks, refusal};
use crate::item::Access;

#[derive(Debug, Deserialize)]
struct Allowed {
    #[serde(default)]
    permissions: Option<Permissions>,
}

#[derive(Debug, Deserialize)]
struct Permissions {
    push: bool,
}

impl Api {
    pub(super) async fn access(
        &self,
        repositories: &[String],
        organizations: &[String],
    ) -> Result<Access, TrackerError> {
        let mut access = self.of_token().await?;
        for path in repositories.iter().take(MOST_ASKED) {
            access.missing.extend(self.refusal_of(path).await?);
        }
        for name in organizations.iter().take(MOST_ASKED) {
            access
                .missing
                .extend(self.organization_refusal(name).await?);
        }
        Ok(access)
    }

    /// What the token itself says.
    async fn of_token(&self) -> Result<Access, TrackerError> {
        if let Credentials::App(_) = &self.credentials {
            return Ok(Access {
                login: self.ask_login().await?,
                ..Access::default()
            });
        }
        let call = Call::get(self.client.url(["user"]));
        let mut access = match self.client.send(&call).await {
            Ok(reply) => {
                let reply = reply.ok("the token's user")?;
                let scopes = reply.headers.get("x-oauth-scopes");
                let scopes = scopes.and_then(|it| it.to_str().ok()).map(scopes_of);
                Access {
                    login: reply.json::<User>()?.login,
                    scopes: scopes.filter(|scopes| !scopes.is_empty()),
                    missing: Vec::new(),
                    server_time: reply.server_time(),
                }
            }
            // An App's installation token has no user.
            Err(TrackerError::Forbidden { .. }) => Access {
                login: self.ask_login().await?,
                ..Access::default()
            },
            Err(error) => return Err(error),
        };
        if lacks(access.scopes.as_deref(), &["repo", "public_repo"]) {
            access
                .missing
                .push("the token has no scope `repo`. hint: make one that has it".into());
        }
        Ok(access)
    }

    /// Why the repositories of an organization cannot be found.
    async fn organization_refusal(&self, name: &str) -> Result<Option<String>, TrackerError> {
        match self.repositories_of(&Lists::default(), name).await {
            Ok(found) if found.is_empty() => Ok(Some(format!(
                "the organization {name} has no repository that can be worked on. hint: give the token access to its repositories"
            ))),
            Ok(_) => Ok(None),
            Err(error) => refusal(
                &format!("the organization {name}"),
                error,
                format!(
                    "the organization {name} does not exist on {}, or the token may not see it. hint: correct {section}.organizations; the repositories of a user are named in {section}.repositories",
                    TrackerKind::GitHub,
                    section = self.section
                ),
            ),
        }
    }

    /// Why the fleet cannot work on a repository.
    async fn refusal_of(&self, path: &str) -> Result<Option<String>, TrackerError> {
        match self.allowed(path).await {
            Ok(allowed) => {
                let refused = allowed.permissions.is_some_and(|it| !it.push);
                Ok(refused.then(|| {
                    format!("the token may not write to {path}. hint: give it read and write on Contents, Issues and Pull requests")
                }))
            }
            Err(error) => refusal(
                path,
                error,
                format!(
                    "{path} does not exist on {}, or the token may not see it. hint: correct {}.repositories, or give the token access",
                    TrackerKind::GitHub,
                    self.section
                ),
            ),
        }
    }
}

impl Api {
    /// What the token may do with a repository, whose issues it can list.
    async fn allowed(&self, path: &str) -> Result<Allowed, TrackerError> {
        let what = format!("repository {path}");
        let reply = self.client.get(self.repo_url(path, &[])?).await?;
        let allowed = reply.ok(&what)?.json()?;
        let mut issues = self.repo_url(path, &["issues"])?;
        issues.query_pairs_mut().append_pair("per_page", "1");
        let listed = self.client.get(issues).await?;
        listed.ok(&format!("the issues of {path}"))?;
        Ok(allowed)
    }
}

fn scopes_of(header: &str) -> Vec<String> {
    let scopes = header.split(',').map(str::trim);
    scopes
        .filter(|it| !it.is_empty())
        .map(ToOwned::to_owned)
        .collect()
}
