//! Links in the tracker's folders. A repository may come from anywhere: a link in it must not make the tracker show a
//! file of the machine to a model, or replace one.
//!
//! Accepted: anybody who changes the folder while it is used is its owner, who needs no link. A sandbox has a clone.

use std::path::{Path, PathBuf};

use super::error::{io, refused};
use crate::error::TrackerError;

/// Folders below those of the tracker: the comments of an issue, and no more.
const DEPTH: usize = 3;

/// Refuses `folder` if it, or anything in it, is a link that leads to a place in none of `within`.
pub(super) fn refuse_leading_out(folder: &Path, within: &[PathBuf]) -> Result<(), TrackerError> {
    let within: Vec<PathBuf> = within
        .iter()
        .filter_map(|it| it.canonicalize().ok())
        .collect();
    check(folder, &within, DEPTH)
}

fn check(path: &Path, within: &[PathBuf], depth: usize) -> Result<(), TrackerError> {
    let kind = match path.symlink_metadata() {
        Ok(data) => data.file_type(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(path, &error)),
    };
    if kind.is_symlink() {
        // One that leads nowhere could be created there.
        let target = path.canonicalize().ok();
        let stays = target.is_some_and(|it| within.iter().any(|root| it.starts_with(root)));
        if !stays {
            let path = path.display();
            return Err(refused(format!(
                "{path} is a link that leads out of the repository. hint: remove it, or name the folder of issues in \
                 `trackers.local.issues`"
            )));
        }
    }
    if depth == 0 || !path.is_dir() {
        return Ok(());
    }
    let entries = path.read_dir().map_err(|error| io(path, &error))?;
    entries
        .flatten()
        .try_for_each(|entry| check(&entry.path(), within, depth - 1))
}
