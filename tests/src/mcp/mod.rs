//! Shared by tests and benchmarks of MCP servers: entries for the servers that `tests/run` has
//! installed, and a search for processes that they leave behind.

mod left;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use agentmine_mcp::config::{Capabilities, Origin, Owner, ServerConfig, ServerPlace, Transport};
use agentmine_runtime::config::Secret;

pub use left::{Mark, resident_kib};

/// The folder of servers from npm and PyPI.
///
/// # Panics
/// If `tests/run` has not installed it.
#[must_use]
#[expect(
    clippy::panic,
    reason = "a test without its service fails, and says so"
)]
pub fn installed() -> PathBuf {
    let folder = std::env::var_os("AGENTMINE_TEST_MCP").map(PathBuf::from);
    match folder {
        Some(folder) if folder.join("node_modules/.bin/node").exists() => folder,
        _ => panic!("no MCP servers in AGENTMINE_TEST_MCP; run tests/run"),
    }
}

/// An operator-configured entry.
#[must_use]
pub fn server<C: Into<String>>(
    name: &str,
    place: ServerPlace,
    command: impl IntoIterator<Item = C>,
) -> ServerConfig {
    ServerConfig {
        name: name.to_owned(),
        origin: Origin {
            file: "(test)".into(),
            line: 1,
            owner: Owner::Operator,
        },
        transport: Transport::Stdio {
            command: command.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            place,
        },
        enabled: true,
        capabilities: Capabilities::default(),
        timeout: Duration::from_secs(30),
        max_restarts: None,
    }
}

/// The same with a variable in its environment.
#[must_use]
pub fn with_env(mut server: ServerConfig, name: &str, value: &str) -> ServerConfig {
    if let Transport::Stdio { env, .. } = &mut server.transport {
        env.insert(name.to_owned(), Secret::new(value));
    }
    server
}

/// A server from npm, under Node 22.
#[must_use]
pub fn npm(name: &str, place: ServerPlace, program: &str, args: &[&str]) -> ServerConfig {
    let bin = installed().join("node_modules/.bin");
    let mut command = vec![
        bin.join("node").display().to_string(),
        bin.join(program).display().to_string(),
    ];
    command.extend(args.iter().map(|&arg| arg.to_owned()));
    server(name, place, command)
}

/// A server from PyPI.
#[must_use]
pub fn pypi(name: &str, place: ServerPlace, module: &str, args: &[&str]) -> ServerConfig {
    let mut command = vec!["/usr/bin/python3", "-m", module];
    command.extend(args);
    let packages = installed().join("python").display().to_string();
    let entry = with_env(server(name, place, command), "PYTHONPATH", &packages);
    // The folder is read-only in a sandbox, and must stay unchanged elsewhere.
    with_env(entry, "PYTHONDONTWRITEBYTECODE", "1")
}
