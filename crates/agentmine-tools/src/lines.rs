//! Answers lines on stdin that are no messages, and reads calls of a tool.
//!
//! The protocol library drops a line that is too long or is not JSON, and a client that expects a response waits for ever.
//! [`Lines`] passes only whole lines of JSON on to the library's reader, and [`Answered`] returns an error for each other one. The
//! library writes these errors too, so they never mix with its responses. While one is written, nothing is read, so at most
//! one is kept.
//!
//! The library finds the type of a message by trying one after the other, which takes longer than a view of a file. So
//! [`Lines`] reads calls of a tool itself, and keeps them from the library's reader too.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, JsonRpcMessage, JsonRpcVersion2_0,
    RequestId,
};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::stdio_pipes;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How much is read at once, in bytes.
const CHUNK: usize = 8 * 1024;
/// How much of a line that is too long is searched for the id of a request, in bytes.
const START: usize = 4 * 1024;

/// A transport over stdin and stdout that answers every line of up to `max_line` bytes, and longer ones with an error. To be
/// called in a runtime.
#[must_use]
pub fn stdio_transport(max_line: usize) -> impl Transport<RoleServer> + 'static {
    let (stdin, stdout) = stdio_pipes();
    answered(stdin, stdout, max_line)
}

/// The same over any streams.
pub(crate) fn answered<R, W>(
    read: R,
    write: W,
    max_line: usize,
) -> Answered<AsyncRwTransport<RoleServer, Lines<R>, W>>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (report, reported) = unbounded_channel();
    let lines = Lines {
        inner: read,
        max: max_line,
        chunk: Vec::new(),
        line: Vec::new(),
        is_discarding: false,
        whole: Vec::new(),
        passed: 0,
        report,
    };
    Answered {
        inner: AsyncRwTransport::new_server(lines, write).with_max_line_length(max_line),
        reported,
        answering: None,
    }
}

/// A line that is not passed on to the library.
enum Kept {
    /// A call of a tool.
    Call(Box<CallToolRequest>, RequestId),
    /// It is no message.
    Fault(Fault),
}

/// Why a line is no message.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    /// It is not JSON; why.
    NotJson(String),
    /// It is longer than the limit.
    TooLong {
        /// Of the request that it begins.
        id: Option<RequestId>,
        /// The limit in bytes.
        max: usize,
    },
}

impl Fault {
    fn response(self) -> TxJsonRpcMessage<RoleServer> {
        let (text, id) = match self {
            Self::NotJson(why) => (format!("the line is not JSON: {why}"), None),
            Self::TooLong { id, max } => (format!("the message is longer than {max} bytes"), id),
        };
        JsonRpcMessage::error(ErrorData::parse_error(text, None), id)
    }
}

/// The whole lines of a reader that are JSON.
pub(crate) struct Lines<R> {
    inner: R,
    max: usize,
    /// What was read and not looked at.
    chunk: Vec<u8>,
    /// The beginning of a line.
    line: Vec<u8>,
    /// Whether the line was reported as too long, and its end is still to come.
    is_discarding: bool,
    /// A line that is passed on, and how much of it was.
    whole: Vec<u8>,
    passed: usize,
    report: UnboundedSender<Kept>,
}

