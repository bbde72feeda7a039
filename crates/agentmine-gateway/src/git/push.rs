//! A push as it is written on the wire: the commands at its head, the answer to them, and the
//! advertisement of refs that it starts from.

use gix_packetline::PacketLineRef;

use super::pktline::{self, Lines, Malformed};
use crate::events::printable;

/// Commands read from one push. More than one is refused anyway; they are read to be answered.
const MAX_COMMANDS: usize = 100;
/// `shallow` lines read from one push.
const MAX_SHALLOW: usize = 100_000;
/// Bytes of a ref's name.
const MAX_REF: usize = 500;

/// Capabilities of a push that change nothing about what is checked here.
const HARMLESS: [&str; 9] = [
    "report-status",
    "report-status-v2",
    "delete-refs",
    "side-band-64k",
    "quiet",
    "atomic",
    "ofs-delta",
    "agent",
    "object-format",
];

/// One line of a push: move `refname` from `old` to `new`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) old: String,
    pub(crate) new: String,
    pub(crate) refname: String,
}

/// The body of a request to `git-receive-pack`.
#[derive(Debug)]
pub(crate) enum Request {
    /// Only a flush: git asks whether a large push would be let in at all.
    Probe,
    /// A push.
    Push(Head),
}

/// The head of a push, ahead of the pack.
#[derive(Debug)]
pub(crate) struct Head {
    commands: Vec<Command>,
    capabilities: Vec<String>,
    signed: bool,
    /// Where the pack begins in the body.
    pub(crate) pack_offset: u64,
}

