//! Where mirrors are on disk: their names, locks and sizes.
//!
//! Any number of processes share the folder. Of each mirror there is a folder `KEY.git` and beside it `KEY.lock`,
//! which is locked shared for as long as the mirror is used and exclusively for its removal, and `KEY.update`, which
//! is locked by the one process that fetches. Locks end with their process. The time of `KEY.lock` is that of the last
//! use. A mirror counts only while it has the file `whole`, which is made last and removed first.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use agentmine_git::GitHome;
use agentmine_runtime::own_folder;
use sha2::{Digest as _, Sha256};

const REPOSITORY: &str = "git";
const LOCK: &str = "lock";
const UPDATE: &str = "update";
/// Marks a repository that is larger than all mirrors together may be.
const LARGE: &str = "large";
const WHOLE: &str = "whole";
/// Marks a mirror that an update in the time that a clone waits did not bring up to date.
const BEHIND: &str = "behind";
/// What the names of files begin with into which git receives.
const PARTIAL: &[u8] = b"tmp_";

/// A mirror that nobody used for this long is removed.
const UNUSED: Duration = Duration::from_secs(14 * 24 * 3600);
/// A repository that was too large is tried again after this time.
const STILL_LARGE: Duration = Duration::from_secs(24 * 3600);

/// The folder of all mirrors of this machine, for one user.
#[derive(Debug, Clone)]
pub struct Mirrors {
    folder: PathBuf,
    max_bytes: u64,
}

impl Mirrors {
    /// Mirrors in `folder`, which is made once it is needed, of at most `max_bytes` together.
    #[must_use]
    pub fn new(folder: PathBuf, max_bytes: u64) -> Self {
        Self { folder, max_bytes }
    }

    /// The place of the mirror with this identity.
    pub(super) fn place(&self, identity: &[&str]) -> io::Result<Place> {
        own_folder::create(&self.folder)?;
        let mut hasher = Sha256::new();
        for part in identity {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part.as_bytes());
        }
        let digest = hasher.finalize();
        let key: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Place {
            mirrors: self.clone(),
            key,
        })
    }

    /// Removes mirrors, those first that were not used for the longest time, until all of them together have room
    /// beside each other; one in use and `kept` stay. Returns whether they have room.
    fn make_room(&self, kept: &str) -> io::Result<bool> {
        let mut found = self.found()?;
        found.sort_by_key(|mirror| mirror.used);
        let mut total: u64 = found.iter().map(|mirror| mirror.bytes).sum();
        for mirror in found {
            let is_old = mirror.used.elapsed().is_ok_and(|age| age > UNUSED);
            if mirror.place.key == kept || (total <= self.max_bytes && !is_old) {
                continue;
            }
            if mirror.place.remove()? {
                total -= mirror.bytes;
                tracing::info!(
                    bytes = mirror.bytes,
                    "removed the mirror of a repository to make room"
                );
            }
        }
        Ok(total <= self.max_bytes)
    }

    fn found(&self) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            let (Some(key), Some(REPOSITORY)) = (stem, path.extension().and_then(|it| it.to_str()))
            else {
                continue;
            };
            let place = Place {
                mirrors: self.clone(),
                key: key.to_owned(),
            };
            let lock = std::fs::metadata(place.file(LOCK)).and_then(|lock| lock.modified());
            found.push(Found {
                bytes: size(&path)?,
                used: lock.unwrap_or(SystemTime::UNIX_EPOCH),
                place,
            });
        }
        Ok(found)
    }
}

struct Found {
    place: Place,
    bytes: u64,
    used: SystemTime,
}

/// The place of one mirror.
#[derive(Debug, Clone)]
pub(super) struct Place {
    mirrors: Mirrors,
    key: String,
}

/// A lock, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    _file: File,
}

impl Place {
    fn file(&self, extension: &str) -> PathBuf {
        self.mirrors
            .folder
            .join(format!("{}.{extension}", self.key))
    }

