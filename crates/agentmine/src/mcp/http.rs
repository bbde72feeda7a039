//! `agentmine mcp serve --http`: the same server over streamable HTTP, for clients that start no programs.
//!
//! Only loopback addresses are served, and only requests that name one as their host and origin, so that no web page
//! reaches the server by a name that it rebinds. Each request needs a token: every user of the machine can connect to a
//! loopback address. The token is in the environment, or in a file that its owner alone can read.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use agentmine_control::mcp::{Context, ControlServer};
use agentmine_runtime::exit::{Exit, Failure};
use agentmine_tools::http::{HttpAccess, serve as serve_http};
use anyhow::{Context as _, Result};
use uuid::Uuid;

use crate::paths::state_dir;
use crate::print::{line, note};

/// Names the token.
const VARIABLE: &str = "AGENTMINE_MCP_TOKEN";
/// The file with the token, in the folder of the state.
const FILE: &str = "mcp-token";
/// Characters of a token at least.
const SHORTEST: usize = 16;
/// Bytes of the file at most.
const LONGEST: u64 = 1024;

/// Serves until a signal ends it. The address is printed when it can be connected to.
pub(super) async fn serve(context: Context, addr: SocketAddr) -> Result<Exit> {
    if !addr.ip().is_loopback() {
        let what = format!("--http names {addr}, expected a loopback address");
        return Err(Failure::new(Exit::Validation, what)
            .hint("for example --http 127.0.0.1:7437; for other machines, forward the port with ssh -L")
            .into());
    }
    let token = token()?;
    let ready = |address| line(format!("http://{address}/mcp"));
    let access = HttpAccess::Token(token.into());
    serve_http(ControlServer::new(context), addr, access, ready).await?;
    Ok(Exit::Done)
}

/// The token of the environment, else that of the file, which is created with a new one.
fn token() -> Result<String> {
    let hint =
        format!("use at least {SHORTEST} characters, for example from `openssl rand -hex 32`");
    let (token, from, hint) = match std::env::var(VARIABLE) {
        Ok(token) if !token.trim().is_empty() => {
            (token.trim().to_owned(), VARIABLE.to_owned(), hint)
        }
        Ok(_) | Err(_) => {
            let file = state_dir()?.join(FILE);
            let token = of_file(&file)?;
            note(format!("the token of this server is in {}", file.display()));
            let shown = file.display().to_string();
            let hint = format!("`rm {shown}`: the next start creates a new token");
            (token, shown, hint)
        }
    };
    let is_token = token.len() >= SHORTEST && token.bytes().all(|b| b.is_ascii_graphic());
    if !is_token {
        let what =
            format!("the token of {from} is short, or has characters other than visible ASCII");
        return Err(Failure::new(Exit::Config, what).hint(hint).into());
    }
    Ok(token)
}

fn of_file(path: &Path) -> Result<String> {
    if path.symlink_metadata().is_ok() {
        return read(path);
    }
    match created(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => read(path),
        created => created.with_context(|| format!("{} cannot be written", path.display())),
    }
}

/// 244 random bits, in a file that appears whole.
fn created(path: &Path) -> std::io::Result<String> {
    let token = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let folder = path.parent().unwrap_or(path);
    // Of mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(token.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path)?;
    Ok(token)
}

fn read(path: &Path) -> Result<String> {
    let shown = path.display();
    let mut options = OpenOptions::new();
    let file = options.read(true).open(path);
    let file = file.with_context(|| format!("{shown} cannot be read"))?;
    // The folder is this user's alone: what is in it cannot be exchanged meanwhile.
    let status =
        std::fs::symlink_metadata(path).with_context(|| format!("{shown} cannot be read"))?;
    if !status.is_file() || status.mode() & 0o077 != 0 {
        let what = format!("{shown} can be read by others, expected a file of mode 0600");
        return Err(Failure::new(Exit::Config, what)
            .hint(format!("`rm {shown}`: the next start creates a new token"))
            .into());
    }
    let mut text = String::new();
    file.take(LONGEST)
        .read_to_string(&mut text)
        .with_context(|| format!("{shown} cannot be read"))?;
    Ok(text.trim().to_owned())
}
