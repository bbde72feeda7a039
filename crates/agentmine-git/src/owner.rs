//! Whose repository it is.
//!
//! Git refuses the repository of another user unless `safe.directory` exempts it. Here the rule holds for root, before it
//! writes: the owner could neither change nor remove what root leaves there, and could commit no more. Every other user
//! has the permissions of the files.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::layout::Layout;

/// The user to whom the repository belongs, if this process must not write to it.
pub(crate) fn foreign(layout: &Layout) -> io::Result<Option<u32>> {
    let owner = std::fs::metadata(&layout.common_dir)?.uid();
    // SAFETY: it has no preconditions.
    let user = unsafe { libc::geteuid() };
    let is_foreign = user == 0 && owner != 0 && !is_exempt(&layout.top, &safe_directories());
    Ok(is_foreign.then_some(owner))
}

/// As `safe.directory` is read by git: `*` exempts every folder, `PATH/*` those below it, and an empty value forgets the
/// values before it.
fn is_exempt(top: &Path, values: &[String]) -> bool {
    let begin = values.iter().rposition(String::is_empty);
    let mut values = values.iter().skip(begin.map_or(0, |at| at + 1));
    values.any(|value| {
        let is_it = |path: &Path| match path.to_str().and_then(|path| path.strip_suffix("/*")) {
            Some(parent) => top != Path::new(parent) && top.starts_with(parent),
            None => top == path,
        };
        let named = Path::new(value);
        let is_real = || named.canonicalize().is_ok_and(|real| is_it(&real));
        value == "*" || is_it(named) || (named.is_absolute() && is_real())
    })
}

/// The operator's own values, and none of a repository. Without git, there is none.
fn safe_directories() -> Vec<String> {
    let listed = Command::new("git")
        .args(["config", "--includes", "--type=path", "-z"])
        .args(["--get-all", "safe.directory"])
        .env("GIT_DIR", "/dev/null")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C in a terminal must not make the values unknown.
        .process_group(0)
        .output();
    let listed = listed.map(|it| it.stdout).unwrap_or_default();
    let values = String::from_utf8_lossy(&listed);
    values.split_terminator('\0').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_exempt_as_git_reads_safe_directory() {
        let exempt = |values: &[&str]| {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            is_exempt(Path::new("/srv/shop"), &values)
        };
        for values in [
            &["*"][..],
            &["/srv/shop"],
            &["/srv/shop/"],
            &["/srv/*"],
            &["/other", "/srv/shop"],
            &["", "*"],
        ] {
            assert!(exempt(values), "{values:?}");
        }
        for values in [
            &["/srv"][..],
            &[],
            &["/srv/shop/*"],
            &["/srv/sho*"],
            &["*", ""],
            &["/srv/shop", "", "/other"],
        ] {
            assert!(!exempt(values), "{values:?}");
        }
    }
}
