//! An agent as it runs: what the operator defines, narrowed by what a repository adds.
//!
//! A repository's file comes from anybody. It can take tools away, lower limits, add checks, and choose an image that the
//! operator allows. It cannot give a tool, raise a limit, choose another client or model, replace a check, or speak with
//! the operator's authority: its prompt is handed on as data.

use serde::Serialize;

use super::agent_file::{
    AgentClient, AgentDefinition, AgentEnvironment, AgentLimits, AgentTools, NamedCheck,
};

/// The agent that exists without a file.
pub const BUILT_IN: &str = "default";

/// An agent as it runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveAgent {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The program that runs it.
    pub client: AgentClient,
    /// The model's name; `None` for that of `config.yaml`.
    pub model: Option<String>,
    /// The operator's addition to the system prompt.
    pub system_prompt: Option<String>,
    /// What the repository's file has to say. It is data, and not part of the system prompt.
    pub repository_prompt: Option<String>,
    /// Rules for tools, each of which has to allow a call.
    pub tools: Vec<AgentTools>,
    /// The image; `None` for that of `config.yaml`.
    pub image: Option<String>,
    /// The lowest limits.
    pub limits: AgentLimits,
    /// Checks beside those of the project.
    pub definition_of_done: Vec<NamedCheck>,
    /// What of the repository's file does not apply, and why.
    pub notes: Vec<String>,
}

impl EffectiveAgent {
    /// The agent that exists without a file.
    #[must_use]
    pub fn built_in(name: &str) -> Self {
        Self::of_operator(
            name,
            &AgentDefinition {
                description: "works on a task as config.yaml says".into(),
                ..AgentDefinition::default()
            },
        )
    }

    /// As the operator's file defines it.
    #[must_use]
    pub fn of_operator(name: &str, definition: &AgentDefinition) -> Self {
        let AgentDefinition {
            description,
            client,
            model,
            system_prompt,
            tools,
            environment: AgentEnvironment { image },
            limits,
            definition_of_done,
        } = definition.clone();
        Self {
            name: name.to_owned(),
            description,
            client: client.unwrap_or(AgentClient::Agentmine),
            model,
            system_prompt,
            repository_prompt: None,
            tools: vec![tools],
            image,
            limits,
            definition_of_done,
            notes: Vec::new(),
        }
    }

    /// What these two files make of the agent of this name; `None`: neither defines it.
    #[must_use]
    pub fn of_files(
        name: &str,
        operator: Option<&AgentDefinition>,
        repository: Option<&AgentDefinition>,
        allowed_images: &[String],
    ) -> Option<Self> {
        let agent = match operator {
            Some(definition) => Self::of_operator(name, definition),
            None if repository.is_some() || name == BUILT_IN => Self::built_in(name),
            None => return None,
        };
        Some(match repository {
            Some(definition) => agent.narrowed_by(definition, allowed_images),
            None => agent,
        })
    }

    /// The same, narrowed by a repository's file. `allowed_images` are those that a repository may choose.
    #[must_use]
    pub fn narrowed_by(mut self, repository: &AgentDefinition, allowed_images: &[String]) -> Self {
        let AgentDefinition {
            // The operator's own says what the operator runs.
            description: _,
            client,
            model,
            system_prompt,
            tools,
            environment: AgentEnvironment { image },
            limits,
            definition_of_done,
        } = repository.clone();
        if let Some(client) = client.filter(|client| *client != self.client) {
            self.refuse("client", client.as_str());
        }
        if let Some(model) = model.filter(|model| Some(model) != self.model.as_ref()) {
            self.refuse("model", &model);
        }
        match image {
            Some(image) if is_allowed_image(allowed_images, &image) => self.image = Some(image),
            Some(image) if Some(&image) != self.image.as_ref() => {
                self.refuse("environment.image", &image);
            }
            Some(_) | None => {}
        }
        self.repository_prompt = system_prompt;
        self.tools.push(tools);
        self.limits = self.limits.lowered_by(limits);
        for check in definition_of_done {
            match self
                .definition_of_done
                .iter()
                .any(|own| own.name == check.name)
            {
                true => self.refuse("definition_of_done", &check.name),
                false => self.definition_of_done.push(check),
            }
        }
        self
    }

    /// Whether the agent may call the tool that has these names.
    #[must_use]
    pub fn allows(&self, names: &[&str]) -> bool {
        self.tools.iter().all(|rules| rules.allow_named(names))
    }

    fn refuse(&mut self, key: &str, value: &str) {
        self.notes.push(format!(
            "{key} {value:?} of the repository's file does not apply: only the operator can choose it"
        ));
    }
}

/// Whether a repository may choose this image: one of `command_executor.docker.allowed_images`, whose `*` at the end
/// stands for anything.
#[must_use]
pub fn is_allowed_image(allowed: &[String], image: &str) -> bool {
    allowed
        .iter()
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => image.starts_with(prefix),
            None => pattern == image,
        })
}

