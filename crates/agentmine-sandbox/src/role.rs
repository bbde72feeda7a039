//! What a sandbox is for.

use std::fmt;

/// What a sandbox is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxRole {
    /// The agent's own.
    Main,
    /// The project's checks on a fresh clone.
    Verify,
    /// MCP servers on the command line.
    Mcp,
    /// A trial start, to see whether sandboxes work on this machine.
    Check,
}

impl SandboxRole {
    fn as_str(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Verify => "verify",
            Self::Mcp => "mcp",
            Self::Check => "check",
        }
    }
}

impl fmt::Display for SandboxRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
