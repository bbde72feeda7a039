//! Pure functions over a file's bytes: find, replace, insert, number.
//!
//! In a file with CRLF line endings, `\n` and `\r\n` in the model's text both mean "end of line", and new text
//! gets the line ending in use at that place. In any other file every byte is literal. A byte order mark stays the
//! beginning of its file.

use memchr::{memchr_iter, memmem};

/// How many places are reported when a text occurs more than once.
const REPORTED_PLACES: usize = 10;
/// How many bytes of one line are shown.
const MAX_SHOWN_LINE: usize = 4_000;
/// The byte order mark of UTF-8.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// A file's new content, and where the change is in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) bytes: Vec<u8>,
    /// From 1.
    pub(super) first_line: usize,
    /// How many lines the new text has.
    pub(super) lines: usize,
}

/// Why nothing was replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Miss {
    Nowhere,
    /// The line numbers of the first places, from 1, and whether there are more.
    Several {
        lines: Vec<usize>,
        more: bool,
    },
}

/// The number of lines in a file, including a last one without a line ending.
pub(super) fn line_count(bytes: &[u8]) -> usize {
    let unterminated = bytes.last().is_some_and(|last| *last != b'\n');
    memchr_iter(b'\n', bytes).count() + usize::from(unterminated)
}

/// Replaces the only occurrence of `old`. Overlapping occurrences count separately.
pub(super) fn replace_once(content: &[u8], old: &[u8], new: &[u8]) -> Result<Edit, Miss> {
    let (start, end, new) = if has_crlf(content) {
        let folded = Folded::of(content);
        let old = fold(old);
        let at = only_place(&folded.bytes, &old)?;
        let start = folded.original_offset(at);
        let end = folded.original_offset(at + old.len());
        let new = with_ending(new, Ending::near(content, start));
        (start, end, new)
    } else {
        let at = only_place(content, old)?;
        (at, at + old.len(), new.to_vec())
    };
    Ok(splice(content, start, end, &new))
}

/// Inserts `text` after a line (0: before the first). `None` if there is no such line. The text gets its own
/// lines: a missing line ending is added, except at the end of a file that has none.
pub(super) fn insert_after(content: &[u8], line: usize, text: &[u8]) -> Option<Edit> {
    let at = match line {
        0 if content.starts_with(BOM) => BOM.len(),
        0 => 0,
        _ => match memchr_iter(b'\n', content).nth(line - 1) {
            Some(newline) => newline + 1,
            None if line == line_count(content) => content.len(),
            None => return None,
        },
    };
    let (mut text, ending) = if has_crlf(content) {
        let ending = Ending::near(content, at);
        (with_ending(text, ending), ending)
    } else {
        (text.to_vec(), Ending::Lf)
    };
    let after_unterminated = line > 0 && at > 0 && content.get(at - 1) != Some(&b'\n');
    if after_unterminated {
        text.splice(0..0, ending.bytes().iter().copied());
    } else if text.last() != Some(&b'\n') {
        text.extend_from_slice(ending.bytes());
    }
    let mut edit = splice(content, at, at, &text);
    if after_unterminated {
        // The text begins with the line ending of the line before it.
        edit.first_line += 1;
        edit.lines = line_count(text.get(ending.bytes().len()..).unwrap_or_default()).max(1);
    }
    Some(edit)
}

/// The text of a file in UTF-16 with a byte order mark, as UTF-8; `None` if it is anything else.
pub(super) fn from_utf16(content: &[u8]) -> Option<Vec<u8>> {
    match content {
        // The mark of UTF-32.
        [0xff, 0xfe, 0, 0, ..] => None,
        [0xff, 0xfe, rest @ ..] => decoded(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => decoded(rest, u16::from_be_bytes),
        _ => None,
    }
}

fn decoded(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<Vec<u8>> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
    let text = String::from_utf16(&units).ok().filter(|_| rest.is_empty());
    text.map(String::into_bytes)
}

impl Miss {
    /// The message for the model.
    pub(super) fn explain(&self, path: &str, content: &[u8], old: &str) -> String {
        match self {
            Self::Several { lines, more } => {
                let count = lines.len();
                let (some, and) = match more {
                    true => ("more than ", " and more"),
                    false => ("", ""),
                };
                let lines = join(lines);
                format!(
                    "old_str is found {some}{count} times in {path} (lines {lines}{and}), but must be \
                     unique: add lines around the one you mean"
                )
            }
            Self::Nowhere => {
                let hint = nearest(content, old);
                format!(
                    "old_str is not found in {path}: it must match exactly, including whitespace; \
                     {hint}"
                )
            }
        }
    }
}

/// Some lines of a file, numbered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Numbered {
    pub(super) text: String,
    /// The last line that is shown: less than requested if the limit was reached.
    pub(super) last: usize,
    /// Bytes of the requested lines after that one.
    pub(super) left_out: usize,
}

