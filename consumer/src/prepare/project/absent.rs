//! What a clone lacks although the repository names it: the content of files in Git LFS, and submodules.

use std::time::Duration;

use agentmine_agent::Absent;

use super::layout::Layout;
use crate::error::WorkspaceError;
use crate::prepare::workspace::Workspace;

/// Time limit for each look at the index.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// Maximum size in bytes of what is read of it.
const MAX_LISTING: usize = 64 * 1024;

/// Counts the pointers among the files that Git LFS stores.
const POINTERS: &str = "git grep --cached --files-with-matches --fixed-strings \
    'version https://git-lfs.github.com/spec/v1' -- ':(attr:filter=lfs)' | wc -l";
/// Lists the submodules, a path a line.
const SUBMODULES: &str =
    "git -c core.quotePath=off ls-files --stage | sed -n 's/^160000 [^\t]*\t//p'";

/// Looks at a fresh clone.
pub(super) async fn absent(
    workspace: &Workspace,
    layout: &Layout,
) -> Result<Absent, WorkspaceError> {
    let mut absent = Absent::default();
    if layout.may_have_attributes() {
        let counted = workspace.shell(POINTERS, TIME_LIMIT, MAX_LISTING).await?;
        let counted = String::from_utf8_lossy(&counted.stdout)
            .trim()
            .parse::<u64>();
        absent.lfs_pointers = counted.unwrap_or_default();
    }
    if layout.has("", ".gitmodules") {
        let listed = workspace.shell(SUBMODULES, TIME_LIMIT, MAX_LISTING).await?;
        let listed = String::from_utf8_lossy(&listed.stdout);
        absent.submodules = listed.lines().map(str::to_owned).collect();
    }
    Ok(absent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sh;

    #[test]
    fn pointers_and_submodules_of_a_clone_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        sh(
            folder,
            r#"git init -q . && echo '*.bin filter=lfs' > .gitattributes && mkdir d
            for file in a.bin d/b.bin c.txt; do
                printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 9\n' 7 > $file
            done
            echo raw > raw.bin && git add . && git commit -qm files
            git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),'lib/a b'"#,
        );
        assert_eq!(sh(folder, POINTERS).trim(), "2");
        assert!(Layout::parse(&sh(folder, "git ls-files")).may_have_attributes());
        assert_eq!(sh(folder, SUBMODULES), "lib/a b\n");
    }
}
