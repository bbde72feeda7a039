//! Events of the kernel on the folders of the project (inotify(7)), as hints where to look.
//!
//! Not reported are writes through a mapping while it lasts, and writes through a name outside the watched folders.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use super::fs::c_name;

/// How many paths are checked one by one; a walk is cheaper for more.
const MAX_PATHS: usize = 4096;
/// How many buffers are read at once: somebody may cause events faster than they are read.
const MAX_READS: usize = 32;
const BUFFER: usize = 32 * 1024;
/// The fixed part of an event.
const EVENT: usize = 16;

const EVENTS: u32 = libc::IN_MODIFY
    | libc::IN_ATTRIB
    | libc::IN_CLOSE_WRITE
    | libc::IN_MOVED_FROM
    | libc::IN_MOVED_TO
    | libc::IN_CREATE
    | libc::IN_DELETE;

/// The watched folders.
#[derive(Debug)]
pub(crate) struct Watch {
    events: OwnedFd,
    paths: HashMap<i32, Vec<u8>>,
}

/// What has happened since the last look.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Events {
    /// Nothing but what happened to these paths.
    Paths(BTreeSet<Vec<u8>>),
    /// Too much to be listed.
    Unknown,
}

impl Watch {
    /// Fails where the kernel has no events left for this user.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes plain integers; the result is checked before it is owned.
        let events = unsafe {
            match libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) {
                -1 => return Err(io::Error::last_os_error()),
                events => OwnedFd::from_raw_fd(events),
            }
        };
        Ok(Self {
            events,
            paths: HashMap::new(),
        })
    }

    /// Watches an open folder, and returns the number of the watch.
    pub(crate) fn add(&mut self, folder: BorrowedFd<'_>, path: &[u8]) -> io::Result<i32> {
        let name = c_name(format!("/proc/self/fd/{}", folder.as_raw_fd()).as_bytes())?;
        // SAFETY: an open descriptor and a string that ends in NUL.
        let number = unsafe {
            let flags = EVENTS | libc::IN_ONLYDIR | libc::IN_EXCL_UNLINK;
            libc::inotify_add_watch(self.events.as_raw_fd(), name.as_ptr(), flags)
        };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        self.paths.insert(number, path.to_owned());
        Ok(number)
    }

    /// Ends a watch, unless the folder is watched at another path by now.
    pub(crate) fn remove(&mut self, number: i32, path: &[u8]) {
        if self.paths.get(&number).is_none_or(|known| known != path) {
            return;
        }
        self.paths.remove(&number);
        // SAFETY: takes plain integers. It fails if the folder is gone.
        unsafe {
            libc::inotify_rm_watch(self.events.as_raw_fd(), number);
        }
    }

    /// What has happened since the last call.
    pub(crate) fn take(&mut self) -> io::Result<Events> {
        let mut buffer = vec![0_u8; BUFFER];
        let mut paths = Some(BTreeSet::new());
        for _ in 0..MAX_READS {
            // SAFETY: a buffer of the length that is given.
            let length = unsafe {
                let buffer = buffer.as_mut_ptr().cast();
                libc::read(self.events.as_raw_fd(), buffer, BUFFER)
            };
            let Ok(length) = usize::try_from(length) else {
                let error = io::Error::last_os_error();
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(paths.map_or(Events::Unknown, Events::Paths)),
                    _ => Err(error),
                };
            };
            paths = paths.filter(|paths| paths.len() < MAX_PATHS);
            if let Some(found) = &mut paths
                && !self.collect(&buffer[..length], found)
            {
                paths = None;
            }
        }
        Ok(Events::Unknown)
    }

    /// Returns whether the events are complete.
    fn collect(&self, mut events: &[u8], paths: &mut BTreeSet<Vec<u8>>) -> bool {
        let field = |event: &[u8], at: usize| {
            let bytes = event[at..].first_chunk().copied().unwrap_or_default();
            u32::from_ne_bytes(bytes)
        };
        while events.len() >= EVENT {
            let (number, mask) = (field(events, 0).cast_signed(), field(events, 4));
            let length = field(events, 12) as usize;
            if mask & libc::IN_Q_OVERFLOW != 0 {
                return false;
            }
            let Some(name) = events.get(EVENT..EVENT + length) else {
                return false;
            };
            events = &events[EVENT + length..];
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            if let Some(folder) = self.paths.get(&number)
                && !name.is_empty()
            {
                paths.insert(join(folder, name));
            }
        }
        true
    }
}

/// The path of an entry of a folder.
pub(crate) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    match folder.is_empty() {
        true => name.to_owned(),
        false => [folder, b"/", name].concat(),
    }
}
