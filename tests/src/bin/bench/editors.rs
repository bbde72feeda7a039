//! The text editor beside a server of others that edits files, over stdio, in turns: the same file, the same change.
//! The npm package that the specification names is no longer available, so the peer is the protocol's own server of
//! a file system, and the floor of any server in Node: a loop over lines that reads and writes the file, without a
//! library, a check or a protocol.
//!
//! There is a pause between two rounds, as between the calls of an agent: ext4 without a journal looks at each inode
//! that was freed in the last five seconds before it takes another one, so that a thousand edits a second measure that.
//! CPU time is that of all threads of the server, which hardly depends on how busy the machine is.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use agentmine_tests::mcp::installed;
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::table::{Samples, Table};

/// Reads a request of our form and answers it: what no server in Node can do without.
const LEAST: &str = r#"
const fs = require("fs");
require("readline").createInterface({ input: process.stdin }).on("line", line => {
  const { id, params = {} } = JSON.parse(line);
  if (id === undefined) return;
  const { path, old_str, new_str } = params.arguments || {};
  let text = path ? fs.readFileSync(path, "utf8") : "";
  if (old_str) fs.writeFileSync(path, text = text.replace(old_str, () => new_str));
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result: { content: [{ type: "text", text }] } }) + "\n");
});
"#;
const EDITOR: &str = "mcp-server-text-editor";
const PAUSE: Duration = Duration::from_millis(20);
const WARM_UP: u32 = 100;

/// Blocks; `rounds` calls of each kind.
pub(crate) fn run(rounds: u32) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let mut servers = Servers::start(folder)?;
    for (what, lines) in [("40 lines", 40), ("1 MB", 40_000)] {
        let text: String = (0..lines)
            .map(|n| format!("line {n} of a file of text\n"))
            .collect();
        for name in ["ours", "peer", "least"] {
            std::fs::write(folder.join(name), &text)?;
        }
        let rounds = if lines > 1000 { rounds / 10 } else { rounds };
        servers.measure(what, folder, lines / 2, rounds)?;
    }
    Ok(())
}

struct Servers {
    ours: Server,
    peer: Server,
    least: Server,
}

impl Servers {
    fn start(folder: &Path) -> anyhow::Result<Self> {
        let bin = installed().join("node_modules/.bin");
        let ours = std::env::current_exe()?.with_file_name(EDITOR);
        ensure!(
            ours.exists(),
            "{} is not built. hint: cargo build --release --workspace --bins",
            ours.display()
        );
        let node = || Command::new(bin.join("node"));
        Ok(Self {
            ours: Server::start(Command::new(ours).arg("--root").arg(folder))?,
            peer: Server::start(node().arg(bin.join("mcp-server-filesystem")).arg(folder))?,
            least: Server::start(node().args(["-e", LEAST]))?,
        })
    }

    fn measure(&mut self, what: &str, folder: &Path, line: u32, rounds: u32) -> anyhow::Result<()> {
        let [ours, peer, least] = ["ours", "peer", "least"].map(|name| folder.join(name));
        let mut samples: [[Samples; 2]; 8] = Default::default();
        // The first rounds warm up Node's compiler.
        for round in 0..rounds + WARM_UP {
            let (few, many) = (format!("line {line} of"), format!("line <{line}> of"));
            let (old, new) = if round.is_multiple_of(2) {
                (&few, &many)
            } else {
                (&many, &few)
            };
            let replace = |path: &Path| json!({ "path": path, "old_str": old, "new_str": new, "command": "str_replace" });
            let range = [line, line + 20];
            let text = std::fs::read_to_string(&peer)?.replacen(&few, &many, 1);
            // Each round writes the changed text, and edits it back.
            let edits = json!([{ "oldText": many, "newText": few }]);
            let made = folder.join(format!("new-{what}-{round}"));
            let view = json!({ "command": "view", "path": ours, "view_range": range });
            let create = json!({ "command": "create", "path": made, "file_text": text });
            let taken = [
                self.ours.call("text_editor", view)?,
                self.peer.call("read_text_file", json!({ "path": peer }))?,
                self.least.call("read", json!({ "path": least }))?,
                self.ours.call("text_editor", create)?,
                self.peer
                    .call("write_file", json!({ "path": peer, "content": text }))?,
                self.ours.call("text_editor", replace(&ours))?,
                self.peer
                    .call("edit_file", json!({ "path": peer, "edits": edits }))?,
                self.least.call("edit", replace(&least))?,
            ];
            if round >= WARM_UP {
                for (samples, taken) in samples.iter_mut().zip(taken) {
                    for (samples, taken) in samples.iter_mut().zip(taken) {
                        samples.push(taken);
                    }
                }
            }
            std::thread::sleep(PAUSE);
        }
        for (part, name) in ["time", "CPU time of the server"].iter().enumerate() {
            let [
                view,
                read,
                least_read,
                create,
                write,
                replace,
                edit,
                least_edit,
            ] = samples.each_ref().map(|both| &both[part]);
            let mut table = Table::new(&format!("a file of {what}: {name}"));
            table.row("text_editor view, 21 lines", view);
            table.against("  server-filesystem read_text_file", read, view);
            table.against("  the least in Node", least_read, view);
            table.row("text_editor create", create);
            table.against("  server-filesystem write_file", write, create);
            table.row("text_editor str_replace", replace);
            table.against("  server-filesystem edit_file", edit, replace);
            table.against("  the least in Node", least_edit, replace);
            table.print("server-filesystem takes 5 times as long or longer for small files")?;
        }
        Ok(())
    }
}

/// A server, and a client that costs next to nothing.
struct Server {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    line: String,
}

impl Server {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let streams = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = streams.context("no streams")?;
        let mut server = Self {
            child,
            stdin,
            stdout: BufReader::new(stdout),
            line: String::new(),
        };
        let client = json!({ "name": "bench", "version": "1" });
        let hello =
            json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        server.request("initialize", &hello)?;
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        writeln!(server.stdin, "{ready}")?;
        Ok(server)
    }

    fn request(&mut self, method: &str, params: &Value) -> anyhow::Result<()> {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut request = request.to_string();
        request.push('\n');
        self.stdin.write_all(request.as_bytes())?;
        self.line.clear();
        self.stdout.read_line(&mut self.line)?;
        Ok(())
    }

    /// The time of a call, and the CPU time of the server.
    fn call(&mut self, tool: &str, arguments: Value) -> anyhow::Result<[Duration; 2]> {
        let params = json!({ "name": tool, "arguments": arguments });
        let (cpu, began) = (self.cpu(), Instant::now());
        self.request("tools/call", &params)?;
        let took = began.elapsed();
        // What the server does after its answer is not left out.
        std::thread::sleep(Duration::from_millis(1));
        let cpu = self.cpu().saturating_sub(cpu);
        let reply: Value = serde_json::from_str(&self.line)
            .with_context(|| format!("{tool} answered {:.300}", self.line))?;
        let result = &reply["result"];
        ensure!(
            result.is_object() && result["isError"] != true,
            "{tool} answered {:.300}",
            self.line
        );
        Ok([took, cpu])
    }

    fn cpu(&self) -> Duration {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let threads = threads.into_iter().flatten().flatten();
        let nanos = threads.filter_map(|thread| {
            let times = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            times.split(' ').next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(nanos.sum())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
