//! Which of the paths that the operator protects a push changes.
//!
//! A path counts if it differs from every commit that the push is based on. After a merge there are several of them, and one
//! that is as in some, and not in others, counts unless those others have not changed it since they parted from one that has
//! it: then it is what the merge brings. So a push cannot undo what a branch changed by a merge of a commit from before that
//! change; to see that costs a fetch of the history. Where two of the commits have no history in common, both count as having changed everything.
//! A push based on more commits than are compared is refused, since whoever pushes could choose which ones are compared.
//!
//! Each commit below the pushed one is checked too, even if a later one restores the path: once it is upstream, another
//! push may end or begin there. That costs one comparison for each parent of each new commit, and a fetch for each merge that
//! brings a protected change.

use std::collections::{BTreeSet, HashMap};

use agentmine_runtime::config::PushPolicy;

use super::fresh::Fresh;
use super::pattern;
use crate::facts::{BareRepo, FactsError};
use crate::printable::printable;

/// The empty folder in either object format, which git knows without an object.
const EMPTY_SHA1: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
const EMPTY_SHA256: &str = "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321";

/// Why a push is refused that is based on more commits than it can be compared with.
const TOO_MANY_BASES: &str = "the push merges too many commits of the repository at once to check for protected paths; \
                              push it in parts";

/// Refuses a push of `new` that changes one. `parents` are those of the commits in the pack. The error is the reason, for
/// the user of git.
pub(super) async fn check(
    repo: &BareRepo,
    parents: &HashMap<String, Vec<String>>,
    fresh: &Fresh,
    new: &str,
    policy: &PushPolicy,
) -> Result<(), String> {
    if policy.refuse_paths.is_empty() {
        return Ok(());
    }
    if fresh.has_more_bases() {
        return Err(TOO_MANY_BASES.to_owned());
    }
    let unlisted = |error: FactsError| format!("the changed paths could not be listed: {error}");
    let refused = |path: &str| {
        let found = printable(protects(policy, path).unwrap_or_default());
        let path = printable(path);
        format!("{path} may not be changed here: the operator refuses pushes that change {found}")
    };
    let changed = changed(repo, fresh, new, policy).await;
    if let Some(path) = changed.map_err(unlisted)? {
        return Err(refused(&path));
    }
    for commit in fresh.commits.iter().filter(|commit| *commit != new) {
        let changed = changed_by(repo, parents, fresh, commit, policy).await;
        if let Some(path) = changed.map_err(unlisted)? {
            let commit = commit.get(..12).unwrap_or(commit);
            let refused = refused(&path);
            return Err(format!(
                "{refused}. Take the change out of commit {commit} itself; restoring the path in a later commit is not enough"
            ));
        }
    }
    Ok(())
}

/// The operator's pattern that protects a path.
fn protects<'p>(policy: &'p PushPolicy, path: &str) -> Option<&'p str> {
    let mut patterns = policy.refuse_paths.iter().map(String::as_str);
    patterns.find(|it| pattern::matches(it, path))
}

/// The first protected path that the push changes.
async fn changed(
    repo: &BareRepo,
    fresh: &Fresh,
    new: &str,
    policy: &PushPolicy,
) -> Result<Option<String>, FactsError> {
    let bases = fresh.bases();
    if bases.is_empty() {
        let (empty, _) = empty_and_format(new);
        let paths = differing(repo, empty, new, policy).await?;
        return Ok(paths.into_iter().next());
    }
    repo.fetch_trees(&bases).await?;
    let mut sides = Vec::new();
    for base in &bases {
        sides.push(differing(repo, base, new, policy).await?);
    }
    let all: BTreeSet<&String> = sides.iter().flatten().collect();
    let in_each = |path: &String| sides.iter().all(|side| side.contains(path));
    if let Some(path) = all.iter().find(|path| in_each(path)) {
        return Ok(Some((*path).clone()));
    }
    if all.is_empty() {
        return Ok(None);
    }
    let since = changed_since_parting(repo, &bases, policy).await?;
    let is_brought = |path: &String| {
        let (unlike, like): (Vec<usize>, Vec<usize>) =
            (0..bases.len()).partition(|base| sides[*base].contains(path));
        like.iter().any(|from| {
            let mut others = unlike.iter().map(|other| since.get(&(*from, *other)));
            others.all(|changes| changes.is_some_and(|changes| !changes.contains(path)))
        })
    };
    Ok(all.into_iter().find(|path| !is_brought(path)).cloned())
}

