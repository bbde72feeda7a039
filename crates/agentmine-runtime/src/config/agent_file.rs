//! The definition of an agent: a YAML file in the operator's folder of agents, or in a repository's `.agentmine/agents/`.
//!
//! Both have the same keys; what a repository's file may do is decided by
//! [`EffectiveAgent::narrowed_by`](super::EffectiveAgent::narrowed_by) alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::document::{Document, document};
use super::fault::{ConfigErrors, SettingFault};

/// Largest system prompt in bytes.
const MAX_PROMPT: usize = 16 * 1024;
/// Characters of a description, and of a command.
const MAX_LINE: usize = 2000;
/// Entries of a list of tools.
const MAX_TOOLS: usize = 100;
/// Checks of a definition of done.
const MAX_CHECKS: usize = 20;
/// Longest time limit of a check, in seconds.
const MAX_TIMEOUT: u64 = 24 * 3600;

/// An agent, as its file defines it. What is omitted is as in `config.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentDefinition {
    /// What it is for, on one line.
    pub description: String,
    /// The program that runs it.
    #[serde(default)]
    pub client: Option<AgentClient>,
    /// The model's name.
    #[serde(default)]
    pub model: Option<String>,
    /// Added to the system prompt.
    #[serde(default)]
    pub system_prompt: Option<String>,
    /// Which tools it may call.
    #[serde(default)]
    pub tools: AgentTools,
    /// Where its commands run.
    #[serde(default)]
    pub environment: AgentEnvironment,
    /// When it stops.
    #[serde(default)]
    pub limits: AgentLimits,
    /// Checks that its work has to pass, beside those of the project.
    #[serde(default)]
    pub definition_of_done: Vec<NamedCheck>,
}

/// The program that runs an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AgentClient {
    /// The fleet's own loop.
    Agentmine,
    /// Claude Code.
    ClaudeCode,
    /// Codex.
    Codex,
    /// Gemini CLI.
    GeminiCli,
}

impl AgentClient {
    /// The name in files and answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agentmine => "agentmine",
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::GeminiCli => "gemini-cli",
        }
    }
}

/// Which tools an agent may call: by their names (`text_editor`, `server:tool`), all of a server (`server:*`), or `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentTools {
    /// Only these. Default: all.
    pub allowed: Option<Vec<String>>,
    /// Not these, even if they are allowed.
    pub denied: Vec<String>,
}

impl AgentTools {
    /// Whether the tool of this name may be called.
    #[must_use]
    pub fn allow(&self, tool: &str) -> bool {
        self.allow_named(&[tool])
    }

    /// The same for a tool that has several names: each of them can allow or deny it.
    #[must_use]
    pub fn allow_named(&self, names: &[&str]) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => names.iter().any(|name| name.starts_with(start)),
            None => names.contains(&pattern.as_str()),
        };
        let allowed = self.allowed.as_ref();
        allowed.is_none_or(|allowed| allowed.iter().any(matches))
            && !self.denied.iter().any(matches)
    }
}

/// Where an agent's commands run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentEnvironment {
    /// The image.
    pub image: Option<String>,
}

/// When an agent stops. The lower of these and those of `config.yaml` apply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentLimits {
    /// Limit on the model calls of one task.
    pub max_steps: Option<u32>,
    /// Limit on the tokens of one task, input and output.
    pub max_tokens: Option<u64>,
    /// Limit on the cost of one task in US dollars.
    pub max_cost_usd: Option<f64>,
    /// Limit on the wall time of one task, in minutes.
    pub max_minutes: Option<u64>,
    /// Limit on the rounds of work and verification.
    pub max_rounds: Option<u32>,
}

/// A check of a definition of done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedCheck {
    /// Its name, unique within the agent.
    pub name: String,
    /// A shell command that must succeed on the result.
    pub command: String,
    /// Time limit in seconds, if it is below `agent.check_timeout_seconds` of `config.yaml`.
    #[serde(default)]
    pub timeout_seconds: Option<u64>,
}

/// Whether an agent can have this name: `[a-z0-9][a-z0-9-]{0,63}`.
#[must_use]
pub fn is_agent_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('-')
}

