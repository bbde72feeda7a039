//! Installs the project's dependencies before the agent begins.
//!
//! What the installers leave in the clone is not part of the work: files that they create are excluded from
//! commits, and files of the project that they change are restored.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use agentmine_agent::Project;

use super::workspace::{Workspace, output_tail};
use crate::error::{SessionError, WorkspaceError};
use crate::session::context::SessionContext;

/// Time limit for all set-up commands together.
pub(crate) const SETUP_TIMEOUT: Duration = Duration::from_secs(1800);
/// Time limit for one look at the working tree.
const STATUS_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum size in bytes of the list of changed files.
const STATUS_OUTPUT: usize = 1024 * 1024;

/// Maximum number of files of one new folder that are excluded one by one.
const MAX_EXCLUDED: usize = 500;

/// Installs dependencies. A failure is recorded as a note and is not fatal: the agent may fix it.
pub(super) async fn install(
    ctx: &SessionContext,
    workspace: &Workspace,
    project: &Project,
) -> Result<(), SessionError> {
    if project.setup.is_empty() {
        return Ok(());
    }
    let before = changes(workspace).await?;
    run(ctx, workspace, project).await?;
    match (before, changes(workspace).await?) {
        (Some(before), Some(after)) => {
            keep_out_of_commits(ctx, workspace, after.difference(&before)).await
        }
        (None, _) | (_, None) => {
            ctx.note("set-up: its changes to the clone could not be listed, so they may become part of the result")
                .await
        }
    }
}

async fn run(
    ctx: &SessionContext,
    workspace: &Workspace,
    project: &Project,
) -> Result<(), SessionError> {
    let begun = Instant::now();
    for line in &project.setup {
        let left = SETUP_TIMEOUT.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return ctx
                .note(&format!("set-up: time limit reached before `{line}`"))
                .await;
        }
        let done = workspace.set_up(line, left, 16 * 1024).await?;
        let note = if done.exit_code == 0 {
            format!("set-up: `{line}` took {} ms", done.duration.as_millis())
        } else {
            format!("set-up failed: `{line}`: {}", output_tail(&done))
        };
        ctx.note(&note).await?;
    }
    Ok(())
}

/// The entries of `git status`: two letters of state, a space, and the path. `None` if they are not all known:
/// then nothing may be concluded from what is missing.
async fn changes(workspace: &Workspace) -> Result<Option<BTreeSet<String>>, WorkspaceError> {
    let status = "git status --porcelain=v1 --no-renames --untracked-files=normal -z";
    let done = workspace
        .shell(status, STATUS_TIMEOUT, STATUS_OUTPUT)
        .await?;
    if done.exit_code != 0 || done.stdout.is_cut() {
        return Ok(None);
    }
    let listed = String::from_utf8_lossy(&done.stdout);
    Ok(Some(
        listed.split_terminator('\0').map(str::to_owned).collect(),
    ))
}

/// Excludes new files through `.git/info/exclude`, and restores changed ones.
async fn keep_out_of_commits(
    ctx: &SessionContext,
    workspace: &Workspace,
    changes: impl Iterator<Item = &String>,
) -> Result<(), SessionError> {
    let mut script = String::new();
    for change in changes {
        let Some((state, path)) = change.split_at_checked(3) else {
            continue;
        };
        if !state.starts_with('?') {
            let path = quoted(path);
            script.push_str(&format!(
                "git --literal-pathspecs checkout --quiet -- {path}\n"
            ));
            continue;
        }
        match files_in(workspace, path).await? {
            Some(files) => files.iter().for_each(|file| exclude(&mut script, file)),
            None => {
                exclude(&mut script, path);
                let note = format!(
                    "set-up: its folder `{path}` (more than {MAX_EXCLUDED} files) is excluded from commits"
                );
                ctx.note(&note).await?;
            }
        }
    }
    if !script.is_empty() {
        // Passed on stdin, as it may be longer than an argument.
        workspace.script(&script, STATUS_TIMEOUT).await?;
    }
    Ok(())
}

/// The new files at a path of `git status`, each by itself, so that what the agent adds beside them is part of
/// its work; `None` if a folder holds too many.
async fn files_in(
    workspace: &Workspace,
    path: &str,
) -> Result<Option<Vec<String>>, WorkspaceError> {
    if !path.ends_with('/') {
        return Ok(Some(vec![path.to_owned()]));
    }
    let list = format!(
        "git --literal-pathspecs ls-files --others --exclude-standard -z -- {}",
        quoted(path)
    );
    let done = workspace
        .shell(&list, STATUS_TIMEOUT, STATUS_OUTPUT)
        .await?;
    if done.exit_code != 0 || done.stdout.is_cut() {
        return Ok(None);
    }
    let listed = String::from_utf8_lossy(&done.stdout);
    let files: Vec<String> = listed.split_terminator('\0').map(str::to_owned).collect();
    Ok((files.len() <= MAX_EXCLUDED).then_some(files))
}

fn exclude(script: &mut String, path: &str) {
    // Of two lines, the second one would be a pattern of its own.
    if path.contains('\n') {
        return;
    }
    // A pattern of gitignore(5): escaped, and anchored at the root.
    let mut pattern = String::from("/");
    for c in path.chars() {
        if "\\*?[!# ".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    let pattern = quoted(&pattern);
    // Where git has no templates, a clone is without the folder.
    let line = format!("mkdir -p .git/info && printf '%s\\n' {pattern} >> .git/info/exclude\n");
    script.push_str(&line);
}

/// A word of the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sh;

    #[test]
    fn new_files_are_excluded_in_a_clone_without_the_files_of_a_template() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        sh(
            folder,
            "git init -q --template= . && touch 'it'\\''s [a]*' own",
        );
        let mut script = String::new();
        exclude(&mut script, "it's [a]*");
        exclude(&mut script, "new\nown");
        sh(folder, &script);
        assert_eq!(sh(folder, "git status --porcelain"), "?? own\n");
    }
}
