//! The static programs that go into every sandbox, embedded in this one.

use std::io::{self, Read as _};

use flate2::read::GzDecoder;

/// A program and its name.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// As gzip: a worker needs the programs once, and would be larger by half of their size.
    pub(crate) packed: &'static [u8],
}

/// Where the volume with their folder is mounted in a container.
pub(crate) const MOUNT: &str = "/opt/agentmine";
/// Their folder in a sandbox.
pub(crate) const FOLDER: &str = "/opt/agentmine/bin";
/// The guest's file name.
pub(crate) const GUEST: &str = "agentmine-guest";

/// The guest's path in every container.
pub(crate) fn guest_path() -> String {
    format!("{FOLDER}/{GUEST}")
}

/// A `const` would be in this program as often as it is used.
pub(crate) static PROGRAMS: [Program; 2] = [
    Program {
        name: GUEST,
        packed: include_bytes!(concat!(env!("OUT_DIR"), "/agentmine-guest.gz")),
    },
    Program {
        name: "mcp-server-text-editor",
        packed: include_bytes!(concat!(env!("OUT_DIR"), "/mcp-server-text-editor.gz")),
    },
];

impl Program {
    /// Its length in bytes, which gzip keeps in its last four.
    pub(crate) fn len(&self) -> usize {
        match self.packed.last_chunk() {
            Some(length) => u32::from_le_bytes(*length) as usize,
            None => 0,
        }
    }

    /// The program itself.
    ///
    /// # Errors
    /// When this program's own file is damaged.
    pub(crate) fn unpack(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.len());
        GzDecoder::new(self.packed).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_whole_and_as_long_as_it_says() {
        for program in &PROGRAMS {
            let bytes = program.unpack().unwrap();
            assert!(bytes.starts_with(b"\x7fELF"), "{}", program.name);
            assert_eq!(bytes.len(), program.len(), "{}", program.name);
        }
    }
}
