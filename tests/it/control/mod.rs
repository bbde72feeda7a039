//! Tasks, sessions and workers, on the command line and through `agentmine mcp serve`.

mod command_line;
mod completeness;
mod doctor;
mod http;
mod inspector;
mod local;
mod mcp;
mod orchestrator;
mod output;
mod queue;
mod sdk;
mod store;
mod terminal;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::rig::binary;

/// A home folder and a project with one commit.
struct World {
    home: TempDir,
}

impl World {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let project = home.path().join("project");
        std::fs::create_dir(&project).unwrap();
        git(&project, &["init", "--quiet", "-b", "main"]);
        std::fs::write(project.join("a.txt"), "one\n").unwrap();
        git(&project, &["add", "."]);
        git(&project, &["commit", "--quiet", "-m", "The first commit"]);
        Self { home }
    }

    fn project(&self) -> PathBuf {
        self.home.path().join("project")
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(binary("agentmine"));
        self.environment(&mut command);
        command
            .args(args)
            .current_dir(self.project())
            .output()
            .unwrap()
    }

    fn environment(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path());
    }

    /// What a command prints, after checking its exit code.
    #[track_caller]
    fn shown(&self, args: &[&str], code: i32) -> String {
        let output = self.run(args);
        let shown = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(output.status.code(), Some(code), "{args:?}: {shown}");
        shown
    }

    /// The JSON that a command prints.
    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {stderr}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn git(folder: &Path, args: &[&str]) -> String {
    let done = Command::new("git")
        .args(["-c", "user.name=x", "-c", "user.email=x@localhost", "-C"])
        .arg(folder)
        .args(args)
        .output()
        .unwrap();
    assert!(done.status.success(), "{args:?}: {done:?}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}
