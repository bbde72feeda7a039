//! What changed between two commits.

/// What changed between two commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff {
    /// The changed files, renamed ones under their new path.
    pub files: Vec<FileStat>,
    /// The unified patch, from its start up to 1 MiB.
    pub patch: String,
    /// Whether the patch or the list of files was truncated.
    pub patch_cut: bool,
}

/// How much of one file changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStat {
    /// The path, from the repository's root.
    pub path: String,
    /// The previous path of a renamed file.
    pub old_path: Option<String>,
    /// Lines added; 0 for a binary file.
    pub added: u64,
    /// Lines removed; 0 for a binary file.
    pub removed: u64,
    /// Whether git treats the file as binary.
    pub binary: bool,
}

/// The files that differ between two commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Without renames: the old path of a renamed file is one that was removed.
    pub files: Vec<ChangedPath>,
    /// Whether the list was truncated.
    pub cut: bool,
}

/// A file that differs between two commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedPath {
    /// The path, from the repository's root.
    pub path: String,
    /// Whether it is, or was, a submodule.
    pub submodule: bool,
}

/// The mode of a submodule.
const GITLINK: &str = "160000";

/// One line that the patch adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddedLine<'a> {
    /// The path as in the patch; git quotes unusual names.
    pub path: &'a str,
    /// The line's number in the new file, from 1.
    pub number: u64,
    /// The line without its end.
    pub text: &'a str,
}

impl Diff {
    /// The added lines of the patch.
    pub fn added_lines(&self) -> impl Iterator<Item = AddedLine<'_>> {
        let mut state = Position::default();
        self.patch
            .split('\n')
            .filter_map(move |line| state.step(line))
    }
}

/// A position in a patch. The counts in a hunk's header decide what is content, since an added line can
/// look like a header.
#[derive(Debug, Default)]
struct Position<'a> {
    path: &'a str,
    number: u64,
    old_left: u64,
    new_left: u64,
}

impl<'a> Position<'a> {
    fn step(&mut self, line: &'a str) -> Option<AddedLine<'a>> {
        if self.old_left == 0 && self.new_left == 0 {
            if let Some(path) = line.strip_prefix("+++ ") {
                let path = path.trim_end_matches('\t');
                self.path = path.strip_prefix("b/").unwrap_or(path);
            } else if let Some(hunk) = line.strip_prefix("@@ ") {
                self.hunk(hunk);
            }
            return None;
        }
        let (kind, text) = line.split_at_checked(1).unwrap_or((" ", ""));
        match kind {
            "+" => {
                let number = self.number;
                self.number += 1;
                self.new_left = self.new_left.saturating_sub(1);
                return Some(AddedLine {
                    path: self.path,
                    number,
                    text,
                });
            }
            "-" => self.old_left = self.old_left.saturating_sub(1),
            "\\" => {}
            _ => {
                self.number += 1;
                self.old_left = self.old_left.saturating_sub(1);
                self.new_left = self.new_left.saturating_sub(1);
            }
        }
        None
    }

    /// Reads `-1,2 +3,4 @@ …`.
    fn hunk(&mut self, text: &str) {
        let mut ranges = text.split(' ');
        let mut range = |sign| {
            let text = ranges.next()?.strip_prefix(sign)?;
            let (start, count) = text.split_once(',').unwrap_or((text, "1"));
            Some((start.parse::<u64>().ok()?, count.parse::<u64>().ok()?))
        };
        if let (Some((_, old)), Some((start, new))) = (range('-'), range('+')) {
            self.old_left = old;
            self.new_left = new;
            self.number = start;
        }
    }
}

/// Reads `git diff --raw -z --no-renames`: `:OLDMODE NEWMODE OLDID NEWID STATUS`, then the path.
pub(super) fn raw(bytes: &[u8]) -> Vec<ChangedPath> {
    let mut files = Vec::new();
    let mut parts = bytes.split(|byte| *byte == 0);
    while let (Some(change), Some(path)) = (parts.next(), parts.next()) {
        let change = String::from_utf8_lossy(change);
        let mut modes = change.trim_start_matches(':').split(' ').take(2);
        files.push(ChangedPath {
            path: String::from_utf8_lossy(path).into_owned(),
            submodule: modes.any(|mode| mode == GITLINK),
        });
    }
    files
}

/// Reads `git diff --numstat -z`.
pub(super) fn numstat(bytes: &[u8]) -> Vec<FileStat> {
    let mut files = Vec::new();
    let mut parts = bytes.split(|byte| *byte == 0);
    while let Some(part) = parts.next() {
        let text = String::from_utf8_lossy(part);
        let mut columns = text.splitn(3, '\t');
        let (Some(added), Some(removed), Some(path)) =
            (columns.next(), columns.next(), columns.next())
        else {
            continue;
        };
        let (path, old_path) = if path.is_empty() {
            // A rename: the old and the new path follow.
            let mut next =
                || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
            let old = next();
            (next(), Some(old))
        } else {
            (path.to_owned(), None)
        };
        files.push(FileStat {
            path,
            old_path,
            added: added.parse().unwrap_or(0),
            removed: removed.parse().unwrap_or(0),
            binary: added == "-",
        });
    }
    files
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_added_line_that_looks_like_a_header_is_content() {
        let diff = Diff {
            files: Vec::new(),
            patch: "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1,3 @@\n one\n+++ b/evil\n+two\n\
                    diff --git a/y b/y\n--- /dev/null\n+++ b/y\n@@ -0,0 +1 @@\n+three\n\\ No newline"
                .into(),
            patch_cut: false,
        };
        let lines: Vec<_> = diff
            .added_lines()
            .map(|line| (line.path, line.number, line.text))
            .collect();
        assert_eq!(
            lines,
            [("x", 2, "++ b/evil"), ("x", 3, "two"), ("y", 1, "three")]
        );
    }

    #[test]
    fn numstat_knows_renames_and_binary_files() {
        let files = numstat(b"1\t2\ta b\0-\t-\tpic\x000\t0\t\0old\0new\0");
        assert_eq!(files.len(), 3);
        assert_eq!((files[0].added, files[0].removed), (1, 2));
        assert!(files[1].binary);
        assert_eq!(files[2].path, "new");
        assert_eq!(files[2].old_path.as_deref(), Some("old"));
        assert_eq!((&files[0].old_path, &files[1].old_path), (&None, &None));
    }

    proptest! {
        #[test]
        fn any_patch_ends_without_a_panic(patch in "[ +\\-@0-9,a/é\n]{0,200}") {
            let diff = Diff { files: Vec::new(), patch, patch_cut: false };
            prop_assert!(diff.added_lines().count() <= 200);
        }
    }
}
