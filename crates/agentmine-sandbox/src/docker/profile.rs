//! The limits and rights of a container.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use agentmine_runtime::config;
use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount, MountType,
    MountVolumeOptions, MountVolumeOptionsDriverConfig, ResourcesUlimits, SystemInfo,
};

use super::identity::Identity;
use super::programs::{self, Access};
use crate::assets::guest_path;
use crate::backend::watched_disk_limit;
use crate::error::SandboxError;
use crate::name::HOSTNAME;
use crate::spec::MAX_IN_MEMORY;
use crate::template::WorkspaceTemplate;
use crate::volume::{self, Volume, Volumes};

/// The configured limits, checked against what the engine offers.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) warnings: Vec<String>,
    memory: i64,
    /// `None` where the engine cannot limit CPU time: it would refuse the container.
    nano_cpus: Option<i64>,
    pids: i64,
    runtime: Option<String>,
    disk: Disk,
    /// Whether containers can have the address ::1.
    loopback_v6: AtomicBool,
    /// File systems for workspaces, as long as the engine mounts them; the error says why there are none.
    pub(crate) volumes: Result<Volumes, String>,
    mounts_volumes: AtomicBool,
}

/// What is mounted in a container.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MountedVolumes<'a> {
    pub(crate) workspace: WorkspaceOf<'a>,
    /// The name of the volume with the programs.
    pub(crate) programs: &'a str,
}

/// What `/workspace` is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WorkspaceOf<'a> {
    /// A file system of fixed size, whose top folder belongs to the guest's user.
    FileSystem(&'a Volume),
    /// A volume with the image's own empty folder, which belongs to the guest's user.
    Image,
    /// A volume whose folders are uploaded.
    Upload,
}

/// The kernel's switch for IP version 6 on the loopback interface.
const IPV6_OFF: &str = "net.ipv6.conf.lo.disable_ipv6";

/// Who enforces the disk limit, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disk {
    /// The storage driver, for the container's own layer, and the guest's watch for the volumes.
    Engine(u64),
    /// The guest's watch.
    Guest(u64),
}

impl Profile {
    pub(crate) fn new(config: &config::Docker, info: &SystemInfo) -> Result<Self, SandboxError> {
        let (uid, gid) = parse_user(&config.user)?;
        let runtime = config
            .runtime
            .as_deref()
            .map(|wanted| check_runtime(wanted, info));
        let cpus = config.resources.cpu_limit.max(0.01);
        // An engine refuses more CPUs than it has.
        let cpus = info.ncpu.map_or(cpus, |has| cpus.min(has as f64));
        let disk = config.resources.disk_limit.bytes();
        let mut warnings = Vec::new();
        if info.memory_limit == Some(false) || info.pids_limit == Some(false) {
            warnings.push("this engine cannot limit memory or processes".to_owned());
        }
        // Podman answers `false` on cgroup v2 although it can limit CPU time. It sends no warnings; Docker warns of this.
        let limits_cpus =
            info.cpu_cfs_quota != Some(false) || info.warnings.as_ref().is_some_and(Vec::is_empty);
        if !limits_cpus {
            warnings.push(
                "this engine cannot limit CPU time, so a sandbox can use all cores. hint: if the engine is rootless, let \
                 systemd delegate the controller `cpu` to its user"
                    .to_owned(),
            );
        }
        Ok(Self {
            uid,
            gid,
            warnings,
            memory: i64::try_from(config.resources.memory_limit.bytes()).unwrap_or(i64::MAX),
            nano_cpus: limits_cpus.then_some((cpus * 1e9) as i64),
            pids: config.pids_limit,
            runtime: runtime.transpose()?,
            disk: if has_storage_quota(info) {
                Disk::Engine(disk)
            } else {
                Disk::Guest(disk)
            },
            loopback_v6: AtomicBool::new(true),
            volumes: Err(String::new()),
            mounts_volumes: AtomicBool::new(true),
        })
    }

    /// The limit of `/workspace`, in bytes.
    pub(crate) fn disk_size(&self) -> u64 {
        let (Disk::Engine(limit) | Disk::Guest(limit)) = self.disk;
        limit
    }

    /// A file system for a workspace, if one can be had. Otherwise the guest watches the limit.
    pub(crate) async fn volume(&self, template: Option<&WorkspaceTemplate>) -> Option<Volume> {
        let volumes = self.volumes.as_ref().ok()?;
        if !self.mounts_volumes.load(Ordering::Relaxed) {
            return None;
        }
        let owner = (u32::try_from(self.uid).ok()?, u32::try_from(self.gid).ok()?);
        let content = template.map(WorkspaceTemplate::content);
        volumes.make_or_warn(owner, content).await
    }

