//! Branches and tags: as the repository's host lists them for the session's token, and as a mirror has them.

use std::collections::{BTreeMap, HashSet};

use gix_packetline::PacketLineRef;

use crate::wire::object_id::is_id;
use crate::wire::pktline::Lines;

/// What is mirrored.
pub(crate) const PREFIXES: [&str; 2] = ["refs/heads/", "refs/tags/"];
const TAGS: &str = PREFIXES[1];
const HEAD: &str = "HEAD";

/// What a clone of one branch got, or would get: two clones with the same have the same content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneRefs {
    tip: String,
    tags: Refs,
    /// The branch that is checked out by default: a clone of it names it.
    default_branch: Option<String>,
}

impl CloneRefs {
    /// The prefixes of the refs that decide it.
    pub(crate) fn prefixes(branch: &str) -> [String; 3] {
        let [branches, tags] = PREFIXES.map(str::to_owned);
        [HEAD.to_owned(), branches + branch, tags]
    }

    /// From the host's list of refs with these prefixes. `None` if it is not one, or has no such branch.
    pub(crate) fn listed(body: &[u8], branch: &str) -> Option<Self> {
        let mut tags = Refs::listed(body)?;
        let tip = tags.0.remove(&format!("{}{branch}", PREFIXES[0]))?;
        tags.0.retain(|name, _| name.starts_with(TAGS));
        Some(Self {
            tip,
            tags,
            default_branch: default_branch(body),
        })
    }

    /// The id of the branch's newest commit.
    #[must_use]
    pub fn tip(&self) -> &str {
        &self.tip
    }
}

/// The branch that HEAD points to, in a list of refs.
fn default_branch(body: &[u8]) -> Option<String> {
    let mut lines = Lines::new(body);
    while let Some(line) = lines
        .next()
        .ok()?
        .and_then(|line| line.as_slice().map(<[u8]>::to_vec))
    {
        let line = String::from_utf8(line).ok()?;
        let mut words = line.trim_end_matches('\n').split(' ').skip(1);
        if words.next() == Some(HEAD) {
            let mut targets = words.filter_map(|word| word.strip_prefix("symref-target:"));
            return targets.next().map(str::to_owned);
        }
    }
    None
}

/// Branches and tags, with the ids of their objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
    fn a_clone_is_decided_by_its_branch_all_tags_and_the_default_branch() {
        let listed = |lines: &[&str], branch: &str| {
            let mut body = Vec::new();
            for line in lines {
                let (id, rest) = line.split_once(' ').unwrap();
                let line = format!("{} {rest}\n", id.repeat(40));
                data(&mut body, line.as_bytes());
            }
            flush(&mut body);
            CloneRefs::listed(&body, branch)
        };
        let all = [
            "a HEAD symref-target:refs/heads/main",
            "a refs/heads/main",
            "b refs/heads/main-2",
            "c refs/tags/v1",
        ];
        let main = listed(&all, "main").unwrap();
        assert_eq!(main.tip(), "a".repeat(40));
        assert_eq!(listed(&all, "mai"), None);
        let without = |at: usize| {
            let mut lines = all.to_vec();
            lines.remove(at);
            listed(&lines, "main")
        };
        assert_eq!(without(2), Some(main.clone()), "another branch");
        for (at, what) in [(0, "the default branch"), (3, "a tag")] {
            assert!(without(at).is_some_and(|it| it != main), "{what}");
        }
        assert_eq!(without(1), None);
        assert_eq!(CloneRefs::listed(b"garbage", "main"), None);
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
