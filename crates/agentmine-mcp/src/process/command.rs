//! Finds the program of a command.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The search path if none is set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The folders of a `PATH`. Empty entries, which would mean the current folder, are omitted.
pub(super) fn search_path(path: Option<&str>) -> Vec<PathBuf> {
    let path = path.filter(|path| !path.is_empty());
    std::env::split_paths(OsStr::new(path.unwrap_or(DEFAULT_PATH)))
        .filter(|folder| !folder.as_os_str().is_empty())
        .collect()
}

/// The file that is run for `program`: the path itself if it contains a slash, otherwise the first executable of
/// that name in the search path. Links are not resolved, since many programs depend on their own name.
///
/// # Errors
/// The reason why there is none, for a person.
pub(super) fn resolve(program: &str, cwd: &Path, path: &[PathBuf]) -> Result<PathBuf, String> {
    if program.is_empty() || program.contains('\0') {
        return Err(format!("{program:?} is not the name of a program"));
    }
    if program.contains('/') {
        let file = cwd.join(program);
        return usable(&file).map(|()| file);
    }
    let mut unusable = None;
    for folder in path {
        let file = cwd.join(folder).join(program);
        match usable(&file) {
            Ok(()) => return Ok(file),
            Err(why) if file.is_file() => unusable = unusable.or(Some(why)),
            Err(_) => {}
        }
    }
    Err(unusable.unwrap_or_else(|| {
        let count = path.len();
        format!("{program:?} was not found in the {count} folders of PATH; is it installed?")
    }))
}

/// The reason why a file could not be started.
pub(super) fn refusal(file: &Path, error: &io::Error) -> String {
    let file = file.display();
    match error.raw_os_error() {
        // The file itself exists.
        Some(libc::ENOENT) => {
            format!("the interpreter in the first line of {file} was not found")
        }
        Some(libc::EACCES) => format!("this user may not execute {file}"),
        Some(libc::E2BIG) => "its arguments and environment are too long".to_owned(),
        _ => format!("{file}: {error}"),
    }
}

fn usable(file: &Path) -> Result<(), String> {
    let shown = file.display();
    let meta = std::fs::metadata(file).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{shown} was not found"),
        _ => format!("{shown}: {error}"),
    })?;
    if meta.is_dir() {
        return Err(format!("{shown} is a folder, not a program"));
    }
    if !meta.is_file() {
        return Err(format!("{shown} is not a regular file"));
    }
    if meta.permissions().mode() & 0o111 == 0 {
        return Err(format!("{shown} is not executable (run `chmod +x` on it)"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &Path, mode: u32) {
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn first_executable_in_the_search_path_is_used() {
        let base = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| base.path().join(name));
        for folder in [&one, &two] {
            std::fs::create_dir(folder).unwrap();
        }
        file(&one.join("tool"), 0o644);
        file(&two.join("tool"), 0o755);
        let path = [one.clone(), two.clone()];
        assert_eq!(resolve("tool", base.path(), &path), Ok(two.join("tool")));
        assert_eq!(
            resolve("two/tool", base.path(), &path),
            Ok(two.join("tool"))
        );
    }

    #[test]
    fn reason_is_reported_for_what_cannot_be_run() {
        let base = tempfile::tempdir().unwrap();
        file(&base.path().join("plain"), 0o644);
        let path = [base.path().to_owned()];
        let why = |program: &str| resolve(program, base.path(), &path).unwrap_err();
        assert!(why("absent").contains("not found in the 1 folders of PATH"));
        assert!(why("./absent").contains("not found"));
        assert!(why("plain").contains("not executable"));
        assert!(why("./plain").contains("not executable"));
        assert!(why("/").contains("is a folder"));
        assert!(why("/dev/null").contains("not a regular file"));
        assert!(why("").contains("not the name of a program"));
    }

    #[test]
    fn empty_entry_in_the_path_is_not_the_current_folder() {
        assert_eq!(
            search_path(Some("/a::/b:")),
            ["/a", "/b"].map(PathBuf::from)
        );
        assert_eq!(search_path(Some("")), search_path(None));
    }
}
