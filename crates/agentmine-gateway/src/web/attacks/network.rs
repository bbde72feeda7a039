//! A network of the test's own: a machine for the gateway, and behind it an internet in which every address
//! answers. What the gateway connected to, and what it sent, is therefore known.
//!
//! The test runs again in namespaces of its own. There its main thread and the gateway have one network
//! namespace, and the internet's thread another one, with a veth between them.

use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// Set in the process that has its own namespaces.
const INSIDE: &str = "AGENTMINE_TEST_OWN_NETWORK";
const PORTS: [u16; 4] = [80, 443, 22, 8080];
/// Of the internet's end of the veth, where its name server is.
const FAR: &str = "198.18.0.2";

/// What happened in the network.
#[derive(Debug, Default)]
pub(super) struct Network {
    names: Mutex<HashMap<String, Name>>,
    connections: Mutex<Vec<Connection>>,
    answers: Mutex<HashMap<IpAddr, Vec<u8>>>,
}

#[derive(Debug, Default)]
struct Name {
    /// The addresses of the first lookup, of the second one and so on; the last stays.
    lookups: Vec<Vec<IpAddr>>,
    asked: HashMap<u16, usize>,
}

/// A connection that something in the network accepted.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) to: SocketAddr,
    pub(super) received: Vec<u8>,
}

impl Network {
    /// The addresses of a name, by the number of the lookup.
    pub(super) fn name(&self, name: &str, lookups: &[&[&str]]) {
        let lookups = lookups.iter().map(|addresses| {
            addresses
                .iter()
                .map(|address| address.parse().unwrap())
                .collect()
        });
        let name_of = Name {
            lookups: lookups.collect(),
            asked: HashMap::new(),
        };
        self.names.lock().unwrap().insert(name.to_owned(), name_of);
    }

    /// How often the IPv4 addresses of a name were looked up.
    pub(super) fn lookups(&self, name: &str) -> usize {
        let names = self.names.lock().unwrap();
        names
            .get(name)
            .and_then(|name| name.asked.get(&1).copied())
            .unwrap_or(0)
    }

    /// What the server at an address sends when it has got the head of a request.
    pub(super) fn answer(&self, address: &str, bytes: &str) {
        let address = address.parse().unwrap();
        self.answers
            .lock()
            .unwrap()
            .insert(address, bytes.as_bytes().to_vec());
    }

    pub(super) fn connections(&self) -> Vec<Connection> {
        self.connections.lock().unwrap().clone()
    }

    /// What was sent to an address, on all connections together.
    pub(super) fn received(&self, address: &str) -> String {
        let address: IpAddr = address.parse().unwrap();
        let to_it = |it: &Connection| it.to.ip() == address;
        let all: Vec<Connection> = self.connections().into_iter().filter(to_it).collect();
        all.iter()
            .map(|it| String::from_utf8_lossy(&it.received).into_owned())
            .collect()
    }

    /// Whether anything connected to an address.
    pub(super) fn reached(&self, address: &str) -> bool {
        let address: IpAddr = address.parse().unwrap();
        self.connections().iter().any(|it| it.to.ip() == address)
    }

    async fn serve(self: Arc<Self>) {
        for port in PORTS {
            let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
            let listener = TcpListener::bind(any).await.unwrap();
            let network = Arc::clone(&self);
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let to = stream.local_addr().unwrap();
                    let to = SocketAddr::new(to.ip().to_canonical(), to.port());
                    let mut all = network.connections.lock().unwrap();
                    all.push(Connection {
                        to,
                        received: Vec::new(),
                    });
                    tokio::spawn(Arc::clone(&network).converse(stream, all.len() - 1, to.ip()));
                }
            });
        }
    }

    async fn converse(self: Arc<Self>, mut stream: TcpStream, at: usize, address: IpAddr) {
        let mut answered = false;
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = stream.read(&mut buffer).await {
            let whole = {
                let mut all = self.connections.lock().unwrap();
                all[at].received.extend_from_slice(&buffer[..n]);
                all[at].received.windows(4).any(|it| it == b"\r\n\r\n")
            };
            if whole && !answered {
                answered = true;
                let answer = self.answers.lock().unwrap().get(&address).cloned();
                let answer = answer.unwrap_or_else(|| ok("fine"));
                let _ = stream.write_all(&answer).await;
            }
        }
    }

    /// Answers each question for IPv4 or IPv6 addresses, without allowing to keep the answer.
    async fn resolve(self: Arc<Self>, socket: UdpSocket) {
        let mut buffer = vec![0; 1500];
        while let Ok((n, client)) = socket.recv_from(&mut buffer).await {
            let Some(answer) = self.resolved(&buffer[..n]) else {
                continue;
            };
            let _ = socket.send_to(&answer, client).await;
        }
    }

    fn resolved(&self, query: &[u8]) -> Option<Vec<u8>> {
        let mut labels = Vec::new();
        let mut at = 12;
        while *query.get(at)? != 0 {
            let end = at + 1 + usize::from(query[at]);
            labels.push(String::from_utf8_lossy(query.get(at + 1..end)?).to_lowercase());
            at = end;
        }
        let question = query.get(12..at + 5)?;
        let kind = u16::from_be_bytes([query[at + 1], query[at + 2]]);
        let mut names = self.names.lock().unwrap();
        let found = names.get_mut(&labels.join(".")).map(|name| {
            let asked = name.asked.entry(kind).or_default();
            *asked += 1;
            let last = name.lookups.len() - 1;
            name.lookups[(*asked - 1).min(last)].clone()
        });
        let code = if found.is_some() { 0x80 } else { 0x83 };
        let records: Vec<Vec<u8>> = found
            .unwrap_or_default()
            .into_iter()
            .filter_map(|it| record(it, kind))
            .collect();
        let count = u8::try_from(records.len()).unwrap();
        let mut out = query[..2].to_vec();
        out.extend([0x84, code, 0, 1, 0, count, 0, 0, 0, 0]);
        out.extend(question);
        out.extend(records.concat());
        Some(out)
    }
}