/// Lines `first` to `last` (from 1): as many as fit into `max` bytes of a JSON string, at least one.
pub(super) fn numbered(bytes: &[u8], first: usize, last: usize, max: usize) -> Numbered {
    let mut numbered = Numbered {
        text: String::new(),
        last: first.saturating_sub(1),
        left_out: 0,
    };
    // An escaped byte takes six at most.
    let max_line = MAX_SHOWN_LINE.min(max / 6);
    let (mut room, mut number) = (max, first);
    let skipped = first.saturating_sub(1);
    let requested = (last + 1).saturating_sub(first);
    for line in whole_lines(bytes).skip(skipped).take(requested) {
        let shown = shown_line(without_ending(line), max_line);
        let shown = format!("{number:>6}\t{shown}\n");
        let size = quoted_len(&shown);
        if numbered.left_out > 0 || (size > room && number > first) {
            numbered.left_out += line.len();
        } else {
            numbered.text.push_str(&shown);
            numbered.last = number;
            room = room.saturating_sub(size);
        }
        number += 1;
    }
    numbered
}

/// The first lines of a text that fit into `max` bytes of a JSON string, and the rest.
pub(super) fn head_within(text: &str, max: usize) -> (&str, &str) {
    let (mut end, mut room) = (0, max);
    for line in text.split_inclusive('\n') {
        match room.checked_sub(quoted_len(line)) {
            Some(left) => room = left,
            None => break,
        }
        end += line.len();
    }
    text.split_at(end)
}

/// Bytes of a text within a JSON string.
pub(super) fn quoted_len(text: &str) -> usize {
    let escapes = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\t' | b'\r' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escapes).sum()
}

fn shown_line(line: &[u8], max: usize) -> String {
    if line.len() <= max {
        return String::from_utf8_lossy(line).into_owned();
    }
    let (head, rest) = line.split_at(end_of_words(line, max));
    let head = String::from_utf8_lossy(head);
    let rest = rest.len();
    format!("{head}[... {rest} more bytes of this line are not shown ...]")
}

/// Where to cut a line: after a word or number, so that no key or token is cut in half and then not
/// recognized as a secret; in a long word between characters.
fn end_of_words(line: &[u8], max: usize) -> usize {
    const LONGEST_WORD: usize = 512;
    let is_part =
        |byte: u8| byte.is_ascii_alphanumeric() || b"_-+/=.~%".contains(&byte) || byte >= 0x80;
    let nearest = max.saturating_sub(LONGEST_WORD)..=max;
    let between = nearest
        .rev()
        .find(|at| *at > 0 && line.get(*at).is_some_and(|next| !is_part(*next)));
    between.unwrap_or_else(|| {
        let starts = |at: &usize| line.get(*at).is_some_and(|byte| byte & 0xC0 != 0x80);
        (0..=max).rev().find(starts).unwrap_or(max)
    })
}

/// The lines without their line endings.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    whole_lines(bytes).map(without_ending)
}

fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n')
}

fn without_ending(line: &[u8]) -> &[u8] {
    match line.strip_suffix(b"\n") {
        Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
        None => line,
    }
}

/// A hint where the text could be: what differs is most often the whitespace, the escapes, or line numbers that were copied.
fn nearest(content: &[u8], old: &str) -> String {
    let folded = fold(content);
    let occurs = |text: &String| memmem::find(&folded, text.as_bytes()).is_some();
    if unescaped(old).as_ref().is_some_and(occurs) {
        return "it does occur after its escapes are decoded: write line breaks, tabs, quotes and backslashes of old_str and new_str \
                as they are in the file, escaped once for JSON and not twice"
            .to_owned();
    }
    if without_numbers(old).as_ref().is_some_and(occurs) {
        return "it occurs without the line numbers that view shows: omit them".to_owned();
    }
    let first = old.lines().map(str::trim).find(|line| !line.is_empty());
    let near: Vec<usize> = first.map_or_else(Vec::new, |first| {
        lines(content)
            .enumerate()
            .filter(|(_, line)| line.trim_ascii() == first.as_bytes())
            .map(|(index, _)| index + 1)
            .take(REPORTED_PLACES)
            .collect()
    });
    if near.is_empty() {
        return "view the file and copy the text from there, without the line numbers".to_owned();
    }
    let near = join(&near);
    format!(
        "except for whitespace, its first line occurs at line {near}: view that line and copy it \
         exactly"
    )
}

