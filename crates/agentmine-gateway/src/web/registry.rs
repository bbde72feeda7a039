//! Which hosts are package registries, and what of a request reaches one: it is read, and nothing else.
//!
//! In whitelist mode the hosts of the presets in `allowed_domains` are registries; a host with credentials
//! of the operator is one in every mode. A request to a registry is built again from its method, path and the
//! few headers of [`READING`], so that no credential of the sandbox gets through, whatever its name is. What
//! a path or a query contains is passed on. Credentials may be for some paths of a host alone: what has other paths, or
//! one that a server may take for another, is sent without them.

use agentmine_runtime::config::Network;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};
use hyper::body::Body as _;
use hyper::body::Incoming;

use super::host::Host;
use super::policy::{Access, Grant, Pattern};
use super::target::Target;
use crate::GatewayError;

/// The headers of readers. A list of what passes, since credentials have too many names.
const READING: [HeaderName; 13] = [
    header::ACCEPT,
    header::ACCEPT_CHARSET,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::CACHE_CONTROL,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::PRAGMA,
    header::RANGE,
    header::USER_AGENT,
];

/// The registries of a session.
#[derive(Debug)]
pub(super) struct Registries {
    hosts: Vec<Pattern>,
    credentials: Vec<Credential>,
}

/// What the operator configured for one host and port.
struct Credential {
    host: Host,
    port: u16,
    given: PathCredential,
}

/// An `Authorization` header, and the paths that it is sent for.
#[derive(Debug, Clone)]
struct PathCredential {
    authorization: HeaderValue,
    /// Paths, with all that is below them. Empty: every path.
    paths: Vec<String>,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({}:{})", self.host, self.port)
    }
}

/// How requests to a registry are rewritten.
#[derive(Debug, Clone)]
pub(super) struct ReadOnly {
    /// Added by the gateway, to this host and port alone: the first one that is for the path.
    credentials: Vec<PathCredential>,
}

/// Why a request is not passed on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotReading {
    pub(super) status: StatusCode,
    pub(super) reason: &'static str,
}

impl Registries {
    pub(super) fn new(network: &Network) -> Result<Self, GatewayError> {
        let presets = network
            .allowed_domains
            .iter()
            .filter_map(|form| form.trim().strip_prefix("preset:"))
            .filter_map(|preset| network.presets.get(preset));
        let hosts = match network.whitelist_mode {
            true => presets
                .flatten()
                .map(|host| Pattern::parse(host))
                .collect::<Result<_, _>>()?,
            false => Vec::new(),
        };
        let credentials = network.registry_credentials.iter().map(|entry| {
            let fault = |why: &str| {
                GatewayError::Network(format!("{:?} in registry_credentials: {why}", entry.host))
            };
            let (host, port) = host_and_port(&entry.host).map_err(|why| fault(&why))?;
            let value = match (&entry.authorization, &entry.token) {
                (Some(whole), None) => whole.expose().trim().to_owned(),
                (None, Some(token)) => format!("Bearer {}", token.expose().trim()),
                _ => return Err(fault("expected either `authorization` or `token`")),
            };
            // The error would show the value.
            let mut authorization =
                HeaderValue::from_str(&value).map_err(|_| fault("the value cannot be a header"))?;
            authorization.set_sensitive(true);
            Ok(Credential {
                host,
                port,
                given: PathCredential {
                    authorization,
                    paths: entry.paths.clone(),
                },
            })
        });
        Ok(Self {
            hosts,
            credentials: credentials.collect::<Result<_, _>>()?,
        })
    }

    /// Whether there is any.
    pub(super) fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.credentials.is_empty()
    }

    /// How requests to a host are rewritten, if it is a registry. Credentials are for TLS, and for plain
    /// connections to the operator's own hosts (`allowed_private`).
    pub(super) fn of(&self, target: &Target, access: Access, grant: Grant) -> Option<ReadOnly> {
        let may_have = access == Access::Tunnel || grant == Grant::Private;
        let credentials = self.credentials.iter();
        let credentials: Vec<PathCredential> = credentials
            .filter(|it| may_have && it.host == target.host && it.port == target.port)
            .map(|it| it.given.clone())
            .collect();
        let listed = self.hosts.iter().any(|host| host.matches(&target.host));
        (listed || !credentials.is_empty()).then_some(ReadOnly { credentials })
    }
}

