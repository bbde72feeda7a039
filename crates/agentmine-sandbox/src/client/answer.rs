//! Reading the guest's answers. No length in them is trusted.

use std::io;
use std::time::Duration;

use agentmine_guest::protocol::{
    Bytes, GuestReply, MAX_NOTE, MAX_REPLY, RunDone, SnapshotDone, read_exactly, read_json,
};
use serde::de::DeserializeOwned;
use tokio::io::AsyncRead;

use crate::sandbox::{CommandResult, Snapshot};

/// One frame: the value, or why the guest could not do it.
pub(super) async fn reply<T: DeserializeOwned>(
    reader: &mut (impl AsyncRead + Unpin),
) -> io::Result<Result<T, String>> {
    Ok(
        match read_json::<GuestReply<T>, _>(reader, MAX_REPLY).await? {
            GuestReply::Ok(value) => Ok(value),
            GuestReply::Err(why) => Err(why),
        },
    )
}

pub(super) async fn run_answer(
    mut reader: impl AsyncRead + Unpin,
    max_output: usize,
) -> io::Result<Result<CommandResult, String>> {
    let done: RunDone = match reply(&mut reader).await? {
        Ok(done) => done,
        Err(why) => return Ok(Err(why)),
    };
    // The text may contain two notes: the truncation, and why the command was killed.
    let most = max_output.saturating_add(2 * MAX_NOTE);
    let stdout = limited(&mut reader, done.stdout_len, most).await?;
    let stderr = limited(&mut reader, done.stderr_len, most.max(MAX_REPLY)).await?;
    Ok(Ok(CommandResult {
        exit_code: done.exit_code,
        stdout,
        stderr,
        truncated: done.truncated,
        timed_out: done.timed_out,
        duration: Duration::from_micros(done.duration_us),
    }))
}

pub(super) async fn bytes_answer(
    mut reader: impl AsyncRead + Unpin,
    max: usize,
) -> io::Result<Result<Option<Vec<u8>>, String>> {
    let bytes: Bytes = match reply(&mut reader).await? {
        Ok(bytes) => bytes,
        Err(why) => return Ok(Err(why)),
    };
    Ok(Ok(match bytes.len {
        Some(len) => Some(limited(&mut reader, len, max).await?),
        None => None,
    }))
}

pub(super) async fn snapshot_answer(
    mut reader: impl AsyncRead + Unpin,
    max_bundle: usize,
) -> io::Result<Result<Snapshot, String>> {
    let done: SnapshotDone = match reply(&mut reader).await? {
        Ok(done) => done,
        Err(why) => return Ok(Err(why)),
    };
    if !is_object_name(&done.commit) {
        return Err(invalid("a commit that is not an object name".to_owned()));
    }
    let bundle = match done.bundle_len {
        Some(len) => Some(limited(&mut reader, len, max_bundle).await?),
        None => None,
    };
    Ok(Ok(Snapshot {
        commit: done.commit,
        bundle,
    }))
}

/// A SHA-1 or SHA-256 object name.
fn is_object_name(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

async fn limited(
    reader: &mut (impl AsyncRead + Unpin),
    len: u64,
    max: usize,
) -> io::Result<Vec<u8>> {
    if len > max as u64 {
        return Err(invalid(format!(
            "{len} bytes, but at most {max} were requested"
        )));
    }
    read_exactly(reader, len).await
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use agentmine_guest::protocol::write_json;

    use super::*;

    async fn frame(done: &RunDone, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_json(&mut bytes, &GuestReply::Ok(done)).await.unwrap();
        bytes.extend(body);
        bytes
    }

    #[tokio::test]
    async fn more_output_than_requested_is_refused_unread() {
        let mut done = RunDone {
            exit_code: 0,
            stdout_len: u64::MAX,
            stderr_len: 0,
            truncated: false,
            timed_out: false,
            duration_us: 1,
        };
        let bytes = frame(&done, b"").await;
        let err = run_answer(bytes.as_slice(), 100).await.unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::InvalidData);
        done.stdout_len = 2;
        let bytes = frame(&done, b"ok").await;
        let result = run_answer(bytes.as_slice(), 100).await.unwrap().unwrap();
        assert_eq!(result.stdout, b"ok");
    }

    #[tokio::test]
    async fn a_commit_that_is_not_an_object_name_is_refused() {
        let mut bytes = Vec::new();
        let done = SnapshotDone {
            commit: "--upload-pack=x".into(),
            bundle_len: None,
        };
        write_json(&mut bytes, &GuestReply::Ok(done)).await.unwrap();
        assert!(snapshot_answer(bytes.as_slice(), 1).await.is_err());
    }
}
