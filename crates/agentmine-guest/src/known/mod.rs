//! What the guest knows of the project since its last snapshot, so that the next one costs what has changed.
//!
//! After git has taken a snapshot, the guest reads git's index and walks the tree once. From then on it finds
//! changes itself, and writes the blobs, the trees, the commit and the bundle of a small change without a process.
//! Whatever it is not certain of ([`unsure::Unsure`]) is left to git, and learned again afterwards.
//!
//! A file counts as unchanged while its inode, size, mode, time of modification and time of change are the same;
//! no process without privileges can set the last one. A file that was changed within a tick of the clock before
//! it was read is read again next time. Where to look is known from a walk over the whole tree, as long as that
//! takes no longer than a call may cost, or else at most every [`project::WALK_SHARE`]th part of the time; between two
//! walks of a large tree, from the kernel's events and from what running processes have mapped.
//!
//! Accepted: in a tree too large to be walked after each call, a change through a name outside the project that the
//! file has got since the last walk is found by the next walk and not by the next snapshot.
//!
//! All of it is bounded: a walk by time and entries, a change by files and bytes. Beyond that git does it.

mod advance;
mod alone;
mod delta;
mod fs;
mod index;
mod large;
mod learn;
mod look;
mod mapped;
mod objects;
mod pattern;
mod project;
mod repository;
mod rules;
#[cfg(test)]
mod tests;
mod tree;
mod unsure;
mod watch;

pub(crate) use self::alone::commit_alone;
pub(crate) use self::fs::now;
pub(crate) use self::learn::Lesson;
pub(crate) use self::pattern::literal;
pub(crate) use self::project::Project;
pub(crate) use self::repository::{Repository, Settings};
