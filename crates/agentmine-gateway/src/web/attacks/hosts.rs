//! Names, addresses, ports, and redirects.

use super::network::{in_its_own_network, ok};
use super::{
    GOOD, OTHER, connect, gateway, get, only, recorded, refusals, response, send, settled, status,
    tunnel,
};
use crate::web::sni::tests::hello_for;
use tokio::io::AsyncWriteExt;

/// Addresses that are not public, or embed one that is not.
const REFUSED: [&str; 36] = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.9.9.9",
    "168.63.129.16",
    "169.254.0.7",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.2",
    "198.51.100.1",
    "203.0.113.1",
    "240.0.0.1",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a00:1",
    "2001::a00:1",
    "2002:a00:1::",
    "2002:7f00:1::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
];

#[test]
fn names_of_addresses_that_are_not_public_are_not_connected_to() {
    in_its_own_network(|network| async move {
        let gateway = gateway(|_| {});
        for (at, address) in REFUSED.into_iter().enumerate() {
            let name = format!("n{at}.evil.example");
            network.name(&name, &[&[address]]);
            let plain = get(&gateway, &format!("http://{name}/")).await;
            assert_eq!(status(&plain), 403, "{address}: {plain}");
            let tunnelled = tunnel(&gateway, &format!("{name}:443"), &hello_for(&name)).await;
            assert_eq!(status(&tunnelled), 403, "{address}: {tunnelled}");
            assert!(
                recorded(&gateway, &name, "address"),
                "{address}: {:?}",
                refusals(&gateway)
            );
        }
        settled(&network).await;
        let reached: Vec<_> = network.connections().into_iter().map(|it| it.to).collect();
        assert_eq!(reached.len(), 1, "{reached:?}");
    });
}

#[test]
fn of_several_addresses_the_private_ones_are_not_connected_to() {
    in_its_own_network(|network| async move {
        let gateway = gateway(|_| {});
        let mixed = [
            "10.0.0.1",
            "127.0.0.1",
            "169.254.169.254",
            GOOD,
            "::1",
            "fe80::1",
        ];
        network.name("mixed.example", &[&mixed]);
        for _ in 0..4 {
            let answer = get(&gateway, "http://mixed.example/").await;
            assert_eq!(status(&answer), 200, "{answer}");
        }
        let all = network.connections();
        assert!(
            all.len() == 4 && all.iter().all(|it| it.to.ip().to_string() == GOOD),
            "{all:?}"
        );
    });
}

#[test]
fn a_name_that_resolves_differently_the_second_time_is_checked_again() {
    in_its_own_network(|network| async move {
        let gateway = gateway(|_| {});
        // A second lookup between check and connection gets the second answer.
        for (at, private) in ["127.0.0.1", "169.254.169.254", "10.0.0.1"]
            .into_iter()
            .enumerate()
        {
            let name = format!("rebind{at}.example");
            network.name(&name, &[&[GOOD], &[private]]);
            let url = format!("http://{name}/");
            assert_eq!(status(&get(&gateway, &url).await), 200, "{name}");
            assert_eq!(
                network.lookups(&name),
                1,
                "{name} is resolved once for a request"
            );
            assert_eq!(status(&get(&gateway, &url).await), 403, "{name}");
            assert!(!network.reached(private), "{private}");
            network.name(&name, &[&[OTHER], &[private]]);
            let hello = hello_for(&name);
            let tunnelled = tunnel(&gateway, &format!("{name}:443"), &hello).await;
            assert_eq!(status(&tunnelled), 200, "{tunnelled}");
            assert_eq!(
                network.lookups(&name),
                1,
                "{name} is resolved once for a tunnel"
            );
            assert!(!network.reached(private), "{private}");
        }
    });
}

#[test]
fn a_kept_connection_does_not_keep_an_earlier_check() {
    in_its_own_network(|network| async move {
        let gateway = gateway(|_| {});
        network.name(
            "rebind.example",
            &[&[GOOD], &["10.0.0.1"], &[GOOD], &["127.0.0.1"]],
        );
        let mut stream = connect(&gateway);
        for expected in [200, 403, 200, 403] {
            let request = b"GET http://rebind.example/ HTTP/1.1\r\nHost: rebind.example\r\n\r\n";
            stream.write_all(request).await.unwrap();
            let answer = response(&mut stream).await;
            assert_eq!(status(&answer), expected, "{answer}");
        }
        assert!(!network.reached("10.0.0.1") && !network.reached("127.0.0.1"));
    });
}

