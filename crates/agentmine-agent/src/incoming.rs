//! Text that other people wrote, as their tracker shows it.
//!
//! A person who approves an issue has read what the page shows. What it does not show is omitted before a model
//! reads the text, and counted: HTML comments and attributes, reference and footnote definitions that nothing refers
//! to (`[//]: # (…)`), Unicode tags and other invisible characters, and joiners and variation selectors where they
//! join and select nothing. In code, markup is text that people see, so it stays.

use std::collections::BTreeSet;
use std::ops::Range;

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag};
use serde::{Deserialize, Serialize};

/// How much of a text a reader does not see, and what was therefore omitted from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hidden {
    /// Comments, attributes, unused definitions.
    pub markup: u64,
    /// Invisible characters.
    pub characters: u64,
}

impl std::ops::AddAssign for Hidden {
    fn add_assign(&mut self, other: Self) {
        self.markup += other.markup;
        self.characters += other.characters;
    }
}

impl Hidden {
    /// What was omitted, as a sentence for people; `None` if nothing was.
    #[must_use]
    pub fn note(self) -> Option<String> {
        let Self { markup, characters } = self;
        (markup + characters > 0).then(|| {
            format!(
                "Hidden text was removed from what people wrote: {markup} pieces of markup that the tracker does not \
                 show, {characters} invisible characters."
            )
        })
    }
}

/// A text that is no Markdown, without characters that are not shown.
pub(crate) fn plain(text: &str) -> (String, Hidden) {
    let shown = characters(text);
    let characters = text.chars().count() - shown.chars().count();
    let hidden = Hidden {
        markup: 0,
        characters: characters as u64,
    };
    (shown, hidden)
}

/// A Markdown text as its page shows it.
pub(crate) fn markdown(text: &str) -> (String, Hidden) {
    let (shown, markup) = without_markup(text);
    let (shown, mut hidden) = plain(&shown);
    hidden.markup = markup as u64;
    (shown, hidden)
}

/// The text without the ranges that are not shown, and their number.
fn without_markup(text: &str) -> (String, usize) {
    let mut edits = edits(text);
    edits.sort_by_key(|(range, _)| range.start);
    let (mut shown, mut done, mut count) = (String::with_capacity(text.len()), 0, 0);
    for (range, instead) in edits {
        if range.start < done {
            continue;
        }
        shown.push_str(&text[done..range.start]);
        shown.push_str(&instead.text);
        count += instead.hidden;
        done = range.end;
    }
    shown.push_str(&text[done..]);
    (shown, count)
}

/// What stands instead of a range.
struct Instead {
    text: String,
    /// How many pieces of the range are not shown.
    hidden: usize,
}

impl Instead {
    fn nothing() -> Self {
        let text = String::new();
        Self { text, hidden: 1 }
    }
}

fn edits(text: &str) -> Vec<(Range<usize>, Instead)> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES | Options::ENABLE_GFM;
    let mut parser = Parser::new_ext(text, options).into_offset_iter();
    let (mut edits, mut footnotes) = (Vec::new(), Vec::new());
    let mut used: BTreeSet<String> = BTreeSet::new();
    for (event, range) in parser.by_ref() {
        match event {
            Event::Start(Tag::HtmlBlock) | Event::InlineHtml(_) => {
                let instead = html(&text[range.clone()]);
                edits.push((range, instead));
            }
            // A link with its address in place has an empty id, which no definition has.
            Event::Start(Tag::Link { id, .. } | Tag::Image { id, .. }) => {
                used.insert(key(&id));
            }
            Event::FootnoteReference(label) => {
                used.insert(key(&label));
            }
            Event::Start(Tag::FootnoteDefinition(label)) => footnotes.push((key(&label), range)),
            _ => {}
        }
    }
    let definitions = parser.reference_definitions().iter();
    let definitions = definitions.map(|(label, definition)| {
        let label = CowStr::Borrowed(label);
        (key(&label), definition.span.clone())
    });
    let unused = definitions
        .chain(footnotes)
        .filter(|(label, _)| !used.contains(label));
    edits.extend(unused.map(|(_, range)| (range, Instead::nothing())));
    edits
}

/// Labels are equal without regard to case.
fn key(label: &CowStr<'_>) -> String {
    label.to_lowercase()
}

/// What a page shows of a piece of HTML: no comments, declarations or instructions, and of the attributes only the
/// addresses, which a reader sees when he follows them.
fn html(piece: &str) -> Instead {
    let (mut text, mut hidden, mut rest) = (String::new(), 0, piece);
    while let Some(at) = rest.find('<') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let silent = [
            ("<!--", "-->"),
            ("<![CDATA[", "]]>"),
            ("<?", "?>"),
            ("<!", ">"),
        ];
        if let Some((begin, end)) = silent.iter().find(|(begin, _)| rest.starts_with(begin)) {
            hidden += 1;
            rest = after(&rest[begin.len()..], end);
        } else if rest[1..].starts_with(|c: char| c.is_ascii_alphabetic() || c == '/') {
            let (tag, left) = tag(rest);
            text.push_str(&tag.text);
            hidden += tag.hidden;
            rest = left;
        } else {
            text.push('<');
            rest = &rest[1..];
        }
    }
    text.push_str(rest);
    Instead { text, hidden }
}

