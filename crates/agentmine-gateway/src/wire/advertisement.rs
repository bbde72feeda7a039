//! The list of refs that a push starts from.

use gix_packetline::PacketLineRef;

use super::capability::Capabilities;
use super::object_id::{is_id, zero};
use super::pktline::{self, Lines, Malformed};

/// The refs that upstream lists for a push.
#[derive(Debug)]
pub(crate) struct Advertisement {
    refs: Vec<(String, String)>,
    capabilities: Capabilities,
}

impl Advertisement {
    /// Reads the response to `info/refs?service=git-receive-pack`.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut lines = Lines::new(bytes);
        let mut out = Self {
            refs: Vec::new(),
            capabilities: Capabilities::default(),
        };
        let mut first = true;
        while let Some(line) = lines.next()? {
            let PacketLineRef::Data(data) = line else {
                continue;
            };
            let text = String::from_utf8_lossy(data);
            let text = text.trim_end_matches('\n');
            if text.starts_with('#') || text == "version 1" || text.starts_with("shallow ") {
                continue;
            }
            let (text, capabilities) = text.split_once('\0').unwrap_or((text, ""));
            if std::mem::take(&mut first) {
                out.capabilities = Capabilities::parse(capabilities);
            }
            let (id, name) = text.split_once(' ').ok_or(Malformed)?;
            if !is_id(id) {
                return Err(Malformed);
            }
            if name != "capabilities^{}" {
                out.refs.push((id.to_owned(), name.to_owned()));
            }
        }
        if first { Err(Malformed) } else { Ok(out) }
    }

    /// The commit of `refname`.
    pub(crate) fn id(&self, refname: &str) -> Option<&str> {
        let found = self.refs.iter().find(|(_, name)| name == refname);
        found.map(|(id, _)| id.as_str())
    }

    /// The branch that keeps `refname` from being created: git has no branch below another one.
    pub(crate) fn in_the_way_of(&self, refname: &str) -> Option<&str> {
        let is_below = |name: &str, above: &str| {
            let rest = name.strip_prefix(above);
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        self.refs
            .iter()
            .filter(|(_, name)| is_below(refname, name) || is_below(name, refname))
            .find_map(|(_, name)| name.strip_prefix("refs/heads/"))
    }

    /// The ids of upstream's branches and tags.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.trusted().map(|(id, _)| id.as_str())
    }

    /// Branches and tags. Anybody may put commits under other refs, such as those of pull requests.
    fn trusted(&self) -> impl Iterator<Item = &(String, String)> {
        self.refs
            .iter()
            .filter(|(_, name)| name.starts_with("refs/heads/") || name.starts_with("refs/tags/"))
    }

    /// Whether upstream offers a capability.
    pub(super) fn offers(&self, capability: &str) -> bool {
        self.capabilities.has(capability)
    }

    pub(crate) fn object_format(&self) -> &str {
        self.capabilities.object_format()
    }

    /// The advertisement for the sandbox: branches and tags, only harmless capabilities, and `no-thin`,
    /// because the pack is checked without upstream's objects. Git sends the commits that only other refs have, so
    /// they are checked. `have` is a commit that upstream has although none of them is at it: git omits from a push what that
    /// holds, too.
    pub(crate) fn rewritten(&self, have: Option<&str>) -> Vec<u8> {
        let mut capabilities: Vec<&str> = self.capabilities.harmless().collect();
        capabilities.push("no-thin");
        let capabilities = capabilities.join(" ");
        let mut out = Vec::new();
        pktline::data(&mut out, b"# service=git-receive-pack\n");
        pktline::flush(&mut out);
        if self.trusted().next().is_none() {
            let zero = zero(self.object_format());
            let line = format!("{zero} capabilities^{{}}\0{capabilities}\n");
            pktline::data(&mut out, line.as_bytes());
        }
        for (at, (id, name)) in self.trusted().enumerate() {
            let line = match at {
                0 => format!("{id} {name}\0{capabilities}\n"),
                _ => format!("{id} {name}\n"),
            };
            pktline::data(&mut out, line.as_bytes());
        }
        if let Some(have) = have.filter(|have| self.ids().all(|id| id != *have)) {
            pktline::data(&mut out, format!("{have} .have\n").as_bytes());
        }
        pktline::flush(&mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";
    const REF: &str = "refs/heads/work";

    #[test]
    fn the_advertisement_lists_only_harmless_capabilities() {
        let mut bytes = Vec::new();
        pktline::data(&mut bytes, b"# service=git-receive-pack\n");
        pktline::flush(&mut bytes);
        let line = format!("{A} {REF}\0report-status push-options push-cert=x ofs-delta\n");
        pktline::data(&mut bytes, line.as_bytes());
        pktline::flush(&mut bytes);
        let seen = Advertisement::parse(&bytes).unwrap();
        assert_eq!(seen.id(REF), Some(A));
        let again = Advertisement::parse(&seen.rewritten(None)).unwrap();
        assert_eq!(
            again.capabilities.harmless().collect::<Vec<_>>(),
            ["report-status", "ofs-delta"]
        );
        assert_eq!(again.capabilities.unsupported(), Some("no-thin"));
        assert_eq!(again.refs, seen.refs);
    }

    #[test]
    fn a_branch_above_or_below_is_in_the_way() {
        let mut bytes = Vec::new();
        for name in ["refs/heads/a", "refs/heads/b/c/d", "refs/tags/e"] {
            pktline::data(&mut bytes, format!("{A} {name}\0\n").as_bytes());
        }
        pktline::flush(&mut bytes);
        let seen = Advertisement::parse(&bytes).unwrap();
        for (name, expected) in [
            ("a/x", Some("a")),
            ("a/x/y", Some("a")),
            ("b/c", Some("b/c/d")),
            ("a", None),
            ("ab", None),
            ("b/cd", None),
            ("e/f", None),
        ] {
            let found = seen.in_the_way_of(&format!("refs/heads/{name}"));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn only_branches_and_tags_are_trusted_and_offered() {
        let offered = |names: &[&str]| {
            let mut bytes = Vec::new();
            pktline::data(&mut bytes, b"# service=git-receive-pack\n");
            pktline::flush(&mut bytes);
            for (at, name) in names.iter().enumerate() {
                let id = (at + 1).to_string().repeat(40);
                pktline::data(
                    &mut bytes,
                    format!("{id} {name}\0report-status\n").as_bytes(),
                );
            }
            pktline::flush(&mut bytes);
            let seen = Advertisement::parse(&bytes).unwrap();
            let again = Advertisement::parse(&seen.rewritten(None)).unwrap();
            assert!(again.ids().eq(seen.ids()));
            again.refs.into_iter().map(|(_, name)| name).collect()
        };
        let names = ["refs/pull/1/head", REF, ".have", "refs/tags/v1"];
        let shown: Vec<String> = offered(&names);
        assert_eq!(shown, [REF, "refs/tags/v1"]);
        assert_eq!(offered(&["refs/pull/1/head"]), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut framed = Vec::new();
            pktline::data(&mut framed, &bytes);
            pktline::flush(&mut framed);
            for input in [&bytes, &framed] {
                let _ = Advertisement::parse(input);
            }
        }
    }
}
