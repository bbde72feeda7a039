//! Who may start work, and who changed an item's title or text.
//!
//! GitLab's own notes say who changed a title or a description, in words that are in no other language.

use std::ops::ControlFlow;

use agentmine_domain::ItemRef;
use agentmine_runtime::config::{GitLabRole, GitLabWhoMayStart};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::api::Api;
use super::wire::{LabelEvent, Note, person_of};
use crate::error::TrackerError;
use crate::forge::{Membership, NamedPeople, Permission, Reply, admission};
use crate::people::{Admission, Edit, Person, Requested};

#[derive(Debug, Deserialize)]
struct Member {
    id: u64,
    access_level: u64,
    #[serde(default)]
    state: String,
}

/// What is known of one person in one project.
struct MemberOf<'a> {
    api: &'a Api,
    project: &'a str,
    person: &'a Person,
    needed: GitLabRole,
}

impl MemberOf<'_> {
    /// The highest level that the person has, inherited ones included. A list, since the answer about one member
    /// does not distinguish a stranger from a group that the token does not see.
    async fn level(&self, mut url: Url, what: &str) -> Result<Option<u64>, TrackerError> {
        let Some(id) = self.person.id else {
            return Ok(None);
        };
        url.query_pairs_mut()
            .append_pair("user_ids[]", &id.to_string())
            .append_pair("per_page", "100");
        let members = self.api.client.list::<Member>(url, what).await?;
        let own = members.into_iter();
        let own = own.filter(|member| member.id == id && matches!(&*member.state, "active" | ""));
        Ok(own.map(|member| member.access_level).max())
    }
}

#[async_trait]
impl Membership for MemberOf<'_> {
    async fn is_in(&self, group: &str) -> Result<bool, TrackerError> {
        let url = self.api.client.url(["groups", group, "members", "all"]);
        let what = format!("group {group} (or the token does not see it)");
        Ok(self.level(url, &what).await?.is_some())
    }

    async fn permission(&self) -> Result<Permission, TrackerError> {
        if self.needed == GitLabRole::Nobody {
            let why = "who_may_start.allow does not list this name";
            return Ok(Permission::Lacking(why.to_owned()));
        }
        let url = self.api.project_url(self.project, &["members", "all"]);
        let own = self.level(url, "the members of the project").await?;
        let own = own.and_then(role);
        Ok(match own {
            Some(own) if own >= self.needed => Permission::Enough,
            own => {
                let own = own.map_or_else(
                    || "is no member of the project".to_owned(),
                    |own| format!("has the role {} in the project", named(own)),
                );
                let needed = named(self.needed);
                Permission::Lacking(format!("{own}, and {needed} is needed"))
            }
        })
    }
}

/// The role of an access level; a custom role has the level of the one that it is made from.
fn role(level: u64) -> Option<GitLabRole> {
    Some(match level {
        0..10 => return None,
        10..15 => GitLabRole::Guest,
        15..20 => GitLabRole::Planner,
        20..30 => GitLabRole::Reporter,
        30..40 => GitLabRole::Developer,
        40..50 => GitLabRole::Maintainer,
        50.. => GitLabRole::Owner,
    })
}

fn named(role: GitLabRole) -> String {
    format!("{role:?}")
}

impl Api {
    pub(super) async fn may_start(
        &self,
        rules: &GitLabWhoMayStart,
        item: &ItemRef,
        person: &Person,
    ) -> Result<Admission, TrackerError> {
        if let Some(known) = self.admissions.get(&item.repo_id, &person.login) {
            return Ok(known);
        }
        let GitLabWhoMayStart {
            permission,
            allow,
            deny,
        } = rules;
        let lists = NamedPeople {
            allowed_users: &allow.users,
            allowed_groups: &allow.groups,
            denied_users: &deny.users,
            denied_groups: &deny.groups,
        };
        let of = MemberOf {
            api: self,
            project: &item.repo_id,
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
        let mut events = self.label_events(item).await?.into_iter();
        let event = events.find(|event| event.id.to_string() == trigger);
        Ok(event.map(|event| Requested {
            by: event.user.map(person_of),
            at: event.created_at,
        }))
    }

    pub(super) async fn label_events(
        &self,
        item: &ItemRef,
    ) -> Result<Vec<LabelEvent>, TrackerError> {
        let mut url = self.item_url(item, &["resource_label_events"]);
        url.query_pairs_mut().append_pair("per_page", "100");
        let mut events = Vec::new();
        let what = item.to_string();
        // The cache would be filled with what is requested once.
        let take = |reply: &Reply| {
            let page = reply.json::<Vec<Value>>()?;
            events.extend(self.client.fitting::<LabelEvent>(page, &what));
            Ok(())
        };
        self.client.each_page(url, &what, take).await?;
        Ok(events)
    }

    /// The changes of title and text since a moment.
    pub(super) async fn edits(
        &self,
        item: &ItemRef,
        since: DateTime<Utc>,
    ) -> Result<Vec<Edit>, TrackerError> {
        let mut url = self.item_url(item, &["notes"]);
        url.query_pairs_mut()
            .append_pair("activity_filter", "only_activity")
            .append_pair("order_by", "created_at")
            .append_pair("sort", "desc")
            .append_pair("per_page", "100");
        let mut edits = Vec::new();
        let take = |reply: &Reply| {
            for note in reply.json::<Vec<Note>>()? {
                if note.created_at < since {
                    return Ok(ControlFlow::Break(()));
                }
                edits.extend(edit(note));
            }
            Ok(ControlFlow::Continue(()))
        };
        self.client
            .pages_until(url, &item.to_string(), take)
            .await?;
        edits.reverse();
        Ok(edits)
    }
}

/// What a note of GitLab's own says of an edit. An edit that ticks boxes of a task list is noted by them alone, whatever else
/// it changes; each box has a note.
fn edit(note: Note) -> Option<Edit> {
    const OF_TEXT: [&str; 3] = [
        "changed the description",
        "marked the checklist item",
        "marked the task",
    ];
    let body = &note.body;
    let what = match note.system {
        true if body.starts_with("changed title from") => "title",
        true if OF_TEXT.iter().any(|it| body.starts_with(it)) => "text",
        true | false => return None,
    };
    Some(Edit {
        what,
        by: note.author.map(person_of),
        at: note.created_at,
    })
}
