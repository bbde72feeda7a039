//! The agents: how each is started for one task, and how it names its tools.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::json;
use tokio::process::Command;

use super::api::{Call, Input};
use crate::cycle::Act;
use crate::fleet::image;

/// The prompt of an agent. The model decides, so it does not matter.
const PROMPT: &str = "Do the task.";
/// A model of which codex knows that it can apply patches.
const CODEX_MODEL: &str = "gpt-5.5";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Agent {
    /// The least that a correct agent can do: `least-agent`, beside this program
    Least,
    /// `agentmine run` in the local jail
    Local,
    /// `agentmine run` with a Docker container
    Docker,
    Pi,
    ClaudeCode,
    Codex,
    Opencode,
}

/// Where a task is worked on.
pub(crate) struct Place {
    /// The home folder, which the tasks of an agent share.
    pub(crate) home: PathBuf,
    /// Files of this task alone.
    pub(crate) own: PathBuf,
    /// A git repository.
    pub(crate) project: PathBuf,
    /// Where the agents of others are installed.
    pub(crate) installed: PathBuf,
    /// The model server, without a version.
    pub(crate) model: String,
}

impl Agent {
    /// The row's name.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Least => "least a correct agent can do, no sandbox",
            Self::Local => "AgentMine, local jail",
            Self::Docker => "AgentMine, Docker",
            Self::Pi => "pi, no sandbox",
            Self::ClaudeCode => "claude-code, bare, no sandbox",
            Self::Codex => "codex, its sandbox off",
            Self::Opencode => "opencode, no sandbox",
        }
    }

    pub(crate) fn is_agentmine(self) -> bool {
        match self {
            Self::Local | Self::Docker => true,
            Self::Least | Self::Pi | Self::ClaudeCode | Self::Codex | Self::Opencode => false,
        }
    }

    /// Its program.
    pub(crate) fn program(self, installed: &Path) -> std::io::Result<PathBuf> {
        let beside = |name| Ok(std::env::current_exe()?.with_file_name(name));
        let modules = installed.join("node_modules");
        // As npm calls it.
        let machine = match std::env::consts::ARCH {
            "aarch64" => "arm64",
            _ => "x64",
        };
        match self {
            Self::Least => beside("least-agent"),
            Self::Local | Self::Docker => beside("agentmine"),
            Self::Pi => Ok(modules.join(".bin/pi")),
            Self::Codex => Ok(modules.join(".bin/codex")),
            // What the packages' own scripts would link to; they are not run.
            Self::ClaudeCode => {
                Ok(modules.join(format!("@anthropic-ai/claude-code-linux-{machine}/claude")))
            }
            Self::Opencode => Ok(modules.join(format!("opencode-linux-{machine}/bin/opencode"))),
        }
    }

    /// The process of one task.
    pub(crate) fn command(self, place: &Place, steps: usize) -> anyhow::Result<Command> {
        let mut command = Command::new(self.program(&place.installed)?);
        let path = std::env::var("PATH").unwrap_or_default();
        let node = place.installed.join("node_modules/.bin");
        command
            .current_dir(&place.project)
            .env_clear()
            .env("HOME", &place.home)
            .env("PATH", format!("{}:{path}", node.display()));
        match self {
            Self::Least => {
                command.arg(&place.model).arg(place.own.join("journal"));
            }
            Self::Local => agentmine(&mut command, place, steps, "local")?,
            Self::Docker => agentmine(&mut command, place, steps, "docker")?,
            Self::Pi => pi(&mut command, place)?,
            Self::ClaudeCode => claude_code(&mut command, place),
            Self::Codex => codex(&mut command, place),
            Self::Opencode => opencode(&mut command, place),
        }
        Ok(command)
    }

    /// The call of its own tool that does this in `project`.
    pub(crate) fn call(self, act: Act, project: &Path) -> Call {
        let at = |file: &str| project.join(file);
        let (tool, input) = match (self, act) {
            (Self::Local | Self::Docker, act) => agentmine_call(act),
            (Self::Codex, act) => return codex_call(act, project),
            (Self::ClaudeCode, Act::Command(command)) => ("Bash", json!({ "command": command })),
            (_, Act::Command(command)) => ("bash", json!({ "command": command })),
            // In its bare mode it has no other tool that makes a file.
            (Self::ClaudeCode, Act::Create { file, text }) => (
                "Edit",
                json!({ "file_path": at(&file), "old_string": "", "new_string": text }),
            ),
            (Self::ClaudeCode, Act::Edit { file, old, new }) => (
                "Edit",
                json!({ "file_path": at(&file), "old_string": old, "new_string": new }),
            ),
            (Self::ClaudeCode, Act::View { file }) => ("Read", json!({ "file_path": at(&file) })),
            (Self::Opencode, Act::Create { file, text }) => {
                ("write", json!({ "filePath": at(&file), "content": text }))
            }
            (Self::Opencode, Act::Edit { file, old, new }) => (
                "edit",
                json!({ "filePath": at(&file), "oldString": old, "newString": new }),
            ),
            (Self::Opencode, Act::View { file }) => ("read", json!({ "filePath": at(&file) })),
            (Self::Least | Self::Pi, Act::Create { file, text }) => {
                ("write", json!({ "path": at(&file), "content": text }))
            }
            (Self::Least | Self::Pi, Act::Edit { file, old, new }) => (
                "edit",
                json!({ "path": at(&file), "edits": [{ "oldText": old, "newText": new }] }),
            ),
            (Self::Least | Self::Pi, Act::View { file }) => ("read", json!({ "path": at(&file) })),
        };
        let input = Input::Arguments(input);
        Call { tool, input }
    }
}

