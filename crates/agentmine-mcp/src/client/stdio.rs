//! Messages over a byte stream, one on each line.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, CustomRequest, JsonRpcMessage, JsonRpcRequest, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::ending::Ending;
use super::lines::{self, Line, Lines, MAX_GARBAGE};

const CHUNK: usize = 8 * 1024;
/// A server that reads no byte for this long does not read at all, and our messages would fill the memory.
const WRITE: Duration = Duration::from_secs(60);

/// A server's stream. Its end, or our reason to end it, goes to the [`Ending`]. Dropping it closes the stream,
/// also during a write.
pub(crate) struct Stdio<S> {
    read: ReadHalf<S>,
    chunk: Box<[u8; CHUNK]>,
    lines: Lines,
    ready: VecDeque<ServerJsonRpcMessage>,
    /// Lines that are not messages, since the last message.
    garbage: usize,
    max_line: usize,
    write: Arc<Mutex<WriteHalf<S>>>,
    ending: Ending,
}

impl<S: AsyncRead + AsyncWrite + Send + 'static> Stdio<S> {
    pub(crate) fn new(stream: S, max_line: usize, ending: &Ending) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self {
            read,
            chunk: Box::new([0; CHUNK]),
            lines: Lines::new(max_line),
            ready: VecDeque::new(),
            garbage: 0,
            max_line,
            write: Arc::new(Mutex::new(write)),
            ending: ending.clone(),
        }
    }

    /// Reads the first bytes of the chunk. An error is the reason to end the connection.
    fn take(&mut self, count: usize) -> Result<(), String> {
        let mut too_much = false;
        let (ready, garbage) = (&mut self.ready, &mut self.garbage);
        let read = self.chunk.get(..count).unwrap_or_default();
        let pushed = self.lines.push(read, |line| match lines::read(line) {
            Line::Empty => {}
            Line::Messages(messages, more) => {
                if !messages.is_empty() {
                    *garbage = 0;
                }
                ready.extend(messages);
                *garbage += more;
            }
            Line::Garbage => *garbage += 1,
            Line::TooMuch => too_much = true,
        });
        if pushed.is_err() {
            let max = self.max_line;
            return Err(format!("it sent a line of more than {max} bytes"));
        }
        if too_much {
            let (values, depth) = (lines::MAX_VALUES, lines::MAX_DEPTH);
            return Err(format!(
                "it sent a message of more than {values} values, or more than {depth} within each other"
            ));
        }
        if self.garbage > MAX_GARBAGE {
            return Err(format!(
                "it sent more than {MAX_GARBAGE} lines in a row that are not the protocol"
            ));
        }
        Ok(())
    }
}

impl<S: AsyncRead + AsyncWrite + Send + 'static> Transport<RoleClient> for Stdio<S> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (write, ending) = (self.write.clone(), self.ending.clone());
        async move {
            let line = line(&message)?;
            drop(message);
            let written = write_all(&mut *write.lock().await, &line).await;
            written.map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => {
                    ending.end(format!("it read no input for {} s", WRITE.as_secs()));
                    error
                }
                kind @ io::ErrorKind::BrokenPipe => io::Error::new(kind, "it has ended"),
                _ => error,
            })
        }
    }

    // It can be dropped at its only await without loss.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            if self.ending.reason().is_some() {
                return None;
            }
            let ended = match self.read.read(self.chunk.as_mut_slice()).await {
                Ok(0) if self.lines.half() => {
                    Err("it has ended in the middle of a line".to_owned())
                }
                Ok(0) => Err("it has ended".to_owned()),
                Ok(count) => self.take(count),
                Err(error) => Err(format!("its output cannot be read: {error}")),
            };
            if let Err(reason) = ended {
                self.ending.end(reason);
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The request without rmcp's type for its method, which would take longer to make and to write than all else
/// here.
#[expect(clippy::unnecessary_wraps, reason = "a `MakeRequest`")]
pub(super) fn request(
    method: &str,
    params: Map<String, Value>,
) -> serde_json::Result<ClientRequest> {
    let request = CustomRequest::new(method, Some(params.into()));
    Ok(ClientRequest::CustomRequest(request))
}

/// The line of a message.
fn line(message: &ClientJsonRpcMessage) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Request<'a> {
        jsonrpc: &'static str,
        id: &'a RequestId,
        method: &'a str,
        params: &'a Option<Value>,
    }
    let mut line = match message {
        JsonRpcMessage::Request(JsonRpcRequest {
            id,
            request: ClientRequest::CustomRequest(request),
            ..
        }) => serde_json::to_vec(&Request {
            jsonrpc: "2.0",
            id,
            method: &request.method,
            params: &request.params,
        }),
        message => serde_json::to_vec(message),
    }?;
    line.push(b'\n');
    Ok(line)
}

/// The time limit is for each part that the server reads, not for the whole.
async fn write_all<W: AsyncWrite + Unpin>(write: &mut W, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        let count = timeout(WRITE, write.write(rest)).await??;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        rest = rest.get(count..).unwrap_or_default();
    }
    timeout(WRITE, write.flush()).await?
}