/// Reads the text of a file; `name` is the file in the faults.
///
/// # Errors
/// All faults, each with line, column and key.
pub fn read_agent(name: &str, text: &str) -> Result<AgentDefinition, ConfigErrors> {
    let document = document::<AgentDefinition>(name, text).map_err(ConfigErrors::new)?;
    let mut faults = Faults {
        document: &document,
        found: Vec::new(),
    };
    faults.check();
    match faults.found.is_empty() {
        true => Ok(document.value),
        false => Err(ConfigErrors::new(faults.found)),
    }
}

struct Faults<'a> {
    document: &'a Document<AgentDefinition>,
    found: Vec<SettingFault>,
}

impl Faults<'_> {
    fn check(&mut self) {
        let AgentDefinition {
            description,
            client: _,
            model,
            system_prompt,
            tools: AgentTools { allowed, denied },
            environment: AgentEnvironment { image },
            limits,
            definition_of_done,
        } = &self.document.value;
        self.line("description", description, MAX_LINE);
        for (key, word) in [("model", model), ("environment.image", image)] {
            if let Some(word) = word {
                self.word(key, word);
            }
        }
        if let Some(text) = system_prompt
            && text.len() > MAX_PROMPT
        {
            let seen = format!("{} bytes", text.len());
            self.push("system_prompt", seen, format!("at most {MAX_PROMPT} bytes"));
        }
        let none = Vec::new();
        for (key, list) in [
            ("tools.allowed", allowed.as_ref().unwrap_or(&none)),
            ("tools.denied", denied),
        ] {
            self.tools(key, list);
        }
        self.limits(limits);
        self.done(definition_of_done);
    }

    fn push(&mut self, key: &str, seen: impl Into<String>, expected: impl Into<String>) {
        let place = self.document.tree.place_of(key);
        let fault = SettingFault::new(&place, key, seen, expected);
        self.found.push(fault);
    }

    fn line(&mut self, key: &str, text: &str, max: usize) {
        let length = text.chars().count();
        let seen = match text.trim().is_empty() {
            true => "an empty text".to_owned(),
            false if length > max => format!("{length} characters"),
            false if text.trim_end().chars().any(char::is_control) => "more than one line".into(),
            false => return,
        };
        self.push(key, seen, format!("one line of 1 to {max} characters"));
    }

    fn word(&mut self, key: &str, text: &str) {
        let is_word = (1..=300).contains(&text.len())
            && !text.chars().any(|c| c.is_whitespace() || c.is_control());
        if !is_word {
            self.push(
                key,
                "a text with spaces, or an empty or long one",
                "one word",
            );
        }
    }

    fn tools(&mut self, key: &str, list: &[String]) {
        if list.len() > MAX_TOOLS {
            let seen = format!("{} entries", list.len());
            self.push(key, seen, format!("at most {MAX_TOOLS}"));
        }
        for (at, tool) in list.iter().enumerate().take(MAX_TOOLS) {
            let name = tool.strip_suffix('*').unwrap_or(tool);
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
            if tool.is_empty() || tool.len() > 200 || !name.chars().all(plain) {
                self.push(
                    &format!("{key}.{at}"),
                    format!("`{}`", super::check::cut(tool)),
                    "the name of a tool, as text_editor, server:tool, server:* or *",
                );
            }
        }
    }

    fn limits(&mut self, limits: &AgentLimits) {
        let AgentLimits {
            max_steps,
            max_tokens,
            max_cost_usd,
            max_minutes,
            max_rounds,
        } = *limits;
        for (key, is_zero) in [
            ("limits.max_steps", max_steps == Some(0)),
            ("limits.max_tokens", max_tokens == Some(0)),
            ("limits.max_minutes", max_minutes == Some(0)),
            ("limits.max_rounds", max_rounds == Some(0)),
        ] {
            if is_zero {
                self.push(key, "the number 0", "a number of at least 1");
            }
        }
        if max_cost_usd.is_some_and(|cost| cost <= 0.0) {
            self.push(
                "limits.max_cost_usd",
                "a number that is not above 0",
                "a number above 0",
            );
        }
    }

    fn done(&mut self, checks: &[NamedCheck]) {
        if checks.len() > MAX_CHECKS {
            let seen = format!("{} checks", checks.len());
            self.push("definition_of_done", seen, format!("at most {MAX_CHECKS}"));
        }
        for (at, check) in checks.iter().enumerate().take(MAX_CHECKS) {
            let key = |field: &str| format!("definition_of_done.{at}.{field}");
            if !is_agent_name(&check.name) {
                let seen = format!("`{}`", super::check::cut(&check.name));
                self.push(&key("name"), seen, "1 to 64 of a-z, 0-9 and -");
            }
            if checks[..at].iter().any(|other| other.name == check.name) {
                let seen = format!("a second check `{}`", super::check::cut(&check.name));
                self.push(&key("name"), seen, "a distinct name for each check");
            }
            self.line(&key("command"), &check.command, MAX_LINE);
            if let Some(limit) = check.timeout_seconds
                && !(1..=MAX_TIMEOUT).contains(&limit)
            {
                let expected = format!("a number from 1 to {MAX_TIMEOUT}");
                self.push(
                    &key("timeout_seconds"),
                    format!("the number {limit}"),
                    expected,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_of_a_file_has_line_column_and_key() {
        let text = "\
description: \"\"
modle: gpt-5
client: claude
tools:
  allowed: [text_editor, 'a b']
limits: {max_steps: 0, max_minutes: many}
definition_of_done:
  - {name: tests, command: cargo test}
  - {name: tests, command: ''}
";
        let error = read_agent("fix.yaml", text).unwrap_err().to_string();
        insta::assert_snapshot!(error, @r"
        the configuration has 3 faults
        fix.yaml:2:1: unknown key `modle`, expected one of `client`, `definition_of_done`, `description`, `environment`, `limits`, `model`, `system_prompt`, `tools`
          hint: did you mean `model`?
        fix.yaml:3:9: client: `claude`, expected `agentmine` or `claude-code` or `codex` or `gemini-cli`
        fix.yaml:6:37: limits.max_minutes: `many`, expected a whole number of at least 0
        ");
        let text = text
            .replace("modle: gpt-5\n", "")
            .replace("claude\n", "codex\n")
            .replace("many", "5");
        let error = read_agent("fix.yaml", &text).unwrap_err().to_string();
        insta::assert_snapshot!(error, @r"
        the configuration has 5 faults
        fix.yaml:1:14: description: an empty text, expected one line of 1 to 2000 characters
        fix.yaml:4:26: tools.allowed.1: `a b`, expected the name of a tool, as text_editor, server:tool, server:* or *
        fix.yaml:5:21: limits.max_steps: the number 0, expected a number of at least 1
        fix.yaml:8:12: definition_of_done.1.name: a second check `tests`, expected a distinct name for each check
        fix.yaml:8:28: definition_of_done.1.command: an empty text, expected one line of 1 to 2000 characters
        ");
    }

    #[test]
    fn a_file_without_a_description_is_incomplete() {
        let error = read_agent("x.yaml", "model: gpt-5\n")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("x.yaml:1:1: an incomplete section, expected the key `description`"),
            "{error}"
        );
    }

    #[test]
    fn a_denied_tool_stays_denied_when_it_is_allowed_too() {
        let tools = |allowed: Option<&[&str]>, denied: &[&str]| AgentTools {
            allowed: allowed.map(|list| list.iter().map(|it| (*it).to_owned()).collect()),
            denied: denied.iter().map(|it| (*it).to_owned()).collect(),
        };
        for (rules, tool, expected) in [
            (tools(None, &[]), "text_editor", true),
            (tools(Some(&[]), &[]), "text_editor", false),
            (tools(Some(&["docs:*"]), &[]), "docs:search", true),
            (tools(Some(&["docs:*"]), &[]), "docs2:search", false),
            (tools(Some(&["docs:search"]), &[]), "docs:search2", false),
            (tools(Some(&["*"]), &["docs:*"]), "docs:search", false),
            (tools(Some(&["*"]), &["docs:*"]), "text_editor", true),
        ] {
            assert_eq!(rules.allow(tool), expected, "{rules:?} {tool}");
        }
    }
}
