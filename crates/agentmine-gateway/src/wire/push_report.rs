//! The report of a push: which refs were updated, and why not.

use gix_packetline::PacketLineRef;

use super::pktline::{self, Lines, Malformed};
use super::push_request::PushHead;
use crate::printable::printable;

/// The response that makes `git push` print `reason` beside each ref. `None` when this client did not
/// ask for a report and would take any response for success.
pub(crate) fn refusal(head: &PushHead, reason: &str) -> Option<Vec<u8>> {
    if !head.wants_report() || head.commands().is_empty() {
        return None;
    }
    let reason = printable(reason);
    let mut report = Vec::new();
    pktline::data(&mut report, b"unpack ok\n");
    for command in head.commands() {
        let line = format!("ng {} {reason}\n", command.refname);
        pktline::data(&mut report, line.as_bytes());
    }
    pktline::flush(&mut report);
    if !head.side_band() {
        return Some(report);
    }
    let mut out = Vec::new();
    pktline::band(&mut out, 2, format!("agentmine: {reason}\n").as_bytes());
    pktline::band(&mut out, 1, &report);
    pktline::flush(&mut out);
    Some(out)
}

/// What upstream reports for `refname`: `Ok` when it accepted the update, else its reason.
pub(crate) fn verdict(head: &PushHead, response: &[u8], refname: &str) -> Result<(), String> {
    let unreadable = |_| String::from("upstream's report of the push is malformed");
    let report = if head.side_band() {
        demultiplexed(response).map_err(unreadable)?
    } else {
        response.to_vec()
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
            return Err(format!("upstream rejected the push: {}", printable(reason)));
        }
    }
    match unpack.as_str() {
        "" | "ok" => Err("upstream did not confirm the push".into()),
        other => Err(format!(
            "upstream could not unpack the push: {}",
            printable(other)
        )),
    }
}

/// Band 1 of a response in side bands.
fn demultiplexed(response: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut lines = Lines::new(response);
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

#[cfg(test)]
mod tests {
    use super::super::push_request::PushRequest;
    use super::*;

    const REF: &str = "refs/heads/work";

    #[test]
    fn a_refusal_is_read_back_as_a_refusal() {
        let (old, new) = ("1".repeat(40), "2".repeat(40));
        for capabilities in ["report-status", "report-status-v2 side-band-64k"] {
            let mut body = Vec::new();
            let line = format!("{old} {new} {REF}\0{capabilities}");
            pktline::data(&mut body, line.as_bytes());
            pktline::flush(&mut body);
            let PushRequest::Push(head) = PushRequest::parse(&body).unwrap() else {
                panic!("a probe")
            };
            let response = refusal(&head, "because\nof this").unwrap();
            let reason = verdict(&head, &response, REF).unwrap_err();
            assert!(reason.ends_with("because of this"), "{reason}");
        }
    }
}
