//! Which hosts and ports may be asked for, judged by name alone. What a name resolves to is judged
//! when it is connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use agentmine_runtime::config::Network;
use anyhow::{Context, bail, ensure};

use super::presets;

/// A host as it is written in a request: lower case, without brackets or a dot at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Host {
    Name(String),
    Address(IpAddr),
}

/// How a host is to be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// A plain HTTP request.
    Plain,
    /// CONNECT.
    Tunnel,
}

/// What was allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grant {
    /// Public addresses only; through a tunnel TLS with the host's own name only.
    Public,
    /// Named by the operator with its port: no further rule.
    Private,
}

/// The web policy of a session.
#[derive(Debug)]
pub(super) struct Policy {
    external: bool,
    /// `Some` in whitelist mode.
    allowed: Option<Vec<Pattern>>,
    private: Vec<(Host, u16)>,
}

#[derive(Debug)]
enum Pattern {
    Exact(Host),
    /// With its leading dot.
    Suffix(String),
}

impl Host {
    /// Reads a host. The error is the reason for refusing it.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or("not a host name")?;
            let address: Ipv6Addr = inner.parse().map_err(|_| "not an IPv6 address")?;
            return Ok(Self::Address(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if name.len() > 253 {
            return Err("the host name is too long");
        }
        for label in name.split('.') {
            let good = (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
            if !good {
                return Err("not a host name");
            }
        }
        // Resolvers read such names as addresses: 2130706433, 0177.0.0.1, 0x7f.1, 127.1.
        let last = name.rsplit('.').next().unwrap_or_default();
        let hex = last.strip_prefix("0x").unwrap_or(last);
        if last.bytes().all(|b| b.is_ascii_digit())
            || (hex.len() < last.len() && hex.bytes().all(|b| b.is_ascii_hexdigit()))
        {
            return Err("an address in an unusual form");
        }
        Ok(Self::Name(name))
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

impl Policy {
    /// Reads the configuration.
    pub(super) fn new(network: &Network) -> anyhow::Result<Self> {
        let mut allowed = Vec::new();
        for text in &network.allowed_domains {
            let text = text.trim();
            if let Some(preset) = text.strip_prefix("preset:") {
                let hosts = presets::hosts(preset).with_context(|| {
                    format!(
                        "unknown {text:?} in allowed_domains; known: {}",
                        presets::names()
                    )
                })?;
                for host in hosts {
                    allowed.push(Pattern::parse(host)?);
                }
            } else {
                allowed.push(Pattern::parse(text)?);
            }
        }
        let private = network
            .allowed_private
            .iter()
            .map(|text| host_and_port(text))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            external: network.external_access,
            allowed: network.whitelist_mode.then_some(allowed),
            private,
        })
    }

    /// Judges a host and port. The error is the reason for refusing.
    pub(super) fn decide(&self, host: &Host, port: u16, way: Way) -> Result<Grant, &'static str> {
        if !self.external {
            return Err("this session has no access to the web");
        }
        if self
            .private
            .iter()
            .any(|known| *known == (host.clone(), port))
        {
            return Ok(Grant::Private);
        }
        match (way, port) {
            (Way::Plain, 80) | (Way::Tunnel, 443) => {}
            (Way::Plain, _) => return Err("plain HTTP is allowed on port 80 only"),
            (Way::Tunnel, _) => return Err("CONNECT is allowed on port 443 only"),
        }
        if let Some(allowed) = &self.allowed
            && !allowed.iter().any(|pattern| pattern.matches(host))
        {
            return Err("the host is not in allowed_domains");
        }
        match (host, way) {
            (Host::Address(_), Way::Tunnel) => {
                Err("TLS to a bare address names no host; use the host's name")
            }
            (Host::Address(address), Way::Plain) => match super::address::refused(*address) {
                Some(reason) => Err(reason),
                None => Ok(Grant::Public),
            },
            (Host::Name(_), _) => Ok(Grant::Public),
        }
    }
}

impl Pattern {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let what = || format!("{text:?} in allowed_domains is no host name and no *.suffix");
        if let Some(suffix) = text.strip_prefix("*.") {
            let host = Host::parse(suffix)
                .map_err(anyhow::Error::msg)
                .with_context(what)?;
            let Host::Name(name) = host else {
                bail!(what())
            };
            return Ok(Self::Suffix(format!(".{name}")));
        }
        let host = Host::parse(text)
            .map_err(anyhow::Error::msg)
            .with_context(what)?;
        Ok(Self::Exact(host))
    }

    fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Exact(known), _) => known == host,
            (Self::Suffix(suffix), Host::Name(name)) => name.ends_with(suffix.as_str()),
            (Self::Suffix(_), Host::Address(_)) => false,
        }
    }
}