fn after<'a>(text: &'a str, end: &str) -> &'a str {
    text.find(end).map_or("", |at| &text[at + end.len()..])
}

/// A tag with its addresses alone, and what follows it.
fn tag(text: &str) -> (Instead, &str) {
    let name_end = text[1..]
        .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '/')))
        .map_or(text.len(), |at| at + 1);
    let (mut kept, mut hidden) = (text[..name_end].to_owned(), 0);
    let mut rest = &text[name_end..];
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
        if rest.is_empty() || rest.starts_with('>') {
            break;
        }
        let name_end = rest
            .find(|c: char| c.is_whitespace() || matches!(c, '=' | '>'))
            .unwrap_or(rest.len());
        let (name, left) = rest.split_at(name_end);
        let (value, left) = value(left);
        rest = left;
        match (name.to_ascii_lowercase().as_str(), value) {
            ("href" | "src", Some(value)) if !value.contains(char::is_whitespace) => {
                kept.push_str(&format!(" {name}=\"{value}\""));
            }
            // Layout, which every second README has.
            ("align" | "width" | "height" | "open", value)
                if value.is_none_or(|it| it.len() < 8) => {}
            _ => hidden += 1,
        }
    }
    kept.push('>');
    let left = rest.strip_prefix('>').unwrap_or(rest);
    (Instead { text: kept, hidden }, left)
}

/// The value behind an attribute's name, without quotes, and what follows it.
fn value(text: &str) -> (Option<&str>, &str) {
    let Some(value) = text.trim_start().strip_prefix('=').map(str::trim_start) else {
        // Each step takes at least one character, also of what is no attribute.
        return (None, text.strip_prefix('=').unwrap_or(text));
    };
    for quote in ['"', '\''] {
        if let Some(quoted) = value.strip_prefix(quote) {
            return match quoted.split_once(quote) {
                Some((value, left)) => (Some(value), left),
                None => (Some(quoted), ""),
            };
        }
    }
    let end = value
        .find(|c: char| c.is_whitespace() || c == '>')
        .unwrap_or(value.len());
    (Some(&value[..end]), &value[end..])
}

/// The text without invisible characters. What joins the parts of an emoji or of a word, and the selector of an
/// emoji's form, stay where they have something to join or to select.
fn characters(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            skip_sequence(&mut chars);
        }
        let stays = match c {
            '\u{200c}' | '\u{200d}' => {
                before.is_some_and(joins) && chars.peek().copied().is_some_and(joins)
            }
            '\u{fe00}'..='\u{fe0f}' => before.is_some_and(selects),
            c => !is_invisible(c),
        };
        if stays {
            shown.push(c);
            before = Some(c);
        }
    }
    shown
}

/// Skips the rest of a terminal's control sequence, which ends with a byte from @ to ~ (ECMA-48 §5.4).
fn skip_sequence(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    if chars.next_if_eq(&'[').is_some() {
        while chars.next_if(|c| (' '..='?').contains(c)).is_some() {}
        chars.next_if(|c| ('@'..='~').contains(c));
    }
}

fn joins(c: char) -> bool {
    !c.is_ascii() && !c.is_whitespace() && !matches!(c, '\u{200c}' | '\u{200d}') && !is_invisible(c)
}

fn selects(c: char) -> bool {
    let is_keycap = matches!(c, '0'..='9' | '#' | '*');
    is_keycap || (joins(c) && !('\u{fe00}'..='\u{fe0f}').contains(&c))
}

