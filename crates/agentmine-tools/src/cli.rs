//! The command line of the programs `mcp-server-file-read`, `-file-write` and `-shell-exec`.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::host::ToolServer;
use crate::roots::AllowedRoots;
use crate::shell_exec::ShellOptions;

/// One of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `mcp-server-file-read`
    FileRead,
    /// `mcp-server-file-write`
    FileWrite,
    /// `mcp-server-shell-exec`
    ShellExec,
}

const ROOTS: &str =
    "  --allow-path DIR   allow a further folder; the current one is always allowed\n";
const SHELL: &str = "  --timeout SECONDS  kill a command that runs longer (default 120)\n  \
    --deny RULE        refuse further commands, e.g. \"git push --force\"\n  \
    --ask RULE         run further commands only if the user agrees\n  \
    --allow RULE       run commands that the built-in lists refuse or ask about\n\n\
    The lists prevent mistakes; they are not a sandbox.\n";

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::FileRead => "mcp-server-file-read",
            Self::FileWrite => "mcp-server-file-write",
            Self::ShellExec => "mcp-server-shell-exec",
        }
    }

    fn usage(self) -> String {
        let name = self.name();
        let (tool, more) = match self {
            Self::FileRead => ("file_read", ""),
            Self::FileWrite => ("file_write", ""),
            Self::ShellExec => ("shell_exec", SHELL),
        };
        format!(
            "usage: {name} [OPTION]...\nAn MCP server over stdin and stdout with one tool, {tool}.\n\n\
             {ROOTS}{more}"
        )
    }

    /// Runs the program.
    #[must_use]
    pub fn main(self) -> ExitCode {
        if self == Self::ShellExec {
            shed_environment();
        }
        let outcome = match self.invocation(std::env::args_os().skip(1)) {
            Ok(Invocation::Serve(options)) => self.serve(options),
            Ok(Invocation::Print(text)) => std::io::stdout()
                .write_all(text.as_bytes())
                .map_err(Into::into),
            Err(detail) => {
                let usage = self.usage();
                let _ = write!(std::io::stderr(), "error: {detail}\n{usage}");
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

    /// Serves on one thread, so that calls on files run in the order in which they arrive.
    fn serve(self, options: Options) -> anyhow::Result<()> {
        let server = self.server(options)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let outcome = runtime.block_on(server.serve_stdio());
        // A read of stdin may still block a helper thread; this does not wait for it.
        runtime.shutdown_background();
        outcome
    }

    fn server(self, options: Options) -> anyhow::Result<ToolServer> {
        let roots = AllowedRoots::here(options.allowed)?;
        Ok(match self {
            Self::FileRead => ToolServer::FileRead(roots),
            Self::FileWrite => ToolServer::FileWrite(roots),
            Self::ShellExec => {
                let mut shell = ShellOptions::new(roots);
                shell.timeout = options.timeout.unwrap_or(shell.timeout);
                shell.deny = options.deny;
                shell.ask = options.ask;
                shell.allow = options.allow;
                ToolServer::ShellExec(shell)
            }
        })
    }

    fn invocation(self, mut args: impl Iterator<Item = OsString>) -> Result<Invocation, String> {
        let mut options = Options::default();
        while let Some(arg) = args.next() {
            let text = arg.to_str().ok_or_else(|| unknown(&arg))?;
            let (name, attached) = match text.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.into())),
                _ => (text, None),
            };
            let shell = self == Self::ShellExec;
            let mut value = || {
                attached
                    .clone()
                    .or_else(|| args.next())
                    .ok_or_else(|| format!("{name} needs a value"))
            };
            match name {
                "--help" | "-h" => return Ok(Invocation::Print(self.usage())),
                "--version" | "-V" => {
                    let (name, version) = (self.name(), env!("CARGO_PKG_VERSION"));
                    return Ok(Invocation::Print(format!("{name} {version}\n")));
                }
                "--allow-path" => options.allowed.push(value()?.into()),
                "--timeout" if shell => options.timeout = Some(seconds(&value()?)?),
                "--deny" if shell => options.deny.push(rule(value()?)?),
                "--ask" if shell => options.ask.push(rule(value()?)?),
                "--allow" if shell => options.allow.push(rule(value()?)?),
                _ => return Err(unknown(&arg)),
            }
        }
        Ok(Invocation::Serve(options))
    }
}

/// Restarts the program with only the environment that commands get, so that no command can read more from the
/// server's entry in /proc, not even as root.
fn shed_environment() {
    use crate::shell_exec::environment::is_passed_on;
    use std::os::unix::process::CommandExt;
    let (kept, shed): (Vec<_>, Vec<_>) =
        std::env::vars_os().partition(|(name, _)| is_passed_on(name));
    if shed.is_empty() {
        return;
    }
    let mut args = std::env::args_os();
    let Some((program, zeroth)) = std::env::current_exe().ok().zip(args.next()) else {
        return;
    };
    // Returns only if it fails. Then the server keeps the environment as it is.
    let _ = std::process::Command::new(program)
        .arg0(zeroth)
        .args(args)
        .env_clear()
        .envs(kept)
        .exec();
}

#[derive(Default)]
struct Options {
    allowed: Vec<PathBuf>,
    timeout: Option<Duration>,
    deny: Vec<String>,
    ask: Vec<String>,
    allow: Vec<String>,
}

enum Invocation {
    Serve(Options),
    Print(String),
}

fn seconds(value: &OsString) -> Result<Duration, String> {
    value
        .to_str()
        .and_then(|text| text.parse().ok())
        .filter(|seconds| (1..=86_400).contains(seconds))
        .map(Duration::from_secs)
        .ok_or_else(|| {
            format!("--timeout is {value:?}: it must be a whole number of seconds, 1 to 86400")
        })
}

fn rule(value: OsString) -> Result<String, String> {
    value
        .into_string()
        .map_err(|value| format!("the rule {value:?} is not UTF-8"))
}

fn unknown(arg: &OsString) -> String {
    format!("unknown argument {arg:?}")
}
