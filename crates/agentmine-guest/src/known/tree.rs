//! The files of the project as git has them in the last snapshot.

use std::collections::BTreeMap;

use super::delta::tree_delta;
use super::fs::{Kind, Seen, Stat};
use super::index::Indexed;
use super::objects::{Object, ObjectType, Oid};
use super::unsure::{Unsure, only_git};

/// What is at a name.
#[derive(Debug)]
pub(crate) enum Node {
    /// In the snapshot.
    File(Known),
    /// Not ignored, or with files that are in the snapshot.
    Folder(Box<Folder>),
    /// Not in the snapshot, as long as its kind stays: ignored, or nothing that git stores.
    Other(Kind),
}

/// A file of the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) kind: Kind,
    pub(crate) oid: Oid,
    pub(crate) stat: Stat,
}

/// A folder.
#[derive(Debug, Default)]
pub(crate) struct Folder {
    pub(crate) entries: BTreeMap<Box<[u8]>, Node>,
    /// Device and inode; zero until it was checked.
    pub(crate) identity: (u64, u64),
    pub(crate) watch: Option<i32>,
    /// Only the files that are in the snapshot matter.
    pub(crate) is_ignored: bool,
    /// Its tree, unless it has no files or has changed.
    tree: Option<Oid>,
    /// Whether it differs from the snapshot, and the content of its tree in that.
    before: Option<Vec<u8>>,
}

impl Folder {
    /// The folders of an index.
    pub(crate) fn of_index(files: Vec<Indexed>) -> Result<Self, Unsure> {
        let mut top = Self::default();
        for file in files {
            let (folders, name) = split(&file.path);
            let known = Node::File(Known {
                kind: file.kind,
                oid: file.oid,
                stat: file.stat,
            });
            let folder = top.make(folders)?;
            folder.entries.insert(name.into(), known);
        }
        Ok(top)
    }

    fn make(&mut self, path: &[u8]) -> Result<&mut Self, Unsure> {
        let mut folder = self;
        for part in parts(path) {
            let node = folder.entries.entry(part.into());
            let node = node.or_insert_with(|| Node::Folder(Box::default()));
            let Node::Folder(inner) = node else {
                return only_git("a file in a file");
            };
            folder = inner;
        }
        Ok(folder)
    }

    /// The folder with this path.
    pub(crate) fn at(&mut self, path: &[u8]) -> Option<&mut Self> {
        let mut folder = self;
        for part in parts(path) {
            match folder.entries.get_mut(part) {
                Some(Node::Folder(inner)) => folder = inner,
                _ => return None,
            }
        }
        Some(folder)
    }

    /// The node with this path.
    pub(crate) fn node(&mut self, path: &[u8]) -> Option<&mut Node> {
        let (folders, name) = split(path);
        self.at(folders)?.entries.get_mut(name)
    }

    /// The folder with this path, before an entry of it changes.
    pub(crate) fn change(&mut self, path: &[u8]) -> Option<&mut Self> {
        let mut folder = self;
        folder.remember();
        for part in parts(path) {
            match folder.entries.get_mut(part) {
                Some(Node::Folder(inner)) => folder = inner,
                _ => return None,
            }
            folder.remember();
        }
        Some(folder)
    }

    fn remember(&mut self) {
        if self.before.is_none() {
            self.before = Some(match self.tree {
                Some(_) => self.content(),
                None => Vec::new(),
            });
        }
    }

    /// The content of its tree, where those of its folders are known.
    fn content(&self) -> Vec<u8> {
        let mut entries: Vec<(&[u8], &'static [u8], Oid)> = Vec::new();
        for (name, node) in &self.entries {
            match node {
                Node::File(file) => {
                    let mode: &[u8] = match file.kind {
                        Kind::Executable => b"100755 ",
                        Kind::Link => b"120000 ",
                        Kind::Regular | Kind::Folder | Kind::Special => b"100644 ",
                    };
                    entries.push((name, mode, file.oid));
                }
                Node::Folder(folder) => {
                    if let Some(tree) = folder.tree {
                        entries.push((name, b"40000 ", tree));
                    }
                }
                Node::Other(_) => {}
            }
        }
        // A folder is sorted as if its name ended with a slash.
        let end = |mode: &[u8]| (mode == b"40000 ").then_some(b'/');
        entries.sort_by(|(a, a_mode, _), (b, b_mode, _)| {
            let a = a.iter().copied().chain(end(a_mode));
            a.cmp(b.iter().copied().chain(end(b_mode)))
        });
        let mut content = Vec::new();
        for (name, mode, oid) in entries {
            content.extend(mode);
            content.extend(name);
            content.push(0);
            content.extend(oid.0);
        }
        content
    }

    /// Computes the trees of all folders, after the index was read.
    pub(crate) fn hash_all(&mut self) -> Result<Option<Oid>, Unsure> {
        for node in self.entries.values_mut() {
            if let Node::Folder(folder) = node {
                folder.hash_all()?;
            }
        }
        let content = self.content();
        self.tree = match content.is_empty() {
            true => None,
            false => Some(super::objects::name(ObjectType::Tree, &content)?),
        };
        Ok(self.tree)
    }

    /// Computes the trees of the folders that have changed, and adds them to `objects`.
    pub(crate) fn hash_changed(
        &mut self,
        objects: &mut Vec<Object>,
    ) -> Result<Option<Oid>, Unsure> {
        let Some(before) = self.before.take() else {
            return Ok(self.tree);
        };
        for node in self.entries.values_mut() {
            if let Node::Folder(folder) = node {
                folder.hash_changed(objects)?;
            }
        }
        let content = self.content();
        if content.is_empty() {
            self.tree = None;
            return Ok(None);
        }
        let mut tree = Object::new(ObjectType::Tree, content)?;
        let old = self.tree.replace(tree.oid);
        if let Some(old) = old.filter(|old| *old != tree.oid) {
            let delta = tree_delta(&before, &tree.content);
            tree.delta = delta.map(|delta| (old, delta));
        }
        if old != Some(tree.oid) {
            objects.push(tree);
        }
        Ok(self.tree)
    }

    /// The paths of all files in it.
    pub(crate) fn paths(&self, path: &[u8], found: &mut Vec<Vec<u8>>) {
        for (name, node) in &self.entries {
            let path = super::watch::join(path, name);
            match node {
                Node::File(_) => found.push(path),
                Node::Folder(folder) => folder.paths(&path, found),
                Node::Other(_) => {}
            }
        }
    }

    /// All watches in it.
    pub(crate) fn watches(&self, path: &[u8], found: &mut Vec<(i32, Vec<u8>)>) {
        found.extend(self.watch.map(|watch| (watch, path.to_owned())));
        for (name, node) in &self.entries {
            if let Node::Folder(folder) = node {
                folder.watches(&super::watch::join(path, name), found);
            }
        }
    }
}

impl Known {
    /// Whether a look shows the same file, as far as it can.
    pub(crate) fn is(&self, seen: &Seen) -> bool {
        self.kind == seen.kind && self.stat == seen.stat
    }
}

fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/')
        .filter(|part| !part.is_empty())
}

/// The folder of a path, and the name in it.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}
