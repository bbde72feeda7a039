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
/// Commits that a push is compared with.
const MAX_BASES: usize = 8;
/// Folders and commits that are read of one push.
const MAX_READ: usize = 200_000;
/// Files and folders in one commit, those counted several times that are in folders with the same content.
const MAX_PATHS: u64 = 3_000_000;
/// Length of a path, in bytes. No checkout on Linux can have a longer one.
const MAX_PATH: usize = 4096;
/// What is held of the files and folders of one push, in bytes.
const MAX_HELD: usize = 256 * 1024 * 1024;
/// What each of them takes in addition to its path and ids, in bytes.
const HELD_BESIDE: usize = 128;
/// Nesting of folders.
const MAX_DEPTH: u64 = 1000;
/// Size of the list of upstream's commits, in bytes.
const MAX_LIST: usize = 128 * 1024 * 1024;
/// Why a push is refused that builds on what was never checked.
pub(super) fn unknown(commit: &str) -> String {
    format!(
        "the push depends on a commit that is neither in it nor on a branch or tag of the repository: {commit}"
    )
}

/// Size of all messages together, in bytes.
const MAX_MESSAGES: usize = 64 * 1024 * 1024;
/// Size of one folder or commit, in bytes.
const MAX_OBJECT: u64 = 32 * 1024 * 1024;
/// The file of git that lists submodules.
const SUBMODULES: &str = ".gitmodules";

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
    /// The lists of submodules in new folders, also those whose content upstream has, under this or another name.
    pub(super) submodules: Vec<NewFile>,
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
    /// The commits that the push is compared with: the newest of upstream's that it is based on, several after a merge.
    pub(super) fn bases(&self) -> Vec<&str> {
        let bases = self.boundary.iter().take(MAX_BASES);
        bases.map(String::as_str).collect()
    }

    /// Whether it is based on more commits than [`Self::bases`] returns. Whoever pushes can influence which are missing.
    pub(super) fn has_more_bases(&self) -> bool {
        self.boundary.len() > MAX_BASES
    }

    /// What a push of one of its commits would add. `parents` are those of the commits in the pack.
    pub(super) fn up_to(&self, parents: &HashMap<String, Vec<String>>, commit: &str) -> Self {
        let upstreams: HashSet<String> = self.boundary.iter().cloned().collect();
        // Each of its commits leads to others of it, and to the boundary.
        Self::until(parents, commit, &upstreams).unwrap_or_default()
    }

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
            .ok()
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
        if let Ok(fresh) = Self::until(parents, new, &known) {
            return Ok(fresh);
        }
        repo.fetch_tags().await.map_err(|e| unfetched(&e))?;
        let known = upstreams(repo, parents, new).await?;
        Self::until(parents, new, &known).map_err(unknown)
    }

    /// The commits from `new` down to those that upstream has. The error is one that is neither among these nor in the pack.
    fn until<'a>(
        parents: &'a HashMap<String, Vec<String>>,
        new: &'a str,
        upstreams: &HashSet<String>,
    ) -> Result<Self, &'a str> {
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
            let parents = parents.get(commit).ok_or(commit)?;
            fresh.commits.push(commit.to_owned());
            next.extend(parents.iter().map(String::as_str));
        }
        fresh.commits.reverse();
        Ok(fresh)
    }

    /// Reads what the new commits hold, as far as the push brings it.
    pub(super) async fn content(&self, objects: &mut Objects) -> Result<Content, String> {
        let mut reader = Reader {
            objects,
            seen: HashSet::new(),
            lists: HashSet::new(),
            trees: HashMap::new(),
            sizes: HashMap::new(),
            read: 0,
            room: Room(MAX_HELD),
            here: Room(MAX_HELD),
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

/// How large a folder is.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    /// Files and folders in it, at any depth.
    paths: u64,
    depth: u64,
}

/// A folder that was read.
#[derive(Default)]
struct Tree {
    files: u64,
    /// How often it has each folder, under different names.
    folders: HashMap<String, u64>,
}

struct Reader<'a> {
    objects: &'a mut Objects,
    /// Folders and files that were seen, under whatever path.
    seen: HashSet<String>,
    /// Files that were seen as a list of submodules: they may have been seen under another name before.
    lists: HashSet<String>,
    /// Folders of the commit that is read, until they are measured.
    trees: HashMap<String, Tree>,
    /// Of each folder that was measured. Those that the push does not bring count as empty.
    sizes: HashMap<String, Size>,
    read: usize,
    room: Room,
    /// What may be held of the folders of one commit.
    here: Room,
}

