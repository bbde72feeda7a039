//! The jail with bubblewrap: a root of read-only system folders, in namespaces of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::limits::Held;
use super::setup::JailSetup;
use crate::assets::{FOLDER, GUEST};
use crate::error::{SHORTAGES, SandboxError};
use crate::name::HOSTNAME;

const PROBE_LIMIT: Duration = Duration::from_secs(10);
/// Where Debian's Ruby has the gems that were installed for all users.
const GEMS: &str = "/var/lib/gems";
/// Starts bubblewrap (`$2`) so that the jail sees the cgroup that it is in, and no other one. cargo, Go, JVMs and Node read there
/// how many cores and how much memory they have; otherwise they take those of the machine, and are killed for it. `$1` is a list
/// as in [`GROUPS`], which has one line where version 2 alone is mounted.
const START: &str = r#"read -r group < "$1" || group=
program=$2; shift 2
case $group in
    *..*) ;;
    0::/?*) exec "$program" --ro-bind-try "/sys/fs/cgroup${group#0::}" /sys/fs/cgroup "$@" ;;
esac
exec "$program" "$@""#;
/// The groups of a process (cgroups(7)).
const GROUPS: &str = "/proc/self/cgroup";

/// The kernel's settings, as files.
pub(super) const SETTINGS: &str = "/proc/sys";

/// Which options the bubblewrap of this machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Release {
    /// 0.7 or newer, and not setuid.
    Current,
    /// Without `--size`, as that of Ubuntu 22.04, or also without `--clearenv` (before 0.5), as that of RHEL 9. One that is
    /// setuid refuses `--size`.
    Older,
}

/// Why bubblewrap did not work.
#[derive(Debug)]
pub(super) enum ProbeError {
    /// It does not on this machine.
    Cannot(String),
    /// The machine is short of something, which says nothing about bubblewrap.
    NotNow(String),
}

/// Whether bubblewrap works on this machine, with exactly the flags of a sandbox, and with which options.
pub(super) async fn probe(setup: &JailSetup) -> Result<Release, ProbeError> {
    match probe_as(setup, Release::Current).await {
        Ok(()) => Ok(Release::Current),
        Err(ProbeError::Cannot(why)) if lacks_options(&why) => {
            let older = probe_as(setup, Release::Older).await;
            older.map(|()| Release::Older)
        }
        Err(why) => Err(why),
    }
}

/// Whether this error is about an option that [`Release::Older`] does not use.
fn lacks_options(why: &str) -> bool {
    ["--size", "--clearenv"].iter().any(|it| why.contains(it))
}

/// Whether this error of a program is about what the machine may have again in a moment. `settings` is [`SETTINGS`].
pub(super) fn is_shortage(said: &str, settings: &Path) -> bool {
    // In the words of bubblewrap and of `systemd-run`.
    let own = ["(enospc)", "failed to connect to bus"];
    let said = said.to_lowercase();
    // The same error, where no namespace is ever allowed.
    let is_forbidden = said.contains("namespace") && is_set(settings, NAMESPACES, "0");
    !is_forbidden && SHORTAGES.iter().chain(&own).any(|it| said.contains(it))
}

/// How many namespaces of users there may be, below [`SETTINGS`].
const NAMESPACES: &str = "user/max_user_namespaces";

fn is_set(settings: &Path, name: &str, value: &str) -> bool {
    std::fs::read_to_string(settings.join(name)).is_ok_and(|text| text.trim() == value)
}

/// What a person can do about this error of bubblewrap. `settings` is [`SETTINGS`].
pub(super) fn remedy(why: &str, settings: &Path) -> &'static str {
    let is = |name: &str, value: &str| is_set(settings, name, value);
    // "Permission denied", "Operation not permitted", "No permissions to create a new namespace".
    let is_denied = why.to_lowercase().contains("permi");
    // Error 2 (ENOENT) means that bubblewrap is not installed.
    if !why.ends_with("(os error 2)") {
        if is_denied && is("kernel/apparmor_restrict_unprivileged_userns", "1") {
            return "give bwrap an AppArmor profile with the rule `userns` (Ubuntu 24.04: install apparmor-profiles, copy \
                    /usr/share/apparmor/extra-profiles/bwrap-userns-restrict to /etc/apparmor.d and reload apparmor), since \
                    kernel.apparmor_restrict_unprivileged_userns is 1";
        }
        if is("kernel/unprivileged_userns_clone", "0") {
            return "set kernel.unprivileged_userns_clone to 1 with sysctl";
        }
        if is(NAMESPACES, "0") {
            return "set user.max_user_namespaces to 10000 with sysctl";
        }
    }
    "install bubblewrap and allow user namespaces"
}

