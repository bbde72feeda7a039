//! The rules of `trackers` and `labels`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::rules::{Rules, shown};
use crate::app_key::AppKey;
use crate::config::capacity::{Capacity, quiet};
use crate::config::check::cut;
use crate::config::labels::{Labels, same_label, share_scope};
use crate::config::schema::Config;
use crate::config::secret::Secret;
use crate::config::trackers::{GitHub, GitHubApp, GitLab, Trackers};
use crate::config::who::{GitHubPeople, GitHubPermission, GitLabPeople, GitLabRole};
use crate::tls::Authority;

impl Rules<'_> {
    pub(super) fn github(&mut self, at: &str, github: &GitHub) {
        let section = at;
        self.http_url(
            &format!("{section}.api_url"),
            &github.api_url,
            &format!("put the token into {section}.token"),
        );
        let host = github.api_url.host_str().unwrap_or_default();
        if host.ends_with(".ghe.com") && !host.starts_with("api.") {
            let seen = format!("the host {}", shown(host));
            let expected = "that of the API, `api.SUBDOMAIN.ghe.com`";
            self.fault(&format!("{section}.api_url"), seen, expected)
                .hint = Some(format!("write `https://api.{}/`", cut(host)));
        }
        let has_path = github.api_url.path() != "/";
        let is_page = !has_path && !host.starts_with("api.") && !host.ends_with(".ghe.com");
        if github.api_url.scheme() == "https" && is_page {
            let hint = match host {
                "github.com" | "www.github.com" => {
                    "remove it: the default is the API of github.com"
                }
                _ => "write `https://HOST/api/v3/`",
            };
            let seen = format!("the host {} without a path", shown(host));
            self.fault(
                &format!("{section}.api_url"),
                seen,
                "the address of the API",
            )
            .hint = Some(hint.into());
        }
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
            let key = format!("{section}.repositories.{at}");
            self.expect(&key, fine, || shown(name), "`owner/name`");
        }
        for (at, name) in github.organizations.iter().enumerate() {
            let key = format!("{section}.organizations.{at}");
            let expected = "the name of an organization, without `/`";
            self.expect(&key, is_github_owner(name), || shown(name), expected);
        }
        if let Some(file) = &github.ca_file
            && let Err(error) = Authority::read(file)
        {
            let expected = "a PEM file with at least one certificate";
            self.fault(&format!("{section}.ca_file"), error.to_string(), expected);
        }
        if let Some(app) = &github.app {
            self.github_app(section, app);
        }
        let query = github.query.as_deref().unwrap_or_default().trim();
        let app = github.app.as_ref();
        let names_nothing = github.repositories.is_empty() && github.organizations.is_empty();
        if app.is_some_and(|app| app.installation.is_none()) && names_nothing {
            self.fault(
                &format!("{section}.app"),
                "no installation",
                "the installation that may search",
            )
            .hint = Some("set `installation: ID`, or name repositories or organizations".into());
        }
        if names_nothing && query.is_empty() {
            self.fault(section, "no repository", "something to scan")
                .hint = Some("set `repositories: [owner/name]` or `organizations: [NAME]`".into());
        }
        let who = &github.who_may_start;
        for (list, people) in [("allow", &who.allow), ("deny", &who.deny)] {
            let key = format!("{section}.who_may_start.{list}");
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
            self.nobody(section);
        }
    }

    fn github_app(&mut self, section: &str, app: &GitHubApp) {
        let GitHubApp {
            id: _,
            key_file,
            key,
            installation: _,
        } = app;
        let expected = "the App's RSA private key, PEM";
        let place = match (key, key_file) {
            (Some(_), Some(_)) => {
                self.fault(
                    &format!("{section}.app.key"),
                    "set beside key_file",
                    "only one of the two",
                );
                return;
            }
            (Some(_), None) => format!("{section}.app.key"),
            (None, Some(_)) => format!("{section}.app.key_file"),
            (None, None) => {
                self.fault(&format!("{section}.app"), "no private key", expected)
                    .hint = Some("set `key_file: PATH`, or GITHUB_APP_PRIVATE_KEY_FILE".into());
                return;
            }
        };
        let read = app.pem();
        let parsed = read.and_then(|pem| AppKey::parse(pem.expose()).map_err(|it| it.to_string()));
        if let Err(seen) = parsed {
            self.fault(&place, seen, expected).hint =
                Some("generate a private key in the App's settings, and use that file".into());
        }
    }

    pub(super) fn gitlab(&mut self, at: &str, gitlab: &GitLab) {
        let section = at;
        let GitLab {
            api_url,
            token: _,
            ca_file,
            webhook_signing_token: _,
            webhook_secret_token: _,
            former_logins: _,
            projects,
            groups,
            who_may_start: who,
            dashboard_issue: _,
        } = gitlab;
        let key = &format!("{section}.api_url");
        self.http_url(key, api_url, &format!("put the token into {section}.token"));
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
            self.fault(&format!("{section}.ca_file"), error.to_string(), expected);
        }
        for (at, name) in projects.iter().enumerate() {
            let fine = name.contains('/') && is_gitlab_path(name);
            let key = format!("{section}.projects.{at}");
            let expected = "`group/project` or `group/subgroup/project`";
            self.expect(&key, fine, || shown(name), expected);
        }
        for (at, name) in groups.iter().enumerate() {
            let key = format!("{section}.groups.{at}");
            let expected = "`group` or `group/subgroup`";
            self.expect(&key, is_gitlab_path(name), || shown(name), expected);
        }
        if projects.is_empty() && groups.is_empty() {
            self.fault(section, "no project", "something to scan").hint =
                Some("set `projects: [group/project]`, or `groups: [group]`".into());
        }
        for (list, people) in [("allow", &who.allow), ("deny", &who.deny)] {
            let key = format!("{section}.who_may_start.{list}");
            self.logins(&format!("{key}.users"), &people.users);
            for (at, name) in people.groups.iter().enumerate() {
                let key = format!("{key}.groups.{at}");
                let expected = "`group` or `group/subgroup`";
                self.expect(&key, is_gitlab_path(name), || shown(name), expected);
            }
        }
        if who.permission == GitLabRole::Nobody && who.allow == GitLabPeople::default() {
            self.nobody(section);
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

    fn nobody(&mut self, section: &str) {
        let key = format!("{section}.who_may_start.permission");
        self.fault(
            &key,
            "`nobody` and an empty `allow`",
            "somebody who may start work",
        )
        .hint = Some("name people in `allow`, or set another permission".into());
    }

    /// Names that no address can have, and two sections for one server: an item says by its host whose it is.
    pub(super) fn names(&mut self, trackers: &Trackers) {
        let githubs = trackers.githubs();
        let githubs = githubs.map(|(name, it)| ("github", name, &it.api_url));
        let gitlabs = trackers.gitlabs();
        let gitlabs = gitlabs.map(|(name, it)| ("gitlab", name, &it.api_url));
        let mut first: BTreeMap<(&str, String), String> = BTreeMap::new();
        for (kind, name, api_url) in githubs.chain(gitlabs) {
            let section = Trackers::key(kind, name);
            let fine = |name: &str| {
                !name.is_empty()
                    && name
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
            };
            let expected = "a name of letters, digits, `-` and `_`";
            let shown = || shown(name.unwrap_or_default());
            self.expect(&section, name.is_none_or(fine), shown, expected);
            let host = api_url.host_str().unwrap_or_default().to_lowercase();
            let port = api_url.port_or_known_default().unwrap_or_default();
            if let Some(other) = first.insert((kind, format!("{host}:{port}")), section.clone()) {
                let key = format!("{section}.api_url");
                let seen = format!("the same server as {other}");
                self.fault(&key, seen, "a distinct server");
            }
        }
    }

    /// Secrets that sign nothing, and a listener that nothing can be delivered to.
    pub(super) fn webhooks(&mut self, config: &Config) {
        let trackers = &config.trackers;
        let mut is_any = false;
        for (name, github) in trackers.githubs() {
            let section = Trackers::key("github", name);
            is_any |= github.webhook_secret.is_some();
            let key = format!("{section}.webhook_secret");
            self.webhook_secret(&key, github.webhook_secret.as_ref());
        }
        for (name, gitlab) in trackers.gitlabs() {
            let section = Trackers::key("gitlab", name);
            let signing = gitlab.webhook_signing_token.as_ref();
            let in_clear = gitlab.webhook_secret_token.as_ref();
            is_any |= signing.or(in_clear).is_some();
            self.webhook_secret(&format!("{section}.webhook_secret_token"), in_clear);
            if signing.is_some_and(|token| !is_signing_token(token)) {
                let key = format!("{section}.webhook_signing_token");
                let expected = "`whsec_` and 32 bytes in base64, as GitLab shows it";
                self.fault(&key, "another text", expected);
            }
        }
        let Some(listen) = &config.producer.webhooks.listen else {
            return;
        };
        self.expect(
            "producer.webhooks.listen",
            listen.parse::<SocketAddr>().is_ok(),
            || shown(listen),
            "an address and port such as `0.0.0.0:8090`",
        );
        if !is_any {
            self.fault(
                "producer.webhooks.listen",
                "no secret of a webhook",
                "a secret for at least one tracker",
            )
            .hint = Some(
                "set trackers.github.webhook_secret or trackers.gitlab.webhook_signing_token"
                    .into(),
            );
        }
    }

    fn webhook_secret(&mut self, key: &str, secret: Option<&Secret>) {
        if secret.is_some_and(|secret| secret.expose().trim().is_empty()) {
            self.fault(key, "an empty secret", "the secret of the webhook")
                .hint = Some(
                "make one with `openssl rand -hex 32`, and enter it in the webhook too".into(),
            );
        }
    }

    /// Times that are none.
    pub(super) fn capacity(&mut self, capacity: &Capacity) {
        for (at, text) in capacity.quiet_hours.iter().enumerate() {
            let key = format!("capacity.quiet_hours.{at}");
            let expected = "two times such as `22:00-07:00`";
            self.expect(&key, quiet(text).is_some(), || shown(text), expected);
        }
        let zone = &capacity.time_zone;
        self.expect(
            "capacity.time_zone",
            zone.is_empty() || capacity.zone().is_some(),
            || shown(zone),
            "the name of a time zone such as `Europe/Berlin`",
        );
        let is_offset_default = capacity.utc_offset == Capacity::default().utc_offset;
        self.expect(
            "capacity.utc_offset",
            zone.is_empty() || is_offset_default,
            || format!("{} beside capacity.time_zone", shown(&capacity.utc_offset)),
            "one of the two",
        );
        let offset = &capacity.utc_offset;
        self.expect(
            "capacity.utc_offset",
            capacity.offset().is_some(),
            || shown(offset),
            "an offset such as `+09:00`",
        );
    }

    /// GitLab's labels have no commas in their names, and its API takes lists of labels that commas separate. A label for a pause
    /// would remove that of the task if they had one scope.
    pub(super) fn labels_of_gitlab(&mut self, labels: &Labels) {
        for (key, name) in labels.entries() {
            let is_shared = share_scope(name, &labels.pause);
            let seen = || format!("{}, with the scope of labels.{key}", shown(&labels.pause));
            let expected = "a label without a scope, or with one of its own: GitLab removes the others of a scope";
            self.expect("labels.pause", !is_shared, seen, expected);
        }
        for (key, name) in named(labels) {
            let expected = "a name without a comma, which GitLab refuses in a label";
            let key = format!("labels.{key}");
            self.expect(&key, !name.contains(','), || shown(name), expected);
        }
    }

    pub(super) fn labels(&mut self, labels: &Labels) {
        let all: Vec<_> = named(labels).collect();
        for (at, (key, name)) in all.iter().enumerate() {
            let path = format!("labels.{key}");
            self.not_blank(&path, name);
            let mut before = all[..at].iter().rev();
            let same = before.find(|(_, other)| same_label(other.trim(), name.trim()));
            if let Some((other, _)) = same {
                let seen = format!("{}, the same as labels.{other}", shown(name));
                self.expect(&path, name.trim().is_empty(), || seen, "a distinct name");
            }
        }
    }
}

/// All labels, with their keys.
fn named(labels: &Labels) -> impl Iterator<Item = (&'static str, &String)> {
    labels
        .entries()
        .into_iter()
        .chain([("pause", &labels.pause)])
}

fn is_signing_token(token: &Secret) -> bool {
    let key = token.expose().strip_prefix("whsec_");
    key.is_some_and(|key| STANDARD.decode(key).is_ok_and(|key| key.len() >= 24))
}

/// Whether this may be the login name of an organization.
fn is_github_owner(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
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
