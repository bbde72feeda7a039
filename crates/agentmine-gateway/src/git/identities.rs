//! The authors and committers of the new commits of a push. Anybody can write any name there, so they are shown to the
//! reader of the result.

use std::collections::BTreeSet;

use super::fresh::Message;
use crate::printable::printable;

/// The names, as `NAME <ADDRESS>`, each once.
pub(super) fn identities(commits: &[Message]) -> BTreeSet<String> {
    let of = |commit: &Message| {
        let text = String::from_utf8_lossy(&commit.text).into_owned();
        // The message follows an empty line.
        let lines = text.lines().take_while(|line| !line.is_empty());
        lines.filter_map(identity).collect::<Vec<_>>()
    };
    commits.iter().flat_map(of).collect()
}

/// Reads a line such as `author Mona <mona@example.com> 1700000000 +0100`.
fn identity(line: &str) -> Option<String> {
    let named = line
        .strip_prefix("author ")
        .or_else(|| line.strip_prefix("committer "))?;
    let (named, _) = named.rsplit_once('>')?;
    Some(printable(&format!("{named}>")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authors_and_committers_are_read_and_messages_are_not() {
        let commit = |text: &str| Message {
            commit: "c".into(),
            text: text.into(),
        };
        let one = "tree 1\nauthor Mona <m@x> 1 +0000\ncommitter Bot <b@x> 2 +0000\n\nauthor Me <e@x> 3 +0000\n";
        let two = "tree 2\nparent 1\nauthor Bot <b@x> 1 +0000\ncommitter Bot <b@x> 2 +0000\ngpgsig -----\n author A <a@x> 1\n";
        let found = identities(&[commit(one), commit(two)]);
        assert_eq!(Vec::from_iter(found), ["Bot <b@x>", "Mona <m@x>"]);
    }
}
