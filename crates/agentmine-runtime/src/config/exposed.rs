//! What an operator may expose without knowing it: services beyond this machine whose password everybody knows, or
//! whose connection is not encrypted, and secrets in files that every user of the machine can read.

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use url::Url;

use super::schema::Config;
use super::secret::Secret;
use super::sources::{Sources, read_once};

/// Passwords that servers, images and examples come with, besides one that equals its user's name.
const KNOWN: [&str; 6] = ["", "admin", "changeme", "guest", "password", "secret"];

/// Top-level names of private networks, where a connection may well be encrypted below TLS.
const PRIVATE: [&str; 5] = ["internal", "local", "lan", "svc", "home"];

impl Config {
    /// Warns of each exposure. To be called once, at start.
    pub fn warn_of_exposures(&self, sources: &Sources) {
        for exposure in self.exposures(sources) {
            tracing::warn!("{exposure}");
        }
    }

    /// What this configuration exposes, one sentence each with its hint, without any secret.
    #[must_use]
    pub fn exposures(&self, sources: &Sources) -> Vec<String> {
        let file = sources.used_file();
        let file = file.and_then(|file| open_file(&file, &self.secrets()));
        self.exposed_services().into_iter().chain(file).collect()
    }

    fn exposed_services(&self) -> Vec<String> {
        let services = [
            ("queue.url", self.queue.url.expose(), "amqps://"),
            ("store.url", self.store.url.expose(), "?sslmode=verify-full"),
        ];
        let services = services.iter().filter_map(|(setting, url, encrypted)| {
            Some((setting, Url::parse(url).ok()?, encrypted))
        });
        services
            .flat_map(|(setting, url, encrypted)| exposures(setting, &url, encrypted))
            .collect()
    }
}

/// Warns if every user of the machine can read `file`, and one of `secrets` is in it.
pub fn warn_of_open_file(file: &Path, secrets: &[Secret]) {
    if let Some(exposure) = open_file(file, secrets) {
        tracing::warn!("{exposure}");
    }
}

fn open_file(file: &Path, secrets: &[Secret]) -> Option<String> {
    (is_open(file) && holds_any(file, secrets)).then(|| {
        let file = file.display();
        format!(
            "{file} holds secrets, and every user of this machine can read it. hint: chmod 600 {file}"
        )
    })
}

/// Whether others may read the file and reach it.
fn is_open(file: &Path) -> bool {
    let Ok(file) = file.canonicalize() else {
        return false;
    };
    let allows = |path: &Path, right: u32| {
        std::fs::metadata(path).is_ok_and(|it| it.permissions().mode() & right != 0)
    };
    allows(&file, 0o004) && file.ancestors().skip(1).all(|folder| allows(folder, 0o001))
}

fn holds_any(file: &Path, secrets: &[Secret]) -> bool {
    let text = read_once(file).unwrap_or_default();
    secrets.iter().any(|secret| text.contains(secret.expose()))
}

fn exposures(setting: &str, url: &Url, encrypted: &str) -> Vec<String> {
    let Some(host) = remote_host(url) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let user = url.username();
    let is_known = url
        .password()
        .is_some_and(|it| it == user || KNOWN.contains(&it));
    if is_known {
        found.push(format!(
            "{setting}: the user `{user}` at {host} has a well-known password. hint: give the user another \
             password there and in the configuration"
        ));
    }
    if !is_encrypted(url) && !is_private(&host) {
        found.push(format!(
            "{setting}: the connection to {host} is not encrypted, so anybody on the network path can read the password. \
             hint: use {encrypted}"
        ));
    }
    found
}

/// The host, unless it is this machine.
fn remote_host(url: &Url) -> Option<String> {
    // Only these have servers.
    if !matches!(url.scheme(), "amqp" | "amqps" | "postgres" | "postgresql") {
        return None;
    }
    let host = url.host_str()?.trim_matches(['[', ']']);
    let is_here = match host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback() || address.is_unspecified(),
        // A percent sign begins the path of a socket.
        Err(_) => host.is_empty() || host == "localhost" || host.starts_with("%2"),
    };
    (!is_here).then(|| host.to_owned())
}

