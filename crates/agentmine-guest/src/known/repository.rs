//! What git's own files say, as far as a snapshot depends on it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::fs;
use super::objects::Oid;
use super::rules::Rules;
use super::tree::split;
use super::unsure::{Unsure, only_git};
use crate::git::{Git, Head, SNAPSHOT_REF};

const MAX_SMALL: u64 = 4096;
const MAX_PACKED: u64 = 1 << 20;
/// The largest index that is read, in bytes.
pub(crate) const MAX_INDEX: u64 = 128 << 20;
/// Maximum size of a file of rules.
pub(crate) const MAX_RULES: u64 = 256 * 1024;

/// What distinguishes a file of git's from another at the same place, and from itself after a change.
type Mark = Option<[i64; 7]>;

fn mark(path: &Path) -> Mark {
    let it = std::fs::metadata(path).ok()?;
    let size = it.size().cast_signed();
    let identity = [it.dev().cast_signed(), it.ino().cast_signed()];
    let [device, inode] = identity;
    let (changed, modified) = (it.ctime(), it.mtime());
    Some([
        device,
        inode,
        size,
        changed,
        it.ctime_nsec(),
        modified,
        it.mtime_nsec(),
    ])
}

/// The settings that a snapshot depends on.
#[derive(Debug)]
pub(crate) struct Settings {
    files: BTreeMap<PathBuf, Mark>,
    converts_lines: bool,
    /// Why they are too much for us.
    only_git: Option<&'static str>,
}

impl Settings {
    /// Asks git.
    pub(crate) async fn read(git: &Git, home: &Path) -> Result<Self, Unsure> {
        let now = fs::now();
        let mut files: Vec<PathBuf> = [
            ".gitconfig",
            ".config/git/config",
            ".config/git/ignore",
            ".config/git/attributes",
        ]
        .map(|name| home.join(name))
        .into();
        files.extend(["/etc/gitconfig", "/etc/gitattributes"].map(PathBuf::from));
        let own = [
            "config",
            "config.worktree",
            "info/exclude",
            "info/attributes",
            "info/sparse-checkout",
            "info/grafts",
        ];
        files.extend(own.map(|name| git.folder.join(name)));
        let marks = |files: Vec<PathBuf>| -> BTreeMap<PathBuf, Mark> {
            let all = files.into_iter().map(|path| (path.clone(), mark(&path)));
            all.collect()
        };
        // Before git reads them.
        let files = marks(files);
        let listed = git
            .attempt(["config", "--list", "-z", "--show-origin"])
            .await;
        let (Some(0), listed, _) = listed.map_err(|_| Unsure::OnlyGit("git's settings"))? else {
            return only_git("git's settings");
        };
        let mut settings = Self {
            files,
            converts_lines: false,
            only_git: None,
        };
        let parts: Vec<&str> = listed.split('\0').collect();
        for pair in parts.chunks_exact(2) {
            settings.take(pair[0], pair[1], &git.project);
        }
        let times = settings.files.values().flatten();
        if times.clone().any(|it| fs::is_fresh((it[3], it[4]), now)) {
            return only_git("settings that were just changed");
        }
        Ok(settings)
    }

    fn take(&mut self, origin: &str, setting: &str, project: &Path) {
        let (key, value) = setting.split_once('\n').unwrap_or((setting, "true"));
        if let Some(file) = origin.strip_prefix("file:") {
            let file = project.join(file);
            if !self.files.contains_key(&file) {
                self.files.insert(file.clone(), mark(&file));
            }
        }
        let is_off = matches!(value, "false" | "no" | "off" | "0" | "");
        match key {
            "core.autocrlf" => self.converts_lines |= !is_off,
            "core.filemode" | "core.symlinks" if is_off => {
                self.only_git = Some("a file system without modes or links");
            }
            "core.ignorecase" | "core.sparsecheckout" | "core.bare" if !is_off => {
                self.only_git = Some("a setting of git's");
            }
            "core.excludesfile"
            | "core.attributesfile"
            | "core.worktree"
            | "core.sharedrepository"
            | "i18n.commitencoding" => {
                self.only_git = Some("a setting of git's");
            }
            _ if key.starts_with("extensions.") || key.starts_with("include") => {
                self.only_git = Some("an extension of the repository, or settings elsewhere");
            }
            _ => {}
        }
    }

