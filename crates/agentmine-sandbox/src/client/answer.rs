//! Reading the guest's answers. No length in them is trusted.

use std::io;
use std::time::Duration;

use agentmine_guest::protocol::{
    Bytes, GuestReply, MAX_NOTE, MAX_REPLY, OutputDone, RunDone, SnapshotDone, read_exactly,
    read_json,
};
use agentmine_process::LeftOut;
use serde::de::DeserializeOwned;
use tokio::io::AsyncRead;

use crate::sandbox::{CommandOutput, CommandResult, Snapshot};

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
    let stdout = output(&mut reader, done.stdout, max_output).await?;
    // Stderr may end with why the command was killed, or be why it was not started.
    let most = max_output.saturating_add(MAX_NOTE).max(MAX_REPLY);
    let stderr = output(&mut reader, done.stderr, most).await?;
    Ok(Ok(CommandResult {
        exit_code: done.exit_code,
        stdout,
        stderr,
        timed_out: done.timed_out,
        duration: Duration::from_micros(done.duration_us),
    }))
}

async fn output(
    reader: &mut (impl AsyncRead + Unpin),
    done: OutputDone,
    max: usize,
) -> io::Result<CommandOutput> {
    let head = limited(reader, done.head_len, max).await?;
    let tail = limited(reader, done.tail_len, max - head.len()).await?;
    let left_out = LeftOut {
        bytes: done.left_out_bytes,
        lines: done.left_out_lines,
    };
    Ok(CommandOutput::new(head, left_out, &tail))
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
        left_out: done.left_out,
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
            stdout: OutputDone {
                head_len: 60,
                tail_len: u64::MAX,
                ..OutputDone::default()
            },
            stderr: OutputDone::default(),
            timed_out: false,
            duration_us: 1,
        };
        let bytes = frame(&done, &[b'x'; 60]).await;
        let err = run_answer(bytes.as_slice(), 100).await.unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::InvalidData);
        (done.stdout.head_len, done.stdout.tail_len) = (1, 1);
        let bytes = frame(&done, b"ok").await;
        let result = run_answer(bytes.as_slice(), 100).await.unwrap().unwrap();
        assert_eq!(*result.stdout, *b"ok");
    }

    #[tokio::test]
    async fn a_commit_that_is_not_an_object_name_is_refused() {
        let mut bytes = Vec::new();
        let done = SnapshotDone {
            commit: "--upload-pack=x".into(),
            bundle_len: None,
            left_out: Vec::new(),
        };
        write_json(&mut bytes, &GuestReply::Ok(done)).await.unwrap();
        assert!(snapshot_answer(bytes.as_slice(), 1).await.is_err());
    }
}
