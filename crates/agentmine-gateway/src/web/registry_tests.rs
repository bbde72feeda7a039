//! A sandbox that reads a registry through the gateway, and one that tries to do more than that.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agentmine_runtime::config::{Network, RegistryCredential, Secret};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::WebProxy;
use crate::events::{Ledger, TrafficEvent};

const TOKEN: &str = "registry-canary";

/// A registry on this machine, which notes all that it receives.
struct Registry {
    address: SocketAddr,
    roots: RootCertStore,
    received: Arc<Mutex<String>>,
}

impl Registry {
    /// With a certificate for `name`.
    async fn tls(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(issuer.der().clone()).unwrap();
        let config = ServerConfig::builder_with_provider(ring())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
        Self::start(Some(TlsAcceptor::from(Arc::new(config))), roots).await
    }

    async fn plain() -> Self {
        Self::start(None, RootCertStore::empty()).await
    }

    async fn start(acceptor: Option<TlsAcceptor>, roots: RootCertStore) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::<Mutex<String>>::default();
        let notes = Arc::clone(&received);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, notes) = (acceptor.clone(), Arc::clone(&notes));
                tokio::spawn(async move {
                    match acceptor {
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                converse(stream, &notes).await;
                            }
                        }
                        None => converse(stream, &notes).await,
                    }
                });
            }
        });
        Self {
            address,
            roots,
            received,
        }
    }

    /// As the sandbox names it.
    fn host(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    /// Its requests, in lower case.
    fn received(&self) -> String {
        self.received.lock().unwrap().to_lowercase()
    }
}

/// Answers each head of a request; `/away` redirects.
async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, notes: &Mutex<String>) {
    let mut bytes = Vec::new();
    loop {
        while let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            let head: Vec<u8> = bytes.drain(..end + 4).collect();
            let head = String::from_utf8_lossy(&head).into_owned();
            notes.lock().unwrap().push_str(&head);
            let answer = match head.split(' ').nth(1) {
                Some("/away") => {
                    "HTTP/1.1 302 Found\r\nLocation: https://elsewhere.example/\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
                }
                Some(_) | None => "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\npackage",
            };
            let answer = match head.starts_with("HEAD") {
                true => answer.trim_end_matches("package"),
                false => answer,
            };
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
        if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
            return;
        }
    }
}

fn ring() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The gateway of a session.
struct Session {
    address: SocketAddr,
    ledger: Arc<Ledger>,
    authority: Option<String>,
}

impl Session {
    async fn new(registry: &Registry, change: impl FnOnce(&mut Network)) -> Self {
        let mut network = Network {
            allowed_private: vec![registry.host()],
            ..Network::default()
        };
        change(&mut network);
        let ledger = Arc::new(Ledger::default());
        let roots = Arc::new(registry.roots.clone());
        let proxy = Arc::new(WebProxy::with_roots(&network, ledger.clone(), || roots).unwrap());
        let authority = proxy.authority();
        let connections = Arc::new(tokio::sync::Semaphore::new(100));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let proxy = proxy.clone();
                let permit = Arc::clone(&connections).acquire_owned().await.unwrap();
                tokio::spawn(async move { proxy.serve(stream, permit).await });
            }
        });
        Self {
            address,
            ledger,
            authority,
        }
    }

    /// With the operator's credentials for the registry.
    async fn with_credentials(registry: &Registry) -> Self {
        Self::new(registry, |network| {
            network.registry_credentials = vec![credentials(&registry.host())];
        })
        .await
    }

    async fn tunnel(&self, host: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = answer(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        stream
    }

    /// TLS as this name in a tunnel to the registry, as a client that trusts the session's authority.
    async fn tls(&self, host: &str, name: &'static str) -> std::io::Result<TlsStream<TcpStream>> {
        let pem = self.authority.as_deref().unwrap();
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
            .unwrap();
        let config = ClientConfig::builder_with_provider(ring())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        let tunnel = self.tunnel(host).await;
        let name = ServerName::try_from(name).unwrap();
        connector.connect(name, tunnel).await
    }

    /// The answer to one request in its own tunnel.
    async fn ask(&self, registry: &Registry, request: &str) -> String {
        let mut stream = self.tls(&registry.host(), "localhost").await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        answer(&mut stream).await
    }

    fn blocked(&self) -> Vec<String> {
        let events = self.ledger.events().into_iter();
        events
            .filter_map(|event| match event {
                TrafficEvent::WebBlocked { reason, .. } => Some(reason),
                _ => None,
            })
            .collect()
    }
}