fn host_and_port(text: &str) -> anyhow::Result<(Host, u16)> {
    let what = || format!("{text:?} in allowed_private is not host:port");
    let (host, port) = text.trim().rsplit_once(':').with_context(what)?;
    let host = Host::parse(host)
        .map_err(anyhow::Error::msg)
        .with_context(what)?;
    let port: u16 = port.parse().with_context(what)?;
    ensure!(port != 0, what());
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn policy(change: impl FnOnce(&mut Network)) -> Policy {
        let mut network = Network::default();
        change(&mut network);
        Policy::new(&network).unwrap()
    }

    fn asked(policy: &Policy, host: &str, port: u16, way: Way) -> Result<Grant, &'static str> {
        policy.decide(&Host::parse(host)?, port, way)
    }

    #[rstest]
    #[case("2130706433")]
    #[case("0177.0.0.1")]
    #[case("0x7f.0.0.1")]
    #[case("0x7f000001")]
    #[case("127.1")]
    #[case("1.2.3.4.")]
    #[case("1.2.3.256")]
    #[case("")]
    #[case(".")]
    #[case("a..b")]
    #[case("a.b..")]
    #[case("-a.b")]
    #[case("a b")]
    #[case("a%2eb")]
    #[case("ex\u{e4}mple.org")]
    #[case("user@host")]
    #[case("[::1")]
    #[case("[fe80::1%eth0]")]
    #[case("::1")]
    fn odd_hosts_are_refused(#[case] text: &str) {
        assert!(Host::parse(text).is_err(), "{text}");
    }

    #[test]
    fn hosts_are_compared_in_one_form() {
        assert_eq!(Host::parse("ExAmple.ORG."), Host::parse("example.org"));
        assert!(matches!(Host::parse("0x.example"), Ok(Host::Name(_))));
    }

    #[test]
    fn the_whitelist_matches_names_and_true_suffixes() {
        let policy = policy(|network| {
            network.whitelist_mode = true;
            network.allowed_domains = vec![
                "Example.org".into(),
                "*.pkg.dev".into(),
                "preset:npm".into(),
            ];
        });
        for good in [
            "example.org",
            "EXAMPLE.org.",
            "a.pkg.dev",
            "a.b.pkg.dev",
            "registry.npmjs.org",
        ] {
            assert_eq!(
                asked(&policy, good, 443, Way::Tunnel),
                Ok(Grant::Public),
                "{good}"
            );
        }
        for bad in [
            "www.example.org",
            "pkg.dev",
            "evilpkg.dev",
            "example.org.evil",
            "8.8.8.8",
        ] {
            assert!(asked(&policy, bad, 80, Way::Plain).is_err(), "{bad}");
        }
    }

    #[test]
    fn without_external_access_nothing_is_reached() {
        let policy = policy(|network| {
            network.external_access = false;
            network.allowed_private = vec!["mirror:8080".into()];
        });
        assert!(asked(&policy, "example.org", 443, Way::Tunnel).is_err());
        assert!(asked(&policy, "mirror", 8080, Way::Plain).is_err());
    }

    #[test]
    fn a_private_entry_is_exempt_with_its_port_only() {
        let policy = policy(|network| {
            network.whitelist_mode = true;
            network.allowed_private = vec!["10.0.0.7:8080".into(), "[::1]:99".into()];
        });
        assert_eq!(
            asked(&policy, "10.0.0.7", 8080, Way::Tunnel),
            Ok(Grant::Private)
        );
        assert_eq!(asked(&policy, "[::1]", 99, Way::Plain), Ok(Grant::Private));
        assert!(asked(&policy, "10.0.0.7", 80, Way::Plain).is_err());
    }

    #[test]
    fn ports_and_bare_addresses_have_their_rules() {
        let policy = policy(|_| {});
        assert!(asked(&policy, "example.org", 80, Way::Tunnel).is_err());
        assert!(asked(&policy, "example.org", 443, Way::Plain).is_err());
        assert!(asked(&policy, "example.org", 22, Way::Tunnel).is_err());
        assert!(asked(&policy, "8.8.8.8", 443, Way::Tunnel).is_err());
        assert!(asked(&policy, "127.0.0.1", 80, Way::Plain).is_err());
        assert_eq!(asked(&policy, "8.8.8.8", 80, Way::Plain), Ok(Grant::Public));
    }

    #[test]
    fn a_faulty_entry_is_told() {
        for (domain, private) in [
            ("preset:x", ""),
            ("*", ""),
            ("a:80", ""),
            ("", "a"),
            ("", "a:0"),
        ] {
            let mut network = Network::default();
            if !domain.is_empty() {
                network.allowed_domains.push(domain.into());
            }
            if !private.is_empty() {
                network.allowed_private.push(private.into());
            }
            assert!(Policy::new(&network).is_err(), "{domain} {private}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_judged_without_a_panic(text in "\\PC{0,40}") {
            let _ = Host::parse(&text);
        }

        #[test]
        fn a_name_is_never_taken_for_an_address(text in "[0-9a-fx.]{1,20}") {
            if let Ok(Host::Name(name)) = Host::parse(&text) {
                prop_assert!(!matches!(url::Host::parse(&name), Ok(url::Host::Ipv4(_))), "{}", name);
            }
        }
    }
}
