//! The report of a push: which refs were updated, and why not.

use gix_packetline::PacketLineRef;

use super::pktline::{self, Lines, Malformed};
use super::push_request::PushHead;
use crate::printable::printable;

/// What upstream reports.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It moved the ref.
    Accepted,
    /// It did not; the reason.
    Rejected(String),
    /// Its response does not say, and why not.
    Unclear(&'static str),
}

/// Upstream's response to a push.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) verdict: Verdict,
    /// What it wants to be shown to the user of git.
    pub(crate) messages: Vec<u8>,
}

/// The response that makes `git push` print `reason` beside each ref, and `details` above, one line each. `None`
/// when this client did not ask for a report and would take any response for success.
pub(crate) fn refusal(head: &PushHead, reason: &str, details: &[String]) -> Option<Vec<u8>> {
    if !head.wants_report() || head.commands().is_empty() {
        return None;
    }
    let reason = printable(reason);
    let mut messages = format!("agentmine: {reason}\n");
    for detail in details {
        messages.push_str(&format!("agentmine: {}\n", printable(detail)));
    }
    let lines = head.commands().iter();
    let lines = lines.map(|command| format!("ng {} {reason}\n", command.refname));
    Some(response(head, lines, messages.as_bytes()))
}

/// The response to a push of `refname` that upstream accepted. `messages` are upstream's.
pub(crate) fn success(head: &PushHead, refname: &str, messages: &[u8]) -> Vec<u8> {
    if !head.wants_report() {
        return Vec::new();
    }
    response(head, std::iter::once(format!("ok {refname}\n")), messages)
}

fn response(head: &PushHead, lines: impl Iterator<Item = String>, messages: &[u8]) -> Vec<u8> {
    let mut report = Vec::new();
    pktline::data(&mut report, b"unpack ok\n");
    for line in lines {
        pktline::data(&mut report, line.as_bytes());
    }
    pktline::flush(&mut report);
    if !head.side_band() {
        return report;
    }
    let mut out = Vec::new();
    pktline::band(&mut out, 2, messages);
    pktline::band(&mut out, 1, &report);
    pktline::flush(&mut out);
    out
}

/// Reads upstream's response to a push of `refname`.
pub(crate) fn read(response: &[u8], refname: &str) -> Report {
    let (report, messages) = demultiplexed(response).unwrap_or_default();
    let verdict = verdict(&report, refname).unwrap_or(Verdict::Unclear("its report is malformed"));
    Report { verdict, messages }
}

fn verdict(report: &[u8], refname: &str) -> Result<Verdict, Malformed> {
    let mut lines = Lines::new(report);
    while let Some(line) = lines.next()? {
        let Some(text) = line.as_slice() else { break };
        let text = String::from_utf8_lossy(text);
        let text = text.trim_end();
        if let Some(fault) = text.strip_prefix("unpack ").filter(|rest| *rest != "ok") {
            let fault = printable(fault);
            return Ok(Verdict::Rejected(format!(
                "upstream could not unpack the push: {fault}"
            )));
        }
        if text.strip_prefix("ok ") == Some(refname) {
            return Ok(Verdict::Accepted);
        }
        let refused = text
            .strip_prefix("ng ")
            .and_then(|rest| rest.strip_prefix(refname));
        if let Some(reason) = refused.filter(|rest| rest.is_empty() || rest.starts_with(' ')) {
            let reason = printable(reason.trim());
            return Ok(Verdict::Rejected(format!(
                "upstream rejected the push: {reason}"
            )));
        }
    }
    Ok(Verdict::Unclear("it sent no report"))
}

/// The report in a response, and the messages; side bands are recognised by their first byte, since not every
/// server does as it was asked.
fn demultiplexed(response: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Malformed> {
    if !matches!(response.get(4), Some(1..=3)) {
        return Ok((response.to_vec(), Vec::new()));
    }
    let mut lines = Lines::new(response);
    let (mut report, mut messages) = (Vec::new(), Vec::new());
    while let Some(line) = lines.next()? {
        match line {
            PacketLineRef::Data([1, payload @ ..]) => report.extend_from_slice(payload),
            PacketLineRef::Data([_, payload @ ..]) => messages.extend_from_slice(payload),
            PacketLineRef::Data([]) => {}
            PacketLineRef::Flush | PacketLineRef::Delimiter | PacketLineRef::ResponseEnd => break,
        }
    }
    Ok((report, messages))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::push_request::PushRequest;
    use super::*;

    const REF: &str = "refs/heads/work";

    fn head(capabilities: &str) -> PushHead {
        let (old, new) = ("1".repeat(40), "2".repeat(40));
        let mut body = Vec::new();
        let line = format!("{old} {new} {REF}\0{capabilities}");
        pktline::data(&mut body, line.as_bytes());
        pktline::flush(&mut body);
        match PushRequest::parse(&body).unwrap() {
            PushRequest::Push(head) => head,
            PushRequest::Probe => panic!("a probe"),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for capabilities in ["report-status", "report-status-v2 side-band-64k"] {
            let head = head(capabilities);
            let response = refusal(&head, "because\nof this", &["a detail".into()]).unwrap();
            let Verdict::Rejected(reason) = read(&response, REF).verdict else {
                panic!("not a refusal")
            };
            assert!(reason.ends_with("because of this"), "{reason}");
            let report = read(&success(&head, REF, b"see here"), REF);
            assert_eq!(report.verdict, Verdict::Accepted);
        }
        assert!(refusal(&head("quiet"), "x", &[]).is_none());
        assert!(success(&head("quiet"), REF, b"").is_empty());
    }

    #[test]
    fn a_response_that_does_not_name_the_ref_is_unclear() {
        for text in [
            "",
            "unpack ok\n",
            "ok refs/heads/other\n",
            "ng refs/heads/work2 no\n",
        ] {
            let mut report = Vec::new();
            if !text.is_empty() {
                pktline::data(&mut report, text.as_bytes());
            }
            let verdict = read(&report, REF).verdict;
            assert!(
                matches!(verdict, Verdict::Unclear(_)),
                "{text}: {verdict:?}"
            );
        }
        assert!(matches!(read(b"<html>", REF).verdict, Verdict::Unclear(_)));
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut framed = Vec::new();
            pktline::band(&mut framed, 1, &bytes);
            for input in [&bytes, &framed] {
                let _ = read(input, REF);
            }
        }
    }
}
