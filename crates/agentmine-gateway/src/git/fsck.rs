//! Git's checks of the objects in a push.
//!
//! A pack may hold much that its author did not write: when a branch has moved upstream, git sends the
//! history before it again. What old programs have written into real histories is therefore accepted, and
//! so are references to files that did not change and are not in the pack. What attacks those who clone
//! the branch is refused. The message ids are those of `git help fsck`.

use std::time::Duration;

use crate::accepted_faults::ACCEPTED;
use crate::facts::BareRepo;
use crate::git_process::{self, Output};
use crate::printable::printable;

/// Reported for a file that did not change and is therefore not in the pack.
const ABSENT: [&str; 2] = ["gitattributesMissing", "gitmodulesMissing"];

/// The bit of the exit code of `git fsck` for objects that are referred to and absent.
const ABSENT_OBJECTS: i32 = 2;

/// Checks every object in `repo`. The error is the reason, for the user of git.
pub(super) async fn check(repo: &BareRepo, limit: Duration, cap: usize) -> Result<(), String> {
    let mut accepted: Vec<&str> = ACCEPTED.into_iter().chain(ABSENT).collect();
    loop {
        let output = fsck(repo, &accepted, limit, cap)
            .await
            .map_err(|error| format!("the objects could not be checked: {error}"))?;
        if output
            .status
            .code()
            .is_some_and(|code| code & !ABSENT_OBJECTS == 0)
        {
            return Ok(());
        }
        let Some(unknown) = unknown_id(&output.stderr, &accepted) else {
            return Err(refusal(&output));
        };
        accepted.swap_remove(unknown);
    }
}

async fn fsck(
    repo: &BareRepo,
    accepted: &[&str],
    limit: Duration,
    cap: usize,
) -> std::io::Result<Output> {
    let mut git = repo.git();
    // A repository that was just made has neither, and git would start a process to look at each.
    git.args([
        "-c",
        "core.commitGraph=false",
        "-c",
        "core.multiPackIndex=false",
    ]);
    for id in accepted {
        git.arg("-c").arg(format!("fsck.{id}=ignore"));
    }
    git.args([
        "fsck",
        "--strict",
        "--no-dangling",
        "--no-reflogs",
        "--no-progress",
    ]);
    git_process::run(git, limit, cap).await
}

/// Which of `accepted` this version of git does not know; it refuses to start with it.
fn unknown_id(stderr: &str, accepted: &[&str]) -> Option<usize> {
    let (_, id) = stderr.split_once("Unhandled message id: ")?;
    let id = id.lines().next()?.trim();
    accepted
        .iter()
        .position(|known| known.eq_ignore_ascii_case(id))
}

/// The reason of a refusal, from what git printed.
pub(super) fn refusal(output: &Output) -> String {
    let reason = output
        .stderr
        .lines()
        .find(|line| line.starts_with("error") || line.starts_with("fatal:"));
    format!(
        "the pack does not pass git's checks: {}",
        printable(reason.unwrap_or("no reason given"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_this_git_does_not_know_is_found() {
        let accepted = ["badDate", "gitattributesMissing"];
        let said = "fatal: Unhandled message id: gitattributesmissing\n";
        assert_eq!(unknown_id(said, &accepted), Some(1));
        assert_eq!(
            unknown_id("fatal: Unhandled message id: other\n", &accepted),
            None
        );
        assert_eq!(
            unknown_id("error in tree 1: hasDotgit: x\n", &accepted),
            None
        );
    }
}
