//! The environment variables of settings, and the key that each one sets. `secret_files` has those that name a file.

use super::schema::Provider;

/// Environment variables and the keys that they set. An empty variable counts as not set.
pub(super) const ENVIRONMENT: [(&str, &str); 17] = [
    ("COMMAND_EXECUTOR_ENABLED", "command_executor.enabled"),
    ("EXECUTOR_BASE_IMAGE", "command_executor.docker.base_image"),
    (
        "EXECUTOR_CPU_LIMIT",
        "command_executor.docker.resources.cpu_limit",
    ),
    (
        "EXECUTOR_MEMORY_LIMIT",
        "command_executor.docker.resources.memory_limit",
    ),
    (
        "EXECUTOR_TIMEOUT",
        "command_executor.execution.timeout_seconds",
    ),
    ("DOCKER_HOST", "command_executor.docker.host"),
    ("DOCKER_CERT_PATH", "command_executor.docker.cert_path"),
    ("TEXT_EDITOR_MCP_ENABLED", "text_editor_mcp.enabled"),
    ("AGENTMINE_MCP_ENABLED", "mcp.enabled"),
    ("AGENTMINE_MCP_CONFIG", "mcp.config_file"),
    ("AGENTMINE_MCP_REPOSITORY_SERVERS", "mcp.repository_servers"),
    ("AGENTMINE_STORE_URL", "store.url"),
    ("AGENTMINE_QUEUE_URL", "queue.url"),
    ("AGENTMINE_MODEL_BASE_URL", "model.base_url"),
    ("AGENTMINE_MODEL_NAME", "model.name"),
    ("AGENTMINE_HTTP_LISTEN", "http.listen"),
    ("AGENTMINE_LOG", "log.level"),
];

/// Tokens and keys of trackers, their sections, and their keys in them. A token alone does not create a section: a person with a token
/// in the environment has not asked for a forge to be scanned.
pub(super) const TOKENS: [(&str, &str, &str); 6] = [
    ("GITHUB_PERSONAL_ACCESS_TOKEN", "trackers.github", "token"),
    ("GITHUB_APP_PRIVATE_KEY", "trackers.github.app", "key"),
    ("GITHUB_WEBHOOK_SECRET", "trackers.github", "webhook_secret"),
    (
        "GITLAB_WEBHOOK_SIGNING_TOKEN",
        "trackers.gitlab",
        "webhook_signing_token",
    ),
    (
        "GITLAB_WEBHOOK_SECRET_TOKEN",
        "trackers.gitlab",
        "webhook_secret_token",
    ),
    ("GITLAB_PERSONAL_ACCESS_TOKEN", "trackers.gitlab", "token"),
];

/// The key of the model API in the configuration.
pub(super) const MODEL_KEY: &str = "model.api_key";

/// The key that a variable sets; empty if it sets none.
pub(super) fn key_of(variable: &str) -> String {
    let of_settings = ENVIRONMENT.iter().find(|(name, _)| *name == variable);
    let of_tokens = TOKENS.iter().find(|(name, _, _)| *name == variable);
    let providers = [Provider::OpenAi, Provider::Anthropic];
    match (of_settings, of_tokens) {
        (Some((_, key)), _) => (*key).to_owned(),
        (None, Some((_, section, key))) => format!("{section}.{key}"),
        (None, None) if providers.iter().any(|it| it.key_variable() == variable) => {
            MODEL_KEY.to_owned()
        }
        (None, None) => String::new(),
    }
}
