//! A bound on length and nesting, checked before a text is parsed.
//!
//! The parser reads a nested substitution again for every level around it, and its recursion into `${…}`
//! has no limit: some hundred levels would take minutes or overflow the stack. Brackets are counted
//! without regard to quotes. Accepted: a text whose quoted brackets hide its nesting keeps a thread busy.

use crate::script::Unclear;

/// Longest script, in bytes.
const MAX_SCRIPT: usize = 64 * 1024;
/// Deepest nesting of parentheses, braces and backticks.
const MAX_NESTING: usize = 24;

/// Refuses a text that is too long, too deeply nested, or has characters that shells disagree about.
pub(crate) fn check(text: &str) -> Result<(), Unclear> {
    if text.len() > MAX_SCRIPT {
        return Err(Unclear("it is too long"));
    }
    if text.contains(['\0', '\r']) {
        return Err(Unclear("it has a NUL character or a carriage return"));
    }
    if text
        .match_indices("\\\n")
        .any(|(at, _)| splits_a_name(text, at))
    {
        return Err(Unclear("a line ends within the name of a variable"));
    }
    let mut closers = Vec::new();
    for c in text.chars() {
        match c {
            '`' if closers.last() == Some(&'`') => drop(closers.pop()),
            ')' | '}' if closers.contains(&c) => {
                // What is still open inside was text, such as a smiley.
                while closers.pop().is_some_and(|closer| closer != c) {}
            }
            '(' => closers.push(')'),
            '{' => closers.push('}'),
            '`' => closers.push('`'),
            _ => {}
        }
        if closers.len() > MAX_NESTING {
            return Err(Unclear("it is nested too deeply"));
        }
    }
    Ok(())
}

/// Whether a line continuation stands within `$name`. Shells join the lines first; the parser does not.
fn splits_a_name(text: &str, at: usize) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let before = text[..at].trim_end_matches(is_name);
    let bare = before.len() == at;
    let variable = before.ends_with('$') || before.ends_with("${");
    // After a whole name, the next line matters only where it goes on with it.
    variable && (bare || text[at + 2..].starts_with(|c| is_name(c) || c == '\\'))
}
