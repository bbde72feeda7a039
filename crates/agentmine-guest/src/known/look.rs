//! A walk over the whole tree, which finds what differs from what is known.

use std::collections::{BTreeSet, HashSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use super::fs::{self, EntryKind, Kind};
use super::project::{MAX_ENTRIES, MAX_WALK};
use super::repository;
use super::rules::{AllRules, Rules};
use super::tree::{Folder, Node};
use super::unsure::{Unsure, only_git};
use super::watch::{Watch, join};

/// How deep folders may be nested: each has a descriptor during a walk.
const MAX_DEPTH: usize = 100;

/// A walk.
pub(super) struct Walk<'a> {
    pub(super) watch: &'a mut Option<Watch>,
    /// The rules that are read on the way, the first time.
    pub(super) learned: Option<&'a mut AllRules>,
    /// What may differ.
    pub(super) found: Vec<Vec<u8>>,
    /// Files with more than one name.
    pub(super) linked: BTreeSet<Vec<u8>>,
    pub(super) entries: usize,
    until: Instant,
}

impl<'a> Walk<'a> {
    pub(super) fn new(watch: &'a mut Option<Watch>, learned: Option<&'a mut AllRules>) -> Self {
        Self {
            watch,
            learned,
            found: Vec::new(),
            linked: BTreeSet::new(),
            entries: 0,
            until: Instant::now() + MAX_WALK,
        }
    }

    /// Walks a folder that is open, and those in it.
    pub(super) fn walk(
        &mut self,
        folder: &mut Folder,
        open: &OwnedFd,
        path: &[u8],
        depth: usize,
    ) -> Result<(), Unsure> {
        if depth > MAX_DEPTH || Instant::now() > self.until {
            return Err(Unsure::TooMuch);
        }
        let identity = fs::look_at(open.as_fd())?.identity;
        if folder.identity != identity {
            folder.identity = identity;
            folder.watch = watch(self.watch, open, path);
        }
        let entries = fs::entries(open.as_fd())?;
        self.entries += entries.len();
        if self.entries > MAX_ENTRIES {
            return Err(Unsure::TooMuch);
        }
        if let Some(rules) = &mut self.learned {
            folder.is_ignored |= !path.is_empty() && rules.ignores(path, true)?;
            if !folder.is_ignored {
                rules.set(path, read_rules(open, &entries)?);
            }
        }
        let mut present = HashSet::new();
        for (name, kind) in &entries {
            if name == b".git" {
                match path.is_empty() || folder.is_ignored {
                    true => continue,
                    false => return only_git("a repository in the repository"),
                }
            }
            let is_ignored = folder.is_ignored;
            match folder.entries.get_mut(name.as_slice()) {
                Some(node) => {
                    present.insert(name.as_slice());
                    self.compare(node, open, (path, name), *kind, (depth, is_ignored))?;
                }
                None if is_ignored => {}
                None => self.found.push(join(path, name)),
            }
        }
        if present.len() < folder.entries.len() {
            let gone = folder
                .entries
                .keys()
                .filter(|name| !present.contains(&***name));
            self.found.extend(gone.map(|name| join(path, name)));
        }
        Ok(())
    }

    fn compare(
        &mut self,
        node: &mut Node,
        open: &OwnedFd,
        (path, name): (&[u8], &[u8]),
        kind: Option<EntryKind>,
        (depth, is_ignored): (usize, bool),
    ) -> Result<(), Unsure> {
        let is_same = match (node, kind) {
            (Node::Folder(inner), Some(EntryKind::Folder)) => {
                inner.is_ignored |= is_ignored;
                match fs::open_in(open.as_fd(), name) {
                    Ok(below) => {
                        self.walk(inner, &below, &join(path, name), depth + 1)?;
                        true
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
                    Err(error) => return Err(error.into()),
                }
            }
            (Node::File(file), Some(EntryKind::File | EntryKind::Link)) => {
                let seen = fs::look(open.as_fd(), name)?;
                if seen.is_some_and(|seen| seen.names > 1) {
                    self.linked.insert(join(path, name));
                }
                seen.is_some_and(|seen| file.is(&seen))
            }
            (Node::Other(known), Some(kind)) => is_kind(*known, kind),
            (Node::Folder(_) | Node::File(_) | Node::Other(_), _) => false,
        };
        if !is_same {
            self.found.push(join(path, name));
        }
        Ok(())
    }
}

fn is_kind(known: Kind, kind: EntryKind) -> bool {
    match known {
        Kind::Regular | Kind::Executable => kind == EntryKind::File,
        Kind::Link => kind == EntryKind::Link,
        Kind::Folder => kind == EntryKind::Folder,
        Kind::Special => kind == EntryKind::Special,
    }
}

/// Watches a folder. If that fails, nothing is watched any more.
pub(super) fn watch(watch: &mut Option<Watch>, open: &OwnedFd, path: &[u8]) -> Option<i32> {
    match watch.as_mut()?.add(open.as_fd(), path) {
        Ok(number) => Some(number),
        Err(_) => {
            *watch = None;
            None
        }
    }
}

/// The names of files with rules.
pub(super) fn has_rules(name: &[u8]) -> bool {
    name == b".gitignore" || name == b".gitattributes"
}

/// The rules in a folder.
pub(super) fn read_rules(open: &OwnedFd, entries: &[fs::Entry]) -> Result<Rules, Unsure> {
    let mut rules = Rules::default();
    for (name, _) in entries.iter().filter(|(name, _)| has_rules(name)) {
        let Some(seen) = fs::look(open.as_fd(), name)? else {
            return only_git("rules that vanish");
        };
        if fs::is_fresh(seen.changed, fs::now()) {
            return only_git("rules that were just changed");
        }
        let file = fs::small(open.as_fd(), name, repository::MAX_RULES)?.unwrap_or_default();
        match name.as_slice() {
            b".gitignore" => rules.ignore(&file)?,
            _ => rules.convert(&file)?,
        }
    }
    Ok(rules)
}
