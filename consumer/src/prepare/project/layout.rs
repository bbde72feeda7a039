//! Which of the files that describe a project a repository has, and in which of its folders.

use std::collections::{BTreeMap, BTreeSet};

/// Folders that hold other projects' code, or samples.
const FOREIGN: [&str; 11] = [
    "node_modules",
    "vendor",
    "third_party",
    "testdata",
    "fixtures",
    "__fixtures__",
    "example",
    "examples",
    "templates",
    "docs",
    ".github",
];
/// How many folders are checked.
const MAX_FOLDERS: usize = 5_000;
/// The name of files with attributes.
const ATTRIBUTES: &str = ".gitattributes";
/// How deep below the root a project is looked for.
const MAX_DEPTH: usize = 3;

/// The files of a repository, by folder. The root's folder is the empty string.
#[derive(Debug, Default)]
pub(super) struct Layout {
    folders: BTreeMap<String, BTreeSet<String>>,
    texts: BTreeMap<String, String>,
    /// The package.json files among them, parsed once.
    packages: BTreeMap<String, serde_json::Value>,
    /// Whether a file may say how git treats others, in whichever folder.
    may_have_attributes: bool,
}

impl Layout {
    /// Reads the output of `git ls-files`, one path per line. Entries of a folder that are folders end
    /// with `/`.
    pub(super) fn parse(listing: &str) -> Self {
        let mut folders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for path in listing.lines() {
            let mut parts: Vec<&str> = path.split('/').collect();
            // Only entries of the upper folders matter.
            let depth = parts.len() - 1;
            if depth > MAX_DEPTH {
                parts.truncate(MAX_DEPTH + 1);
            }
            let Some(mut entry) = parts.pop().map(str::to_owned) else {
                continue;
            };
            if depth > MAX_DEPTH {
                entry.push('/');
            }
            loop {
                let folder = parts.join("/");
                let is_known = folders.contains_key(&folder);
                if usable(&parts) && (is_known || folders.len() < MAX_FOLDERS) {
                    folders.entry(folder).or_default().insert(entry);
                }
                let Some(name) = parts.pop() else { break };
                entry = format!("{name}/");
            }
        }
        Self {
            folders,
            may_have_attributes: listing.contains(ATTRIBUTES),
            ..Self::default()
        }
    }

    /// Notes that the listing was cut.
    pub(super) fn mark_incomplete(&mut self) {
        self.may_have_attributes = true;
    }

    /// Whether there may be a file of attributes (gitattributes(5)).
    pub(super) fn may_have_attributes(&self) -> bool {
        self.may_have_attributes
    }

    /// All folders, the root first.
    pub(super) fn folders(&self) -> impl Iterator<Item = &str> {
        self.folders.keys().map(String::as_str)
    }

    pub(super) fn has(&self, folder: &str, name: &str) -> bool {
        self.folders
            .get(folder)
            .is_some_and(|entries| entries.contains(name))
    }

    /// The names in a folder.
    pub(super) fn entries(&self, folder: &str) -> impl Iterator<Item = &str> {
        let entries = self.folders.get(folder).into_iter().flatten();
        entries.map(String::as_str)
    }

    /// Whether one of the folders above `folder` satisfies a condition.
    pub(super) fn above(&self, folder: &str, is_so: impl Fn(&str) -> bool) -> bool {
        let mut folder = folder;
        while !folder.is_empty() {
            folder = folder.rsplit_once('/').map_or("", |(above, _)| above);
            if is_so(folder) {
                return true;
            }
        }
        false
    }

    /// The files named `name`, as paths.
    pub(super) fn paths(&self, name: &str) -> Vec<String> {
        self.folders()
            .filter(|folder| self.has(folder, name))
            .map(|folder| join(folder, name))
            .collect()
    }

    pub(super) fn add_text(&mut self, path: String, text: String) {
        if path.ends_with("package.json")
            // Package managers ignore the mark of an encoding that some editors write.
            && let Ok(package) = serde_json::from_str(text.trim_start_matches('\u{feff}'))
        {
            self.packages.insert(path.clone(), package);
        }
        self.texts.insert(path, text);
    }

    /// The package.json of a folder.
    pub(super) fn package(&self, folder: &str) -> Option<&serde_json::Value> {
        self.packages.get(&join(folder, "package.json"))
    }

    /// The text of a file that was added.
    pub(super) fn text(&self, folder: &str, name: &str) -> Option<&str> {
        self.texts.get(&join(folder, name)).map(String::as_str)
    }
}

/// The path of an entry of a folder.
pub(super) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

/// Whether a project may be in this folder. Its name becomes part of a shell command.
fn usable(parts: &[&str]) -> bool {
    let is_usable = |part: &&str| !FOREIGN.contains(part) && is_plain(part);
    parts.len() <= MAX_DEPTH && parts.iter().all(is_usable)
}

/// Whether a name can be part of a shell command as it is.
pub(super) fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._@+-".contains(c);
    !name.starts_with('-') && name.chars().all(plain)
}

/// `command` in `folder`.
pub(super) fn inside(folder: &str, command: &str) -> String {
    if folder.is_empty() {
        command.to_owned()
    } else {
        format!("cd {folder} && {command}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projects_are_found_below_the_root_but_not_in_other_peoples_code() {
        let layout = Layout::parse(
            "README.md\nweb/package.json\nweb/tests/a.js\nweb/node_modules/x/package.json\na/b/c/d/package.json\nodd name/package.json\n",
        );
        assert_eq!(layout.paths("package.json"), ["web/package.json"]);
        assert!(layout.has("web", "tests/") && layout.has("", "web/"));
        assert!(layout.above("web/tests", |folder| folder == "web"));
        assert!(!layout.above("", |_| true));
    }

    #[test]
    fn a_package_with_a_mark_of_its_encoding_is_read() {
        let mut layout = Layout::parse("package.json\n");
        let text = "\u{feff}{\"scripts\": {\"test\": \"jest\"}}";
        layout.add_text("package.json".into(), text.into());
        let package = layout.package("").unwrap();
        assert_eq!(package["scripts"]["test"], "jest");
    }
}
