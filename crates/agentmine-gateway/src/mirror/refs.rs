//! Branches and tags: as the repository's host lists them for the session's token, and as a mirror has them.

use std::collections::{BTreeMap, HashSet};

use gix_packetline::PacketLineRef;

use crate::wire::object_id::is_id;
use crate::wire::pktline::Lines;

/// What is mirrored.
pub(super) const PREFIXES: [&str; 2] = ["refs/heads/", "refs/tags/"];
const TAGS: &str = PREFIXES[1];

/// Branches and tags, with the ids of their objects.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Refs(BTreeMap<String, String>);

impl Refs {
    /// The host's list. `None` if it is not one.
    pub(super) fn listed(body: &[u8]) -> Option<Self> {
        let mut lines = Lines::new(body);
        let mut refs = Self::default();
        loop {
            match lines.next().ok()?? {
                PacketLineRef::Flush => return Some(refs),
                line => {
                    let text = std::str::from_utf8(line.as_slice()?).ok()?;
                    refs.add(text.trim_end_matches('\n'))?;
                }
            }
        }
    }

    /// Lines of `git for-each-ref` with the id and the name.
    pub(super) fn of_mirror(listing: &[u8]) -> Option<Self> {
        let mut refs = Self::default();
        for line in std::str::from_utf8(listing).ok()?.lines() {
            refs.add(line)?;
        }
        Some(refs)
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let (id, name) = (words.next()?, words.next()?);
        if !is_id(id) {
            // A branch that has no commit yet.
            return (id == "unborn").then_some(());
        }
        if PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            self.0.insert(name.to_owned(), id.to_owned());
        }
        Some(())
    }

    /// Whether branches or tags have all of these ids.
    pub(super) fn have(&self, wants: &[String]) -> bool {
        let ids: HashSet<&String> = self.0.values().collect();
        wants.iter().all(|want| ids.contains(want))
    }

    /// Whether a clone of `wants` from `self` gets what it would get from `host`: every branch or tag that the host
    /// has at one of them is the same here, and so are all tags, which a clone gets along with their commits.
    pub(super) fn are_as_good_as(&self, host: &Self, wants: &[String]) -> bool {
        let wanted: HashSet<&String> = wants.iter().collect();
        let wanted = host.0.iter().filter(|(_, id)| wanted.contains(id));
        wanted
            .into_iter()
            .all(|(name, id)| self.0.get(name) == Some(id))
            && self.tags().eq(host.tags())
    }

    fn tags(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.iter().filter(|(name, _)| name.starts_with(TAGS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::pktline::{data, flush};

    fn refs(of: &[(&str, char)]) -> Refs {
        let lines = of.iter().map(|(name, id)| {
            let id = id.to_string().repeat(40);
            format!("{id} {name}\n")
        });
        Refs::of_mirror(lines.collect::<String>().as_bytes()).unwrap()
    }

    fn wants(ids: &str) -> Vec<String> {
        ids.chars().map(|id| id.to_string().repeat(40)).collect()
    }

    #[test]
    fn the_hosts_list_is_read() {
        let mut body = Vec::new();
        let id = "a".repeat(40);
        for line in [
            "unborn HEAD symref-target:refs/heads/x".to_owned(),
            format!("{id} HEAD symref-target:refs/heads/main"),
            format!("{id} refs/heads/main\n"),
            format!("{id} refs/tags/v1 peeled:{id}"),
            format!("{id} refs/pull/1/head"),
        ] {
            data(&mut body, line.as_bytes());
        }
        assert_eq!(Refs::listed(&body), None, "it is cut off");
        flush(&mut body);
        let expected = refs(&[("refs/heads/main", 'a'), ("refs/tags/v1", 'a')]);
        assert_eq!(Refs::listed(&body), Some(expected));
        assert_eq!(Refs::listed(b"garbage"), None);
    }

    #[test]
    fn a_mirror_is_as_good_as_the_host_only_with_its_tags_and_what_is_wanted() {
        let host = refs(&[
            ("refs/heads/main", 'a'),
            ("refs/heads/other", 'b'),
            ("refs/tags/v1", 'c'),
        ]);
        assert!(host.have(&wants("ac")) && !host.have(&wants("ad")));
        let is_good = |of: &[(&str, char)]| refs(of).are_as_good_as(&host, &wants("a"));
        let (main, tag) = (("refs/heads/main", 'a'), ("refs/tags/v1", 'c'));
        assert!(is_good(&[main, tag]));
        assert!(is_good(&[main, tag, ("refs/heads/gone", 'e')]));
        assert!(!is_good(&[main]), "a tag is missing");
        assert!(
            !is_good(&[main, tag, ("refs/tags/v2", 'a')]),
            "a tag is gone"
        );
        assert!(!is_good(&[("refs/heads/main", 'b'), tag]), "it is older");
        assert!(
            !is_good(&[("refs/heads/other", 'a'), tag]),
            "it has another name"
        );
    }
}