#[test]
fn unusual_notations_of_addresses_and_hosts_are_refused() {
    in_its_own_network(|network| async move {
        let gateway = gateway(|_| {});
        let long = format!("{}.example", "a.".repeat(130));
        let label = format!("{}.example", "a".repeat(64));
        let hosts = [
            "2130706433",
            "0x7f000001",
            "017700000001",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "127.1",
            "127.0.1",
            "10.1",
            "0",
            "0x0",
            "127.0.0.1.",
            "0x7f.1.",
            "[::1]",
            "[::ffff:7f00:1]",
            "[::ffff:10.0.0.1]",
            "[fe80::1%25lo]",
            "[fe80::1%lo]",
            "[::1%25lo]",
            "[64:ff9b::a9fe:a9fe]",
            "127.0.0.1%00.example",
            "127.0.0.1%2e",
            "①②⑦.0.0.1",
            "１２７.0.0.1",
            "localhost",
            "LOCALHOST",
            "localhost.",
            "user@8.8.8.8",
            "user:pass@good.example",
            "good.example@127.0.0.1",
            "good.example\\@127.0.0.1",
            "..",
            "good..example",
            "-good.example",
            long.as_str(),
            label.as_str(),
        ];
        network.name("good.example", &[&[GOOD]]);
        for host in hosts {
            for request in [
                format!(
                    "GET http://{host}/ HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n"
                ),
                format!(
                    "CONNECT {host}:443 HTTP/1.1\r\nHost: good.example:443\r\nConnection: close\r\n\r\n"
                ),
            ] {
                let answer = send(&gateway, &request).await;
                assert!(
                    [400, 403, 502].contains(&status(&answer)),
                    "{request}: {answer}"
                );
            }
        }
        settled(&network).await;
        let reached: Vec<_> = network.connections().into_iter().map(|it| it.to).collect();
        assert_eq!(reached.len(), 1, "{reached:?}");
    });
}

#[test]
fn a_name_is_the_same_host_however_it_is_written() {
    in_its_own_network(|network| async move {
        network.name("good.example", &[&[GOOD]]);
        network.name("xn--gd-fka.example", &[&[GOOD]]);
        let allowed = only(&["good.example", "xn--gd-fka.example"]);
        for host in [
            "good.example",
            "GOOD.example",
            "good.example.",
            "Good.Example.",
            "xn--gd-fka.example",
            "XN--GD-FKA.example",
        ] {
            let answer = get(&allowed, &format!("http://{host}/")).await;
            assert_eq!(status(&answer), 200, "{host}: {answer}");
        }
        // Other names that look alike, contain it, or differ in Unicode only.
        network.name("xn--gd-fla.example", &[&[OTHER]]);
        for host in [
            "xgood.example",
            "good.example.evil.example",
            "good.example%2eevil.example",
            "göd.example",
            "xn--gd-fla.example",
            "www.good.example",
            "good.example:8080",
            "good.example:81",
        ] {
            let answer = send(
                &allowed,
                format!(
                    "GET http://{host}/ HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n"
                ),
            )
            .await;
            assert!([400, 403].contains(&status(&answer)), "{host}: {answer}");
        }
        assert!(!network.reached(OTHER));
        let seen = network.received(GOOD);
        assert!(
            !seen.contains("example.\r\n") && !seen.contains("GOOD"),
            "{seen}"
        );
    });
}

#[test]
fn ports_other_than_the_webs_are_refused() {
    in_its_own_network(|network| async move {
        network.name("good.example", &[&[GOOD]]);
        let gateway = gateway(|_| {});
        for to in [
            "good.example:22",
            "good.example:80",
            "good.example:8080",
            "good.example:0",
            "good.example:65979",
            "good.example",
        ] {
            let answer = tunnel(&gateway, to, b"SSH-2.0-x\r\n").await;
            assert!([400, 403].contains(&status(&answer)), "{to}: {answer}");
        }
        for port in [22, 443, 8080, 0, 65_616] {
            let answer = get(&gateway, &format!("http://good.example:{port}/")).await;
            assert!([400, 403].contains(&status(&answer)), "{port}: {answer}");
        }
        settled(&network).await;
        assert!(!network.reached(GOOD));
    });
}

#[test]
fn redirects_are_returned_and_not_followed() {
    in_its_own_network(|network| async move {
        network.name("good.example", &[&[GOOD]]);
        let gateway = gateway(|_| {});
        for to in [
            "http://169.254.169.254/latest/",
            "http://10.0.0.1/",
            "http://127.0.0.1/",
            "//127.0.0.1/",
            "https://10.0.0.1/",
        ] {
            for code in [301, 302, 303, 307, 308] {
                let body = String::from_utf8(ok("moved")).unwrap();
                let answer = body.replacen("200 OK", &format!("{code} Moved\r\nLocation: {to}"), 1);
                network.answer(GOOD, &answer);
                let answer = get(&gateway, "http://good.example/").await;
                assert_eq!(status(&answer), code, "{answer}");
                assert!(answer.contains(to), "{answer}");
            }
        }
        settled(&network).await;
        let all = network.connections();
        assert!(
            all.iter()
                .all(|it| ["8.8.8.8", "4.4.4.4"].contains(&it.to.ip().to_string().as_str())),
            "{all:?}"
        );
    });
}