    /// The repository's folder.
    pub(super) fn repository(&self) -> PathBuf {
        self.file(REPOSITORY)
    }

    fn open(&self, extension: &str) -> io::Result<File> {
        let path = self.file(extension);
        File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
    }

    /// Keeps the mirror from being removed. `None` while somebody removes it.
    pub(super) fn hold(&self) -> io::Result<Option<Held>> {
        let file = self.open(LOCK)?;
        if file.try_lock_shared().is_err() {
            return Ok(None);
        }
        file.set_modified(SystemTime::now())?;
        Ok(Some(Held { _file: file }))
    }

    /// Keeps everybody else away. `None` while somebody uses it.
    pub(super) fn try_alone(&self) -> io::Result<Option<Held>> {
        let file = self.open(LOCK)?;
        Ok(file.try_lock().is_ok().then_some(Held { _file: file }))
    }

    /// Makes this process the one that fetches. `None` while another one does.
    pub(super) fn try_update(&self) -> io::Result<Option<Held>> {
        let file = self.open(UPDATE)?;
        Ok(file.try_lock().is_ok().then_some(Held { _file: file }))
    }

    /// Whether it has all that it had at its last fetch.
    pub(super) fn is_whole(&self) -> bool {
        self.repository().join(WHOLE).is_file()
    }

    /// From now on it is whole.
    pub(super) fn complete(&self) -> io::Result<()> {
        File::create(self.repository().join(WHOLE)).map(drop)
    }

    /// It is not used any more, and the next session fetches it again.
    pub(super) fn spoil(&self) {
        let _ = std::fs::remove_file(self.repository().join(WHOLE));
    }

    /// It has more to fetch than a clone waits for.
    pub(super) fn fall_behind(&self) {
        // Without the mark the next clone tries again.
        let _ = File::create(self.repository().join(BEHIND));
    }

    /// Whether it has more to fetch than a clone waits for.
    pub(super) fn is_behind(&self) -> bool {
        self.repository().join(BEHIND).is_file()
    }

    /// It is up to date again.
    pub(super) fn caught_up(&self) -> io::Result<()> {
        std::fs::remove_file(self.repository().join(BEHIND))
    }

    /// Removes what a killed git had received so far. Only for the process that fetches.
    pub(super) fn remove_partial_packs(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(self.repository().join("objects/pack"))? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(PARTIAL) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Whether the repository was too large a short time ago.
    pub(super) fn is_too_large(&self) -> bool {
        let marked = std::fs::metadata(self.file(LARGE)).and_then(|marked| marked.modified());
        marked.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < STILL_LARGE))
    }

    pub(super) fn mark_too_large(&self) -> io::Result<()> {
        let file = self.open(LARGE)?;
        file.set_modified(SystemTime::now())
    }

    /// Makes an empty repository in place of whatever is there. Returns whether nobody uses the old one.
    pub(super) fn begin(&self) -> io::Result<bool> {
        if !self.remove()? {
            return Ok(false);
        }
        GitHome::bare_at(&self.repository(), "sha1")?;
        Ok(true)
    }

    /// Its configuration is what this worker writes, before each use.
    pub(super) fn write_config(&self) -> io::Result<()> {
        GitHome::configure_bare(&self.repository(), "sha1")
    }

    /// Removes the mirror. Returns whether nobody used it.
    pub(super) fn remove(&self) -> io::Result<bool> {
        let Some(_alone) = self.try_alone()? else {
            return Ok(false);
        };
        self.spoil();
        match std::fs::remove_dir_all(self.repository()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(true),
        }
    }

    /// Makes room for this mirror as large as it is now. Returns whether there is room.
    pub(super) fn make_room(&self) -> io::Result<bool> {
        self.mirrors.make_room(&self.key)
    }

    /// How many packs it has.
    pub(super) fn packs(&self) -> usize {
        let packs = std::fs::read_dir(self.repository().join("objects/pack"));
        let names = packs.into_iter().flatten().flatten();
        names
            .filter(|entry| entry.path().extension().is_some_and(|it| it == "pack"))
            .count()
    }
}

