//! What a push adds: its new commits, and the files in them that were not in the commits before.
//!
//! A pack may hold much that is not new: when a branch has moved upstream, git sends the history before it
//! again. Commits that upstream has are distinguished by the list of its branches and tags, or else by their history. A
//! commit that is under another ref, such as that of a pull request, may be anybody's: it is not upstream's here, and a
//! push that depends on it without bringing it is refused.

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::Duration;

use super::objects::Objects;
use crate::facts::{BareRepo, FactsError};
use crate::git_process;
use crate::wire::object_id::is_id;

/// Time limit for one git command.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(300);
/// Folders and commits that are read of one push.
const MAX_READ: usize = 200_000;
/// Files in one commit, those counted several times that are in folders with the same content.
const MAX_PATHS: u64 = 3_000_000;
/// Nesting of folders.
const MAX_DEPTH: u64 = 1000;
/// Size of the list of upstream's commits, in bytes.
const MAX_LIST: usize = 128 * 1024 * 1024;
/// Why a push is refused that builds on what was never checked.
const UNKNOWN: &str =
    "the push depends on a commit that is neither in it nor on a branch or tag of the repository";
/// Size of all messages together, in bytes.
const MAX_MESSAGES: usize = 64 * 1024 * 1024;
/// Size of one folder or commit, in bytes.
const MAX_OBJECT: u64 = 32 * 1024 * 1024;

/// The commits that a push adds.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    /// Oldest first.
    pub(super) commits: Vec<String>,
    /// Commits before them, which upstream has.
    pub(super) boundary: Vec<String>,
}

/// A file in a new commit.
#[derive(Debug)]
pub(super) struct NewFile {
    pub(super) id: String,
    pub(super) path: String,
    pub(super) commit: String,
}

/// A commit's message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) commit: String,
    pub(super) text: Vec<u8>,
}

/// What the new commits hold.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) files: Vec<NewFile>,
    pub(super) messages: Vec<Message>,
    /// Size of the messages, in bytes.
    held: usize,
}

impl Content {
    fn add(&mut self, message: Message) -> Result<(), String> {
        self.held += message.text.len();
        if self.held > MAX_MESSAGES {
            return Err(format!(
                "the messages of the push's commits have more than {MAX_MESSAGES} bytes in all; push it in parts"
            ));
        }
        self.messages.push(message);
        Ok(())
    }
}

impl Fresh {
    /// Of a push of `new`, if the list of refs shows it. `parents` are those of the commits in the pack, `tips` the ids of
    /// upstream's branches and tags.
    pub(super) fn known(
        parents: &HashMap<String, Vec<String>>,
        new: &str,
        tips: &HashSet<String>,
    ) -> Option<Self> {
        // At the start of a history: it may be upstream's.
        let is_start = |commit: &String| parents.get(commit).is_some_and(Vec::is_empty);
        Self::until(parents, new, tips)
            .filter(|fresh| tips.is_empty() || !fresh.commits.iter().any(is_start))
    }

    /// Of a push of `new`, by the history of upstream's branches, and of its tags if those do not suffice.
    pub(super) async fn listed(
        repo: &BareRepo,
        parents: &HashMap<String, Vec<String>>,
        new: &str,
    ) -> Result<Self, String> {
        repo.fetch_history().await.map_err(|e| unfetched(&e))?;
        let known = upstreams(repo, parents, new).await?;
        if let Some(fresh) = Self::until(parents, new, &known) {
            return Ok(fresh);
        }
        repo.fetch_tags().await.map_err(|e| unfetched(&e))?;
        let known = upstreams(repo, parents, new).await?;
        Self::until(parents, new, &known).ok_or_else(|| UNKNOWN.to_owned())
    }

    /// The commits from `new` down to those that upstream has; `None` if one is neither among these nor in the pack.
    fn until(
        parents: &HashMap<String, Vec<String>>,
        new: &str,
        upstreams: &HashSet<String>,
    ) -> Option<Self> {
        let mut fresh = Self::default();
        let mut seen = HashSet::new();
        let mut next = vec![new];
        while let Some(commit) = next.pop() {
            if !seen.insert(commit) {
                continue;
            }
            if upstreams.contains(commit) {
                fresh.boundary.push(commit.to_owned());
                continue;
            }
            let parents = parents.get(commit)?;
            fresh.commits.push(commit.to_owned());
            next.extend(parents.iter().map(String::as_str));
        }
        fresh.commits.reverse();
        Some(fresh)
    }

