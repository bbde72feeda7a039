//! Holes that are known and not closed yet. The report lists their attacks apart from the others.

use super::cell::Cell;

/// An attack's name, the backends in which it succeeds, and why.
const KNOWN_OPEN: &[(&str, &[&str], &str)] = &[
    ("patch_the_parent_shell", ALL, FORGERY),
    ("stop_the_guest", ALL, FORGERY),
    ("guest_sends_single_bytes_on_many_streams", ALL, TUNNEL),
    ("guest_sends_empty_frames", ALL, TUNNEL),
    ("send_many_small_frames", ALL, TUNNEL),
    ("fill_the_disk", ALL, DISK),
    ("fill_the_disk_in_closed_folders", ALL, DISK),
    ("fill_the_disk_with_unlinked_files", ALL, DISK),
    ("fill_the_disk_below_long_paths", ALL, DISK),
    ("take_all_inodes", ALL, DISK),
];
const ALL: &[&str] = &["docker", "bubblewrap", "landlock"];
const FORGERY: &str = "the guest and what it starts are one user";
const TUNNEL: &str = "the tunnel counts frames and not what they hold";
const DISK: &str = "the disk limit is what the guest adds up";

/// Why an attack is known to succeed in a kind of sandbox, if it is.
pub(super) fn reason(attack: &str, cell: Cell) -> Option<&'static str> {
    let known = KNOWN_OPEN.iter();
    let mut known = known.filter(|(name, on, _)| *name == attack && on.contains(&cell.backend()));
    known.next().map(|(_, _, why)| *why)
}
