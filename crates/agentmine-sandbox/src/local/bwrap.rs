//! The jail with bubblewrap: a root of read-only system folders, in namespaces of its own.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::limits::Held;
use super::setup::JailSetup;
use crate::assets::{FOLDER, GUEST};

const PROBE_LIMIT: Duration = Duration::from_secs(10);
/// The entries of the host's `/etc` that programs need to run and to verify certificates. Never a folder
/// that also holds private keys: for files, a worker that runs as root is root in the jail too.
const ETC: &[&str] = &[
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "pki/ca-trust",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "ca-certificates",
    "ca-certificates.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "protocols",
    "services",
    "os-release",
    "debian_version",
    "java",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "java-25-openjdk",
    // Not settings.xml, which may hold passwords.
    "maven/m2.conf",
    "maven/logging",
    "python3",
    "python3.11",
    "python3.12",
    "python3.13",
    "fonts",
];
const PASSWD: &str = "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n\
     agent:x:1000:1000:agent:/workspace/tmp/home:/bin/sh\n\
     nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost sandbox\n::1 localhost\n";

/// Whether bubblewrap works on this machine, with exactly the flags of a sandbox.
pub(super) async fn probe(setup: &JailSetup) -> Result<(), String> {
    let mut command = base(setup);
    command.args(["--", "/usr/bin/env", "true"]).env_clear();
    let mut command = tokio::process::Command::from(command);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let output = tokio::time::timeout(PROBE_LIMIT, command.output()).await;
    let output = output.map_err(|_| "bwrap does not finish".to_owned())?;
    let output = output.map_err(|err| format!("bwrap: {err}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said
        .lines()
        .last()
        .unwrap_or("bwrap failed without an error message")
        .to_owned())
}

/// The guest of a sandbox whose files are in `workspace`.
pub(super) fn guest(setup: &JailSetup, workspace: &Path, held: &Held) -> Command {
    let mut command = base(setup);
    command.arg("--bind").arg(workspace).arg("/workspace");
    command.args(["--remount-ro", "/", "--chdir", "/workspace", "--"]);
    command.arg(format!("{FOLDER}/{GUEST}"));
    command.args(setup.guest_args("namespaces", Path::new("/workspace"), held));
    command
}

fn base(setup: &JailSetup) -> Command {
    let mut command = Command::new(program());
    command.args([
        "--unshare-all",
        "--unshare-user",
        // The guest is the first process: no command can end it, and none of bubblewrap's is in the jail.
        "--as-pid-1",
        "--die-with-parent",
        "--new-session",
        "--clearenv",
        "--hostname",
        "sandbox",
        "--uid",
        "1000",
        "--gid",
        "1000",
        "--ro-bind",
        "/usr",
        "/usr",
    ]);
    for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
        let path = PathBuf::from("/").join(name);
        match std::fs::read_link(&path) {
            Ok(target) => command.arg("--symlink").arg(target).arg(&path),
            Err(_) if path.is_dir() => command.arg("--ro-bind").arg(&path).arg(&path),
            Err(_) => &mut command,
        };
    }
    for name in ETC {
        let path = Path::new("/etc").join(name);
        command.arg("--ro-bind-try").arg(&path).arg(&path);
    }
    command.args(["--proc", "/proc", "--dev", "/dev"]);
    for scratch in ["/tmp", "/dev/shm"] {
        command.arg("--size").arg(setup.tmp_limit.to_string());
        command.args(["--tmpfs", scratch]);
    }
    command.args(["--dir", "/run", "--dir", "/opt", "--dir", "/opt/agentmine"]);
    command.arg("--ro-bind").arg(&setup.programs).arg(FOLDER);
    for (name, content) in [("passwd", PASSWD), ("group", GROUP), ("hosts", HOSTS)] {
        let made = setup.programs.join(format!("etc-{name}"));
        if made.exists() || write(&made, content).is_ok() {
            command
                .arg("--ro-bind")
                .arg(made)
                .arg(Path::new("/etc").join(name));
        }
    }
    for folder in setup.read_only() {
        if !folder.starts_with("/usr") {
            command.arg("--ro-bind-try").arg(folder).arg(folder);
        }
    }
    command
}

fn write(path: &Path, content: &str) -> std::io::Result<()> {
    let temporary = path.with_extension(uuid::Uuid::new_v4().simple().to_string());
    std::fs::File::create(&temporary)?.write_all(content.as_bytes())?;
    std::fs::rename(temporary, path)
}

/// The first `bwrap` on the worker's path. By its full name: the start of a sandbox clears the environment
/// that would be searched.
fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .chain(["/usr/bin", "/usr/local/bin"].map(PathBuf::from))
        .map(|folder| folder.join("bwrap"))
        .find(|program| program.exists())
        .unwrap_or_else(|| "bwrap".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_private_key_is_in_a_visible_folder() {
        for key in [
            "ssl/private/server.key",
            "pki/tls/private/server.key",
            "pki/nssdb/key4.db",
            "shadow",
        ] {
            let shown = ETC.iter().find(|path| Path::new(key).starts_with(path));
            assert_eq!(shown, None, "{key}");
        }
        assert!(ETC.contains(&"ssl/certs"));
    }
}