/// What may still be held of the files and folders of a push, in bytes: few bytes of a push can name very many.
struct Room(usize);

impl Room {
    fn take(&mut self, id: &str, path: &str) -> Result<(), String> {
        let left = self.0.checked_sub(HELD_BESIDE + 3 * id.len() + path.len());
        self.0 = left
            .ok_or("the push has more files and folders than can be checked; push it in parts")?;
        Ok(())
    }
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
        let mut next = Vec::new();
        if self.seen.insert(root.to_owned()) {
            next.push((root.to_owned(), String::new()));
        }
        while let Some((tree, path)) = next.pop() {
            let Some(bytes) = self.object(&tree, "tree").await? else {
                continue;
            };
            let known = self.tree(&bytes, (&tree, &path), (id, &mut *content), &mut next)?;
            self.trees.insert(tree, known);
        }
        self.measure(root)?;
        content.add(Message {
            commit: id.to_owned(),
            text: bytes,
        })
    }

    /// Reads the folder `tree` at `folder`. Adds the files that were not seen before to the content of the commit, and such
    /// folders to those that are read next.
    fn tree(
        &mut self,
        bytes: &[u8],
        (tree, folder): (&str, &str),
        (commit, content): (&str, &mut Content),
        next: &mut Vec<(String, String)>,
    ) -> Result<Tree, String> {
        let mut known = Tree::default();
        for entry in entries(bytes, tree.len() / 2) {
            let Entry { mode, name, id } = entry?;
            let path = match folder {
                "" => name.clone(),
                folder => format!("{folder}/{name}"),
            };
            if path.len() > MAX_PATH {
                return Err(format!(
                    "a path of the push is longer than {MAX_PATH} bytes"
                ));
            }
            let file = |id: &str, path: &str| NewFile {
                id: id.to_owned(),
                path: path.to_owned(),
                commit: commit.to_owned(),
            };
            match mode {
                Mode::Folder => {
                    if !known.folders.contains_key(&id) {
                        self.here.take(&id, &path)?;
                    }
                    *known.folders.entry(id.clone()).or_default() += 1;
                    if self.seen.insert(id.clone()) {
                        self.room.take(&id, &path)?;
                        next.push((id, path));
                    }
                }
                Mode::File => {
                    known.files += 1;
                    if name.eq_ignore_ascii_case(SUBMODULES) && self.lists.insert(id.clone()) {
                        self.room.take(&id, &path)?;
                        content.submodules.push(file(&id, &path));
                    }
                    if self.seen.insert(id.clone()) {
                        self.room.take(&id, &path)?;
                        content.files.push(file(&id, &path));
                    }
                }
                Mode::Submodule => known.files += 1,
            }
        }
        Ok(known)
    }

    /// Refuses a folder that few objects make very large or deep. Each folder is measured once.
    fn measure(&mut self, root: &str) -> Result<(), String> {
        let Self {
            trees, sizes, here, ..
        } = self;
        let mut next = vec![root];
        while let Some(&id) = next.last() {
            if sizes.contains_key(id) {
                next.pop();
                continue;
            }
            let Some(tree) = trees.get(id) else {
                // Upstream has it.
                sizes.insert(id.to_owned(), Size::default());
                next.pop();
                continue;
            };
            let before = next.len();
            let below = tree.folders.keys().map(String::as_str);
            next.extend(below.filter(|id| !sizes.contains_key(*id)));
            if next.len() > before {
                continue;
            }
            let mut size = Size {
                paths: tree.files,
                depth: 0,
            };
            for (id, times) in &tree.folders {
                let below = sizes.get(id).copied().unwrap_or_default();
                let paths = below.paths.saturating_add(1).saturating_mul(*times);
                size.paths = size.paths.saturating_add(paths);
                size.depth = size.depth.max(below.depth);
            }
            size.depth += 1;
            if size.paths > MAX_PATHS {
                return Err(format!(
                    "a commit of the push has more than {MAX_PATHS} files and folders"
                ));
            }
            if size.depth > MAX_DEPTH {
                return Err(format!(
                    "folders of the push are nested more than {MAX_DEPTH} deep"
                ));
            }
            sizes.insert(id.to_owned(), size);
            next.pop();
        }
        trees.clear();
        *here = Room(MAX_HELD);
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

impl Mode {
    /// As git reads it, which ignores zeros at the start and unusual permissions. `None` for a number with more than 16
    /// bits, of which versions of git keep different parts.
    fn of(digits: &[u8]) -> Option<Self> {
        let digits = std::str::from_utf8(digits).ok()?;
        if !digits.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let mode = u16::from_str_radix(digits, 8).ok()?;
        Some(match mode & 0o170_000 {
            0o040_000 => Self::Folder,
            0o100_000 | 0o120_000 => Self::File,
            // Git takes everything else for one.
            _ => Self::Submodule,
        })
    }
}

/// An entry of a folder.
struct Entry {
    mode: Mode,
    name: String,
    id: String,
}

/// The entries of a folder. One that cannot be read ends them with an error: what it hides would not be checked.
fn entries(bytes: &[u8], id_length: usize) -> impl Iterator<Item = Result<Entry, String>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some((entry, after)) = first_entry(rest, id_length) else {
            rest = &[];
            return Some(Err(
                "a folder of the push has an entry that cannot be read".to_owned()
            ));
        };
        rest = after;
        Some(Ok(entry))
    })
}

