//! `mcp-server-text-editor [--root DIR]`: the text editor as an MCP server over stdin and stdout.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use agentmine_tools::server::serve_stdio;
use agentmine_tools::{Editor, TextEditorServer};

const USAGE: &str = "usage: mcp-server-text-editor [--root DIR]\n\
    An MCP server over stdin and stdout with one tool, text_editor, for files under DIR\n\
    (default /workspace). Relative paths start at DIR/project where it exists, else at DIR.\n\
    This is the program of a sandbox: after a loss of power, the last edits may be gone.\n\
    MCP_TEXT_EDITOR_MAX_OUTPUT in the environment limits the bytes of a result (default 49152).\n";
/// The variable of the limit.
const MAX_OUTPUT: &str = "MCP_TEXT_EDITOR_MAX_OUTPUT";

enum Invocation {
    Serve { root: PathBuf },
    Print(String),
}

fn main() -> ExitCode {
    let outcome = match invocation(std::env::args_os().skip(1)) {
        Ok(Invocation::Serve { root }) => serve(root),
        Ok(Invocation::Print(text)) => std::io::stdout()
            .write_all(text.as_bytes())
            .map_err(Into::into),
        Err(detail) => {
            let _ = write!(std::io::stderr(), "error: {detail}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// One thread: calls are then carried out in the order in which they arrive.
fn serve(root: PathBuf) -> anyhow::Result<()> {
    let mut editor = Editor::open(root)?;
    if let Ok(bytes) = std::env::var(MAX_OUTPUT) {
        let bytes = bytes.parse().map_err(|_| {
            anyhow::anyhow!("{MAX_OUTPUT} is {bytes:?}, expected a number of bytes")
        })?;
        editor = editor.with_max_reply(bytes);
    }
    let server = TextEditorServer::new(editor);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(serve_stdio(server));
    // A read of stdin may still block a helper thread; it is not worth waiting for.
    runtime.shutdown_background();
    outcome
}

fn invocation(mut args: impl Iterator<Item = std::ffi::OsString>) -> Result<Invocation, String> {
    let mut root = PathBuf::from("/workspace");
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--root") => {
                root = args.next().ok_or("--root needs a folder")?.into();
            }
            Some("--version" | "-V") => {
                let version = env!("CARGO_PKG_VERSION");
                return Ok(Invocation::Print(format!(
                    "mcp-server-text-editor {version}\n"
                )));
            }
            Some("--help" | "-h") => return Ok(Invocation::Print(USAGE.to_owned())),
            Some(other) => match other.strip_prefix("--root=") {
                Some(folder) => root = folder.into(),
                None => return Err(format!("unknown argument {other:?}")),
            },
            None => return Err(format!("unknown argument {arg:?}")),
        }
    }
    Ok(Invocation::Serve { root })
}
