//! Which files git ignores, and which it converts on their way into the repository.

use std::collections::BTreeMap;

use super::pattern::Pattern;
use super::unsure::{Unsure, only_git};

/// What a file's attributes may do to its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Conversion {
    /// A program changes it, or its encoding is changed.
    Always,
    /// `$Id$`.
    Ident,
    /// The ends of lines.
    Lines,
}

/// The rules of one folder, or those of the whole repository.
#[derive(Debug, Default, Clone)]
pub(crate) struct Rules {
    ignored: Vec<Pattern>,
    converted: Vec<(Pattern, Conversion)>,
}

impl Rules {
    /// Adds the lines of a `.gitignore`; later lines go before earlier ones.
    pub(crate) fn ignore(&mut self, file: &[u8]) -> Result<(), Unsure> {
        let file = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
        for line in file.split(|&byte| byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.first() != Some(&b'#') {
                self.ignored.extend(Pattern::new(without_spaces(line))?);
            }
        }
        Ok(())
    }

    /// Adds the lines of a `.gitattributes`.
    pub(crate) fn convert(&mut self, file: &[u8]) -> Result<(), Unsure> {
        let file = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
        for line in file.split(|&byte| byte == b'\n') {
            let mut words = line
                .split(|byte| b" \t\r".contains(byte))
                .filter(|word| !word.is_empty());
            let Some(pattern) = words.next().filter(|word| !word.starts_with(b"#")) else {
                continue;
            };
            if pattern.starts_with(b"[attr]") || pattern.starts_with(b"\"") {
                return only_git("a macro or a quoted name in the attributes");
            }
            let conversions: Vec<Conversion> = words.filter_map(conversion).collect();
            if let Some(pattern) = Pattern::new(pattern)? {
                let all = conversions.into_iter().map(|it| (pattern.clone(), it));
                self.converted.extend(all);
            }
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.ignored.is_empty() && self.converted.is_empty()
    }

    /// Whether the last pattern that matches ignores the path; `None` if none matches.
    fn ignores(&self, path: &[u8], is_folder: bool) -> Result<Option<bool>, Unsure> {
        for pattern in self.ignored.iter().rev() {
            if pattern.matches(path, is_folder)? {
                return Ok(Some(!pattern.is_negated));
            }
        }
        Ok(None)
    }
}

/// An attribute that can change a file's content, whether or not another line takes it back.
fn conversion(attribute: &[u8]) -> Option<Conversion> {
    let name = attribute.split(|&byte| byte == b'=').next()?;
    match name {
        b"filter" | b"working-tree-encoding" => Some(Conversion::Always),
        b"ident" => Some(Conversion::Ident),
        b"text" | b"crlf" | b"eol" | b"-text" | b"-crlf" => Some(Conversion::Lines),
        _ => None,
    }
}

/// Without the spaces at the end, unless a backslash is before them.
fn without_spaces(line: &[u8]) -> &[u8] {
    let mut end = line.len();
    while end > 0 && line[end - 1] == b' ' {
        let slashes = line[..end - 1].iter().rev().take_while(|&&it| it == b'\\');
        if slashes.count() % 2 == 1 {
            break;
        }
        end -= 1;
    }
    &line[..end]
}

/// The rules of all folders.
#[derive(Debug, Default)]
pub(crate) struct AllRules {
    /// In the order of precedence: of the repository, of the user.
    outside: Vec<Rules>,
    folders: BTreeMap<Vec<u8>, Rules>,
    /// Folders that are ignored before all rules.
    omitted: Vec<Vec<u8>>,
    /// Whether git changes the ends of lines without an attribute.
    converts_lines: bool,
}

impl AllRules {
    /// Only the rules that are not in the project.
    pub(crate) fn new(outside: Vec<Rules>, omitted: Vec<Vec<u8>>, converts_lines: bool) -> Self {
        Self {
            outside,
            folders: BTreeMap::new(),
            omitted,
            converts_lines,
        }
    }

    /// Sets the rules of a folder.
    pub(crate) fn set(&mut self, folder: &[u8], rules: Rules) {
        if !rules.is_empty() {
            self.folders.insert(folder.to_owned(), rules);
        }
    }

    /// Forgets the rules of a folder and of those in it.
    pub(crate) fn forget(&mut self, folder: &[u8]) {
        self.folders.retain(|path, _| !is_in(path, folder));
    }

    /// The rules of the folders with a path, the nearest first, each with the path as it sees it.
    fn of<'a>(&'a self, path: &'a [u8]) -> impl Iterator<Item = (&'a Rules, &'a [u8])> {
        let slashes = path
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, byte)| **byte == b'/');
        let folders = slashes.map(|(at, _)| (&path[..at], &path[at + 1..]));
        folders
            .chain([(&b""[..], path)])
            .filter_map(|(folder, rest)| Some((self.folders.get(folder)?, rest)))
    }

    /// Whether git ignores a path in a folder that it does not ignore.
    pub(crate) fn ignores(&self, path: &[u8], is_folder: bool) -> Result<bool, Unsure> {
        if is_folder && self.omitted.iter().any(|folder| folder == path) {
            return Ok(true);
        }
        let outside = self.outside.iter().map(|rules| (rules, path));
        for (rules, path) in self.of(path).chain(outside) {
            if let Some(ignores) = rules.ignores(path, is_folder)? {
                return Ok(ignores);
            }
        }
        Ok(false)
    }

    /// Whether git ignores a path or a folder that it is in.
    pub(crate) fn ignores_any_of(&self, path: &[u8]) -> Result<bool, Unsure> {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (slash, _) in slashes {
            if self.ignores(&path[..slash], true)? {
                return Ok(true);
            }
        }
        self.ignores(path, false)
    }

    /// Fails if git may not store this content of a file as it is.
    pub(crate) fn ensure_unchanged(&self, path: &[u8], content: &[u8]) -> Result<(), Unsure> {
        let has_return = content.contains(&b'\r');
        if has_return && self.converts_lines {
            return only_git("ends of lines");
        }
        let outside = self.outside.iter().map(|rules| (rules, path));
        for (rules, path) in self.of(path).chain(outside) {
            for (pattern, conversion) in &rules.converted {
                let concerns = match conversion {
                    Conversion::Always => true,
                    Conversion::Ident => content.windows(3).any(|part| part == b"$Id"),
                    Conversion::Lines => has_return,
                };
                if concerns && pattern.matches(path, false)? {
                    return only_git("a file that git converts");
                }
            }
        }
        Ok(())
    }
}

/// Whether a path is the folder or in it.
pub(crate) fn is_in(path: &[u8], folder: &[u8]) -> bool {
    folder.is_empty()
        || path
            .strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}
