//! Selects the servers of a session, and which of their tools are offered.
//!
//! [`agentmine_mcp::config::load`] merges the operator's and the repository's files. This module then
//! applies the rules of the fleet: built-in names are reserved, forge servers are not offered beside
//! the text editor (spec 000 §5), and some capabilities depend on where a server runs and who
//! configured it.

use std::collections::BTreeSet;

use agentmine_mcp::config::{Loaded, Owner, ServerConfig, ServerPlace, Transport};
use agentmine_runtime::config::Mcp;

use crate::record::redact::Redactor;
use crate::record::secret::secrets;

/// Packages and programs of well-known GitHub and GitLab MCP servers.
const FORGE_PROGRAMS: [&str; 6] = [
    "server-github",
    "server-gitlab",
    "github-mcp-server",
    "gitlab-mcp-server",
    "mcp-gitlab",
    "mcp-github",
];
/// Hosts of the MCP servers that the forges themselves run.
const FORGE_HOSTS: [&str; 2] = ["api.githubcopilot.com", "gitlab.com"];

/// The servers that a session starts, and notes on those that it does not.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) servers: Vec<ServerConfig>,
    /// Forge servers, which are not offered while the text editor is on.
    pub(super) withheld: Vec<ServerConfig>,
    pub(super) notes: Vec<String>,
}

/// Applies the fleet's rules. `reserved` are the names of the built-in servers.
pub(super) fn choose(loaded: Loaded, reserved: &[&str], redactor: &Redactor) -> Chosen {
    let mut chosen = Chosen::default();
    for fault in &loaded.faults {
        chosen.notes.push(format!("MCP configuration: {fault}"));
    }
    for mut server in loaded.servers.into_values().filter(|s| s.enabled) {
        let is_named = |name: &&str| name.eq_ignore_ascii_case(&server.name);
        if reserved.iter().any(is_named) {
            chosen.notes.push(format!(
                "the MCP server {:?} is ignored: the name is reserved for a built-in server",
                server.name
            ));
            continue;
        }
        if server.origin.owner == Owner::Operator && !redactor.covers(&secrets(&server.transport)) {
            chosen.notes.push(format!(
                "the MCP server {:?} is ignored: its entry has changed since the session began",
                server.name
            ));
            continue;
        }
        if server.origin.owner == Owner::Repository && server.capabilities.sampling {
            server.capabilities.sampling = false;
            chosen.notes.push(format!(
                "the MCP server {:?} may not use sampling: it is repository-configured",
                server.name
            ));
        }
        if in_sandbox(&server) && server.capabilities.sampling {
            // Files of the repository can influence what runs there.
            server.capabilities.sampling = false;
            chosen.notes.push(format!(
                "the MCP server {:?} may not use sampling: it runs in the sandbox",
                server.name
            ));
        }
        // The worker and the sandbox share no files: the workspace does not exist on the worker.
        server.capabilities.roots &= in_sandbox(&server);
        if is_forge_server(&server) {
            chosen.withheld.push(server);
        } else {
            chosen.servers.push(server);
        }
    }
    chosen
}

pub(super) fn in_sandbox(server: &ServerConfig) -> bool {
    match &server.transport {
        Transport::Stdio { place, .. } => *place == ServerPlace::Sandbox,
        Transport::Http { .. } => false,
    }
}

/// Recognizes a forge server by its name, by a word of its command, or by its host (spec 000 §5.1). A
/// server wrapped in a script with another name is not recognized.
fn is_forge_server(server: &ServerConfig) -> bool {
    let is_named = |name: &&str| name.eq_ignore_ascii_case(&server.name);
    if ["github", "gitlab"].iter().any(is_named) {
        return true;
    }
    match &server.transport {
        Transport::Stdio { command, .. } => command.iter().any(|word| {
            let name = word.rsplit('/').next().unwrap_or(word);
            // `npx @scope/name@1.2.3`, `docker run ghcr.io/github/github-mcp-server:v1`
            let name = name.split(['@', ':', '=']).next().unwrap_or(name);
            FORGE_PROGRAMS.contains(&name)
        }),
        Transport::Http { url, .. } => url
            .host_str()
            .is_some_and(|host| FORGE_HOSTS.contains(&host)),
    }
}

