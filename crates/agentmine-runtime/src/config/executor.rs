//! The sections of the sandbox and the tools.
//!
//! `command_executor` and `text_editor_mcp` keep the keys and defaults of the specification (spec 001
//! §10, spec 000 §8). Keys that the specification does not have say so in their comment.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::secret::Secret;
use super::size::ByteSize;

/// A server process: its name and its command.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpServer {
    /// The server's name. Default: that of the section.
    pub name: String,
    /// Program and arguments. Default: those of the section.
    pub command: Vec<String>,
}

impl McpServer {
    /// Fills in missing values from the defaults of the section.
    fn complete(&mut self, default: Self) {
        if self.name.is_empty() {
            self.name = default.name;
        }
        if self.command.is_empty() {
            self.command = default.command;
        }
    }
}

impl CommandExecutor {
    pub(super) fn complete(&mut self) {
        self.mcp_server.complete(Self::default().mcp_server);
    }
}

impl TextEditorMcp {
    pub(super) fn complete(&mut self) {
        self.mcp_server.complete(Self::default().mcp_server);
    }
}

/// The sandbox and the command tool (spec 001 §10.1).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CommandExecutor {
    /// Offer the command tool to the model. `COMMAND_EXECUTOR_ENABLED` overrides.
    pub enabled: bool,
    /// Accepted for compatibility. Commands run through the sandbox's own guest, so `command` starts
    /// nothing; `name` is the prefix of the tool.
    pub mcp_server: McpServer,
    /// The kind of sandbox (not in the specification).
    pub backend: BackendKind,
    /// Docker.
    pub docker: Docker,
    /// The local jail (not in the specification).
    pub local: LocalJail,
    /// Cloning.
    pub clone: CloneOptions,
    /// Commands.
    pub execution: Execution,
    /// Removal of stale sandboxes.
    pub cleanup: Cleanup,
}

impl Default for CommandExecutor {
    fn default() -> Self {
        Self {
            enabled: false,
            mcp_server: McpServer {
                name: "command-executor".into(),
                command: vec![
                    "npx".into(),
                    "@sunwood-ai-labs/command-executor-mcp-server".into(),
                ],
            },
            backend: BackendKind::default(),
            docker: Docker::default(),
            local: LocalJail::default(),
            clone: CloneOptions::default(),
            execution: Execution::default(),
            cleanup: Cleanup::default(),
        }
    }
}

/// Where a task's commands run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// A Docker container.
    #[default]
    Docker,
    /// A jail on the worker's machine.
    Local,
}

/// Docker (spec 001 §10.1).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Docker {
    /// Address of the engine: `unix://`, `tcp://`, `http://` or `ssh://`. `DOCKER_HOST` overrides.
    pub host: Option<String>,
    /// Folder with `ca.pem`, `cert.pem` and `key.pem`, with which a `tcp://` engine is reached over TLS.
    /// `DOCKER_CERT_PATH` overrides (not in the specification).
    pub cert_path: Option<PathBuf>,
    /// File that ssh reads for a `ssh://` engine in place of the user's and the system's configuration (`ssh -F`;
    /// not in the specification).
    pub ssh_config: Option<PathBuf>,
    /// Use an engine on another machine over `tcp://` without TLS: anybody who can read or change that connection
    /// controls that machine (not in the specification).
    pub accept_plain_tcp: bool,
    /// The image. `EXECUTOR_BASE_IMAGE` overrides.
    pub base_image: String,
    /// Images that a repository's `.agentmine/config.yaml` may choose instead. A `*` at the end matches
    /// any text. Default: none.
    pub allowed_images: Vec<String>,
    /// The OCI runtime: `runc`, `runsc` or `kata`. If the engine does not have it, the sandbox is refused.
    pub runtime: Option<String>,
    /// User and group in the container, as numbers other than 0.
    pub user: String,
    /// Highest number of processes. It applies to the local jail too.
    pub pids_limit: i64,
    /// Timeout of one call of the engine's API, in seconds (spec 001 §8.2).
    pub api_timeout_seconds: u64,
    /// Limits of each container, and of each local jail: there a cgroup enforces those of CPU and memory where one
    /// can be created; otherwise a warning names what enforces them.
    pub resources: Resources,
    /// Network policy.
    pub network: Network,
}

impl Default for Docker {
    fn default() -> Self {
        Self {
            host: None,
            cert_path: None,
            ssh_config: None,
            accept_plain_tcp: false,
            base_image: "coding-agent-executor:latest".into(),
            allowed_images: Vec::new(),
            runtime: None,
            user: "1000:1000".into(),
            pids_limit: 1024,
            api_timeout_seconds: 60,
            resources: Resources::default(),
            network: Network::default(),
        }
    }
}

