//! The patterns of `.gitignore` and `.gitattributes` (gitignore(5)).

use super::unsure::{Unsure, only_git};

/// How many steps one comparison may take: a hostile pattern could take for ever.
const MAX_STEPS: u32 = 20_000;

/// The path with a backslash before what has a meaning in a pattern.
pub(crate) fn literal(path: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(path.len());
    for &byte in path {
        if b"\\*?[ ".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern
}

/// One pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    glob: Vec<u8>,
    /// Compared with the last part of a path, not with all of it.
    is_of_name: bool,
    folders_only: bool,
    pub(crate) is_negated: bool,
}

impl Pattern {
    /// A pattern without the line's end; `None` for one that matches nothing.
    pub(crate) fn new(line: &[u8]) -> Result<Option<Self>, Unsure> {
        let mut glob = line;
        let is_negated = glob.first() == Some(&b'!');
        if is_negated {
            glob = &glob[1..];
        }
        let folders_only = glob.last() == Some(&b'/');
        if folders_only {
            glob = &glob[..glob.len() - 1];
        }
        if glob
            .windows(2)
            .any(|pair| pair == b"[:" || pair == b"[=" || pair == b"[.")
        {
            return only_git("a class of characters in a pattern");
        }
        // Whether these match a folder's own slash depends on git's version.
        if glob.is_empty() || glob.ends_with(b"\\") || glob.ends_with(b"/") {
            return if glob.is_empty() {
                Ok(None)
            } else {
                only_git("an odd pattern")
            };
        }
        let is_of_name = !glob.contains(&b'/');
        let glob = glob.strip_prefix(b"/").unwrap_or(glob).to_owned();
        Ok(Some(Self {
            glob,
            is_of_name,
            folders_only,
            is_negated,
        }))
    }

    /// Whether it matches a path, relative to the folder of the pattern's file.
    pub(crate) fn matches(&self, path: &[u8], is_folder: bool) -> Result<bool, Unsure> {
        if self.folders_only && !is_folder {
            return Ok(false);
        }
        let text = match self.is_of_name {
            true => path.rsplit(|&byte| byte == b'/').next().unwrap_or(path),
            false => path,
        };
        let mut steps = MAX_STEPS;
        glob(&self.glob, 0, text, &mut steps)
    }
}

/// Compares the pattern from `at` on with the text.
fn glob(pattern: &[u8], mut at: usize, mut text: &[u8], steps: &mut u32) -> Result<bool, Unsure> {
    loop {
        *steps = steps.checked_sub(1).ok_or(Unsure::TooMuch)?;
        let Some(&byte) = pattern.get(at) else {
            return Ok(text.is_empty());
        };
        match byte {
            b'*' => return star(pattern, at, text, steps),
            b'?' => match text {
                [b'/', ..] | [] => return Ok(false),
                [_, rest @ ..] => text = rest,
            },
            b'[' => {
                let Some((next, is_in)) = class(&pattern[at + 1..], text.first().copied()) else {
                    return only_git("a class without an end in a pattern");
                };
                match text {
                    [b'/', ..] | [] => return Ok(false),
                    [_, rest @ ..] if is_in => text = rest,
                    _ => return Ok(false),
                }
                at += next;
            }
            _ => {
                if byte == b'\\' {
                    at += 1;
                }
                if text.first() != pattern.get(at) || text.is_empty() {
                    return Ok(false);
                }
                text = &text[1..];
            }
        }
        at += 1;
    }
}

fn star(pattern: &[u8], at: usize, text: &[u8], steps: &mut u32) -> Result<bool, Unsure> {
    let stars = pattern[at..]
        .iter()
        .take_while(|&&byte| byte == b'*')
        .count();
    let end = at + stars;
    let after_slash = at == 0 || pattern[at - 1] == b'/';
    let is_folders = stars == 2 && after_slash && matches!(pattern.get(end), None | Some(b'/'));
    if !is_folders {
        if stars > 1 {
            return only_git("stars in an odd place of a pattern");
        }
        let most = text.iter().take_while(|&&byte| byte != b'/').count();
        for taken in 0..=most {
            if glob(pattern, end, &text[taken..], steps)? {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    if end == pattern.len() {
        return Ok(!text.is_empty());
    }
    // `**/`: here, or after any slash.
    let mut rest = text;
    loop {
        if glob(pattern, end + 1, rest, steps)? {
            return Ok(true);
        }
        match rest.iter().position(|&byte| byte == b'/') {
            Some(slash) => rest = &rest[slash + 1..],
            None => return Ok(false),
        }
    }
}

/// The length of a class up to its end, and whether the byte is in it.
fn class(class: &[u8], byte: Option<u8>) -> Option<(usize, bool)> {
    let byte = byte.unwrap_or(0);
    let is_negated = matches!(class.first(), Some(b'!' | b'^'));
    let mut at = usize::from(is_negated);
    let first = at;
    let mut is_in = false;
    loop {
        let mut low = *class.get(at)?;
        if low == b']' && at > first {
            return Some((at + 1, is_in != is_negated));
        }
        if low == b'\\' {
            at += 1;
            low = *class.get(at)?;
        }
        let mut high = low;
        if class.get(at + 1) == Some(&b'-') && !matches!(class.get(at + 2), None | Some(b']')) {
            at += 2;
            high = *class.get(at)?;
            if high == b'\\' {
                at += 1;
                high = *class.get(at)?;
            }
        }
        is_in |= (low..=high).contains(&byte);
        at += 1;
    }
}
