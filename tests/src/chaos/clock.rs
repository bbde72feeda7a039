//! The clock of the suite's database, which can be set back while it runs: libfaketime reads the offset from a file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_domain::Session;
use chrono::{DateTime, TimeDelta, Utc};

/// When, by the machine's clock, and by how much.
type SetBack = (DateTime<Utc>, TimeDelta);

/// The clock of a server, and of what it records.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    /// `None`: libfaketime is not installed, and the clock is the machine's.
    library: Option<PathBuf>,
    /// Seconds to add, in the format of libfaketime.
    offset: PathBuf,
    set_back: Arc<Mutex<Vec<SetBack>>>,
}

impl Clock {
    pub(super) fn new(folder: &Path) -> std::io::Result<Self> {
        let libraries = std::fs::read_dir("/usr/lib")
            .into_iter()
            .flatten()
            .flatten();
        let mut libraries = libraries.map(|it| it.path().join("faketime/libfaketime.so.1"));
        let clock = Self {
            library: libraries.find(|it| it.exists()),
            offset: folder.join("clock"),
            set_back: Arc::default(),
        };
        clock.write(TimeDelta::zero())?;
        Ok(clock)
    }

    fn write(&self, behind: TimeDelta) -> std::io::Result<()> {
        let seconds = behind.num_milliseconds() as f64 / -1000.0;
        // Replaced whole: the server reads it at each look at its clock.
        let part = self.offset.with_extension("part");
        std::fs::write(&part, format!("{seconds:+.3}\n"))?;
        std::fs::rename(part, &self.offset)
    }

    /// Lets a server have this clock.
    pub(super) fn give_to(&self, command: &mut Command) {
        let Some(library) = &self.library else { return };
        command
            .env("LD_PRELOAD", library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.offset)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }

    /// Sets it back. `false`: it cannot be.
    pub(super) fn set_back(&self, by: Duration) -> anyhow::Result<bool> {
        if self.library.is_none() {
            return Ok(false);
        }
        let mut all = self.set_back.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((Utc::now(), TimeDelta::from_std(by)?));
        drop(all);
        self.write(self.behind())?;
        Ok(true)
    }

    /// By how much it is behind.
    pub(super) fn behind(&self) -> TimeDelta {
        let all = self.set_back.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(_, by)| *by).sum()
    }

    /// Sets it right, between two fleets.
    pub(super) fn set_right(&self) -> std::io::Result<()> {
        let mut all = self.set_back.lock().unwrap_or_else(PoisonError::into_inner);
        all.clear();
        self.write(TimeDelta::zero())
    }

    /// Gives sessions the times of the machine's clock. What the database's clock showed twice began at the later
    /// and ended at the earlier time: a session is then not held to be longer than it was.
    pub(super) fn correct(&self, sessions: &mut [Session]) {
        let all = self.set_back.lock().unwrap_or_else(PoisonError::into_inner);
        for session in sessions {
            for (at, by) in all.iter() {
                if session.started_at + *by >= *at {
                    session.started_at += *by;
                }
                if let Some(ended) = &mut session.ended_at
                    && *ended > *at
                {
                    *ended += *by;
                }
            }
        }
    }
}