    /// Whether the files that they come from are the same.
    pub(crate) fn are_unchanged(&self) -> bool {
        self.files.iter().all(|(path, known)| mark(path) == *known)
    }

    /// The rules that are not in the project, those of the repository first, and whether ends of lines are
    /// converted. Fails if a setting changes what git stores, in a way that only git knows.
    pub(crate) fn rules(&self, git: &Path, home: &Path) -> Result<(Vec<Rules>, bool), Unsure> {
        if let Some(why) = self.only_git {
            return only_git(why);
        }
        let mut all = Vec::new();
        for (folder, ignore, attributes) in [
            (git.join("info"), "exclude", "attributes"),
            (home.join(".config/git"), "ignore", "attributes"),
            (PathBuf::from("/etc"), "", "gitattributes"),
        ] {
            let mut rules = Rules::default();
            // The kernel does not change these paths' folders; a link is left to git.
            if let Ok(folder) = fs::open_top(&folder) {
                for (name, is_ignore) in [(ignore, true), (attributes, false)] {
                    let file = match name {
                        "" => None,
                        name => fs::small(folder.as_fd(), name.as_bytes(), MAX_RULES)?,
                    };
                    match (file, is_ignore) {
                        (Some(file), true) => rules.ignore(&file)?,
                        (Some(file), false) => rules.convert(&file)?,
                        (None, _) => {}
                    }
                }
            }
            all.push(rules);
        }
        Ok((all, self.converts_lines))
    }
}

/// The repository at the time of the last snapshot.
#[derive(Debug)]
pub(crate) struct Repository {
    pub(crate) path: PathBuf,
    folder: OwnedFd,
    identity: (u64, u64),
    pub(crate) head: Head,
    index: Mark,
}

impl Repository {
    /// The repository of an ordinary project.
    pub(crate) fn open(git: &Git, head: &Head) -> Result<Self, Unsure> {
        let path = git.project.join(".git");
        if git.folder != path {
            return only_git("a repository that is elsewhere");
        }
        let folder = fs::open_top(&path)?;
        let identity = fs::look_at(folder.as_fd())?.identity;
        Ok(Self {
            index: mark(&path.join("index")),
            head: head.clone(),
            path,
            folder,
            identity,
        })
    }

    /// Whether the agent's index is what it was. It is from now on compared with what it is now.
    pub(crate) fn has_other_index(&mut self) -> bool {
        let before = std::mem::replace(&mut self.index, mark(&self.path.join("index")));
        self.index != before
    }

    /// The agent's index.
    pub(crate) fn index(&self) -> Result<Vec<u8>, Unsure> {
        let index = fs::small(self.folder.as_fd(), b"index", MAX_INDEX)?;
        index.map_or_else(|| only_git("no index"), Ok)
    }

    /// Fails unless HEAD and the last snapshot are what they were.
    pub(crate) fn ensure_unchanged(&self, top: BorrowedFd<'_>, commit: &str) -> Result<(), Unsure> {
        let now = fs::look(top, b".git")?;
        if now.map(|now| now.identity) != Some(self.identity) {
            return only_git("another repository");
        }
        self.ensure_same_head()?;
        match self.loose(SNAPSHOT_REF)? {
            Some(last) if last == commit => Ok(()),
            _ => only_git("the last snapshot is not there"),
        }
    }

    /// Fails unless HEAD is what it was, and is kept in files.
    pub(crate) fn ensure_same_head(&self) -> Result<(), Unsure> {
        let head = fs::small(self.folder.as_fd(), b"HEAD", MAX_SMALL)?.unwrap_or_default();
        let head = text(&head)?;
        let is_same = match head.strip_prefix("ref: ") {
            Some(branch) if branch == self.head.branch => {
                self.reference(branch)?.as_deref() == self.head.commit.as_deref()
            }
            Some(_) => false,
            None => self.head.branch.is_empty() && Some(head) == self.head.commit.as_deref(),
        };
        match is_same {
            true => Ok(()),
            false => only_git("HEAD has moved"),
        }
    }