/// Which tools of configured servers are offered.
#[derive(Debug, Clone)]
pub(super) struct ToolRules {
    allowed: Vec<String>,
    denied: Vec<String>,
}

impl ToolRules {
    pub(super) fn of(config: &Mcp) -> Self {
        Self {
            allowed: config.allowed_tools.clone(),
            denied: config.denied_tools.clone(),
        }
    }

    /// An allow pattern that names a server applies only to operator-configured servers: a repository
    /// cannot gain access by using the same name. Deny patterns apply to all servers.
    pub(super) fn allow(&self, owner: Owner, server: &str, tool: &str) -> bool {
        let name = format!("{server}:{tool}");
        let mut allowed = self.allowed.iter().filter(|pattern| match owner {
            Owner::Operator => true,
            Owner::Repository => names_no_server(pattern),
        });
        allowed.any(|p| matches(p, &name)) && !self.denied.iter().any(|p| matches(p, &name))
    }
}

/// Whether a pattern applies to any server, such as `*` or `*:read_*`.
fn names_no_server(pattern: &str) -> bool {
    pattern
        .split_once(':')
        .map_or(pattern.starts_with('*'), |(server, _)| server == "*")
}

/// Whether `text` matches `pattern`, in which `*` matches any text. Takes linear time in both, since
/// the tool's name comes from the server.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Names for a note, sorted: `a, b, c`.
pub(super) fn listed(servers: &[ServerConfig]) -> String {
    let names: BTreeSet<&str> = servers.iter().map(|s| s.name.as_str()).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use agentmine_mcp::config::{RepositoryFile, load};

    use super::*;

    fn chosen(operator: &str, repository: Option<&str>) -> Chosen {
        let folder = std::env::temp_dir().join(format!("agentmine-{}", uuid::Uuid::new_v4()));
        std::fs::write(&folder, operator).unwrap();
        let repository = repository.map(|text| RepositoryFile {
            shown: Path::new(".agentmine/mcp_config.json").into(),
            text: text.into(),
        });
        let loaded = load(Some(&folder), repository.as_ref(), &|_| None);
        std::fs::remove_file(&folder).unwrap();
        let known = loaded.servers.values();
        let redactor = Redactor::new(known.flat_map(|server| secrets(&server.transport)));
        choose(loaded, &["text-editor", "command-executor"], &redactor)
    }

    fn names(servers: &[ServerConfig]) -> Vec<&str> {
        servers.iter().map(|s| s.name.as_str()).collect()
    }

    #[test]
    fn forge_servers_are_recognized_by_name_command_and_host() {
        let chosen = chosen(
            r#"{"mcpServers":{
                "github":{"command":["x"]},
                "GitLab":{"command":["x"]},
                "gh":{"command":["npx","-y","@modelcontextprotocol/server-github@2025.4.8"]},
                "hub":{"command":["docker","run","-i","ghcr.io/github/github-mcp-server:v1"]},
                "web":{"url":"https://api.githubcopilot.com/mcp/"},
                "lab":{"command":["npx","@zereight/mcp-gitlab"]},
                "docs":{"command":["npx","github-docs-search"]}
            }}"#,
            None,
        );
        assert_eq!(names(&chosen.servers), ["docs"]);
        assert_eq!(
            names(&chosen.withheld),
            ["GitLab", "gh", "github", "hub", "lab", "web"]
        );
    }

    #[test]
    fn a_repository_configured_server_gets_neither_operator_secrets_nor_sampling() {
        let operator = r#"{"mcpServers":{"db":{"command":["psql-mcp"],
            "env":{"DB_PASSWORD":"operators-own","LOG":"verbose-enough"}}}}"#;
        let repository = r#"{"mcpServers":{"db":{"command":["sh","-c","env"],
            "capabilities":{"sampling":true,"roots":true}}}}"#;
        let chosen = chosen(operator, Some(repository));
        let [db] = chosen.servers.as_slice() else {
            panic!("{chosen:?}");
        };
        assert!(in_sandbox(db));
        assert!(!db.capabilities.sampling && db.capabilities.roots);
        let Transport::Stdio { env, .. } = &db.transport else {
            panic!("{db:?}");
        };
        assert!(env.is_empty());
    }

    #[test]
    fn an_entry_whose_secret_would_not_be_redacted_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mcp_config.json");
        let text = r#"{"mcpServers":{"a":{"command":["x"],"env":{"API_KEY":"a-new-secret-key"}}}}"#;
        std::fs::write(&file, text).unwrap();
        let loaded = load(Some(&file), None, &|_| None);
        let chosen = choose(loaded, &[], &Redactor::default());
        assert!(chosen.servers.is_empty());
        assert!(
            chosen.notes[0].contains("has changed"),
            "{:?}",
            chosen.notes
        );
    }

    #[test]
    fn no_server_in_the_sandbox_may_use_sampling() {
        let chosen = chosen(
            r#"{"mcpServers":{
                "in":{"command":["x"],"sandbox":true,"capabilities":{"sampling":true}},
                "out":{"command":["x"],"capabilities":{"sampling":true}}
            }}"#,
            None,
        );
        let sampling: Vec<bool> = chosen
            .servers
            .iter()
            .map(|s| s.capabilities.sampling)
            .collect();
        assert_eq!(sampling, [false, true]);
    }

    #[test]
    fn built_in_names_are_reserved() {
        for name in ["text-editor", "Text-Editor"] {
            let chosen = chosen(
                &format!(r#"{{"mcpServers":{{"{name}":{{"command":["x"]}}}}}}"#),
                None,
            );
            assert!(chosen.servers.is_empty());
            assert!(chosen.notes[0].contains(name), "{:?}", chosen.notes);
        }
    }

    #[test]
    fn roots_are_only_shared_in_the_sandbox() {
        let chosen = chosen(
            r#"{"mcpServers":{
                "in":{"command":["x"],"sandbox":true,"capabilities":{"roots":true}},
                "out":{"command":["x"],"capabilities":{"roots":true}}
            }}"#,
            None,
        );
        let roots: Vec<bool> = chosen
            .servers
            .iter()
            .map(|s| s.capabilities.roots)
            .collect();
        assert_eq!(roots, [true, false]);
    }

    #[test]
    fn tools_are_allowed_and_denied_by_pattern() {
        let rules = |allowed: &[&str], denied: &[&str]| ToolRules {
            allowed: allowed.iter().map(|p| (*p).to_owned()).collect(),
            denied: denied.iter().map(|p| (*p).to_owned()).collect(),
        };
        let allow = |rules: &ToolRules, server: &str, tool: &str| {
            rules.allow(Owner::Operator, server, tool)
        };
        let all = rules(&["*"], &["db:drop_*", "*:*delete*"]);
        assert!(allow(&all, "db", "select"));
        assert!(!allow(&all, "db", "drop_table"));
        assert!(!allow(&all, "docs", "undelete_page"));
        let some = rules(&["docs:*", "db:select"], &[]);
        assert!(allow(&some, "docs", "search") && allow(&some, "db", "select"));
        assert!(!allow(&some, "db", "selects") && !allow(&some, "mydocs", "search"));
        assert!(!allow(&rules(&[], &[]), "a", "b"));
        assert!(matches("a*b*c", "aXbYc") && !matches("a*b*c", "acb"));
        assert!(matches("ab*ab", "abab") && !matches("ab*ab", "ab"));
    }

    #[test]
    fn a_repository_cannot_use_a_name_that_the_operator_allowed() {
        let rules = ToolRules {
            allowed: vec!["db:*".into(), "*:read_*".into()],
            denied: vec!["db:read_all".into()],
        };
        assert!(rules.allow(Owner::Operator, "db", "drop"));
        assert!(!rules.allow(Owner::Repository, "db", "drop"));
        assert!(rules.allow(Owner::Repository, "db", "read_one"));
        assert!(!rules.allow(Owner::Repository, "db", "read_all"));
    }
}
