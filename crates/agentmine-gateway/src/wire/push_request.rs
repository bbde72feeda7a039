//! The head of a push: the commands ahead of the pack.

use gix_packetline::PacketLineRef;

use super::advertisement::Advertisement;
use super::capability::Capabilities;
use super::object_id::{is_id, is_zero};
use super::pktline::{self, Lines, Malformed};
use crate::printable::printable;

/// Commands read from one push. More than one is refused anyway; they are read so that each gets its
/// refusal.
const MAX_COMMANDS: usize = 100;
/// `shallow` lines read from one push.
const MAX_SHALLOW: usize = 100_000;
/// Length of a ref name, in bytes.
const MAX_REF: usize = 500;

/// One line of a push: move `refname` from `old` to `new`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefUpdate {
    pub(crate) old: String,
    pub(crate) new: String,
    pub(crate) refname: String,
}

/// The body of a request to `git-receive-pack`.
#[derive(Debug)]
pub(crate) enum PushRequest {
    /// Only a flush: git asks whether a large push would be accepted at all.
    Probe,
    /// A push.
    Push(PushHead),
}

/// The head of a push, ahead of the pack.
#[derive(Debug)]
pub(crate) struct PushHead {
    commands: Vec<RefUpdate>,
    /// Commits whose parents the client does not have.
    shallow: Vec<String>,
    capabilities: Capabilities,
    signed: bool,
    /// Where the pack begins in the body.
    pub(crate) pack_offset: u64,
}

impl PushRequest {
    /// Reads the head of a push. `bytes` are the first bytes of the body.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut lines = Lines::new(bytes);
        let mut head = PushHead {
            commands: Vec::new(),
            shallow: Vec::new(),
            capabilities: Capabilities::default(),
            signed: false,
            pack_offset: 0,
        };
        loop {
            match lines.next()?.ok_or(Malformed)? {
                PacketLineRef::Flush => break,
                PacketLineRef::Data(data) => match data.strip_prefix(b"shallow ") {
                    Some(id) => head.shallow(id)?,
                    None => head.line(data)?,
                },
                PacketLineRef::Delimiter | PacketLineRef::ResponseEnd => return Err(Malformed),
            }
        }
        head.pack_offset = lines.consumed() as u64;
        if head.commands.is_empty() && !head.signed {
            return Ok(Self::Probe);
        }
        Ok(Self::Push(head))
    }
}

impl PushHead {
    fn line(&mut self, data: &[u8]) -> Result<(), Malformed> {
        let (line, capabilities) = match data.iter().position(|byte| *byte == 0) {
            Some(at) => (&data[..at], &data[at + 1..]),
            None => (data, &data[..0]),
        };
        if self.commands.is_empty() && !capabilities.is_empty() {
            let text = std::str::from_utf8(capabilities).map_err(|_| Malformed)?;
            self.capabilities = Capabilities::parse(text);
        }
        if line.starts_with(b"push-cert") {
            self.signed = true;
        }
        if self.signed {
            return Ok(());
        }
        if self.commands.len() >= MAX_COMMANDS {
            return Err(Malformed);
        }
        self.commands.push(RefUpdate::parse(line)?);
        Ok(())
    }

    fn shallow(&mut self, id: &[u8]) -> Result<(), Malformed> {
        let id = std::str::from_utf8(id).map_err(|_| Malformed)?;
        let id = id.strip_suffix('\n').unwrap_or(id);
        if !is_id(id) || self.shallow.len() >= MAX_SHALLOW {
            return Err(Malformed);
        }
        self.shallow.push(id.to_owned());
        Ok(())
    }

    /// The head that goes upstream in place of the client's: it always asks for a report, in a form that is
    /// known, whatever this client asked for.
    pub(crate) fn for_upstream(&self, command: &RefUpdate, offered: &Advertisement) -> Vec<u8> {
        let mut capabilities: Vec<String> = ["report-status", "side-band-64k"]
            .into_iter()
            .filter(|name| offered.offers(name))
            .map(str::to_owned)
            .collect();
        if offered.offers("object-format") {
            capabilities.push(format!("object-format={}", self.object_format()));
        }
        let mut head = Vec::new();
        for id in &self.shallow {
            pktline::data(&mut head, format!("shallow {id}\n").as_bytes());
        }
        let RefUpdate { old, new, refname } = command;
        let line = format!("{old} {new} {refname}\0 {}", capabilities.join(" "));
        pktline::data(&mut head, line.as_bytes());
        pktline::flush(&mut head);
        head
    }

