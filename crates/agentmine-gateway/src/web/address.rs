//! Which IP addresses belong to the public internet.
//!
//! Based on IANA's registries of special-purpose IPv4 and IPv6 addresses, the metadata addresses of cloud providers, and
//! the range that Google's Kubernetes Engine gives to the services in each cluster (34.118.224.0/20 by default), which only
//! pods of that cluster reach. For IPv6 only global unicast is allowed, so an unknown range is refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const V4: &[([u8; 4], u32, &str)] = &[
    ([0, 0, 0, 0], 8, "unspecified address"),
    ([10, 0, 0, 0], 8, "private address"),
    ([34, 118, 224, 0], 20, "address of a Kubernetes service"),
    ([100, 64, 0, 0], 10, "carrier's private address"),
    ([127, 0, 0, 0], 8, "loopback address"),
    ([168, 63, 129, 16], 32, "metadata address"),
    ([169, 254, 0, 0], 16, "link-local or metadata address"),
    ([172, 16, 0, 0], 12, "private address"),
    ([192, 0, 0, 0], 24, "reserved address"),
    ([192, 0, 2, 0], 24, "documentation address"),
    ([192, 31, 196, 0], 24, "reserved address"),
    ([192, 52, 193, 0], 24, "reserved address"),
    ([192, 88, 99, 0], 24, "reserved address"),
    ([192, 168, 0, 0], 16, "private address"),
    ([192, 175, 48, 0], 24, "reserved address"),
    ([198, 18, 0, 0], 15, "benchmarking address"),
    ([198, 51, 100, 0], 24, "documentation address"),
    ([203, 0, 113, 0], 24, "documentation address"),
    ([224, 0, 0, 0], 4, "multicast address"),
    ([240, 0, 0, 0], 4, "reserved address"),
];

const V6: &[([u16; 8], u32, &str)] = &[
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "reserved address"),
    (
        [0x2001, 0xdb8, 0, 0, 0, 0, 0, 0],
        32,
        "documentation address",
    ),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "6to4 address"),
    (
        [0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0],
        48,
        "reserved address",
    ),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "documentation address"),
];

/// Why `address` may not be reached, or `None` for a public one.
pub(super) fn refused(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => refused_v4(address),
        IpAddr::V6(address) => refused_v6(address),
    }
}

fn refused_v4(address: Ipv4Addr) -> Option<&'static str> {
    let bits = address.to_bits();
    V4.iter()
        .find(|(network, length, _)| (bits ^ u32::from_be_bytes(*network)) >> (32 - length) == 0)
        .map(|(_, _, reason)| *reason)
}

fn refused_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(inner) = embedded(address) {
        return refused_v4(inner);
    }
    let segments = address.segments();
    if segments[0] & 0xe000 != 0x2000 {
        return Some(match address {
            Ipv6Addr::LOCALHOST => "loopback address",
            Ipv6Addr::UNSPECIFIED => "unspecified address",
            _ if address.is_multicast() => "multicast address",
            _ if address.is_unique_local() => "private address",
            _ if address.is_unicast_link_local() => "link-local address",
            _ => "reserved address",
        });
    }
    let bits = address.to_bits();
    V6.iter()
        .find(|(network, length, _)| {
            (bits ^ Ipv6Addr::from(*network).to_bits()) >> (128 - length) == 0
        })
        .map(|(_, _, reason)| *reason)
}

/// The IPv4 address that traffic to `address` reaches: IPv4-mapped and NAT64. Other embeddings
/// (compatible, 6to4, Teredo) are refused as a whole.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    if let Some(inner) = address.to_ipv4_mapped() {
        return Some(inner);
    }
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(Ipv4Addr::from_bits(
            (u32::from(high) << 16) | u32::from(low),
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0.0.0.0")]
    #[case("10.255.0.1")]
    #[case("34.118.224.1")]
    #[case("34.118.239.255")]
    #[case("64:ff9b::2276:e001")]
    #[case("100.64.0.1")]
    #[case("100.100.100.200")]
    #[case("127.0.0.1")]
    #[case("127.255.255.254")]
    #[case("168.63.129.16")]
    #[case("169.254.169.254")]
    #[case("172.16.0.1")]
    #[case("172.31.255.255")]
    #[case("192.0.0.192")]
    #[case("192.168.1.1")]
    #[case("198.19.255.255")]
    #[case("203.0.113.5")]
    #[case("224.0.0.1")]
    #[case("255.255.255.255")]
    #[case("::")]
    #[case("::1")]
    #[case("::127.0.0.1")]
    #[case("::8.8.8.8")]
    #[case("::ffff:127.0.0.1")]
    #[case("::ffff:10.0.0.1")]
    #[case("64:ff9b::7f00:1")]
    #[case("64:ff9b::a9fe:a9fe")]
    #[case("64:ff9b:1::808:808")]
    #[case("fd00:ec2::254")]
    #[case("fc00::1")]
    #[case("fe80::1")]
    #[case("fec0::1")]
    #[case("ff02::1")]
    #[case("100::1")]
    #[case("2001::1")]
    #[case("2001:db8::1")]
    #[case("2002:7f00:1::")]
    #[case("2002:808:808::")]
    #[case("3fff::1")]
    #[case("5f00::1")]
    fn special_addresses_are_refused(#[case] text: &str) {
        assert!(refused(text.parse().unwrap()).is_some(), "{text}");
    }

    #[rstest]
    #[case("8.8.8.8")]
    #[case("34.118.223.255")]
    #[case("34.118.240.0")]
    #[case("100.128.0.1")]
    #[case("172.32.0.1")]
    #[case("192.0.1.1")]
    #[case("198.20.0.1")]
    #[case("223.255.255.255")]
    #[case("::ffff:8.8.8.8")]
    #[case("64:ff9b::808:808")]
    #[case("2606:4700::1111")]
    #[case("2001:4860:4860::8888")]
    #[case("2a00:1450:4001::1")]
    fn public_addresses_are_allowed(#[case] text: &str) {
        assert_eq!(refused(text.parse().unwrap()), None, "{text}");
    }

    proptest! {
        #[test]
        fn what_the_standard_library_calls_special_is_refused(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            let special = address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || address.is_multicast()
                || address.is_broadcast()
                || address.is_documentation()
                || address.is_unspecified();
            if special {
                prop_assert!(refused_v4(address).is_some());
            }
        }

        #[test]
        fn an_embedded_address_is_treated_like_itself(bits: u32) {
            let inner = Ipv4Addr::from_bits(bits);
            let plain = refused_v4(inner);
            prop_assert_eq!(refused_v6(inner.to_ipv6_mapped()), plain);
            let nat64 = Ipv6Addr::from_bits((0x64_ff9b_u128 << 96) | u128::from(bits));
            prop_assert_eq!(refused_v6(nat64), plain);
        }

        #[test]
        fn only_global_unicast_is_allowed(bits: u128) {
            let address = Ipv6Addr::from_bits(bits);
            if embedded(address).is_none() && address.segments()[0] & 0xe000 != 0x2000 {
                prop_assert!(refused_v6(address).is_some());
            }
        }
    }
}
