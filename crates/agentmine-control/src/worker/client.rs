//! The clients that a task can be given to, and the command that starts one.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientProgram {
    /// The fleet's own loop.
    AgentMine,
    /// Anthropic's Claude Code.
    ClaudeCode,
    /// OpenAI's Codex CLI.
    Codex,
    /// Google's Gemini CLI.
    GeminiCli,
}

impl ClientProgram {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::AgentMine,
        Self::ClaudeCode,
        Self::Codex,
        Self::GeminiCli,
    ];

    /// The name in arguments and answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AgentMine => "agentmine",
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::GeminiCli => "gemini-cli",
        }
    }
}

impl fmt::Display for ClientProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ClientProgram {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL
            .into_iter()
            .find(|it| it.as_str() == text)
            .ok_or(())
    }
}

/// Who approves what the client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    /// The person at its terminal.
    Asked,
    /// Nobody: the client's own flag is added, and it runs without a terminal.
    Automatic,
}

/// A line for a POSIX shell that starts an external client in `folder`. `None`: the fleet's loop is not started so.
///
/// Whatever is in the prompt or the path, the shell passes it on and interprets none of it.
#[must_use]
pub fn command_line(
    client: ClientProgram,
    approval: Approval,
    folder: &Path,
    prompt: &str,
) -> Option<String> {
    let program = match (client, approval) {
        (ClientProgram::AgentMine, _) => return None,
        (ClientProgram::ClaudeCode, Approval::Asked) => "claude",
        (ClientProgram::ClaudeCode, Approval::Automatic) => {
            "claude --dangerously-skip-permissions -p"
        }
        (ClientProgram::Codex, Approval::Asked) => "codex",
        // `exec` asks nobody. `--full-auto`, which meant the same, is an error since Codex 0.147.
        (ClientProgram::Codex, Approval::Automatic) => "codex exec --sandbox workspace-write",
        (ClientProgram::GeminiCli, Approval::Asked) => "gemini -i",
        (ClientProgram::GeminiCli, Approval::Automatic) => "gemini --yolo -p",
    };
    let folder = quoted(&folder.display().to_string());
    Some(format!("cd {folder} && {program} {}", quoted(prompt)))
}

/// One word of a shell. Control characters, which no program's argument needs, are omitted.
pub(super) fn quoted(text: &str) -> String {
    let plain: String = text
        .chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect();
    format!("'{}'", plain.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use super::*;

    const HOSTILE: &str = "it's \"$(touch ran)\" `touch ran`; touch ran # $HOME !! \\ \n-- && é 🦀";

    #[test]
    fn a_shell_passes_the_prompt_on_whatever_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("it's $(touch ran) here");
        std::fs::create_dir(&tree).unwrap();
        for program in ["claude", "codex", "gemini"] {
            let file = folder.path().join(program);
            std::fs::write(
                &file,
                "#!/bin/sh\npwd\nfor a; do :; done\nprintf %s \"$a\"\n",
            )
            .unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = format!(
            "{}:{}",
            folder.path().display(),
            std::env::var("PATH").unwrap()
        );
        for client in [
            ClientProgram::ClaudeCode,
            ClientProgram::Codex,
            ClientProgram::GeminiCli,
        ] {
            for approval in [Approval::Asked, Approval::Automatic] {
                let line = command_line(client, approval, &tree, HOSTILE).unwrap();
                for shell in ["sh", "bash"] {
                    let done = Command::new(shell)
                        .args(["-c", &line])
                        .env("PATH", &path)
                        .current_dir(folder.path())
                        .output()
                        .unwrap();
                    let seen = String::from_utf8(done.stdout).unwrap();
                    let expected = format!("{}\n{HOSTILE}", tree.canonicalize().unwrap().display());
                    assert_eq!(seen, expected, "{line}");
                }
            }
        }
        assert!(!folder.path().join("ran").exists() && !tree.join("ran").exists());
    }

    #[test]
    fn only_an_automatic_client_has_the_flag_that_approves_everything() {
        for (client, flag) in [
            (ClientProgram::ClaudeCode, "--dangerously-skip-permissions"),
            (ClientProgram::Codex, "--sandbox workspace-write"),
            (ClientProgram::GeminiCli, "--yolo"),
        ] {
            let line = |approval| command_line(client, approval, Path::new("/w"), "x").unwrap();
            assert!(line(Approval::Automatic).contains(flag));
            assert!(!line(Approval::Asked).contains(flag));
        }
    }
}
