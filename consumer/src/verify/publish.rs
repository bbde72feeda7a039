//! Commits what the agent has not committed, and pushes it.

use std::time::Duration;

use agentmine_domain::markdown::line;
use agentmine_gateway::not_obeyed;
use agentmine_sandbox::INSTALLED;

use crate::error::SessionError;
use crate::prepare::Prepared;
use crate::prepare::workspace::output_tail;
use crate::session::context::SessionContext;

/// Follows the path of a folder of such files.
const OF_INSTALLED: &str = "//installed";

/// Maximum size in bytes of a new file that the worker commits: a larger one, as a core dump, is hardly ever part of the
/// work, and GitHub warns of it. The agent can still commit it.
const MAX_NEW_FILE: u64 = 50 << 20;

/// Exit code of the script for work that it must not commit.
const UNFINISHED: &str = "3";

/// Follows the path of a submodule that is not checked out, and has files.
const HIDDEN: &str = "//submodule";

/// Exists while a cherry-pick or revert of several commits is unfinished.
const SEQUENCER: &str = ".git/sequencer";

/// Follows the path of a file in Git LFS.
const LFS: &str = "//lfs";

/// Of a rebase that was not finished.
const NOTHING_ON_TOP: &str = "the branch is to be rebased, and what is checked out is the commit to rebase onto, without any commit \
    of the branch. It was not pushed, since all of them would be lost";

/// How many files that were omitted are named.
const MAX_NAMED: usize = 5;

/// Whether the repository uses Git LFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lfs {
    /// It has files there.
    Known,
    /// If its attributes say so: templates of projects name files before there are any.
    IfNamed,
}

