//! The checks of a push's content, before anything of it goes upstream.
//!
//! The pack is self-contained: the list of refs says `no-thin`, so git sends whole objects, and a pack
//! that depends on objects elsewhere is refused. The commits in it then show whether the branch's old
//! commit is among the ancestors of the new one. The history is fetched only when the path there leads
//! through commits that are not in the pack (for example, a merge of a branch that upstream already
//! has).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::process::Stdio;
use std::sync::Arc;

use agentmine_runtime::config::PushPolicy;

use super::content::{self, Held};
use super::fresh::{TIME_LIMIT, unfetched};
use super::fsck;
use super::spool::Spool;
use crate::facts::BareRepo;
use crate::git_process;
use crate::upstream::Remote;
use crate::wire::advertisement::Advertisement;
use crate::wire::object_id::{is_id, is_zero};
use crate::wire::push_request::{PushHead, RefUpdate};

/// Size limit of a list of objects or commits, in bytes; a push with more of them is refused.
const MAX_LIST: usize = 64 * 1024 * 1024;
/// Why a push that omits what the branch holds is refused.
const REWIND: &str = "not a fast-forward: commits on the branch would be lost";
/// Why a push is refused that may replace what the branch holds.
const NOT_ONTO: &str =
    "not a rebase: it does not contain the commit that the branch is to be rebased onto";

/// Why a push is refused that would put nothing in the place of what the branch holds.
const NOTHING_ON_TOP: &str = "not a rebase: it has no commit that upstream does not have, so all commits of the branch \
    would be lost. If upstream has their changes already, do not push, and say so";

/// What a push must contain besides what the branch holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds<'a> {
    /// If it puts something in its place, where that is allowed.
    pub(crate) onto: Option<&'a str>,
    /// If it creates the branch.
    pub(crate) start: Option<&'a str>,
}

/// Proof that a push has passed the checks.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) moves: Moves,
    /// Authors and committers of its new commits.
    pub(crate) identities: BTreeSet<String>,
}

/// What a push does to the branch.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Moves {
    /// It only adds to what the branch holds.
    Adds,
    /// It replaces what the branch holds, which is allowed.
    Replaces,
}

/// Checks the pack of a push, and that it only adds to what the branch holds; or, where `bounds` have a commit, that what it
/// puts in its place, or begins the branch with, contains that commit.
///
/// The error is the reason, for the user of git.
pub(crate) async fn check(
    remote: Arc<Remote>,
    spool: &Spool,
    head: &PushHead,
    command: &RefUpdate,
    bounds: Bounds<'_>,
    refs: &Advertisement,
    policy: &PushPolicy,
) -> Result<Checked, Held> {
    let broken = |error: std::io::Error| {
        tracing::warn!(%error, "a push could not be checked");
        Held::from("the push could not be checked")
    };
    let repo = BareRepo::beside(remote, head.object_format()).map_err(broken)?;
    let header = spool.at(head.pack_offset, 12).map_err(broken)?;
    let objects = match header.as_slice() {
        [b'P', b'A', b'C', b'K', 0, 0, 0, 2, count @ ..] if count.len() == 4 => count
            .iter()
            .fold(0u32, |sum, byte| (sum << 8) | u32::from(*byte)),
        _ => return Err("the push contains no pack".into()),
    };
    if objects > 0 {
        unpack(&repo, spool, head.pack_offset).await?;
    }
    let checking = async {
        match objects {
            0 => Ok(()),
            _ => fsck::check(&repo, TIME_LIMIT, MAX_LIST).await,
        }
    };
    let (sound, parents) = tokio::join!(checking, commits(&repo));
    sound?;
    let parents = parents.map_err(|error| format!("the pack could not be checked: {error}"))?;
    let mut moves = Moves::Adds;
    if is_zero(&command.old) {
        if let Some(start) = bounds.start
            && !contains(&repo, &parents, &command.new, start).await?
        {
            return Err(format!(
                "the branch does not contain the commit {start}, which the task started from: rebase onto it, or merge it, and push again"
            )
            .into());
        }
    } else if !contains(&repo, &parents, &command.new, &command.old).await? {
        let Some(onto) = bounds.onto else {
            return Err(REWIND.into());
        };
        if !contains(&repo, &parents, &command.new, onto).await? {
            return Err(NOT_ONTO.into());
        }
        moves = Moves::Replaces;
    }
    // Also of an empty pack: its commit may be one that no check has seen.
    let identities = content::check(&repo, &parents, &command.new, refs, policy).await?;
    if identities.is_none() && matches!(moves, Moves::Replaces) {
        // What was pushed from here may be taken back in part.
        let is_own = bounds.onto != Some(command.new.as_str())
            && contains(&repo, &parents, &command.old, &command.new).await?;
        if !is_own {
            return Err(NOTHING_ON_TOP.into());
        }
    }
    Ok(Checked {
        moves,
        identities: identities.unwrap_or_default(),
    })
}

