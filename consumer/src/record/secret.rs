//! Detects which values of an operator's MCP entry are secret.
//!
//! A value is recognized by its name, by its position (a password or the query of a URL), or by its
//! form. Plain words, paths and types are not redacted, since they also occur in results.
//! Accepted: a short password under a name that does not suggest one is not recognized.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use agentmine_mcp::config::{Transport, load};
use agentmine_runtime::config::{Config, Secret, warn_of_open_file};
use agentmine_runtime::redact;
use url::Url;

/// Parts of names, separated by `_` or `-`, that mark the value as secret.
const WORDS: [&str; 11] = [
    "TOKEN",
    "KEY",
    "SECRET",
    "PASS",
    "CREDENTIAL",
    "AUTH",
    "COOKIE",
    "PAT",
    "PWD",
    "AUTHORIZATION",
    "SIGNATURE",
];
/// How many of them also count as the end of a part: `APITOKEN`, `PGPASS`.
const ENDINGS: usize = 6;
/// Endings of names whose values are addresses, which may contain credentials.
const ADDRESSES: [&str; 5] = ["URL", "URI", "DSN", "CONNECTION_STRING", "CONNECTIONSTRING"];
/// Minimum length in bytes of a value that is recognized by its form alone.
const MIN_LOOKS: usize = 16;
/// Minimum length of a run of letters and digits that is not a word or a version number.
const RUN: usize = 12;

/// The secrets of the operator's MCP servers.
#[must_use]
pub fn operator_secrets(config: &Config) -> Vec<Secret> {
    if !config.mcp.enabled {
        return Vec::new();
    }
    let env = |name: &str| std::env::var(name).ok();
    let loaded = load(config.mcp.config_file.as_deref(), None, &env);
    let servers = loaded.servers.values();
    servers
        .flat_map(|server| secrets(&server.transport))
        .collect()
}

/// Hides the secrets of the operator's MCP file wherever this process redacts, and warns if others can read the file.
pub(crate) fn hide_operator_secrets(config: &Config) {
    let secrets = operator_secrets(config);
    if let Some(file) = &config.mcp.config_file {
        warn_of_open_file(file, &secrets);
    }
    redact::hide(secrets);
}

/// All secrets of an entry, longest first, because one may be part of another.
pub(crate) fn secrets(transport: &Transport) -> Vec<Secret> {
    let mut found = BTreeSet::new();
    match transport {
        Transport::Stdio { command, env, .. } => {
            for (name, value) in env {
                take(name, value.expose(), &mut found);
            }
            take_arguments(command, &mut found);
        }
        Transport::Http { url, headers } => {
            take_url(url, &mut found);
            for (name, value) in headers {
                take(name, value.expose(), &mut found);
            }
        }
    }
    let mut found: Vec<String> = found.into_iter().collect();
    found.sort_by_key(|text| Reverse(text.len()));
    found.into_iter().map(Secret::new).collect()
}

/// Whether a value looks like a secret, whatever its name: long, with a run of letters and digits.
pub(crate) fn looks_secret(value: &str) -> bool {
    let random = |run: &str| {
        run.len() >= RUN
            && run.bytes().any(|b| b.is_ascii_digit())
            && run.bytes().any(|b| b.is_ascii_alphabetic())
    };
    value.len() >= MIN_LOOKS
        && !value.contains(char::is_whitespace)
        && value
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(random)
}

fn take(name: &str, value: &str, found: &mut BTreeSet<String>) {
    let name = name.to_uppercase().replace('-', "_");
    let is_address = ADDRESSES.iter().any(|end| name.ends_with(end));
    let url = Url::parse(value).ok().filter(|_| value.contains("://"));
    if let Some(url) = &url {
        take_url(url, found);
    } else if is_address {
        take_connection(value, found);
    }
    // The shell's variables of that name are folders.
    let folder = matches!(name.as_str(), "PWD" | "OLDPWD") && value.starts_with('/');
    if is_secret_name(&name) && !folder && !(is_address && url.is_some()) {
        found.insert(value.to_owned());
        // `Bearer TOKEN` and `a=SECRET; b=SECRET`: each part alone is also secret.
        let words = value.split([' ', ';', '\n']).map(|word| {
            let word = word.trim();
            match word.split_once('=') {
                Some((_, bare)) if !bare.trim_matches('=').is_empty() => bare,
                _ => word,
            }
        });
        found.extend(words.filter(|word| !is_plain(word)).map(str::to_owned));
    } else if url.is_none() && !value.starts_with('/') && looks_secret(value) {
        found.insert(value.to_owned());
    }
}

