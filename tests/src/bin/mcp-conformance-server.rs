//! One of our tool servers over streamable HTTP, for the official conformance suite:
//! `mcp-conformance-server text-editor|file-read|file-write|shell-exec`. It prints its address, and
//! serves the current folder.

use std::io::Write as _;

use agentmine_tools::{AllowedRoots, ShellOptions, ToolServer};
use anyhow::bail;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let roots = AllowedRoots::here(Vec::new())?;
    let which = std::env::args().nth(1).unwrap_or_default();
    let server = match which.as_str() {
        "text-editor" => ToolServer::TextEditor { root: roots.start },
        "file-read" => ToolServer::FileRead(roots),
        "file-write" => ToolServer::FileWrite(roots),
        "shell-exec" => ToolServer::ShellExec(ShellOptions::new(roots)),
        _ => bail!("no such server: {which}"),
    };
    let ready = |address| {
        let mut out = std::io::stdout().lock();
        // Our parent reads it, or has exited.
        let _ = writeln!(out, "http://{address}/mcp").and_then(|()| out.flush());
    };
    server.serve_http(([127, 0, 0, 1], 0).into(), ready).await
}
