//! `mcp-server-shell-exec`: runs commands, as an MCP server over stdin and stdout.

use std::process::ExitCode;

use agentmine_tools::cli::Program;

fn main() -> ExitCode {
    Program::ShellExec.main()
}
