//! `agentmine top`: queue, sessions, tokens and cost, refreshed until `q` or Ctrl-C.
//!
//! Guaranteed: the terminal is left as it was, also after an error, a panic or SIGTERM; no line is wider and no frame
//! higher than the terminal. Without a terminal one frame is printed.

mod frame;
mod screen;
mod snapshot;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use agentmine_runtime::config::{self, Sources};
use agentmine_runtime::exit::Exit;
use agentmine_store::Store;
use anyhow::Result;

use crate::embedded::open_configured;
use crate::print::line;
use frame::{Size, frame};
use screen::{Event, Screen};
use snapshot::{Reader, Snapshot};

/// The arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    /// Seconds between two frames
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Print one frame and exit, as without a terminal
    #[arg(long)]
    once: bool,
    /// Print one frame as a JSON object and exit
    #[arg(long)]
    json: bool,
}

/// Shows frames until a person ends it.
pub(crate) async fn run(file: Option<PathBuf>, args: TopArgs) -> Result<Exit> {
    let mut config = config::load(&Sources::from_process(file))?;
    let store = open_configured(&mut config).await?;
    let mut reader = Reader::default();
    if args.json {
        line(serde_json::to_string_pretty(
            &reader.read(store.as_ref()).await?,
        )?);
        return Ok(Exit::Done);
    }
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if args.once || !is_terminal {
        let snapshot = reader.read(store.as_ref()).await?;
        for text in frame(&snapshot, store.address(), Size::of_output()) {
            line(text);
        }
        return Ok(Exit::Done);
    }
    watch(
        store.as_ref(),
        &mut reader,
        Duration::from_secs(args.interval),
    )
    .await?;
    Ok(Exit::Done)
}

async fn watch(store: &dyn Store, reader: &mut Reader, every: Duration) -> Result<()> {
    // Before the screen changes, so that a database that is away is an ordinary error.
    let mut snapshot: Snapshot = reader.read(store).await?;
    let mut trouble: Option<String> = None;
    let mut screen = Screen::open()?;
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        let size = screen.size();
        let mut lines = frame(&snapshot, store.address(), size);
        if let Some(trouble) = &trouble {
            lines.insert(
                1.min(lines.len()),
                size.cut(&format!("not refreshed: {trouble}")),
            );
        }
        screen.draw(&lines)?;
        tokio::select! {
            event = screen.event() => match event {
                Event::Quit => return Ok(()),
                Event::Resized => {}
            },
            _ = ticks.tick() => match reader.read(store).await {
                Ok(read) => (snapshot, trouble) = (read, None),
                Err(error) => trouble = Some(format!("{error:#}")),
            },
        }
    }
}
