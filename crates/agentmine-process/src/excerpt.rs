//! A text that is too long, as its first and last lines with an exact note between them.
//!
//! A text is cut once, by the code that shows it. Secrets are therefore redacted before, by [`Excerpt::redacted`].
//! Where a server has cut its text in the same way and its note is cut too, what that note says is added, so
//! that the amount stays true.

use std::ops::AddAssign;

/// How to see the output that is omitted from a command's result.
pub const SEE_ALL: &str = "write the output to a file and show parts of it, or filter it";

/// The beginning of a note.
const NOTE: &str = "[... ";

/// What is omitted from a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Bytes.
    pub bytes: u64,
    /// Line ends among them.
    pub lines: u64,
}

impl LeftOut {
    fn of(text: &str) -> Self {
        let mut all = Self {
            bytes: text.len() as u64,
            lines: text.bytes().filter(|byte| *byte == b'\n').count() as u64,
        };
        for line in text.lines().filter(|line| line.starts_with(NOTE)) {
            if let Some(earlier) = Self::noted(line) {
                // The note itself is not part of the text.
                all.bytes = all.bytes.saturating_sub(line.len() as u64 + 1);
                all.lines = all.lines.saturating_sub(1);
                all += earlier;
            }
        }
        all
    }

    /// What a note says.
    fn noted(line: &str) -> Option<Self> {
        let (bytes, rest) = line.strip_prefix(NOTE)?.split_once(" bytes, ")?;
        let (lines, _) = rest.split_once(" lines left out")?;
        Some(Self {
            bytes: bytes.parse().ok()?,
            lines: lines.parse().ok()?,
        })
    }
}

impl AddAssign for LeftOut {
    fn add_assign(&mut self, more: Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.lines = self.lines.saturating_add(more.lines);
    }
}

/// A text, or its start and its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excerpt {
    head: String,
    left_out: LeftOut,
    tail: String,
}

impl Excerpt {
    /// A text of which everything is known.
    #[must_use]
    pub fn whole(text: String) -> Self {
        Self {
            head: text,
            ..Self::default()
        }
    }