    /// What containers are made with now.
    pub(crate) fn uses(&self) -> Uses {
        Uses {
            loopback_v6: self.loopback_v6.load(Ordering::Relaxed),
            volumes: self.volumes.is_ok() && self.mounts_volumes.load(Ordering::Relaxed),
        }
    }

    /// Whether this error of a container that was made with `used` says that the engine cannot mount such file systems. Then later
    /// containers do without.
    pub(crate) fn lacks_volumes(&self, used: Uses, error: &SandboxError) -> bool {
        let text = error.to_string().to_lowercase();
        let kinds = ["local volume", "/dev/loop", "mounting volume"];
        let is_of_volume = kinds.iter().any(|it| text.contains(it));
        let is_full = text.contains("no space left");
        let failed = is_of_volume && text.contains("mount") && !is_full;
        if failed && used.volumes {
            self.mounts_volumes.store(false, Ordering::Relaxed);
        }
        failed && used.volumes
    }

    /// Whether this error says that the engine's kernel has no IP version 6. Then later containers do without.
    pub(crate) fn lacks_v6(&self, used: Uses, error: &SandboxError) -> bool {
        let missing = error.to_string().contains("disable_ipv6");
        if missing {
            self.loopback_v6.store(false, Ordering::Relaxed);
        }
        missing && used.loopback_v6
    }

    /// Who enforces the disk limit, for people.
    pub(crate) fn disk_limit(&self) -> String {
        let workspace = match &self.volumes {
            Ok(volumes) if self.mounts_volumes.load(Ordering::Relaxed) => volumes.describe(),
            Ok(_) => watched_disk_limit(
                self.disk_size(),
                "the engine does not mount file systems for workspaces",
            ),
            Err(why) => watched_disk_limit(self.disk_size(), why),
        };
        match self.disk {
            Disk::Engine(limit) => format!(
                "{} MiB for the container's own layer, by the storage driver; {workspace}",
                limit >> 20,
            ),
            Disk::Guest(_) => workspace,
        }
    }

    /// The guest's arguments.
    fn guest_arguments(&self, workspace: WorkspaceOf<'_>) -> Vec<String> {
        let limit = match workspace {
            WorkspaceOf::FileSystem(_) => 0,
            WorkspaceOf::Image | WorkspaceOf::Upload => self.disk_size(),
        };
        let limit = limit.to_string();
        [
            "serve",
            "--confine",
            "container",
            "--inherit-env",
            "--disk-limit",
            &limit,
        ]
        .map(|part: &str| part.to_owned())
        .into()
    }

    pub(crate) fn container(
        &self,
        identity: &Identity,
        image: &str,
        read_only_root: bool,
        volumes: MountedVolumes<'_>,
    ) -> ContainerCreateBody {
        ContainerCreateBody {
            hostname: Some(HOSTNAME.into()),
            user: Some(format!("{}:{}", self.uid, self.gid)),
            image: Some(image.to_owned()),
            entrypoint: Some(vec![guest_path()]),
            cmd: Some(self.guest_arguments(volumes.workspace)),
            // The tunnel. Once the worker's connection is gone, the guest's input ends, and so does the container.
            open_stdin: Some(true),
            stdin_once: Some(true),
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            working_dir: Some("/workspace".into()),
            labels: Some(identity.labels.clone()),
            stop_signal: Some("SIGTERM".into()),
            stop_timeout: Some(10),
            // An image's health check would be an unexpected extra process.
            healthcheck: Some(HealthConfig {
                test: Some(vec!["NONE".into()]),
                ..HealthConfig::default()
            }),
            host_config: Some(self.host_config(read_only_root, volumes)),
            ..ContainerCreateBody::default()
        }
    }

