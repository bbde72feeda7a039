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

/// Lines of upstream's messages that are shown with a refusal.
const MAX_LINES: usize = 60;
/// Bytes of them in its reason.
const MAX_NAMED: usize = 160;

impl Report {
    /// The messages as lines of text. The verdict on a rejected push often says no more than `pre-receive hook declined`: which
    /// rule was violated, and by what, is here alone.
    pub(crate) fn lines(&self) -> Vec<String> {
        let messages = String::from_utf8_lossy(&self.messages);
        let lines = messages.split(['\n', '\r']).map(printable);
        // Neither rulers nor progress ("Resolving deltas: 100% (1/1)").
        let says = |line: &String| line.contains(char::is_alphanumeric) && !line.contains("% (");
        lines.filter(says).take(MAX_LINES).collect()
    }
}

/// The violated rules among these lines, briefly: GitHub's list of violations or GitLab's named lines; all lines if there
/// are neither.
pub(crate) fn violations(lines: &[String]) -> Option<String> {
    let names = |line: &&String| line.starts_with("- ") || line.starts_with("GitLab:");
    let named: Vec<&str> = match lines.iter().any(|line| names(&line)) {
        true => lines.iter().filter(names).map(String::as_str).collect(),
        false => lines.iter().map(String::as_str).collect(),
    };
    let mut named = named.join("; ");
    if named.len() > MAX_NAMED {
        named.truncate(named.floor_char_boundary(MAX_NAMED));
        named.push('…');
    }
    (!named.is_empty()).then_some(named)
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

    fn lines(messages: &str) -> Vec<String> {
        let report = Report {
            verdict: Verdict::Rejected(String::new()),
            messages: messages.into(),
        };
        report.lines()
    }

    #[test]
    fn the_violations_are_named_out_of_all_that_upstream_says() {
        let said = lines(
            "Resolving deltas: 100% (1/1)\rerror: GH013: Repository rule violations found for refs/heads/work.\n\n\
             - Commits must have verified signatures.\n  ————\n  - Push cannot contain secrets\n     path: a.txt:1\n",
        );
        assert_eq!(said.len(), 4, "{said:?}");
        assert_eq!(
            violations(&said).as_deref(),
            Some("- Commits must have verified signatures.; - Push cannot contain secrets")
        );
        let said = lines("error: File big.bin is 120.00 MB\nerror: See https://gh.io/lfs");
        assert_eq!(
            violations(&said).as_deref(),
            Some("error: File big.bin is 120.00 MB; error: See https://gh.io/lfs")
        );
        let said = lines(&"ä\n".repeat(1000));
        assert_eq!(said.len(), MAX_LINES);
        let named = violations(&said).unwrap();
        assert!(named.len() <= MAX_NAMED + '…'.len_utf8(), "{named}");
        assert_eq!(violations(&lines("====\n")), None);
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
