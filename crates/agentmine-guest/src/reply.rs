//! Replies to a request and ends its stream.

use std::io;

use agentmine_guest::protocol::{GuestReply, write_json};
use anyhow::Result;
use serde::Serialize;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

/// Maximum length of an error in a reply, in characters.
const MAX_ERROR: usize = 4096;

/// Replies to a request; an error is sent as its text.
pub(crate) async fn reply<T: Serialize + Sync>(
    stream: &mut (impl AsyncWrite + Unpin),
    done: Result<T>,
) -> io::Result<()> {
    let reply = match done {
        Ok(value) => GuestReply::Ok(value),
        Err(err) => GuestReply::Err(format!("{err:#}").chars().take(MAX_ERROR).collect()),
    };
    write_json(stream, &reply).await
}

/// Ends a stream after its last byte.
pub(crate) async fn finish(stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    stream.shutdown().await
}