impl<R> Lines<R> {
    /// Looks at what was read, up to the first line to pass on or to report.
    fn advance(&mut self) -> Option<Kept> {
        while !self.chunk.is_empty() && self.whole.is_empty() {
            let newline = self.chunk.iter().position(|byte| *byte == b'\n');
            let rest = self
                .chunk
                .split_off(newline.map_or(self.chunk.len(), |at| at + 1));
            let piece = std::mem::replace(&mut self.chunk, rest);
            if self.is_discarding {
                self.is_discarding = newline.is_none();
                continue;
            }
            self.line.extend_from_slice(&piece);
            if self.line.len() > self.max {
                self.is_discarding = newline.is_none();
                let line = std::mem::take(&mut self.line);
                let start = line.get(..START).unwrap_or(&line);
                return Some(Kept::Fault(Fault::TooLong {
                    id: id_of_request(start),
                    max: self.max,
                }));
            }
            if newline.is_some() {
                let line = std::mem::take(&mut self.line);
                match read(&line) {
                    Ok(None) => self.whole = line,
                    Ok(Some((call, id))) => return Some(Kept::Call(call, id)),
                    Err(error) => return Some(Kept::Fault(Fault::NotJson(error.to_string()))),
                }
            }
        }
        None
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Lines<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        loop {
            if let Some(left) = this
                .whole
                .get(this.passed..)
                .filter(|left| !left.is_empty())
            {
                let now = left.len().min(buf.remaining());
                buf.put_slice(&left[..now]);
                this.passed += now;
                return Poll::Ready(Ok(()));
            }
            this.whole = Vec::new();
            this.passed = 0;
            if let Some(kept) = this.advance() {
                // Whoever receives it is the one that polls this, and looks for it before and afterwards.
                let _ = this.report.send(kept);
                return Poll::Pending;
            }
            if !this.whole.is_empty() {
                continue;
            }
            let mut chunk = [0; CHUNK];
            let mut read = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                if this.line.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                // The last line has no end.
                this.chunk.push(b'\n');
                continue;
            }
            this.chunk.extend_from_slice(read.filled());
        }
    }
}

/// The call that a line is, if it is one. An error is why it is not JSON; an empty line is no fault.
fn read(line: &[u8]) -> serde_json::Result<Option<(Box<CallToolRequest>, RequestId)>> {
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    if let Some(call) = std::str::from_utf8(line).ok().and_then(call) {
        return Ok(Some(call));
    }
    serde_json::from_slice::<Value>(line).map(|_| None)
}

/// The call that a message is. `None` also where the library is to say what is wrong with it.
fn call(message: &str) -> Option<(Box<CallToolRequest>, RequestId)> {
    #[derive(Deserialize)]
    struct Message {
        #[serde(rename = "jsonrpc")]
        _version: JsonRpcVersion2_0,
        id: RequestId,
        method: String,
        params: CallToolRequestParams,
        #[serde(default, deserialize_with = "is_there")]
        result: bool,
        #[serde(default, deserialize_with = "is_there")]
        error: bool,
    }
    let message: Message = serde_json::from_str(message).ok()?;
    if message.method != "tools/call" || message.result || message.error {
        return None;
    }
    let mut params = message.params;
    let meta = params.meta.take();
    let mut call = CallToolRequest::new(params);
    // Where the library looks for it.
    meta.and_then(|meta| call.extensions.insert(meta));
    Some((Box::new(call), message.id))
}

/// A member that is there, with any value.
fn is_there<'de, D: Deserializer<'de>>(member: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(member).map(|_| true)
}

/// The id of the request that begins like this, as far as it can be read.
fn id_of_request(start: &[u8]) -> Option<RequestId> {
    let mut members = Members::default();
    // It ends somewhere.
    let _ = serde_json::Deserializer::from_slice(start).deserialize_map(&mut members);
    members.id.filter(|_| members.has_method)
}

#[derive(Default)]
struct Members {
    id: Option<RequestId>,
    has_method: bool,
}