/// The first entry of a folder, and what comes after it.
fn first_entry(bytes: &[u8], id_length: usize) -> Option<(Entry, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let (head, after) = bytes.split_at(end);
    let (id, rest) = after.get(1..)?.split_at_checked(id_length)?;
    let space = head.iter().position(|byte| *byte == b' ')?;
    let entry = Entry {
        mode: Mode::of(&head[..space])?,
        name: String::from_utf8_lossy(&head[space + 1..]).into_owned(),
        id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    Some((entry, rest))
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

    #[test]
    fn what_is_held_of_a_push_is_limited() {
        let (id, path) = ("0".repeat(40), "x".repeat(100));
        let mut room = Room(2 * (HELD_BESIDE + 3 * id.len() + path.len()));
        assert_eq!(room.take(&id, &path), Ok(()));
        assert_eq!(room.take(&id, &path), Ok(()));
        assert!(room.take(&id, "").unwrap_err().contains("in parts"));
    }

    #[test]
    fn a_mode_is_read_as_git_reads_it() {
        for (digits, expected) in [
            ("40000", Some(Mode::Folder)),
            ("040000", Some(Mode::Folder)),
            ("00040000", Some(Mode::Folder)),
            ("40755", Some(Mode::Folder)),
            ("100644", Some(Mode::File)),
            ("100664", Some(Mode::File)),
            ("120000", Some(Mode::File)),
            ("160000", Some(Mode::Submodule)),
            ("140000", Some(Mode::Submodule)),
            // Versions of git that keep 16 or 32 bits of it see a folder.
            ("240000", None),
            ("40000040000", None),
            ("+40000", None),
            ("4x", None),
            ("", None),
        ] {
            assert_eq!(Mode::of(digits.as_bytes()), expected, "{digits}");
        }
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_an_error() {
        let good = [b"100644 a\0".as_slice(), &[7_u8; 20]].concat();
        let bad = [b"240000 b\0".as_slice(), &[7_u8; 20]].concat();
        let read = |bytes: &[u8]| entries(bytes, 20).map(|it| it.is_ok()).collect::<Vec<_>>();
        assert_eq!(read(&good), [true]);
        assert_eq!(
            read(&[good.as_slice(), &bad, &good].concat()),
            [true, false]
        );
        assert_eq!(
            read(&[good.as_slice(), &good[..12]].concat()),
            [true, false]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(entries(&bytes, 20).count() <= bytes.len());
        }
    }
}
