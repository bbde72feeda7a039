//! What happened to servers, for a session's transcript.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::lock;

/// Notices that wait to be taken. The oldest are dropped.
const MAX_WAITING: usize = 1_000;
/// Characters of a notice: a server's words may be in it.
const MAX_TEXT: usize = 1_000;

/// Something that happened to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The server's configured name.
    pub server: String,
    /// What happened.
    pub kind: NoticeKind,
    /// The same in a sentence, without control characters; may contain a server's words, shortened.
    pub text: String,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeKind {
    /// It did not start.
    Failed,
    /// It ended, or its connection did, without being asked to.
    Crashed,
    /// It runs again.
    Restarted,
    /// It crashed too often and is not started again.
    GivenUp,
    /// What it offers is not what it offered before, or its program's file has changed.
    Changed,
    /// A tool or a server is left out, since its name looks like another's.
    Shadowed,
    /// An entry of its offer is left out, since it is malformed; or the server, since it may not run here.
    LeftOut,
}

/// The notices of a manager.
#[derive(Default)]
pub(crate) struct Notices(Mutex<VecDeque<Notice>>);

impl Notices {
    pub(crate) fn push(&self, server: &str, kind: NoticeKind, text: &str) {
        let plain = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(MAX_TEXT)
            .collect();
        let mut waiting = lock(&self.0);
        if waiting.len() == MAX_WAITING {
            waiting.pop_front();
        }
        waiting.push_back(Notice {
            server: server.to_owned(),
            kind,
            text: plain,
        });
    }

    pub(crate) fn take(&self) -> Vec<Notice> {
        lock(&self.0).drain(..).collect()
    }
}
