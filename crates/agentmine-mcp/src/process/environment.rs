//! The part of our environment that a server gets.

use std::collections::BTreeMap;

use agentmine_runtime::config::Secret;

/// The variables that every server on the worker gets if they are set: those that programs generally need, and
/// those that `npx`, `uvx` and `pip` need to install from the sources that this machine uses. None of them is
/// meant for secrets. The address of a proxy or an index may contain a password, but without it nothing could be
/// installed. All other variables come from the entry's `env`, which takes precedence.
pub const ALLOWED_ENV: &[&str] = &[
    // The basics.
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TZ",
    "TMPDIR",
    // Language.
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NUMERIC",
    "LC_TIME",
    // Folders.
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    // Proxies.
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
    // Certificates.
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    // Package managers.
    "NPM_CONFIG_REGISTRY",
    "npm_config_registry",
    "NPM_CONFIG_CACHE",
    "npm_config_cache",
    "NPM_CONFIG_USERCONFIG",
    "npm_config_userconfig",
    "NPM_CONFIG_PREFIX",
    "npm_config_prefix",
    "NPM_CONFIG_CAFILE",
    "npm_config_cafile",
    "PIP_INDEX_URL",
    "PIP_CONFIG_FILE",
    "PIP_CACHE_DIR",
    "PIP_TRUSTED_HOST",
    "UV_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "UV_CACHE_DIR",
    "UV_CONFIG_FILE",
    "UV_NATIVE_TLS",
    "NVM_DIR",
    "VOLTA_HOME",
    "PNPM_HOME",
];

/// Shorter values are not redacted: they are not secrets, and text would become unreadable.
const MIN_SECRET: usize = 8;

pub(super) fn of(
    lookup: &dyn Fn(&str) -> Option<String>,
    entry: &BTreeMap<String, Secret>,
) -> BTreeMap<String, String> {
    let ours = ALLOWED_ENV
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), lookup(name)?)));
    let own = entry
        .iter()
        .map(|(name, value)| (name.clone(), value.expose().to_owned()));
    ours.chain(own).collect()
}

/// The values of the entry's environment that must be redacted, longest first. Paths of existing files are not
/// secrets. Each line of a value (such as a PEM key) is a secret by itself.
pub(super) fn secrets(entry: &BTreeMap<String, Secret>) -> Vec<Secret> {
    let is_path = |value: &str| value.starts_with('/') && std::path::Path::new(value).exists();
    let mut secrets: Vec<&str> = entry
        .values()
        .map(Secret::expose)
        .filter(|value| !is_path(value))
        .flat_map(|value| std::iter::once(value).chain(value.lines()))
        .filter(|value| value.len() >= MIN_SECRET)
        .collect();
    secrets.sort_by_key(|value| (std::cmp::Reverse(value.len()), *value));
    secrets.dedup();
    secrets.into_iter().map(Secret::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_look_like_paths_and_lines_of_keys_are_secrets() {
        let entry = [
            ("A", "/base64+token/that=begins=so"),
            ("B", "/proc"),
            ("C", "-----BEGIN KEY-----\nabcdefghijklmnop\n"),
            ("D", "short"),
        ];
        let entry = entry.map(|(name, value)| (name.to_owned(), Secret::new(value)));
        let secrets = secrets(&entry.into());
        let secrets: Vec<&str> = secrets.iter().map(Secret::expose).collect();
        assert_eq!(
            secrets,
            [
                "-----BEGIN KEY-----\nabcdefghijklmnop\n",
                "/base64+token/that=begins=so",
                "-----BEGIN KEY-----",
                "abcdefghijklmnop",
            ]
        );
    }
}