pub(super) fn ok(body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn record(address: IpAddr, kind: u16) -> Option<Vec<u8>> {
    let bytes = match (address, kind) {
        (IpAddr::V4(address), 1) => address.octets().to_vec(),
        (IpAddr::V6(address), 28) => address.octets().to_vec(),
        _ => return None,
    };
    let mut out = vec![
        0xc0,
        12,
        0,
        u8::try_from(kind).unwrap(),
        0,
        1,
        0,
        0,
        0,
        0,
        0,
    ];
    out.push(u8::try_from(bytes.len()).unwrap());
    out.extend(bytes);
    Some(out)
}

/// Runs `test` in its own network.
pub(super) fn in_its_own_network<F>(test: impl FnOnce(Arc<Network>) -> F)
where
    F: Future<Output = ()>,
{
    if std::env::var_os(INSIDE).is_none() {
        run_again(std::any::type_name_of_val(&test));
        return;
    }
    let network = lay();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        // The machine's own services, on its loopback too.
        Arc::clone(&network).serve().await;
        let limit = Duration::from_secs(120);
        tokio::time::timeout(limit, test(network))
            .await
            .expect("the attacks end");
    });
}

/// Runs the test of which `closure` is a part again, as root of namespaces of its own.
fn run_again(closure: &str) {
    let (_crate, test) = closure.split_once("::").unwrap();
    let test = test.trim_end_matches("::{{closure}}");
    let done = Command::new("unshare")
        .args(["--map-root-user", "--net", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare");
    let (out, err) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    assert!(
        done.status.success(),
        "hint: the test needs network namespaces\n{out}\n{err}"
    );
    assert!(
        out.contains("1 passed"),
        "{test} did not run:\n{out}\n{err}"
    );
}

/// Connects this machine to an internet.
fn lay() -> Arc<Network> {
    let folder = tempfile::tempdir().unwrap().keep();
    for (target, text) in [
        (
            "resolv.conf",
            format!("nameserver {FAR}\noptions timeout:2 attempts:1\n"),
        ),
        ("nsswitch.conf", "hosts: files dns\n".to_owned()),
        ("hosts", "127.0.0.1 localhost\n::1 localhost\n".to_owned()),
    ] {
        let file = folder.join(target);
        std::fs::write(&file, text).unwrap();
        run(&format!("mount --bind {} /etc/{target}", file.display()));
    }
    let network = Arc::new(Network::default());
    let (ready, is_ready) = mpsc::channel();
    let (laid, is_laid) = mpsc::channel();
    let outside = Arc::clone(&network);
    std::thread::spawn(move || {
        // SAFETY: it changes only which network this thread and its children have.
        let own = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(own, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: it has no arguments and cannot fail.
        ready.send(unsafe { libc::gettid() }).unwrap();
        is_laid.recv().unwrap();
        internet(outside, &ready);
    });
    let thread = is_ready.recv().unwrap();
    run("ip link set lo up");
    run("ip link add near type veth peer name far");
    run(&format!("ip link set far netns {thread}"));
    run("ip addr add 198.18.0.1/30 dev near");
    run("ip addr add 2001:2::1/64 dev near nodad");
    run("ip link set near up");
    run(&format!("ip route add default via {FAR}"));
    run("ip -6 route add default via 2001:2::2");
    laid.send(()).unwrap();
    is_ready.recv().unwrap();
    network
}

/// Every address is this machine's, but for those at the other end of the veth.
fn internet(network: Arc<Network>, ready: &mpsc::Sender<i32>) {
    for line in [
        "ip link set lo up",
        "ip addr add 198.18.0.2/30 dev far",
        "ip addr add 2001:2::2/64 dev far nodad",
        "ip link set far up",
        "ip route add local 0.0.0.0/0 dev lo table main",
        "ip -6 route add local ::/0 dev lo table main",
    ] {
        run(line);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        Arc::clone(&network).serve().await;
        let address: Ipv4Addr = FAR.parse().unwrap();
        let socket = UdpSocket::bind((address, 53)).await.unwrap();
        ready.send(0).unwrap();
        network.resolve(socket).await;
    });
}

fn run(line: &str) {
    let mut words = line.split(' ');
    let done = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{line}: {err}");
}
