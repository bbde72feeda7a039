//! The official conformance suite (npm `@modelcontextprotocol/conformance`), with the requirements of
//! each revision for the client, for the tool servers and for `agentmine mcp serve` over HTTP.
//!
//! Scenarios that do not pass are listed in `conformance/REVISION.yaml` (of `agentmine`: `conformance/agentmine-REVISION.yaml`), in the suite's own baseline
//! format, each with its reason; an entry that passes fails the run too. `tests/run conformance
//! --no-capture` prints the figures.

use std::path::Path;
use std::process::Stdio;

use agentmine_tests::mcp::installed;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use super::served::{Served, TOKEN};
use crate::rig::binary;

const SERVERS: [&str; 4] = ["text-editor", "file-read", "file-write", "shell-exec"];

#[tokio::test]
async fn client_conforms_to_2025_11_25() {
    client("2025-11-25").await;
}

#[tokio::test]
async fn client_conforms_to_2026_07_28() {
    client("2026-07-28").await;
}

#[tokio::test]
async fn servers_conform_to_2025_11_25() {
    servers("2025-11-25").await;
}

#[tokio::test]
async fn servers_conform_to_2026_07_28() {
    servers("2026-07-28").await;
}

#[tokio::test]
async fn agentmine_conforms_to_2025_11_25() {
    agentmine("2025-11-25").await;
}

#[tokio::test]
async fn agentmine_conforms_to_2026_07_28() {
    agentmine("2026-07-28").await;
}

/// `agentmine mcp serve --http`, with the token added on the way: the suite names none.
async fn agentmine(revision: &str) {
    let mut served = Served::start().await;
    let url = with_token(&served).await;
    let name = format!("agentmine-{revision}");
    suite_with(
        "server",
        "agentmine",
        revision,
        &name,
        ["--url", url.as_str()],
    )
    .await;
    served.program.kill().await.unwrap();
}

/// The address of a forwarder that adds the token to each request, and changes nothing else.
async fn with_token(served: &Served) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let port = served.port;
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            tokio::spawn(async move {
                let far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let _ = forward(near, far).await;
            });
        }
    });
    url
}

/// One request for each connection, so that only the beginning has to be read.
async fn forward(mut near: TcpStream, mut far: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(near.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let (first, rest) = head.split_once("\r\n").unwrap_or_default();
    let rest: Vec<&str> = rest
        .split("\r\n")
        .filter(|line| !line.to_ascii_lowercase().starts_with("connection:"))
        .collect();
    let token = format!("Authorization: Bearer {TOKEN}\r\nConnection: close\r\n");
    far.write_all(format!("{first}\r\n{token}{}", rest.join("\r\n")).as_bytes())
        .await?;
    tokio::io::copy_bidirectional(&mut near, &mut far).await?;
    Ok(())
}

async fn client(revision: &str) {
    let command = binary("mcp-conformance-client").display().to_string();
    suite(
        "client",
        "client",
        revision,
        ["--command", command.as_str()],
    )
    .await;
}

async fn servers(revision: &str) {
    for server in SERVERS {
        let folder = tempfile::tempdir().unwrap();
        let mut program = Command::new(binary("mcp-conformance-server"))
            .arg(server)
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let url = lines
            .next_line()
            .await
            .unwrap()
            .expect("the server does not start");
        suite("server", server, revision, ["--url", url.as_str()]).await;
        program.kill().await.unwrap();
    }
}

/// Runs a revision's requirements for one side.
async fn suite(side: &str, what: &str, revision: &str, args: [&str; 2]) {
    suite_with(side, what, revision, revision, args).await;
}

/// The same with a baseline of another name.
async fn suite_with(side: &str, what: &str, revision: &str, baseline: &str, args: [&str; 2]) {
    let baseline =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("it/mcp/conformance/{baseline}.yaml"));
    let results = tempfile::tempdir().unwrap();
    let bin = installed().join("node_modules/.bin");
    let output = Command::new(bin.join("node"))
        .arg(bin.join("conformance"))
        .args([side, "--requirements", revision, "--expected-failures"])
        .arg(&baseline)
        .arg("--output-dir")
        .arg(results.path())
        .args(args)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let report = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let package = installed().join("node_modules/@modelcontextprotocol/conformance");
    let requirements = package.join(format!("requirements/{revision}.yaml"));
    let [requirements, baseline] =
        [requirements, baseline].map(|path| std::fs::read_to_string(path).unwrap());
    let figures = Figures::of(&report, &requirements, &baseline);
    #[expect(clippy::print_stdout, reason = "these figures are what the run is for")]
    {
        println!("{revision} {what:<12} {figures}");
    }
    assert!(output.status.success(), "{report}");
    assert!(figures.passed > 0, "{report}");
}

#[derive(Debug, Default)]
struct Figures {
    passed: usize,
    failed: Vec<String>,
    not_applicable: usize,
}

impl Figures {
    /// Read from the suite's summary, by scenario. Scenarios that a revision does not score (named
    /// `scenario: NAME`) are omitted.
    fn of(report: &str, requirements: &str, baseline: &str) -> Self {
        let mut figures = Self::default();
        let summary = report.split("SUMMARY").nth(1).unwrap_or_default();
        for line in summary.lines() {
            let marked = line
                .split_once(": ")
                .and_then(|(scenario, _)| scenario.split_once(' '));
            let Some((mark @ ("✓" | "✗"), name)) = marked else {
                continue;
            };
            if requirements.contains(&format!("scenario: {name}\n")) {
                continue;
            }
            let entries = baseline.lines().filter(|line| {
                let entry = line.trim_start().trim_start_matches("- ");
                entry.split([':', ' ']).next() == Some(name)
            });
            let reasons: Vec<bool> = entries.map(|it| it.contains("# not applicable")).collect();
            match (mark, reasons.as_slice()) {
                // A scenario that only warns is also marked as passed.
                (_, reasons @ [_, ..]) if !reasons.contains(&false) => figures.not_applicable += 1,
                ("✓", []) => figures.passed += 1,
                _ => figures.failed.push(name.to_owned()),
            }
        }
        figures
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            passed,
            failed,
            not_applicable,
        } = self;
        write!(
            f,
            "{passed} passed, {} failed, {not_applicable} not applicable",
            failed.len()
        )?;
        if failed.is_empty() {
            return Ok(());
        }
        write!(f, " (failed: {})", failed.join(", "))
    }
}