fn credentials(host: &str) -> RegistryCredential {
    RegistryCredential {
        host: host.to_owned(),
        authorization: None,
        token: Some(Secret::new(TOKEN)),
        paths: Vec::new(),
    }
}

/// One answer with its body, as far as it comes.
async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let mut lines = lower.lines();
            let length = lines.find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
            return text;
        }
    }
}

#[tokio::test]
async fn a_registry_is_read_with_the_operators_credentials_and_without_the_sandboxs() {
    let registry = Registry::tls("localhost").await;
    let session = Session::with_credentials(&registry).await;
    let host = registry.host();
    let mut stream = session.tls(&host, "localhost").await.unwrap();
    for path in ["/one", "/two?q=1"] {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: application/json\r\nUser-Agent: pip/1\r\n\
             If-None-Match: \"x\"\r\nRange: bytes=0-\r\nAuthorization: Bearer stolen\r\nCookie: s=stolen\r\n\
             X-Vendor-Token: stolen\r\nProxy-Authorization: Basic stolen\r\nX-JFrog-Art-Api: stolen\r\n\
             Connection: keep-alive, Authorization\r\nUpgrade: h2c\r\nExpect: stolen\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = answer(&mut stream).await;
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("package"),
            "{answer}"
        );
    }
    let received = registry.received();
    for kept in [
        "get /one http/1.1\r\n",
        "get /two?q=1 http/1.1\r\n",
        "accept: application/json\r\n",
        "user-agent: pip/1\r\n",
        "if-none-match: \"x\"\r\n",
        "range: bytes=0-\r\n",
        &format!("host: {host}\r\n"),
        &format!("authorization: bearer {TOKEN}\r\n"),
    ] {
        assert!(received.contains(kept), "{kept}: {received}");
    }
    for removed in ["stolen", "cookie", "token:", "jfrog", "upgrade", "expect"] {
        assert!(!received.contains(removed), "{removed}: {received}");
    }
    assert_eq!(session.blocked(), Vec::<String>::new());
    let count = |event: &TrafficEvent| matches!(event, TrafficEvent::WebAllowed { count: 2, .. });
    assert!(session.ledger.events().iter().any(count));
}

#[tokio::test]
async fn credentials_of_some_paths_are_sent_with_these_alone() {
    let registry = Registry::tls("localhost").await;
    let session = Session::new(&registry, |network| {
        let of = |path: &str, token: &str| RegistryCredential {
            token: Some(Secret::new(token)),
            paths: vec![path.to_owned()],
            ..credentials(&registry.host())
        };
        network.registry_credentials = vec![of("/npm/team/", TOKEN), of("/pypi", "second")];
    })
    .await;
    for (path, sent) in [
        ("/npm/team/x", Some(TOKEN)),
        ("/npm/team", Some(TOKEN)),
        ("/npm/team/@scope%2fx?q=/..", Some(TOKEN)),
        ("/pypi/x", Some("second")),
        ("/npm/team-too/x", None),
        ("/npm/other/x?/npm/team/", None),
        ("/NPM/team/x", None),
        ("//npm/team/x", None),
        ("/npm/team/../other/x", None),
        ("/npm/team/%2E%2e/other/x", None),
        ("/npm/team/..%2fother/x", None),
        ("/npm/team/..%5cother/x", None),
        ("/npm/team/%252e%252e/other/x", None),
        ("/npm/team/..;a/other/x", None),
    ] {
        registry.received.lock().unwrap().clear();
        let host = registry.host();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = session.ask(&registry, &request).await;
        assert!(answer.ends_with("package"), "{path}: {answer}");
        let received = registry.received();
        let found = received
            .lines()
            .find_map(|it| it.strip_prefix("authorization: bearer "));
        assert_eq!(found, sent, "{path}");
    }
}