impl ReadOnly {
    /// The request as the registry receives it: origin form, without a body.
    pub(super) fn rewritten(
        &self,
        request: &Request<Incoming>,
        target: &Target,
        default_port: u16,
    ) -> Result<Request<()>, NotReading> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(NotReading {
                status: StatusCode::METHOD_NOT_ALLOWED,
                reason: "package registries are read only: GET and HEAD are allowed",
            });
        }
        if !request.body().is_end_stream() {
            return Err(NotReading {
                status: StatusCode::BAD_REQUEST,
                reason: "a request to a package registry has a body",
            });
        }
        if !names(request, target) {
            return Err(NotReading {
                status: StatusCode::MISDIRECTED_REQUEST,
                reason: "the request names another host than its tunnel",
            });
        }
        let path = request.uri().path_and_query();
        let path = path
            .map(|path| path.as_str())
            .filter(|it| it.starts_with('/'))
            .unwrap_or("/");
        let mut headers = HeaderMap::new();
        for name in &READING {
            for value in request.headers().get_all(name) {
                headers.append(name, value.clone());
            }
        }
        let unusable = |_| NotReading {
            status: StatusCode::BAD_REQUEST,
            reason: "the URL cannot be forwarded",
        };
        let host =
            HeaderValue::from_str(&target.authority(default_port)).map_err(|_| unusable(()))?;
        headers.insert(header::HOST, host);
        if let Some(given) = self.credentials.iter().find(|it| it.is_for(path)) {
            headers.insert(header::AUTHORIZATION, given.authorization.clone());
        }
        let mut rewritten = Request::new(());
        *rewritten.method_mut() = request.method().clone();
        *rewritten.uri_mut() = path.parse().map_err(|_| unusable(()))?;
        *rewritten.headers_mut() = headers;
        Ok(rewritten)
    }
}

impl PathCredential {
    /// Whether a request for this path, which may have a query, gets the credentials.
    fn is_for(&self, path: &str) -> bool {
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        let contains = |folder: &String| {
            let below = path.strip_prefix(folder.trim_end_matches('/'));
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        };
        self.paths.is_empty() || (self.paths.iter().any(contains) && stays_below(path))
    }
}

/// Whether no part of a path leads to the folder above, however a server reads it: some decode a path more than once, and
/// some ignore what follows a semicolon.
fn stays_below(path: &str) -> bool {
    const MAX_DECODED: usize = 4;
    let is_step = |part: &str| {
        let name = part.split_once(';').map_or(part, |(name, _)| name);
        matches!(name, "." | "..")
    };
    let mut path = path.to_owned();
    for _ in 0..MAX_DECODED {
        if path.split(['/', '\\']).any(is_step) {
            return false;
        }
        let once_more = decoded(&path);
        if once_more == path {
            return true;
        }
        path = once_more;
    }
    false
}

/// A text with the characters that its `%NN` stand for.
fn decoded(text: &str) -> String {
    let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.split_at_checked(2).filter(|_| *first == b'%');
        let code = code.and_then(|(digits, beyond)| Some((hex(digits)?, beyond)));
        let (byte, beyond) = code.unwrap_or((*first, after));
        bytes.push(byte);
        rest = beyond;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether the request is for this host: its URL or, without one, its one Host header.
fn names(request: &Request<Incoming>, target: &Target) -> bool {
    let same = |text: &str| {
        let uri: Option<http::uri::Authority> = text.parse().ok();
        uri.is_some_and(|it| {
            !text.contains('@')
                && it.port_u16().is_none_or(|port| port == target.port)
                && Host::parse(it.host()).is_ok_and(|host| host == target.host)
        })
    };
    if let Some(authority) = request.uri().authority() {
        return same(authority.as_str());
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next().map(HeaderValue::to_str), hosts.next()) {
        (Some(Ok(host)), None) => same(host),
        _ => false,
    }
}

/// `host` stands for its port 443.
fn host_and_port(text: &str) -> Result<(Host, u16), String> {
    let authority: Result<http::uri::Authority, _> = text.trim().parse();
    let authority = authority.map_err(|error| error.to_string())?;
    let port = authority.port_u16().unwrap_or(443);
    let host = Host::parse(authority.host())?;
    Ok((host, port))
}
