//! The next snapshot: looks where something may have changed, and stores what has.

use std::collections::{BTreeSet, HashSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use super::fs::{self, Kind, Seen};
use super::large::becomes_difference;
use super::look::{Walk, has_rules, read_rules, watch};
use super::objects::{self, Object, ObjectType, Oid};
use super::project::{
    CHEAP, MAX_BYTES, MAX_CHANGED, MAX_ENTRIES, MAX_FILE, MAX_LINKED, Project, SMALL, Taken,
    WALK_SHARE,
};
use super::rules::is_in;
use super::tree::{Folder, Known, Node, split};
use super::unsure::{Unsure, only_git};
use super::watch::{Events, join};
use super::{index, mapped};
use crate::git::SNAPSHOT_REF;
use crate::last_snapshot::LastSnapshot;

/// Maximum number of files that are omitted for their size.
const MAX_LEFT_OUT: usize = 100;

impl Project {
    /// Whether a walk takes so little time that nobody waits for it.
    pub(crate) fn is_small(&self) -> bool {
        self.walk_took <= SMALL
    }

    /// The last snapshot.
    pub(crate) fn last(&self) -> &LastSnapshot {
        &self.last
    }

    /// Takes the next snapshot. After an error nothing is known any more.
    pub(crate) fn advance(&mut self, max_bundle: u64) -> Result<Taken, Unsure> {
        self.repository
            .ensure_unchanged(self.top.as_fd(), &self.last.commit)?;
        if self.repository.has_other_index() {
            self.ensure_same_files_staged()?;
        }
        let again = std::mem::take(&mut self.again);
        let mut paths = again.clone();
        paths.append(&mut self.left_out);
        paths.extend(self.where_to_look()?);
        let mut examination = Examination::new(self, Effort::Store, max_bundle);
        examination.doubted = again;
        examination.all(paths)?;
        if examination.has_new_links {
            // Its other names may be in the project too.
            let found = examination.project.walk()?;
            examination.all(found.into_iter().collect())?;
        }
        let mut new = examination.objects;
        let Some(tree) = self.files.hash_changed(&mut new)? else {
            return only_git("a project without files");
        };
        let bundle = match tree.to_string() == self.last.tree {
            true => None,
            false => Some(self.commit_tree(tree, new)?),
        };
        if bundle
            .as_ref()
            .is_some_and(|it| it.len() as u64 > max_bundle)
        {
            return Err(Unsure::TooMuch);
        }
        Ok(Taken {
            commit: self.last.commit.clone(),
            bundle,
            left_out: self.left_out.iter().cloned().collect(),
        })
    }

    /// Fails if the agent has staged a file that is ignored, or does not any more: what is staged is part of a
    /// snapshot, and all else in an index is not.
    fn ensure_same_files_staged(&mut self) -> Result<(), Unsure> {
        let staged = index::read(&self.repository.index()?)?;
        let mut paths = HashSet::with_capacity(staged.len());
        for file in &staged {
            paths.insert(file.path.as_slice());
            let is_known = match self.files.node(&file.path) {
                Some(Node::File(_)) => true,
                Some(Node::Folder(_) | Node::Other(_)) => false,
                // Deleted, or new.
                None => !self.rules.ignores_any_of(&file.path)?,
            };
            if !is_known {
                return only_git("an ignored file is staged");
            }
        }
        let mut ours = Vec::new();
        self.files.paths(b"", &mut ours);
        for path in ours.iter().filter(|path| !paths.contains(path.as_slice())) {
            if self.rules.ignores_any_of(path)? {
                return only_git("an ignored file is not staged any more");
            }
        }
        Ok(())
    }

    /// Paths that may have changed.
    fn where_to_look(&mut self) -> Result<Vec<Vec<u8>>, Unsure> {
        let events = match &mut self.watch {
            Some(watch) => watch.take()?,
            None => Events::Unknown,
        };
        let may_walk =
            self.walk_took <= CHEAP || self.walked.elapsed() >= self.walk_took * WALK_SHARE;
        if let Events::Paths(paths) = events
            && !may_walk
            && self.linked.len() < MAX_LINKED
            && let Some(mapped) = mapped::files(&self.path)
        {
            let linked = self.linked.iter().cloned();
            return Ok(paths.into_iter().chain(mapped).chain(linked).collect());
        }
        self.walk()
    }

    /// What differs in the whole tree.
    fn walk(&mut self) -> Result<Vec<Vec<u8>>, Unsure> {
        let began = Instant::now();
        let mut walk = Walk::new(&mut self.watch, None);
        walk.walk(&mut self.files, &self.top, b"", 0)?;
        let Walk {
            found,
            linked,
            entries,
            ..
        } = walk;
        (self.linked, self.entries) = (linked, entries);
        self.walk_took = began.elapsed();
        self.walked = Instant::now();
        Ok(found)
    }

    /// Stores the objects and a commit of the tree, and returns their bundle.
    fn commit_tree(&mut self, tree: Oid, mut new: Vec<Object>) -> Result<Vec<u8>, Unsure> {
        let Some(since) = Oid::of_hex(&self.last.commit) else {
            return only_git("names that are not SHA-1");
        };
        let head = self.repository.head.commit.iter();
        let head = head.filter(|head| **head != self.last.commit);
        let parents = [&self.last.commit].into_iter().chain(head);
        let parents = parents.map(String::as_str);
        let commit = objects::commit(tree, parents, &self.last.message)?;
        let oid = commit.oid;
        new.push(commit);
        let folder = self.repository.path.join("objects");
        for object in &new {
            objects::store(&folder, object)?;
        }
        self.repository.point_at(&oid.to_string())?;
        self.last = LastSnapshot {
            commit: oid.to_string(),
            tree: tree.to_string(),
            message: self.last.message.clone(),
        };
        objects::bundle(SNAPSHOT_REF, &[since], oid, &new)
    }
}

/// What is done with a file that has changed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Effort {
    /// It is noted for the next snapshot. The time is when git took the last one.
    Note((i64, i64)),
    /// It is stored.
    Store,
}

