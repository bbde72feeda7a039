//! `mcp-server-file-read`: reads text files, as an MCP server over stdin and stdout.

use std::process::ExitCode;

use agentmine_tools::cli::Program;

fn main() -> ExitCode {
    Program::FileRead.main()
}
