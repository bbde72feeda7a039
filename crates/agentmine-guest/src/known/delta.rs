//! Differences of objects in a pack (gitformat-pack(5)). Each gives the new object whatever the two contain; what is not
//! smaller than half of it is not given.

use std::collections::HashMap;
use std::ops::Range;

/// The difference of two trees, entry by entry, if it is worth it.
pub(super) fn tree_delta(old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    const WORTH_IT: usize = 2048;
    if new.len() < WORTH_IT {
        return None;
    }
    let mut delta = Delta::new(old, new);
    delta.add(tree_entries(old), tree_entries(new).map(|(entry, _)| entry));
    delta.finish(0)
}

/// The difference of two files, line by line between what they share at the start and at the end, if it is worth it.
pub(super) fn blob_delta(old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let start = shared(old.iter(), new.iter());
    let end = shared(old[start..].iter().rev(), new[start..].iter().rev());
    let lines = |text| <[u8]>::split_inclusive(text, |&byte| byte == b'\n');
    let mut delta = Delta::new(old, new);
    delta.copied = 0..start;
    let mut at = start;
    let known = lines(&old[start..old.len() - end]).map(|line| {
        at += line.len();
        (line, at - line.len())
    });
    delta.add(known, lines(&new[start..new.len() - end]));
    delta.finish(end)
}

/// How many bytes are the same.
fn shared<'a>(old: impl Iterator<Item = &'a u8>, new: impl Iterator<Item = &'a u8>) -> usize {
    old.zip(new).take_while(|(old, new)| old == new).count()
}

/// The entries of a tree, each with its place.
fn tree_entries(tree: &[u8]) -> impl Iterator<Item = (&[u8], usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &tree[at..];
        let length = rest.iter().position(|&byte| byte == 0)? + 21;
        let entry = (rest.get(..length)?, at);
        at += length;
        Some(entry)
    })
}

/// A difference that is being written.
struct Delta<'a> {
    old: &'a [u8],
    new: &'a [u8],
    out: Vec<u8>,
    /// What is copied next. Never both this and what is inserted are pending.
    copied: Range<usize>,
    inserted: Vec<u8>,
}

impl<'a> Delta<'a> {
    fn new(old: &'a [u8], new: &'a [u8]) -> Self {
        let mut out = Vec::new();
        length(&mut out, old.len());
        length(&mut out, new.len());
        Self {
            old,
            new,
            out,
            copied: 0..0,
            inserted: Vec::new(),
        }
    }

    /// Makes the new pieces of known ones, each with its place.
    fn add(
        &mut self,
        known: impl Iterator<Item = (&'a [u8], usize)>,
        new: impl Iterator<Item = &'a [u8]>,
    ) {
        let known: HashMap<&[u8], usize> = known.collect();
        for piece in new {
            let continues =
                self.inserted.is_empty() && self.old[self.copied.end..].starts_with(piece);
            match known.get(piece) {
                _ if continues => self.copied.end += piece.len(),
                Some(&at) => {
                    self.flush();
                    self.copied = at..at + piece.len();
                }
                None => {
                    copy(&mut self.out, &std::mem::replace(&mut self.copied, 0..0));
                    self.inserted.extend(piece);
                }
            }
        }
    }

    fn flush(&mut self) {
        copy(&mut self.out, &std::mem::replace(&mut self.copied, 0..0));
        insert(&mut self.out, &std::mem::take(&mut self.inserted));
    }

    /// With so many bytes of the old object's end, if it is worth it.
    fn finish(mut self, end: usize) -> Option<Vec<u8>> {
        self.flush();
        copy(&mut self.out, &(self.old.len() - end..self.old.len()));
        (self.out.len() < self.new.len() / 2).then_some(self.out)
    }
}

fn length(delta: &mut Vec<u8>, mut length: usize) {
    while length > 0x7f {
        delta.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    delta.push(length as u8);
}

fn copy(delta: &mut Vec<u8>, range: &Range<usize>) {
    const MOST: usize = 0x00ff_ffff;
    let mut at = range.start;
    while at < range.end {
        let size = (range.end - at).min(MOST);
        delta.push(0xff);
        delta.extend(&(at as u32).to_le_bytes());
        delta.extend(&(size as u32).to_le_bytes()[..3]);
        at += size;
    }
}

fn insert(delta: &mut Vec<u8>, content: &[u8]) {
    for part in content.chunks(0x7f) {
        delta.push(part.len() as u8);
        delta.extend(part);
    }
}