impl Request {
    /// Reads the head of a push. `bytes` are the first bytes of the body.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut lines = Lines::new(bytes);
        let mut head = Head {
            commands: Vec::new(),
            capabilities: Vec::new(),
            signed: false,
            pack_offset: 0,
        };
        let mut shallow = 0;
        loop {
            match lines.next()?.ok_or(Malformed)? {
                PacketLineRef::Flush => break,
                PacketLineRef::Data(data) if data.starts_with(b"shallow ") => {
                    shallow += 1;
                    if shallow > MAX_SHALLOW {
                        return Err(Malformed);
                    }
                }
                PacketLineRef::Data(data) => head.line(data)?,
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

impl Head {
    fn line(&mut self, data: &[u8]) -> Result<(), Malformed> {
        let (line, capabilities) = match data.iter().position(|byte| *byte == 0) {
            Some(at) => (&data[..at], &data[at + 1..]),
            None => (data, &data[..0]),
        };
        if self.commands.is_empty() && !capabilities.is_empty() {
            let text = std::str::from_utf8(capabilities).map_err(|_| Malformed)?;
            self.capabilities = text.split_ascii_whitespace().map(String::from).collect();
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
        self.commands.push(Command::parse(line)?);
        Ok(())
    }

    /// The one command of a push that may be looked at further; else why not.
    pub(crate) fn only_command(&self, refname: &str) -> Result<&Command, String> {
        if self.signed {
            return Err("signed pushes are not accepted".into());
        }
        if let Some(other) = self
            .capabilities
            .iter()
            .find(|name| !HARMLESS.contains(&key(name)))
        {
            return Err(format!(
                "the capability {} is not accepted",
                printable(other)
            ));
        }
        let [command] = self.commands.as_slice() else {
            return Err(format!(
                "a push may update {refname} alone; this one updates {} refs",
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
            return Err("the commit ids do not fit the object format".into());
        }
        Ok(command)
    }

    pub(crate) fn object_format(&self) -> &str {
        value(&self.capabilities, "object-format").unwrap_or("sha1")
    }

    pub(crate) fn side_band(&self) -> bool {
        self.capabilities.iter().any(|name| name == "side-band-64k")
    }

    fn wants_report(&self) -> bool {
        let named = |name: &String| matches!(key(name), "report-status" | "report-status-v2");
        self.capabilities.iter().any(named)
    }

    /// The answer that makes `git push` print `reason` beside each ref, or `None` when this client
    /// did not ask for one and would take any answer for success.
    pub(crate) fn refusal(&self, reason: &str) -> Option<Vec<u8>> {
        if !self.wants_report() || self.commands.is_empty() {
            return None;
        }
        let reason = printable(reason);
        let mut report = Vec::new();
        pktline::data(&mut report, b"unpack ok\n");
        for command in &self.commands {
            let line = format!("ng {} {reason}\n", command.refname);
            pktline::data(&mut report, line.as_bytes());
        }
        pktline::flush(&mut report);
        if !self.side_band() {
            return Some(report);
        }
        let mut out = Vec::new();
        pktline::band(&mut out, 2, format!("agentmine: {reason}\n").as_bytes());
        pktline::band(&mut out, 1, &report);
        pktline::flush(&mut out);
        Some(out)
    }

    /// What upstream says of `refname`: `Ok` when it has accepted it, else its reason.
    pub(crate) fn verdict(&self, answer: &[u8], refname: &str) -> Result<(), String> {
        let unreadable = |_| String::from("the answer of upstream cannot be read");
        let report = if self.side_band() {
            demultiplexed(answer).map_err(unreadable)?
        } else {
            answer.to_vec()
        };
        let mut lines = Lines::new(&report);
        let mut unpack = String::new();
        while let Some(line) = lines.next().map_err(unreadable)? {
            let Some(text) = line.as_slice() else { break };
            let text = String::from_utf8_lossy(text);
            let text = text.trim_end();
            if let Some(rest) = text.strip_prefix("unpack ") {
                rest.clone_into(&mut unpack);
            } else if text.strip_prefix("ok ") == Some(refname) {
                return Ok(());
            } else if let Some(rest) = text.strip_prefix("ng ") {
                let reason = rest.strip_prefix(refname).unwrap_or(rest).trim();
                return Err(format!("upstream refused it: {}", printable(reason)));
            }
        }
        match unpack.as_str() {
            "" | "ok" => Err("upstream did not say that it took the push".into()),
            other => Err(format!(
                "upstream could not unpack it: {}",
                printable(other)
            )),
        }
    }
}

impl Command {
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

/// The refs that upstream shows to one who pushes.
#[derive(Debug)]
pub(crate) struct Advertisement {
    refs: Vec<(String, String)>,
    capabilities: Vec<String>,
}

impl Advertisement {
    /// Reads what a server answers to `info/refs?service=git-receive-pack`.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut lines = Lines::new(bytes);
        let mut out = Self {
            refs: Vec::new(),
            capabilities: Vec::new(),
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
                out.capabilities = capabilities
                    .split_ascii_whitespace()
                    .map(String::from)
                    .collect();
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

    pub(crate) fn object_format(&self) -> &str {
        value(&self.capabilities, "object-format").unwrap_or("sha1")
    }

    /// The advertisement for the sandbox: the same refs, only harmless capabilities, and `no-thin`,
    /// so that a pack can be checked without upstream's objects beside it.
    pub(crate) fn rewritten(&self) -> Vec<u8> {
        let mut capabilities: Vec<&str> = self
            .capabilities
            .iter()
            .map(String::as_str)
            .filter(|name| HARMLESS.contains(&key(name)))
            .collect();
        capabilities.push("no-thin");
        let capabilities = capabilities.join(" ");
        let mut out = Vec::new();
        pktline::data(&mut out, b"# service=git-receive-pack\n");
        pktline::flush(&mut out);
        if self.refs.is_empty() {
            let zero = zero(self.object_format());
            let line = format!("{zero} capabilities^{{}}\0{capabilities}\n");
            pktline::data(&mut out, line.as_bytes());
        }
        for (at, (id, name)) in self.refs.iter().enumerate() {
            let line = match at {
                0 => format!("{id} {name}\0{capabilities}\n"),
                _ => format!("{id} {name}\n"),
            };
            pktline::data(&mut out, line.as_bytes());
        }
        pktline::flush(&mut out);
        out
    }
}

/// Band 1 of a side-banded answer.
fn demultiplexed(answer: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut lines = Lines::new(answer);
    let mut report = Vec::new();
    while let Some(line) = lines.next()? {
        match line {
            PacketLineRef::Data([1, payload @ ..]) => report.extend_from_slice(payload),
            PacketLineRef::Data(_) => {}
            PacketLineRef::Flush | PacketLineRef::Delimiter | PacketLineRef::ResponseEnd => break,
        }
    }
    Ok(report)
}

fn key(capability: &str) -> &str {
    capability
        .split_once('=')
        .map_or(capability, |(key, _)| key)
}

fn value<'a>(capabilities: &'a [String], wanted: &str) -> Option<&'a str> {
    capabilities
        .iter()
        .filter_map(|text| text.split_once('='))
        .find(|(key, _)| *key == wanted)
        .map(|(_, value)| value)
}

/// Whether `text` is a whole object id in lower case.
pub(crate) fn is_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether `id` means "no commit".
pub(crate) fn is_zero(id: &str) -> bool {
    id.bytes().all(|byte| byte == b'0')
}

/// The id that means "no commit".
pub(crate) fn zero(object_format: &str) -> String {
    "0".repeat(if object_format == "sha256" { 64 } else { 40 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    fn judged(lines: &[&str]) -> Result<Command, String> {
        match Request::parse(&body(lines)).unwrap() {
            Request::Push(head) => head.only_command(REF).cloned(),
            Request::Probe => panic!("a probe"),
        }
    }

    #[test]
    fn the_one_update_of_the_branch_is_read() {
        let line = format!("{A} {B} {REF}\0 report-status side-band-64k agent=git/2");
        let shallow = format!("shallow {A}");
        let bytes = body(&[&shallow, &line]);
        let Request::Push(head) = Request::parse(&bytes).unwrap() else {
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
            assert!(Request::parse(&body(&[line])).is_err(), "{line}");
        }
        assert!(Request::parse(b"").is_err());
        assert!(matches!(Request::parse(b"0000"), Ok(Request::Probe)));
    }

    #[test]
    fn a_refusal_is_read_back_as_a_refusal() {
        for caps in ["report-status", "report-status-v2 side-band-64k"] {
            let bytes = body(&[&format!("{A} {B} {REF}\0{caps}")]);
            let Request::Push(head) = Request::parse(&bytes).unwrap() else {
                panic!("a probe")
            };
            let answer = head.refusal("because\nof this").unwrap();
            let reason = head.verdict(&answer, REF).unwrap_err();
            assert!(reason.ends_with("because of this"), "{reason}");
        }
    }

    #[test]
    fn the_advertisement_loses_what_is_not_harmless() {
        let mut bytes = Vec::new();
        pktline::data(&mut bytes, b"# service=git-receive-pack\n");
        pktline::flush(&mut bytes);
        let line = format!("{A} {REF}\0report-status push-options push-cert=x ofs-delta\n");
        pktline::data(&mut bytes, line.as_bytes());
        pktline::flush(&mut bytes);
        let seen = Advertisement::parse(&bytes).unwrap();
        assert_eq!(seen.id(REF), Some(A));
        let again = Advertisement::parse(&seen.rewritten()).unwrap();
        assert_eq!(
            again.capabilities,
            ["report-status", "ofs-delta", "no-thin"]
        );
        assert_eq!(again.refs, seen.refs);
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut framed = Vec::new();
            pktline::data(&mut framed, &bytes);
            pktline::flush(&mut framed);
            for input in [&bytes, &framed] {
                let _ = Request::parse(input);
                let _ = Advertisement::parse(input);
            }
        }
    }
}
