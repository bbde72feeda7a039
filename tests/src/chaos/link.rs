//! A network link between one process and one service: a relay that can be broken.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How a link behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weather {
    /// It relays.
    Fair,
    /// Nothing arrives, in neither direction, and no connection breaks. What was under way is lost: when the
    /// weather is fair again, the old connections break.
    Silence,
    /// Every connection breaks.
    Broken,
    /// Each piece arrives late.
    Slow(Duration),
    /// Of so many pieces, one breaks its connection.
    Lossy(u32),
}

/// What a link leads to.
#[derive(Debug, Clone)]
pub(super) enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

impl Target {
    async fn connect(&self) -> std::io::Result<(Reader, Writer)> {
        Ok(match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                let _ = stream.set_nodelay(true);
                let (read, write) = stream.into_split();
                (Box::new(read), Box::new(write))
            }
            Self::Unix(path) => {
                let (read, write) = UnixStream::connect(path).await?.into_split();
                (Box::new(read), Box::new(write))
            }
        })
    }
}

/// The link. It ends when this is dropped.
pub(super) struct Link {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    task: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link {
    /// A link to the service that `target` names; asked at each connection, since a service may move.
    pub(super) async fn to(target: Target) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr().context("a bound listener")?;
        let (weather, state) = watch::channel(Weather::Fair);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, target.clone(), state.clone()));
            }
        });
        Ok(Self {
            address,
            weather,
            task,
        })
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(super) fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }
}

async fn relay(client: TcpStream, target: Target, mut weather: watch::Receiver<Weather>) {
    let now = *weather.borrow();
    match now {
        Weather::Broken => return,
        Weather::Silence => {
            let _ = weather.clone().wait_for(|it| *it != Weather::Silence).await;
            return;
        }
        Weather::Fair | Weather::Slow(_) | Weather::Lossy(_) => {}
    }
    let Ok((from_server, to_server)) = target.connect().await else {
        return;
    };
    let _ = client.set_nodelay(true);
    let (from_client, to_client) = client.into_split();
    let (from_client, to_client) = (Box::new(from_client), Box::new(to_client));
    let count = Arc::new(std::sync::atomic::AtomicU32::new(1));
    tokio::select! {
        () = both(
            pump(from_client, to_server, weather.clone(), Arc::clone(&count)),
            pump(from_server, to_client, weather.clone(), count),
        ) => {}
        () = broken(&mut weather) => {}
    }
}

/// Until both directions have ended, or one of them broke.
async fn both(one: impl Future<Output = bool>, other: impl Future<Output = bool>) {
    tokio::pin!(one, other);
    tokio::select! {
        whole = &mut one => if whole { other.await; },
        whole = &mut other => if whole { one.await; },
    }
}

/// Resolves when this connection has to break: at once, or at the end of a silence.
async fn broken(weather: &mut watch::Receiver<Weather>) {
    let is_bad = |it: &Weather| matches!(it, Weather::Broken | Weather::Silence);
    let Ok(Weather::Silence) = weather.wait_for(is_bad).await.map(|it| *it) else {
        return;
    };
    let _ = weather.wait_for(|it| *it != Weather::Silence).await;
}

/// Relays one direction to its end. `false`: it broke.
async fn pump(
    mut from: Reader,
    mut to: Writer,
    mut weather: watch::Receiver<Weather>,
    count: Arc<std::sync::atomic::AtomicU32>,
) -> bool {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = match from.read(&mut buffer).await {
            Ok(0) => return to.shutdown().await.is_ok(),
            Ok(read) => read,
            Err(_) => return false,
        };
        let now = *weather.borrow_and_update();
        match now {
            Weather::Fair | Weather::Broken => {}
            // `broken` ends the connection.
            Weather::Silence => std::future::pending().await,
            Weather::Slow(by) => tokio::time::sleep(by).await,
            Weather::Lossy(of) => {
                let nth = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if nth.is_multiple_of(of.max(1)) {
                    return false;
                }
            }
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return false;
        }
    }
}
