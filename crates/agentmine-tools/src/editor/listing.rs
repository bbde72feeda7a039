//! A folder, two levels deep.
//!
//! Hidden files are listed, since they matter (`.github`, `.env.example`). Folders with generated content are
//! listed but not entered.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{Dir, FileType, Mode, OFlags, openat, readlinkat};

use super::workspace::shown_name;

const NOT_ENTERED: [&str; 12] = [
    ".git",
    ".gradle",
    ".hg",
    ".mypy_cache",
    ".next",
    ".pytest_cache",
    ".tox",
    ".venv",
    "__pycache__",
    "node_modules",
    "target",
    "venv",
];
/// How many entries of one folder are read; beyond that, the listing only says that there are more.
const MAX_READ: usize = 10_000;
/// How many entries are shown of the folder itself, and of each folder in it.
const MAX_TOP: usize = 500;
const MAX_SUB: usize = 50;

pub(super) struct Listing {
    pub(super) text: String,
    pub(super) summary: String,
}

pub(super) fn list(dir: &OwnedFd) -> std::io::Result<Listing> {
    let entries = read(dir)?;
    let mut text = String::new();
    for entry in entries.shown.iter().take(MAX_TOP) {
        text.push_str(&entry.line(dir, ""));
        if entry.kind == FileType::Directory && !entry.is_skipped() {
            list_below(dir, entry, &mut text);
        }
    }
    let total = entries.total(MAX_TOP, &mut text, "");
    let summary = match entries.shown.len() {
        0 => "an empty folder".to_owned(),
        _ => format!("a folder of {total} entries, listed two levels deep"),
    };
    Ok(Listing { text, summary })
}

fn list_below(dir: &OwnedFd, entry: &Entry, text: &mut String) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let below = openat(dir, &entry.name, flags, Mode::empty())
        .map_err(std::io::Error::from)
        .and_then(|below| Ok((read(&below)?, below)));
    let prefix = format!("{}/", shown_name(&entry.name));
    match below {
        Ok((entries, below)) => {
            for entry in entries.shown.iter().take(MAX_SUB) {
                text.push_str(&entry.line(&below, &prefix));
            }
            entries.total(MAX_SUB, text, &prefix);
        }
        Err(error) => text.push_str(&format!("{prefix} (cannot be listed: {error})\n")),
    }
}

struct Entries {
    /// Sorted by name.
    shown: Vec<Entry>,
    all_read: bool,
}

impl Entries {
    /// How many there are. Adds to the text how many of them are not shown.
    fn total(&self, limit: usize, text: &mut String, prefix: &str) -> String {
        let more = match self.all_read {
            true => "",
            false => "more than ",
        };
        if let Some(rest @ 1..) = self.shown.len().checked_sub(limit) {
            text.push_str(&format!("{prefix}... and {more}{rest} further entries\n"));
        }
        format!("{more}{}", self.shown.len())
    }
}

struct Entry {
    name: OsString,
    kind: FileType,
}

impl Entry {
    fn is_skipped(&self) -> bool {
        NOT_ENTERED.iter().any(|name| self.name == *name)
    }

    fn line(&self, dir: &OwnedFd, prefix: &str) -> String {
        let name = shown_name(&self.name);
        match self.kind {
            FileType::Directory if self.is_skipped() => {
                format!("{prefix}{name}/ (not listed)\n")
            }
            FileType::Directory => format!("{prefix}{name}/\n"),
            FileType::Symlink => {
                let target = readlinkat(dir, &self.name, Vec::new()).unwrap_or_default();
                let target = shown_name(OsStr::from_bytes(target.as_bytes()));
                format!("{prefix}{name} -> {target}\n")
            }
            FileType::RegularFile => format!("{prefix}{name}\n"),
            _ => format!("{prefix}{name} (special file)\n"),
        }
    }
}

fn read(dir: &OwnedFd) -> std::io::Result<Entries> {
    let mut shown = Vec::new();
    let mut all_read = true;
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if shown.len() == MAX_READ {
            all_read = false;
            break;
        }
        let name = OsString::from_vec(name.to_vec());
        let kind = match entry.file_type() {
            FileType::Unknown => kind_of(dir, &name),
            known => known,
        };
        shown.push(Entry { name, kind });
    }
    shown.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Entries { shown, all_read })
}

/// Some file systems do not report the type with the name.
fn kind_of(dir: &OwnedFd, name: &OsStr) -> FileType {
    rustix::fs::statat(dir, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        .map_or(FileType::Unknown, |stat| {
            FileType::from_raw_mode(stat.st_mode)
        })
}