/// Bytes of the files below a folder. What disappears meanwhile counts nothing.
fn size(folder: &Path) -> io::Result<u64> {
    let mut total = 0;
    let mut next = vec![folder.to_owned()];
    while let Some(folder) = next.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries {
            let Ok(metadata) = entry
                .as_ref()
                .map_err(|_| ())
                .and_then(|it| it.metadata().map_err(|_| ()))
            else {
                continue;
            };
            match metadata.is_dir() {
                true => next.push(entry?.path()),
                false => total += metadata.len(),
            }
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(mirrors: &Mirrors, name: &str, bytes: usize, age: u64) -> Place {
        let place = mirrors.place(&[name]).unwrap();
        assert!(place.begin().unwrap());
        std::fs::write(
            place.repository().join("objects/pack/x.pack"),
            vec![0; bytes],
        )
        .unwrap();
        place.complete().unwrap();
        let used = SystemTime::now() - Duration::from_secs(age);
        place.open(LOCK).unwrap().set_modified(used).unwrap();
        place
    }

    #[test]
    fn each_repository_and_each_token_has_a_mirror_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let mirrors = Mirrors::new(folder.path().join("mirrors"), 1 << 20);
        let key = |identity: &[&str]| mirrors.place(identity).unwrap().key;
        let one = key(&["https://forge/a.git", "user", "token"]);
        assert_eq!(one, key(&["https://forge/a.git", "user", "token"]));
        for other in [
            ["https://forge/b.git", "user", "token"],
            ["https://forge/a.git", "user", "other"],
            ["https://forge/a.git", "usert", "oken"],
        ] {
            assert_ne!(one, key(&other), "{other:?}");
        }
    }

    #[test]
    fn the_mirror_that_was_not_used_for_the_longest_time_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let mirrors = Mirrors::new(folder.path().join("mirrors"), 250_000);
        let old = filled(&mirrors, "old", 100_000, 300);
        let used = filled(&mirrors, "used", 100_000, 200);
        let new = filled(&mirrors, "new", 100_000, 100);
        let held = used.hold().unwrap();
        used.open(LOCK)
            .unwrap()
            .set_modified(SystemTime::UNIX_EPOCH)
            .unwrap();
        assert!(new.make_room().unwrap());
        assert!(!old.is_whole() && used.is_whole() && new.is_whole());
        assert!(!old.repository().exists());
        std::fs::write(
            new.repository().join("objects/pack/y.pack"),
            vec![0; 200_000],
        )
        .unwrap();
        assert!(!new.make_room().unwrap(), "what is used stays");
        drop(held);
        assert!(!new.make_room().unwrap(), "it is too large itself");
        assert!(!used.is_whole() && new.is_whole());
    }

    #[test]
    fn a_mirror_is_not_removed_while_it_is_used_and_not_held_while_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mirrors = Mirrors::new(folder.path().join("mirrors"), 1 << 20);
        let place = filled(&mirrors, "one", 10, 0);
        let (first, second) = (place.hold().unwrap(), place.hold().unwrap());
        assert!(first.is_some() && second.is_some());
        assert!(!place.remove().unwrap() && place.is_whole());
        drop((first, second));
        let removing = place.open(LOCK).unwrap();
        removing.lock().unwrap();
        assert!(place.hold().unwrap().is_none());
        drop(removing);
        assert!(place.remove().unwrap() && !place.is_whole());
        let update = place.try_update().unwrap();
        assert!(update.is_some() && place.try_update().unwrap().is_none());
    }

    #[test]
    fn a_mirror_that_nobody_used_for_weeks_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mirrors = Mirrors::new(folder.path().join("mirrors"), 1 << 20);
        let old = filled(&mirrors, "old", 10, 15 * 24 * 3600);
        let new = filled(&mirrors, "new", 10, 0);
        assert!(new.make_room().unwrap());
        assert!(!old.is_whole() && new.is_whole());
    }
}