#[tokio::test]
async fn what_would_change_a_registry_is_answered_405_and_recorded() {
    let registry = Registry::tls("localhost").await;
    let session = Session::with_credentials(&registry).await;
    for method in [
        "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get",
    ] {
        let host = registry.host();
        let request = format!(
            "{method} /-/package HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\n\r\nevil"
        );
        let answer = session.ask(&registry, &request).await;
        assert!(answer.starts_with("HTTP/1.1 405"), "{method}: {answer}");
        assert!(answer.contains("read only"), "{answer}");
        assert!(
            answer.to_lowercase().contains("allow: get, head"),
            "{answer}"
        );
    }
    assert_eq!(registry.received(), "");
    assert_eq!(
        session.blocked(),
        ["package registries are read only: GET and HEAD are allowed"]
    );
    let head = format!("HEAD /x HTTP/1.1\r\nHost: {}\r\n\r\n", registry.host());
    let mut stream = session.tls(&registry.host(), "localhost").await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
}

#[tokio::test]
async fn nothing_is_smuggled_to_a_registry_or_past_it() {
    let registry = Registry::tls("localhost").await;
    let session = Session::with_credentials(&registry).await;
    let host = registry.host();
    let hidden = format!("POST /evil HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
    let length = hidden.len();
    let attacks = [
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{hidden}"),
        format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{hidden}\r\n0\r\n\r\n"
        ),
        format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nevil!\r\n0\r\n\r\n"
        ),
        format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nContent-Length: {length}\r\n\r\n{hidden}"
        ),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
        "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n\r\n"),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET https://evil.example/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET https://a@{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        "GET / HTTP/1.1\r\nHost: localhost:1\r\n\r\n".to_owned(),
        format!("CONNECT evil.example:443 HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: a\rb\r\n\r\n"),
        "\0\0\0".to_owned(),
    ];
    for attack in attacks {
        let mut stream = session.tls(&host, "localhost").await.unwrap();
        stream.write_all(attack.as_bytes()).await.unwrap();
        let answer = answer(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{attack}: {answer}");
        assert_eq!(registry.received(), "", "{attack}: {answer}");
    }
    assert!(!session.blocked().is_empty());
}

#[tokio::test]
async fn a_client_hello_that_names_another_host_reaches_nothing() {
    let registry = Registry::tls("localhost").await;
    let session = Session::with_credentials(&registry).await;
    assert!(session.tls(&registry.host(), "evil.example").await.is_err());
    assert_eq!(
        session.blocked(),
        ["the TLS ClientHello names another host"]
    );
    assert_eq!(registry.received(), "");
}

#[tokio::test]
async fn credentials_are_not_sent_to_a_server_that_cannot_be_verified() {
    let registry = Registry::tls("other.example").await;
    let mut unknown = Registry::tls("localhost").await;
    unknown.roots = RootCertStore::empty();
    for registry in [registry, unknown] {
        let session = Session::with_credentials(&registry).await;
        let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", registry.host());
        let answer = session.ask(&registry, &request).await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        assert!(answer.contains("cannot be verified"), "{answer}");
        assert_eq!(registry.received(), "");
    }
}

