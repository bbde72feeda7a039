//! Which hosts and ports may be requested, by name only. The addresses of a name are checked when it is
//! connected to.

use std::fmt::Display;

use agentmine_runtime::config::Network;

use super::address;
use super::host::Host;
use crate::GatewayError;
use crate::egress::{AllowedBy, BlockedBy};

/// How the client asks for a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// A plain HTTP request.
    Plain,
    /// CONNECT.
    Tunnel,
}

/// What the policy allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grant {
    /// Public addresses only; a tunnel must carry TLS with the host's own name.
    Public,
    /// Listed by the operator with its port: no further rules.
    Private,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) by: BlockedBy,
    pub(super) reason: &'static str,
}

/// Whether a ClientHello may have a second, encrypted name, of any host that the named server serves too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HiddenNames {
    /// Every public host is allowed. Browsers send such an extension with random content to all hosts.
    Allowed,
    /// The hosts are listed.
    Refused,
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
pub(super) enum Pattern {
    Exact(Host),
    /// With a leading dot.
    Suffix(String),
}

impl Policy {
    /// Reads the configuration.
    pub(super) fn new(network: &Network) -> Result<Self, GatewayError> {
        let mut allowed = Vec::new();
        for text in &network.allowed_domains {
            let text = text.trim();
            if let Some(preset) = text.strip_prefix("preset:") {
                let hosts = network.presets.get(preset).ok_or_else(|| {
                    GatewayError::Network(format!(
                        "the hosts of {text:?} in allowed_domains are not known. hint: list them in \
                         command_executor.docker.network.presets"
                    ))
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
            .collect::<Result<_, _>>()?;
        Ok(Self {
            external: network.external_access,
            allowed: network.whitelist_mode.then_some(allowed),
            private,
        })
    }

    /// Whether a tunnel may hide the name of its host in an encrypted ClientHello.
    pub(super) fn hidden_names(&self) -> HiddenNames {
        match self.allowed {
            Some(_) => HiddenNames::Refused,
            None => HiddenNames::Allowed,
        }
    }

    /// The rule by which a host with this grant, which is no package registry, is allowed.
    pub(super) fn allowed_by(&self, grant: Grant) -> AllowedBy {
        match (grant, &self.allowed) {
            (Grant::Private, _) => AllowedBy::Private,
            (Grant::Public, Some(_)) => AllowedBy::Listed,
            (Grant::Public, None) => AllowedBy::Public,
        }
    }

    /// Decides on a host and port.
    pub(super) fn decide(&self, host: &Host, port: u16, access: Access) -> Result<Grant, Refused> {
        let refused = |by, reason| Err(Refused { by, reason });
        if !self.external {
            let reason = "web access is disabled for this session";
            return refused(BlockedBy::Disabled, reason);
        }
        if self
            .private
            .iter()
            .any(|known| *known == (host.clone(), port))
        {
            return Ok(Grant::Private);
        }
        match (access, port) {
            (Access::Plain, 80) | (Access::Tunnel, 443) => {}
            (Access::Plain, _) => {
                return refused(BlockedBy::Port, "plain HTTP is allowed on port 80 only");
            }
            (Access::Tunnel, _) => {
                return refused(BlockedBy::Port, "CONNECT is allowed on port 443 only");
            }
        }
        if let Some(allowed) = &self.allowed
            && !allowed.iter().any(|pattern| pattern.matches(host))
        {
            return refused(BlockedBy::Host, "the host is not in allowed_domains");
        }
        match (host, access) {
            (Host::Address(_), Access::Tunnel) => refused(
                BlockedBy::Address,
                "TLS to an IP address names no host; use the host name",
            ),
            (Host::Address(address), Access::Plain) => match address::refused(*address) {
                Some(reason) => refused(BlockedBy::Address, reason),
                None => Ok(Grant::Public),
            },
            (Host::Name(_), _) => Ok(Grant::Public),
        }
    }
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Self, GatewayError> {
        let what = format!("{text:?} in allowed_domains is neither a host name nor a *.suffix");
        let fault = |why: &str| GatewayError::Network(format!("{what}: {why}"));
        if let Some(suffix) = text.strip_prefix("*.") {
            return match Host::parse(suffix).map_err(fault)? {
                Host::Name(name) => Ok(Self::Suffix(format!(".{name}"))),
                Host::Address(_) => Err(GatewayError::Network(what)),
            };
        }
        Host::parse(text).map(Self::Exact).map_err(fault)
    }

    pub(super) fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Exact(known), _) => known == host,
            (Self::Suffix(suffix), Host::Name(name)) => name.ends_with(suffix.as_str()),
            (Self::Suffix(_), Host::Address(_)) => false,
        }
    }
}

fn host_and_port(text: &str) -> Result<(Host, u16), GatewayError> {
    let what = || format!("{text:?} in allowed_private is not host:port");
    let fault = |why: &dyn Display| GatewayError::Network(format!("{}: {why}", what()));
    let (host, port) = text
        .trim()
        .rsplit_once(':')
        .ok_or_else(|| GatewayError::Network(what()))?;
    let host = Host::parse(host).map_err(|why| fault(&why))?;
    match port.parse() {
        Ok(0) => Err(GatewayError::Network(what())),
        Ok(port) => Ok((host, port)),
        Err(why) => Err(fault(&why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(change: impl FnOnce(&mut Network)) -> Policy {
        let mut network = Network::default();
        change(&mut network);
        Policy::new(&network).unwrap()
    }

    fn asked(
        policy: &Policy,
        host: &str,
        port: u16,
        access: Access,
    ) -> Result<Grant, &'static str> {
        let decided = policy.decide(&Host::parse(host)?, port, access);
        decided.map_err(|refused| refused.reason)
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
            network
                .presets
                .insert("npm".into(), vec!["npm.example.com".into()]);
        });
        for good in [
            "example.org",
            "EXAMPLE.org.",
            "a.pkg.dev",
            "a.b.pkg.dev",
            "npm.example.com",
        ] {
            assert_eq!(
                asked(&policy, good, 443, Access::Tunnel),
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
            assert!(asked(&policy, bad, 80, Access::Plain).is_err(), "{bad}");
        }
    }

    #[test]
    fn without_external_access_nothing_is_reached() {
        let policy = policy(|network| {
            network.external_access = false;
            network.allowed_private = vec!["mirror:8080".into()];
        });
        assert!(asked(&policy, "example.org", 443, Access::Tunnel).is_err());
        assert!(asked(&policy, "mirror", 8080, Access::Plain).is_err());
    }

    #[test]
    fn a_private_entry_is_exempt_on_its_port_only() {
        let policy = policy(|network| {
            network.whitelist_mode = true;
            network.allowed_private = vec!["10.0.0.7:8080".into(), "[::1]:99".into()];
        });
        assert_eq!(
            asked(&policy, "10.0.0.7", 8080, Access::Tunnel),
            Ok(Grant::Private)
        );
        assert_eq!(
            asked(&policy, "[::1]", 99, Access::Plain),
            Ok(Grant::Private)
        );
        assert!(asked(&policy, "10.0.0.7", 80, Access::Plain).is_err());
    }

    #[test]
    fn ports_and_bare_addresses_are_restricted() {
        let policy = policy(|_| {});
        assert!(asked(&policy, "example.org", 80, Access::Tunnel).is_err());
        assert!(asked(&policy, "example.org", 443, Access::Plain).is_err());
        assert!(asked(&policy, "example.org", 22, Access::Tunnel).is_err());
        assert!(asked(&policy, "8.8.8.8", 443, Access::Tunnel).is_err());
        assert!(asked(&policy, "127.0.0.1", 80, Access::Plain).is_err());
        assert_eq!(
            asked(&policy, "8.8.8.8", 80, Access::Plain),
            Ok(Grant::Public)
        );
    }

    #[test]
    fn a_faulty_entry_is_refused() {
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
}