    fn host_config(&self, read_only_root: bool, volumes: MountedVolumes<'_>) -> HostConfig {
        HostConfig {
            network_mode: Some("none".into()),
            ipc_mode: Some("private".into()),
            // Databases, browsers and loaders of training data need more than the 64 MB that engines give. It is in the
            // limit of memory.
            shm_size: Some(self.memory.min(MAX_IN_MEMORY)),
            // Where there is no network, engines leave a container's own name without an address, and what looks it up
            // fails, as `InetAddress.getLocalHost` of Java does.
            extra_hosts: Some(vec![format!("{HOSTNAME}:127.0.0.1")]),
            cap_drop: Some(vec!["ALL".into()]),
            security_opt: Some(vec!["no-new-privileges:true".into()]),
            // The guest is the first process itself, so that all of them are under its filter.
            init: Some(false),
            // Engines switch IP version 6 off where there is no network, and with it the address ::1.
            sysctls: self
                .loopback_v6
                .load(Ordering::Relaxed)
                .then(|| pairs(&[(IPV6_OFF, "0")])),
            pids_limit: Some(self.pids),
            memory: Some(self.memory),
            memory_swap: Some(self.memory),
            nano_cpus: self.nano_cpus,
            // The guest lowers the number of open files: some machines refuse a hard limit above the
            // engine's own.
            ulimits: Some(vec![ResourcesUlimits {
                name: Some("core".into()),
                soft: Some(0),
                hard: Some(0),
            }]),
            // The output is the tunnel.
            log_config: Some(HostConfigLogConfig {
                typ: Some("none".into()),
                config: None,
            }),
            mounts: Some(vec![
                workspace_mount(volumes.workspace),
                programs::mount(volumes.programs, Access::Read),
            ]),
            readonly_rootfs: Some(read_only_root),
            tmpfs: read_only_root.then(|| {
                // Engines give it the mode of the image's own folder, so its owner must be set.
                let run = format!("rw,nosuid,nodev,size=16m,uid={},gid={}", self.uid, self.gid);
                pairs(&[
                    ("/tmp", "rw,nosuid,nodev,exec,size=1g,mode=1777"),
                    ("/run", &run),
                ])
            }),
            storage_opt: match self.disk {
                Disk::Engine(limit) => Some(pairs(&[("size", &limit.to_string())])),
                Disk::Guest(_) => None,
            },
            runtime: self.runtime.clone(),
            ..HostConfig::default()
        }
    }
}

