//! The small static program inside a sandbox.
//!
//! It runs what the worker asks for and carries connections out of the sandbox through its own stdin
//! and stdout. The worker trusts nothing that it says. When the tunnel ends it kills all that it
//! started, and ends.

mod args;
mod capture;
mod command;
mod disk;
mod environment;
mod files;
mod git;
mod jail;
mod modes;
mod outbound;
mod process;
mod restore;
mod serve;
mod snapshot;
mod stdio;
mod syscalls;

use std::io::Write as _;
use std::process::ExitCode;

use args::Mode;

fn main() -> ExitCode {
    let done = match args::parse(std::env::args().skip(1)) {
        Ok(Mode::Idle) => modes::idle(),
        Ok(Mode::Serve(options)) => serve::main(*options),
        Ok(Mode::Supervise(argv)) => modes::supervise(&argv),
        Ok(Mode::BenchExec { rounds, argv }) => modes::bench_exec(rounds, &argv),
        Err(err) => Err(err),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            // Nobody may be there to read it.
            let _ = writeln!(std::io::stderr(), "agentmine-guest: {err:#}");
            ExitCode::FAILURE
        }
    }
}