/// Looks at paths one by one.
pub(super) struct Examination<'a> {
    project: &'a mut Project,
    effort: Effort,
    max_bundle: u64,
    /// Files that may have changed although a look shows the same.
    doubted: BTreeSet<Vec<u8>>,
    has_new_links: bool,
    pub(super) objects: Vec<Object>,
    changed: usize,
    bytes: u64,
}

impl<'a> Examination<'a> {
    pub(super) fn new(project: &'a mut Project, effort: Effort, max_bundle: u64) -> Self {
        Self {
            project,
            effort,
            max_bundle,
            doubted: BTreeSet::new(),
            has_new_links: false,
            objects: Vec::new(),
            changed: 0,
            bytes: 0,
        }
    }

    /// Looks at all these paths, folders before what is in them.
    pub(super) fn all(&mut self, paths: BTreeSet<Vec<u8>>) -> Result<(), Unsure> {
        // A folder that has moved must be forgotten at its old place before it is found at its new one.
        for path in &paths {
            self.forget_if_gone(path)?;
        }
        for path in &paths {
            self.examine(path)?;
        }
        Ok(())
    }

    fn forget_if_gone(&mut self, path: &[u8]) -> Result<(), Unsure> {
        let Some(Node::Folder(folder)) = self.project.files.node(path) else {
            return Ok(());
        };
        let identity = folder.identity;
        let seen = match self.parent_of(path)? {
            Some(parent) => fs::look(parent.as_fd(), split(path).1)?,
            None => None,
        };
        match seen {
            Some(seen) if seen.kind == Kind::Folder && seen.identity == identity => Ok(()),
            _ => self.remove(path),
        }
    }

