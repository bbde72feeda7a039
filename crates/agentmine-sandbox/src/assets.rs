//! The static programs that go into every sandbox, inside this one.

/// A program and its name.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) bytes: &'static [u8],
}

/// Where they are found in a sandbox.
pub(crate) const FOLDER: &str = "/opt/agentmine/bin";

pub(crate) const PROGRAMS: [Program; 2] = [
    Program {
        name: "agentmine-guest",
        bytes: include_bytes!(env!("AGENTMINE_GUEST")),
    },
    Program {
        name: "mcp-server-text-editor",
        bytes: include_bytes!(env!("AGENTMINE_TEXT_EDITOR")),
    },
];
