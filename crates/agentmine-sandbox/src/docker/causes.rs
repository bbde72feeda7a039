//! The text of an engine's error with all of its causes, including those that an I/O error contains.

use std::error::Error as StdError;
use std::io;

/// An error with all its causes, each once.
pub(super) fn chain(err: &(dyn StdError + 'static)) -> String {
    let mut text = err.to_string();
    let mut next = cause(err);
    while let Some(err) = next {
        let part = err.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        next = cause(err);
    }
    text
}

/// What is in an I/O error is not its source but itself.
pub(super) fn cause<'e>(err: &'e (dyn StdError + 'static)) -> Option<&'e (dyn StdError + 'static)> {
    match err.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => err.source(),
    }
}
