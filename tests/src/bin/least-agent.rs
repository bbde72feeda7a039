//! The least that a correct agent can do, as a floor for `bench peers`: it asks a model over Chat Completions, runs the
//! four tools that it offers, and records each step before the next request. There is no sandbox, no retry and no limit.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Error, Read as _, Result, Write as _};
use std::net::TcpStream;
use std::process::Command;

use serde_json::{Value, json};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(journal)) = (args.next(), args.next()) else {
        return Err(Error::other(
            "expected the URL of a model and the journal's file",
        ));
    };
    let mut model = Model::connect(&url)?;
    let mut journal = OpenOptions::new().create(true).append(true).open(journal)?;
    let mut conversation = vec![json!({ "role": "user", "content": "Do the task." })];
    loop {
        let reply = model.ask(&conversation)?;
        let Some(call) = reply["tool_calls"].get(0).cloned() else {
            return Ok(());
        };
        let result = run(&call["function"]).unwrap_or_else(|error| error.to_string());
        let result = json!({ "role": "tool", "tool_call_id": call["id"], "content": result });
        record(&mut journal, &reply, &result)?;
        conversation.extend([reply, result]);
    }
}

fn record(journal: &mut File, reply: &Value, result: &Value) -> Result<()> {
    journal.write_all(format!("{reply}\n{result}\n").as_bytes())
}

/// Returns what the tool shows the model.
fn run(function: &Value) -> Result<String> {
    let arguments: Value = serde_json::from_str(text(&function["arguments"]))?;
    let path = text(&arguments["path"]);
    match text(&function["name"]) {
        "bash" => {
            let command = text(&arguments["command"]);
            let done = Command::new("/bin/sh").args(["-c", command]).output()?;
            let output = [done.stdout, done.stderr].concat();
            Ok(format!(
                "{}\n{}",
                done.status,
                String::from_utf8_lossy(&output)
            ))
        }
        "write" => {
            std::fs::write(path, text(&arguments["content"]))?;
            Ok("written".to_owned())
        }
        "edit" => {
            let edit = &arguments["edits"][0];
            let (old, new) = (text(&edit["oldText"]), text(&edit["newText"]));
            let before = std::fs::read_to_string(path)?;
            if before.matches(old).count() != 1 {
                return Err(Error::other("the text is not there exactly once"));
            }
            std::fs::write(path, before.replacen(old, new, 1))?;
            Ok("edited".to_owned())
        }
        "read" => std::fs::read_to_string(path),
        other => Err(Error::other(format!("there is no tool {other}"))),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// One connection to a model server.
struct Model {
    connection: BufReader<TcpStream>,
    host: String,
    path: String,
    tools: Value,
}

impl Model {
    fn connect(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("http://");
        let parts = rest.and_then(|rest| rest.split_once('/'));
        let (host, path) = parts.ok_or_else(|| Error::other("expected http://HOST:PORT/PATH"))?;
        let connection = TcpStream::connect(host)?;
        connection.set_nodelay(true)?;
        let tool = |name: &str, parameters: &[&str]| {
            let properties = parameters.iter().map(|it| ((*it).to_owned(), json!({})));
            let properties: serde_json::Map<_, _> = properties.collect();
            let parameters = json!({ "type": "object", "properties": properties });
            json!({ "type": "function", "function": { "name": name, "parameters": parameters } })
        };
        Ok(Self {
            connection: BufReader::new(connection),
            host: host.to_owned(),
            path: format!("/{path}/v1/chat/completions"),
            tools: json!([
                tool("bash", &["command"]),
                tool("write", &["path", "content"]),
                tool("edit", &["path", "edits"]),
                tool("read", &["path"]),
            ]),
        })
    }

    /// The model's reply, which is the first choice's only delta with a role.
    fn ask(&mut self, conversation: &[Value]) -> Result<Value> {
        let body = json!({
            "model": "scripted",
            "stream": true,
            "messages": conversation,
            "tools": self.tools,
        });
        let body = body.to_string();
        let request = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.path,
            self.host,
            body.len()
        );
        self.connection.get_mut().write_all(request.as_bytes())?;
        let events = self.response()?;
        let mut deltas = events
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
            .map(|mut event| event["choices"][0]["delta"].take());
        let reply = deltas.find(|delta| delta["role"] == "assistant");
        reply.ok_or_else(|| Error::other(format!("the model sent no reply: {events}")))
    }

    fn response(&mut self) -> Result<String> {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if self.connection.read_line(&mut line)? == 0 {
                return Err(Error::other("the model has disconnected"));
            }
            let header = line.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(Error::other)?;
            }
        }
        let mut body = vec![0; length];
        self.connection.read_exact(&mut body)?;
        String::from_utf8(body).map_err(Error::other)
    }
}
