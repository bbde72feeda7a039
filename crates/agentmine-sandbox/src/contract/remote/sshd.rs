//! A `sshd` of the test's own in front of the engine. The story tests take this file in too.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An sshd for the current user, and the client configuration that reaches it.
pub(crate) struct Sshd {
    child: Child,
    port: u16,
    pub(crate) folder: tempfile::TempDir,
}

impl Sshd {
    /// Its commands find programs in `path`.
    pub(crate) fn start(path: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("agentmine-sshd-")
            .tempdir()
            .unwrap();
        let root = folder.path().to_owned();
        let at = |name: &str| root.join(name).display().to_string();
        for key in ["host", "user", "stranger"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f", &at(key)])
                .status()
                .unwrap_or_else(|err| panic!("ssh-keygen: {err}\nrun tests/run"));
            assert!(made.success());
        }
        std::fs::copy(at("user.pub"), at("authorized_keys")).unwrap();
        // As root it insists on this folder, which the package's own service would make.
        let _ = std::fs::create_dir_all("/run/sshd");
        let port = free_port();
        let far = std::env::var("DOCKER_HOST").map(|host| format!(" DOCKER_HOST={host}"));
        let config = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
             StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n\
             MaxStartups 100\nSetEnv PATH={path}{}\n",
            at("host"),
            at("authorized_keys"),
            far.unwrap_or_default(),
        );
        std::fs::write(at("sshd_config"), config).unwrap();
        let log = std::fs::File::create(at("log")).unwrap();
        let child = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f", &at("sshd_config")])
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|err| panic!("sshd: {err}\nrun tests/run"));
        let sshd = Self {
            child,
            port,
            folder,
        };
        let key = std::fs::read_to_string(at("host.pub")).unwrap();
        std::fs::write(at("known"), format!("[127.0.0.1]:{port} {key}")).unwrap();
        sshd.client("user", "known");
        sshd.wait();
        sshd
    }

    /// Until it accepts connections.
    fn wait(&self) {
        let began = Instant::now();
        while std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
            assert!(began.elapsed() < Duration::from_secs(20), "sshd: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes the client's configuration with this key and these known hosts.
    pub(crate) fn client(&self, key: &str, known: &str) {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let config = format!(
            "IdentityFile {}\nIdentitiesOnly yes\nIdentityAgent none\nUserKnownHostsFile {}\n\
             GlobalKnownHostsFile none\nStrictHostKeyChecking yes\n",
            at(key),
            at(known),
        );
        std::fs::write(at("config"), config).unwrap();
    }

    /// The engine's address.
    pub(crate) fn host(&self) -> String {
        format!("ssh://127.0.0.1:{}", self.port)
    }

    /// The client's configuration.
    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    /// The processes of this user's ssh that use this configuration.
    pub(crate) fn clients(&self) -> Vec<i32> {
        using(&self.config())
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// The live processes that have this path as an argument.
fn using(path: &Path) -> Vec<i32> {
    let path = path.display().to_string();
    let has = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|word| word == path.as_bytes())
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(has)
        .collect()
}