async fn unpack(repo: &BareRepo, spool: &Spool, pack_offset: u64) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("the pack could not be checked: {error}");
    let mut git = repo.git();
    git.args(["index-pack", "--stdin", "--threads=1"]);
    git.arg(format!("--max-input-size={}", spool.length));
    git.stdin(Stdio::from(spool.from(pack_offset).map_err(failed)?));
    let output = git_process::run(git, TIME_LIMIT, MAX_LIST)
        .await
        .map_err(failed)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(fsck::refusal(&output)),
    }
}

/// Whether `old` is an ancestor of `new`, or the same commit.
async fn contains(
    repo: &BareRepo,
    parents: &HashMap<String, Vec<String>>,
    new: &str,
    old: &str,
) -> Result<bool, String> {
    match walk(parents, new, old) {
        Walk::Found => Ok(true),
        Walk::Ended => Ok(false),
        Walk::LeftThePack => {
            repo.fetch_history().await.map_err(|e| unfetched(&e))?;
            if let Ok(found) = repo.is_ancestor(old, new).await {
                return Ok(found);
            }
            // Some commit may be one that only a tag has.
            repo.fetch_tags().await.map_err(|e| unfetched(&e))?;
            let is_ancestor = repo.is_ancestor(old, new).await;
            is_ancestor
                .map_err(|_| "the push, or the commit that it must contain, depends on commits that upstream does not have".to_owned())
        }
    }
}

/// The parents of each commit in the pack.
async fn commits(repo: &BareRepo) -> std::io::Result<HashMap<String, Vec<String>>> {
    let mut git = repo.git();
    git.args(["cat-file", "--batch-all-objects", "--unordered"]);
    git.arg("--batch-check=%(objecttype) %(objectname)");
    let output = git_process::run(git, TIME_LIMIT, MAX_LIST).await?;
    if output.cut || !output.status.success() {
        return Err(std::io::Error::other("it has too many objects"));
    }
    let listing = String::from_utf8_lossy(&output.stdout);
    let ids: String = listing
        .lines()
        .filter_map(|line| line.strip_prefix("commit "))
        .flat_map(|id| [id, "\n"])
        .collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let list = tempfile::tempfile()?;
    std::os::unix::fs::FileExt::write_all_at(&list, ids.as_bytes(), 0)?;
    let mut git = repo.git();
    git.args(["log", "--no-walk=unsorted", "--stdin", "--format=%H %P"]);
    git.stdin(Stdio::from(list));
    let output = git_process::run(git, TIME_LIMIT, MAX_LIST).await?;
    if output.cut || !output.status.success() {
        return Err(std::io::Error::other("its commits cannot be read"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut parents = HashMap::new();
    for line in text.lines() {
        let mut ids = line.split(' ').filter(|id| is_id(id)).map(String::from);
        if let Some(commit) = ids.next() {
            parents.insert(commit, ids.collect());
        }
    }
    Ok(parents)
}

#[derive(Debug, PartialEq, Eq)]
enum Walk {
    /// `old` is an ancestor.
    Found,
    /// It is not, on any path.
    Ended,
    /// Some path leads out of the pack.
    LeftThePack,
}

fn walk(parents: &HashMap<String, Vec<String>>, new: &str, old: &str) -> Walk {
    let mut seen = HashSet::new();
    let mut next = vec![new];
    let mut left = false;
    while let Some(commit) = next.pop() {
        if commit == old {
            return Walk::Found;
        }
        if !seen.insert(commit) {
            continue;
        }
        match parents.get(commit) {
            Some(parents) => next.extend(parents.iter().map(String::as_str)),
            None => left = true,
        }
    }
    if left { Walk::LeftThePack } else { Walk::Ended }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_finds_the_old_commit_or_where_it_stopped() {
        let graph: HashMap<String, Vec<String>> = [
            ("d", vec!["c", "x"]),
            ("c", vec!["b"]),
            ("b", vec!["a"]),
            ("root", vec![]),
        ]
        .into_iter()
        .map(|(id, parents)| (id.into(), parents.into_iter().map(String::from).collect()))
        .collect();
        assert_eq!(walk(&graph, "d", "a"), Walk::Found);
        assert_eq!(walk(&graph, "d", "d"), Walk::Found);
        assert_eq!(walk(&graph, "c", "zzz"), Walk::LeftThePack);
        assert_eq!(walk(&graph, "root", "a"), Walk::Ended);
        assert_eq!(walk(&HashMap::new(), "n", "o"), Walk::LeftThePack);
    }
}