impl<'de> Visitor<'de> for &mut Members {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut id = None;
        while let Some(key) = map.next_key::<String>()? {
            // A number that is cut is a number too: only a key after it shows that it is whole.
            self.id = id.take().or(self.id.take());
            match key.as_str() {
                "id" => id = Some(map.next_value()?),
                key => {
                    self.has_method |= key == "method";
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// A transport that gets the calls, and answers the lines, that [`Lines`] keeps from it.
pub(crate) struct Answered<T> {
    inner: T,
    reported: UnboundedReceiver<Kept>,
    /// An error that is being sent: nothing more is read until it is written.
    answering: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Answered<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    /// If the future is dropped, nothing that was read is lost.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(answering) = &mut self.answering {
                answering.await;
                self.answering = None;
            }
            let kept = {
                let reported = &mut self.reported;
                let mut inner = pin!(self.inner.receive());
                // What was reported comes before all that is not read yet. Looked for by each poll, since tokio may cut one short
                // after the report.
                poll_fn(|cx| {
                    if let Ok(kept) = reported.try_recv() {
                        return Poll::Ready(Ok(kept));
                    }
                    if let Poll::Ready(message) = inner.as_mut().poll(cx) {
                        return Poll::Ready(Err(message));
                    }
                    reported
                        .try_recv()
                        .map_or(Poll::Pending, |kept| Poll::Ready(Ok(kept)))
                })
                .await
            };
            let kept = match kept {
                Ok(kept) => kept,
                Err(message) => return message,
            };
            let fault = match kept {
                Kept::Call(call, id) => {
                    return Some(JsonRpcMessage::request(
                        ClientRequest::CallToolRequest(*call),
                        id,
                    ));
                }
                Kept::Fault(fault) => fault,
            };
            let sending = self.inner.send(fault.response());
            self.answering = Some(Box::pin(async move {
                // If writing fails, reading ends too.
                let _ = sending.await;
            }));
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::GetMeta as _;
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    use super::*;

    const MAX: usize = 8 * 1024;

    /// The ids of the messages that arrive, and the lines that were written.
    async fn exchange(input: Vec<u8>) -> (Vec<Value>, Vec<Value>) {
        let (mut client, stdin) = tokio::io::duplex(100);
        let (stdout, written) = tokio::io::duplex(1 << 20);
        let mut transport = answered(stdin, stdout, MAX);
        let sending = tokio::spawn(async move { client.write_all(&input).await });
        let mut received = Vec::new();
        while let Some(message) = transport.receive().await {
            let JsonRpcMessage::Request(request) = message else {
                panic!("not a request");
            };
            received.push(request.id.into_json_value());
        }
        sending.await.unwrap().unwrap();
        drop(transport);
        let mut lines = BufReader::new(written).lines();
        let mut answers = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            answers.push(serde_json::from_str(&line).unwrap());
        }
        (received, answers)
    }

    fn list(id: u32, cursor: &str) -> String {
        let params = json!({ "cursor": cursor });
        let message = json!({"jsonrpc": "2.0", "id": id, "method": "tools/list", "params": params});
        format!("{message}\n")
    }

    #[tokio::test]
    async fn the_last_line_needs_no_end() {
        let input = list(1, "") + list(2, "").trim_end();
        let (received, answers) = exchange(input.into_bytes()).await;
        assert_eq!(received, [json!(1), json!(2)]);
        assert!(answers.is_empty(), "{answers:?}");
    }

    #[tokio::test]
    async fn lines_that_are_no_messages_are_answered_and_the_others_pass() {
        let long = "x".repeat(3 * MAX);
        let mut input = list(1, "");
        input.push_str("{not json\n\r\n");
        input.push_str(&list(2, &long));
        input.push_str(&list(3, "y"));
        input.push_str(&format!("[\"{long}\"]\n"));
        let mut input = input.into_bytes();
        input.extend_from_slice(b"\"\xff\xfe\"\n");
        input.extend_from_slice(list(4, "").as_bytes());
        let (received, answers) = exchange(input).await;
        assert_eq!(received, [1, 3, 4]);
        let codes = answers.iter().map(|answer| &answer["error"]["code"]);
        assert!(codes.eq(&[-32700_i64; 4]), "{answers:?}");
        let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
        assert_eq!(ids, [&Value::Null, &json!(2), &Value::Null, &Value::Null]);
        let text = answers[1]["error"]["message"].as_str().unwrap();
        assert_eq!(text, "the message is longer than 8192 bytes");
    }

    #[tokio::test]
    async fn calls_and_other_messages_arrive_in_their_order() {
        let call = |id: u32| {
            let params = json!({"name": "x", "arguments": {"text": "y".repeat(200)}});
            let call =
                json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
            format!("{call}\n")
        };
        let input = [
            call(1),
            list(2, ""),
            call(3),
            "[\n".to_owned(),
            call(4),
            list(5, "z"),
        ];
        let input = input.concat() + call(6).trim_end();
        let (received, answers) = exchange(input.into_bytes()).await;
        assert_eq!(received, [1, 2, 3, 4, 5, 6]);
        assert_eq!(answers.len(), 1, "{answers:?}");
    }

    /// With one unit left of what tokio lets a task do at a time, between a read and the look for what it reported.
    #[tokio::test]
    async fn a_call_is_neither_lost_nor_overtaken_when_its_poll_is_cut_short() {
        let params = json!({"name": "x"});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        for left in 0..4 {
            for (more, expected) in [("".to_owned(), vec![1]), (list(2, ""), vec![1, 2])] {
                let (mut client, stdin) = tokio::io::duplex(1 << 16);
                let input = format!("{call}\n{more}");
                client.write_all(input.as_bytes()).await.unwrap();
                drop(client);
                let mut transport = answered(stdin, tokio::io::sink(), MAX);
                tokio::task::yield_now().await;
                for _ in left..128 {
                    tokio::task::consume_budget().await;
                }
                let mut received = Vec::new();
                while let Some(JsonRpcMessage::Request(request)) = transport.receive().await {
                    received.push(request.id.into_json_value());
                }
                assert_eq!(received, expected, "with {left} left");
            }
        }
    }

    /// Each is read here or by the library, and then as the library reads it.
    #[test]
    fn a_call_is_what_the_library_would_read() {
        let plain = json!({"name": "x", "arguments": {"a": [1, null, 2.5], "b": {"c": "\u{e9}"}}});
        let with = |key: &str, value: Value| {
            let mut params = plain.clone();
            params[key] = value;
            params
        };
        let call = |params: &Value| json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
        let but = |key: &str, value: Value| {
            let mut message = call(&plain);
            message[key] = value;
            message
        };
        let read_here = [
            call(&plain),
            call(&json!({"name": ""})),
            call(&with("arguments", Value::Null)),
            call(&with("other", json!([]))),
            call(&with("_meta", Value::Null)),
            call(&with("_meta", json!({"progressToken": 3, "x/y": {"z": 1}}))),
            call(&with("requestState", json!("s"))),
            but("id", json!("seven")),
            but("more", json!(1)),
        ];
        let left_to_the_library = [
            call(&json!({"arguments": {}})),
            call(&json!([])),
            call(&with("arguments", json!("text"))),
            call(&with("_meta", json!(1))),
            but("id", Value::Null),
            but("id", json!(1.5)),
            but("jsonrpc", json!("1.0")),
            but("method", json!("tools/list")),
            but("result", Value::Null),
            but("error", json!({})),
            but("error", Value::Null),
        ];
        for (is_here, messages) in [(true, &read_here[..]), (false, &left_to_the_library)] {
            for message in messages {
                let line = message.to_string();
                let kept = read(line.as_bytes()).unwrap();
                assert_eq!(kept.is_some(), is_here, "{line}");
                let Some((call, id)) = kept else { continue };
                let here = JsonRpcMessage::request(ClientRequest::CallToolRequest(*call), id);
                let there: RxJsonRpcMessage<RoleServer> = serde_json::from_str(&line).unwrap();
                let [meta, expected] = [&here, &there].map(|it| match it {
                    JsonRpcMessage::Request(it) => it.request.get_meta().clone(),
                    _ => panic!("not a request"),
                });
                assert_eq!(meta, expected, "{line}");
                let [here, there] = [&here, &there].map(|it| serde_json::to_value(it).unwrap());
                assert_eq!(here, there, "{line}");
            }
        }
    }

    #[test]
    fn a_key_that_comes_twice_is_left_to_the_library() {
        for line in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","name":"y"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"x"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{"name":"x"}}"#,
        ] {
            assert!(read(line.as_bytes()).unwrap().is_none(), "{line}");
        }
        let not_utf8 = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"x\"},\"more\":\"\xff\"}";
        read(not_utf8).unwrap_err();
    }

    #[test]
    fn the_id_of_a_request_is_read_from_its_beginning() {
        for (start, expected) in [
            (r#"{"id":7,"method":"m","params":{"a":"#, Some(json!(7))),
            (r#"{"method":"m","id":"x","params":["#, Some(json!("x"))),
            (r#"{"method":"m","id":7"#, None),
            (r#"{"id":7,"result":{"a":"#, None),
            (r#"{"params":{"id":7,"method":"#, None),
            ("[7", None),
        ] {
            let id = id_of_request(start.as_bytes()).map(RequestId::into_json_value);
            assert_eq!(id, expected, "{start}");
        }
    }
}