/// Limits of a container.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Resources {
    /// CPU cores; fractions are allowed. `EXECUTOR_CPU_LIMIT` overrides.
    pub cpu_limit: f64,
    /// Memory including swap, e.g. `512m`, `4g` or `0.5g`. `EXECUTOR_MEMORY_LIMIT` overrides.
    pub memory_limit: ByteSize,
    /// Size of `/workspace`, e.g. `10g`. A worker that is root on the engine's machine reserves the space on its disk
    /// for each sandbox, as a separate file system, as long as a tenth of the disk, at least 2 GiB and at most
    /// 10 GiB, stays free; otherwise the guest watches the limit. The start says which.
    pub disk_limit: ByteSize,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            cpu_limit: 2.0,
            memory_limit: ByteSize::from_bytes(4 << 30),
            disk_limit: ByteSize::from_bytes(10 << 30),
        }
    }
}

/// The presets whose hosts the package managers in the sandbox know.
pub const PRESETS: [&str; 7] = ["npm", "pypi", "crates", "go", "maven", "rubygems", "debian"];

/// What a sandbox may reach through the gateway, its only connection.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    /// Allow access to more than the task's own repository.
    pub external_access: bool,
    /// Allow only `allowed_domains`.
    pub whitelist_mode: bool,
    /// Exact names, `*.suffix`, or a preset: `preset:npm`, `preset:pypi`, `preset:crates`,
    /// `preset:go`, `preset:maven`, `preset:rubygems`, `preset:debian`. A preset is the registry that the
    /// package manager in the sandbox is configured to use.
    pub allowed_domains: Vec<String>,
    /// Hosts of presets: of those above, instead of what the package manager uses, or of presets with other
    /// names (not in the specification).
    pub presets: BTreeMap<String, Vec<String>>,
    /// Private addresses that are allowed nevertheless, as `host:port`: an in-house package mirror, for
    /// example (not in the specification).
    pub allowed_private: Vec<String>,
    /// The HTTP proxy through which the gateway connects to public hosts: `http://[USER:PASSWORD@]HOST:PORT`, with Basic
    /// authentication. `${NAME}` stands for the environment variable `NAME`. The proxy must allow CONNECT to ports 443 and
    /// 80 (Squid's default allows only 443) and must refuse internal addresses, since it resolves names itself. Hosts of
    /// `allowed_private` are connected to directly. Default: none; `HTTPS_PROXY` is not used (not in the specification).
    pub proxy: Option<Secret>,
    /// Credentials for package registries (not in the specification). Such a host is only read: the gateway
    /// ends the sandbox's TLS, with a certificate authority of the session, lets GET and HEAD without a body
    /// pass, removes all headers but those that readers need, and adds the credentials. The sandbox never has
    /// them. In `whitelist_mode` the hosts of presets in `allowed_domains` are read in this way even without
    /// credentials; all other hosts have tunnels that the gateway does not read.
    pub registry_credentials: Vec<RegistryCredential>,
    /// What a push may contain (not in the specification).
    pub push: PushPolicy,
}

/// Credentials for one package registry: either `authorization` or `token`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RegistryCredential {
    /// The registry as `host`, which stands for its port 443, or `host:port`. They are sent to no other host, also
    /// not after a redirect; over TLS, and without it only to hosts of `allowed_private`.
    pub host: String,
    /// The value of the header `Authorization`, such as `Basic …`. `${NAME}` stands for the environment variable
    /// `NAME`.
    pub authorization: Option<Secret>,
    /// A token, sent as `Authorization: Bearer …`. `${NAME}` stands for the environment variable `NAME`.
    pub token: Option<Secret>,
    /// The paths that the credentials are for, such as `/artifactory/api/npm/team/`, with all that is below them. A
    /// request for another path is sent without them, and so is one with `..` in it. Several entries may have the same
    /// host. Default: every path.
    pub paths: Vec<String>,
}

/// What a push of the task's branch may contain.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PushPolicy {
    /// Size limit of one push, e.g. `512m`; at least `64k`.
    pub max_size: ByteSize,
    /// Paths that a push may not change, such as `.github/workflows/**`. `*` matches any characters of one name, `**`
    /// any number of folders, and `?` one character; a pattern without a slash applies in every folder, and
    /// one that matches a folder applies to all that is in it. Case is ignored. Default: none; what
    /// controls more than the program is listed first in the pull request.
    pub refuse_paths: Vec<String>,
    /// What looks like a secret and may be pushed nevertheless.
    pub allow_secrets: Vec<AllowedSecret>,
}

impl Default for PushPolicy {
    fn default() -> Self {
        Self {
            max_size: ByteSize::from_bytes(512 << 20),
            refuse_paths: Vec::new(),
            allow_secrets: Vec::new(),
        }
    }
}

/// An exception from the search for secrets in pushes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AllowedSecret {
    /// The rule, as the refusal of the push names it; `*` matches every rule.
    pub rule: String,
    /// Patterns of paths, as in `refuse_paths`, at least one; `**` matches every path.
    pub paths: Vec<String>,
}