    /// The one command of an acceptable push; else the reason for refusing it.
    pub(crate) fn only_command(&self, refname: &str) -> Result<&RefUpdate, String> {
        if self.signed {
            return Err("signed pushes are not accepted".into());
        }
        if let Some(other) = self.capabilities.unsupported() {
            return Err(format!(
                "the capability {} is not accepted",
                printable(other)
            ));
        }
        let [command] = self.commands.as_slice() else {
            return Err(format!(
                "a push may update only {refname}; this one updates {} refs",
                self.commands.len()
            ));
        };
        if command.refname != refname {
            return Err(format!(
                "only {refname} may be pushed to, not {}",
                printable(&command.refname)
            ));
        }
        if is_zero(&command.new) {
            return Err("the branch may not be deleted".into());
        }
        let length = match self.object_format() {
            "sha1" => 40,
            "sha256" => 64,
            _ => return Err("unknown object format".into()),
        };
        if command.old.len() != length || command.new.len() != length {
            return Err("the commit ids do not match the object format".into());
        }
        Ok(command)
    }

    pub(crate) fn object_format(&self) -> &str {
        self.capabilities.object_format()
    }

    pub(super) fn commands(&self) -> &[RefUpdate] {
        &self.commands
    }

    pub(super) fn side_band(&self) -> bool {
        self.capabilities.has("side-band-64k")
    }

    pub(super) fn wants_report(&self) -> bool {
        self.capabilities.has("report-status") || self.capabilities.has("report-status-v2")
    }
}

impl RefUpdate {
    fn parse(line: &[u8]) -> Result<Self, Malformed> {
        let text = std::str::from_utf8(line).map_err(|_| Malformed)?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        let mut parts = text.splitn(3, ' ');
        let (Some(old), Some(new), Some(refname)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(Malformed);
        };
        let name_ok = !refname.is_empty()
            && refname.len() <= MAX_REF
            && !refname.chars().any(|c| c.is_control() || c == ' ');
        if !is_id(old) || !is_id(new) || !name_ok {
            return Err(Malformed);
        }
        Ok(Self {
            old: old.to_owned(),
            new: new.to_owned(),
            refname: refname.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::object_id::zero;
    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";
    const B: &str = "2222222222222222222222222222222222222222";
    const REF: &str = "refs/heads/work";

    fn body(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            pktline::data(&mut out, line.as_bytes());
        }
        pktline::flush(&mut out);
        out.extend_from_slice(b"PACK");
        out
    }

    fn judged(lines: &[&str]) -> Result<RefUpdate, String> {
        match PushRequest::parse(&body(lines)).unwrap() {
            PushRequest::Push(head) => head.only_command(REF).cloned(),
            PushRequest::Probe => panic!("a probe"),
        }
    }

    #[test]
    fn the_one_update_of_the_branch_is_read() {
        let line = format!("{A} {B} {REF}\0 report-status side-band-64k agent=git/2");
        let shallow = format!("shallow {A}");
        let bytes = body(&[&shallow, &line]);
        let PushRequest::Push(head) = PushRequest::parse(&bytes).unwrap() else {
            panic!("a probe")
        };
        assert_eq!(head.only_command(REF).unwrap().new, B);
        assert_eq!(
            &bytes[usize::try_from(head.pack_offset).unwrap()..],
            b"PACK"
        );
    }

    #[test]
    fn anything_else_is_refused_with_its_reason() {
        let zero = zero("sha1");
        for (lines, part) in [
            (
                vec![format!("{A} {B} refs/heads/main\0report-status")],
                "only refs/heads/work",
            ),
            (
                vec![format!("{A} {B} refs/tags/v1\0report-status")],
                "only refs/heads/work",
            ),
            (vec![format!("{A} {zero} {REF}\0report-status")], "deleted"),
            (
                vec![
                    format!("{A} {B} {REF}\0report-status"),
                    format!("{A} {B} refs/heads/x"),
                ],
                "2 refs",
            ),
            (
                vec![format!("{A} {B} {REF}\0report-status push-options")],
                "push-options",
            ),
            (
                vec![format!("{A} {B} {REF}\0object-format=sha256")],
                "object format",
            ),
            (
                vec![format!("{A} {B} {REF}\0object-format=md5")],
                "object format",
            ),
            (vec!["push-cert\0report-status".to_owned()], "signed"),
        ] {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let reason = judged(&lines).unwrap_err();
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn malformed_commands_are_not_a_push() {
        for line in [
            "",
            "x",
            "1 2 3",
            &format!("{A} {B} refs/heads/a b"),
            &format!("{A} {B} "),
        ] {
            assert!(PushRequest::parse(&body(&[line])).is_err(), "{line}");
        }
        assert!(PushRequest::parse(b"").is_err());
        assert!(matches!(
            PushRequest::parse(b"0000"),
            Ok(PushRequest::Probe)
        ));
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut framed = Vec::new();
            pktline::data(&mut framed, &bytes);
            pktline::flush(&mut framed);
            for input in [&bytes, &framed] {
                let _ = PushRequest::parse(input);
            }
        }
    }
}
