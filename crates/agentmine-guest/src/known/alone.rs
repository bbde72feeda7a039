//! A snapshot of which only the commit is new: all of its files are in HEAD's commit, which the remote has, or in the last
//! snapshot. So are the first one of a session, and the one after a commit that was pushed.

use super::objects::{self, Oid};
use super::repository::Repository;
use super::unsure::{Unsure, only_git};
use crate::git::SNAPSHOT_REF;
use crate::last_snapshot::LastSnapshot;

/// Stores the commit of a tree, points the hidden ref at it, and returns it with its bundle.
pub(crate) fn commit_alone(
    repository: &Repository,
    since: Option<&LastSnapshot>,
    tree: &str,
    message: &str,
) -> Result<(String, Vec<u8>), Unsure> {
    let head = &repository.head;
    let is_known =
        head.tree.as_deref() == Some(tree) || since.is_some_and(|since| since.tree == tree);
    repository.ensure_same_head()?;
    if !is_known || !repository.is_head_on_remote()? {
        return only_git("more than a commit");
    }
    let since = since.map(|since| since.commit.as_str());
    let parents: Vec<&str> = since.into_iter().chain(head.commit.as_deref()).collect();
    let known: Option<Vec<Oid>> = parents.iter().map(|it| Oid::of_hex(it)).collect();
    let (Some(tree), Some(known)) = (Oid::of_hex(tree), known) else {
        return only_git("names that are not SHA-1");
    };
    let commit = objects::commit(tree, parents.into_iter(), message)?;
    let oid = commit.oid;
    objects::store(&repository.path.join("objects"), &commit)?;
    repository.point_at(&oid.to_string())?;
    let bundle = objects::bundle(SNAPSHOT_REF, &known, oid, &[commit])?;
    Ok((oid.to_string(), bundle))
}
