//! Commits what the agent has not committed, and pushes it.

use std::time::Duration;

use agentmine_domain::markdown::line;

use crate::error::SessionError;
use crate::prepare::Prepared;
use crate::prepare::workspace::output_tail;
use crate::session::context::SessionContext;

/// Installed or built files that the worker never commits, even if they are not ignored.
const NEVER: [&str; 4] = [
    ":(exclude,glob)**/node_modules/**",
    ":(exclude,glob)**/__pycache__/**",
    ":(exclude,glob)**/.venv/**",
    ":(exclude,glob)**/target/debug/**",
];

/// Exit code of the script for work that it must not commit.
const UNFINISHED: &str = "3";

/// How many files that were omitted are named.
const MAX_NAMED: usize = 5;

/// What became of the agent's last changes.
pub(super) struct Published {
    /// Why they are not on the branch.
    pub(super) failure: Option<String>,
    /// Names the files that were not committed, since no push may be that large.
    pub(super) left_out: Option<String>,
}

/// Commits uncommitted changes and pushes unpushed commits.
pub(super) async fn publish(
    ctx: &SessionContext,
    prepared: &Prepared,
    title: &str,
) -> Result<Published, SessionError> {
    let limit = ctx
        .deps
        .config
        .command_executor
        .docker
        .network
        .push
        .max_size;
    let workspace = &prepared.workspace;
    let script = script(title, limit.bytes());
    let done = workspace
        .shell(&script, Duration::from_secs(300), 16 * 1024)
        .await?;
    if done.exit_code != 0 {
        return Ok(Published {
            failure: Some(output_tail(&done)),
            left_out: None,
        });
    }
    let output = String::from_utf8_lossy(&done.stdout);
    let mut lines = output.lines();
    let head = lines.next().unwrap_or_default().trim();
    let left_out = left_out(lines, limit.bytes());
    let pushed = workspace.gateway.pushed_head();
    let began = prepared.rebases.as_ref().unwrap_or(&prepared.base);
    if pushed.as_deref() == Some(head) || (pushed.is_none() && head == began) {
        return Ok(Published {
            failure: None,
            left_out,
        });
    }
    let work = &prepared.branches.work;
    let refspec = format!("HEAD:refs/heads/{work}");
    let replaces = workspace.gateway.rewritable().await;
    let lease = replaces.map(|head| format!("--force-with-lease=refs/heads/{work}:{head}"));
    let mut push = vec!["push", "--quiet", "--no-verify"];
    push.extend(lease.as_deref());
    push.extend(["origin", &refspec]);
    let done = workspace.git(&push).await?;
    workspace.reached("git push", &done)?;
    Ok(Published {
        failure: (done.exit_code != 0).then(|| output_tail(&done)),
        left_out,
    })
}

/// Prints the commit and then the files that it omits. One process of git says that nothing is left to commit, as
/// after nearly every agent that pushed. To read a large file takes minutes, even if it consists of holes, so they are
/// found by their size. Git before 2.25 reads no list of paths; there they are not excluded.
fn script(title: &str, limit: u64) -> String {
    let message = line(title, 72).replace('\'', "");
    let never = NEVER.map(|spec| format!("'{spec}'")).join(" ");
    format!(
        r#"unfinished() {{
    echo 'a merge or rebase is unfinished' >&2
    exit {UNFINISHED}
}}
if [ -e .git/MERGE_HEAD ] || [ -d .git/rebase-merge ] || [ -d .git/rebase-apply ]; then unfinished; fi
state=$(git status --porcelain=v2 --branch --untracked-files=normal --ignore-submodules=none) && case $state in
*'
'[!#]*) ;;
'# branch.oid '[0-9a-f]*)
    state=${{state#\# branch.oid }}
    printf '%s\n' "${{state%%
*}}"
    exit
    ;;
esac
if [ -n "$(git diff --name-only --diff-filter=U)" ]; then unfinished; fi
large=$(git rev-parse --git-dir)/agentmine-large || exit
find . -path ./.git -prune -o -type f -size +{limit}c -exec sh -c '
    for file; do
        git check-ignore --quiet -- "$file" || printf "%s\0" ":(top,exclude,literal)${{file#./}}"
    done' sh {{}} + > "$large"
if [ -s "$large" ]; then
    printf '%s\0' . {never} >> "$large"
    git add --all --pathspec-from-file="$large" --pathspec-file-nul || git add --all -- . {never}
else
    git add --all -- . {never}
fi &&
{{ git diff --cached --quiet || git commit --quiet --no-verify -m '{message}'; }} &&
git rev-parse HEAD &&
tr '\0' '\n' < "$large" | sed -n 's/^:(top,exclude,literal)//p'"#
    )
}

/// Says which files were omitted, in the order of their names, since that of a folder is the file system's.
fn left_out<'a>(files: impl Iterator<Item = &'a str>, limit: u64) -> Option<String> {
    let mut files: Vec<String> = files.map(|file| line(file, 100)).collect();
    files.sort_unstable();
    if files.is_empty() {
        return None;
    }
    let more = match files.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = files[..files.len().min(MAX_NAMED)].join(", ");
    Some(format!(
        "Not committed, because a push may have at most {} MiB: {named}{more}.",
        limit >> 20
    ))
}