/// An anonymous volume that is removed with its container.
fn workspace_mount(workspace: WorkspaceOf<'_>) -> Mount {
    let (device, no_copy) = match workspace {
        WorkspaceOf::FileSystem(volume) => (Some(on_device(volume)), true),
        WorkspaceOf::Image => (None, false),
        WorkspaceOf::Upload => (None, true),
    };
    Mount {
        target: Some("/workspace".into()),
        typ: Some(MountType::VOLUME),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(no_copy),
            driver_config: device,
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

/// The engine mounts this device.
fn on_device(volume: &Volume) -> MountVolumeOptionsDriverConfig {
    MountVolumeOptionsDriverConfig {
        name: Some("local".into()),
        options: Some(pairs(&[
            ("type", "ext4"),
            ("device", &volume.device().to_string_lossy()),
            ("o", volume::MOUNT_OPTIONS),
        ])),
    }
}

fn pairs(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn parse_user(user: &str) -> Result<(u64, u64), SandboxError> {
    let (uid, gid) = user.split_once(':').unwrap_or((user, user));
    match (uid.parse(), gid.parse()) {
        (Ok(uid), Ok(gid)) if uid != 0 && gid != 0 => Ok((uid, gid)),
        _ => Err(SandboxError::Refused(format!(
            "command_executor.docker.user is {user:?}; expected UID:GID as numbers, neither of which is 0"
        ))),
    }
}

fn check_runtime(wanted: &str, info: &SystemInfo) -> Result<String, SandboxError> {
    let has = info.runtimes.clone().unwrap_or_default();
    if has.contains_key(wanted) {
        return Ok(wanted.to_owned());
    }
    let mut names: Vec<String> = has.into_keys().collect();
    names.sort();
    Err(SandboxError::Refused(format!(
        "the engine has no runtime {wanted:?}; available: {}. hint: install it, or change \
         command_executor.docker.runtime",
        names.join(", ")
    )))
}

/// Whether the storage driver supports a size per container.
fn has_storage_quota(info: &SystemInfo) -> bool {
    let status = info.driver_status.clone().unwrap_or_default();
    let says = |key: &str, value: &str| {
        status
            .iter()
            .any(|pair| matches!(pair.as_slice(), [k, v] if k == key && v == value))
    };
    match info.driver.as_deref() {
        // Overlay on xfs supports a size only when mounted with project quotas, and not every engine
        // reports that: where it is uncertain, the guest enforces the limit.
        Some("btrfs" | "zfs") => true,
        Some("overlay2") => {
            says("Backing Filesystem", "xfs") && says("Supports project quota", "true")
        }
        _ => false,
    }
}

/// What the engine may turn out not to have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Uses {
    loopback_v6: bool,
    volumes: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_mount_of_a_workspace_ends_their_use() {
        let mut profile = Profile::new(&config::Docker::default(), &SystemInfo::default()).unwrap();
        let error = |text: &str| SandboxError::Refused(text.to_owned());
        let refused = error("failed to mount local volume: mount /dev/loop3:/v: not permitted");
        assert!(!profile.lacks_volumes(profile.uses(), &refused));
        profile.volumes = Ok(Volumes::played());
        for other in [
            "error creating overlay mount to /var/lib/docker: no space left on device",
            "failed to mount local volume: mount /dev/loop3:/v: no space left on device",
        ] {
            let lacks = profile.lacks_volumes(profile.uses(), &error(other));
            assert!(!lacks, "{other}");
        }
        assert!(!profile.disk_limit().contains("does not mount"));
        let used = profile.uses();
        assert!(profile.lacks_volumes(used, &refused));
        // Another container was begun before.
        assert!(profile.lacks_volumes(used, &refused));
        assert!(!profile.lacks_volumes(profile.uses(), &refused));
        assert!(profile.disk_limit().contains("does not mount"));
    }

    #[test]
    fn a_container_gets_the_configured_sizes() {
        let mut config = config::Docker::default();
        config.resources.memory_limit = "0.5g".parse().unwrap();
        config.resources.disk_limit = "10g".parse().unwrap();
        let profile = Profile::new(&config, &SystemInfo::default()).unwrap();
        let volumes = MountedVolumes {
            workspace: WorkspaceOf::Upload,
            programs: "programs",
        };
        let host = profile.host_config(false, volumes);
        assert_eq!(host.memory, Some(512 << 20));
        assert_eq!(host.memory_swap, Some(512 << 20));
        assert_eq!(profile.disk, Disk::Guest(10 << 30));
        assert_eq!(host.shm_size, Some(512 << 20));
    }

    #[test]
    fn a_container_finds_its_own_name_and_has_as_much_shared_memory_as_a_jail() {
        let profile = Profile::new(&config::Docker::default(), &SystemInfo::default()).unwrap();
        let volumes = MountedVolumes {
            workspace: WorkspaceOf::Upload,
            programs: "programs",
        };
        let identity = Identity::spare();
        let container = profile.container(&identity, "image", false, volumes);
        let host = container.host_config.unwrap();
        assert_eq!(host.shm_size, Some(1 << 30));
        let own = format!("{}:127.0.0.1", container.hostname.unwrap());
        assert_eq!(host.extra_hosts, Some(vec![own]));
    }

    /// A rootless engine has no `cpu` controller until systemd delegates it, and many small machines' kernels lack it.
    #[test]
    fn an_engine_that_cannot_limit_cpu_time_is_not_asked_to() {
        let volumes = MountedVolumes {
            workspace: WorkspaceOf::Upload,
            programs: "programs",
        };
        for (quota, cpus, warnings) in [
            (Some(false), None, 1),
            (Some(true), Some(1_500_000_000), 0),
            (None, Some(1_500_000_000), 0),
        ] {
            let mut config = config::Docker::default();
            config.resources.cpu_limit = 1.5;
            let info = SystemInfo {
                cpu_cfs_quota: quota,
                ..SystemInfo::default()
            };
            let profile = Profile::new(&config, &info).unwrap();
            assert_eq!(profile.host_config(false, volumes).nano_cpus, cpus);
            assert_eq!(profile.warnings.len(), warnings, "{:?}", profile.warnings);
        }
        // As Podman answers on cgroup v2.
        let info = SystemInfo {
            cpu_cfs_quota: Some(false),
            warnings: Some(Vec::new()),
            ..SystemInfo::default()
        };
        let profile = Profile::new(&config::Docker::default(), &info).unwrap();
        assert!(profile.host_config(false, volumes).nano_cpus.is_some());
    }

    #[test]
    fn root_and_names_are_refused_as_users() {
        assert_eq!(parse_user("1000:1001").unwrap(), (1000, 1001));
        for bad in ["0:0", "0", "1000:0", "root", "", "1000:"] {
            assert!(parse_user(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_missing_runtime_is_refused_and_the_available_ones_are_named() {
        let info = SystemInfo {
            runtimes: Some(HashMap::from([("runc".to_owned(), Default::default())])),
            ..SystemInfo::default()
        };
        let config = config::Docker {
            runtime: Some("kata".into()),
            ..Default::default()
        };
        let err = Profile::new(&config, &info).unwrap_err().to_string();
        assert!(
            err.contains("kata") && err.contains("available: runc"),
            "{err}"
        );
    }
}
