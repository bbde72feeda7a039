//! What attacks try to reach on the machine. Each part notices when it was reached.

use std::ffi::CString;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::canaries::Canaries;

/// What arrived, and where.
type Arrivals = Arc<Mutex<Vec<String>>>;

/// Files, a process, listeners and shared memory of the worker's user, as open as a careless user leaves them.
pub(super) struct Bait {
    folder: tempfile::TempDir,
    temporary: tempfile::NamedTempFile,
    arrivals: Arrivals,
    tcp: SocketAddr,
    udp: SocketAddr,
    web: Option<SocketAddr>,
    abstract_name: String,
    victim: Child,
    secrets: Secrets,
    shared: Shared,
    mode: u32,
}

impl Bait {
    /// In a folder that no sandbox has in its place. Adds the secrets of the bait to `canaries`.
    pub(super) fn lay(canaries: &mut Canaries) -> anyhow::Result<Self> {
        let unique = || format!("canary{}", uuid::Uuid::new_v4().simple());
        let folder = tempfile::Builder::new()
            .prefix("agentmine-attacks-")
            .tempdir_in("/var/tmp")?;
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        };
        open(folder.path(), 0o755)?;
        let file = unique();
        canaries.add("the secret file", &file);
        std::fs::write(folder.path().join("secret"), &file)?;
        let marker = folder.path().join("marker");
        std::fs::create_dir(&marker)?;
        open(&marker, 0o777)?;
        let temporary = tempfile::Builder::new()
            .prefix("agentmine-attacks-")
            .tempfile_in("/tmp")?;
        let secret = unique();
        canaries.add("the file in the machine's /tmp", &secret);
        std::fs::write(temporary.path(), &secret)?;
        open(temporary.path(), 0o666)?;

        let arrivals = Arrivals::default();
        let tcp = tcp(
            "tcp",
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            &arrivals,
        )?;
        let udp = udp(&arrivals)?;
        // An address that only the machine itself has, and a port that the web proxy allows. Needs rights.
        let id = std::process::id().to_be_bytes();
        let own = Ipv4Addr::new(127, 77, id[2], id[3].clamp(1, 254));
        let web = self::tcp("web", SocketAddr::from((own, 80)), &arrivals).ok();
        let socket = folder.path().join("socket");
        unix(UnixListener::bind(&socket)?, "unix", &arrivals);
        open(&socket, 0o777)?;
        let abstract_name = format!("agentmine-attacks-{}", std::process::id());
        let address = UnixAddress::from_abstract_name(&abstract_name)?;
        unix(UnixListener::bind_addr(&address)?, "abstract", &arrivals);
        let (environment, argument) = (unique(), unique());
        canaries.add("a process's environment", &environment);
        canaries.add("a process's command line", &argument);
        let secrets = Secrets {
            file,
            environment,
            argument,
        };
        let victim = secrets.victim()?;
        let mode = mode(&folder.path().join("secret"))?;
        Ok(Self {
            folder,
            temporary,
            arrivals,
            tcp,
            udp,
            web,
            abstract_name,
            victim,
            secrets,
            shared: Shared::create()?,
            mode,
        })
    }

    /// Where scripts find it.
    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let own = own_addresses().join(" ");
        vec![
            ("BAIT_FOLDER", self.folder.path().display().to_string()),
            ("BAIT_SECRET", path("secret")),
            ("BAIT_MARKER", path("marker")),
            ("BAIT_UNIX", path("socket")),
            ("BAIT_TMP", self.temporary.path().display().to_string()),
            ("BAIT_TCP", self.tcp.port().to_string()),
            ("BAIT_UDP", self.udp.port().to_string()),
            (
                "BAIT_WEB",
                self.web.map_or_else(String::new, |it| it.ip().to_string()),
            ),
            ("BAIT_ABSTRACT", self.abstract_name.clone()),
            ("BAIT_PID", self.victim.id().to_string()),
            ("BAIT_SHM", self.shared.key.to_string()),
            ("BAIT_QUEUE", self.shared.queue_name.clone()),
            ("HOST_ADDRESSES", own),
            ("WORKER_PID", std::process::id().to_string()),
        ]
    }

    /// Where it listens on a port that the web proxy allows.
    pub(super) fn web(&self) -> Option<SocketAddr> {
        self.web
    }

    /// Where it listens on TCP.
    pub(super) fn listeners(&self) -> Vec<SocketAddr> {
        let addresses = own_addresses().into_iter();
        let addresses = addresses.chain(["127.0.0.1".into()]);
        let addresses = addresses.filter_map(|it| it.parse::<std::net::IpAddr>().ok());
        let on_all = addresses.map(|it| SocketAddr::from((it, self.tcp.port())));
        on_all.chain(self.web).collect()
    }

    /// What an attack did since the last call, if it did anything.
    pub(super) fn damage(&mut self) -> anyhow::Result<Option<String>> {
        // A connection that was just accepted is noted by another thread.
        std::thread::sleep(Duration::from_millis(30));
        let arrived: Vec<_> = {
            let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
            arrivals.drain(..).collect()
        };
        if let Some(first) = arrived.first() {
            return Ok(Some(format!(
                "a listener of the machine was reached: {first}"
            )));
        }
        if let Some(entry) = std::fs::read_dir(self.folder.path().join("marker"))?.next() {
            let path = entry?.path();
            let seen = format!("{} appeared on the machine", path.display());
            let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
            return Ok(Some(seen));
        }
        let secret = self.folder.path().join("secret");
        if !std::fs::read(&secret).is_ok_and(|it| it == self.secrets.file.as_bytes()) {
            std::fs::write(&secret, &self.secrets.file)?;
            return Ok(Some(format!("{} was changed", secret.display())));
        }
        let now = mode(&secret)?;
        if now != self.mode {
            std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(self.mode))?;
            return Ok(Some(format!(
                "the mode of {} is {now:o} now",
                secret.display()
            )));
        }
        if let Some(status) = self.victim.try_wait()? {
            self.victim = self.secrets.victim()?;
            return Ok(Some(format!(
                "a process of the machine was ended: {status}"
            )));
        }
        Ok(self.shared.damage())
    }
}

