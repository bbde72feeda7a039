//! The operator's HTTP proxy, through which the gateway reaches public hosts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use url::{Host, Url};

use super::secret::Secret;
use super::secret_texts::decoded;

/// The value of `command_executor.docker.network.proxy`, read.
#[derive(Debug, Clone)]
pub struct OutboundProxy {
    host: String,
    port: u16,
    authorization: Option<Secret>,
}

impl OutboundProxy {
    /// The form of the value.
    pub const FORM: &str = "`http://[USER:PASSWORD@]HOST:PORT`";

    /// Reads the value. `None` if it has another form than [`Self::FORM`].
    #[must_use]
    pub fn parse(value: &Secret) -> Option<Self> {
        let text = value.expose().trim();
        let url = Url::parse(text).ok()?;
        // In the parsed URL, a written port 80 and none are the same.
        let (_, port) = text.trim_end_matches('/').rsplit_once(':')?;
        let port: u16 = port.parse().ok()?;
        let has_more = url.path() != "/" || url.query().is_some() || url.fragment().is_some();
        if url.scheme() != "http" || has_more || port == 0 {
            return None;
        }
        if url.port_or_known_default() != Some(port) {
            return None;
        }
        let host = match url.host()? {
            Host::Domain(name) => name.to_owned(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        let authorization = match (url.username(), url.password()) {
            ("", None) => None,
            ("", Some(_)) | (_, None) => return None,
            (user, Some(password)) => {
                let pair = format!("{}:{}", decoded(user), decoded(password));
                Some(Secret::new(format!("Basic {}", STANDARD.encode(pair))))
            }
        };
        Some(Self {
            host,
            port,
            authorization,
        })
    }

    /// Its name or address; an IPv6 address has no brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its port, which is not 0.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The value of the header `Proxy-Authorization`.
    #[must_use]
    pub fn authorization(&self) -> Option<&Secret> {
        self.authorization.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<OutboundProxy> {
        OutboundProxy::parse(&Secret::new(text))
    }

    #[test]
    fn host_port_and_credentials_are_read() {
        for (text, host, port) in [
            ("http://proxy.example:3128", "proxy.example", 3128),
            (" http://proxy:80/ ", "proxy", 80),
            ("http://10.0.0.1:8080", "10.0.0.1", 8080),
            ("http://[fd00::1]:8080", "fd00::1", 8080),
        ] {
            let proxy = parse(text).unwrap();
            assert_eq!((proxy.host(), proxy.port()), (host, port), "{text}");
            assert!(proxy.authorization().is_none(), "{text}");
        }
        let proxy = parse("http://agent:p%40ss+%25@proxy:3128").unwrap();
        let value = proxy.authorization().unwrap().expose();
        let pair = STANDARD.decode(value.strip_prefix("Basic ").unwrap());
        assert_eq!(pair.unwrap(), b"agent:p@ss+%");
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "",
            "proxy:3128",
            "https://proxy:3128",
            "socks5://proxy:1080",
            "http://proxy",
            "http://[::1]",
            "http://proxy:0",
            "http://proxy:65616",
            "http://proxy:3128/path",
            "http://proxy/:80",
            "http://proxy:3128?x=:80",
            "http://user:80@proxy",
            "http://user@proxy:3128",
            "http://:password@proxy:3128",
            "http://user:pass/word@proxy:3128",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
