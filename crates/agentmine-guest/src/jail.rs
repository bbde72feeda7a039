//! The restrictions that the guest applies to itself before it starts anything: resource limits, Landlock,
//! seccomp.
//!
//! In a container the engine confines the guest, and the guest adds its own system call filter, since what an
//! engine's filter refuses depends on its version. In the local jail Landlock and seccomp are added to the
//! namespaces. Without namespaces they are the only confinement: then they must be enforced in full, or the
//! guest refuses to serve.
//!
//! What a guest starts runs as the guest's own user. The guest is not dumpable: for all other processes without
//! capabilities the kernel then refuses to trace it, and to open its memory, its environment and its files
//! (ptrace(2), "Ptrace access mode checking"). It does not keep them from ending it, except where it is the first
//! process of its namespace; that ends the sandbox, and with it the task's attempt.

use std::path::{Path, PathBuf};

use agentmine_guest::protocol::JailReport;
use anyhow::{Context as _, Result, bail};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, NetPort,
    RestrictionStatus, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
    path_beneath_rules,
};

use crate::args::{Confinement, Options};
use crate::syscalls;

/// Maximum number of open files per process. No honest build needs more.
const MAX_FILES: libc::rlim_t = 65_536;
/// What may be read without namespaces, besides the folders that the worker names. Of the certificate folders
/// only the public part: the folders next to it contain private keys, which root can read.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/sys/devices/system/cpu",
    "/etc/alternatives",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/pki/ca-trust",
    "/etc/pki/java",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/protocols",
    "/etc/services",
    "/etc/gitconfig",
    "/etc/inputrc",
    "/etc/os-release",
    "/etc/debian_version",
    "/etc/java",
    "/etc/java-8-openjdk",
    "/etc/java-11-openjdk",
    "/etc/java-17-openjdk",
    "/etc/java-21-openjdk",
    "/etc/java-25-openjdk",
    // Not settings.xml, which may hold passwords.
    "/etc/maven/m2.conf",
    "/etc/maven/logging",
    // Not Renviron.site, which may hold passwords.
    "/etc/R/Makeconf",
    "/etc/R/Renviron",
    "/etc/R/ldpaths",
    "/etc/R/repositories",
    "/etc/dotnet",
    "/etc/timezone",
    "/var/lib/gems",
];
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];
/// Allowed only in namespaces, where they are the sandbox's own: the machine's give access to the terminals of
/// other users.
const TERMINALS: &[&str] = &["/dev/tty", "/dev/ptmx", "/dev/pts"];

/// Why the jail without namespaces is refused.
const TOO_OLD: &str = "this kernel cannot isolate a sandbox without namespaces: that needs Landlock \
     ABI 6 (Linux 6.12). hint: make bubblewrap work, or use Docker";

/// Allows no core files and at most [`MAX_FILES`] open files. Where the kernel counts the sandbox's processes
/// separately, allows at most the configured number. A lower limit stays.
pub(crate) fn limit_resources(options: &Options) {
    let mut limits = vec![(libc::RLIMIT_CORE, 0), (libc::RLIMIT_NOFILE, MAX_FILES)];
    let is_namespace = options.confinement == Confinement::Namespaces;
    if is_namespace && options.max_processes > 0 && counts_per_namespace(&release()) {
        // Not for a namespace that root created.
        limits.push((libc::RLIMIT_NPROC, options.max_processes));
    }
    for (resource, most) in limits {
        // SAFETY: the struct is a local that getrlimit fills; lowering a limit is always allowed.
        unsafe {
            let mut limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            if libc::getrlimit(resource, &raw mut limit) == 0 {
                limit.rlim_max = limit.rlim_max.min(most);
                limit.rlim_cur = limit.rlim_max;
                libc::setrlimit(resource, &raw const limit);
            }
        }
    }
}

/// The kernel's release, as `uname -r` prints it.
fn release() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    release.unwrap_or_default().trim().to_owned()
}

/// Whether this kernel counts the processes of a user in each user namespace: Linux 5.14 and newer. Older ones count all threads
/// that the worker's user has on the machine.
fn counts_per_namespace(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return false;
    };
    (major, minor) >= (5_u32, 14_u32)
}

/// Gives new files the modes that they have on most machines. A worker may have been started with another mask, such as
/// 077 of a service that keeps its files to itself, and tests compare modes. The folders above the workspace stay closed.
pub(crate) fn mask_modes() {
    // SAFETY: takes a plain integer and cannot fail.
    unsafe {
        libc::umask(0o022);
    }
}