/// What is put back after an attack.
struct Secrets {
    file: String,
    environment: String,
    argument: String,
}

impl Secrets {
    /// A process of the worker's user, to be attacked.
    fn victim(&self) -> anyhow::Result<Child> {
        Command::new("/usr/bin/tail")
            .arg0(format!("tail-{}", self.argument))
            .args(["-f", "/dev/null"])
            .env("VICTIM_SECRET", &self.environment)
            .spawn()
            .context("starting a process to be attacked")
    }
}

impl Drop for Bait {
    fn drop(&mut self) {
        // It may have been ended by an attack.
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

fn mode(path: &Path) -> std::io::Result<u32> {
    Ok(std::fs::metadata(path)?.permissions().mode())
}

fn note(arrivals: &Arrivals, what: String) {
    let mut arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
    arrivals.push(what);
}

fn tcp(name: &'static str, address: SocketAddr, to: &Arrivals) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let to = Arc::clone(to);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.set_read_timeout(Some(Duration::from_millis(10)));
            let mut buffer = [0; 100];
            let got = stream.read(&mut buffer).unwrap_or(0);
            let text = String::from_utf8_lossy(&buffer[..got]).into_owned();
            note(&to, format!("{name} {text:?}"));
        }
    });
    Ok(address)
}

fn udp(to: &Arrivals) -> anyhow::Result<SocketAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let address = socket.local_addr()?;
    let to = Arc::clone(to);
    std::thread::spawn(move || {
        let mut buffer = [0; 100];
        while let Ok((got, _)) = socket.recv_from(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..got]).into_owned();
            note(&to, format!("udp {text:?}"));
        }
    });
    Ok(address)
}

fn unix(listener: UnixListener, name: &'static str, to: &Arrivals) {
    let to = Arc::clone(to);
    std::thread::spawn(move || {
        for _ in listener.incoming().flatten() {
            note(&to, format!("{name} socket"));
        }
    });
}

/// The machine's addresses, as it uses them towards others and towards containers.
fn own_addresses() -> Vec<String> {
    let towards = |target: &str| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        socket.connect(target).ok()?;
        Some(socket.local_addr().ok()?.ip().to_string())
    };
    let mut own: Vec<_> = ["192.0.2.1:9", "172.17.0.2:9"]
        .into_iter()
        .filter_map(towards)
        .collect();
    own.dedup();
    own
}

/// Shared memory and a message queue, found by a key and a name rather than in a folder.
struct Shared {
    key: i32,
    id: i32,
    queue_name: String,
    queue: i32,
}

impl Shared {
    fn create() -> anyhow::Result<Self> {
        let key = i32::from_be_bytes([0x41, 0x4d, rand_byte(), rand_byte()]);
        let queue_name = format!("/agentmine-attacks-{}", std::process::id());
        let name = CString::new(queue_name.clone())?;
        // SAFETY: plain integers, a terminated string, and default attributes.
        let (id, queue) = unsafe {
            (
                libc::shmget(key, 4096, libc::IPC_CREAT | 0o600),
                libc::mq_open(
                    name.as_ptr(),
                    libc::O_CREAT | libc::O_RDWR | libc::O_NONBLOCK,
                    0o600,
                    std::ptr::null::<libc::mq_attr>(),
                ),
            )
        };
        ensure!(
            id >= 0,
            "no shared memory: {}",
            std::io::Error::last_os_error()
        );
        Ok(Self {
            key,
            id,
            queue_name,
            queue,
        })
    }

    fn damage(&self) -> Option<String> {
        let mut message = vec![0u8; 16384];
        // SAFETY: the segment exists as long as this value and has 4096 bytes; the buffer is as long as said.
        unsafe {
            let memory = libc::shmat(self.id, std::ptr::null(), 0).cast::<u8>();
            if memory.addr() == usize::MAX {
                return Some("shared memory of the machine was removed".into());
            }
            let first = memory.read_volatile();
            memory.write_volatile(0);
            libc::shmdt(memory.cast());
            if first != 0 {
                return Some("shared memory of the machine was written".into());
            }
            let got = libc::mq_receive(
                self.queue,
                message.as_mut_ptr().cast(),
                message.len(),
                std::ptr::null_mut(),
            );
            (got >= 0).then(|| "a message queue of the machine was written".into())
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let name = CString::new(self.queue_name.clone()).unwrap_or_default();
        // SAFETY: both belong to this value.
        unsafe {
            libc::shmctl(self.id, libc::IPC_RMID, std::ptr::null_mut());
            libc::mq_close(self.queue);
            libc::mq_unlink(name.as_ptr());
        }
    }
}

fn rand_byte() -> u8 {
    uuid::Uuid::new_v4().as_bytes()[0]
}

/// The folder for what a cell of the suite leaves.
pub(super) fn scratch() -> PathBuf {
    std::env::var_os("AGENTMINE_ATTACKS_STATE").map_or_else(std::env::temp_dir, PathBuf::from)
}
