//! A relay in front of a service, so that a test can take the service away and give it back.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
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
    frost: watch::Sender<Frost>,
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
        let (frost, frozen) = watch::channel(Frost::default());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let frozen = frozen.clone();
                tokio::spawn(relay(client, service.clone(), state.clone(), frozen));
            }
        });
        Self {
            address,
            open,
            frost,
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

    /// Holds back what a client sends, as a frozen server would leave it unread: from the moment on at which the
    /// client has sent these texts on one connection, in this order. What was held back arrives at the thaw, even if
    /// the client is gone.
    pub(crate) fn freeze_at(&self, texts: &[&str]) {
        let texts = texts.iter().map(|it| it.as_bytes().to_vec()).collect();
        self.frost.send_replace(Frost(texts));
    }

    pub(crate) fn thaw(&self) {
        self.frost.send_replace(Frost::default());
    }
}

/// The texts at which a connection freezes; none if it does not.
#[derive(Clone, Default)]
struct Frost(Vec<Vec<u8>>);

/// Forwards what the client sends, unless it freezes.
async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut frost: watch::Receiver<Frost>,
) -> std::io::Result<()> {
    let mut sent = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    loop {
        let n = from.read(&mut chunk).await?;
        if n == 0 {
            return to.shutdown().await;
        }
        sent.extend_from_slice(&chunk[..n]);
        let is_reached = |frost: &Frost| {
            let mut rest = sent.as_slice();
            !frost.0.is_empty()
                && frost.0.iter().all(|text| {
                    let at = rest.windows(text.len()).position(|it| it == text);
                    at.inspect(|at| rest = &rest[at + text.len()..]).is_some()
                })
        };
        // An error too: the gate is gone.
        let _ = frost.wait_for(|frost| !is_reached(frost)).await;
        to.write_all(&chunk[..n]).await?;
    }
}

async fn relay(
    client: TcpStream,
    service: Service,
    mut open: watch::Receiver<bool>,
    frost: watch::Receiver<Frost>,
) {
    if !*open.borrow_and_update() {
        return;
    }
    let server: Box<dyn Stream> = match service {
        Service::Tcp(address) => match TcpStream::connect(address).await {
            Ok(stream) => Box::new(stream),
            Err(_) => return,
        },
        Service::Unix(path) => match UnixStream::connect(path).await {
            Ok(stream) => Box::new(stream),
            Err(_) => return,
        },
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, to_server) = tokio::io::split(server);
    let both = async {
        let back = async {
            tokio::io::copy(&mut from_server, &mut to_client).await?;
            to_client.shutdown().await
        };
        tokio::try_join!(forward(&mut from_client, to_server, frost), back)
    };
    tokio::select! {
        _ = both => {}
        _ = open.wait_for(|open| !open) => {}
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}