/// The first protected path that a commit below the pushed one changes.
async fn changed_by(
    repo: &BareRepo,
    parents: &HashMap<String, Vec<String>>,
    fresh: &Fresh,
    commit: &str,
    policy: &PushPolicy,
) -> Result<Option<String>, FactsError> {
    let (empty, _) = empty_and_format(commit);
    let before: Vec<&str> = match parents.get(commit).map(Vec::as_slice) {
        None | Some([]) => vec![empty],
        Some(parents) => parents.iter().map(String::as_str).collect(),
    };
    for parent in before {
        if !differing(repo, parent, commit, policy).await?.is_empty() {
            // A merge may bring it.
            return changed(repo, &fresh.up_to(parents, commit), commit, policy).await;
        }
    }
    Ok(None)
}

/// The protected paths that differ between two commits.
async fn differing(
    repo: &BareRepo,
    base: &str,
    new: &str,
    policy: &PushPolicy,
) -> Result<BTreeSet<String>, FactsError> {
    let listed = repo.changed(base, new, &[]).await?;
    if listed.cut {
        return Err(FactsError::TooLarge("there are too many of them".into()));
    }
    let paths = listed.files.into_iter().map(|file| file.path);
    Ok(paths
        .filter(|path| protects(policy, path).is_some())
        .collect())
}

/// What the second of two commits, by their positions, changed since it parted from the first. Nothing where they have no
/// history in common.
async fn changed_since_parting(
    repo: &BareRepo,
    commits: &[&str],
    policy: &PushPolicy,
) -> Result<HashMap<(usize, usize), BTreeSet<String>>, FactsError> {
    let (_, format) = empty_and_format(commits.first().copied().unwrap_or_default());
    // The folders that were fetched into `repo` cut its histories off.
    let repo = repo.another(format)?;
    repo.fetch_history().await?;
    let parted = match parted(&repo, commits).await {
        // Some commit may be one that only a tag has.
        Err(FactsError::NotFound(_)) => {
            repo.fetch_tags().await?;
            parted(&repo, commits).await?
        }
        parted => parted?,
    };
    let together = parted.values().map(String::as_str);
    let needed: BTreeSet<&str> = together.chain(commits.iter().copied()).collect();
    let needed: Vec<&str> = needed.into_iter().collect();
    repo.fetch_trees(&needed).await?;
    let mut changes = HashMap::new();
    for ((one, other), base) in parted {
        for (first, second) in [(one, other), (other, one)] {
            let paths = differing(&repo, &base, commits[second], policy).await?;
            changes.insert((first, second), paths);
        }
    }
    Ok(changes)
}

/// The newest common commit of each two of these commits, by their positions, if they have one.
async fn parted(
    repo: &BareRepo,
    commits: &[&str],
) -> Result<HashMap<(usize, usize), String>, FactsError> {
    let mut parted = HashMap::new();
    for (one, commit) in commits.iter().enumerate() {
        for (other, with) in commits.iter().enumerate().skip(one + 1) {
            if let Some(base) = repo.merge_base(commit, with).await? {
                parted.insert((one, other), base);
            }
        }
    }
    Ok(parted)
}

/// The empty folder and the name of the object format that a commit's id has.
fn empty_and_format(commit: &str) -> (&'static str, &'static str) {
    match commit.len() {
        64 => (EMPTY_SHA256, "sha256"),
        _ => (EMPTY_SHA1, "sha1"),
    }
}