    /// Whether the hidden ref is at this commit, and the commit is there.
    pub(crate) fn has_snapshot(&self, commit: &str) -> bool {
        let at = self.loose(SNAPSHOT_REF).ok().flatten();
        let object = commit.split_at_checked(2);
        at.as_deref() == Some(commit)
            && object.is_some_and(|(folder, name)| {
                let path = self.path.join("objects").join(folder).join(name);
                path.symlink_metadata().is_ok_and(|it| it.is_file())
            })
    }

    /// Whether `origin` certainly has HEAD's commit: it is what a clone got, or what was pushed of the same branch.
    pub(crate) fn is_head_on_remote(&self) -> Result<bool, Unsure> {
        let Some(commit) = self.head.commit.as_deref() else {
            return Ok(false);
        };
        let branch = self.head.branch.strip_prefix("refs/heads/");
        if let Some(branch) = branch
            && let Some(pushed) = self.loose(&format!("refs/remotes/origin/{branch}"))?
        {
            return Ok(pushed == commit);
        }
        for line in self.packed()?.split(|&byte| byte == b'\n') {
            let name = line.strip_prefix(commit.as_bytes());
            let name = name.and_then(|name| name.strip_prefix(b" "));
            let is_remote = |name: &&[u8]| name.starts_with(b"refs/remotes/");
            // A loose one of the same name is newer.
            if let Some(name) = name.filter(is_remote)
                && self.loose(text(name)?)?.is_none()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn loose(&self, reference: &str) -> Result<Option<String>, Unsure> {
        let (folder, name) = split(reference.as_bytes());
        let folder = match fs::open_folder(self.folder.as_fd(), folder) {
            Ok(folder) => folder,
            Err(_) => return Ok(None),
        };
        let content = fs::small(folder.as_fd(), name, MAX_SMALL)?;
        content.map(|it| text(&it).map(str::to_owned)).transpose()
    }

    fn reference(&self, name: &str) -> Result<Option<String>, Unsure> {
        if let Some(loose) = self.loose(name)? {
            return Ok(Some(loose));
        }
        let packed = self.packed()?;
        let line = packed.split(|&byte| byte == b'\n').find_map(|line| {
            let (oid, of) = line.split_at_checked(40)?;
            (of.strip_prefix(b" ") == Some(name.as_bytes())).then_some(oid)
        });
        line.map(|oid| text(oid).map(str::to_owned)).transpose()
    }

    /// What the repository stores of an object by itself, compressed; `None` if it is in a pack.
    pub(super) fn object(&self, oid: Oid, max: u64) -> Result<Option<Vec<u8>>, Unsure> {
        let hex = oid.to_string();
        let (folder, name) = hex.split_at(2);
        let folder = format!("objects/{folder}");
        match fs::open_folder(self.folder.as_fd(), folder.as_bytes()) {
            Ok(folder) => fs::small(folder.as_fd(), name.as_bytes(), max),
            Err(_) => Ok(None),
        }
    }

    fn packed(&self) -> Result<Vec<u8>, Unsure> {
        let packed = fs::small(self.folder.as_fd(), b"packed-refs", MAX_PACKED)?;
        Ok(packed.unwrap_or_default())
    }

    /// Points the hidden ref at a commit.
    pub(crate) fn point_at(&self, commit: &str) -> Result<(), Unsure> {
        let path = self.path.join(SNAPSHOT_REF);
        let temporary = self.path.join("agentmine-ref");
        let _ = std::fs::remove_file(&temporary);
        super::objects::write_new(&temporary, format!("{commit}\n").as_bytes(), 0o644)?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        Ok(std::fs::rename(temporary, path)?)
    }
}

fn text(content: &[u8]) -> Result<&str, Unsure> {
    match std::str::from_utf8(content) {
        Ok(text) => Ok(text.trim_end()),
        Err(_) => only_git("a reference that is no text"),
    }
}
