//! A relay in front of a service, so that a test can take the service away and give it back.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Where the service is.
#[derive(Clone)]
pub(crate) enum Service {
    Tcp(String),
    Unix(PathBuf),
}

/// The relay. It ends when this is dropped.
pub(crate) struct Gate {
    address: SocketAddr,
    open: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Gate {
    pub(crate) async fn before(service: Service) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (open, state) = watch::channel(true);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, service.clone(), state.clone()));
            }
        });
        Self {
            address,
            open,
            task,
        }
    }

    /// Puts a relay in front of the service of a configured URL.
    pub(crate) async fn of_url(value: &mut serde_json::Value) -> Self {
        let mut url: url::Url = value.as_str().unwrap().parse().unwrap();
        let (host, port) = (url.host_str().unwrap(), url.port().unwrap());
        let gate = Self::before(Service::Tcp(format!("{host}:{port}"))).await;
        let address = gate.address;
        url.set_ip_host(address.ip()).unwrap();
        url.set_port(Some(address.port())).unwrap();
        *value = url.as_str().into();
        gate
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Breaks every connection, and each new one at once.
    pub(crate) fn take_away(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn give_back(&self) {
        self.open.send_replace(true);
    }
}

async fn relay(mut client: TcpStream, service: Service, mut open: watch::Receiver<bool>) {
    if !*open.borrow_and_update() {
        return;
    }
    let mut server: Box<dyn Stream> = match service {
        Service::Tcp(address) => match TcpStream::connect(address).await {
            Ok(stream) => Box::new(stream),
            Err(_) => return,
        },
        Service::Unix(path) => match UnixStream::connect(path).await {
            Ok(stream) => Box::new(stream),
            Err(_) => return,
        },
    };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = open.wait_for(|open| !open) => {}
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}
