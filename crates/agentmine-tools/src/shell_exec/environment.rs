//! The environment of a command.

use std::ffi::OsStr;

/// Whether a variable of the server is passed on to commands: where programs are, who and where the user is,
/// and how text is written. No tokens.
pub(crate) fn is_passed_on(name: &OsStr) -> bool {
    const NAMES: [&str; 10] = [
        "PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TZ", "USER", "LOGNAME", "SHELL", "TMPDIR",
    ];
    name.to_str()
        .is_some_and(|name| NAMES.contains(&name) || name.starts_with("LC_"))
}
