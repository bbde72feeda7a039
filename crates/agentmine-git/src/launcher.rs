//! The program that limits itself and becomes git.
//!
//! Whatever runs between fork and exec needs a copy of the worker's page tables, which takes longer than git. A program
//! with a path is started without one. This one has no name in any folder, so that nothing but the worker can replace it:
//! it is in memory, sealed, and is reached through a descriptor that ends with `exec`.
//!
//! Accepted: where the kernel runs no program from memory (`vm.memfd_noexec=2`), it is in a file without a name, on a file
//! system that must allow programs. If another thread starts a process at the moment at which that file is written, the
//! first git fails with "text file busy".

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Its source is `launcher/main.rs`.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/launcher"));

static LAUNCHER: OnceLock<Launcher> = OnceLock::new();

/// The program, for as long as this is open.
#[derive(Debug)]
pub(crate) struct Launcher(File);

impl Launcher {
    /// That of this process.
    pub(crate) fn of_this_process() -> io::Result<&'static Self> {
        if let Some(launcher) = LAUNCHER.get() {
            return Ok(launcher);
        }
        let launcher = Self::in_memory().or_else(|_| Self::in_a_file())?;
        Ok(LAUNCHER.get_or_init(|| launcher))
    }

    pub(crate) fn in_memory() -> io::Result<Self> {
        let mut file = memory_file(libc::MFD_EXEC)
            // Kernels before 6.3 do not know the flag.
            .or_else(|_| memory_file(0))?;
        file.write_all(PROGRAM)?;
        let seals =
            libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        // SAFETY: takes an open descriptor and a number.
        match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
            0 => Ok(Self(file)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn in_a_file() -> io::Result<Self> {
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(PROGRAM)?;
        file.as_file()
            .set_permissions(std::fs::Permissions::from_mode(0o500))?;
        // A file that is open for writing cannot be executed; here its name and that descriptor end.
        Ok(Self(File::open(file.path())?))
    }

    /// Its path in a process that was just started and has not executed it yet.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

fn memory_file(flags: libc::c_uint) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | flags;
    // SAFETY: the name ends with a zero; the new descriptor has no other owner.
    unsafe {
        match libc::memfd_create(c"agentmine-launcher".as_ptr(), flags) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(File::from_raw_fd(descriptor)),
        }
    }
}