fn agentmine(
    command: &mut Command,
    place: &Place,
    steps: usize,
    sandbox: &str,
) -> anyhow::Result<()> {
    // So that the disk has room for the file systems of several sandboxes.
    let resources = json!({ "memory_limit": "512m", "disk_limit": "1g" });
    let config = json!({
        "agent": { "max_steps": steps + 10 },
        "command_executor": { "docker": { "base_image": image(), "resources": resources } },
    });
    let (file, issue) = (place.own.join("config.yaml"), place.own.join("issue.md"));
    std::fs::write(&file, config.to_string())?;
    std::fs::write(&issue, "# A task\n\nDo it.\n")?;
    command.arg("--config").arg(file);
    command.args([
        "run",
        "--model",
        "scripted",
        "--sandbox",
        sandbox,
        "--base-url",
    ]);
    command.arg(format!("{}/v1", place.model));
    command.arg("--repo").arg(&place.project);
    command.arg("--issue").arg(issue);
    if let Some(host) = std::env::var_os("DOCKER_HOST") {
        command.env("DOCKER_HOST", host);
    }
    Ok(())
}

fn pi(command: &mut Command, place: &Place) -> anyhow::Result<()> {
    let provider = json!({
        "baseUrl": format!("{}/v1", place.model),
        "api": "openai-completions",
        "apiKey": "none",
        "models": [{ "id": "scripted" }],
    });
    let models = json!({ "providers": { "bench": provider } });
    std::fs::write(place.own.join("models.json"), models.to_string())?;
    command.env("PI_CODING_AGENT_DIR", &place.own);
    command.args([
        "--offline",
        "--provider",
        "bench",
        "--model",
        "scripted",
        "--print",
        PROMPT,
    ]);
    Ok(())
}

fn claude_code(command: &mut Command, place: &Place) {
    command
        .env("ANTHROPIC_BASE_URL", &place.model)
        .env("ANTHROPIC_API_KEY", "none")
        .env("DISABLE_AUTOUPDATER", "1")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        // It refuses to skip its questions as root elsewhere.
        .env("IS_SANDBOX", "1")
        .args([
            "--bare",
            "--dangerously-skip-permissions",
            "--model",
            "sonnet",
        ])
        .args(["--print", PROMPT]);
}

fn codex(command: &mut Command, place: &Place) {
    let provider = format!(
        "model_providers.bench={{name=\"bench\",base_url=\"{}/v1\",wire_api=\"responses\",env_key=\"BENCH_KEY\"}}",
        place.model
    );
    command
        .env("BENCH_KEY", "none")
        .args(["exec", "--dangerously-bypass-approvals-and-sandbox"])
        .args(["--skip-git-repo-check", "--model", CODEX_MODEL])
        .args(["--config", "model_provider=bench", "--config", &provider])
        .arg(PROMPT);
}

fn opencode(command: &mut Command, place: &Place) {
    let provider = json!({
        "npm": "@ai-sdk/openai-compatible",
        "options": { "baseURL": format!("{}/v1", place.model), "apiKey": "none" },
        "models": { "scripted": {} },
    });
    let config =
        json!({ "provider": { "bench": provider }, "autoupdate": false, "share": "disabled" });
    command
        .env("OPENCODE_CONFIG_CONTENT", config.to_string())
        .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
        .env("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1")
        .env("OPENCODE_DISABLE_LSP_DOWNLOAD", "1")
        .args(["run", "--model", "bench/scripted", PROMPT]);
}

fn agentmine_call(act: Act) -> (&'static str, serde_json::Value) {
    let at = |file: &str| format!("/workspace/project/{file}");
    match act {
        Act::Command(command) => (
            "command-executor_execute_command",
            json!({ "command": command }),
        ),
        Act::Create { file, text } => (
            "text_editor",
            json!({ "command": "create", "path": at(&file), "file_text": text }),
        ),
        Act::Edit { file, old, new } => (
            "text_editor",
            json!({ "command": "str_replace", "path": at(&file), "old_str": old, "new_str": new }),
        ),
        Act::View { file } => (
            "text_editor",
            json!({ "command": "view", "path": at(&file) }),
        ),
    }
}

fn codex_call(act: Act, project: &Path) -> Call {
    let patch = |body: String| Call {
        tool: "apply_patch",
        input: Input::Text(format!("*** Begin Patch\n{body}*** End Patch\n")),
    };
    let shell = |command: String| Call {
        tool: "exec_command",
        input: Input::Arguments(json!({ "cmd": command, "workdir": project })),
    };
    match act {
        Act::Command(command) => shell(command),
        Act::Create { file, text } => {
            let lines: String = text.lines().map(|line| format!("+{line}\n")).collect();
            patch(format!("*** Add File: {file}\n{lines}"))
        }
        Act::Edit { file, old, new } => {
            patch(format!("*** Update File: {file}\n@@\n-{old}\n+{new}\n"))
        }
        // Its instructions name this command for reading files.
        Act::View { file } => shell(format!("cat {file}")),
    }
}
