//! The reply that the model of a followed session is writing: its last lines, below the steps, on a terminal alone.

use console::{Term, measure_text_width, style};

use crate::print::clean;

/// Lines that are shown.
const MOST: usize = 6;

/// What is drawn of it.
pub(crate) struct LiveReply {
    /// `None`: nothing is drawn.
    term: Option<Term>,
    text: String,
    lines: usize,
}

impl LiveReply {
    /// For a terminal, if `wanted` and there is one.
    pub(crate) fn new(wanted: bool) -> Self {
        let term = Term::stdout();
        Self {
            term: Some(term).filter(|term| wanted && term.is_term()),
            text: String::new(),
            lines: 0,
        }
    }

    /// Draws it, in place of what was drawn.
    pub(crate) fn draw(&mut self, text: Option<&str>) {
        let text = text.unwrap_or_default();
        if self.text == text {
            return;
        }
        self.clear();
        let Some(term) = &self.term else { return };
        let columns = usize::from(term.size().1).max(20);
        let lines = last_lines(text, columns - 1);
        for line in &lines {
            // A terminal that is gone shows nothing.
            let _ = term.write_line(&style(line).dim().to_string());
        }
        self.lines = lines.len();
        text.clone_into(&mut self.text);
    }

    /// Removes it, before something else is printed.
    pub(crate) fn clear(&mut self) {
        if let Some(term) = &self.term {
            let _ = term.clear_last_lines(std::mem::take(&mut self.lines));
        }
        self.text.clear();
    }
}

/// The last lines of a text that a terminal shows in so many columns.
fn last_lines(text: &str, columns: usize) -> Vec<String> {
    let clean = clean(text.trim_end());
    let mut all: Vec<String> = Vec::new();
    for line in clean.lines() {
        let (mut part, mut width) = (String::new(), 0);
        for c in line.replace('\t', "    ").chars() {
            let wide = measure_text_width(c.encode_utf8(&mut [0; 4]));
            if width + wide > columns {
                all.push(std::mem::take(&mut part));
                width = 0;
            }
            part.push(c);
            width += wide;
        }
        all.push(part);
    }
    all[all.len().saturating_sub(MOST)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_fit_the_terminal() {
        assert_eq!(
            last_lines("abcdef\n\nghi\x1b[2J\n", 4),
            ["abcd", "ef", "", "ghi\u{fffd}", "[2J"]
        );
        assert_eq!(last_lines(&"x\n".repeat(50), 80).len(), MOST);
        assert_eq!(last_lines("日本語", 4), ["日本", "語"]);
        assert!(last_lines("", 80).is_empty());
    }
}
