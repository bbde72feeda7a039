//! Snapshots of the project: a commit on a hidden ref, and a bundle of what is new.
//!
//! The commit contains every file that is tracked or not ignored, and is made with a separate index. Its
//! parents are the previous snapshot and HEAD, so that it includes the agent's own commits; its message names
//! HEAD and the branch, and the commit that holds what else is to be restored ([`git_state`]). The bundle omits what the remote has. Not preserved: the difference between
//! staged and other changes, files that cannot be read, the content of a repository nested in the project (its history
//! too), and files that are larger than the bundle may be: they would not fit, and to read a sparse file of some terabytes
//! takes for ever. The answer names these, except repositories that the agent has staged as submodules.
//!
//! Git takes the first snapshot. Then the guest learns the project ([`known`](crate::known)) and takes the next
//! ones itself: without a process, at a cost in proportion to the change. What it is not certain of it leaves to
//! git, and both make the same tree of the same files.
//!
//! A snapshot is answered when its objects and the ref are written, and the worker stores its bundle before it
//! records the call's result, so that a worker that dies at any point loses no file whose change was recorded.
//! Nothing is synchronised to the sandbox's disk: what has to survive the sandbox is in the worker's store. An
//! answer that was lost is given again: a request that names another snapshot than the last one goes to git.
//!
//! What is installed in a folder that is not ignored may be larger than a bundle. The snapshots then omit it and name it, rather
//! than lose the work beside it.
//!
//! Git may never finish, since it starts what the repository's settings name (a clean filter that waits). The
//! snapshot is then given up after a time limit and git is killed with what it started; the next one gets less
//! time, until one succeeds.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentmine_guest::mux::MuxStream;
use agentmine_guest::protocol::{INSTALLED, MAX_LEFT_OUT, SnapshotDone};
use anyhow::{Context as _, Result, bail};
use tokio::io::AsyncWriteExt as _;

use crate::git::{Git, Head, SNAPSHOT_REF, too_slow};
use crate::git_state::{self, Mark};
use crate::home;
use crate::known::{self, Repository, Settings, commit_alone, literal};
use crate::last_snapshot::{LastSnapshot, TooLarge};
use crate::reply::{finish, reply};
use crate::state::{SnapshotMemory, State};

#[cfg(test)]
mod tests;

/// The guest's own index, in the git folder.
pub(crate) const INDEX: &str = "agentmine-index";
/// The names of folders in [`INSTALLED`] that may have gigabytes.
const BULK: [&[u8]; 7] = [
    b"node_modules",
    b".venv",
    b"venv",
    b"target",
    b".gradle",
    b".tox",
    b".nox",
];
/// How many files are excluded by name; each takes a part of a command line.
const MAX_EXCLUDED: usize = 1000;
/// How many files that git cannot convert are found one after the other.
const MAX_UNCONVERTED: u32 = 8;
/// Maximum length of a name of what was omitted, in characters.
const MAX_NAME: usize = 200;
/// Time limit of a snapshot. With learning after the one before, it must end before the worker gives up.
const LIMIT: Limits = Limits {
    first: Duration::from_secs(120),
    again: Duration::from_secs(5),
};
/// Time limit of learning the project after a snapshot.
const LEARNING: Duration = Duration::from_secs(60);

/// Time limits of snapshots.
#[derive(Debug, Clone, Copy)]
struct Limits {
    first: Duration,
    /// After one that was not finished.
    again: Duration,
}

