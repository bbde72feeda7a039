//! What the pushed commit changes.
//!
//! Where the branch took in commits of its target, what is new to both sides counts, as in a combined diff of git: neither
//! what others did on the target, nor what was on the branch before. A file that controls more than the program counts also if
//! the branch undoes what the target did to it.

use std::collections::HashSet;

use agentmine_agent::{ChangedFile, placeholders};
use agentmine_gateway::facts::{BareRepo, Diff, FactsError};

use super::sensitive::{Sensitive, sensitive};

/// What the pushed commit changes.
pub(super) struct Changes {
    pub(super) files: Vec<ChangedFile>,
    /// Those in added lines, as `file:line text`.
    pub(super) placeholders: Vec<String>,
    /// Changed files that control more than the program, as `WHAT: PATH`.
    pub(super) sensitive: Vec<String>,
    /// Whether it is too much to be looked at completely.
    pub(super) cut: bool,
    /// Whether commits of the target branch were merged.
    pub(super) merged: bool,
}

/// What changed from `base` to `head`. `target` is the branch that may have been merged meanwhile.
pub(super) async fn changes(
    bare: &BareRepo,
    (base, head): (&str, &str),
    target: Option<&str>,
) -> Result<Changes, FactsError> {
    let merged = match target {
        Some(target) => bare.merged(target, (base, head)).await?,
        None => None,
    };
    let Some(merged) = merged else {
        bare.fetch(&[base, head]).await?;
        return Ok(Side::between(bare, base, head).await?.into_changes(None));
    };
    let parted = bare.merge_base(base, &merged).await?;
    let mut commits = vec![base, head, merged.as_str()];
    commits.extend(parted.as_deref());
    bare.fetch(&commits).await?;
    let own = Side::between(bare, base, head).await?;
    let beside = Side::between(bare, &merged, head).await?;
    let targets = match &parted {
        Some(parted) => sensitive(bare, parted, &merged).await?,
        None => Sensitive::default(),
    };
    // As on the branch before, but not as on the target, which changed it.
    let files = beside.sensitive.files.iter();
    let files = files.filter(|it| targets.files.contains(it) && !own.sensitive.files.contains(it));
    let undone: Vec<String> = files.cloned().collect();
    let mut changes = own.into_changes(Some(beside));
    changes.sensitive.extend(undone);
    changes.cut |= targets.cut;
    changes.merged = true;
    Ok(changes)
}

/// What the commit changes as seen from one of its parents.
struct Side {
    diff: Diff,
    sensitive: Sensitive,
}

impl Side {
    async fn between(bare: &BareRepo, base: &str, head: &str) -> Result<Self, FactsError> {
        let (diff, sensitive) =
            tokio::try_join!(bare.diff(base, head), sensitive(bare, base, head))?;
        Ok(Self { diff, sensitive })
    }

    fn is_cut(&self) -> bool {
        self.diff.patch_cut || self.sensitive.cut
    }

    fn into_changes(self, other: Option<Self>) -> Changes {
        let (side, other) = match other {
            // A complete look from one parent shows at most too much.
            Some(other) if self.is_cut() && !other.is_cut() => (other, None),
            Some(other) if other.is_cut() => (self, None),
            other => (self, other),
        };
        let added = side.diff.added_lines();
        let placeholders = match &other {
            None => placeholders(added.map(|line| (line.path, line.number, line.text))),
            Some(other) => {
                let others = other.diff.added_lines();
                let others: HashSet<_> = others.map(|line| (line.path, line.number)).collect();
                let in_both = added.filter(|line| others.contains(&(line.path, line.number)));
                placeholders(in_both.map(|line| (line.path, line.number, line.text)))
            }
        };
        let files = side.diff.files.iter();
        let mut files: Vec<_> = files
            .map(|file| ChangedFile {
                path: file.path.clone(),
                added: (!file.binary).then_some(file.added),
                removed: (!file.binary).then_some(file.removed),
            })
            .collect();
        let cut = side.is_cut();
        let mut sensitive = side.sensitive.files;
        if let Some(other) = other {
            let others: HashSet<_> = other.diff.files.into_iter().map(|it| it.path).collect();
            files.retain(|file| others.contains(&file.path));
            sensitive.retain(|file| other.sensitive.files.contains(file));
        }
        Changes {
            files,
            placeholders,
            sensitive,
            cut,
            merged: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use agentmine_gateway::Upstream;

    use super::*;

    /// Runs git, and returns what it printed.
    fn git(repository: &Path, args: &[&str]) -> String {
        let mut git = Command::new("git");
        git.arg("-C").arg(repository);
        git.args(["-c", "user.name=t", "-c", "user.email=t@example.invalid"]);
        let done = git.args(args).output().unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    fn commit(repository: &Path, file: &str, text: &str) -> String {
        std::fs::write(repository.join(file), text).unwrap();
        git(repository, &["add", "-A"]);
        git(repository, &["commit", "-q", "-m", file]);
        git(repository, &["rev-parse", "HEAD"])
    }

    #[tokio::test]
    async fn a_merge_that_undoes_what_the_target_did_to_a_protected_file_names_it() {
        let repository = tempfile::tempdir().unwrap();
        let at = repository.path();
        git(at, &["init", "-q", "-b", "main"]);
        commit(at, ".travis.yml", "old");
        commit(at, "action.yml", "old");
        git(at, &["switch", "-q", "-c", "work"]);
        let base = commit(at, "work.txt", "work");
        git(at, &["switch", "-q", "main"]);
        commit(at, ".travis.yml", "new");
        commit(at, "action.yml", "new");
        git(at, &["switch", "-q", "work"]);
        git(at, &["merge", "-q", "--no-commit", "main"]);
        let head = commit(at, ".travis.yml", "old");
        let bare = BareRepo::new(Upstream::Path(at.to_owned())).unwrap();
        let changes = changes(&bare, (&base, &head), Some("main")).await.unwrap();
        assert_eq!(changes.sensitive, ["CI: .travis.yml"]);
        assert!(!changes.cut);
    }

    #[tokio::test]
    async fn files_that_decide_what_is_merged_and_how_are_named() {
        let repository = tempfile::tempdir().unwrap();
        let at = repository.path();
        git(at, &["init", "-q", "-b", "main"]);
        let base = commit(at, "a.txt", "a");
        std::fs::create_dir(at.join(".github")).unwrap();
        commit(at, ".github/settings.yml", "branches: []");
        let head = commit(at, ".mergify.yml", "pull_request_rules: []");
        let bare = BareRepo::new(Upstream::Path(at.to_owned())).unwrap();
        let changes = changes(&bare, (&base, &head), None).await.unwrap();
        let kind = "merging and the repository's settings";
        let named = [".github/settings.yml", ".mergify.yml"].map(|path| format!("{kind}: {path}"));
        assert_eq!(changes.sensitive, named);
    }
}