    /// The start and the end of a text, and what is missing between them. Characters that were cut become
    /// `U+FFFD`.
    #[must_use]
    pub fn of_parts(head: &[u8], left_out: LeftOut, tail: &[u8]) -> Self {
        if left_out.bytes == 0 {
            let whole = [head, tail].concat();
            return Self::whole(String::from_utf8_lossy(&whole).into_owned());
        }
        Self {
            head: String::from_utf8_lossy(head).into_owned(),
            left_out,
            tail: String::from_utf8_lossy(tail).into_owned(),
        }
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Redacts both parts. Where something is missing between them, `longest` bytes beside the gap are omitted too: they may be a part of a secret, which cannot be found.
    #[must_use]
    pub fn redacted(self, longest: usize, redact: impl Fn(String) -> String) -> Self {
        let (mut head, mut tail) = (redact(self.head), redact(self.tail));
        let mut left_out = self.left_out;
        if left_out.bytes > 0 {
            let end = head.floor_char_boundary(head.len().saturating_sub(longest));
            left_out += LeftOut::of(&head[end..]);
            head.truncate(end);
            let start = tail.ceil_char_boundary(longest.min(tail.len()));
            left_out += LeftOut::of(&tail[..start]);
            tail.drain(..start);
        }
        Self {
            head,
            left_out,
            tail,
        }
    }

    /// At most `max` bytes, half of them from the end: whole lines, unless one line alone is longer.
    #[must_use]
    pub fn fit(self, max: usize) -> Self {
        if self.len() <= max && self.left_out.bytes == 0 {
            return self;
        }
        let Self {
            mut head,
            mut left_out,
            mut tail,
        } = self;
        if left_out.bytes == 0 {
            tail = head.split_off(head.ceil_char_boundary(head.len().saturating_sub(max / 2)));
        }
        let head_max = max.saturating_sub(tail.len().min(max / 2));
        let end = end_of_lines(&head, head_max);
        let start = start_of_lines(&tail, max.saturating_sub(end).min(tail.len()));
        left_out += LeftOut::of(&head[end..]);
        left_out += LeftOut::of(&tail[..start]);
        head.truncate(end);
        tail.drain(..start);
        Self {
            head,
            left_out,
            tail,
        }
    }

    /// The text. Where something is missing, a line says how much, and `how` to see it.
    #[must_use]
    pub fn into_text(self, how: &str) -> String {
        if self.left_out.bytes == 0 {
            return self.head + &self.tail;
        }
        let Self {
            mut head,
            left_out: LeftOut { bytes, lines },
            tail,
        } = self;
        if !head.is_empty() && !head.ends_with('\n') {
            head.push('\n');
        }
        let colon = if how.is_empty() { "" } else { ": " };
        format!("{head}{NOTE}{bytes} bytes, {lines} lines left out{colon}{how} ...]\n{tail}")
    }
}

/// Where the last whole line within `max` bytes ends; within a line only if the first one is longer.
fn end_of_lines(text: &str, max: usize) -> usize {
    if text.len() <= max {
        // Something follows that is not known: the last line may not be whole.
        return text.rfind('\n').map_or(text.len(), |at| at + 1);
    }
    let end = text.floor_char_boundary(max);
    text[..end].rfind('\n').map_or(end, |at| at + 1)
}

/// Where the first whole line of the last `max` bytes begins; within a line only if the last one is longer.
fn start_of_lines(text: &str, max: usize) -> usize {
    let start = text.ceil_char_boundary(text.len().saturating_sub(max));
    if start > 0 && text.as_bytes()[start - 1] == b'\n' {
        return start;
    }
    match text[start..].find('\n') {
        Some(at) if start + at + 1 < text.len() => start + at + 1,
        _ => start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(last: usize) -> String {
        (1..=last).map(|n| format!("{n}\n")).collect()
    }

    /// The parts around the note, and its numbers.
    fn parts(text: &str) -> (&str, u64, u64, &str) {
        let (head, rest) = text.split_once("[... ").unwrap();
        let (note, tail) = rest.split_once(" ...]\n").unwrap();
        let words: Vec<&str> = note.split([' ', ',']).collect();
        (
            head,
            words[0].parse().unwrap(),
            words[3].parse().unwrap(),
            tail,
        )
    }

    #[test]
    fn text_within_the_limit_is_unchanged() {
        let text = numbers(10);
        assert_eq!(
            Excerpt::whole(text.clone()).fit(text.len()).into_text(""),
            text
        );
    }

    #[test]
    fn whole_lines_are_kept_and_the_note_is_exact() {
        let text = numbers(1000);
        for max in [0, 10, 100, 333, 1000, text.len() - 1] {
            let cut = Excerpt::whole(text.clone())
                .fit(max)
                .into_text("look closer");
            let (head, bytes, lines, tail) = parts(&cut);
            assert!(head.len() + tail.len() <= max, "{max}");
            assert!(text.starts_with(head) && text.ends_with(tail), "{max}");
            assert_eq!(head.len() + bytes as usize + tail.len(), text.len());
            let kept = head.lines().count() + tail.lines().count();
            assert!(head.is_empty() || head.ends_with('\n'), "{max}");
            assert_eq!(kept + lines as usize, 1000);
            assert!(cut.contains("lines left out: look closer ...]"), "{cut}");
        }
    }

    #[test]
    fn one_long_line_is_cut_between_characters() {
        let text = "é".repeat(1000);
        let cut = Excerpt::whole(text.clone()).fit(101).into_text("");
        let (head, bytes, lines, tail) = parts(&cut);
        let head = head.trim_end();
        assert_eq!((head.len(), tail.len(), lines), (50, 50, 0));
        assert_eq!(head.len() + bytes as usize + tail.len(), text.len());
    }

    #[test]
    fn what_is_missing_from_the_start_is_added_to_what_is_cut() {
        let text = numbers(100_000);
        let (head, tail) = (&text[..1000], &text[text.len() - 1000..]);
        let left_out = LeftOut::of(&text[1000..text.len() - 1000]);
        let excerpt = Excerpt::of_parts(head.as_bytes(), left_out, tail.as_bytes());
        let cut = excerpt.fit(500).into_text("");
        let (head, bytes, lines, tail) = parts(&cut);
        assert!(head.len() + tail.len() <= 500 && head.len() + tail.len() > 480);
        assert_eq!(head.len() + bytes as usize + tail.len(), text.len());
        let kept = head.lines().count() + tail.lines().count();
        assert_eq!(kept + lines as usize, 100_000);
    }

    #[test]
    fn what_an_earlier_cut_left_out_is_added() {
        let text = numbers(10_000);
        let once = Excerpt::whole(text.clone()).fit(5_000).into_text("first");
        let twice = Excerpt::whole(once).fit(1_000).into_text("second");
        let (head, bytes, lines, tail) = parts(&twice);
        assert_eq!(twice.matches("[... ").count(), 1);
        assert_eq!(head.len() + bytes as usize + tail.len(), text.len());
        let kept = head.lines().count() + tail.lines().count();
        assert_eq!(kept + lines as usize, 10_000);
    }

    #[test]
    fn half_a_secret_beside_a_gap_is_left_out() {
        let redact = |text: String| text.replace("canary-token", "***");
        let gap = LeftOut {
            bytes: 10,
            lines: 1,
        };
        let excerpt = Excerpt::of_parts(
            b"a canary-token\nb canary-to",
            gap,
            b"nary-token\nthen\nlast\n",
        );
        let text = excerpt.redacted(12, redact).fit(1000).into_text("");
        assert!(
            !text.contains("canary") && !text.contains("nary-tok"),
            "{text}"
        );
        assert!(
            text.starts_with("a ***\n[... ") && text.ends_with("last\n"),
            "{text}"
        );
    }
}