pub(crate) async fn run(
    mut stream: MuxStream,
    since: Option<String>,
    max_bundle: u64,
    state: &State,
) -> io::Result<()> {
    let mut memory = state.snapshots.lock().await;
    let taken = take_in_time(since, max_bundle, state, &mut memory, LIMIT).await;
    let (taken, lesson) = match taken {
        Ok(taken) => taken,
        Err(err) => {
            reply::<SnapshotDone>(&mut stream, Err(err)).await?;
            return finish(&mut stream).await;
        }
    };
    let bundle_len = taken.bundle.as_ref().map(|bundle| bundle.len() as u64);
    let done = SnapshotDone {
        commit: taken.commit,
        bundle_len,
        left_out: taken.left_out,
    };
    let sent = async {
        reply(&mut stream, Ok(done)).await?;
        stream.write_all(&taken.bundle.unwrap_or_default()).await?;
        finish(&mut stream).await
    };
    let sent = sent.await;
    // The worker does not wait for this, but the next snapshot does.
    if let Some(lesson) = lesson {
        let learning = learn(lesson, max_bundle, state, &mut memory);
        let _ = tokio::time::timeout(LEARNING, learning).await;
    }
    sent
}

/// A snapshot as it is sent.
struct Taken {
    commit: String,
    bundle: Option<Vec<u8>>,
    left_out: Vec<String>,
}

impl Taken {
    fn new(
        commit: &str,
        bundle: Option<Vec<u8>>,
        left_out: impl Iterator<Item = impl AsRef<[u8]>>,
    ) -> Self {
        let name = |path: &[u8]| printable(path).chars().take(MAX_NAME).collect();
        let left_out = left_out.take(MAX_LEFT_OUT);
        Self {
            commit: commit.to_owned(),
            bundle,
            left_out: left_out.map(|path| name(path.as_ref())).collect(),
        }
    }
}

async fn take_in_time(
    since: Option<String>,
    max_bundle: u64,
    state: &State,
    memory: &mut SnapshotMemory,
    limits: Limits,
) -> Result<(Taken, Option<Lesson>)> {
    let limit = if memory.was_too_slow {
        limits.again
    } else {
        limits.first
    };
    let taken = tokio::time::timeout(limit, take(since, max_bundle, state, memory)).await;
    memory.was_too_slow = taken.is_err();
    taken.unwrap_or_else(|_| bail!(too_slow(limit)))
}

/// A snapshot, and what is to be learned after it.
async fn take(
    since: Option<String>,
    max_bundle: u64,
    state: &State,
    memory: &mut SnapshotMemory,
) -> Result<(Taken, Option<Lesson>)> {
    if let Some(taken) = quickly(since.as_ref(), max_bundle, memory).await {
        return Ok((taken, None));
    }
    let taken = with_git(since.clone(), max_bundle, state, memory).await;
    let (taken, lesson) = match taken {
        Err(error) if error.is::<TooLarge>() => {
            let (git, _) = Git::open_at_head(&state.git_place()).await?;
            if !find_installed(&git, memory).await? {
                return Err(error);
            }
            // It has them.
            let _ = std::fs::remove_file(git.folder.join(INDEX));
            with_git(since, max_bundle, state, memory).await?
        }
        taken => taken?,
    };
    Ok((taken, Some(lesson)))
}

/// A snapshot without git, if the guest is certain of what has changed since the last one.
async fn quickly(
    since: Option<&String>,
    max_bundle: u64,
    memory: &mut SnapshotMemory,
) -> Option<Taken> {
    let mut known = memory.known.take()?;
    let settings = memory.settings.as_ref()?;
    let git_state = memory.git_state.as_ref()?;
    if since != Some(&known.last().commit) || !settings.are_unchanged() || !git_state.is_unchanged()
    {
        return None;
    }
    let (known, taken) = match known.is_small() {
        true => {
            let taken = known.advance(max_bundle);
            (known, taken)
        }
        false => {
            let advance = move || {
                let taken = known.advance(max_bundle);
                (known, taken)
            };
            tokio::task::spawn_blocking(advance).await.ok()?
        }
    };
    let taken = taken.ok()?;
    memory.newest = Some(known.last().clone());
    memory.known = Some(known);
    if taken.bundle.is_some() {
        // The guest's copy of the index does not describe this one.
        memory.last = None;
    }
    let left_out = taken.left_out.iter().chain(&memory.installed);
    Some(Taken::new(&taken.commit, taken.bundle, left_out))
}