async fn probe_as(setup: &JailSetup, release: Release) -> Result<(), ProbeError> {
    let of_machine = |what: &str, error: &io::Error| {
        let why = format!("{what}: {error}");
        match SandboxError::of_machine(&what, error) {
            // bubblewrap is not installed.
            _ if error.kind() == io::ErrorKind::NotFound => ProbeError::Cannot(why),
            SandboxError::Unavailable(_) => ProbeError::NotNow(why),
            _ => ProbeError::Cannot(why),
        }
    };
    let mut command =
        base(setup, release).map_err(|error| of_machine("the jail's /etc", &error))?;
    command.args(["--", "/usr/bin/env", "true"]).env_clear();
    let mut command = tokio::process::Command::from(command);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let output = tokio::time::timeout(PROBE_LIMIT, command.output()).await;
    let output = output
        .map_err(|_| ProbeError::NotNow(format!("bwrap does not finish within {PROBE_LIMIT:?}")))?;
    let output = output.map_err(|error| of_machine("bwrap", &error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last();
    let why = last.unwrap_or("bwrap failed without an error message");
    Err(match is_shortage(why, Path::new(SETTINGS)) {
        true => ProbeError::NotNow(why.to_owned()),
        false => ProbeError::Cannot(why.to_owned()),
    })
}

/// The guest of a sandbox whose files are in `workspace`.
pub(super) fn guest(
    setup: &JailSetup,
    release: Release,
    workspace: &Path,
    held: &Held,
) -> io::Result<Command> {
    let mut command = base(setup, release)?;
    command.arg("--bind").arg(workspace).arg("/workspace");
    command.args(["--remount-ro", "/", "--chdir", "/workspace", "--"]);
    match release {
        Release::Current => {}
        Release::Older => {
            command.args(["/usr/bin/env", "-i"]);
        }
    }
    command.arg(format!("{FOLDER}/{GUEST}"));
    command.args(setup.guest_args("namespaces", Path::new("/workspace"), held));
    Ok(
        match held.controllers.is_empty() || !setup.has_unified_groups {
            true => command,
            false => showing_group(GROUPS, &command),
        },
    )
}

/// bubblewrap as [`START`] starts it.
fn showing_group(groups: &str, bubblewrap: &Command) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", START, "start-jail", groups]);
    shell
        .arg(bubblewrap.get_program())
        .args(bubblewrap.get_args());
    shell
}

fn base(setup: &JailSetup, release: Release) -> io::Result<Command> {
    let mut command = Command::new(program());
    command.args([
        "--unshare-all",
        "--unshare-user",
        // The guest is the first process: no command can end it, and none of bubblewrap's is in the jail.
        "--as-pid-1",
        "--die-with-parent",
        "--new-session",
        "--hostname",
        HOSTNAME,
        "--uid",
        "1000",
        "--gid",
        "1000",
        "--ro-bind",
        "/usr",
        "/usr",
    ]);
    match release {
        Release::Current => {
            command.arg("--clearenv");
        }
        Release::Older => {}
    }
    for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
        let path = PathBuf::from("/").join(name);
        match std::fs::read_link(&path) {
            Ok(target) => command.arg("--symlink").arg(target).arg(&path),
            Err(_) if path.is_dir() => command.arg("--ro-bind").arg(&path).arg(&path),
            Err(_) => &mut command,
        };
    }
    command
        .arg("--ro-bind")
        .arg(setup.etc.folder()?)
        .arg("/etc");
    command.args(["--ro-bind-try", GEMS, GEMS]);
    command.args(["--proc", "/proc", "--dev", "/dev"]);
    for scratch in ["/tmp", "/dev/shm"] {
        match release {
            Release::Current => {
                command.arg("--size").arg(setup.tmp_limit.to_string());
            }
            Release::Older => {}
        }
        command.args(["--tmpfs", scratch]);
    }
    command.args(["--dir", "/run", "--dir", "/opt", "--dir", "/opt/agentmine"]);
    command.arg("--ro-bind").arg(&setup.programs).arg(FOLDER);
    for folder in setup.read_only() {
        if !folder.starts_with("/usr") {
            command.arg("--ro-bind-try").arg(folder).arg(folder);
        }
    }
    Ok(command)
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
    use agentmine_runtime::config::CommandExecutor;

    use super::*;
    use crate::local::limits::Controller;

    #[test]
    fn a_shortage_is_not_taken_for_a_machine_without_namespaces() {
        let settings = tempfile::tempdir().unwrap();
        let short = "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded \
                     (ENOSPC)";
        assert!(is_shortage(short, settings.path()));
        assert!(!is_shortage(
            "bwrap: No permissions to create a new namespace",
            settings.path()
        ));
        std::fs::create_dir(settings.path().join("user")).unwrap();
        std::fs::write(settings.path().join(NAMESPACES), "0\n").unwrap();
        assert!(!is_shortage(short, settings.path()));
    }

    #[test]
    fn a_jail_sees_the_limits_of_its_own_group_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let mut bubblewrap = Command::new("/bin/echo");
        bubblewrap.args(["--proc", "/a b"]);
        let shown = "--ro-bind-try /sys/fs/cgroup/a.slice/jail /sys/fs/cgroup --proc /a b\n";
        for (groups, started) in [
            ("0::/a.slice/jail\n", shown),
            // All groups of the machine.
            ("0::/\n", "--proc /a b\n"),
            // Outside of what is mounted.
            ("0::/../jail\n", "--proc /a b\n"),
            ("9:memory:/jail\n0::/jail\n", "--proc /a b\n"),
            ("", "--proc /a b\n"),
        ] {
            let file = folder.path().join("cgroup");
            std::fs::write(&file, groups).unwrap();
            let done = showing_group(file.to_str().unwrap(), &bubblewrap).output();
            let output = String::from_utf8(done.unwrap().stdout).unwrap();
            assert_eq!(output, started, "{groups}");
        }
    }

    #[test]
    fn only_a_jail_in_a_group_is_started_by_the_shell() {
        let folder = tempfile::tempdir().unwrap();
        let config = CommandExecutor::default();
        let mut setup = JailSetup::new(&config, folder.path().to_owned());
        for (controllers, unified, is_shell) in [
            (Controller::ALL.to_vec(), true, true),
            (Controller::ALL.to_vec(), false, false),
            (Vec::new(), true, false),
        ] {
            setup.has_unified_groups = unified;
            let held = Held {
                controllers,
                disk: false,
            };
            let started = guest(&setup, Release::Current, folder.path(), &held).unwrap();
            assert_eq!(started.get_program() == "/bin/sh", is_shell);
            assert!(started.get_args().any(|it| it == "--as-pid-1"));
        }
    }

    #[test]
    fn an_older_bubblewrap_is_started_without_the_options_that_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let setup = JailSetup::new(&CommandExecutor::default(), folder.path().to_owned());
        let held = Held {
            controllers: Vec::new(),
            disk: false,
        };
        let arguments = |release| -> Vec<String> {
            let started = guest(&setup, release, folder.path(), &held).unwrap();
            let texts = started.get_args();
            texts.map(|it| it.to_string_lossy().into_owned()).collect()
        };
        let has = |arguments: &[String], name: &str| arguments.iter().any(|it| it == name);
        let (current, older) = (arguments(Release::Current), arguments(Release::Older));
        for name in ["--size", "--clearenv"] {
            assert!(has(&current, name) && !has(&older, name), "{older:?}");
        }
        // Both start the guest without variables.
        let guest = format!("{FOLDER}/{GUEST}");
        let at = older.iter().position(|it| *it == guest).unwrap();
        assert_eq!(older[at - 3..at], ["--", "/usr/bin/env", "-i"]);
        for (why, lacks) in [
            ("bwrap: Unknown option --size", true),
            ("bwrap: Unknown option --clearenv", true),
            (
                "bwrap: The --size option is not permitted in setuid mode",
                true,
            ),
            ("bwrap: setting up uid map: Permission denied", false),
        ] {
            assert_eq!(lacks_options(why), lacks, "{why}");
        }
    }

    #[test]
    fn the_remedy_is_for_what_forbids_user_namespaces_here() {
        let denied = "bwrap: setting up uid map: Permission denied";
        let absent = "bwrap: No such file or directory (os error 2)";
        for (file, value, expected) in [
            (
                "kernel/apparmor_restrict_unprivileged_userns",
                "1\n",
                "AppArmor profile",
            ),
            (
                "kernel/unprivileged_userns_clone",
                "0\n",
                "kernel.unprivileged_userns_clone to 1",
            ),
            (
                "user/max_user_namespaces",
                "0\n",
                "user.max_user_namespaces to 10000",
            ),
            (
                "kernel/unprivileged_userns_clone",
                "1\n",
                "install bubblewrap",
            ),
        ] {
            let settings = tempfile::tempdir().unwrap();
            let file = settings.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, value).unwrap();
            let shown = remedy(denied, settings.path());
            assert!(shown.contains(expected), "{shown}");
            let shown = remedy(absent, settings.path());
            assert!(shown.starts_with("install bubblewrap"), "{shown}");
        }
    }
}
