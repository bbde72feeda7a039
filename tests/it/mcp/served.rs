//! `agentmine mcp serve --http` as a program.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::rig::binary;

/// `agentmine mcp serve --http`.
pub(crate) struct Served {
    pub(crate) home: tempfile::TempDir,
    pub(crate) program: tokio::process::Child,
    /// The port that it listens on.
    pub(crate) port: u16,
}

pub(crate) const TOKEN: &str = "0123456789abcdef-canary";

impl Served {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[("AGENTMINE_MCP_TOKEN", TOKEN)]).await
    }

    pub(crate) async fn start_with(variables: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut program = Command::new(binary("agentmine"))
            .args(["mcp", "serve", "--http", "127.0.0.1:0"])
            .current_dir(home.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home.path())
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let url = lines.next_line().await.unwrap();
        let url = url.expect("the server does not start");
        let port = url.trim_start_matches("http://127.0.0.1:");
        let port = port.trim_end_matches("/mcp").parse().unwrap();
        Self {
            home,
            program,
            port,
        }
    }
}