/// What is learned from after a snapshot of git's.
struct Lesson {
    git: Git,
    repository: Option<Repository>,
    began: (i64, i64),
}

/// Learns the project, so that the next snapshot needs no git. If that fails, the next one needs it.
async fn learn(lesson: Lesson, max_bundle: u64, state: &State, memory: &mut SnapshotMemory) {
    let Lesson {
        git,
        repository,
        began,
    } = lesson;
    let home = home::of(&state.root);
    if !memory
        .settings
        .as_ref()
        .is_some_and(Settings::are_unchanged)
    {
        memory.settings = Settings::read(&git, &home).await.ok();
    }
    let (Some(settings), Some(repository), Some(last)) =
        (&memory.settings, repository, memory.last.clone())
    else {
        return;
    };
    let Ok(rules) = settings.rules(&git.folder, &home) else {
        return;
    };
    let installed = memory.installed.iter();
    let omitted = installed.map(|path| path.strip_suffix(b"/").unwrap_or(path).to_owned());
    let lesson = known::Lesson {
        project: git.project,
        repository,
        rules,
        omitted: omitted.collect(),
        index: INDEX,
        last,
        max_bundle,
        began,
    };
    let learned = tokio::task::spawn_blocking(move || lesson.learn()).await;
    memory.known = learned.ok().and_then(Result::ok);
}

/// A snapshot that git takes.
async fn with_git(
    since: Option<String>,
    max_bundle: u64,
    state: &State,
    memory: &mut SnapshotMemory,
) -> Result<(Taken, Lesson)> {
    let began = known::now();
    let (git, head) = Git::open_at_head(&state.git_place()).await?;
    let lesson = |git: Git, repository| Lesson {
        git,
        repository,
        began,
    };
    let repository = Repository::open(&git, &head).ok();
    // Before it is read, so that what changes meanwhile is seen the next time.
    memory.git_state = Some(Mark::of(&git.folder));
    // Files are worth more than what cannot be saved here.
    let git_state = git_state::save(&git, &head).await.unwrap_or_default();
    // Whatever fails below, it is not known any more what the index describes.
    let known = memory.last.take();
    let index = prepare_index(&git, head.commit.as_deref(), memory).await?;
    let with_ours = git.with_index(&index.path);
    let mut installed = memory.installed.clone();
    let mut changed = changed_files(&with_ours, &installed).await?;
    // To store it takes longer than a snapshot may.
    if is_bulk_installed(&git.project, &changed, max_bundle) && find_installed(&git, memory).await?
    {
        installed.clone_from(&memory.installed);
        changed = changed_files(&with_ours, &installed).await?;
    }
    let mut left_out = unsaved(max_bundle, &git.project, &changed);
    left_out.extend(installed.iter().map(Vec::as_slice));
    let message = message(&head, git_state.as_deref());
    let is_known = |last: &LastSnapshot| index.is_kept && Some(&last.commit) == since.as_ref();
    let known = known.filter(is_known);
    let is_clean = left_out.len() <= MAX_EXCLUDED
        && changed
            .split(|byte| *byte == 0)
            .all(|path| path.is_empty() || left_out.contains(&path));
    if is_clean && let Some(last) = known.as_ref().filter(|last| last.message == message) {
        memory.last.clone_from(&known);
        let taken = Taken::new(&last.commit, None, left_out.iter());
        return Ok((taken, lesson(git, repository)));
    }
    let tree = write_tree(&with_ours, &changed, &mut left_out).await?;
    let last = match (known, since) {
        (Some(known), _) => Some(known),
        (None, Some(since)) => match remembered(&since, repository.as_ref(), memory) {
            Some(last) => Some(last),
            None => recall(&git, &since).await?,
        },
        (None, None) => None,
    };
    let same = last
        .as_ref()
        .filter(|last| last.tree == tree && last.message == message);
    if let Some(same) = same {
        let taken = Taken::new(&same.commit, None, left_out.iter());
        memory.last = last;
        return Ok((taken, lesson(git, repository)));
    }
    let too_large = TooLarge {
        tree: tree.clone(),
        message: message.clone(),
        max: max_bundle,
    };
    if memory.too_large.as_ref() == Some(&too_large) {
        return Err(too_large.into());
    }
    let alone = repository
        .as_ref()
        .and_then(|repository| commit_alone(repository, last.as_ref(), &tree, &message).ok())
        .filter(|(_, bundle)| bundle.len() as u64 <= max_bundle && git_state.is_none());
    let (commit, bundle) = match alone {
        Some(made) => made,
        None => {
            let since = last.map(|last| last.commit);
            let more: Vec<String> = head.commit.iter().chain(&git_state).cloned().collect();
            let made = commit_tree(&git, since, &more, (&tree, &message), max_bundle).await?;
            made.ok_or_else(|| {
                memory.too_large = Some(too_large.clone());
                too_large
            })?
        }
    };
    let taken = Taken::new(&commit, Some(bundle), left_out.iter());
    memory.last = Some(LastSnapshot {
        commit,
        tree,
        message,
    });
    memory.newest.clone_from(&memory.last);
    Ok((taken, lesson(git, repository)))
}

