//! For tests: programs that run in a folder, with a git that reads no settings of the machine.

use std::path::Path;
use std::process::Command;

/// Runs a program that has to succeed, and returns what it prints.
#[track_caller]
pub(crate) fn run(folder: &Path, program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .current_dir(folder)
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("HOME", "/nonexistent")])
        .envs(["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name, "miner")))
        .envs(["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| (name, "miner@localhost")))
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The same of a shell script.
#[track_caller]
pub(crate) fn sh(folder: &Path, script: &str) -> String {
    run(folder, "sh", &["-c", script])
}
