//! The one request that a mirror answers: that of a new clone, in version 2 of git's protocol.
//!
//! It is read strictly, and written again for git's server program: no byte of the sandbox reaches that program. What
//! says which objects the client has already, or asks for anything unusual, goes to the repository's host.

use gix_packetline::PacketLineRef;

use crate::facts::listing;
use crate::wire::object_id::is_id;
use crate::wire::pktline::{Lines, data, flush};

/// Separates the parts of a request.
const DELIMITER: &[u8] = b"0001";
/// Commits, tags and other objects that one clone asks for.
const MAX_WANTS: usize = 50_000;

/// The request of a new clone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct CloneRequest {
    /// The ids of the branches and tags that are cloned.
    pub(super) wants: Vec<String>,
    depth: Option<u32>,
    flags: Vec<&'static str>,
}

/// Flags of a clone that change nothing about what may be read.
const FLAGS: [&str; 4] = ["thin-pack", "no-progress", "include-tag", "ofs-delta"];

impl CloneRequest {
    /// `None` if it is another request.
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let mut lines = Lines::new(body);
        if text(lines.next().ok()??)? != "command=fetch" {
            return None;
        }
        loop {
            match lines.next().ok()?? {
                PacketLineRef::Delimiter => break,
                line => is_capability(text(line)?).then_some(())?,
            }
        }
        let mut request = Self::default();
        let mut done = false;
        loop {
            match lines.next().ok()?? {
                PacketLineRef::Flush => break,
                line => done |= request.read(text(line)?)?,
            }
        }
        let is_whole = lines.next().ok()?.is_none();
        (is_whole && done && !request.wants.is_empty()).then_some(request)
    }

    /// Reads one argument. Returns whether it is the last word of a client that has nothing.
    fn read(&mut self, line: &str) -> Option<bool> {
        if let Some(flag) = FLAGS.into_iter().find(|flag| *flag == line) {
            self.flags.push(flag);
            return (self.flags.len() <= FLAGS.len()).then_some(false);
        }
        match line.split_once(' ') {
            None if line == "done" => Some(true),
            Some(("want", id)) if is_sha1(id) && self.wants.len() < MAX_WANTS => {
                self.wants.push(id.to_owned());
                Some(false)
            }
            Some(("deepen", depth)) if self.depth.is_none() => {
                self.depth = Some(depth.parse().ok().filter(|depth| *depth > 0)?);
                Some(false)
            }
            _ => None,
        }
    }

    /// The request as git's server program reads it.
    pub(super) fn written(&self) -> Vec<u8> {
        let mut out = Vec::new();
        data(&mut out, b"command=fetch\n");
        data(&mut out, b"object-format=sha1\n");
        out.extend_from_slice(DELIMITER);
        for flag in &self.flags {
            data(&mut out, format!("{flag}\n").as_bytes());
        }
        for want in &self.wants {
            data(&mut out, format!("want {want}\n").as_bytes());
        }
        if let Some(depth) = self.depth {
            data(&mut out, format!("deepen {depth}\n").as_bytes());
        }
        data(&mut out, b"done\n");
        flush(&mut out);
        out
    }
}

/// The request for the list of branches and tags.
pub(super) fn list_refs() -> Vec<u8> {
    listing::request("sha1", &super::refs::PREFIXES)
}

fn is_capability(line: &str) -> bool {
    line == "object-format=sha1" || line.starts_with("agent=") || line.starts_with("session-id=")
}

fn is_sha1(id: &str) -> bool {
    id.len() == 40 && is_id(id)
}

/// The text of a data line.
fn text<'a>(line: PacketLineRef<'a>) -> Option<&'a str> {
    let text = std::str::from_utf8(line.as_slice()?).ok()?;
    Some(text.strip_suffix('\n').unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0123456789012345678901234567890123456789";

    fn body(capabilities: &[&str], arguments: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in capabilities {
            data(&mut out, line.as_bytes());
        }
        out.extend_from_slice(DELIMITER);
        for line in arguments {
            data(&mut out, line.as_bytes());
        }
        flush(&mut out);
        out
    }

    fn parsed(arguments: &[&str]) -> Option<CloneRequest> {
        CloneRequest::parse(&body(
            &["command=fetch", "agent=git/2.47", "object-format=sha1"],
            arguments,
        ))
    }

    #[test]
    fn a_clone_is_read_and_written_anew() {
        let want = format!("want {ID}\n");
        let request = parsed(&["thin-pack", "ofs-delta", "deepen 1", &want, "done\n"]).unwrap();
        assert_eq!(request.wants, [ID]);
        let written = request.written();
        assert_eq!(CloneRequest::parse(&written), Some(request));
        assert!(!String::from_utf8_lossy(&written).contains("agent="));
    }

    #[test]
    fn anything_else_goes_to_the_host() {
        let want = format!("want {ID}");
        let have = format!("have {ID}");
        let upper = format!("want {}", "A".repeat(40));
        let short = format!("want {}", "a".repeat(39));
        let long = format!("want {}", "a".repeat(64));
        for arguments in [
            &[want.as_str()][..],
            &["done"],
            &[&want, &have, "done"],
            &[&want, "filter blob:none", "done"],
            &[
                &want,
                "shallow 0123456789012345678901234567890123456789",
                "done",
            ],
            &[&want, "deepen-relative", "done"],
            &[&want, "deepen-not main", "done"],
            &[&want, "deepen-since 1", "done"],
            &[&want, "deepen 0", "done"],
            &[&want, "deepen -1", "done"],
            &[&want, "deepen 1", "deepen 2", "done"],
            &[&want, "want-ref refs/heads/main", "done"],
            &[&want, "packfile-uris https", "done"],
            &[&want, "sideband-all", "done"],
            &[&want, "wait-for-done", "done"],
            &[&upper, "done"],
            &[&short, "done"],
            &[&long, "done"],
        ] {
            assert_eq!(parsed(arguments), None, "{arguments:?}");
        }
        let of = |command| CloneRequest::parse(&body(&[command], &[&want, "done"]));
        assert!(of("command=fetch").is_some());
        assert_eq!(of("command=ls-refs"), None);
        assert_eq!(of("command=object-info"), None);
        let mut twice = body(&["command=fetch"], &[&want, "done"]);
        twice.extend(body(&["command=fetch"], &[&want, "done"]));
        assert_eq!(CloneRequest::parse(&twice), None);
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = CloneRequest::parse(&bytes);
        }

        #[test]
        fn what_is_written_is_read_again(depth in 1_u32.., id in "[0-9a-f]{40}") {
            let request = CloneRequest { wants: vec![id], depth: Some(depth), flags: vec!["include-tag"] };
            prop_assert_eq!(CloneRequest::parse(&request.written()), Some(request));
        }
    }
}
