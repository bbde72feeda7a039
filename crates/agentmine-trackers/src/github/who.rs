//! Who may start work, and who changed an item's title or text.
//!
//! Only GraphQL says who edited a text. Its answer is read as hostile: what it omits counts as an edit by
//! somebody unknown.

use agentmine_domain::ItemRef;
use agentmine_runtime::config::{GitHubPermission, GitHubWhoMayStart};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::future::try_join;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Api, split_path};
use super::fault::refused;
use super::graphql::EDITS;
use super::wire::{Event, User, person_of};
use crate::error::TrackerError;
use crate::forge::{Membership, NamedPeople, Permission, admission};
use crate::people::{Admission, Edit, Person, Requested};

/// Edits that one answer lists.
const MOST_LISTED: usize = 100;

#[derive(Debug, Deserialize)]
struct Allowed {
    permission: String,
    #[serde(default)]
    role_name: String,
}

/// What is known of one person in one repository.
struct Collaborator<'a> {
    api: &'a Api,
    repo_path: &'a str,
    person: &'a Person,
    needed: GitHubPermission,
}

#[async_trait]
impl Membership for Collaborator<'_> {
    async fn is_in(&self, team: &str) -> Result<bool, TrackerError> {
        let login = self.person.login.to_lowercase();
        if let Some(members) = self.api.teams.get("", team) {
            return Ok(members.contains(&login));
        }
        let (org, slug) = split_path(team)?;
        let mut url = self.api.client.url(["orgs", org, "teams", slug, "members"]);
        url.query_pairs_mut().append_pair("per_page", "100");
        let what = format!("team {team} (or the token does not see it)");
        let members = self.api.client.list::<User>(url, &what).await?;
        let members: Vec<String> = members
            .into_iter()
            .map(|user| user.login.to_lowercase())
            .collect();
        self.api.teams.put("", team, &members);
        Ok(members.contains(&login))
    }

    async fn permission(&self) -> Result<Permission, TrackerError> {
        let needed = self.needed;
        if needed == GitHubPermission::Nobody {
            let why = "who_may_start.allow does not list this name";
            return Ok(Permission::Lacking(why.to_owned()));
        }
        let login = &self.person.login;
        let rest = ["collaborators", login, "permission"];
        let reply = self
            .api
            .client
            .get(self.api.repo_url(self.repo_path, &rest)?)
            .await?;
        let has = match reply.status {
            // No such user any more.
            StatusCode::NOT_FOUND => Allowed {
                permission: "none".to_owned(),
                role_name: String::new(),
            },
            _ => reply.ok(&format!("the permission of {login}"))?.json()?,
        };
        // `permission` maps maintain to write, and triage to read. A role of the organisation's own has another name.
        let own = level(&has.role_name).map(|level| (level, has.role_name));
        let own = own.or_else(|| level(&has.permission).map(|level| (level, has.permission)));
        Ok(match own {
            Some((own, _)) if own >= needed => Permission::Enough,
            own => {
                let own = own.map_or_else(
                    || "no permission".to_owned(),
                    |(_, name)| format!("the permission {name}"),
                );
                let needed = format!("{needed:?}").to_lowercase();
                Permission::Lacking(format!(
                    "has {own} on the repository, and {needed} is needed"
                ))
            }
        })
    }
}

fn level(name: &str) -> Option<GitHubPermission> {
    Some(match name {
        "read" => GitHubPermission::Read,
        "triage" => GitHubPermission::Triage,
        "write" => GitHubPermission::Write,
        "maintain" => GitHubPermission::Maintain,
        "admin" => GitHubPermission::Admin,
        _ => return None,
    })
}

impl Api {
    pub(super) async fn may_start(
        &self,
        rules: &GitHubWhoMayStart,
        item: &ItemRef,
        person: &Person,
    ) -> Result<Admission, TrackerError> {
        if let Some(known) = self.admissions.get(&item.repo_id, &person.login) {
            return Ok(known);
        }
        let GitHubWhoMayStart {
            permission,
            allow,
            deny,
        } = rules;
        let lists = NamedPeople {
            allowed_users: &allow.users,
            allowed_groups: &allow.teams,
            denied_users: &deny.users,
            denied_groups: &deny.teams,
        };
        let repo_path = &self.repo_of(item).await?.full_name;
        let of = Collaborator {
            api: self,
            repo_path,
            person,
            needed: *permission,
        };
        let found = admission(lists, person, &of).await?;
        self.admissions.put(&item.repo_id, &person.login, &found);
        Ok(found)
    }

