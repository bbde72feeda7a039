//! Folders of this user alone, wherever the environment puts them.
//!
//! Without a home folder, the state is below `/tmp`, where every user of the machine may have made a folder or a link
//! of that name first. Anybody who owns it could exchange what is in it, programs among it.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// Creates the folder, and those above it, for this user only.
///
/// # Errors
/// If it, or the folder that it is in, belongs to a user who is neither this one nor root, is a link of such a user,
/// or is writable by everybody.
pub fn create(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)?;
    check(path)?;
    path.parent().map_or(Ok(()), check)
}

fn check(path: &Path) -> io::Result<()> {
    let (itself, target) = (std::fs::symlink_metadata(path)?, std::fs::metadata(path)?);
    // SAFETY: it has no preconditions.
    let user = unsafe { libc::geteuid() };
    let is_trusted = |owner: u32| owner == user || owner == 0;
    let foreign = [itself.uid(), target.uid()];
    if let Some(owner) = foreign.into_iter().find(|&owner| !is_trusted(owner)) {
        return Err(refused(path, &format!("belongs to user {owner}")));
    }
    // In a folder with the sticky bit, others cannot rename what is not theirs.
    let mode = target.permissions().mode();
    match mode & 0o002 != 0 && mode & 0o1000 == 0 {
        true => Err(refused(path, "is writable by everybody")),
        false => Ok(()),
    }
}

fn refused(path: &Path, seen: &str) -> io::Error {
    let path = path.display();
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "{path} {seen}, expected a folder of this user. hint: set XDG_STATE_HOME or HOME to one"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_new_folder_is_for_this_user_only() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("agentmine/workers");
        create(&path).unwrap();
        create(&path).unwrap();
        for made in [&path, path.parent().unwrap()] {
            let mode = std::fs::metadata(made).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
    }

    #[test]
    fn a_folder_that_everybody_may_write_is_refused_unless_it_is_sticky() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("state");
        create(&path).unwrap();
        set_mode(&path, 0o777);
        let error = create(&path).unwrap_err();
        assert!(
            error.to_string().contains("writable by everybody"),
            "{error}"
        );
        set_mode(&path, 0o700);
        set_mode(base.path(), 0o1777);
        create(&path).unwrap();
    }

    /// Only root can play another user.
    #[test]
    fn a_folder_or_link_of_another_user_is_refused() {
        // SAFETY: it has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let theirs = base.path().join("agentmine");
        std::fs::create_dir(&theirs).unwrap();
        std::os::unix::fs::chown(&theirs, Some(65534), None).unwrap();
        let error = create(&theirs.join("workers")).unwrap_err();
        assert!(
            error.to_string().contains("belongs to user 65534"),
            "{error}"
        );
        let (ours, link) = (base.path().join("ours"), base.path().join("link"));
        create(&ours).unwrap();
        std::os::unix::fs::symlink(&ours, &link).unwrap();
        create(&link).unwrap();
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        create(&link).unwrap_err();
    }
}