/// Of `--api-key KEY`, `--api-key=KEY`, `-e API_KEY=KEY`, headers, addresses, and what has the form of a secret.
fn take_arguments(command: &[String], found: &mut BTreeSet<String>) {
    let mut option = "";
    for argument in command.iter().skip(1) {
        let is_option = argument.starts_with('-');
        let text = argument.trim_start_matches('-');
        // A URL may hold the sign too.
        let pair = text.split_once('=').filter(|(name, _)| !name.contains(':'));
        match pair {
            Some((name, value)) => {
                take(name, value, found);
                take_header(value, found);
            }
            None if is_option => {}
            None => {
                take(option, text, found);
                take_header(text, found);
            }
        }
        option = if is_option && pair.is_none() {
            text
        } else {
            ""
        };
    }
}

/// The value of a header that is passed as an argument, as for `mcp-remote`: `Authorization: Bearer TOKEN`. A value with
/// `${NAME}` is skipped: the variable is redacted by its own entry, and the text `${NAME}` is no secret.
fn take_header(argument: &str, found: &mut BTreeSet<String>) {
    let is_name = |name: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
        !name.is_empty() && name.bytes().all(plain)
    };
    if let Some((name, value)) = argument.split_once(':')
        && is_name(name)
        && !value.starts_with('/')
        && !value.contains("${")
    {
        take(name, value.trim(), found);
    }
}

/// The credentials, the query's values, and parts of the path that look like secrets.
fn take_url(url: &Url, found: &mut BTreeSet<String>) {
    let user = url.username();
    if let Some(password) = url.password() {
        take_encoded(password, found);
    }
    if url.password().is_none() || looks_secret(user) {
        take_encoded(user, found);
    }
    for pair in url.query().unwrap_or_default().split('&') {
        let (name, value) = pair.split_once('=').unwrap_or(("", pair));
        if is_secret_name(&name.to_uppercase().replace('-', "_")) || !is_plain(value) {
            take_encoded(value, found);
        }
    }
    for part in url.path().split('/').filter(|part| looks_secret(part)) {
        take_encoded(part, found);
    }
}

/// A value in its URL-encoded and its decoded form.
fn take_encoded(text: &str, found: &mut BTreeSet<String>) {
    if text.is_empty() {
        return;
    }
    found.insert(text.to_owned());
    let pair = format!("x={text}");
    let plain = url::form_urlencoded::parse(pair.as_bytes());
    found.extend(plain.map(|(_, value)| value.into_owned()));
}

/// Passwords in connection strings: `host=h password=p`, `Server=h;Pwd=p`, `user:p@tcp(h)/db`.
fn take_connection(value: &str, found: &mut BTreeSet<String>) {
    for pair in value.split([';', ' ']) {
        if let Some((name, value)) = pair.split_once('=')
            && is_secret_name(&name.trim().to_uppercase())
        {
            found.insert(value.trim().trim_matches(['\'', '"']).to_owned());
        }
    }
    if let Some((_, password)) = value
        .rsplit_once('@')
        .and_then(|(user, _)| user.split_once(':'))
    {
        found.insert(password.to_owned());
    }
}

/// Whether a name suggests a secret; `name` is in capitals, with `_` between its parts.
fn is_secret_name(name: &str) -> bool {
    name.split('_').any(|part| WORDS.contains(&part))
        || WORDS[..ENDINGS].iter().any(|word| name.ends_with(word))
        || name.contains("PASSWORD")
}

/// Whether a text is a word, a type, a path or a number rather than a secret.
fn is_plain(text: &str) -> bool {
    let letters = text
        .bytes()
        .all(|b| b.is_ascii_alphabetic() || b"/-_.+".contains(&b));
    letters && !mixed(text) || text.bytes().all(|b| b.is_ascii_digit())
}