/// Commits a tree, and returns the commit with its bundle; `None` if that is too large.
async fn commit_tree(
    git: &Git,
    since: Option<String>,
    more: &[String],
    (tree, message): (&str, &str),
    max_bundle: u64,
) -> Result<Option<(String, Vec<u8>)>> {
    let mut args = vec!["commit-tree", tree, "-m", message];
    for parent in since.iter().chain(more) {
        args.extend(["-p", parent]);
    }
    let commit = git.run(args).await?;
    git.run(["update-ref", SNAPSHOT_REF, &commit]).await?;
    let bundle = bundle(git, since.as_deref(), max_bundle).await?;
    Ok(bundle.map(|bundle| (commit, bundle)))
}

/// Finds folders of what is installed that are not omitted yet, and omits them from now on. False if there are none.
async fn find_installed(git: &Git, memory: &mut SnapshotMemory) -> Result<bool> {
    let mut list: Vec<String> = [
        "ls-files",
        "-z",
        "--others",
        "--exclude-standard",
        "--directory",
        "--",
    ]
    .map(String::from)
    .into();
    list.extend(INSTALLED.map(|glob| format!(":(top,glob){glob}")));
    let listed = git.bytes(list).await?;
    let folders = listed.split(|byte| *byte == 0);
    let known = memory.installed.len();
    let found = folders
        .filter(|path| path.ends_with(b"/"))
        .map(<[u8]>::to_owned);
    memory.installed.extend(found.take(MAX_EXCLUDED));
    Ok(memory.installed.len() > known)
}

/// Whether what is new in folders of what is installed has more than `max` bytes, or more files than git stores in time.
fn is_bulk_installed(project: &Path, changed: &[u8], max: u64) -> bool {
    const MAX_FILES: usize = 20_000;
    let is_installed = |path: &&[u8]| {
        let mut folders = path.split(|byte| *byte == b'/');
        folders.any(|name| BULK.contains(&name))
    };
    let paths = changed.split(|byte| *byte == 0).filter(is_installed);
    let (mut files, mut bytes) = (0, 0_u64);
    for path in paths {
        files += 1;
        let file = project.join(OsStr::from_bytes(path));
        bytes += std::fs::symlink_metadata(file).map_or(0, |it| it.len());
        if files > MAX_FILES || bytes > max {
            return true;
        }
    }
    false
}

/// The snapshot that this guest took last, if it is still in the repository.
fn remembered(
    commit: &str,
    repository: Option<&Repository>,
    memory: &SnapshotMemory,
) -> Option<LastSnapshot> {
    let newest = memory.newest.as_ref().filter(|it| it.commit == commit)?;
    repository?.has_snapshot(commit).then(|| newest.clone())
}

