//! Fresh clones as templates of later workspaces.
//!
//! What is guaranteed:
//! - **The host decides each time.** A template is used only if the host lists, for the session's own token and at this moment, the
//!   same branch, tags and default branch as before and after the clone that it was saved from. Whatever else decides a clone
//!   is the same, too.
//! - **Nothing of a task is in it.** It is saved right after the clone: no command of the project, no tool and no
//!   file of the task came before.
//! - **It may fail.** Then the repository is cloned as if there were no templates.
//! - **They are bounded**, by the same limit as the mirrors, and end with the worker.
//!
//! Only for shallow clones of the branch that new work starts from: the agent itself changes other branches.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentmine_domain::RepositoryKey;
use agentmine_gateway::CloneRefs;
use agentmine_sandbox::WorkspaceTemplate;

use super::conversion::Converted;
use super::workspace::Workspace;
use crate::error::WorkspaceError;

/// Time limit for a command that changes or empties a copy, and maximum size in bytes of its output.
const TIME_LIMIT: Duration = Duration::from_secs(300);
const MAX_OUTPUT: usize = 4096;

/// What decides the content of a clone besides the refs of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CloneKind {
    pub(crate) repository: RepositoryKey,
    /// The sandbox's image, whose git makes the clone; `None` for the configured one.
    pub(crate) image: Option<String>,
    pub(crate) branch: String,
    pub(crate) depth: u32,
    /// Of the clone's git.
    pub(crate) settings: Vec<String>,
}

impl CloneKind {
    /// What the host would send for it now.
    pub(crate) async fn refs(&self, workspace: &Workspace) -> Option<CloneRefs> {
        workspace.gateway.clone_refs(&self.branch).await
    }
}

#[derive(Debug)]
struct Saved {
    kind: CloneKind,
    refs: CloneRefs,
    /// Where the clone came from, as its sandbox saw it.
    remote_url: String,
    template: WorkspaceTemplate,
    converted: Converted,
}

/// The templates of one worker.
#[derive(Debug, Default)]
pub struct WorkspaceTemplates {
    /// The one that was used last is at the end.
    saved: Mutex<Vec<Saved>>,
}

impl WorkspaceTemplates {
    /// The template of this repository that was used last, for a task of which nothing else is known yet.
    pub(crate) fn likely(&self, repository: &RepositoryKey) -> Option<WorkspaceTemplate> {
        let saved = self.lock();
        let is_it = |it: &&Saved| {
            it.kind.repository == *repository
                && it.kind.image.is_none()
                && !it.template.is_unusable()
        };
        let found = saved.iter().rev().find(is_it);
        found.map(|it| it.template.clone())
    }

    /// The template for such a clone, which may be out of date.
    pub(crate) fn of(&self, kind: &CloneKind) -> Option<WorkspaceTemplate> {
        let saved = self.lock();
        let is_it = |it: &&Saved| it.kind == *kind && !it.template.is_unusable();
        let found = saved.iter().find(is_it);
        found.map(|it| it.template.clone())
    }

    /// Makes the copy of a template the clone of this session. Returns which of its files count as changed, or `None`
    /// if the workspace has no clone now.
    pub(super) async fn take_over(
        &self,
        workspace: &Workspace,
        wanted: Option<&(CloneKind, CloneRefs)>,
    ) -> Result<Option<Converted>, WorkspaceError> {
        let Some(template) = workspace.sandbox.template() else {
            return Ok(None);
        };
        if let Some((kind, refs)) = wanted
            && let Some((url, converted)) = self.use_again(&template, kind, refs)
        {
            if renew(workspace, &url).await? {
                return Ok(Some(converted));
            }
            // Something is missing in the image, and the next one could not be used either.
            self.forget(&template);
        }
        if !empty(workspace).await? {
            // Git names what is left.
            self.forget(&template);
        }
        Ok(None)
    }

    fn forget(&self, template: &WorkspaceTemplate) {
        self.lock().retain(|it| !it.template.is(template));
    }

