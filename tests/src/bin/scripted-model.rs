//! The scripted model, started by hand: a fleet to play with, and no account anywhere.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use agentmine_tests::model::{ScriptedModel, default_script, load_script};
use anyhow::Context;
use clap::Parser;

/// A model server that says what a script tells it, over OpenAI Chat Completions.
#[derive(Debug, Parser)]
#[command(name = "scripted-model")]
struct Args {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:11500")]
    listen: SocketAddr,
    /// Script: YAML, or JSON Lines (.jsonl). Without it: the sample issue of the fake forge is
    /// solved, and to any other repository a line is added.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let script = match &args.script {
        Some(path) => load_script(path)?,
        None => default_script(),
    };
    let model = ScriptedModel::listen(args.listen, script)
        .await
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let url = model.base_url();
    writeln!(
        std::io::stdout(),
        "{url}\n\nIn config.yaml:\n\nmodel:\n  provider: openai\n  base_url: {url}\n  name: scripted\n\n\
         Or in the environment of a client: OPENAI_BASE_URL={url}. End it with Ctrl-C."
    )?;
    tokio::select! {
        () = model.run() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(())
}
