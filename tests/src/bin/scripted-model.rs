//! The scripted model as a program, to run a fleet without an account anywhere.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use agentmine_tests::model::{ScriptedModel, default_script, load_script};
use anyhow::Context;
use clap::Parser;

/// A model server that replies as a script says, over OpenAI Chat Completions and Anthropic Messages.
#[derive(Debug, Parser)]
#[command(name = "scripted-model")]
struct Args {
    /// Address to listen on; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:11500")]
    listen: SocketAddr,
    /// Script: YAML, or JSON Lines (.jsonl). Without one, the model solves the fake forge's sample issue,
    /// and adds a line to a file of any other repository.
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
         Or in the environment of a client: OPENAI_BASE_URL={url}. Stop it with Ctrl-C."
    )?;
    tokio::select! {
        () = model.run() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(())
}