/// Makes the kernel kill this process and its descendants before the worker when memory runs out. The sandbox
/// works without it, so a failure is ignored.
pub(crate) fn die_first() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// Lets no other process of this user look into this one. A program that it starts is not affected.
pub(crate) fn hide() -> std::io::Result<()> {
    // SAFETY: takes plain integers and changes only a flag of this process.
    match unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Confines this process and all that it will start. `ports` are those of the guest's own listeners.
pub(crate) fn enter(options: &Options, ports: (u16, u16)) -> Result<JailReport> {
    let landlock = match options.confinement {
        Confinement::Container => RulesetStatus::NotEnforced,
        Confinement::Namespaces => confine_in_namespaces(options)?.ruleset,
        Confinement::Alone => confine_alone(options, ports).context("Landlock")?.ruleset,
    };
    syscalls::install(options).context("seccomp")?;
    let landlock = match landlock {
        RulesetStatus::FullyEnforced => "full",
        RulesetStatus::PartiallyEnforced => "partial",
        RulesetStatus::NotEnforced => "none",
    };
    Ok(JailReport {
        landlock: landlock.into(),
        seccomp: true,
    })
}

/// Everything in the namespaces may be read; only the workspace and temporary folders may be written.
fn confine_in_namespaces(options: &Options) -> Result<RestrictionStatus> {
    let all = AccessFs::from_all(ABI::V6);
    let writable = [
        options.root.as_path(),
        Path::new("/tmp"),
        Path::new("/dev/shm"),
    ];
    Ok(Ruleset::default()
        .handle_access(all)?
        .create()?
        .add_rules(path_beneath_rules(["/"], AccessFs::from_read(ABI::V6)))?
        .add_rules(path_beneath_rules(writable, all))?
        .add_rules(path_beneath_rules(DEVICES, all))?
        .add_rules(path_beneath_rules(TERMINALS, all))?
        .restrict_self()?)
}

fn confine_alone(options: &Options, (git, web): (u16, u16)) -> Result<RestrictionStatus> {
    drop_capabilities();
    let all = AccessFs::from_all(ABI::V6);
    let read = AccessFs::from_read(ABI::V6);
    let own = std::env::current_exe()?;
    let own: Vec<PathBuf> = own.parent().map(Path::to_owned).into_iter().collect();
    // To block the network needs Landlock 4 (Linux 6.7). To block signals and abstract sockets to the user's
    // other processes needs Landlock 6 (Linux 6.12). Without both the sandbox would not be isolated.
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V3))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(ABI::V4)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(ABI::V6)))
        .context(TOO_OLD)?;
    let status = ruleset
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .create()?
        .add_rules(path_beneath_rules(SYSTEM, read))?
        .add_rules(path_beneath_rules(&own, read))?
        .add_rules(path_beneath_rules(&options.read_only, read))?
        .add_rules(path_beneath_rules(DEVICES, all))?
        .add_rules(path_beneath_rules([&options.root], all))?
        .add_rule(NetPort::new(git, AccessNet::ConnectTcp))?
        .add_rule(NetPort::new(web, AccessNet::ConnectTcp))?
        .restrict_self()?;
    if status.ruleset == RulesetStatus::NotEnforced {
        bail!("this kernel has no Landlock");
    }
    Ok(status)
}

/// A worker that runs as root has capabilities; nothing in the jail needs any.
fn drop_capabilities() {
    const VERSION_3: u32 = 0x2008_0522;
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    // SAFETY: prctl takes plain integers; capset takes a header and two data blocks of three words,
    // as version 3 requires. Both fail without effect if there is nothing to drop.
    unsafe {
        for capability in 0..64 {
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
        let header = Header {
            version: VERSION_3,
            pid: 0,
        };
        let none = [0u32; 6];
        libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_limited_where_the_kernel_counts_those_of_the_sandbox() {
        for (release, counts) in [
            ("6.12.48+deb13-amd64", true),
            ("5.14.0-427.el9.x86_64", true),
            ("5.10.0-32-amd64", false),
            ("4.18.0-553.el8_10.x86_64", false),
            ("", false),
        ] {
            assert_eq!(counts_per_namespace(release), counts, "{release}");
        }
    }

    #[test]
    fn no_private_key_is_below_what_may_be_read() {
        for key in [
            "/etc/ssl/private/server.key",
            "/etc/pki/tls/private/server.key",
            "/etc/pki/nssdb/key4.db",
        ] {
            let read = SYSTEM.iter().find(|path| Path::new(key).starts_with(path));
            assert_eq!(read, None, "{key}");
        }
        for certificates in ["/etc/ssl/certs", "/etc/pki/java"] {
            assert!(SYSTEM.contains(&certificates), "{certificates}");
        }
    }

    #[test]
    fn new_files_have_the_usual_modes_whatever_the_workers_mask_is() {
        use std::os::unix::process::CommandExt as _;
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "umask"]);
        // SAFETY: the child only changes its own mask before it becomes the shell.
        unsafe {
            shell.pre_exec(|| {
                libc::umask(0o077);
                mask_modes();
                Ok(())
            });
        }
        assert_eq!(shell.output().unwrap().stdout, b"0022\n");
    }

    #[test]
    fn the_machines_terminals_are_no_devices_of_a_sandbox() {
        for path in TERMINALS {
            let device = DEVICES.iter().find(|device| path.starts_with(**device));
            assert_eq!(device, None, "{path}");
        }
    }
}