fn is_encrypted(url: &Url) -> bool {
    let is_strict = |mode: &str| matches!(mode, "require" | "verify-ca" | "verify-full");
    let mut query = url.query_pairs();
    url.scheme() == "amqps" || query.any(|(key, value)| key == "sslmode" && is_strict(&value))
}

/// A name without dots, as in a container network or a cluster's namespace; a private name; a private address.
fn is_private(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_private() || address.is_link_local(),
        Ok(IpAddr::V6(address)) => address.is_unique_local() || address.is_unicast_link_local(),
        Err(_) => {
            let mut labels = host.trim_end_matches('.').rsplit('.');
            let last = labels.next().unwrap_or_default();
            labels.next().is_none() || PRIVATE.contains(&last)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_others_can_read_is_open_unless_they_cannot_reach_it() {
        let set_mode = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let folder = tempfile::tempdir().unwrap();
        set_mode(folder.path(), 0o700);
        let file = folder.path().join("config.yaml");
        std::fs::write(&file, "model: {api_key: sk-canary-of-a-file}\n").unwrap();
        set_mode(&file, 0o644);
        assert!(!is_open(&file), "the folder is for its owner alone");
        set_mode(folder.path(), 0o755);
        assert!(is_open(&file));
        set_mode(&file, 0o640);
        assert!(!is_open(&file));
        assert!(holds_any(&file, &[Secret::new("sk-canary-of-a-file")]));
        assert!(!holds_any(&file, &[Secret::new("sk-of-the-environment")]));
    }

    fn warnings(queue: &str, store: &str) -> Vec<String> {
        let mut config = Config::default();
        config.queue.url = Secret::new(queue);
        config.store.url = Secret::new(store);
        config.exposed_services()
    }

    #[test]
    fn a_known_password_is_reported_beyond_this_machine_alone() {
        let here = "postgres://postgres@127.0.0.1/agentmine";
        for known in [
            "amqp://guest:guest@mq/%2f",
            "amqp://agentmine:agentmine@10.0.0.1",
            "amqps://a:password@mq.example.org",
        ] {
            let warned = warnings(known, here);
            assert_eq!(warned.len(), 1, "{warned:?}");
            assert!(warned[0].contains("well-known password"), "{warned:?}");
        }
        for harmless in [
            "amqp://guest:guest@127.0.0.1:5672/%2f",
            "amqp://guest:guest@localhost",
            "amqp://guest:guest@[::1]:5672",
            "inproc:",
            "amqp://a:kmX2_q9@mq",
        ] {
            assert_eq!(warnings(harmless, here), Vec::<String>::new(), "{harmless}");
        }
    }

    #[test]
    fn a_connection_in_the_clear_is_reported_beyond_private_networks() {
        let queue = "inproc:";
        let warnings_of = |store: &str| warnings(queue, store);
        for clear in [
            "postgres://a:kmX2@db.example.org/x",
            "postgres://a:kmX2@203.0.113.7/x?sslmode=prefer",
        ] {
            let warned = warnings_of(clear);
            assert_eq!(warned.len(), 1, "{warned:?}");
            assert!(warned[0].contains("sslmode=verify-full"), "{warned:?}");
            assert!(!warned[0].contains("kmX2"), "{warned:?}");
        }
        for fine in [
            "postgres://a:kmX2@db.example.org/x?sslmode=verify-full",
            "postgres://a:kmX2@db.fleet.svc/x",
            "postgres://a:kmX2@192.168.1.9/x",
            "postgres://a:kmX2@%2Frun%2Fpostgresql/x",
            "sqlite:agentmine.db",
        ] {
            assert_eq!(warnings_of(fine), Vec::<String>::new(), "{fine}");
        }
    }
}