    /// Reads what the new commits hold, as far as the push brings it.
    pub(super) async fn content(&self, objects: &mut Objects) -> Result<Content, String> {
        let mut reader = Reader {
            objects,
            seen: HashSet::new(),
            trees: HashMap::new(),
            read: 0,
        };
        for commit in &self.boundary {
            reader.commit(commit, &mut Content::default()).await?;
        }
        let mut content = Content::default();
        for commit in &self.commits {
            reader.commit(commit, &mut content).await?;
        }
        Ok(content)
    }
}

pub(super) fn unfetched(error: &FactsError) -> String {
    format!("upstream's history could not be fetched to check the push: {error}")
}

/// Those of the commits that a push brings or names that are in the history fetched from upstream.
async fn upstreams(
    repo: &BareRepo,
    parents: &HashMap<String, Vec<String>>,
    new: &str,
) -> Result<HashSet<String>, String> {
    let unlisted = |why: String| format!("the new commits could not be listed: {why}");
    let mut git = repo.git();
    git.args(["rev-list", "--glob=refs/upstream/*"]);
    let listed = git_process::run(git, TIME_LIMIT, MAX_LIST)
        .await
        .map_err(|error| unlisted(error.to_string()))?;
    // Newest first: what is cut off counts as new.
    if !listed.cut && !listed.status.success() {
        return Err(unlisted(crate::printable::printable(&listed.stderr)));
    }
    let named: HashSet<&str> = parents
        .iter()
        .flat_map(|(commit, parents)| parents.iter().chain([commit]))
        .map(String::as_str)
        .chain([new])
        .collect();
    let text = String::from_utf8_lossy(&listed.stdout);
    let known = text.lines().filter(|id| named.contains(id));
    Ok(known.map(str::to_owned).collect())
}

/// What is known of a folder.
struct Tree {
    files: u64,
    folders: Vec<String>,
}

struct Reader<'a> {
    objects: &'a mut Objects,
    /// Folders and files that were seen, under whatever path.
    seen: HashSet<String>,
    trees: HashMap<String, Tree>,
    read: usize,
}

impl Reader<'_> {
    async fn object(&mut self, id: &str, kind: &str) -> Result<Option<Vec<u8>>, String> {
        self.read += 1;
        if self.read > MAX_READ {
            return Err(format!(
                "the push has more than {MAX_READ} folders and commits; push it in parts"
            ));
        }
        let found = self
            .objects
            .read(id, MAX_OBJECT)
            .await
            .map_err(unreadable)?;
        let Some(found) = found.filter(|found| found.kind == kind) else {
            return Ok(None);
        };
        if found.size > MAX_OBJECT {
            return Err(format!(
                "a {kind} of the push is larger than {MAX_OBJECT} bytes"
            ));
        }
        Ok(Some(found.bytes))
    }

    /// Adds the message and the files of a commit that were not seen before.
    async fn commit(&mut self, id: &str, content: &mut Content) -> Result<(), String> {
        let Some(bytes) = self.object(id, "commit").await? else {
            return Ok(());
        };
        let text = String::from_utf8_lossy(bytes.get(..200).unwrap_or(&bytes)).into_owned();
        let root = text
            .strip_prefix("tree ")
            .and_then(|text| text.lines().next());
        let Some(root) = root.filter(|id| is_id(id)) else {
            return Ok(());
        };
        let mut next = vec![(root.to_owned(), String::new())];
        while let Some((tree, path)) = next.pop() {
            if !self.seen.insert(tree.clone()) {
                continue;
            }
            let Some(bytes) = self.object(&tree, "tree").await? else {
                continue;
            };
            let mut known = Tree {
                files: 0,
                folders: Vec::new(),
            };
            for (mode, name, entry) in entries(&bytes, tree.len() / 2) {
                let path = match path.as_str() {
                    "" => name,
                    folder => format!("{folder}/{name}"),
                };
                match mode {
                    Mode::Folder => {
                        known.folders.push(entry.clone());
                        next.push((entry, path));
                    }
                    Mode::File => {
                        known.files += 1;
                        if self.seen.insert(entry.clone()) {
                            let commit = id.to_owned();
                            content.files.push(NewFile {
                                id: entry,
                                path,
                                commit,
                            });
                        }
                    }
                    Mode::Submodule => known.files += 1,
                }
            }
            self.trees.insert(tree, known);
        }
        self.measure(root)?;
        content.add(Message {
            commit: id.to_owned(),
            text: bytes,
        })
    }

    /// Refuses a folder that few objects make very large or deep.
    fn measure(&self, root: &str) -> Result<(), String> {
        let mut sizes: HashMap<&str, (u64, u64)> = HashMap::new();
        let mut next = vec![root];
        while let Some(&id) = next.last() {
            let Some(tree) = self.trees.get(id) else {
                // Upstream has it.
                sizes.insert(id, (0, 0));
                next.pop();
                continue;
            };
            let before = next.len();
            let unknown = tree.folders.iter().map(String::as_str);
            next.extend(unknown.filter(|id| !sizes.contains_key(id)));
            if next.len() > before {
                continue;
            }
            let below = tree.folders.iter().filter_map(|id| sizes.get(id.as_str()));
            let (paths, depth) = below.fold((tree.files, 0), |(paths, depth), below| {
                (paths.saturating_add(below.0), below.1.max(depth))
            });
            if paths > MAX_PATHS {
                return Err(format!(
                    "a commit of the push has more than {MAX_PATHS} files"
                ));
            }
            if depth + 1 > MAX_DEPTH {
                return Err(format!(
                    "folders of the push are nested more than {MAX_DEPTH} deep"
                ));
            }
            sizes.insert(id, (paths, depth + 1));
            next.pop();
        }
        Ok(())
    }
}

