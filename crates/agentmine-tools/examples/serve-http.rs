//! A tool server over streamable HTTP, for the official conformance suite:
//! `serve-http text-editor|file-read|file-write|shell-exec FOLDER [PORT]`. It writes its URL to stdout.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use agentmine_tools::{Roots, ShellOptions, ToolServer};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let folder = PathBuf::from(args.next().unwrap_or_else(|| ".".to_owned()));
    let port = args.next().map_or(Ok(0), |port| port.parse())?;
    let roots = Roots {
        start: folder.clone(),
        allowed: Vec::new(),
    };
    let server = match name.as_str() {
        "text-editor" => ToolServer::TextEditor { root: folder },
        "file-read" => ToolServer::FileRead(roots),
        "file-write" => ToolServer::FileWrite(roots),
        "shell-exec" => ToolServer::ShellExec(ShellOptions::new(roots)),
        other => anyhow::bail!("unknown server {other:?}"),
    };
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    server
        .serve_http(addr, |addr| {
            let _ = writeln!(std::io::stdout(), "http://{addr}/mcp");
        })
        .await
}
