//! The arguments of the fleet's loop in this process.

use agentmine_runtime::config::BackendKind;
use clap::ValueEnum;

/// What the fleet's loop works with.
#[derive(Debug, clap::Args)]
pub(crate) struct LoopArgs {
    /// Base URL of an OpenAI-compatible API, e.g. http://127.0.0.1:11434/v1 for Ollama
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// The model's name
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A shell command that must succeed on the result; can be repeated
    #[arg(long, value_name = "COMMAND")]
    pub(crate) check: Vec<String>,
    /// Where the agent's commands run: in a jail on this machine, or in a Docker container
    #[arg(long, value_name = "BACKEND", value_enum, default_value_t = SandboxArg::Local)]
    pub(crate) sandbox: SandboxArg,
}

/// Where the agent's commands run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxArg {
    Local,
    Docker,
}

impl From<SandboxArg> for BackendKind {
    fn from(arg: SandboxArg) -> Self {
        match arg {
            SandboxArg::Local => Self::Local,
            SandboxArg::Docker => Self::Docker,
        }
    }
}
