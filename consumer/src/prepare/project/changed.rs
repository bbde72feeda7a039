//! What a pull request itself changes of the files that decide how it is judged.
//!
//! What such a file declares is read from the target branch, where only a merge puts the change. A pull request that is made to change
//! it is therefore checked as before, and a reviewer is informed of that. The files from which checks are guessed are the pull
//! request's own: a reviewer is informed that it may have changed what the checks run.

use std::time::Duration;

use agentmine_domain::markdown::line;

use crate::error::WorkspaceError;
use crate::prepare::workspace::Workspace;

/// Time limit for the comparison.
const TIME_LIMIT: Duration = Duration::from_secs(300);
/// Maximum size in bytes of the list of changed files.
const MAX_LISTING: usize = 64 * 1024;
/// How many files are named.
const MAX_NAMED: usize = 10;
/// Maximum length of a path that is shown, in characters.
const MAX_PATH: usize = 200;

/// The changes since the merge base with `target`, a commit, as sentences. `declared` are paths of files and folders;
/// `guessed_from` are names of files in any folder.
pub(super) async fn notes(
    workspace: &Workspace,
    target: &str,
    declared: &[&str],
    guessed_from: &[&str],
) -> Result<Vec<String>, WorkspaceError> {
    let declared = declared.iter().map(|path| format!(":(top,literal){path}"));
    let guessed_from = guessed_from
        .iter()
        .map(|name| format!(":(top,glob)**/{name}"));
    let declared = changed(workspace, target, declared.collect()).await?;
    let guessed_from = changed(workspace, target, guessed_from.collect()).await?;
    let declared = declared.map(|names| {
        format!("This pull request changes files that have an effect only once they are merged (until then, those of the target branch count): {names}.")
    });
    let guessed_from = guessed_from.map(|names| {
        format!("The checks were guessed, and this pull request changes files that may decide what they run: {names}.")
    });
    Ok(declared.into_iter().chain(guessed_from).collect())
}

/// The names of the changed files among those that `specs`, pathspecs of git, match; `None` if there are none.
async fn changed(
    workspace: &Workspace,
    target: &str,
    specs: Vec<String>,
) -> Result<Option<String>, WorkspaceError> {
    if specs.is_empty() {
        return Ok(None);
    }
    let listed = workspace
        .shell(&listing(target, &specs), TIME_LIMIT, MAX_LISTING)
        .await?;
    if listed.exit_code != 0 {
        return Ok(Some("possibly; the changes could not be listed".into()));
    }
    Ok(named(&String::from_utf8_lossy(&listed.stdout)))
}

/// Lists the changed files, a path a line. Without a merge base, all that differs from the target is the pull request's.
fn listing(target: &str, specs: &[String]) -> String {
    let diff = "git -c core.quotePath=off diff --name-only --no-renames";
    let specs: Vec<String> = specs.iter().map(|spec| format!("'{spec}'")).collect();
    let specs = specs.join(" ");
    format!("{diff} {target}...HEAD -- {specs} 2>/dev/null || {diff} {target} HEAD -- {specs}")
}

fn named(listed: &str) -> Option<String> {
    let name = |path: &str| format!("`{}`", line(path, MAX_PATH).replace('`', "'"));
    let names: Vec<String> = listed.lines().take(MAX_NAMED).map(name).collect();
    let more = match listed.lines().count().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!names.is_empty()).then(|| format!("{}{more}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sh;

    fn changed(folder: &std::path::Path, specs: &[&str]) -> Option<String> {
        let specs: Vec<String> = specs.iter().map(|spec| (*spec).to_owned()).collect();
        named(&sh(folder, &listing("main", &specs)))
    }

    #[test]
    fn what_a_pull_request_changes_is_named_and_not_what_its_target_does() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        sh(
            folder,
            "git init -q -b main . && mkdir .agentmine web && touch .agentmine/config.yaml package.json
            git add . && git commit -qm base && git switch -qc work
            echo 1 > .agentmine/config.yaml && echo 1 > web/package.json && echo 1 > web/config.yaml
            git add . && git commit -qm work && git switch -q main
            echo 2 > package.json && git commit -qam target && git switch -q work",
        );
        let declared = ":(top,literal).agentmine";
        let expected = Some("`.agentmine/config.yaml`".to_owned());
        assert_eq!(changed(folder, &[declared]), expected);
        let packages = ":(top,glob)**/package.json";
        let expected = Some("`web/package.json`".to_owned());
        assert_eq!(changed(folder, &[packages]), expected);
        assert_eq!(changed(folder, &[":(top,glob)**/Makefile"]), None);
        // Without a common history.
        sh(
            folder,
            "git switch -q --orphan other && mkdir -p .agentmine && echo 3 > .agentmine/config.yaml
            git add .agentmine && git commit -qm other",
        );
        let expected = Some("`.agentmine/config.yaml`".to_owned());
        assert_eq!(changed(folder, &[declared]), expected);
    }

    #[test]
    fn a_name_is_shown_as_code_and_of_many_the_first() {
        assert_eq!(named("a`b/package.json\n").unwrap(), "`a'b/package.json`");
        let many: String = (0..12).map(|n| format!("{n}/package.json\n")).collect();
        let shown = named(&many).unwrap();
        assert!(shown.ends_with("`9/package.json` and 2 more"), "{shown}");
        assert_eq!(named(""), None);
    }
}
