//! What else a repository knows besides its files and HEAD: a merge or rebase that is not finished, stashes, and branches
//! with commits that the remote does not have.
//!
//! A snapshot takes it along as a commit without files, whose message is the state, and whose parents are the commits
//! that the state names. In a restored project a rebase can be continued, and a merge has both of its parents.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::git::{Git, Head};

/// Git has one of these while an operation is not finished.
const OPERATIONS: [&str; 6] = [
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
];
/// What belongs to it: files, and folders of files.
const OF_OPERATION: [&str; 11] = [
    "MERGE_HEAD",
    "MERGE_MSG",
    "MERGE_MODE",
    "SQUASH_MSG",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "ORIG_HEAD",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
];
/// Of these, those that change with each of its steps.
const STEPS: [&str; 4] = [
    "MERGE_MSG",
    "rebase-merge/done",
    "rebase-apply/next",
    "sequencer/todo",
];
const STASH: &str = "refs/stash";
/// Refs without files of their own.
const PACKED: &str = "packed-refs";
/// Size in bytes of what is read of them: a clone has its tags there.
const MAX_PACKED: u64 = 16 << 20;
/// Git reads the older stashes from there.
const STASH_LOG: &str = "logs/refs/stash";
const BRANCHES: &str = "refs/heads";
/// The mode of a submodule in the index.
const SUBMODULE: &str = "160000";

/// The state may have so many bytes. A larger one is not taken along.
const MAX_BYTES: usize = 1 << 20;
/// So many commits are named in it. More are not taken along.
const MAX_COMMITS: usize = 200;
/// How deep folders are looked through.
const MAX_DEPTH: usize = 8;

/// Changes whenever the state may have changed. Made without git, and without reading a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    folder: PathBuf,
    seen: Vec<Seen>,
}

/// The inode, size and time of change of a file.
type Seen = Option<(u64, u64, i64, i64)>;

impl Mark {
    pub(crate) fn of(folder: &Path) -> Self {
        let mut seen: Vec<Seen> = Vec::new();
        let operations = OPERATIONS.map(|name| seen_at(&folder.join(name)));
        if operations.iter().any(Option::is_some) {
            let steps = STEPS.iter().chain(&["index"]);
            seen.extend(steps.map(|name| seen_at(&folder.join(name))));
        }
        seen.extend(operations);
        seen.extend([STASH, STASH_LOG, PACKED].map(|name| seen_at(&folder.join(name))));
        mark_folders(&folder.join(BRANCHES), 0, &mut seen);
        Self {
            folder: folder.to_owned(),
            seen,
        }
    }

    pub(crate) fn is_unchanged(&self) -> bool {
        Self::of(&self.folder) == *self
    }
}

fn seen_at(path: &Path) -> Seen {
    let seen = std::fs::symlink_metadata(path).ok()?;
    Some((seen.ino(), seen.size(), seen.ctime(), seen.ctime_nsec()))
}

/// Git replaces the file of a branch, which changes its folder.
fn mark_folders(folder: &Path, depth: usize, seen: &mut Vec<Seen>) {
    seen.push(seen_at(folder));
    if depth == MAX_DEPTH {
        return;
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            mark_folders(&entry.path(), depth + 1, seen);
        }
    }
}

/// The state as a snapshot has it.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct GitState {
    /// Files of the git folder, by name.
    files: BTreeMap<String, String>,
    /// Commits by ref.
    refs: BTreeMap<String, String>,
    /// Files with a staged change.
    staged: Vec<String>,
    /// Staged changes of submodules, as entries of the index: `MODE OBJECT STAGE<tab>PATH`, or `0 ZEROS<tab>PATH` for one
    /// that is gone. Where no submodule is checked out, its folder does not show which commit of it is staged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    submodules: Vec<String>,
    /// Entries of the index without a decision: `MODE OBJECT STAGE<tab>PATH`.
    unmerged: Vec<String>,
}

/// Writes the state as a commit, if there is any. The same state is the same commit.
pub(crate) async fn save(git: &Git, head: &Head) -> Result<Option<String>> {
    let state = GitState::read(git, head).await?;
    if state == GitState::default() {
        return Ok(None);
    }
    let text = serde_json::to_string(&state)?;
    ensure!(
        text.len() <= MAX_BYTES,
        "the repository's state has {} bytes; the limit is {MAX_BYTES}",
        text.len()
    );
    let tree = git
        .run(["hash-object", "-w", "-t", "tree", "/dev/null"])
        .await?;
    let commits = state.commits();
    ensure!(
        commits.len() <= MAX_COMMITS,
        "the repository's state names {} commits; the limit is {MAX_COMMITS}",
        commits.len()
    );
    let mut parents = String::new();
    for commit in news(git, &commits).await? {
        parents.push_str(&format!("parent {commit}\n"));
    }
    let who = "AgentMine <agentmine@localhost> 0 +0000";
    let commit = format!("tree {tree}\n{parents}author {who}\ncommitter {who}\n\n{text}\n");
    let args = ["hash-object", "-w", "-t", "commit", "--stdin"];
    git.fed(args, commit.as_bytes()).await.map(Some)
}

