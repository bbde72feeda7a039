//! Hosts in requests and in the configuration.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A host as in a request: in lower case, without brackets or a final dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Host {
    Name(String),
    Address(IpAddr),
}

impl Host {
    /// Reads a host. The error is the reason for refusing it.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or("invalid host name")?;
            let address: Ipv6Addr = inner.parse().map_err(|_| "invalid IPv6 address")?;
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
                return Err("invalid host name");
            }
        }
        // Resolvers read such names as IP addresses: 2130706433, 0177.0.0.1, 0x7f.1, 127.1.
        let last = name.rsplit('.').next().unwrap_or_default();
        let hex = last.strip_prefix("0x").unwrap_or(last);
        if last.bytes().all(|b| b.is_ascii_digit())
            || (hex.len() < last.len() && hex.bytes().all(|b| b.is_ascii_hexdigit()))
        {
            return Err("IP address in an unusual notation");
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

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
    fn unusual_hosts_are_refused(#[case] text: &str) {
        assert!(Host::parse(text).is_err(), "{text}");
    }

    #[test]
    fn hosts_are_compared_in_normal_form() {
        assert_eq!(Host::parse("ExAmple.ORG."), Host::parse("example.org"));
        assert!(matches!(Host::parse("0x.example"), Ok(Host::Name(_))));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,40}") {
            let _ = Host::parse(&text);
        }

        #[test]
        fn a_name_is_never_an_address(text in "[0-9a-fx.]{1,20}") {
            if let Ok(Host::Name(name)) = Host::parse(&text) {
                prop_assert!(!matches!(url::Host::parse(&name), Ok(url::Host::Ipv4(_))), "{}", name);
            }
        }
    }
}
