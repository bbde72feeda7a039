//! A fetch by one request: git's own client is four more processes, one of which loads a library for HTTP.
//!
//! Only the ordinary answer of version 2 of the protocol (gitprotocol-v2(5)) is understood: the pack of commits without
//! their history. After any other one git fetches instead, whose messages say what is wrong.

use gix_packetline::{PacketLineRef, decode};

use super::listing::DELIMITER;
use crate::wire::pktline::{Malformed, data, flush};

/// The request for commits without their history.
pub(super) fn request(format: &str, commits: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    data(&mut out, b"command=fetch\n");
    data(&mut out, format!("object-format={format}\n").as_bytes());
    out.extend_from_slice(DELIMITER);
    for line in ["no-progress\n", "ofs-delta\n", "deepen 1\n"] {
        data(&mut out, line.as_bytes());
    }
    for commit in commits {
        data(&mut out, format!("want {commit}\n").as_bytes());
    }
    data(&mut out, b"done\n");
    flush(&mut out);
    out
}

/// The answer, read piece by piece.
#[derive(Debug)]
pub(super) struct Answer {
    /// The start of a line whose end has not come yet.
    rest: Vec<u8>,
    part: Part,
    shallow: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The name of a section comes next.
    Name,
    Shallow,
    Pack,
    Done,
}

impl Answer {
    pub(super) fn new() -> Self {
        Self {
            rest: Vec::new(),
            part: Part::Name,
            shallow: Vec::new(),
        }
    }

    /// Takes the next bytes, and returns what they hold of the pack.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
        self.rest.extend_from_slice(bytes);
        let rest = std::mem::take(&mut self.rest);
        let (mut pack, mut used) = (Vec::new(), 0);
        loop {
            match decode::streaming(&rest[used..]) {
                Ok(decode::Stream::Complete {
                    line,
                    bytes_consumed,
                }) => {
                    self.line(line, &mut pack)?;
                    used += bytes_consumed;
                }
                Ok(decode::Stream::Incomplete { .. }) => break,
                Err(_) => return Err(Malformed),
            }
        }
        self.rest = rest[used..].to_vec();
        Ok(pack)
    }

    fn line(&mut self, line: PacketLineRef<'_>, pack: &mut Vec<u8>) -> Result<(), Malformed> {
        self.part = match (self.part, line) {
            (Part::Name, PacketLineRef::Data(b"shallow-info\n")) => Part::Shallow,
            (Part::Name, PacketLineRef::Data(b"packfile\n")) => Part::Pack,
            (Part::Shallow, PacketLineRef::Delimiter) => Part::Name,
            (Part::Shallow, PacketLineRef::Data(line)) => {
                let id = line.strip_prefix(b"shallow ").ok_or(Malformed)?;
                let id = String::from_utf8_lossy(id).trim_end().to_owned();
                self.shallow.push(id);
                Part::Shallow
            }
            (Part::Pack, PacketLineRef::Data([1, bytes @ ..])) => {
                pack.extend_from_slice(bytes);
                Part::Pack
            }
            (Part::Pack, PacketLineRef::Data([2, ..])) => Part::Pack,
            (Part::Pack, PacketLineRef::Flush) => Part::Done,
            _ => return Err(Malformed),
        };
        Ok(())
    }

    /// The commits whose history was omitted, if the answer is whole and names none but `wanted`.
    pub(super) fn shallow(self, wanted: &[&str]) -> Result<Vec<String>, Malformed> {
        let is_whole = self.part == Part::Done && self.rest.is_empty();
        let is_known = |id: &String| wanted.contains(&id.as_str());
        match is_whole && self.shallow.iter().all(is_known) {
            true => Ok(self.shallow),
            false => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::pktline::band;

    fn ordinary(id: &str) -> Vec<u8> {
        let mut out = Vec::new();
        data(&mut out, b"shallow-info\n");
        data(&mut out, format!("shallow {id}\n").as_bytes());
        out.extend_from_slice(DELIMITER);
        data(&mut out, b"packfile\n");
        band(&mut out, 2, b"progress");
        band(&mut out, 1, b"PACK and ");
        band(&mut out, 1, b"the rest");
        flush(&mut out);
        out
    }

    #[test]
    fn the_pack_is_read_in_pieces_of_any_size() {
        let id = "a".repeat(40);
        let whole = ordinary(&id);
        for size in [1, 3, 7, whole.len()] {
            let mut answer = Answer::new();
            let mut pack = Vec::new();
            for piece in whole.chunks(size) {
                pack.extend(answer.take(piece).unwrap());
            }
            assert_eq!(pack, b"PACK and the rest");
            assert_eq!(answer.shallow(&[&id]).unwrap().as_slice(), [id.as_str()]);
        }
    }

    #[test]
    fn any_other_answer_is_left_to_git() {
        let id = "a".repeat(40);
        let whole = ordinary(&id);
        let read = |bytes: &[u8], wanted: &str| {
            let mut answer = Answer::new();
            answer.take(bytes)?;
            answer.shallow(&[wanted])
        };
        assert!(read(&whole, &id).is_ok());
        assert!(read(&whole, &"b".repeat(40)).is_err(), "another commit");
        assert!(read(&whole[..whole.len() - 1], &id).is_err(), "cut off");
        assert!(read(&[&whole[..], b"0000"].concat(), &id).is_err(), "more");
        let mut refused = Vec::new();
        data(&mut refused, b"ERR upload-pack: not our ref\n");
        assert!(read(&refused, &id).is_err());
        let mut failed = Vec::new();
        data(&mut failed, b"packfile\n");
        band(&mut failed, 3, b"out of memory");
        assert!(read(&failed, &id).is_err());
        assert!(read(b"<html>", &id).is_err());
    }
}
