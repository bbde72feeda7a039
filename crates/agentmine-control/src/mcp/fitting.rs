//! The size of one answer.

/// Bytes of the entries of one answer. Claude Code shows its model only the beginning of an answer of more than 50,000
/// characters or 25,000 tokens, and a model pays for an answer again at each later call.
pub(super) const MAX_ANSWER: usize = 32 * 1024;

/// The first entries, as many as fit into an answer and at least one, and whether others are left for the next one.
pub(super) fn fitting<T>(
    entries: impl IntoIterator<Item = T>,
    size: impl Fn(&T) -> usize,
) -> (Vec<T>, bool) {
    let mut room = MAX_ANSWER;
    let mut fitting = Vec::new();
    for entry in entries {
        let size = size(&entry);
        if size > room && !fitting.is_empty() {
            return (fitting, true);
        }
        room = room.saturating_sub(size);
        fitting.push(entry);
    }
    (fitting, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_taken_in_order_until_one_does_not_fit() {
        let of = |sizes: &[usize]| fitting(sizes.to_vec(), |size| *size);
        assert_eq!(of(&[]), (vec![], false));
        assert_eq!(
            of(&[MAX_ANSWER / 2, MAX_ANSWER / 2]),
            (vec![MAX_ANSWER / 2, MAX_ANSWER / 2], false)
        );
        assert_eq!(of(&[1, MAX_ANSWER, 1]), (vec![1], true));
        assert_eq!(of(&[2 * MAX_ANSWER, 1]), (vec![2 * MAX_ANSWER], true));
    }
}
