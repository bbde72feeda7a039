//! Learns the project from git's index, after git has taken a snapshot.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::Instant;

use super::advance::{Effort, Examination};
use super::look::Walk;
use super::project::Project;
use super::repository::{MAX_INDEX, Repository};
use super::rules::{AllRules, Rules};
use super::tree::Folder;
use super::unsure::{Unsure, only_git};
use super::watch::Watch;
use super::{fs, index};
use crate::last_snapshot::LastSnapshot;

/// What a snapshot of git's has left.
pub(crate) struct Lesson {
    pub(crate) project: PathBuf,
    pub(crate) repository: Repository,
    pub(crate) rules: (Vec<Rules>, bool),
    /// Folders that are as if git ignored them.
    pub(crate) omitted: Vec<Vec<u8>>,
    /// The name of the index in the git folder.
    pub(crate) index: &'static str,
    pub(crate) last: LastSnapshot,
    pub(crate) max_bundle: u64,
    /// When git began.
    pub(crate) began: (i64, i64),
}

impl Lesson {
    /// Reads the index and walks the tree.
    pub(crate) fn learn(self) -> Result<Project, Unsure> {
        let top = fs::open_top(&self.project)?;
        let folder = fs::open_in(top.as_fd(), b".git")?;
        let index = fs::small(folder.as_fd(), self.index.as_bytes(), MAX_INDEX)?;
        let indexed = index::read(&index.unwrap_or_default())?;
        let fresh = indexed.iter().filter(|file| {
            let (seconds, nanos) = file.stat.changed;
            fs::is_fresh((seconds.into(), nanos.into()), self.began)
        });
        let again: BTreeSet<Vec<u8>> = fresh.map(|file| file.path.clone()).collect();
        let mut files = Folder::of_index(indexed)?;
        let tree = files.hash_all()?.map(|tree| tree.to_string());
        if tree.as_ref() != Some(&self.last.tree) {
            return only_git("an index that is not the snapshot's");
        }
        let (outside, converts_lines) = self.rules;
        let mut rules = AllRules::new(outside, self.omitted, converts_lines);
        let mut watch = Watch::new().ok();
        let walked = Instant::now();
        let mut walk = Walk::new(&mut watch, Some(&mut rules));
        walk.walk(&mut files, &top, b"", 0)?;
        let (found, linked, entries) = (walk.found, walk.linked, walk.entries);
        let mut project = Project {
            top,
            path: self.project,
            files,
            rules,
            repository: self.repository,
            last: self.last,
            watch,
            again,
            linked,
            left_out: BTreeSet::new(),
            entries,
            walked,
            walk_took: walked.elapsed(),
        };
        let mut examination =
            Examination::new(&mut project, Effort::Note(self.began), self.max_bundle);
        examination.all(found.into_iter().collect())?;
        Ok(project)
    }
}
