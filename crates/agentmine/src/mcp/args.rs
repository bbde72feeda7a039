//! The arguments of `agentmine mcp`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

#[derive(Debug, clap::Args)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    #[command(subcommand)]
    pub(crate) command: McpCommand,
}

/// The options of all commands.
pub(crate) struct With {
    /// `config.yaml`, for the limits and the network of the jail.
    pub(crate) config: Option<PathBuf>,
    pub(crate) which: Which,
}

/// Which configuration, and how it is shown.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Which {
    /// The project whose .agentmine/mcp_config.json is read too [default: the current folder]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) project: Option<PathBuf>,
    /// The operator's file [default: ~/.agentmine/mcp_config.json]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) mcp_config: Option<PathBuf>,
    /// How long a server may take to start; a first `npx` downloads
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds, global = true)]
    pub(crate) start_timeout: Duration,
    /// Print one JSON value
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// List the configured servers, their files and where they run
    List {
        /// Start each server and show what it offers
        #[arg(long)]
        start: bool,
    },
    /// List the tools of all servers, or of one
    Tools {
        /// Only this server
        server: Option<String>,
    },
    /// Call a tool
    Call {
        /// The tool
        #[arg(value_name = "SERVER:TOOL")]
        tool: String,
        /// One JSON object (`-`: from stdin), or any number of KEY=VALUE
        #[arg(value_name = "JSON|KEY=VALUE")]
        arguments: Vec<String>,
        /// How long it may take without reporting progress [default: the server's timeoutSeconds]
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        timeout: Option<Duration>,
    },
    /// List the resources and resource templates of all servers, or of one
    Resources {
        /// Only this server
        server: Option<String>,
    },
    /// Read a resource
    Read {
        /// The server's name
        server: String,
        /// The resource's URI
        uri: String,
    },
    /// List the prompts of all servers, or of one
    Prompts {
        /// Only this server
        server: Option<String>,
    },
    /// Get a prompt
    Prompt {
        /// The server's name
        server: String,
        /// The prompt's name
        name: String,
        /// Its arguments
        #[arg(value_name = "KEY=VALUE")]
        arguments: Vec<String>,
    },
    /// Check the configuration and each server, and show what to do next
    Doctor {
        /// Only this server
        server: Option<String>,
    },
    /// Serve tasks, sessions and workers to any MCP client, over stdin and stdout or HTTP
    Serve {
        /// Log what is done to stderr
        #[arg(long)]
        verbose: bool,
        /// Serve over streamable HTTP at /mcp instead, on a loopback address; clients send the token of
        /// AGENTMINE_MCP_TOKEN, else of the file that is named on stderr
        #[arg(long, value_name = "ADDRESS:PORT")]
        http: Option<std::net::SocketAddr>,
    },
    /// Serve one of AgentMine's tools to any MCP client over stdin and stdout
    #[command(subcommand)]
    ServeTools(ServeTools),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServeTools {
    /// The tool text_editor: view, create, str_replace, insert, undo_edit
    TextEditor {
        /// The only folder whose files it can use [default: the current folder]
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,
    },
    /// The tool file_read
    FileRead(Folders),
    /// The tool file_write
    FileWrite(Folders),
    /// The tool shell_exec
    ShellExec {
        #[command(flatten)]
        folders: Folders,
        /// Time limit of a command; it is killed with everything that it started
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        timeout: Option<Duration>,
        /// Another command to refuse, e.g. `git push --force`
        #[arg(long, value_name = "COMMAND")]
        deny: Vec<String>,
        /// Another command to run only if the user agrees
        #[arg(long, value_name = "COMMAND")]
        ask: Vec<String>,
        /// A command to run even if the built-in lists refuse it or ask about it
        #[arg(long, value_name = "COMMAND")]
        allow: Vec<String>,
    },
}

/// The folders that a tool can use.
#[derive(Debug, clap::Args)]
pub(crate) struct Folders {
    /// The folder in which it works [default: the current folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Another allowed folder; may be given more than once
    #[arg(long, value_name = "DIR")]
    pub(crate) allow_path: Vec<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=86_400.0).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err("expected seconds from 0.001 to 86400".into()),
    }
}