/// The rules by which pushes are searched for secrets.
pub const SECRET_RULES: [&str; 32] = [
    "github-token",
    "gitlab-token",
    "slack-token",
    "slack-webhook",
    "aws-access-key",
    "aws-secret-key",
    "gcp-api-key",
    "gcp-oauth",
    "gcp-access-token",
    "azure-storage-key",
    "stripe-key",
    "openai-key",
    "anthropic-key",
    "huggingface-token",
    "npm-token",
    "pypi-token",
    "crates-token",
    "rubygems-token",
    "docker-token",
    "sendgrid-key",
    "digitalocean-token",
    "atlassian-token",
    "shopify-token",
    "linear-key",
    "vault-token",
    "terraform-token",
    "age-key",
    "private-key",
    "jwt",
    "url-password",
    "assigned-secret",
    "assigned-variable",
];

impl Default for Network {
    fn default() -> Self {
        Self {
            external_access: true,
            whitelist_mode: false,
            allowed_domains: Vec::new(),
            presets: BTreeMap::new(),
            allowed_private: Vec::new(),
            proxy: None,
            registry_credentials: Vec::new(),
            push: PushPolicy::default(),
        }
    }
}

/// The local jail.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LocalJail {
    /// More folders that may be read, e.g. a toolchain in a home folder. The system's folders and the
    /// common toolchains (`~/.cargo/bin`, `~/.rustup`, `~/.pyenv`, `~/.nvm`) need no entry.
    pub read_only: Vec<PathBuf>,
    /// Refuse to run if bubblewrap does not work, instead of using the weaker jail.
    pub require_namespaces: bool,
    /// Let a worker that runs as root start jails whose memory and processes no cgroup limits. They are
    /// then checked every 0.025 to 0.5 seconds. Also lets it use
    /// the jail without bubblewrap, in which commands can change the modes, times and attributes of the machine's
    /// files.
    pub accept_weaker_limits: bool,
}

/// Cloning (spec 001 §4).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CloneOptions {
    /// Clone only the newest commits.
    pub shallow: bool,
    /// How many commits a shallow clone has.
    pub depth: u32,
    /// Install the dependencies that the project's files list (`npm install`, `pip install -r`, …).
    pub auto_install_deps: bool,
}

impl Default for CloneOptions {
    fn default() -> Self {
        Self {
            shallow: true,
            depth: 1,
            auto_install_deps: true,
        }
    }
}

/// Commands.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Execution {
    /// Timeout of one command, in seconds. `EXECUTOR_TIMEOUT` overrides.
    pub timeout_seconds: u64,
    /// Bytes of stdout and stderr together that the model gets of one command: whole lines of the start
    /// and of the end, with a note of what is omitted. The specification's default of 1,048,576 would
    /// fill the context of most models with one command.
    pub max_output_size: usize,
    /// Commands that the model may not run (not a key of the specification, which lists them in §6.3). A
    /// rule is a program (`sudo`, `terraform*`), or a program and words that must be among its arguments in
    /// any order (`git push --force`). Before any other rule.
    pub denied_commands: Vec<String>,
    /// Commands that need a person's agreement, in the same form. In the fleet nobody is available to ask: they
    /// are refused, and the model is informed of the rule and of what to do instead.
    pub ask_commands: Vec<String>,
    /// Exceptions from `ask_commands`, in the same form: `terraform plan` runs although `terraform`
    /// needs agreement. The rule with more words decides, and `ask_commands` where both have as many. This is not a
    /// list of everything that may run: commands that match no rule run. It makes no exception from `denied_commands`,
    /// because words match in any order, so that a denied command could be written like the exception.
    pub allowed_commands: Vec<String>,
}

impl Default for Execution {
    fn default() -> Self {
        Self {
            timeout_seconds: 1800,
            max_output_size: 49_152,
            denied_commands: [
                "sudo",
                "su",
                "doas",
                "iptables",
                "ip6tables",
                "nft",
                "systemctl",
                "service",
                "shutdown",
                "reboot",
            ]
            .map(String::from)
            .into(),
            ask_commands: Vec::new(),
            allowed_commands: Vec::new(),
        }
    }
}

/// Removal of stale sandboxes (spec 001 §7.4).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cleanup {
    /// Hours between two runs.
    pub interval_hours: u64,
    /// Age in hours at which a sandbox that the store does not know is removed. A local jail stays as long as the process
    /// that started it, and no longer.
    pub stale_threshold_hours: u64,
}

impl Default for Cleanup {
    fn default() -> Self {
        Self {
            interval_hours: 24,
            stale_threshold_hours: 24,
        }
    }
}

/// The text editor (spec 000 §8.1).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TextEditorMcp {
    /// Offer the text editor. `TEXT_EDITOR_MCP_ENABLED` overrides.
    pub enabled: bool,
    /// The server. The default command is AgentMine's own static server, which is copied into every
    /// sandbox; the npm package of the specification is no longer available.
    pub mcp_server: McpServer,
}

impl Default for TextEditorMcp {
    fn default() -> Self {
        Self {
            enabled: true,
            mcp_server: McpServer {
                name: "text-editor".into(),
                command: vec!["mcp-server-text-editor".into()],
            },
        }
    }
}