/// The commits among these that exist, and that the remote does not have.
async fn news(git: &Git, commits: &[String]) -> Result<Vec<String>> {
    if commits.is_empty() {
        return Ok(Vec::new());
    }
    let mut args = vec!["rev-list", "--no-walk=unsorted", "--ignore-missing"];
    args.extend(commits.iter().map(String::as_str));
    args.extend(["--not", "--remotes"]);
    let listed = git.run(args).await?;
    Ok(listed.lines().map(str::to_owned).collect())
}

/// Restores the state that a snapshot has. The files and HEAD are there already.
pub(crate) async fn restore(git: &Git, commit: &str) -> Result<()> {
    let text = git.run(["cat-file", "commit", commit]).await?;
    let Some((_, text)) = text.split_once("\n\n") else {
        bail!("{commit} is not the state of a repository");
    };
    let state: GitState = serde_json::from_str(text)?;
    for (name, id) in &state.refs {
        let is_ours = name == STASH || name.starts_with("refs/heads/");
        if is_ours && git.attempt(["check-ref-format", name]).await?.0 == Some(0) {
            // What the state names may be missing, as after a push that was cleaned up since.
            git.attempt(["update-ref", name, id]).await?;
        }
    }
    let write = |name: &str, content: &str| -> Result<()> {
        let path = git.folder.join(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, content)?;
        Ok(())
    };
    if let Some(stashes) = state.files.get(STASH_LOG) {
        write(STASH_LOG, stashes)?;
    }
    // Before the operation is there again: without the index it would end with what the index lacks.
    restore_index(git, &state).await?;
    for (name, content) in &state.files {
        if belongs(name) && name != STASH_LOG {
            write(name, content)?;
        }
    }
    Ok(())
}

async fn restore_index(git: &Git, state: &GitState) -> Result<()> {
    let ended = |lines: &[String]| lines.iter().map(|it| format!("{it}\0")).collect::<String>();
    // First, since a file may be in the place of a submodule.
    if !state.submodules.is_empty() {
        let args = ["update-index", "-z", "--index-info"];
        git.fed(args, ended(&state.submodules).as_bytes()).await?;
    }
    if !state.staged.is_empty() {
        let args = ["update-index", "--add", "--remove", "-z", "--stdin"];
        git.fed(args, ended(&state.staged).as_bytes()).await?;
    }
    if !state.unmerged.is_empty() {
        // First each without its entry, which is that of HEAD.
        let gone = state.unmerged.iter().filter_map(|it| {
            let (entry, path) = it.split_once('\t')?;
            let zeros = "0".repeat(entry.split(' ').nth(1)?.len());
            Some(format!("0 {zeros}\t{path}"))
        });
        let gone: Vec<String> = gone.collect();
        let lines = ended(&gone) + &ended(&state.unmerged);
        let args = ["update-index", "-z", "--index-info"];
        git.fed(args, lines.as_bytes()).await?;
    }
    Ok(())
}

/// Decides each conflict in the guest's index: for our side, or for the other one where ours has nothing. Returns
/// whether there was one.
pub(crate) async fn settle(with_ours: &Git) -> Result<bool> {
    let listed = with_ours.run(["ls-files", "--unmerged", "-z"]).await?;
    let mut decided: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for entry in listed.split_terminator('\0') {
        // In the order of their stages: the common ancestor's, ours, theirs.
        if let Some((entry, path)) = entry.split_once('\t')
            && let Some((entry, stage)) = entry.rsplit_once(' ')
        {
            let known = decided.entry(path).or_insert((stage, entry));
            if known.0 == "1" {
                *known = (stage, entry);
            }
        }
    }
    if decided.is_empty() {
        return Ok(false);
    }
    let entries = decided
        .iter()
        .map(|(path, (_, entry))| format!("{entry} 0\t{path}\0"));
    let entries: String = entries.collect();
    let args = ["update-index", "-z", "--index-info"];
    with_ours.fed(args, entries.as_bytes()).await?;
    Ok(true)
}

/// Whether a file of the git folder is one that a state has.
fn belongs(name: &str) -> bool {
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    let top = name.split('/').next().unwrap_or_default();
    name.split('/').all(is_plain) && (name == STASH_LOG || OF_OPERATION.contains(&top))
}

