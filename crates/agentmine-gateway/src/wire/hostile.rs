//! Packet lines, changed at random: nothing panics, and what is read is what git would read.

use super::advertisement::Advertisement;
use super::pktline;
use super::push_report::{self, Verdict};
use super::push_request::PushRequest;

#[path = "../../../../fuzz/mutations.rs"]
mod mutations;

const A: &str = "1111111111111111111111111111111111111111";
const B: &str = "2222222222222222222222222222222222222222";
const REF: &str = "refs/heads/work";

fn line(text: &str) -> Vec<u8> {
    let mut line = Vec::new();
    pktline::data(&mut line, text.as_bytes());
    line
}

/// The lines before the first flush and where that ends, read apart from the code under test.
fn read(bytes: &[u8]) -> (Vec<&[u8]>, Option<usize>) {
    let (mut lines, mut at) = (Vec::new(), 0);
    loop {
        let digits = bytes.get(at..at + 4);
        let digits = digits.and_then(|it| std::str::from_utf8(it).ok());
        match digits.and_then(|it| usize::from_str_radix(it, 16).ok()) {
            Some(0) => return (lines, Some(at + 4)),
            Some(length @ 4..) => match bytes.get(at + 4..at + length) {
                Some(line) => lines.push(line),
                None => return (lines, None),
            },
            Some(1..=3) | None => return (lines, None),
        }
        at += lines.last().map_or(0, |line| line.len() + 4);
    }
}

/// Whether bytes are lines and markers alone, the last of them complete.
fn is_whole(mut bytes: &[u8]) -> bool {
    while let Some(digits) = bytes.get(..4) {
        let digits = std::str::from_utf8(digits).unwrap_or_default();
        let length = match usize::from_str_radix(digits, 16) {
            Ok(0..=2) => 4,
            Ok(length @ 4..) => length,
            Ok(3) | Err(_) => return false,
        };
        match bytes.get(length..) {
            Some(rest) => bytes = rest,
            None => return false,
        }
    }
    bytes.is_empty()
}

fn is_id(text: &str) -> bool {
    let is_hex = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    matches!(text.len(), 40 | 64) && text.bytes().all(is_hex)
}

/// The one command of a push as git would read it, without its end of line, if all else is as it must be.
fn only_command(bytes: &[u8]) -> Option<(String, usize)> {
    let (lines, end) = read(bytes);
    let mut commands = Vec::new();
    for line in lines {
        let text = line.split(|&byte| byte == 0).next();
        let text = std::str::from_utf8(text.unwrap_or_default()).ok()?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        match text.strip_prefix("shallow ") {
            Some(id) if is_id(id) => {}
            Some(_) => return None,
            None => commands.push(text.to_owned()),
        }
    }
    match commands.as_slice() {
        [command] => Some((command.clone(), end?)),
        _ => None,
    }
}

/// Whether a response to a push accepts it: what comes first counts.
fn accepts(response: &[u8]) -> bool {
    let (lines, _) = read(response);
    let banded = matches!(response.get(4), Some(1..=3));
    let report: Vec<u8> = match banded {
        true => lines
            .iter()
            .filter_map(|it| it.strip_prefix(&[1]))
            .flatten()
            .copied()
            .collect(),
        false => response.to_vec(),
    };
    for line in read(&report).0 {
        let line = String::from_utf8_lossy(line);
        let mut words = line.trim_end().splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("ok"), Some(REF), None) => return true,
            (Some("ng"), Some(REF), _) => return false,
            (Some("unpack"), Some("ok"), None) => {}
            (Some("unpack"), _, _) => return false,
            _ => {}
        }
    }
    false
}

fn with_end(lines: &[String]) -> Vec<Vec<u8>> {
    let lines = lines.iter().map(|text| line(text));
    lines.chain([b"0000".to_vec()]).collect()
}

/// What clients send.
fn pushes() -> [Vec<Vec<u8>>; 2] {
    let command = format!("{A} {B} {REF}\0 report-status side-band-64k agent=git/2");
    let other = format!("{A} {B} refs/heads/main");
    let push = [format!("shallow {A}"), command, other];
    let deletion = format!("{A} {} {REF}\0 report-status", "0".repeat(40));
    [&push[..], &[deletion]].map(|lines| [with_end(lines), vec![b"PACK".to_vec()]].concat())
}

/// What a forge offers.
fn offer() -> Vec<Vec<u8>> {
    with_end(&[
        "# service=git-receive-pack\n".to_owned(),
        format!("{A} {REF}\0report-status push-options push-cert=1 object-format=sha1\n"),
        format!("{B} refs/heads/main\n"),
    ])
}

/// What a forge reports, the last of them as an error.
fn reports() -> [Vec<Vec<u8>>; 3] {
    let refused = [format!("ok {REF}-2\n"), format!("ng {REF} no\n")];
    let accepted = [format!("ok {REF}\n"), format!("ng {REF}-2 no\n")];
    [(1, &refused), (1, &accepted), (3, &accepted)].map(|(channel, lines)| {
        let lines = [&["unpack ok\n".to_owned()], &lines[..]].concat();
        let report = with_end(&lines).concat();
        let mut banded = [Vec::new(), Vec::new()];
        pktline::band(&mut banded[0], 2, b"a message");
        pktline::band(&mut banded[1], channel, &report);
        let [messages, report] = banded;
        vec![messages, report, b"0000".to_vec()]
    })
}

#[test]
fn what_is_read_as_a_push_of_the_one_branch_is_one() {
    let offered = Advertisement::parse(&offer().concat()).unwrap();
    for case in mutations::cases() {
        for push in pushes() {
            let bytes = mutations::mutated(&push, case).concat();
            let Ok(PushRequest::Push(head)) = PushRequest::parse(&bytes) else {
                continue;
            };
            let Ok(command) = head.only_command(REF) else {
                continue;
            };
            let text = format!("{} {} {REF}", command.old, command.new);
            let end = usize::try_from(head.pack_offset).unwrap();
            let as_git = only_command(&bytes);
            assert_eq!(as_git, Some((text.clone(), end)), "case {case}");
            let ids = [&command.old, &command.new];
            assert!(ids.iter().all(|id| is_id(id)), "case {case}: {text}");
            assert!(command.new.bytes().any(|it| it != b'0'), "case {case}");
            // What goes upstream is one command for this branch, whatever came.
            let sent = head.for_upstream(command, &offered);
            assert_eq!(only_command(&sent).unwrap().0, text, "case {case}");
        }
    }
}

#[test]
fn what_is_offered_to_a_client_is_known() {
    for case in mutations::cases() {
        let bytes = mutations::mutated(&offer(), case).concat();
        let Ok(seen) = Advertisement::parse(&bytes) else {
            continue;
        };
        assert!(is_whole(&bytes), "case {case}");
        let again = Advertisement::parse(&seen.rewritten(None)).unwrap();
        assert!(again.ids().eq(seen.ids()), "case {case}");
        assert!(again.ids().all(is_id), "case {case}");
        let refused = ["push-options", "push-cert"];
        assert!(!refused.iter().any(|it| again.offers(it)), "case {case}");
    }
}

#[test]
fn no_change_makes_a_refusal_an_acceptance() {
    for case in mutations::cases() {
        for report in reports() {
            let bytes = mutations::mutated(&report, case).concat();
            let read = push_report::read(&bytes, REF);
            let accepted = read.verdict == Verdict::Accepted;
            assert!(accepts(&bytes) || !accepted, "case {case}: {bytes:?}");
            assert!(read.messages.len() <= bytes.len(), "case {case}");
        }
    }
}
