//! The authors and committers of the pushed commits other than AgentMine. A cherry-pick or a rebase keeps the authors of
//! others' commits, so such a push is accepted. But a model can write any name, so the reviewer is informed.

use agentmine_domain::markdown::line;

/// How many are named.
const MAX_NAMED: usize = 5;

/// A note on the authors and committers of the pushed commits that are not `own`, which is `NAME <ADDRESS>`; `None` if there
/// are none.
pub(super) fn others(identities: &[String], (name, address): (&str, &str)) -> Option<String> {
    let own = format!("{} <{}>", as_git_keeps(name), as_git_keeps(address));
    let others: Vec<&String> = identities.iter().filter(|it| **it != own).collect();
    let more = match others.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = others.iter().take(MAX_NAMED);
    let named: Vec<String> = named
        .map(|it| format!("`{}`", line(it, 100).replace('`', "'")))
        .collect();
    (!others.is_empty()).then(|| {
        format!(
            "Pushed commits name others as author or committer; AgentMine cannot confirm that they wrote them: {}{more}.",
            named.join(", ")
        )
    })
}

/// Git removes these characters at both ends of a name and an address.
fn as_git_keeps(text: &str) -> &str {
    text.trim_matches(|c: char| c <= ' ' || ".,:;<>\"\\'".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_in_the_name_of_a_person_is_noted() {
        let own = ("AgentMine, Inc.", "bot@example.com");
        let of = |names: &[&str]| {
            let identities: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
            others(&identities, own)
        };
        assert_eq!(of(&["AgentMine, Inc <bot@example.com>"]), None);
        let note = of(&["AgentMine, Inc <bot@example.com>", "Mona `M` <mona@x>"]).unwrap();
        assert!(note.ends_with(": `Mona 'M' <mona@x>`."), "{note}");
        let note = of(&["AgentMine, Inc <mona@x>"; 7]).unwrap();
        assert!(note.ends_with(" and 2 more."), "{note}");
    }
}