    /// The URL in the copy and the files that count as changed, if it is what a clone would be.
    fn use_again(
        &self,
        template: &WorkspaceTemplate,
        kind: &CloneKind,
        refs: &CloneRefs,
    ) -> Option<(String, Converted)> {
        let mut saved = self.lock();
        let fits = |it: &Saved| it.template.is(template) && it.kind == *kind && it.refs == *refs;
        let at = saved.iter().position(fits)?;
        let used = saved.remove(at);
        let found = (used.remote_url.clone(), used.converted.clone());
        saved.push(used);
        Some(found)
    }

    /// Saves a clone that was just made, unless there is such a template or the host has changed since `refs` were listed.
    pub(super) async fn save(
        &self,
        workspace: &Workspace,
        (kind, refs): (CloneKind, CloneRefs),
        converted: &Converted,
        max_bytes: u64,
    ) -> Result<(), WorkspaceError> {
        let is_saved =
            |it: &Saved| it.kind == kind && it.refs == refs && !it.template.is_unusable();
        if self.lock().iter().any(is_saved) || !is_still(&refs, workspace, &kind).await? {
            return Ok(());
        }
        let template = workspace.sandbox.save_workspace(max_bytes).await;
        if let Some(template) = template.map_err(WorkspaceError::Command)? {
            let new = Saved {
                kind,
                refs,
                remote_url: workspace.remote_url(),
                template,
                converted: converted.clone(),
            };
            self.keep(new, max_bytes);
        }
        Ok(())
    }

    /// Replaces an older one of its kind. If there is no room for all, those that were not used for the longest time are dropped.
    fn keep(&self, new: Saved, max_bytes: u64) {
        let mut saved = self.lock();
        saved.retain(|it| it.kind != new.kind);
        saved.push(new);
        let sizes = saved.iter().map(|it| it.template.bytes());
        let surplus = surplus(sizes, max_bytes);
        saved.drain(..surplus);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Saved>> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many of the first ones have to go, so that the sizes of the others fit into `most`.
fn surplus(sizes: impl DoubleEndedIterator<Item = u64> + ExactSizeIterator, most: u64) -> usize {
    let all = sizes.len();
    let mut room = most;
    let fitting = sizes.rev().map_while(|size| {
        room = room.checked_sub(size)?;
        Some(())
    });
    all - fitting.count()
}

/// Whether the clone is what was listed before it, and the host still lists that.
async fn is_still(
    refs: &CloneRefs,
    workspace: &Workspace,
    kind: &CloneKind,
) -> Result<bool, WorkspaceError> {
    let head = workspace.git_ok(&["rev-parse", "HEAD"]).await?;
    Ok(head == refs.tip() && kind.refs(workspace).await.as_ref() == Some(refs))
}

/// Replaces the URL of the session that saved the clone, which contains a secret of that session, wherever git wrote it. The index
/// gets the current time: git reads each file that was written in the same second as the index, and here none of them is in memory.
async fn renew(workspace: &Workspace, old: &str) -> Result<bool, WorkspaceError> {
    const SCRIPT: &str = r#"set -e
touch .git/index
set -- .git/config
[ ! -d .git/logs ] || set -- "$@" .git/logs
find "$@" -type f -exec sed -i "$0" {} +"#;
    let replace = format!("s|{old}|{}|g", workspace.remote_url());
    let argv = ["/bin/sh", "-c", SCRIPT, &replace].map(str::to_owned);
    let done = workspace.program(argv.into(), TIME_LIMIT).await?;
    Ok(done.exit_code == 0)
}

/// Removes a copy that is not what a clone would be. Returns whether all of it could be removed.
async fn empty(workspace: &Workspace) -> Result<bool, WorkspaceError> {
    let line = "cd .. && rm -rf project && mkdir project";
    let done = workspace.shell(line, TIME_LIMIT, MAX_OUTPUT).await?;
    Ok(done.exit_code == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_that_fit_together_are_kept() {
        let surplus = |sizes: &[u64]| surplus(sizes.iter().copied(), 10);
        assert_eq!(surplus(&[4, 3, 3]), 0);
        assert_eq!(surplus(&[1, 8, 2, 1]), 2);
        assert_eq!(surplus(&[1, 11]), 2);
        assert_eq!(surplus(&[]), 0);
    }
}
