//! The parser, with limits on length, nesting and work.
//!
//! It reads a nested substitution again for every level around it, and its recursion into `${…}` has no
//! limit: some hundred levels would take minutes or overflow the stack. A line is hostile input, so
//! brackets are counted first, without regard to quotes. Accepted: a text whose quoted brackets hide its
//! nesting keeps a thread busy.

use std::cell::Cell;

use rable::{Node, NodeKind};

/// Longest script, in bytes.
const MAX_SCRIPT: usize = 64 * 1024;
/// Deepest nesting of parentheses, braces and backticks.
const MAX_NESTING: usize = 24;
/// Most bytes that are parsed or expanded, and words that are examined, for one command: its parts have to
/// be read again, and nested wrappers can be read in very many ways.
const MAX_WORK: usize = 2 * 1024 * 1024;

/// Why a script cannot be judged.
#[derive(Debug)]
pub(crate) struct Unclear(pub(crate) &'static str);

/// The parser for one command and all that is nested in it.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    spent: Cell<usize>,
}

impl Parser {
    pub(crate) fn parse(&self, text: &str) -> Result<Vec<Node>, Unclear> {
        self.spend(text.len())?;
        check(text)?;
        rable::parse(text, false).map_err(|_| Unclear("it is not a complete shell script"))
    }

    /// Once too much is spent, everything that follows is refused too.
    pub(crate) fn spend(&self, amount: usize) -> Result<(), Unclear> {
        self.spent.set(self.spent.get().saturating_add(amount));
        match self.spent.get() > MAX_WORK {
            true => Err(Unclear("it takes too long to read")),
            false => Ok(()),
        }
    }

    /// The length of the expansion, such as `$(…)` or `${…}`, at the beginning of a text. Only the parser
    /// knows which closer ends it. It is usually the one at which the brackets balance.
    pub(crate) fn end(&self, text: &str, open: char, close: char) -> Result<usize, Unclear> {
        let mut depth = 0_usize;
        let balanced = text.find(|c| {
            depth += usize::from(c == open);
            depth = depth.saturating_sub(usize::from(c == close));
            c == close && depth == 0
        });
        let closers = text.match_indices(close).map(|(at, _)| at);
        let mut ends = balanced.into_iter().chain(closers).map(|at| at + 1);
        ends.find(|end| self.is_expansion(&text[..*end]))
            .ok_or(Unclear("a substitution cannot be followed"))
    }

    fn is_expansion(&self, text: &str) -> bool {
        let nodes = self.parse(text);
        let Ok([node]) = nodes.as_deref() else {
            return false;
        };
        match &node.kind {
            NodeKind::Command {
                words,
                assignments,
                redirects,
            } if assignments.is_empty() && redirects.is_empty() => {
                let mut words = words.iter().map(|word| &word.kind);
                matches!(words.next(), Some(NodeKind::Word { parts, .. }) if parts.len() == 1)
                    && words.next().is_none()
            }
            _ => false,
        }
    }
}

/// Refuses a text that is too long, too deeply nested, or has characters that shells disagree about.
fn check(text: &str) -> Result<(), Unclear> {
    if text.len() > MAX_SCRIPT {
        return Err(Unclear("it is too long"));
    }
    if text.contains(['\0', '\r']) {
        return Err(Unclear("it has a NUL character or a carriage return"));
    }
    let mut joins = text.match_indices("\\\n");
    if joins.any(|(at, _)| splits_a_name(text, at)) {
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

/// Whether a line is joined with the next one in `$name`. Shells join the lines first.
fn splits_a_name(text: &str, at: usize) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let before = text[..at].trim_end_matches(is_name);
    let variable = before.ends_with('$') || before.ends_with("${");
    // After a whole name, the next line matters only where it continues with it.
    let continues = text[at + 2..].starts_with(|c| is_name(c) || c == '\\');
    variable && (before.len() == at || continues)
}
