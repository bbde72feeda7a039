//! A package registry of every kind, on an address of this machine that is not its loopback: sandboxes reach
//! it as they reach any registry, through the gateway's proxy.
#![expect(
    clippy::expect_used,
    reason = "a harness: a fault of its own has to end the test at once"
)]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode, Uri, header};
use tempfile::TempDir;
use tokio::net::TcpListener;

use self::tls::Secured;

mod tls;

/// A running registry.
pub struct Registry {
    address: SocketAddr,
    sums: BTreeMap<String, String>,
    files: Arc<Files>,
    authority: Option<PathBuf>,
}

/// How it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Plain,
    Tls,
}

struct Files {
    folder: TempDir,
    /// The header that each request must have.
    authorization: Option<&'static str>,
    requests: Mutex<Vec<String>>,
}

impl Registry {
    /// Builds its packages and starts to serve. `AGENTMINE_TEST_WHEELS` names a folder of wheels to serve
    /// as well.
    ///
    /// # Panics
    /// If the address is taken, or Python is missing.
    pub async fn start() -> Self {
        Self::start_with(None, Transport::Plain).await
    }

    /// The same, for requests with the header [`Self::AUTHORIZATION`] alone.
    ///
    /// # Panics
    /// If the address is taken, or Python is missing.
    pub async fn start_with_credentials() -> Self {
        Self::start_with(Some(Self::AUTHORIZATION), Transport::Plain).await
    }

    /// The same over TLS, with a certificate of [`Self::authority`].
    ///
    /// # Panics
    /// If the address is taken, or Python is missing.
    pub async fn start_over_tls() -> Self {
        Self::start_with(Some(Self::AUTHORIZATION), Transport::Tls).await
    }

    /// The file of the only authority that knows it, if it is reached over TLS.
    pub fn authority(&self) -> Option<&Path> {
        self.authority.as_deref()
    }

    /// The user `reader` with a password.
    pub const AUTHORIZATION: &str = "Basic cmVhZGVyOmV2ZXJ5ZGF5LWNhbmFyeQ==";

    /// Whether it demands credentials.
    pub fn authorization(&self) -> Option<&'static str> {
        self.files.authorization
    }

    async fn start_with(authorization: Option<&'static str>, transport: Transport) -> Self {
        let listener = TcpListener::bind((own_address(), 0))
            .await
            .expect("a port for the registry");
        let address = listener.local_addr().expect("the registry's address");
        let folder = tempfile::tempdir().expect("a folder for the registry");
        let scheme = match transport {
            Transport::Plain => "http",
            Transport::Tls => "https",
        };
        let sums = build(folder.path(), &format!("{scheme}://{address}"));
        let (secured, authority) = match transport {
            Transport::Plain => (None, None),
            Transport::Tls => {
                let authority = folder.path().with_extension("pem");
                let acceptor = tls::acceptor(address.ip(), &authority);
                (Some(acceptor), Some(authority))
            }
        };
        let files = Arc::new(Files {
            folder,
            authorization,
            requests: Mutex::default(),
        });
        let app = axum::Router::new()
            .fallback(serve)
            .with_state(Arc::clone(&files));
        tokio::spawn(async move {
            match secured {
                Some(acceptor) => axum::serve(Secured::new(listener, acceptor), app).await,
                None => axum::serve(listener, app).await,
            }
        });
        Self {
            address,
            sums,
            files,
            authority,
        }
    }

    /// `host:port`, for `allowed_private`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Replaces `{URL}`, `{HOST}` and the checksums, e.g. `{NPM_INTEGRITY}`.
    pub fn fill(&self, template: &str) -> String {
        self.sums
            .iter()
            .fold(template.to_owned(), |text, (name, value)| {
                text.replace(&format!("{{{name}}}"), value)
            })
    }

    /// The paths requested so far.
    ///
    /// # Panics
    /// If a request handler panicked.
    pub fn requests(&self) -> Vec<String> {
        self.files.requests.lock().expect("the requests").clone()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if let Some(authority) = &self.authority {
            // In a temporary folder anyway.
            let _ = std::fs::remove_file(authority);
        }
    }
}

/// The address that this machine would send from. No packet is sent.
fn own_address() -> IpAddr {
    let documentation = SocketAddr::from((Ipv4Addr::new(198, 51, 100, 1), 9));
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| {
            socket.connect(documentation)?;
            socket.local_addr()
        })
        .map(|address| address.ip())
        .ok()
        .filter(|ip| !ip.is_loopback())
        .expect("an address other than the loopback; expected a machine with a network interface")
}

fn build(folder: &Path, url: &str) -> BTreeMap<String, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/registry/build.py");
    let built = Command::new("python3")
        .arg(script)
        .arg(folder)
        .arg(url)
        .args(std::env::var_os("AGENTMINE_TEST_WHEELS"))
        .output()
        .expect("python3");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    serde_json::from_slice(&built.stdout).expect("the checksums")
}

/// A file, or the index of a folder.
async fn serve(State(files): State<Arc<Files>>, headers: HeaderMap, uri: Uri) -> Response {
    let path = uri.path().to_owned();
    let relative = path.trim_matches('/');
    files
        .requests
        .lock()
        .expect("the requests")
        .push(path.clone());
    let file = files.folder.path().join(relative);
    let file = if file.is_dir() {
        file.join("index.html")
    } else {
        file
    };
    let found = if relative.split('/').any(|part| part == "..") {
        None
    } else {
        std::fs::read(file).ok()
    };
    let given = headers.get(header::AUTHORIZATION);
    let given = given.and_then(|value| value.to_str().ok());
    let (status, body) = match found {
        _ if files.authorization.is_some() && files.authorization != given => {
            (StatusCode::UNAUTHORIZED, b"no credentials\n".to_vec())
        }
        Some(bytes) => (StatusCode::OK, bytes),
        None => (StatusCode::NOT_FOUND, b"not found\n".to_vec()),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    if path.starts_with("/simple/") {
        response.headers_mut().insert(
            http::header::CONTENT_TYPE,
            http::HeaderValue::from_static("text/html"),
        );
    }
    response
}
