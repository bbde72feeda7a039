//! The static programs on the worker's own disk, where the jails can see them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use rustix::fs::StatVfsMountFlags;

use crate::assets::{PROGRAMS, Program};
use crate::error::SandboxError;

/// How long programs that are not used are kept at least. No task lasts as long.
const KEPT: Duration = Duration::from_secs(14 * 24 * 3600);

/// What the programs are, in a number. They have megabytes.
static CONTENT: LazyLock<u64> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    for program in &PROGRAMS {
        program.packed.hash(&mut hasher);
    }
    hasher.finish()
});

/// Writes the programs into a folder named after their content, unless they are already there. Any number
/// of workers may do this at once: each file appears whole, by a rename.
pub(crate) fn install(state_dir: &Path) -> Result<PathBuf, SandboxError> {
    let folder = state_dir.join(format!("programs-{:016x}", *CONTENT));
    let installed = std::fs::create_dir_all(&folder).and_then(|()| {
        PROGRAMS
            .iter()
            .try_for_each(|program| write(&folder.join(program.name), program))
    });
    // When they were last used.
    touch(&folder);
    match installed {
        Ok(()) => Ok(folder),
        Err(err) => Err(SandboxError::of_machine(&folder.display(), &err)),
    }
}

/// Sets the time of a folder to now. It decides only when the folder is removed.
pub(super) fn touch(folder: &Path) {
    if let Ok(open) = std::fs::File::open(folder) {
        let _ = open.set_modified(SystemTime::now());
    }
}

/// Removes programs of other releases, copies of an `/etc` that has changed since, and what an interrupted copy has left, if
/// nothing has used them for `max_age` and [`KEPT`]: a jail has them mounted.
///
/// # Errors
/// If the folder cannot be listed.
pub(super) fn remove_unused(state_dir: &Path, max_age: Duration) -> io::Result<()> {
    let own = state_dir.join(format!("programs-{:016x}", *CONTENT));
    let max_age = max_age.max(KEPT);
    let is_old = |path: &Path| {
        let changed = std::fs::symlink_metadata(path).and_then(|it| it.modified());
        changed.is_ok_and(|it| it.elapsed().is_ok_and(|age| age > max_age))
    };
    let entries = |folder: &Path, prefix: &'static str| -> io::Result<Vec<PathBuf>> {
        let all = std::fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        let ours = all
            .into_iter()
            .filter(|it| it.file_name().to_string_lossy().starts_with(prefix));
        Ok(ours.map(|it| it.path()).collect())
    };
    let mut unused = entries(state_dir, "programs-")?;
    unused.retain(|folder| *folder != own);
    if own.exists() {
        unused.extend(entries(&own, "")?.into_iter().filter(|path| {
            let name = path.file_name().unwrap_or_default();
            !PROGRAMS.iter().any(|program| name == program.name)
        }));
    }
    for path in unused.into_iter().filter(|path| is_old(path)) {
        let removed = match path.is_dir() {
            true => std::fs::remove_dir_all(&path),
            false => std::fs::remove_file(&path),
        };
        match removed {
            Ok(()) => tracing::info!(path = %path.display(), "removed unused programs of jails"),
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "unused programs of jails cannot be removed");
            }
        }
    }
    Ok(())
}

/// Checks that programs in this folder can run: both kinds of jail start the guest from there.
///
/// # Errors
/// `Refused` where its file system is mounted with `noexec`.
pub(crate) fn require_exec(folder: &Path) -> Result<(), SandboxError> {
    // Where that is unknown, the start of a jail shows it.
    rustix::fs::statvfs(folder).map_or(Ok(()), |mounted| refuse_noexec(folder, mounted.f_flag))
}

fn refuse_noexec(folder: &Path, mounted: StatVfsMountFlags) -> Result<(), SandboxError> {
    match mounted.contains(StatVfsMountFlags::NOEXEC) {
        false => Ok(()),
        true => Err(SandboxError::Refused(format!(
            "{} is on a file system that is mounted with noexec, so the programs in it cannot run. hint: set \
             XDG_STATE_HOME to a folder on another file system",
            folder.display()
        ))),
    }
}

fn write(path: &Path, program: &Program) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() == program.len() as u64) {
        return Ok(());
    }
    let temporary = path.with_extension(uuid::Uuid::new_v4().simple().to_string());
    std::fs::write(&temporary, program.unpack()?)?;
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o755))?;
    std::fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_jail_has_used_for_weeks_is_removed() {
        let state_dir = tempfile::tempdir().unwrap();
        let own = install(state_dir.path()).unwrap();
        let aged = |path: PathBuf, days: u64| {
            std::fs::create_dir_all(path.join("folder")).unwrap();
            let then = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
            std::fs::File::open(&path)
                .unwrap()
                .set_modified(then)
                .unwrap();
            path
        };
        let old = [
            aged(state_dir.path().join("programs-0123456789abcdef"), 20),
            aged(own.join("etc-0123456789abcdef"), 20),
        ];
        let kept = [
            aged(state_dir.path().join("programs-fedcba9876543210"), 10),
            aged(own.join("etc-fedcba9876543210"), 10),
            aged(state_dir.path().join("coding-agent-exec-1"), 20),
            own.join(PROGRAMS[0].name),
        ];
        aged(own, 20);
        remove_unused(state_dir.path(), Duration::from_secs(3600)).unwrap();
        assert!(old.iter().all(|path| !path.exists()));
        assert!(kept.iter().all(|path| path.exists()));
    }

    #[test]
    fn a_folder_where_no_program_runs_is_refused() {
        let folder = Path::new("/home/me/.local/state");
        let flags = StatVfsMountFlags::NOEXEC | StatVfsMountFlags::NODEV;
        let why = refuse_noexec(folder, flags).unwrap_err().to_string();
        assert!(why.contains("/home/me/.local/state is on"), "{why}");
        assert!(why.contains("hint: set XDG_STATE_HOME"), "{why}");
        refuse_noexec(folder, StatVfsMountFlags::NODEV).unwrap();
        // Cargo's own folder of programs.
        let own = std::env::current_exe().unwrap();
        require_exec(own.parent().unwrap()).unwrap();
    }
}