/// The guest's own index.
struct Index {
    path: PathBuf,
    /// It is the one of the snapshot before, and not a new copy.
    is_kept: bool,
}

async fn prepare_index(
    git: &Git,
    head: Option<&str>,
    memory: &mut SnapshotMemory,
) -> Result<Index> {
    let ours = git.folder.join(INDEX);
    // Nobody else uses this index and this ref, so their locks are of a git that was killed.
    for ours in [INDEX, SNAPSHOT_REF] {
        let _ = std::fs::remove_file(git.folder.join(format!("{ours}.lock")));
    }
    let theirs = git.folder.join("index");
    let theirs = ordinary_file(&theirs);
    let seen = theirs
        .as_ref()
        .and_then(|(_, seen)| Some((seen.modified().ok()?, seen.len())));
    // A fresh copy includes ignored files that the agent has staged. If the agent's index has not changed,
    // ours is better: it has the hashes of what is not staged.
    let is_kept = memory.index == seen && ours.exists();
    if !is_kept {
        let _ = std::fs::remove_file(&ours);
        if let Some((mut theirs, seen)) = theirs {
            let mut ours = std::fs::File::create(&ours)?;
            io::copy(&mut theirs, &mut ours).context("copying the index")?;
            // Git takes a file that is not older than the index for one that may have changed since.
            ours.set_modified(seen.modified()?)?;
        } else if let Some(head) = head {
            git.with_index(&ours).run(["read-tree", head]).await?;
        }
        memory.index = seen;
    }
    Ok(Index {
        path: ours,
        is_kept,
    })
}

/// A file that is open, unless it is a pipe or a device, whose end may never come.
fn ordinary_file(path: &Path) -> Option<(std::fs::File, std::fs::Metadata)> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path).ok()?;
    let metadata = file.metadata().ok()?;
    metadata.is_file().then_some((file, metadata))
}

/// The paths of files that differ from the index, each followed by NUL, without those that are new in the folders `installed`.
async fn changed_files(with_ours: &Git, installed: &BTreeSet<Vec<u8>>) -> Result<Vec<u8>> {
    let mut args: Vec<OsString> = [
        "ls-files",
        "-z",
        "--others",
        "--modified",
        "--deleted",
        "--exclude-standard",
    ]
    .map(OsString::from)
    .into();
    args.extend(installed.iter().map(|folder| {
        let mut option = OsString::from("--exclude=/");
        option.push(OsString::from_vec(literal(folder)));
        option
    }));
    with_ours.bytes(args).await
}

/// All files of the project as a tree, without those of `left_out`, to which it adds those that git cannot convert.
async fn write_tree<'c>(
    with_ours: &Git,
    changed: &'c [u8],
    left_out: &mut Vec<&'c [u8]>,
) -> Result<String> {
    let mut complaint = String::new();
    let mut unconverted = 0;
    while !changed.is_empty() {
        let mut add: Vec<OsString> = ["add", "--all", "--ignore-errors", "--", "."]
            .map(OsString::from)
            .into();
        let exclude = |path: &&[u8]| {
            let mut pattern = OsString::from(":(top,exclude,literal)");
            pattern.push(OsStr::from_bytes(path));
            pattern
        };
        add.extend(left_out.iter().take(MAX_EXCLUDED).map(exclude));
        let code;
        (code, _, complaint) = with_ours.attempt(add).await?;
        match (code, named_in(&complaint, changed, left_out)) {
            // If a file cannot be read or vanishes meanwhile, git fails, but only after it has added the others.
            (Some(0 | 1), _) => break,
            // It has added none: a file is not of the encoding, or its filter fails, that its attributes name.
            (_, Some(path)) if unconverted < MAX_UNCONVERTED => {
                unconverted += 1;
                left_out.push(path);
            }
            (_, Some(_) | None) => bail!("git add: {complaint}"),
        }
    }
    let tree = match with_ours.run(["write-tree"]).await {
        Ok(tree) => Ok(tree),
        // What is in conflict and cannot be added, as a submodule that is not checked out, is of one side.
        Err(error) => match git_state::settle(with_ours).await? {
            true => with_ours.run(["write-tree"]).await,
            false => Err(error),
        },
    };
    tree.with_context(|| complaint)
}