impl GitState {
    async fn read(git: &Git, head: &Head) -> Result<Self> {
        let mut state = Self::default();
        let folder = &git.folder;
        if OPERATIONS
            .iter()
            .any(|name| seen_at(&folder.join(name)).is_some())
        {
            for name in OF_OPERATION {
                add_files(folder, name, 0, &mut state.files);
            }
            let staged = [
                "diff",
                "--cached",
                "--raw",
                "--no-abbrev",
                "--no-renames",
                "--no-ext-diff",
                "--ignore-submodules=none",
                "--diff-filter=ACDMT",
                "-z",
            ];
            state.stage(&git.run(staged).await?);
            state.unmerged = split(&git.run(["ls-files", "--unmerged", "-z"]).await?);
        }
        add_files(folder, STASH_LOG, 0, &mut state.files);
        let mut refs = BTreeMap::new();
        add_files(folder, BRANCHES, 0, &mut refs);
        let mut packed = packed(folder);
        let packed_stash = packed.remove(STASH);
        for (name, id) in packed {
            refs.entry(name).or_insert(id);
        }
        refs.remove(&head.branch);
        // Most are where the remote is, as the branch that was cloned.
        let ids: Vec<String> = refs.values().map(|id| id.trim_end().to_owned()).collect();
        let known = ids.iter().filter(|id| is_id(id)).take(MAX_COMMITS);
        let news = news(git, &known.cloned().collect::<Vec<_>>()).await?;
        add_files(folder, STASH, 0, &mut refs);
        if let Some(id) = packed_stash {
            refs.entry(STASH.to_owned()).or_insert(id);
        }
        for (name, id) in refs {
            let id = id.trim_end().to_owned();
            if is_id(&id) && (name == STASH || news.contains(&id)) {
                state.refs.insert(name, id);
            }
        }
        Ok(state)
    }

    /// Takes the staged changes from a listing of `:MODE MODE OBJECT OBJECT STATUS` and paths.
    fn stage(&mut self, listing: &str) {
        let mut parts = listing.split_terminator('\0');
        while let (Some(change), Some(path)) = (parts.next(), parts.next()) {
            let fields: Vec<&str> = change.trim_start_matches(':').split(' ').collect();
            let [before, after, _, object, _] = fields[..] else {
                continue;
            };
            if after == SUBMODULE {
                self.submodules.push(format!("{after} {object} 0\t{path}"));
                continue;
            }
            let was_submodule = before == SUBMODULE;
            if was_submodule {
                let zeros = "0".repeat(object.len());
                self.submodules.push(format!("0 {zeros}\t{path}"));
            }
            let is_gone = after.bytes().all(|byte| byte == b'0');
            if !(was_submodule && is_gone) {
                self.staged.push(path.to_owned());
            }
        }
    }

    /// The commits that it names.
    fn commits(&self) -> Vec<String> {
        let words = |text: &str| -> Vec<String> {
            let words = text.split_ascii_whitespace().filter(|it| is_id(it));
            words.map(str::to_owned).collect()
        };
        let mut commits: Vec<String> = self.refs.values().cloned().collect();
        for (name, text) in &self.files {
            match name.as_str() {
                STASH_LOG => {
                    // `OLD NEW WHO WHEN<tab>MESSAGE`
                    let new = |line: &str| line.split(' ').nth(1).map(str::to_owned);
                    commits.extend(text.lines().filter_map(new).filter(|it| is_id(it)));
                }
                name if name.ends_with("HEAD") || name.starts_with("rebase-merge/") => {
                    commits.extend(words(text));
                }
                _ => {}
            }
        }
        commits.sort_unstable();
        commits.dedup();
        commits
    }
}

/// The branches and the stash that have no file of their own since `git pack-refs` or `git gc`, unless they got one again.
fn packed(folder: &Path) -> BTreeMap<String, String> {
    let path = folder.join(PACKED);
    let is_file = std::fs::symlink_metadata(&path)
        .is_ok_and(|seen| seen.is_file() && seen.len() <= MAX_PACKED);
    let text = is_file
        .then(|| std::fs::read_to_string(path).ok())
        .flatten();
    let text = text.unwrap_or_default();
    let refs = text.lines().filter_map(|line| line.split_once(' '));
    let refs = refs.filter(|(_, name)| *name == STASH || inside(name, BRANCHES));
    refs.map(|(id, name)| (name.to_owned(), id.to_owned()))
        .collect()
}

fn inside(name: &str, folder: &str) -> bool {
    let rest = name.strip_prefix(folder);
    rest.is_some_and(|rest| rest.starts_with('/'))
}

/// Adds a file, or the files of a folder, that are text.
fn add_files(folder: &Path, name: &str, depth: usize, files: &mut BTreeMap<String, String>) {
    let path = folder.join(name);
    let Ok(seen) = std::fs::symlink_metadata(&path) else {
        return;
    };
    if seen.is_dir() && depth < MAX_DEPTH {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        for entry in entries {
            if let Some(entry) = entry.file_name().to_str() {
                add_files(folder, &format!("{name}/{entry}"), depth + 1, files);
            }
        }
    } else if seen.is_file()
        && seen.len() <= MAX_BYTES as u64
        && let Ok(text) = std::fs::read_to_string(path)
    {
        files.insert(name.to_owned(), text);
    }
}

fn split(listing: &str) -> Vec<String> {
    let names = listing.split_terminator('\0');
    names.map(str::to_owned).collect()
}

fn is_id(text: &str) -> bool {
    text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
