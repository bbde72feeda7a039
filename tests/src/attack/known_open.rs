//! Holes that are known and not closed yet. The report lists their attacks apart from the others.

use super::cell::Cell;

/// An attack's name, the backends in which it succeeds, and why. None is known today.
const KNOWN_OPEN: &[(&str, &[&str], &str)] = &[];

/// Why an attack is known to succeed in a kind of sandbox, if it is.
pub(super) fn reason(attack: &str, cell: Cell) -> Option<&'static str> {
    let known = KNOWN_OPEN.iter();
    let mut known = known.filter(|(name, on, _)| *name == attack && on.contains(&cell.backend()));
    known.next().map(|(_, _, why)| *why)
}