#[tokio::test]
async fn a_redirect_goes_back_to_the_client_and_other_hosts_get_no_credentials() {
    let registry = Registry::tls("localhost").await;
    let other = Registry::plain().await;
    let session = Session::new(&registry, |network| {
        network.registry_credentials = vec![credentials(&registry.host())];
        network.allowed_private.push(other.host());
    })
    .await;
    let request = format!("GET /away HTTP/1.1\r\nHost: {}\r\n\r\n", registry.host());
    let redirected = session.ask(&registry, &request).await;
    assert!(redirected.starts_with("HTTP/1.1 302"), "{redirected}");
    assert!(
        redirected
            .to_lowercase()
            .contains("location: https://elsewhere.example/")
    );
    assert!(
        !redirected.to_lowercase().contains("set-cookie"),
        "{redirected}"
    );
    // The same name with another port is another host.
    let mut stream = TcpStream::connect(session.address).await.unwrap();
    let request = format!(
        "POST http://{0}/ HTTP/1.1\r\nHost: {0}\r\n\r\n",
        other.host()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200"));
    assert!(!other.received().contains(TOKEN), "{}", other.received());
}

#[tokio::test]
async fn a_plain_registry_of_the_operators_own_is_read_only_too() {
    let registry = Registry::plain().await;
    let session = Session::with_credentials(&registry).await;
    let host = registry.host();
    let plain = |method: &str, length: usize| {
        format!(
            "{method} http://{host}/x HTTP/1.1\r\nHost: {host}\r\nCookie: stolen\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let mut stream = TcpStream::connect(session.address).await.unwrap();
    stream.write_all(plain("PUT", 0).as_bytes()).await.unwrap();
    let refused = answer(&mut stream).await;
    assert!(refused.starts_with("HTTP/1.1 405"), "{refused}");
    let mut stream = TcpStream::connect(session.address).await.unwrap();
    stream.write_all(plain("GET", 0).as_bytes()).await.unwrap();
    let read = answer(&mut stream).await;
    assert!(read.ends_with("package"), "{read}");
    // Some clients use a tunnel for plain HTTP.
    let mut stream = session.tunnel(&host).await;
    let request = format!("GET /y HTTP/1.1\r\nHost: {host}\r\nCookie: stolen\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(answer(&mut stream).await.ends_with("package"));
    let received = registry.received();
    assert!(
        received.contains("get /x ") && received.contains("get /y "),
        "{received}"
    );
    assert_eq!(received.matches(TOKEN).count(), 2, "{received}");
    assert!(
        !received.contains("stolen") && !received.contains("put"),
        "{received}"
    );
}

#[tokio::test]
async fn hosts_of_presets_are_registries_in_whitelist_mode_alone() {
    let registry = Registry::tls("localhost").await;
    let preset = |network: &mut Network| {
        network.allowed_domains = vec!["preset:npm".into()];
        network
            .presets
            .insert("npm".into(), vec!["localhost".into()]);
    };
    let open = Session::new(&registry, preset).await;
    assert_eq!(open.authority, None);
    let session = Session::new(&registry, |network| {
        preset(network);
        network.whitelist_mode = true;
    })
    .await;
    let host = registry.host();
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nAuthorization: stolen\r\n\r\n");
    assert!(session.ask(&registry, &request).await.ends_with("package"));
    assert!(!registry.received().contains("authorization"));
    let request = format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
    assert!(
        session
            .ask(&registry, &request)
            .await
            .starts_with("HTTP/1.1 405")
    );
}

#[tokio::test]
async fn the_sessions_certificates_are_valid_from_a_day_ago_and_for_thirty_days() {
    let registry = Registry::tls("localhost").await;
    let session = Session::with_credentials(&registry).await;
    let stream = session.tls(&registry.host(), "localhost").await.unwrap();
    let leaf = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
    let pem = session.authority.as_deref().unwrap();
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
        .unwrap();
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), ring());
    let verifier = verifier.build().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let hour = Duration::from_secs(3600);
    let valid = |name: &str, at: Duration| {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let at = UnixTime::since_unix_epoch(at);
        verifier
            .verify_server_cert(&leaf, &[], &name, &[], at)
            .is_ok()
    };
    assert!(valid("localhost", now - 23 * hour) && valid("localhost", now + 29 * 24 * hour));
    assert!(!valid("localhost", now - 25 * hour) && !valid("localhost", now + 31 * 24 * hour));
    assert!(!valid("other.example", now));
}