/// Characters without a shape: control, format and filler characters, changes of direction (CVE-2021-42574), tags and
/// the selectors of the supplementary planes.
fn is_invisible(c: char) -> bool {
    let is_control =
        c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{b}' | '\u{c}' | '\u{85}');
    is_control
        || matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discussion::{Discussion, hidden_text};

    fn shown(text: &str) -> String {
        markdown(text).0
    }

    fn hidden(text: &str) -> (u64, u64) {
        let Hidden { markup, characters } = markdown(text).1;
        (markup, characters)
    }

    #[test]
    fn what_a_page_does_not_show_is_omitted_and_counted() {
        for (text, expected) in [
            ("a <!-- evil --> b", "a  b"),
            ("a\n\n<!-- evil\n\nmore evil -->\n\nb", "a\n\n\n\nb"),
            ("a\n\n[//]: # (evil)\n\nb", "a\n\n\n\nb"),
            ("a\n\n[evil]: <> \"evil\"\n\nb", "a\n\n\n\nb"),
            ("a\n\n[^1]: evil\n", "a\n\n"),
            ("<b title=\"evil\" data-x=evil>c</b>", "<b>c</b>"),
            (
                "<img alt='evil' src=\"x.png\" width=3>",
                "<img src=\"x.png\">",
            ),
            ("a <?evil ?> b", "a  b"),
        ] {
            assert_eq!(shown(text), expected, "{text:?}");
            assert!(hidden(text).0 > 0, "{text:?}");
        }
    }

    #[test]
    fn what_a_page_shows_stays() {
        for text in [
            "```html\n<!-- a comment -->\n```\n",
            "Use `<!-- x -->` there.",
            "    <b onclick=\"x\">\n",
            "if a < b && c > d, `Vec<T>`",
            "[a][b] and [b]\n\n[b]: https://example.org \"B\"\n",
            "a note[^1]\n\n[^1]: the note\n",
            "<details>\n<summary>Log</summary>\n\ntext\n</details>\n",
            "<a href=\"https://example.org\">x</a>",
            "\u{1f469}\u{200d}\u{1f467} \u{2764}\u{fe0f} 1\u{fe0f}\u{20e3} \u{645}\u{6cc}\u{200c}\u{62e}",
            "日本語のテキスト、ok — naïve",
        ] {
            assert_eq!(shown(text), text);
            assert_eq!(hidden(text), (0, 0), "{text:?}");
        }
    }

    #[test]
    fn invisible_characters_are_removed_and_counted() {
        // "Hi" in Unicode tags.
        assert_eq!(shown("a\u{e0048}\u{e0069}b"), "ab");
        // Bits in joiners, bytes in variation selectors.
        assert_eq!(shown("a\u{200c}\u{200d}\u{200c}b"), "ab");
        assert_eq!(
            shown("\u{1f600}\u{fe01}\u{fe02}\u{fe03}\u{e0101}"),
            "\u{1f600}\u{fe01}"
        );
        assert_eq!(shown("x\u{202e}y\u{200b}\u{feff}"), "xy");
        assert_eq!(hidden("x\u{202e}y\u{200b}\u{feff}"), (0, 3));
        assert_eq!(shown("a\u{1b}[8mb\u{1b}[0m\u{7}\tc\r\nd"), "ab\tc\r\nd");
    }

    #[test]
    fn no_tag_is_endless() {
        for text in [
            "<b",
            "<b =",
            "<b =\"",
            "<b a='",
            "<b / / x",
            "<!--",
            "<b a=\"<!-- x -->\">y",
        ] {
            let _ = html(text);
        }
        let many = "<b a=<b a=".repeat(10_000);
        assert!(html(&many).text.len() <= many.len() + 1);
    }

    #[test]
    fn a_sentence_states_how_much_was_hidden() {
        let none = Discussion::none();
        assert_eq!(hidden_text("t", "b", &none).note(), None);
        let note = hidden_text("t\u{200b}", "b <!-- x -->", &none);
        let note = note.note().unwrap();
        assert!(note.contains("1 pieces of markup"), "{note}");
        assert!(note.contains("1 invisible characters"), "{note}");
    }

    #[test]
    fn of_definitions_those_stay_that_a_link_uses_in_whatever_case() {
        let text = "[a][One], ![b][TWO] and [c](https://x)\n\n[one]: https://1\n[two]: https://2\n[three]: https://3\n";
        let shown = shown(text);
        assert!(
            shown.contains("https://1") && shown.contains("https://2"),
            "{shown}"
        );
        assert!(!shown.contains("https://3"), "{shown}");
        assert_eq!(hidden(text), (1, 0));
    }

    #[test]
    fn a_sign_in_a_block_of_html_is_no_tag() {
        let text = "<div>\n1 < 2 title=\"x\" > 0\n</div>\n";
        assert_eq!(shown(text), text);
        assert_eq!(hidden(text), (0, 0));
    }

    #[test]
    fn one_kind_of_hidden_text_is_enough_for_a_note() {
        let note = |markup, characters| Hidden { markup, characters }.note();
        assert_eq!(note(0, 0), None);
        assert!(note(1, 0).unwrap().contains("1 pieces of markup"));
        assert!(note(0, 2).unwrap().contains("2 invisible characters"));
    }

    #[test]
    fn of_attributes_addresses_and_short_values_of_layout_are_not_hidden() {
        for (text, expected, markup) in [
            ("<a href=x>c</a>", "<a href=\"x\">c</a>", 0),
            ("<a href=x id=evil>c</a>", "<a href=\"x\">c</a>", 1),
            ("<a href=\"x evil\">c</a>", "<a>c</a>", 1),
            ("<img width=1234567 open src=x>", "<img src=\"x\">", 0),
            ("<img width=12345678 src=x>", "<img src=\"x\">", 1),
            ("<img width=123456789 src=x>", "<img src=\"x\">", 1),
        ] {
            assert_eq!(shown(text), expected, "{text}");
            assert_eq!(hidden(text), (markup, 0), "{text}");
        }
    }

    #[test]
    fn what_joins_stays_between_two_parts_alone() {
        assert_eq!(
            shown("\u{1f469}\u{200d}\u{1f469}"),
            "\u{1f469}\u{200d}\u{1f469}"
        );
        assert_eq!(shown("\u{1f469}\u{200d}"), "\u{1f469}");
        assert_eq!(shown("a\u{200d}\u{1f469}"), "a\u{1f469}");
    }
}
