//! What scans found and did.

use std::ops::AddAssign;

/// Totals of one or more scans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scan {
    /// Items that request work.
    pub found: u64,
    /// Tasks that were newly recorded.
    pub enqueued: u64,
    /// Wake-ups that were published.
    pub announced: u64,
}

impl AddAssign for Scan {
    fn add_assign(&mut self, other: Self) {
        let Self {
            found,
            enqueued,
            announced,
        } = other;
        self.found += found;
        self.enqueued += enqueued;
        self.announced += announced;
    }
}
