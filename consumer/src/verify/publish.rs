//! Commits what the agent has not committed, and pushes it.

use std::time::Duration;

use agentmine_domain::markdown::line;
use agentmine_gateway::not_obeyed;

use crate::error::SessionError;
use crate::prepare::Prepared;
use crate::prepare::workspace::output_tail;
use crate::session::context::SessionContext;

/// Installed or built files, which the worker does not commit, even if they are not ignored; except in a repository that has
/// such files, as that of a GitHub Action may have its `node_modules`.
const INSTALLED: &str =
    "'**/node_modules/**' '**/__pycache__/**' '**/.venv/**' '**/target/debug/**'";

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
    // The gateway refuses a push with a message that a forge obeys, and a title may say "Fix #1".
    let message = not_obeyed(&line(title, 72)).replace('\'', "");
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
set -- .
for files in {INSTALLED}; do
    if [ -z "$(git ls-files -- ":(glob)$files" | head -n 1)" ]; then set -- "$@" ":(exclude,glob)$files"; fi
done
if [ -s "$large" ]; then
    printf '%s\0' "$@" >> "$large"
    git add --all --pathspec-from-file="$large" --pathspec-file-nul || git add --all -- "$@"
else
    git add --all -- "$@"
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn run(folder: &Path, program: &str, args: &[&str]) -> String {
        let output = Command::new(program)
            .args(args)
            .current_dir(folder)
            .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("HOME", "/nonexistent")])
            .envs(["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name, "miner")))
            .envs(["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| (name, "miner@localhost")))
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn write(folder: &Path, file: &str, content: &str) {
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// The files of the commit that the script makes after these changes, and its subject.
    fn committed(title: &str, before: &[&str], changed: &[&str]) -> (Vec<String>, String) {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        run(folder, "git", &["init", "--quiet"]);
        write(folder, "README.md", "one");
        for file in before {
            write(folder, file, "one");
        }
        run(folder, "git", &["add", "--all"]);
        run(folder, "git", &["commit", "--quiet", "--message=first"]);
        for file in changed {
            write(folder, file, "two");
        }
        run(folder, "sh", &["-c", &script(title, 1 << 20)]);
        let shown = run(
            folder,
            "git",
            &["show", "--name-only", "--pretty=format:%s"],
        );
        let mut lines = shown.lines().map(str::to_owned);
        let subject = lines.next().unwrap();
        (lines.collect(), subject)
    }

    #[test]
    fn installed_files_are_committed_only_where_the_repository_has_such_files() {
        let of_action = ["a.js", "node_modules/x/i.js", "sub/node_modules/x/new.js"];
        let (files, _) = committed("Update x", &of_action[..2], &of_action);
        assert_eq!(files, of_action);
        let changed = [
            "a.js",
            "node_modules/x/i.js",
            ".venv/bin/x",
            "a/__pycache__/b",
        ];
        let (files, _) = committed("Update x", &["a.js"], &changed);
        assert_eq!(files, ["a.js"]);
    }

    /// The gateway refuses a push with words that a forge obeys.
    #[test]
    fn the_title_of_an_issue_closes_nothing_in_the_message() {
        for (title, subject) in [
            ("Fix #123: it's slow", "Fix for #123: its slow"),
            ("Do not [skip ci]", "Do not skip ci"),
            ("Greet", "Greet"),
        ] {
            assert_eq!(committed(title, &[], &["a"]).1, subject);
        }
    }
}
