//! The static programs on the worker's own disk, where the jails can see them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::assets::{PROGRAMS, Program};
use crate::error::SandboxError;

/// Writes the programs into a folder named after their content, unless they are already there. Any number
/// of workers may do this at once: each file appears whole, by a rename.
pub(crate) fn install(state_dir: &Path) -> Result<PathBuf, SandboxError> {
    let mut hasher = DefaultHasher::new();
    for program in &PROGRAMS {
        program.packed.hash(&mut hasher);
    }
    let folder = state_dir.join(format!("programs-{:016x}", hasher.finish()));
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

fn write(path: &Path, program: &Program) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() == program.len() as u64) {
        return Ok(());
    }
    let temporary = path.with_extension(uuid::Uuid::new_v4().simple().to_string());
    std::fs::write(&temporary, program.unpack()?)?;
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o755))?;
    std::fs::rename(&temporary, path)
}
