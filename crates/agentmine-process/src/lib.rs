//! Processes and their descendants on Linux, and excerpts of what they write.
//!
//! Guaranteed: a signal never reaches a later process that has the same pid ([`Process`]). Callers repeat the
//! kill of a [`Family`] until nothing is left. There is no async code and no dependency but libc, since the
//! guest in a sandbox uses this crate too.
//!
//! Accepted: a process that forks while `/proc` is read may be missed in that round. A process is not found
//! at all if it has left its group and session, all its parents ended before the first look, and it has
//! cleared its environment.

mod excerpt;
mod family;
mod head_tail;
mod init;
mod process;
mod spawner;
mod tail;

pub use excerpt::{Excerpt, LeftOut, SEE_ALL};
pub use family::{Family, Mark};
pub use head_tail::{HeadTail, Kept, truncate_middle};
pub use init::{is_watched, watch_as_first_process};
pub use process::{
    Process, become_subreaper, children, descendants, die_with_parent, exit_handle,
    kill_all_descendants, reap, signal_group,
};
pub use spawner::run_on_spawner_thread;
pub use tail::Tail;