/// What became of the agent's last changes.
pub(super) struct Published {
    /// Why they are not on the branch.
    pub(super) failure: Option<String>,
    /// Names what was not committed, and why.
    pub(super) left_out: Vec<String>,
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
    let lfs = match prepared.project.absent.lfs_pointers {
        0 => Lfs::IfNamed,
        _ => Lfs::Known,
    };
    let script = script(title, limit.bytes(), (lfs, &prepared.base));
    let done = workspace
        .shell(&script, Duration::from_secs(300), 16 * 1024)
        .await?;
    if done.exit_code != 0 {
        return Ok(Published {
            failure: Some(output_tail(&done)),
            left_out: Vec::new(),
        });
    }
    let output = String::from_utf8_lossy(&done.stdout);
    let mut lines = output.lines();
    let head = lines.next().unwrap_or_default().trim();
    let LeftOut { notes, unpushable } = LeftOut::of(lines, limit.bytes());
    let pushed = workspace.gateway.pushed_head();
    let began = prepared.rebases.as_ref().unwrap_or(&prepared.base);
    if pushed.as_deref() == Some(head) || (pushed.is_none() && head == began) {
        return Ok(Published {
            failure: unpushable,
            left_out: notes,
        });
    }
    // The gate refuses it too; here it is certain that the rebase was not finished.
    if prepared.rebases.is_some() && head == prepared.base {
        return Ok(Published {
            failure: Some(NOTHING_ON_TOP.to_owned()),
            left_out: notes,
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
    let failure = (done.exit_code != 0).then(|| output_tail(&done));
    Ok(Published {
        failure: failure.or(unpushable),
        left_out: notes,
    })
}

/// Prints the commit and then what it omits: files, work trees with a slash at the end, repositories with `/.git`, and
/// [`SEQUENCER`] for commits. If nothing is left to commit, as after nearly every agent that pushed, one process of git
/// finds that out. Reading a large file takes minutes, even if it consists of holes, so they are found by their size. Git
/// before 2.25 reads no list of paths; there they are not excluded. A file that cannot be read would keep git from adding any.
///
/// Git adds a repository in the project as a submodule without an address, which breaks each clone that gets its
/// submodules, and adds nothing at all if it has no commit. A git that was killed leaves its lock of the index. A hook that
/// expects a person fails here, and `--no-verify` does not skip all of them.
///
/// Of files in Git LFS since the commit `since`, a removal or a move is committed, but no other content: it would be stored
/// in the repository itself, or nowhere. Those that the agent has committed are printed, too, each with `//lfs`; where it
/// has merged, or where somebody else's commits are in between, they may be others' and are not.
///
/// Git shows nothing in the folder of a submodule that is not checked out.
///
/// What is installed is not committed, except in a repository that has such files, as that of a GitHub Action may have its
/// `node_modules`.
fn script(title: &str, limit: u64, (lfs, since): (Lfs, &str)) -> String {
    let is_known = match lfs {
        Lfs::Known => "yes",
        Lfs::IfNamed => "",
    };
    let new_limit = limit.min(MAX_NEW_FILE);
    let globs = INSTALLED.map(|glob| format!("'{glob}'")).join(" ");
    // The gateway refuses a push with a message that a forge obeys, and a title may say "Fix #1".
    let message = not_obeyed(&line(title, 72)).replace('\'', "");
    format!(
        r#"unfinished() {{
    echo 'a merge or rebase is unfinished' >&2
    exit {UNFINISHED}
}}
# Sets `at` to the path of a repository that is listed as $1, with \001 for each newline.
locate() {{
    at=$1
    if [ ! -e "$at" ]; then
        at=$(printf '%s.' "$1" | tr '\001' '\n')
        at=${{at%.}}
    fi
}}
lfs='{is_known}'
if [ -z "$lfs" ] && [ -e .gitattributes ] && grep -q filter=lfs .gitattributes; then lfs=yes; fi
hidden() {{
    [ -e .gitmodules ] || return 0
    git ls-files --stage -z | tr '\0\n' '\n\001' | sed -n 's/^160000 [0-9a-f]* 0\t//p' |
        while IFS= read -r path; do
            locate "$path"
            if [ ! -e "$at/.git" ] && [ -n "$(ls -A "$at" 2> /dev/null)" ]; then printf '%s{HIDDEN}\n' "$path"; fi
        done
}}
committed_lfs() {{
    [ -n "$lfs" ] || return 0
    me=$(git var GIT_COMMITTER_IDENT | sed 's/.*<//; s/>.*//')
    if [ -z "$(git rev-list --max-count=1 --merges '{since}..HEAD')$(git log --format=%ce '{since}..HEAD' | grep -vxF "$me" | head -n 1)" ]; then
        git -c core.quotePath=off diff --name-only --find-copies=100% --find-copies-harder --diff-filter=AM '{since}' HEAD |
            git -c core.quotePath=off check-attr --stdin filter | sed -n 's,: filter: lfs$,{LFS},p'
    fi
}}
if [ -e .git/MERGE_HEAD ] || [ -d .git/rebase-merge ] || [ -d .git/rebase-apply ]; then unfinished; fi
state=$(git status --porcelain=v2 --branch --untracked-files=normal --ignore-submodules=none) && case $state in
*'
'[!#]*) ;;
'# branch.oid '[0-9a-f]*)
    state=${{state#\# branch.oid }}
    printf '%s\n' "${{state%%
*}}"
    if [ -d {SEQUENCER} ]; then echo {SEQUENCER}; fi
    hidden
    committed_lfs
    exit
    ;;
esac
if [ -n "$(git diff --name-only --diff-filter=U)" ]; then unfinished; fi
folder=$(git rev-parse --git-dir) || exit
large=$folder/agentmine-large
lock=$folder/index.lock
is_locked() {{
    for process in /proc/[0-9]*; do
        if [ "$(cat "$process/comm")" = git ]; then
            case $(readlink "$process/cwd")/ in "$(pwd -P)"/*) return 0 ;; esac
        fi
    done 2> /dev/null
    return 1
}}
for second in 1 2 3 4 5; do
    [ -e "$lock" ] || break
    if is_locked; then sleep 1; else rm -f "$lock"; fi
done
find . -name .git -prune -o -type f \( -size +{new_limit}c -o ! -perm -400 \) -exec sh -c '
    for file; do
        if git check-ignore --quiet -- "$file"; then continue; fi
        limit={new_limit}
        if [ -n "$(git ls-files -- ":(literal)$file")" ]; then limit={limit}; fi
        if [ -r "$file" ] && [ -z "$(find "$file" -size "+${{limit}}c")" ]; then continue; fi
        printf "%s\0" ":(top,exclude,literal)${{file#./}}"
    done' sh {{}} + > "$large"
set -- .
installed=
for files in {globs}; do
    if [ -z "$(git ls-files -- ":(glob)$files" | head -n 1)" ]; then
        set -- "$@" ":(exclude,glob)$files"
        installed="$installed :(glob)$files"
    fi
done
if [ -n "$installed" ]; then
    set -f
    installed=$(git ls-files --others --exclude-standard --directory -z -- $installed | tr '\0' '\n' |
        sed -n '/__pycache__.$/!s,/$,{OF_INSTALLED},p')
    set +f
fi
inner=$(git ls-files --others --exclude-standard -z -- "$@" | tr '\0\n' '\n\001' | sed -n 's,/$,,p')
while IFS= read -r path; do
    locate "$path"
    if [ -n "$at" ]; then set -- "$@" ":(exclude,top,literal)$at"; fi
done <<END
$inner
END
pointers=
if [ -n "$lfs" ]; then
    pointers=$(git ls-files --modified --others --exclude-standard -z -- ':(attr:filter=lfs)' | tr '\0' '\n')
fi
kept=
while IFS= read -r path; do
    if [ ! -e "$path" ]; then continue; fi
    # A pointer that was moved.
    if [ -z "$(git ls-files -- ":(top,literal)$path")" ] && head -n 1 "$path" | grep -q '^version https://git-lfs'; then continue; fi
    set -- "$@" ":(exclude,top,literal)$path"
    kept="$kept$path{LFS}
"
done <<END
$pointers
END
message='{message}'
if [ -s "$large" ]; then
    printf '%s\0' "$@" >> "$large"
    git add --all --pathspec-from-file="$large" --pathspec-file-nul || git add --all -- "$@"
else
    git add --all -- "$@"
fi &&
{{ git diff --cached --quiet || git commit --quiet --no-verify -m "$message" ||
    git commit --quiet --no-verify --no-gpg-sign -m "$message" ||
    git -c core.hooksPath=/dev/null commit --quiet --no-verify --no-gpg-sign -m "$message"; }} &&
git rev-parse HEAD && {{
    if [ -d {SEQUENCER} ]; then echo {SEQUENCER}; fi
    tr '\0' '\n' < "$large" | sed -n 's/^:(top,exclude,literal)//p'
    printf '%s\n' "$inner" | while IFS= read -r path; do
        locate "$path"
        if [ -d "$at/.git" ]; then printf '%s/.git\n' "$path"; elif [ -n "$path" ]; then printf '%s/\n' "$path"; fi
    done
    printf '%s' "$kept"
    if [ -n "$installed" ]; then printf '%s\n' "$installed"; fi
    hidden
    committed_lfs
}}"#
    )
}

/// What the script has not committed, for people and for the model.
#[derive(Debug, PartialEq, Eq)]
struct LeftOut {
    notes: Vec<String>,
    /// That work may be missing which no push can contain.
    unpushable: Option<String>,
}

impl LeftOut {
    /// Reads the lines that the script prints after the commit.
    fn of<'a>(lines: impl Iterator<Item = &'a str>, limit: u64) -> Self {
        let (mut files, mut trees, mut repositories) = (Vec::new(), Vec::new(), Vec::new());
        let (mut in_lfs, mut installed, mut hidden) = (Vec::new(), Vec::new(), Vec::new());
        let mut lines = lines.peekable();
        let applying = lines.next_if_eq(&SEQUENCER).map(|_| {
            "it lacks commits that a cherry-pick or revert has not applied yet. Continue it, or end it with `--quit`"
                .to_owned()
        });
        for path in lines {
            if let Some(folder) = path.strip_suffix(OF_INSTALLED) {
                installed.push(folder);
                continue;
            }
            if let Some(folder) = path.strip_suffix(HIDDEN) {
                hidden.push(folder);
                continue;
            }
            if let Some(file) = path.strip_suffix(LFS) {
                if !in_lfs.contains(&file) {
                    in_lfs.push(file);
                }
                continue;
            }
            match (path.strip_suffix("/.git"), path.strip_suffix('/')) {
                (Some(repository), _) => repositories.push(repository),
                (None, Some(tree)) => trees.push(tree),
                (None, None) => files.push(path),
            }
        }
        let large = named(&files).map(|files| {
            let limit = limit.min(MAX_NEW_FILE) >> 20;
            format!(
                "Not committed, because each has more than {limit} MiB or cannot be read: {files}."
            )
        });
        let installed = named(&installed).map(|folders| {
            format!("Not committed, because they are installed or built files, which `.gitignore` does not list: {folders}.")
        });
        let trees = named(&trees).map(|trees| {
            format!("Not committed, because each is a separate work tree of git: {trees}.")
        });
        let inner = named(&repositories).map(|repositories| {
            format!(
                "it has no files of {repositories}, since a `.git` folder makes a separate repository there; all else was \
                 pushed. Remove the `.git` folder if the files are part of the work, and else the files"
            )
        });
        let hidden = named(&hidden).map(|folders| {
            format!(
                "it has no files of {folders}, since that is a submodule which is not checked out; all else was pushed. Remove \
                 the files there, or move them if they are part of the work"
            )
        });
        let in_lfs = named(&in_lfs).map(|files| {
            format!(
                "it must not change {files}, since files in Git LFS are only pointers here, and their content cannot be \
                 uploaded. Restore what was there, remove new ones, and say in the summary what a person has to do"
            )
        });
        Self {
            notes: large.into_iter().chain(trees).chain(installed).collect(),
            unpushable: applying
                .into_iter()
                .chain(inner)
                .chain(hidden)
                .chain(in_lfs)
                .reduce(|all, next| all + "; " + &next),
        }
    }
}

/// The first of these paths in the order of their names, since that of a folder is the file system's; `None` if there are
/// none.
fn named(paths: &[&str]) -> Option<String> {
    let mut paths: Vec<String> = paths.iter().map(|path| line(path, 100)).collect();
    paths.sort_unstable();
    let more = match paths.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = paths[..paths.len().min(MAX_NAMED)].join(", ");
    (!paths.is_empty()).then(|| format!("{named}{more}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::testing::{run, sh};

    fn write(folder: &Path, file: &str, content: &str) {
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// A repository with one commit of these files.
    fn repository(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        run(path, "git", &["init", "--quiet"]);
        for file in files.iter().chain(&["README.md"]) {
            write(path, file, "one");
        }
        run(path, "git", &["add", "--all"]);
        run(path, "git", &["commit", "--quiet", "--message=first"]);
        folder
    }

    /// Runs the script; what it has not committed.
    fn commit(folder: &Path, title: &str) -> LeftOut {
        commit_of(folder, title, (Lfs::IfNamed, "HEAD"))
    }

    fn commit_of(folder: &Path, title: &str, lfs: (Lfs, &str)) -> LeftOut {
        let output = sh(folder, &script(title, 1 << 20, lfs));
        LeftOut::of(output.lines().skip(1), 1 << 20)
    }

    /// The files of the commit that the script makes after these changes, and its subject.
    fn committed(title: &str, before: &[&str], changed: &[&str]) -> (Vec<String>, String) {
        let folder = repository(before);
        for file in changed {
            write(folder.path(), file, "two");
        }
        commit(folder.path(), title);
        newest(folder.path())
    }

    /// The files of the newest commit, and its subject.
    fn newest(folder: &Path) -> (Vec<String>, String) {
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
            "venv/bin/x",
            "x.egg-info/PKG-INFO",
            ".nox/tests/bin/x",
            "a/__pycache__/b",
        ];
        let (files, _) = committed("Update x", &["a.js"], &changed);
        assert_eq!(files, ["a.js"]);
    }

    #[test]
    fn built_files_and_a_large_new_file_are_not_committed_and_are_named() {
        let folder = repository(&["a"]);
        let folder = folder.path();
        sh(
            folder,
            "truncate -s 60M asset && git add asset && git commit -qm asset",
        );
        for file in [
            "a",
            "node_modules/x/i.js",
            "app/target/release/b",
            "b/__pycache__/c",
        ] {
            write(folder, file, "two");
        }
        sh(folder, "truncate -s 60M core && truncate -s 61M asset");
        let output = sh(
            folder,
            &script("Update a", 512 << 20, (Lfs::IfNamed, "HEAD")),
        );
        assert_eq!(newest(folder).0, ["a", "asset"]);
        let left_out = LeftOut::of(output.lines().skip(1), 512 << 20);
        assert_eq!(
            left_out.notes,
            [
                "Not committed, because each has more than 50 MiB or cannot be read: core.",
                "Not committed, because they are installed or built files, which `.gitignore` does not list: \
                 app/target/release, node_modules."
            ]
        );
        assert_eq!(left_out.unpushable, None);
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

    #[test]
    fn a_repository_in_the_project_becomes_no_submodule_and_the_rest_is_committed() {
        let folder = repository(&[]);
        let folder = folder.path();
        for inner in ["app", "lib/with"] {
            run(folder, "git", &["init", "--quiet", inner]);
            write(folder, &format!("{inner}/a.js"), "two");
        }
        let inner = folder.join("lib/with");
        run(&inner, "git", &["add", "--all"]);
        run(&inner, "git", &["commit", "--quiet", "--message=inner"]);
        run(folder, "git", &["worktree", "add", "--quiet", ".trees/x"]);
        write(folder, "b", "two");
        let left_out = commit(folder, "Add b");
        assert_eq!(newest(folder), (vec!["b".to_owned()], "Add b".to_owned()));
        let note = "Not committed, because each is a separate work tree of git: .trees/x.";
        assert_eq!(left_out.notes, [note]);
        let unpushable = left_out.unpushable.unwrap();
        assert!(unpushable.contains("of app, lib/with,"), "{unpushable}");
    }

    #[test]
    fn the_name_of_a_repository_in_the_project_may_have_any_bytes() {
        for name in ["a\nb", "a\n", "a\u{1}b", " a\\*\"'$x", "-a\tb"] {
            let folder = repository(&[]);
            let folder = folder.path();
            write(folder, &format!("{name}/a.js"), "two");
            run(&folder.join(name), "git", &["init", "--quiet"]);
            write(folder, "c", "two");
            let left_out = commit(folder, "Add c");
            assert_eq!(newest(folder).0, ["c"], "{name:?}");
            assert_eq!(left_out.notes, [""; 0], "{name:?}");
            let unpushable = left_out.unpushable.unwrap();
            assert!(
                unpushable.starts_with("it has no files of "),
                "{unpushable}"
            );
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_keeps_no_other_from_being_committed() {
        let folder = repository(&["a"]);
        let folder = folder.path();
        sh(folder, "echo 2 > a && echo 1 > closed && chmod 0 closed");
        let left_out = commit(folder, "Update a");
        if std::fs::read(folder.join("closed")).is_ok() {
            // A superuser can read it.
            assert_eq!(newest(folder).0, ["a", "closed"]);
            return;
        }
        assert_eq!(newest(folder).0, ["a"]);
        assert!(left_out.notes[0].ends_with("cannot be read: closed."));
    }

    #[test]
    fn a_file_in_git_lfs_may_be_moved_or_removed_and_gets_no_other_content() {
        let folder = repository(&[]);
        let folder = folder.path();
        sh(
            folder,
            r#"echo '*.bin filter=lfs -text' > .gitattributes
            for n in 1 2 3; do
                printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 9\n' $n > $n.bin
            done
            git add . && git commit -qm pointers"#,
        );
        let since = sh(folder, "git rev-parse HEAD");
        let since = (Lfs::Known, since.trim());
        let changes =
            "echo edited >> 1.bin; mv 2.bin moved.bin; rm 3.bin; echo raw > new.bin; echo x > d";
        sh(folder, changes);
        let left_out = commit_of(folder, "Add d", since);
        assert_eq!(newest(folder).0, ["3.bin", "d", "moved.bin"]);
        let why = left_out.unpushable.unwrap();
        assert!(
            why.starts_with("it must not change 1.bin, new.bin, since"),
            "{why}"
        );
        sh(folder, "git add . && git commit -qm all");
        let committed = commit_of(folder, "x", since).unpushable.unwrap();
        assert_eq!(committed, why);
        sh(
            folder,
            "git checkout -q HEAD~2 -- 1.bin && git rm -q new.bin",
        );
        assert_eq!(commit_of(folder, "x", since).unpushable, None);
        assert_eq!(newest(folder).0, ["1.bin", "new.bin"]);
    }

    /// As in the template of a project, before it has any such file.
    #[test]
    fn a_first_file_of_lfs_is_not_stored_in_the_repository() {
        let folder = repository(&[".gitattributes", "a"]);
        let folder = folder.path();
        write(folder, ".gitattributes", "*.png filter=lfs -text\n");
        sh(folder, "git commit -qam attributes");
        write(folder, "icon.png", "raw");
        write(folder, "a", "two");
        let why = commit(folder, "Add an icon").unpushable.unwrap();
        assert_eq!(newest(folder).0, ["a"]);
        assert!(
            why.starts_with("it must not change icon.png, since"),
            "{why}"
        );
    }

    #[test]
    fn files_in_a_submodule_that_is_not_checked_out_are_named() {
        let folder = repository(&["a"]);
        let folder = folder.path();
        sh(
            folder,
            "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),vend/x
            printf '[submodule \"x\"]\\n\\tpath = vend/x\\n\\turl = ../x\\n' > .gitmodules
            git add .gitmodules && git commit -qm submodule && mkdir -p vend/x",
        );
        assert_eq!(commit(folder, "x").unpushable, None);
        write(folder, "vend/x/new.c", "int x;");
        for changed in [false, true] {
            if changed {
                write(folder, "a", "two");
            }
            let why = commit(folder, "Add x").unpushable.unwrap();
            assert!(why.starts_with("it has no files of vend/x, since"), "{why}");
        }
        assert_eq!(newest(folder).0, ["a"]);
    }

    #[test]
    fn commits_that_a_cherry_pick_has_not_applied_are_not_forgotten() {
        let folder = repository(&["a"]);
        let folder = folder.path();
        let picks =
            "git checkout -q -b side && for n in 1 2; do echo $n > a && git commit -qam $n; done
            git checkout -q - && echo 3 > a && git commit -qam 3
            git cherry-pick side~1 side || { echo both > a && git commit -qam both; }";
        sh(folder, picks);
        assert!(
            commit(folder, "x")
                .unpushable
                .unwrap()
                .contains("cherry-pick")
        );
        write(folder, "b", "two");
        assert!(
            commit(folder, "Add b")
                .unpushable
                .unwrap()
                .contains("cherry-pick")
        );
        assert_eq!(newest(folder).0, ["b"]);
        run(folder, "git", &["cherry-pick", "--quit"]);
        assert_eq!(commit(folder, "x").unpushable, None);
    }

    #[test]
    fn the_lock_of_a_git_that_was_killed_keeps_nothing_from_being_committed() {
        let folder = repository(&[]);
        write(folder.path(), "a", "two");
        write(folder.path(), ".git/index.lock", "");
        commit(folder.path(), "Add a");
        assert_eq!(newest(folder.path()).0, ["a"]);
    }

    #[test]
    fn a_hook_or_a_signature_that_needs_a_person_keeps_nothing_from_being_committed() {
        let hook = "printf '#!/bin/sh\\nexit 1\\n' > .git/hooks/prepare-commit-msg; chmod 755 .git/hooks/*";
        let signature = "git config commit.gpgsign true; git config gpg.program false";
        for set_up in [hook, signature] {
            let folder = repository(&[]);
            run(folder.path(), "mkdir", &["-p", ".git/hooks"]);
            sh(folder.path(), set_up);
            write(folder.path(), "a", "two");
            commit(folder.path(), "Add a");
            assert_eq!(newest(folder.path()).0, ["a"], "{set_up}");
        }
    }
}
