//! Who can read and change the connection to an engine over TCP. Anybody who can controls the engine's machine.

use std::net::IpAddr;
use std::path::PathBuf;

use agentmine_runtime::config;

use crate::error::SandboxError;

/// How a connection over TCP is protected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Security {
    /// By certificates of both sides.
    Tls(TlsFiles),
    /// Not at all: it stays on this machine, or the operator accepts it.
    Plain,
}

/// The files of `DOCKER_CERT_PATH`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TlsFiles {
    pub(super) ca: PathBuf,
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

/// How the connection to `HOST:PORT` is protected.
///
/// # Errors
/// When it is not, or a file is missing.
pub(super) fn security(address: &str, config: &config::Docker) -> Result<Security, SandboxError> {
    if let Some(folder) = &config.cert_path {
        let files = ["ca.pem", "cert.pem", "key.pem"].map(|name| folder.join(name));
        if let Some(missing) = files.iter().find(|file| std::fs::File::open(file).is_err()) {
            return Err(SandboxError::Refused(format!(
                "{} cannot be read. hint: command_executor.docker.cert_path (or DOCKER_CERT_PATH) is the folder \
                 with ca.pem, cert.pem and key.pem",
                missing.display()
            )));
        }
        let [ca, cert, key] = files;
        return Ok(Security::Tls(TlsFiles { ca, cert, key }));
    }
    if config.accept_plain_tcp || is_this_machine(address) {
        return Ok(Security::Plain);
    }
    Err(SandboxError::Refused(format!(
        "the engine at {address} is on another machine, and the connection to it is not protected. hint: set \
         command_executor.docker.cert_path (or DOCKER_CERT_PATH) to use TLS, use ssh://, or set \
         command_executor.docker.accept_plain_tcp: true"
    )))
}

fn is_this_machine(address: &str) -> bool {
    let address = address.split('/').next().unwrap_or_default();
    let name = match address.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => address,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unprotected_connection_to_another_machine_is_refused() {
        let mut config = config::Docker::default();
        for here in [
            "127.0.0.1:2375",
            "localhost:2375",
            "[::1]:2375",
            "127.0.0.2",
        ] {
            assert_eq!(security(here, &config).unwrap(), Security::Plain, "{here}");
        }
        for remote in [
            "engine:2375",
            "192.0.2.1:2375",
            "127.0.0.1.example.com:2375",
        ] {
            let error = security(remote, &config).unwrap_err().to_string();
            assert!(error.contains("accept_plain_tcp: true"), "{error}");
        }
        config.accept_plain_tcp = true;
        assert_eq!(security("engine:2375", &config).unwrap(), Security::Plain);
    }

    #[test]
    fn a_missing_certificate_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let config = config::Docker {
            cert_path: Some(folder.path().to_owned()),
            ..config::Docker::default()
        };
        for name in ["ca.pem", "cert.pem", "key.pem"] {
            let error = security("engine:2376", &config).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found = security("engine:2376", &config).unwrap();
        assert!(matches!(found, Security::Tls(_)));
    }
}
