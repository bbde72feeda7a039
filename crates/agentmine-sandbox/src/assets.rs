//! The static programs that go into every sandbox, embedded in this one.

/// A program and its name.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) bytes: &'static [u8],
}

/// Where the volume with their folder is mounted in a container.
pub(crate) const MOUNT: &str = "/opt/agentmine";
/// Their folder in a sandbox.
pub(crate) const FOLDER: &str = "/opt/agentmine/bin";
/// The guest's file name.
pub(crate) const GUEST: &str = "agentmine-guest";

/// A `const` would be in this program as often as it is used.
pub(crate) static PROGRAMS: [Program; 2] = [
    Program {
        name: GUEST,
        bytes: include_bytes!(env!("AGENTMINE_GUEST")),
    },
    Program {
        name: "mcp-server-text-editor",
        bytes: include_bytes!(env!("AGENTMINE_TEXT_EDITOR")),
    },
];
