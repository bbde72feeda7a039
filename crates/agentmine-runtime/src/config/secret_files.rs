//! Secrets in files: `NAME_FILE` names the file that holds the value of the variable `NAME`, as Docker and
//! Kubernetes mount it. A line break at the end is not part of the secret.

use std::collections::BTreeMap;
use std::path::Path;

use super::environment::key_of;
use super::fault::SettingFault;
use super::rotation::content;
use super::schema::Config;
use super::secret::Secret;
use super::trackers::MoreTrackers;
use super::tree::ConfigPlace;

/// The variables that may come from a file, under the name that says so.
pub(super) const FILES: [(&str, &str); 10] = [
    ("AGENTMINE_STORE_URL_FILE", "AGENTMINE_STORE_URL"),
    ("AGENTMINE_QUEUE_URL_FILE", "AGENTMINE_QUEUE_URL"),
    ("OPENAI_API_KEY_FILE", "OPENAI_API_KEY"),
    ("ANTHROPIC_API_KEY_FILE", "ANTHROPIC_API_KEY"),
    ("GITHUB_WEBHOOK_SECRET_FILE", "GITHUB_WEBHOOK_SECRET"),
    (
        "GITLAB_WEBHOOK_SIGNING_TOKEN_FILE",
        "GITLAB_WEBHOOK_SIGNING_TOKEN",
    ),
    (
        "GITLAB_WEBHOOK_SECRET_TOKEN_FILE",
        "GITLAB_WEBHOOK_SECRET_TOKEN",
    ),
    ("GITHUB_APP_PRIVATE_KEY_FILE", "GITHUB_APP_PRIVATE_KEY"),
    (
        "GITHUB_PERSONAL_ACCESS_TOKEN_FILE",
        "GITHUB_PERSONAL_ACCESS_TOKEN",
    ),
    (
        "GITLAB_PERSONAL_ACCESS_TOKEN_FILE",
        "GITLAB_PERSONAL_ACCESS_TOKEN",
    ),
];

/// Adds what is in the files to the variables.
pub(super) fn read(env: &mut BTreeMap<String, String>, faults: &mut Vec<SettingFault>) {
    for (file_name, name) in FILES {
        let Some(path) = env.get(file_name).filter(|path| !path.is_empty()) else {
            continue;
        };
        let (place, key) = (ConfigPlace::Env(file_name), key_of(name));
        if env.get(name).is_some_and(|value| !value.is_empty()) {
            let seen = format!("set beside {name}");
            faults.push(SettingFault::new(&place, &key, seen, "only one of the two"));
            continue;
        }
        match content(Path::new(path)) {
            Ok(secret) => {
                env.insert(name.to_owned(), secret);
            }
            Err(seen) => faults.push(
                SettingFault::new(
                    &place,
                    &key,
                    format!("{path}: {seen}"),
                    "a file with one secret",
                )
                .hint("check that the secret is mounted and that this user may read it"),
            ),
        }
    }
}

/// Lets the secrets of the configuration that came from files follow these.
pub(super) fn follow(env: &BTreeMap<String, String>, config: &mut Config) {
    for (file_name, name) in FILES {
        let Some(path) = env.get(file_name).filter(|path| !path.is_empty()) else {
            continue;
        };
        let path = Path::new(path);
        // A flag goes before a variable, so the value need not be the file's.
        let is_from_file = |secret: &&mut Secret| content(path).as_deref() == Ok(secret.expose());
        if let Some(secret) = place_of(name, config).filter(is_from_file) {
            *secret = Secret::of_file(secret, path);
        }
    }
}

/// The same of the trackers that have names: `${NAME}` may have been the file that `NAME_FILE` names.
pub(super) fn follow_named(env: &BTreeMap<String, String>, config: &mut Config) {
    let MoreTrackers { github, gitlab } = &mut config.trackers.more;
    let of_github = github.values_mut().flat_map(|it| {
        let key = it.app.as_mut().and_then(|app| app.key.as_mut());
        [it.token.as_mut(), it.webhook_secret.as_mut(), key]
    });
    let of_gitlab = gitlab.values_mut().flat_map(|it| {
        [
            it.token.as_mut(),
            it.webhook_signing_token.as_mut(),
            it.webhook_secret_token.as_mut(),
        ]
    });
    for secret in of_github.chain(of_gitlab).flatten() {
        let mut files = env.iter().filter(|(name, path)| {
            let is_it = || content(Path::new(path)).as_deref() == Ok(secret.expose());
            name.ends_with("_FILE") && !path.is_empty() && is_it()
        });
        if let Some((_, path)) = files.next() {
            *secret = Secret::of_file(secret, Path::new(path));
        }
    }
}

/// Where the value of a variable is in the configuration.
fn place_of<'a>(name: &str, config: &'a mut Config) -> Option<&'a mut Secret> {
    let trackers = &mut config.trackers;
    match name {
        "AGENTMINE_STORE_URL" => Some(&mut config.store.url),
        "AGENTMINE_QUEUE_URL" => Some(&mut config.queue.url),
        "OPENAI_API_KEY" | "ANTHROPIC_API_KEY" => {
            let is_used = config.model.provider.key_variable() == name;
            config.model.api_key.as_mut().filter(|_| is_used)
        }
        "GITHUB_WEBHOOK_SECRET" => trackers.github.as_mut()?.webhook_secret.as_mut(),
        "GITHUB_APP_PRIVATE_KEY" => trackers.github.as_mut()?.app.as_mut()?.key.as_mut(),
        "GITHUB_PERSONAL_ACCESS_TOKEN" => trackers.github.as_mut()?.token.as_mut(),
        "GITLAB_WEBHOOK_SIGNING_TOKEN" => trackers.gitlab.as_mut()?.webhook_signing_token.as_mut(),
        "GITLAB_WEBHOOK_SECRET_TOKEN" => trackers.gitlab.as_mut()?.webhook_secret_token.as_mut(),
        "GITLAB_PERSONAL_ACCESS_TOKEN" => trackers.gitlab.as_mut()?.token.as_mut(),
        _ => None,
    }
}
