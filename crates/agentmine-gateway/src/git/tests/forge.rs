//! A forge for the tests: `git http-backend` behind a token.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

pub(super) struct Forge {
    root: PathBuf,
    authorization: String,
    pub(super) requests: AtomicUsize,
    pub(super) pushes: AtomicUsize,
    /// Requests for objects.
    pub(super) fetches: AtomicUsize,
    /// Pushes are refused: the token may only read.
    pub(super) read_only: AtomicBool,
    /// Does what is asked, then answers 502.
    pub(super) lose_answers: AtomicBool,
    /// So many requests are answered 503.
    pub(super) busy: AtomicUsize,
    /// So many requests after the next push are answered 503.
    pub(super) busy_after_push: AtomicUsize,
}

impl Forge {
    /// Serves the repositories below `root`; returns itself and its origin.
    pub(super) async fn start(root: PathBuf, authorization: String) -> (Arc<Self>, String) {
        let forge = Arc::new(Self {
            root,
            authorization,
            requests: AtomicUsize::new(0),
            pushes: AtomicUsize::new(0),
            fetches: AtomicUsize::new(0),
            read_only: AtomicBool::new(false),
            lose_answers: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            busy_after_push: AtomicUsize::new(0),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let served = forge.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let forge = served.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let forge = forge.clone();
                        async move { Ok::<_, std::convert::Infallible>(forge.answer(request).await) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        (forge, origin)
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let less = |busy: usize| busy.checked_sub(1);
        let (set, fetched) = (Ordering::SeqCst, Ordering::SeqCst);
        if self.busy.fetch_update(set, fetched, less).is_ok() {
            return status(StatusCode::SERVICE_UNAVAILABLE);
        }
        let header = |name: &str| {
            let value = request.headers().get(name);
            value
                .map(|value| value.to_str().unwrap().to_owned())
                .unwrap_or_default()
        };
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        if let Some(rest) = path.strip_prefix("/moved.git/") {
            return moved(&format!("/repo.git/{rest}?{query}"));
        }
        if let Some(rest) = path.strip_prefix("/away.git/") {
            return moved(&format!("http://localhost:1/repo.git/{rest}?{query}"));
        }
        if header("authorization") != self.authorization {
            return status(StatusCode::UNAUTHORIZED);
        }
        let push = path.ends_with("/git-receive-pack");
        if (push || query == "service=git-receive-pack") && self.read_only.load(Ordering::SeqCst) {
            return status(StatusCode::FORBIDDEN);
        }
        let mut git = tokio::process::Command::new("git");
        git.arg("http-backend")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_PROJECT_ROOT", &self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("REMOTE_USER", "bot")
            .env("REQUEST_METHOD", request.method().as_str())
            .env("PATH_INFO", path)
            .env("QUERY_STRING", query)
            .env("CONTENT_TYPE", header("content-type"))
            .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
            .env("GIT_PROTOCOL", header("git-protocol"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let body = request.into_body().collect().await.unwrap().to_bytes();
        if body.windows(13).any(|part| part == b"command=fetch") {
            self.fetches.fetch_add(1, Ordering::SeqCst);
        }
        let mut child = git.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let write = async {
            let _ = stdin.write_all(&body).await;
            drop(stdin);
        };
        let (output, ()) = tokio::join!(child.wait_with_output(), write);
        if push {
            self.pushes.fetch_add(1, Ordering::SeqCst);
            let busy = self.busy_after_push.swap(0, Ordering::SeqCst);
            self.busy.store(busy, Ordering::SeqCst);
            if self.lose_answers.load(Ordering::SeqCst) {
                return status(StatusCode::BAD_GATEWAY);
            }
        }
        cgi(&output.unwrap().stdout)
    }
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

fn moved(to: &str) -> Response<Full<Bytes>> {
    let mut response = status(StatusCode::MOVED_PERMANENTLY);
    response
        .headers_mut()
        .insert("location", to.parse().unwrap());
    response
}

fn cgi(output: &[u8]) -> Response<Full<Bytes>> {
    let end = output
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let head = std::str::from_utf8(&output[..end]).unwrap();
    let mut response = Response::builder();
    for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
        response = match name {
            "Status" => response.status(&value[..3]),
            _ => response.header(name, value),
        };
    }
    response
        .body(Full::new(Bytes::copy_from_slice(&output[end + 4..])))
        .unwrap()
}
