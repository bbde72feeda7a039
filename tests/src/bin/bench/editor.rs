//! A text editor call through sandbox, tunnel and MCP, compared with bytes that only pass the tunnel: a
//! line of the request's size to `cat` and back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use agentmine_mcp::{CallOptions, Client, ConnectOptions};
use agentmine_sandbox::Sandbox;
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::Backend;
use crate::fleet::{put_file, sandbox};
use crate::table::{Samples, Table};

const FILE: &str = "/workspace/project/bench.txt";
/// About the size of a request on the wire.
const LINE: usize = 220;

pub(crate) async fn run(backend: Backend, rounds: u32) -> anyhow::Result<()> {
    let table = table(backend, rounds).await?;
    table.print("none; the floor is the tunnel itself")?;
    Ok(())
}

pub(crate) async fn table(backend: Backend, rounds: u32) -> anyhow::Result<Table> {
    let sandbox = sandbox(backend).await?;
    let measured = tokio::spawn(measure(Arc::clone(&sandbox), rounds)).await?;
    sandbox.remove().await?;
    measured
}

async fn measure(sandbox: Arc<dyn Sandbox>, rounds: u32) -> anyhow::Result<Table> {
    let sandbox = sandbox.as_ref();
    let text: String = (0..40)
        .map(|n| format!("line {n} of a small file\n"))
        .collect();
    put_file(sandbox, FILE, text.into_bytes()).await?;
    let echo = echo(sandbox, rounds).await?;
    let program = start(sandbox, "mcp-server-text-editor").await?;
    let client = Client::connect("text-editor", program, &ConnectOptions::default()).await?;
    let view = calls(
        &client,
        rounds,
        |_| json!({ "command": "view", "path": FILE }),
    )
    .await?;
    let replace = calls(&client, rounds, |n| {
        let (old, new) = if n % 2 == 0 {
            ("line 20 of", "line twenty of")
        } else {
            ("line twenty of", "line 20 of")
        };
        json!({ "command": "str_replace", "path": FILE, "old_str": old, "new_str": new })
    })
    .await?;
    let mut table = Table::new("a round trip");
    table.row("`cat` through the tunnel", &echo);
    table.against("text_editor view, 40 lines", &view, &echo);
    table.against("text_editor str_replace, 40 lines", &replace, &echo);
    Ok(table)
}

async fn start(
    sandbox: &dyn Sandbox,
    program: &str,
) -> anyhow::Result<Box<dyn agentmine_sandbox::TunnelStream>> {
    let program = sandbox
        .start_stdio(vec![program.to_owned()], BTreeMap::new())
        .await?;
    Ok(program.stream)
}

pub(crate) async fn echo(sandbox: &dyn Sandbox, rounds: u32) -> anyhow::Result<Samples> {
    let mut stream = start(sandbox, "cat").await?;
    let mut line = vec![b'x'; LINE];
    line[LINE - 1] = b'\n';
    let mut back = vec![0; LINE];
    let mut samples = Samples::default();
    for _ in 0..rounds {
        let began = Instant::now();
        stream.write_all(&line).await?;
        stream.flush().await?;
        stream.read_exact(&mut back).await?;
        samples.push(began.elapsed());
    }
    Ok(samples)
}

async fn calls(
    client: &Client,
    rounds: u32,
    arguments: impl Fn(u32) -> Value,
) -> anyhow::Result<Samples> {
    let offer = client.offer().await?;
    let tool = offer.tools.first().context("no tool")?;
    let mut samples = Samples::default();
    for n in 0..rounds {
        let arguments = arguments(n);
        let began = Instant::now();
        let output = client.call(tool, arguments, CallOptions::default()).await?;
        samples.push(began.elapsed());
        ensure!(!output.is_error, "the editor said {}", output.text);
    }
    Ok(samples)
}