    /// The folder of a path; `None` if it is gone.
    fn parent_of(&self, path: &[u8]) -> Result<Option<OwnedFd>, Unsure> {
        match fs::open_folder(self.project.top.as_fd(), split(path).0) {
            Ok(parent) => Ok(Some(parent)),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP) => Ok(None),
                _ => Err(error.into()),
            },
        }
    }

    fn examine(&mut self, path: &[u8]) -> Result<(), Unsure> {
        let (folder, _) = split(path);
        // What is in a folder that is ignored or gone does not matter.
        if path == b".git" || self.project.files.at(folder).is_none() {
            return Ok(());
        }
        match self.parent_of(path)? {
            Some(parent) => self.examine_in(&parent, path),
            None => {
                self.project.again.insert(path.to_owned());
                Ok(())
            }
        }
    }

    fn examine_in(&mut self, parent: &OwnedFd, path: &[u8]) -> Result<(), Unsure> {
        let (folder, name) = split(path);
        let Some(seen) = fs::look(parent.as_fd(), name)? else {
            return self.remove(path);
        };
        if name == b".git" {
            return only_git("a repository in the repository");
        }
        let Some(known) = self.project.files.at(folder) else {
            return Ok(());
        };
        let is_ignored = known.is_ignored;
        match known.entries.get(name) {
            Some(Node::File(file)) if seen.kind != Kind::Folder && seen.kind != Kind::Special => {
                let file = *file;
                return self.file(parent, path, &seen, Some(file));
            }
            Some(Node::Folder(inner))
                if seen.kind == Kind::Folder && inner.identity == seen.identity =>
            {
                return Ok(());
            }
            Some(Node::Other(kind)) if *kind == seen.kind => return Ok(()),
            Some(Node::File(_) | Node::Folder(_)) if matches!(self.effort, Effort::Note(_)) => {
                return self.remove(path);
            }
            Some(Node::File(_) | Node::Folder(_) | Node::Other(_)) => self.remove(path)?,
            None => {}
        }
        if is_ignored {
            return Ok(());
        }
        let is_folder = seen.kind == Kind::Folder;
        if seen.kind == Kind::Special || self.project.rules.ignores(path, is_folder)? {
            if has_rules(name) {
                return only_git("rules that are ignored");
            }
            return self.insert(path, Node::Other(seen.kind));
        }
        match is_folder {
            true => self.folder(parent, path),
            false => self.file(parent, path, &seen, None),
        }
    }

    /// A folder that was not there.
    fn folder(&mut self, parent: &OwnedFd, path: &[u8]) -> Result<(), Unsure> {
        let open = fs::open_in(parent.as_fd(), split(path).1)?;
        let mut folder = Folder::default();
        folder.identity = fs::look_at(open.as_fd())?.identity;
        folder.watch = watch(&mut self.project.watch, &open, path);
        self.insert(path, Node::Folder(Box::new(folder)))?;
        let entries = fs::entries(open.as_fd())?;
        self.project.entries += entries.len();
        if self.project.entries > MAX_ENTRIES || path.iter().filter(|it| **it == b'/').count() > 100
        {
            return Err(Unsure::TooMuch);
        }
        self.project.rules.set(path, read_rules(&open, &entries)?);
        for (name, _) in entries {
            self.examine_in(&open, &join(path, &name))?;
        }
        Ok(())
    }

    /// A file that is not ignored, or is in the last snapshot.
    fn file(
        &mut self,
        parent: &OwnedFd,
        path: &[u8],
        seen: &Seen,
        known: Option<Known>,
    ) -> Result<(), Unsure> {
        let is_same = known.is_some_and(|known| known.is(seen));
        if seen.names > 1 && self.project.linked.insert(path.to_owned()) {
            self.has_new_links = true;
        }
        if is_same && !self.doubted.contains(path) {
            return Ok(());
        }
        if !is_same && seen.kind != Kind::Link && seen.size > self.max_bundle {
            self.project.left_out.insert(path.to_owned());
            return match self.project.left_out.len() > MAX_LEFT_OUT {
                true => Err(Unsure::TooMuch),
                false => Ok(()),
            };
        }
        if let Effort::Note(began) = self.effort {
            if known.is_none() && !fs::is_fresh(seen.changed, began) {
                return only_git("a file that git did not add");
            }
            self.project.again.insert(path.to_owned());
            return self.count(0);
        }
        if !is_ordinary(path) {
            return only_git("a file that only git stores");
        }
        self.store(parent, path, seen, known)
    }

    fn store(
        &mut self,
        parent: &OwnedFd,
        path: &[u8],
        seen: &Seen,
        known: Option<Known>,
    ) -> Result<(), Unsure> {
        let name = split(path).1;
        let now = fs::now();
        let max = MAX_BYTES.saturating_sub(self.bytes);
        if seen.size > max {
            return Err(Unsure::TooMuch);
        }
        let (content, seen) = fs::content(parent.as_fd(), name, seen, max)?;
        self.count(content.len() as u64)?;
        if fs::is_fresh(seen.changed, now) {
            self.project.again.insert(path.to_owned());
        }
        let mut blob = Object::new(ObjectType::Blob, content)?;
        let file = Known {
            kind: seen.kind,
            oid: blob.oid,
            stat: seen.stat,
        };
        let has_content = known.is_some_and(|known| {
            known.oid == blob.oid && (known.kind == Kind::Link) == (seen.kind == Kind::Link)
        });
        if !has_content {
            if has_rules(name) {
                return only_git("other rules");
            }
            if let Some(known) = known
                && seen.size > MAX_FILE
                && !becomes_difference(&mut blob, known.oid, &self.project.repository, MAX_BYTES)?
            {
                return only_git("a change of a large file");
            }
            if seen.kind != Kind::Link {
                self.project.rules.ensure_unchanged(path, &blob.content)?;
            }
            self.objects.push(blob);
        }
        if known != Some(file) {
            self.insert(path, Node::File(file))?;
        }
        Ok(())
    }

    fn count(&mut self, bytes: u64) -> Result<(), Unsure> {
        self.changed += 1;
        self.bytes += bytes;
        let most = match self.effort {
            Effort::Note(_) => MAX_ENTRIES,
            Effort::Store => MAX_CHANGED,
        };
        match self.changed > most || self.bytes > MAX_BYTES {
            true => Err(Unsure::TooMuch),
            false => Ok(()),
        }
    }

    fn insert(&mut self, path: &[u8], node: Node) -> Result<(), Unsure> {
        let (folder, name) = split(path);
        let folder = match self.effort {
            Effort::Store => self.project.files.change(folder),
            Effort::Note(_) => self.project.files.at(folder),
        };
        match folder {
            Some(folder) => folder.entries.insert(name.into(), node),
            None => return only_git("a folder that is unknown"),
        };
        Ok(())
    }

    /// Forgets what was at a path.
    fn remove(&mut self, path: &[u8]) -> Result<(), Unsure> {
        let (folder, name) = split(path);
        let Some(node) = self.project.files.node(path) else {
            return Ok(());
        };
        if let Effort::Note(_) = self.effort {
            // Git has just seen it; the next snapshot looks again.
            if !matches!(node, Node::Other(_)) {
                self.project.again.insert(path.to_owned());
                return Ok(());
            }
        }
        if has_rules(name) {
            return only_git("other rules");
        }
        if let Node::Folder(inner) = node {
            let mut watches = Vec::new();
            inner.watches(path, &mut watches);
            if let Some(watch) = &mut self.project.watch {
                for (number, path) in watches {
                    watch.remove(number, &path);
                }
            }
            self.project.rules.forget(path);
            self.project
                .again
                .retain(|it| it == path || !is_in(it, path));
        }
        if let Some(folder) = self.project.files.change(folder) {
            folder.entries.remove(name);
        }
        Ok(())
    }
}

/// Whether git certainly accepts the path.
fn is_ordinary(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').all(|name| {
        let start: Vec<u8> = name.iter().take(4).map(u8::to_ascii_lowercase).collect();
        let is_known = matches!(
            name,
            b".gitignore" | b".gitattributes" | b".gitkeep" | b".github" | b".gitlab-ci.yml"
        );
        let is_like_git = start == b".git" || start.starts_with(b"git~");
        is_known || (!is_like_git && !name.contains(&b'\\') && !name.contains(&b':'))
    })
}