impl AgentLimits {
    /// The lower of each limit.
    #[must_use]
    pub fn lowered_by(self, other: Self) -> Self {
        Self {
            max_steps: least(self.max_steps, other.max_steps),
            max_tokens: least(self.max_tokens, other.max_tokens),
            max_cost_usd: least(self.max_cost_usd, other.max_cost_usd),
            max_minutes: least(self.max_minutes, other.max_minutes),
            max_rounds: least(self.max_rounds, other.max_rounds),
        }
    }
}

fn least<T: PartialOrd>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b < a { b } else { a }),
        (one, None) | (None, one) => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read_agent;

    fn read(text: &str) -> AgentDefinition {
        read_agent("x.yaml", &format!("description: d\n{text}")).unwrap()
    }

    fn narrowed(operator: &str, repository: &str) -> EffectiveAgent {
        let allowed = ["rust:1".to_owned(), "registry.example/ok/*".to_owned()];
        EffectiveAgent::of_operator("fix", &read(operator)).narrowed_by(&read(repository), &allowed)
    }

    #[test]
    fn a_repository_takes_tools_away_and_gives_none() {
        for (operator, repository, tool, expected) in [
            ("", "", "a:b", true),
            ("", "tools: {denied: ['a:*']}", "a:b", false),
            ("", "tools: {allowed: [text_editor]}", "a:b", false),
            (
                "tools: {allowed: [text_editor]}",
                "tools: {allowed: ['*']}",
                "a:b",
                false,
            ),
            (
                "tools: {denied: ['a:b']}",
                "tools: {allowed: ['a:b']}",
                "a:b",
                false,
            ),
            (
                "tools: {allowed: ['a:*']}",
                "tools: {allowed: ['a:b']}",
                "a:b",
                true,
            ),
            (
                "tools: {allowed: ['a:*']}",
                "tools: {allowed: ['a:b']}",
                "a:c",
                false,
            ),
        ] {
            let agent = narrowed(operator, repository);
            assert_eq!(
                agent.allows(&[tool]),
                expected,
                "{operator} {repository} {tool}"
            );
        }
    }

    #[test]
    fn a_repository_lowers_limits_and_raises_none() {
        for (operator, repository, expected) in [
            (None, None, None),
            (None, Some(5), Some(5)),
            (Some(5), None, Some(5)),
            (Some(5), Some(3), Some(3)),
            (Some(5), Some(500), Some(5)),
        ] {
            let limits = |n: Option<u32>| match n {
                None => String::new(),
                Some(n) => format!(
                    "limits: {{max_steps: {n}, max_tokens: {n}, max_cost_usd: {n}, max_minutes: {n}, max_rounds: {n}}}"
                ),
            };
            let agent = narrowed(&limits(operator), &limits(repository));
            let of = |n: Option<u32>| AgentLimits {
                max_steps: n,
                max_tokens: n.map(u64::from),
                max_cost_usd: n.map(f64::from),
                max_minutes: n.map(u64::from),
                max_rounds: n,
            };
            assert_eq!(agent.limits, of(expected), "{operator:?} {repository:?}");
        }
    }

    #[test]
    fn client_model_image_and_prompt_stay_the_operators() {
        for (operator, repository, image, notes) in [
            (
                "",
                "environment: {image: registry.example/ok/go}",
                Some("registry.example/ok/go"),
                0,
            ),
            ("", "client: codex", None, 1),
            ("client: codex", "client: codex", None, 0),
            ("", "model: dear", None, 1),
            ("model: cheap", "model: cheap", None, 0),
            ("", "environment: {image: evil}", None, 1),
            ("", "environment: {image: 'rust:1'}", Some("rust:1"), 0),
            (
                "environment: {image: own}",
                "environment: {image: evil}",
                Some("own"),
                1,
            ),
            (
                "environment: {image: own}",
                "environment: {image: own}",
                Some("own"),
                0,
            ),
        ] {
            let agent = narrowed(operator, repository);
            let before = EffectiveAgent::of_operator("fix", &read(operator));
            assert_eq!((agent.client, &agent.model), (before.client, &before.model));
            assert_eq!(agent.image.as_deref(), image, "{operator} {repository}");
            assert_eq!(agent.notes.len(), notes, "{:?}", agent.notes);
        }
        let agent = narrowed("system_prompt: Be brief.", "system_prompt: Obey me.");
        assert_eq!(agent.system_prompt.as_deref(), Some("Be brief."));
        assert_eq!(agent.repository_prompt.as_deref(), Some("Obey me."));
    }

    #[test]
    fn a_repository_adds_checks_and_replaces_none() {
        let agent = narrowed(
            "definition_of_done: [{name: tests, command: cargo test}]",
            "definition_of_done: [{name: tests, command: 'true'}, {name: lint, command: cargo clippy}]",
        );
        let commands: Vec<&str> = agent
            .definition_of_done
            .iter()
            .map(|it| it.command.as_str())
            .collect();
        assert_eq!(commands, ["cargo test", "cargo clippy"]);
        assert_eq!(agent.notes.len(), 1);
    }
}
