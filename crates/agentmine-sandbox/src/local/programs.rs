//! The static programs on the worker's own disk, where the jails can see them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rustix::fs::StatVfsMountFlags;

use crate::assets::{PROGRAMS, Program};
use crate::error::SandboxError;

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
    match installed {
        Ok(()) => Ok(folder),
        Err(err) => Err(SandboxError::of_machine(&folder.display(), &err)),
    }
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