/// Whether a text has capitals within words, as ordinary words do not.
fn mixed(text: &str) -> bool {
    let pairs = text.as_bytes().windows(2);
    let within = pairs.filter(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    within.count() > 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Vec<String> {
        let mut found = BTreeSet::new();
        for (name, value) in pairs {
            take(name, value, &mut found);
        }
        found.into_iter().filter(|text| text.len() >= 8).collect()
    }

    #[test]
    fn plain_values_are_not_secrets() {
        let plain = [
            ("Accept", "application/json"),
            ("Content-Type", "application/vnd.github.v3+json"),
            ("User-Agent", "agentmine/1.2.3 (linux; x86-64)"),
            ("X-Model", "gpt-4o-2024-08-06-preview"),
            ("DATA_ROOT", "/srv/data/releases/20250101abcdef"),
            ("PWD", "/workspace/project"),
            ("MONKEYS", "three-hundred-and-three"),
            (
                "API_URL",
                "https://api.example.com/v1/projects?format=application/json",
            ),
        ];
        assert_eq!(of(&plain), Vec::<String>::new());
    }

    #[test]
    fn secrets_are_recognized_by_name_and_by_form() {
        assert_eq!(
            of(&[("Authorization", "Bearer hunter-two")]),
            ["Bearer hunter-two"]
        );
        assert_eq!(
            of(&[("Proxy-Authorization", "Basic dXNlcjpodW50ZXIy")]),
            ["Basic dXNlcjpodW50ZXIy", "dXNlcjpodW50ZXIy"]
        );
        assert_eq!(
            of(&[("Cookie", "sid=0123456789; theme=dark-dark")]),
            ["sid=0123456789; theme=dark-dark"]
        );
        assert_eq!(of(&[("X-Api-Key", "correcthorse")]), ["correcthorse"]);
        assert_eq!(of(&[("DB_PWD", "correcthorse")]), ["correcthorse"]);
        let token = "ghp_0123456789abcdefABCDEF";
        assert_eq!(of(&[("X-Whatever", token)]), [token]);
    }

    #[test]
    fn the_password_and_the_query_of_an_address_are_secret() {
        let address =
            "postgres://reader:p%40ssw0rd1@db.example/shop?sslmode=require&api_key=letmeinplease";
        assert_eq!(
            of(&[("DATABASE_URL", address)]),
            ["letmeinplease", "p%40ssw0rd1", "p@ssw0rd1"]
        );
        assert_eq!(
            of(&[(
                "DB_CONNECTION_STRING",
                "Server=db.example;Uid=reader;Pwd=correcthorse"
            )]),
            ["correcthorse"]
        );
        assert_eq!(
            of(&[("MYSQL_DSN", "reader:correcthorse@tcp(db)/shop")]),
            ["correcthorse"]
        );
        let hook = "https://hooks.example/services/T0001/abcdef0123456789abcd";
        assert_eq!(of(&[("HOOK", hook)]), ["abcdef0123456789abcd"]);
    }

    #[test]
    fn only_the_secret_values_of_an_entry_are_found() {
        let text = r#"{"mcpServers":{
            "a":{"command":["x"],"env":{"API_KEY":"k1","GITHUB_PAT":"k2","ROOT":"/srv","MONKEYS":"3","APITOKEN":"k3"}},
            "b":{"url":"https://b.example/","headers":{"Authorization":"Bearer k4"}},
            "c":{"command":["npx","-y","server@1.2.3","--api-key","k5","--token=k6","-e","DB_PASSWORD=k7","--root","/srv",
                 "postgres://u:k8@db/x","--verbose","plain"]},
            "d":{"command":["npx","mcp-remote","https://d.example/mcp","--header","Authorization: Bearer k9",
                 "--header=X-Api-Key:k0","--header","Authorization:Bearer ${AUTH_TOKEN}","--filter","status:open",
                 "-v","mcp-auth:/root/.mcp-auth"]}
        }}"#;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mcp_config.json");
        std::fs::write(&file, text).unwrap();
        let loaded = load(Some(&file), None, &|_| None);
        let all = loaded.servers.values();
        let all: Vec<Secret> = all.flat_map(|server| secrets(&server.transport)).collect();
        let mut found: Vec<&str> = all.iter().map(Secret::expose).collect();
        found.sort_unstable();
        assert_eq!(
            found,
            [
                "Bearer k4",
                "Bearer k9",
                "k0",
                "k1",
                "k2",
                "k3",
                "k4",
                "k5",
                "k6",
                "k7",
                "k8",
                "k9"
            ]
        );
    }
}
