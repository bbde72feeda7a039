//! `agentmine top`: queue, sessions, tokens and cost, refreshed until `q` or Ctrl-C.
//!
//! Guaranteed: the terminal is left as it was, also after an error, a panic or SIGTERM; no line is wider and no frame
//! higher than the terminal; `q` and Ctrl-C end it at once, even while the database does not answer. Without a terminal one
//! frame is printed.

mod frame;
mod screen;
mod snapshot;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use agentmine_runtime::config::{self, Sources};
use agentmine_runtime::exit::Exit;
use anyhow::Result;

use crate::embedded::open_configured;
use crate::print::line;
use frame::{Size, frame};
use screen::{Event, Screen, Terminal};
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
        for text in frame(&snapshot, store.address(), None, Size::of_output()) {
            line(text);
        }
        return Ok(Exit::Done);
    }
    // Before the screen changes, so that a database that is away is an ordinary error.
    let first = reader.read(store.as_ref()).await?;
    let mut screen = Screen::open()?;
    let every = Duration::from_secs(args.interval);
    let read = async || reader.read(store.as_ref()).await;
    watch(&mut screen, store.address(), first, read, every).await?;
    Ok(Exit::Done)
}

async fn watch(
    terminal: &mut impl Terminal,
    address: &str,
    mut snapshot: Snapshot,
    mut read: impl AsyncFnMut() -> Result<Snapshot>,
    every: Duration,
) -> Result<()> {
    let mut trouble: Option<String> = None;
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        draw(terminal, &snapshot, address, trouble.as_deref())?;
        tokio::select! {
            event = terminal.event() => match event {
                Event::Quit => return Ok(()),
                Event::Resized => continue,
            },
            _ = ticks.tick() => {}
        }
        let mut reading = pin!(read());
        let outcome = loop {
            tokio::select! {
                outcome = &mut reading => break outcome,
                // A database that is away is tried for longer than a person waits.
                event = terminal.event() => match event {
                    Event::Quit => return Ok(()),
                    Event::Resized => draw(terminal, &snapshot, address, trouble.as_deref())?,
                },
            }
        };
        match outcome {
            Ok(newer) => (snapshot, trouble) = (newer, None),
            Err(error) => trouble = Some(format!("{error:#}")),
        }
    }
}

fn draw(
    terminal: &mut impl Terminal,
    snapshot: &Snapshot,
    address: &str,
    trouble: Option<&str>,
) -> std::io::Result<()> {
    let lines = frame(snapshot, address, trouble, terminal.size());
    terminal.draw(&lines)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::rc::Rc;

    use agentmine_control::queue::{BacklogView, QueueStatus};
    use tokio::sync::Notify;

    use super::snapshot::Totals;
    use super::*;

    /// A person who quits as soon as the database is read.
    struct Impatient(Rc<Notify>);

    impl Terminal for Impatient {
        fn size(&self) -> Size {
            Size::Of {
                rows: 24,
                columns: 80,
            }
        }

        fn draw(&mut self, _: &[String]) -> std::io::Result<()> {
            Ok(())
        }

        async fn event(&mut self) -> Event {
            self.0.notified().await;
            Event::Quit
        }
    }

    #[tokio::test]
    async fn a_person_can_quit_while_the_database_does_not_answer() {
        let began = Rc::new(Notify::new());
        let mut terminal = Impatient(Rc::clone(&began));
        let snapshot = Snapshot {
            at: String::new(),
            queue: QueueStatus {
                priorities: Vec::new(),
                demand: 0,
                unpublished: BacklogView::default(),
                unreported: BacklogView::default(),
                unfinished_effects: BacklogView::default(),
                broker: None,
            },
            sessions: Vec::new(),
            totals: Totals::default(),
        };
        let read = async || {
            began.notify_one();
            pending::<Result<Snapshot>>().await
        };
        let every = Duration::from_millis(1);
        let watched = watch(&mut terminal, "db", snapshot, read, every);
        let ended = tokio::time::timeout(Duration::from_secs(10), watched).await;
        ended.expect("it waits for the database").unwrap();
    }
}
