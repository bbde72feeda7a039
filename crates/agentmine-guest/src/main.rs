//! The small static program inside a sandbox.
//!
//! It runs what the worker requests and forwards connections out of the sandbox through its own stdin and
//! stdout. The worker does not trust it. When the tunnel ends, it kills all processes that it started and
//! exits.

mod args;
mod capture;
mod command;
mod disk;
mod environment;
mod evidence;
mod figures;
mod files;
mod git;
mod git_state;
mod home;
mod jail;
mod known;
mod last_snapshot;
mod load;
mod modes;
mod outbound;
mod process;
mod programs;
mod remove;
mod reply;
mod restore;
mod serve;
mod snapshot;
mod state;
mod stdio;
mod syscalls;
mod usage;

use std::io::Write as _;
use std::process::ExitCode;

use args::Mode;

fn main() -> ExitCode {
    let done = match args::parse(std::env::args().skip(1)) {
        Ok(Mode::Serve(options)) => serve::main(*options),
        Ok(Mode::Supervise(argv)) => modes::supervise(&argv),
        Ok(Mode::Remove(folders)) => folders.iter().try_for_each(|it| remove::remove(it)),
        Err(err) => Err(err),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            // stderr may be closed.
            let _ = writeln!(std::io::stderr(), "agentmine-guest: {err:#}");
            ExitCode::FAILURE
        }
    }
}