/// The text that escapes of JSON in it mean; `None` if it has none.
fn unescaped(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => plain.push('\n'),
                Some('t') => plain.push('\t'),
                Some(c @ ('"' | '\'' | '\\')) => plain.push(c),
                other => {
                    plain.push('\\');
                    plain.extend(other);
                }
            },
            c => plain.push(c),
        }
    }
    (plain != text).then_some(plain)
}

/// The text without the numbers with which its lines begin; `None` if one has none.
fn without_numbers(text: &str) -> Option<String> {
    let lines: Option<Vec<&str>> = text
        .lines()
        .map(|line| {
            let (number, rest) = line.split_once('\t')?;
            number.trim_start().parse::<u64>().is_ok().then_some(rest)
        })
        .collect();
    Some(lines?.join("\n"))
}

fn join(lines: &[usize]) -> String {
    let lines: Vec<String> = lines.iter().map(usize::to_string).collect();
    lines.join(", ")
}

fn only_place(content: &[u8], wanted: &[u8]) -> Result<usize, Miss> {
    let finder = memmem::Finder::new(wanted);
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(at) = content.get(from..).and_then(|rest| finder.find(rest)) {
        places.push(from + at);
        from += at + 1;
        if places.len() > REPORTED_PLACES {
            break;
        }
    }
    match places.as_slice() {
        [] => Err(Miss::Nowhere),
        [only] => Ok(*only),
        several => Err(Miss::Several {
            lines: several
                .iter()
                .take(REPORTED_PLACES)
                .map(|at| line_of(content, *at))
                .collect(),
            more: several.len() > REPORTED_PLACES,
        }),
    }
}

fn splice(content: &[u8], start: usize, end: usize, new: &[u8]) -> Edit {
    let head = content.get(..start).unwrap_or(content);
    let tail = content.get(end..).unwrap_or_default();
    Edit {
        bytes: [head, new, tail].concat(),
        first_line: line_of(content, start),
        lines: line_count(new).max(1),
    }
}

fn line_of(content: &[u8], offset: usize) -> usize {
    let head = content.get(..offset).unwrap_or(content);
    memchr_iter(b'\n', head).count() + 1
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Lf,
    CrLf,
}

impl Ending {
    fn bytes(self) -> &'static [u8] {
        match self {
            Self::Lf => b"\n",
            Self::CrLf => b"\r\n",
        }
    }

    /// The line ending in use at an offset: the next one, otherwise the previous one.
    fn near(content: &[u8], offset: usize) -> Self {
        let (head, tail) = content.split_at(offset.min(content.len()));
        let at = match memchr::memchr(b'\n', tail) {
            Some(next) => head.len() + next,
            None => match memchr::memrchr(b'\n', head) {
                Some(previous) => previous,
                None => return Self::Lf,
            },
        };
        match at.checked_sub(1).and_then(|before| content.get(before)) {
            Some(b'\r') => Self::CrLf,
            _ => Self::Lf,
        }
    }
}

fn has_crlf(content: &[u8]) -> bool {
    memmem::find(content, b"\r\n").is_some()
}

fn fold(text: &[u8]) -> Vec<u8> {
    Folded::of(text).bytes
}

fn with_ending(text: &[u8], ending: Ending) -> Vec<u8> {
    let folded = fold(text);
    match ending {
        Ending::Lf => folded,
        Ending::CrLf => {
            let mut out = Vec::with_capacity(folded.len() + folded.len() / 16);
            for byte in folded {
                if byte == b'\n' {
                    out.push(b'\r');
                }
                out.push(byte);
            }
            out
        }
    }
}

/// A text with `\n` for every `\r\n`, and the mapping back to the original offsets.
struct Folded {
    bytes: Vec<u8>,
    /// The offsets in `bytes` of the line endings that lost a `\r`, in ascending order.
    shortened: Vec<usize>,
}

impl Folded {
    fn of(text: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(text.len());
        let mut shortened = Vec::new();
        let mut rest = 0;
        for at in memmem::find_iter(text, b"\r\n") {
            bytes.extend_from_slice(text.get(rest..at).unwrap_or_default());
            shortened.push(bytes.len());
            rest = at + 1;
        }
        bytes.extend_from_slice(text.get(rest..).unwrap_or_default());
        Self { bytes, shortened }
    }

    fn original_offset(&self, offset: usize) -> usize {
        offset + self.shortened.partition_point(|at| *at < offset)
    }
}