    /// Who added a label by the event `trigger`; `None` if the item has no such event.
    pub(super) async fn requested(
        &self,
        item: &ItemRef,
        trigger: &str,
    ) -> Result<Option<Requested>, TrackerError> {
        let events = self.events(&self.current(item).await?).await?;
        let mut events = events.into_iter();
        let event = events.find(|event| event.id.to_string() == trigger);
        Ok(event.map(|event| Requested {
            by: event.actor.map(person_of),
            at: event.created_at,
        }))
    }

    pub(super) async fn events(&self, item: &ItemRef) -> Result<Vec<Event>, TrackerError> {
        let mut url = self.item_url(item, &["events"])?;
        url.query_pairs_mut().append_pair("per_page", "100");
        let events = self.client.list::<Value>(url, &item.to_string()).await?;
        Ok(self.client.fitting(events, &item.to_string()))
    }

    /// The changes of title and text since a moment.
    pub(super) async fn edits(
        &self,
        item: &ItemRef,
        since: DateTime<Utc>,
    ) -> Result<Vec<Edit>, TrackerError> {
        let item = &self.current(item).await?;
        let (events, of_text) = try_join(self.events(item), self.edits_of_text(item)).await?;
        let renamed = events.into_iter().filter(|event| event.event == "renamed");
        let titles = renamed.filter_map(|event| {
            Some(Edit {
                what: "title",
                by: event.actor.map(person_of),
                at: event.created_at?,
            })
        });
        let mut edits: Vec<Edit> = titles.collect();
        edits.extend(of_text);
        edits.retain(|edit| edit.at >= since);
        edits.sort_by_key(|edit| edit.at);
        Ok(edits)
    }

    async fn edits_of_text(&self, item: &ItemRef) -> Result<Vec<Edit>, TrackerError> {
        let (owner, name) = split_path(&item.repo_path)?;
        let variables = json!({ "owner": owner, "name": name, "number": item.number });
        let what = format!("the edits of {item}");
        let answer: Answer = self
            .ask_graphql((EDITS, variables), Some(&item.repo_path), &what)
            .await?;
        let Some(edited) = answer.data.and_then(|data| data.repository?.item) else {
            let said = answer.errors.into_iter().next().map(|error| error.message);
            return Err(refused(format!(
                "who edited {item} cannot be read: {}",
                said.as_deref().unwrap_or("GraphQL has no such item")
            )));
        };
        Ok(edited.edits())
    }
}

#[derive(Debug, Deserialize)]
struct Answer {
    data: Option<Data>,
    #[serde(default)]
    errors: Vec<GraphqlError>,
}

#[derive(Debug, Deserialize)]
struct GraphqlError {
    message: String,
}

#[derive(Debug, Deserialize)]
struct Data {
    repository: Option<RepositoryOf>,
}

#[derive(Debug, Deserialize)]
struct RepositoryOf {
    #[serde(rename = "issueOrPullRequest")]
    item: Option<Edited>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Edited {
    last_edited_at: Option<DateTime<Utc>>,
    editor: Option<Actor>,
    user_content_edits: Option<Edits>,
}

#[derive(Debug, Deserialize)]
struct Edits {
    nodes: Vec<Option<ContentEdit>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContentEdit {
    edited_at: DateTime<Utc>,
    editor: Option<Actor>,
}

#[derive(Debug, Deserialize)]
struct Actor {
    #[serde(rename = "__typename")]
    kind: String,
    login: String,
}

impl Edited {
    fn edits(self) -> Vec<Edit> {
        let edit = |at, by: Option<Actor>| Edit {
            what: "text",
            by: by.map(Actor::person),
            at,
        };
        let listed = self.user_content_edits.map_or_else(Vec::new, |it| it.nodes);
        let mut edits: Vec<Edit> = listed
            .into_iter()
            .flatten()
            .map(|listed| edit(listed.edited_at, listed.editor))
            .collect();
        match self.last_edited_at {
            // The first entry of a list is the text as it was written: not an edit.
            None => edits.clear(),
            Some(last) if edits.iter().any(|edit| edit.at == last) => {}
            Some(last) => edits.push(edit(last, self.editor)),
        }
        // Older ones are not listed.
        if edits.len() >= MOST_LISTED
            && let Some(oldest) = edits.iter().map(|edit| edit.at).min()
        {
            edits.push(edit(oldest, None));
        }
        edits
    }
}

impl Actor {
    /// As the REST API names it: an App has `[bot]` at its end.
    fn person(self) -> Person {
        let is_bot = self.kind == "Bot";
        let suffix = if is_bot && !self.login.ends_with("[bot]") {
            "[bot]"
        } else {
            ""
        };
        Person {
            login: format!("{}{suffix}", self.login),
            id: None,
            is_bot,
        }
    }
}
