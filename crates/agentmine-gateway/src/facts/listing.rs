//! Lists of refs in version 2 of git's protocol.

use gix_packetline::PacketLineRef;

use crate::wire::object_id::is_id;
use crate::wire::pktline::{Lines, Malformed, data, flush};

const SHA1: &str = "sha1";
pub(super) const SHA256: &str = "sha256";
/// Separates the parts of a request.
pub(super) const DELIMITER: &[u8] = b"0001";

/// The object format of a host that lists refs in version 2, by its answer to `info/refs`. `None` if it speaks
/// another version, or has a format that is unknown here.
pub(super) fn object_format(advertised: &[u8]) -> Option<&'static str> {
    let mut lines = Lines::new(advertised);
    let (mut is_v2, mut lists, mut format) = (false, false, SHA1);
    while let Some(line) = lines.next().ok()? {
        let Some(bytes) = line.as_slice() else {
            match is_v2 {
                true => break,
                // After the name of the service, which some hosts give first.
                false => continue,
            }
        };
        let text = String::from_utf8_lossy(bytes);
        match text.trim_end_matches('\n') {
            "version 2" => is_v2 = true,
            named if !is_v2 && named.starts_with("# service=") => {}
            _ if !is_v2 => return None,
            capability if capability == "ls-refs" || capability.starts_with("ls-refs=") => {
                lists = true;
            }
            "object-format=sha1" => format = SHA1,
            "object-format=sha256" => format = SHA256,
            other if other.starts_with("object-format=") => return None,
            _ => {}
        }
    }
    (is_v2 && lists).then_some(format)
}

/// The request for refs with these prefixes.
pub(crate) fn request(format: &str, prefixes: &[&str]) -> Vec<u8> {
    written(format, &[], prefixes)
}

/// The same for SHA-1 ids, which also says what refs such as HEAD point to.
pub(crate) fn request_with_targets(prefixes: &[&str]) -> Vec<u8> {
    written(SHA1, &["symrefs"], prefixes)
}

fn written(format: &str, flags: &[&str], prefixes: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    data(&mut out, b"command=ls-refs\n");
    data(&mut out, format!("object-format={format}\n").as_bytes());
    out.extend_from_slice(DELIMITER);
    for flag in flags {
        data(&mut out, format!("{flag}\n").as_bytes());
    }
    for prefix in prefixes {
        data(&mut out, format!("ref-prefix {prefix}\n").as_bytes());
    }
    flush(&mut out);
    out
}

/// The id that a ref has in the answer, which must be whole.
pub(super) fn find(listing: &[u8], refname: &str) -> Result<Option<String>, Malformed> {
    let mut lines = Lines::new(listing);
    let mut found = None;
    loop {
        match lines.next()?.ok_or(Malformed)? {
            PacketLineRef::Flush => return Ok(found),
            line => {
                let text = String::from_utf8_lossy(line.as_slice().ok_or(Malformed)?);
                let mut words = text.trim_end_matches('\n').split(' ');
                let (Some(id), Some(name)) = (words.next(), words.next()) else {
                    return Err(Malformed);
                };
                // Other refs may begin with the same name.
                if name == refname {
                    found = Some(is_id(id).then(|| id.to_owned()).ok_or(Malformed)?);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            match *line {
                "" => flush(&mut out),
                line => data(&mut out, line.as_bytes()),
            }
        }
        out
    }

    #[test]
    fn only_a_host_that_lists_refs_in_version_2_is_asked() {
        let format = |of: &[&str]| object_format(&lines(of));
        let plain = ["version 2\n", "agent=git/2\n", "ls-refs=unborn\n", ""];
        assert_eq!(format(&plain), Some("sha1"));
        let named = [
            "# service=git-upload-pack\n",
            "",
            "version 2",
            "ls-refs",
            "",
        ];
        assert_eq!(format(&named), Some("sha1"));
        let sha256 = ["version 2", "ls-refs", "object-format=sha256", ""];
        assert_eq!(format(&sha256), Some("sha256"));
        assert_eq!(
            format(&["version 2", "ls-refs", "object-format=x", ""]),
            None
        );
        assert_eq!(format(&["version 2", "fetch", ""]), None);
        let id = "a".repeat(40);
        let old = format!("{id} HEAD\0multi_ack\n");
        assert_eq!(format(&["# service=git-upload-pack\n", "", &old, ""]), None);
        assert_eq!(object_format(b"<html>"), None);
        assert_eq!(object_format(b""), None);
    }

    #[test]
    fn only_the_ref_of_that_name_is_found() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let longer = format!("{a} refs/heads/work-2\n");
        let work = format!("{b} refs/heads/work\n");
        let both = lines(&[&longer, &work, ""]);
        assert_eq!(find(&both, "refs/heads/work").unwrap(), Some(b));
        let other = lines(&[&longer, ""]);
        assert_eq!(find(&other, "refs/heads/work").unwrap(), None);
        assert!(
            find(&lines(&[&work]), "refs/heads/work").is_err(),
            "it is cut off"
        );
        assert!(find(&lines(&["x refs/heads/work", ""]), "refs/heads/work").is_err());
    }
}
