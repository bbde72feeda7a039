//! What killed workers leave mounted: each jail may hold the whole disk space that its limit reserves.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Unmounts every file system whose place is `ours`, with what is mounted on top of it.
pub fn unmount(ours: impl Fn(&Path) -> bool) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let mut places: Vec<&str> = places.filter(|place| ours(Path::new(place))).collect();
    places.reverse();
    for place in places {
        let _ = Command::new("umount").args(["-l", place]).output();
    }
}

/// A temporary folder for workers that are killed. It is removed with what is mounted below it.
#[derive(Debug)]
pub struct WorkersFolder(pub TempDir);

impl Drop for WorkersFolder {
    fn drop(&mut self) {
        unmount(|place| place.starts_with(self.0.path()));
    }
}
