//! Connections to an engine on another machine, one for each call of its API.
//!
//! bollard's own TLS also trusts every authority of the machine and does not report why a connection failed;
//! its own ssh loses the port. A connection ends with the answer to its call, or with the stream of an exec.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bollard::errors::Error;
use bollard::{API_DEFAULT_VERSION, BollardRequest, Docker};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue};
use hyper::{Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::causes::chain;
use super::ssh::{Said, SshRoute};
use super::tls::TlsRoute;

/// How an engine on another machine is reached.
pub(super) enum Route {
    Tls(TlsRoute),
    Ssh(SshRoute),
}

trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// The engine's API over a route. `limit` is that of one call.
pub(super) fn connect(route: Route, limit: Duration) -> Result<Docker, Error> {
    let authority = match &route {
        Route::Tls(tls) => tls.authority().to_owned(),
        Route::Ssh(_) => "docker".to_owned(),
    };
    let route = Arc::new(route);
    Docker::connect_with_custom_transport(
        move |request| exchange(Arc::clone(&route), request),
        Some(format!("http://{authority}")),
        limit.as_secs(),
        API_DEFAULT_VERSION,
    )
}

async fn exchange(route: Arc<Route>, request: BollardRequest) -> Result<Response<Incoming>, Error> {
    let request = origin_form(request)?;
    let (stream, said): (Box<dyn Duplex>, _) = match &*route {
        Route::Tls(tls) => (Box::new(tls.open().await?), None),
        Route::Ssh(ssh) => {
            let (stream, said) = ssh.open()?;
            (Box::new(stream), Some(said))
        }
    };
    let answered = async {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection.with_upgrades());
        sender.send_request(request).await
    };
    match answered.await {
        Ok(response) => Ok(response),
        Err(err) => Err(route.explain(&err, said).await.into()),
    }
}

impl Route {
    async fn explain(&self, err: &hyper::Error, said: Option<Said>) -> io::Error {
        let reason = match self {
            Self::Tls(tls) => tls.explain(err),
            Self::Ssh(_) => chain(err),
        };
        let words = match said {
            Some(said) => said.at_the_end().await,
            None => String::new(),
        };
        io::Error::other(match words.as_str() {
            "" => reason,
            words => format!("{reason}; ssh said: {words}"),
        })
    }
}

/// The request as it goes to a server: the path alone, and the name in a header.
fn origin_form(mut request: BollardRequest) -> Result<BollardRequest, Error> {
    let uri = std::mem::take(request.uri_mut()).into_parts();
    if let Some(authority) = uri.authority {
        let host = HeaderValue::from_str(authority.as_str()).map_err(io::Error::other)?;
        request.headers_mut().insert(HOST, host);
    }
    *request.uri_mut() = uri.path_and_query.map_or_else(Uri::default, Uri::from);
    Ok(request)
}