fn unreadable(error: io::Error) -> String {
    format!("the objects of the push could not be read within the limits: {error}")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Folder,
    /// A file or a link.
    File,
    Submodule,
}

/// The entries of a folder. What is malformed ends the list; git's own checks refuse it before.
fn entries(mut bytes: &[u8], id_length: usize) -> Vec<(Mode, String, String)> {
    let mut found = Vec::new();
    while let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let Some(id) = bytes.get(end + 1..end + 1 + id_length) else {
            break;
        };
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let Some((mode, name)) = head.split_once(' ') else {
            break;
        };
        let mode = match mode {
            "40000" | "040000" => Mode::Folder,
            "160000" => Mode::Submodule,
            _ => Mode::File,
        };
        found.push((mode, name.to_owned(), id));
        bytes = &bytes[end + 1 + id_length..];
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn graph() -> HashMap<String, Vec<String>> {
        [("d", vec!["c", "m"]), ("c", vec!["b"]), ("root", vec![])]
            .into_iter()
            .map(|(id, parents)| (id.into(), parents.into_iter().map(String::from).collect()))
            .collect()
    }

    fn known(new: &str, tips: &[&str]) -> Option<(Vec<String>, Vec<String>)> {
        let tips = tips.iter().map(|tip| (*tip).to_owned()).collect();
        let found = Fresh::known(&graph(), new, &tips)?;
        let mut boundary = found.boundary;
        boundary.sort_unstable();
        Some((found.commits, boundary))
    }

    #[test]
    fn the_refs_tell_what_is_new_where_they_enclose_it() {
        let both = Some((vec!["c".into(), "d".into()], vec!["b".into(), "m".into()]));
        assert_eq!(known("d", &["b", "m", "x"]), both);
        assert_eq!(known("d", &["b"]), None, "m may be upstream's or not");
        assert_eq!(known("root", &["b"]), None);
        assert_eq!(known("root", &[]), Some((vec!["root".into()], vec![])));
    }

    #[test]
    fn messages_that_are_too_large_together_are_refused() {
        let mut content = Content::default();
        let message = || Message {
            commit: "c".into(),
            text: vec![0; MAX_MESSAGES / 2],
        };
        assert_eq!(content.add(message()), Ok(()));
        assert_eq!(content.add(message()), Ok(()));
        let refused = content.add(Message {
            commit: "c".into(),
            text: vec![0],
        });
        assert!(refused.unwrap_err().contains("messages"));
        assert_eq!(content.messages.len(), 2);
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(entries(&bytes, 20).len() <= bytes.len());
        }
    }
}
