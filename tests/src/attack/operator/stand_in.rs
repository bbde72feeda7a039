//! Something that is open on purpose: each check must notice it.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::http::header;
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use tokio::net::TcpListener;

use super::listener::{self, Surface};
use super::seen::{FORGED, Seen};
use crate::attack::bait::scratch;

/// A program with a listener on all addresses, a socket for everybody, and a child with secrets in its command line
/// and environment. The child says when it is ready: a parent learns of its start before `/proc` shows its environment.
const PROGRAM: &str = r"
import os, socket, subprocess, sys
listener = socket.create_server(('0.0.0.0', 0))
unix = socket.socket(socket.AF_UNIX)
unix.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
unix.listen()
child = subprocess.Popen(['/bin/sh', '-c', 'echo ready; read end', sys.argv[2]], env={'TOKEN': sys.argv[2]})
child.wait()
";

pub(super) async fn watch() -> anyhow::Result<Seen> {
    let folder = tempfile::Builder::new()
        .prefix("open-")
        .tempdir_in(scratch())?;
    let secret = format!("canary{}", uuid::Uuid::new_v4().simple());
    let mut seen = Seen::default();
    seen.canaries.add("a secret", &secret);
    look_at_a_program(&mut seen, folder.path(), &secret)?;
    std::fs::write(folder.path().join("database"), &secret)?;
    std::fs::set_permissions(
        folder.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )?;
    seen.look_into(folder.path());
    let title = format!("a title\n{FORGED} \u{1b}[31m");
    seen.log = format!("connecting with {secret}\n{title}");
    seen.terminal.clone_from(&title);
    seen.listed = title;
    let metrics = format!("{FORGED} 1\ntools{{name=\"{FORGED}\"}} 1\nrefused: {secret}\n");
    let address = serve(metrics).await?;
    seen.metrics = listener::read_health(address).await?;
    seen.achieved = listener::attack(Surface {
        health: address,
        heads: swallow().await?,
        process: std::process::id(),
        tools: address,
        binds_anywhere: TcpListener::bind("0.0.0.0:0").await.is_ok(),
    })
    .await?;
    let mark = folder.path().join("mark");
    let started = Command::new("touch").arg(&mark).status()?;
    anyhow::ensure!(started.success() && mark.exists(), "touch: {started}");
    seen.started.push("mark".into());
    Ok(seen)
}

fn look_at_a_program(
    seen: &mut Seen,
    folder: &std::path::Path,
    secret: &str,
) -> anyhow::Result<()> {
    use std::io::{BufRead as _, BufReader};
    let mut program = Command::new("python3")
        .args(["-c", PROGRAM])
        .arg(folder.join("socket"))
        .arg(secret)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let output = program.stdout.take().context("its output")?;
    BufReader::new(output).read_line(&mut line)?;
    seen.look_at(program.id());
    drop(program.stdin.take());
    program.wait()?;
    Ok(())
}

/// A server that asks nobody for a name, an origin or a limit. Its sessions never end.
async fn serve(metrics: String) -> anyhow::Result<SocketAddr> {
    let tools = |body: Body| async move {
        let read = axum::body::to_bytes(body, usize::MAX).await;
        let session = uuid::Uuid::new_v4().to_string();
        let headers = [
            (header::CONTENT_TYPE, "application/json"),
            (header::HeaderName::from_static("mcp-session-id"), &session),
        ];
        (headers, read.map_or(0, |it| it.len()).to_string()).into_response()
    };
    let app = Router::new()
        .route("/metrics", get(move || async move { metrics }))
        .route("/ready", get(|| async { "{}" }))
        .route("/mcp", post(tools));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

/// A server that reads whatever comes.
async fn swallow() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move { tokio::io::copy(&mut stream, &mut tokio::io::sink()).await });
        }
    });
    Ok(address)
}
