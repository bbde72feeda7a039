//! The rules of `trackers` and `labels`.

use std::collections::BTreeMap;

use super::rules::{Rules, shown};
use crate::config::trackers::{GitHub, GitLab, Labels};
use crate::config::who::{GitHubPeople, GitHubPermission, GitLabPeople, GitLabRole};
use crate::tls::Authority;

impl Rules<'_> {
    pub(super) fn github(&mut self, github: &GitHub) {
        self.http_url(
            "trackers.github.api_url",
            &github.api_url,
            "put the token into trackers.github.token",
        );
        for (at, name) in github.repositories.iter().enumerate() {
            let fine = name.split_once('/').is_some_and(|(owner, name)| {
                let part = |part: &str| {
                    !part.is_empty()
                        && part
                            .chars()
                            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
                };
                part(owner) && part(name)
            });
            let key = format!("trackers.github.repositories.{at}");
            self.expect(&key, fine, || shown(name), "`owner/name`");
        }
        let query = github.query.as_deref().unwrap_or_default().trim();
        if github.repositories.is_empty() && query.is_empty() {
            self.fault("trackers.github", "no repository", "something to scan")
                .hint = Some("set `repositories: [owner/name]`, or `query: org:NAME`".into());
        }
        let who = &github.who_may_start;
        for (list, people) in [("allow", &who.allow), ("deny", &who.deny)] {
            let key = format!("trackers.github.who_may_start.{list}");
            self.logins(&format!("{key}.users"), &people.users);
            for (at, team) in people.teams.iter().enumerate() {
                let fine = team.split_once('/').is_some_and(|(org, slug)| {
                    let part = |part: &str| {
                        !part.is_empty()
                            && part
                                .chars()
                                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
                    };
                    part(org) && part(slug)
                });
                let key = format!("{key}.teams.{at}");
                self.expect(&key, fine, || shown(team), "`organisation/team`");
            }
        }
        if who.permission == GitHubPermission::Nobody && who.allow == GitHubPeople::default() {
            self.nobody("github");
        }
    }

    pub(super) fn gitlab(&mut self, gitlab: &GitLab) {
        let GitLab {
            api_url,
            token: _,
            ca_file,
            projects,
            groups,
            who_may_start: who,
        } = gitlab;
        let key = "trackers.gitlab.api_url";
        self.http_url(key, api_url, "put the token into trackers.gitlab.token");
        let path = api_url.path().trim_end_matches('/');
        if !path.ends_with("/api/v4") {
            let seen = match path {
                "" => "no path".to_owned(),
                path => format!("the path {}", shown(path)),
            };
            self.fault(key, seen, "a path that ends with `/api/v4`")
                .hint = Some("write `https://HOST/api/v4/`".into());
        }
        if let Some(file) = ca_file
            && let Err(error) = Authority::read(file)
        {
            let expected = "a PEM file with at least one certificate";
            self.fault("trackers.gitlab.ca_file", error.to_string(), expected);
        }
        for (at, name) in projects.iter().enumerate() {
            let fine = name.contains('/') && is_gitlab_path(name);
            let key = format!("trackers.gitlab.projects.{at}");
            let expected = "`group/project` or `group/subgroup/project`";
            self.expect(&key, fine, || shown(name), expected);
        }
        for (at, name) in groups.iter().enumerate() {
            let key = format!("trackers.gitlab.groups.{at}");
            let expected = "`group` or `group/subgroup`";
            self.expect(&key, is_gitlab_path(name), || shown(name), expected);
        }
        if projects.is_empty() && groups.is_empty() {
            self.fault("trackers.gitlab", "no project", "something to scan")
                .hint = Some("set `projects: [group/project]`, or `groups: [group]`".into());
        }
        for (list, people) in [("allow", &who.allow), ("deny", &who.deny)] {
            let key = format!("trackers.gitlab.who_may_start.{list}");
            self.logins(&format!("{key}.users"), &people.users);
            for (at, name) in people.groups.iter().enumerate() {
                let key = format!("{key}.groups.{at}");
                let expected = "`group` or `group/subgroup`";
                self.expect(&key, is_gitlab_path(name), || shown(name), expected);
            }
        }
        if who.permission == GitLabRole::Nobody && who.allow == GitLabPeople::default() {
            self.nobody("gitlab");
        }
    }

    fn logins(&mut self, key: &str, names: &[String]) {
        for (at, name) in names.iter().enumerate() {
            let bare = name.strip_suffix("[bot]").unwrap_or(name);
            let fine = !bare.is_empty()
                && bare
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
            let key = format!("{key}.{at}");
            self.expect(&key, fine, || shown(name), "a login name, without `@`");
        }
    }

    fn nobody(&mut self, tracker: &str) {
        let key = format!("trackers.{tracker}.who_may_start.permission");
        self.fault(
            &key,
            "`nobody` and an empty `allow`",
            "somebody who may start work",
        )
        .hint = Some("name people in `allow`, or set another permission".into());
    }

    /// GitLab's labels have no commas in their names, and its API takes lists of labels that commas separate.
    pub(super) fn labels_without_commas(&mut self, labels: &Labels) {
        for (key, name) in labels.entries() {
            let expected = "a name without a comma, which GitLab refuses in a label";
            let key = format!("labels.{key}");
            self.expect(&key, !name.contains(','), || shown(name), expected);
        }
    }

    pub(super) fn labels(&mut self, labels: &Labels) {
        // Trackers compare label names without regard to case.
        let mut first: BTreeMap<String, &str> = BTreeMap::new();
        for (key, name) in labels.entries() {
            let path = format!("labels.{key}");
            self.not_blank(&path, name);
            if let Some(other) = first.insert(name.trim().to_lowercase(), key) {
                let seen = format!("{}, the same as labels.{other}", shown(name));
                self.expect(&path, name.trim().is_empty(), || seen, "a name of its own");
            }
        }
    }
}

/// Whether this is the path of a project or group: names separated by slashes.
fn is_gitlab_path(path: &str) -> bool {
    path.split('/').all(|part| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    })
}
