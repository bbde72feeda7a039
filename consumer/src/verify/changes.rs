//! What the pushed commit changes.
//!
//! Where the branch took in commits of its target, what is new to both sides counts, as in a combined diff of git: neither
//! what others did on the target, nor what was on the branch before.

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
    bare.fetch(&[base, head, &merged]).await?;
    let own = Side::between(bare, base, head).await?;
    let beside = Side::between(bare, &merged, head).await?;
    Ok(own.into_changes(Some(beside)))
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
        }
    }
}
