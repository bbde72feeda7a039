//! Packet lines, changed at random: nothing panics, and what is read as a push of the one branch is one.

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

/// What a client sends, what a forge offers, and what it reports.
fn conversations() -> [Vec<Vec<u8>>; 3] {
    let flush = b"0000".to_vec();
    let command = format!("{A} {B} {REF}\0 report-status side-band-64k agent=git/2");
    let other = format!("{A} {B} refs/heads/main");
    let push = [format!("shallow {A}"), command, other];
    let offer = [
        "# service=git-receive-pack\n".to_owned(),
        format!("{A} {REF}\0report-status side-band-64k object-format=sha1\n"),
        format!("{B} refs/heads/main\n"),
    ];
    let mut report = Vec::new();
    for text in ["unpack ok\n".to_owned(), format!("ng {REF} no\n")] {
        report.extend(line(&text));
    }
    report.extend(&flush);
    let mut banded = [Vec::new(), Vec::new()];
    pktline::band(&mut banded[0], 2, b"a message");
    pktline::band(&mut banded[1], 1, &report);
    let with_end = |lines: &[String]| {
        let lines = lines.iter().map(|text| line(text));
        lines.chain([flush.clone()]).collect::<Vec<_>>()
    };
    let [messages, report] = banded;
    [
        [with_end(&push), vec![b"PACK".to_vec()]].concat(),
        with_end(&offer),
        vec![messages, report, flush.clone()],
    ]
}

#[test]
fn changed_packet_lines_are_refused_or_read_as_git_reads_them() {
    let [push, offer, report] = conversations();
    let unchanged = Advertisement::parse(&offer.concat()).unwrap();
    for case in mutations::cases() {
        let bytes = mutations::mutated(&push, case).concat();
        if let Ok(PushRequest::Push(head)) = PushRequest::parse(&bytes) {
            assert!(head.pack_offset <= bytes.len() as u64, "case {case}");
            if let Ok(command) = head.only_command(REF) {
                // What goes upstream is one command for this branch, whatever came.
                let sent = head.for_upstream(command, &unchanged);
                let Ok(PushRequest::Push(again)) = PushRequest::parse(&sent) else {
                    panic!("case {case}: {sent:?}")
                };
                let again = again.only_command(REF).unwrap();
                assert_eq!(
                    (again, again.refname.as_str()),
                    (command, REF),
                    "case {case}"
                );
            }
        }
        let bytes = mutations::mutated(&offer, case).concat();
        if let Ok(seen) = Advertisement::parse(&bytes) {
            let again = Advertisement::parse(&seen.rewritten()).unwrap();
            assert!(!again.rewritten().is_empty(), "case {case}");
        }
        let bytes = mutations::mutated(&report, case).concat();
        let read = push_report::read(&bytes, REF);
        // No change of a few bytes makes a refusal an acceptance, but that of the very words.
        let says_ok = memchr::memmem::find(&bytes, format!("ok {REF}").as_bytes()).is_some();
        assert!(says_ok || read.verdict != Verdict::Accepted, "case {case}");
        assert!(read.messages.len() <= bytes.len(), "case {case}");
    }
}