/// The changed path that git names as what it cannot convert, unless it is omitted already.
fn named_in<'c>(complaint: &str, changed: &'c [u8], left_out: &[&[u8]]) -> Option<&'c [u8]> {
    let is_named = |path: &&[u8]| {
        let path = String::from_utf8_lossy(path);
        let is_in = |words: String| complaint.contains(&words);
        !path.is_empty()
            && (is_in(format!("'{path}'")) || is_in(format!("fatal: {path}: clean filter")))
    };
    let mut paths = changed.split(|byte| *byte == 0).filter(is_named);
    paths.find(|path| !left_out.contains(path))
}

/// A snapshot that this guest does not remember, if the repository has it.
async fn recall(git: &Git, commit: &str) -> Result<Option<LastSnapshot>> {
    let args = [
        "log",
        "-1",
        "--no-show-signature",
        "--format=%H%n%T%n%B",
        "--end-of-options",
        commit,
    ];
    let (code, shown, _) = git.attempt(args).await?;
    let mut parts = shown.splitn(3, '\n');
    let (Some(0), Some(commit), Some(tree)) = (code, parts.next(), parts.next()) else {
        return Ok(None);
    };
    Ok(Some(LastSnapshot {
        commit: commit.into(),
        tree: tree.into(),
        message: parts.next().unwrap_or_default().into(),
    }))
}

/// What of the changed paths (each followed by NUL) is not saved: files whose size exceeds `limit`, holes included, or that
/// cannot be read, and repositories, which git lists with a slash at the end.
fn unsaved<'a>(limit: u64, project: &Path, changed: &'a [u8]) -> Vec<&'a [u8]> {
    let is_unsaved = |path: &&[u8]| {
        let file = project.join(OsStr::from_bytes(path));
        path.ends_with(b"/")
            || std::fs::symlink_metadata(&file).is_ok_and(|metadata| {
                metadata.is_file() && (metadata.len() > limit || is_unreadable(&file, &metadata))
            })
    };
    changed
        .split(|byte| *byte == 0)
        .filter(is_unsaved)
        .collect()
}

/// A path with `\xNN` for each byte that is not of UTF-8, so that different paths have different names.
fn printable(path: &[u8]) -> String {
    let mut name = String::new();
    for chunk in path.utf8_chunks() {
        name.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(name, "\\x{byte:02x}");
        }
    }
    name
}

/// Git would store what it knew of such a file before.
fn is_unreadable(file: &Path, metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o400 == 0 && std::fs::File::open(file).is_err()
}

/// The bundle of the snapshot; `None` if it has more than `max` bytes.
async fn bundle(git: &Git, since: Option<&str>, max: u64) -> Result<Option<Vec<u8>>> {
    let file = TemporaryFile(git.folder.join("agentmine-bundle"));
    let path = file.0.to_string_lossy().into_owned();
    let mut args = vec![
        "bundle",
        "create",
        "--quiet",
        &path,
        SNAPSHOT_REF,
        "--not",
        "--remotes",
    ];
    args.extend(since);
    git.run(args).await?;
    let fits = std::fs::metadata(&file.0)?.len() <= max;
    Ok(fits.then(|| std::fs::read(&file.0)).transpose()?)
}

/// Without the newline at the end that git adds.
fn message(head: &Head, git_state: Option<&str>) -> String {
    let commit = head.commit.as_deref().unwrap_or("none");
    let mut message = format!(
        "agentmine snapshot\n\nhead {commit}\nbranch {}",
        head.branch
    );
    if let Some(git_state) = git_state {
        message.push_str(&format!("\nstate {git_state}"));
    }
    message.trim_end().into()
}

#[derive(Debug)]
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
