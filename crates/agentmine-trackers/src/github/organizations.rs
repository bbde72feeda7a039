//! The repositories of organizations: listed again at intervals, so that a new one is found and a removed one is omitted.
//!
//! A token sees what its user sees. An App sees the repositories of its installation in the organization, which may be
//! fewer. Left out are repositories that cannot be worked on: archived and disabled ones, and those without issues,
//! whose lists the API refuses.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::api::{Api, Credentials, split_path};
use super::fault::invalid;
use super::wire::Repo;
use crate::error::TrackerError;
use crate::forge::{Found, KeptList, Lists, Reply, concerns_one};

/// Where a repository is looked for that nobody has listed yet, its organization is listed again after this time.
const SOONEST: Duration = Duration::from_secs(30);

/// A repository of a list.
#[derive(Debug, Deserialize)]
struct Listed {
    #[serde(flatten)]
    repo: Repo,
    #[serde(default)]
    archived: bool,
    #[serde(default)]
    disabled: bool,
    #[serde(default = "yes")]
    has_issues: bool,
}

fn yes() -> bool {
    true
}

impl Listed {
    fn takes_work(&self) -> bool {
        !self.archived && !self.disabled && self.has_issues
    }
}

/// A page of an installation's repositories.
#[derive(Debug, Deserialize)]
struct OfInstallation {
    repositories: Vec<Value>,
}

impl Api {
    /// The repositories of an organization that can be worked on.
    pub(super) async fn repositories_of(
        &self,
        kept: &Lists<Repo>,
        organization: &str,
    ) -> Result<Vec<Repo>, TrackerError> {
        let what = named(organization);
        let of_app = matches!(self.credentials, Credentials::App(_));
        let own = ["orgs", organization, "repos"];
        let mut first = match of_app {
            true => self.client.url(["installation", "repositories"]),
            false => self.client.url(own),
        };
        if !of_app {
            // A new repository changes the first page, and with it every page's address of the next one.
            first
                .query_pairs_mut()
                .append_pair("sort", "created")
                .append_pair("direction", "desc");
        }
        first.query_pairs_mut().append_pair("per_page", "100");
        let list = KeptList {
            first,
            what: &what,
            of: organization,
            // The address does not say whose installation is requested.
            within: of_app.then(|| own.join("/")),
        };
        let repos = |reply: &Reply| {
            let found = match of_app {
                true => reply.json::<OfInstallation>()?.repositories,
                false => reply.json()?,
            };
            let found = self.client.fitting::<Listed>(found, &what).into_iter();
            let own = found.filter(|it| {
                let parts = split_path(&it.repo.full_name);
                it.takes_work()
                    && parts.is_ok_and(|(owner, _)| owner.eq_ignore_ascii_case(organization))
            });
            Ok(own.map(|it| it.repo).collect())
        };
        let listed = self.client.kept_list(kept, list, repos).await?;
        Ok(listed
            .pages
            .iter()
            .flat_map(|page| page.iter())
            .cloned()
            .collect())
    }
}

/// The organizations whose repositories are scanned.
#[derive(Debug)]
pub(super) struct Organizations {
    names: Vec<String>,
    every: Duration,
    lists: Lists<Repo>,
    known: Mutex<BTreeMap<String, Known>>,
}

/// The repositories of an organization.
#[derive(Debug)]
struct Known {
    at: Instant,
    paths: Vec<String>,
}

impl Organizations {
    pub(super) fn new(names: &[String], every: Duration) -> Result<Self, TrackerError> {
        for name in names {
            // As the owner of a repository.
            if split_path(&format!("{name}/x")).is_err() {
                let detail = format!("{name:?} is not an organization. hint: write its login name");
                return Err(invalid(detail));
            }
        }
        Ok(Self {
            names: names.to_vec(),
            every,
            lists: Lists::default(),
            known: Mutex::default(),
        })
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether a repository with this path is of one of them.
    pub(super) fn may_contain(&self, path: &str) -> bool {
        let owner = path.split('/').next().unwrap_or_default();
        self.names
            .iter()
            .any(|name| name.eq_ignore_ascii_case(owner))
    }

    /// The paths of their repositories, listed again where that is due. An organization that cannot be listed stops no
    /// other one.
    ///
    /// # Errors
    /// What concerns more than one organization.
    pub(super) async fn repositories(
        &self,
        api: &Api,
        found: &mut Found<'_>,
    ) -> Result<Vec<String>, TrackerError> {
        for name in &self.names {
            if self.age(name).is_none_or(|age| age >= self.every) {
                self.list(api, name, found).await?;
            }
        }
        let known = self.known();
        Ok(known.values().flat_map(|it| it.paths.clone()).collect())
    }

    /// Whether a path is that of one of their repositories. One that is not known is looked for in its organization.
    ///
    /// # Errors
    /// What concerns more than the organization.
    pub(super) async fn contain(
        &self,
        api: &Api,
        path: &str,
        found: &mut Found<'_>,
    ) -> Result<bool, TrackerError> {
        let owner = path.split('/').next().unwrap_or_default();
        let mut names = self.names.iter();
        let Some(name) = names.find(|name| name.eq_ignore_ascii_case(owner)) else {
            return Ok(false);
        };
        if !self.knows(name, path)
            && self
                .age(name)
                .is_none_or(|age| age >= SOONEST.min(self.every))
        {
            self.list(api, name, found).await?;
        }
        Ok(self.knows(name, path))
    }

    async fn list(&self, api: &Api, name: &str, found: &mut Found<'_>) -> Result<(), TrackerError> {
        let url = api.client.url(["orgs", name, "repos"]);
        let list = api.repositories_of(&self.lists, name);
        let (holder, listed) = api.unless_limited(url, found, list).await;
        let now = match listed {
            Ok(repos) => {
                found.readable(&named(name));
                found.readable(&named_repositories(name));
                let at = Instant::now();
                let paths = repos.iter().map(|repo| repo.full_name.clone()).collect();
                repos.into_iter().for_each(|repo| api.learn(repo));
                Some(Known { at, paths })
            }
            Err(error) => {
                let is_gone = concerns_one(&error);
                found.add(holder, &named(name), Err(error))?;
                if !is_gone {
                    // The server may be away for a moment: what was listed before is scanned.
                    return Ok(());
                }
                None
            }
        };
        let mut known = self.known();
        let before = known.remove(name).map_or_else(Vec::new, |it| it.paths);
        let left_out = |path: &&String| now.as_ref().is_none_or(|now| !now.paths.contains(path));
        // What is not scanned any more is no fault of the scan.
        before
            .iter()
            .filter(left_out)
            .for_each(|path| found.readable(path));
        known.extend(now.map(|now| (name.to_owned(), now)));
        Ok(())
    }

    fn knows(&self, name: &str, path: &str) -> bool {
        let known = self.known();
        let mut paths = known.get(name).into_iter().flat_map(|it| &it.paths);
        paths.any(|own| own.eq_ignore_ascii_case(path))
    }

    fn age(&self, name: &str) -> Option<Duration> {
        self.known().get(name).map(|it| it.at.elapsed())
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn named(organization: &str) -> String {
    format!("organization {organization}")
}

/// What the fault of an owner's limit is reported by.
pub(super) fn named_repositories(owner: &str) -> String {
    format!("repositories of {owner}")
}
