//! Reads git's index (gitformat-index(5)).

use super::fs::{Kind, Stat};
use super::objects::Oid;
use super::unsure::{Unsure, only_git};

/// A file in the index.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Indexed {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) oid: Oid,
    pub(crate) stat: Stat,
}

/// The files of an index with SHA-1 names.
pub(crate) fn read(index: &[u8]) -> Result<Vec<Indexed>, Unsure> {
    parse(index).unwrap_or_else(|| only_git("an index that is cut off"))
}

fn parse(index: &[u8]) -> Option<Result<Vec<Indexed>, Unsure>> {
    let mut rest = index.strip_prefix(b"DIRC")?;
    let version = number(&mut rest)?;
    let count = number(&mut rest)?;
    if !(2..=4).contains(&version) {
        return Some(only_git("an unknown version of the index"));
    }
    let mut all: Vec<Indexed> = Vec::new();
    for _ in 0..count {
        let previous = all.last().map_or(&b""[..], |last| &last.path);
        match entry(&mut rest, version, previous)? {
            Ok(entry) => all.push(entry),
            Err(unsure) => return Some(Err(unsure)),
        }
    }
    while rest.len() > 20 {
        let (name, length) = (rest.get(..4)?, number(&mut rest.get(4..)?)? as usize);
        // A capital letter means that it can be ignored.
        if !name[0].is_ascii_uppercase() {
            return Some(only_git("an extension of the index"));
        }
        rest = rest.get(8 + length..)?;
    }
    Some(Ok(all))
}

fn entry(rest: &mut &[u8], version: u32, previous: &[u8]) -> Option<Result<Indexed, Unsure>> {
    let start = *rest;
    let changed = (number(rest)?, number(rest)?);
    let modified = (number(rest)?, number(rest)?);
    let _device = number(rest)?;
    let inode = number(rest)?;
    let mode = number(rest)?;
    let _owner = (number(rest)?, number(rest)?);
    let size = number(rest)?;
    let (oid, after) = rest.split_first_chunk::<20>()?;
    let (flags, after) = after.split_first_chunk::<2>()?;
    let flags = u16::from_be_bytes(*flags);
    *rest = after;
    // Valid by assumption, extended (kept out of the working tree, to be added), or in a merge.
    if flags & 0xf000 != 0 {
        return Some(only_git("a flag in the index"));
    }
    let kind = match mode {
        0o100_644 => Kind::Regular,
        0o100_755 => Kind::Executable,
        0o120_000 => Kind::Link,
        _ => return Some(only_git("a repository in the repository")),
    };
    let path = match version {
        4 => compressed(rest, previous)?,
        _ => {
            let length = rest.iter().position(|&byte| byte == 0)?;
            let path = rest[..length].to_owned();
            let whole = start.len() - rest.len() + length;
            *rest = start.get((whole + 8) / 8 * 8..)?;
            path
        }
    };
    let stat = Stat {
        changed,
        modified,
        inode,
        size,
    };
    Some(Ok(Indexed {
        path,
        kind,
        oid: Oid(*oid),
        stat,
    }))
}

/// A path of version 4: how much of the previous one to drop, and what follows.
fn compressed(rest: &mut &[u8], previous: &[u8]) -> Option<Vec<u8>> {
    let mut left_out = 0_usize;
    for n in 0.. {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        if n > 0 {
            left_out += 1;
        }
        left_out = (left_out << 7) | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
        if n > 4 {
            return None;
        }
    }
    let length = rest.iter().position(|&byte| byte == 0)?;
    let kept = previous.len().checked_sub(left_out)?;
    let path = [&previous[..kept], &rest[..length]].concat();
    *rest = &rest[length + 1..];
    Some(path)
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    let (number, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(u32::from_be_bytes(*number))
}
