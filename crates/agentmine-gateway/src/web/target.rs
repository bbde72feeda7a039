//! The host and port that a request asks for.

use std::net::IpAddr;

use http::Uri;
use http::uri::Authority;

use super::host::Host;
use super::policy::Access;

/// The host and port that a request asks for.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) host: Host,
    pub(super) port: u16,
}

impl Target {
    /// The error is the reason for refusing the request.
    pub(super) fn of(uri: &Uri, access: Access) -> Result<Self, &'static str> {
        let authority = uri
            .authority()
            .ok_or("this is a proxy: the request needs an absolute URL")?;
        if authority.as_str().contains('@') {
            return Err("a URL with a user name is not forwarded");
        }
        let port = match (access, uri.scheme_str()) {
            (Access::Tunnel, _) => port(authority)?.ok_or("CONNECT needs a port")?,
            (Access::Plain, Some("http")) => port(authority)?.unwrap_or(80),
            (Access::Plain, _) => {
                return Err("only http:// URLs are forwarded; use CONNECT for https://");
            }
        };
        if port == 0 {
            return Err("invalid port");
        }
        Ok(Self {
            host: Host::parse(authority.host())?,
            port,
        })
    }
}

impl Target {
    /// As in a Host header, without the scheme's own port.
    pub(super) fn authority(&self, default_port: u16) -> String {
        let host = match &self.host {
            Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
            other => other.to_string(),
        };
        match self.port == default_port {
            true => host,
            false => format!("{host}:{}", self.port),
        }
    }
}

/// The port as written. A number that is none, such as 65616, must not become the default.
fn port(authority: &Authority) -> Result<Option<u16>, &'static str> {
    match authority.as_str().strip_prefix(authority.host()) {
        Some("") => Ok(None),
        Some(rest) => match rest.strip_prefix(':') {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map(Some).map_err(|_| "invalid port")
            }
            Some(_) | None => Err("invalid port"),
        },
        None => Err("invalid port"),
    }
}
