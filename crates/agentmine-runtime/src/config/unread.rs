//! Environment variables that begin with AgentMine's name and that nothing reads. A mistyped name has no effect, which nobody
//! would notice: another database is used, or another model.

use std::io::Read as _;
use std::path::Path;

use super::check::nearest;
use super::environment::ENVIRONMENT;
use super::load::load_despite_faults;
use super::secret_files::FILES;
use super::sources::Sources;

const PREFIX: &str = "AGENTMINE_";
/// How much of a file is looked at, in bytes.
const MAX_FILE: u64 = 1024 * 1024;
/// Those of the tests, which they read themselves.
const OF_TESTS: &str = "AGENTMINE_TEST_";
/// Those that are no settings: the key of the MCP server, marks of processes that AgentMine starts, and the failpoints.
const NO_SETTINGS: [&str; 9] = [
    "AGENTMINE_MCP_TOKEN",
    "AGENTMINE_MCP_RUN",
    "AGENTMINE_COMMAND",
    "AGENTMINE_SANDBOX",
    "AGENTMINE_WORKSPACE",
    "AGENTMINE_FAILPOINTS",
    "AGENTMINE_FAILPOINTS_DIR",
    "AGENTMINE_GUARDS_OFF",
    "AGENTMINE_PANIC_MESSAGE",
];

/// Warns of each variable that nothing reads. To be called once, at start.
pub fn warn_of_unread_variables(sources: &Sources) {
    for unread in unread_variables(sources) {
        tracing::warn!("{unread}");
    }
}

/// The variables that nothing reads, one sentence each with its hint, without their values.
#[must_use]
pub fn unread_variables(sources: &Sources) -> Vec<String> {
    let of_settings = ENVIRONMENT.iter().map(|(name, _)| *name);
    let of_files = FILES.iter().map(|(name, _)| *name);
    let settings: Vec<&str> = of_settings.chain(of_files).collect();
    let is_unknown = |name: &&str| {
        name.starts_with(PREFIX)
            && !name.starts_with(OF_TESTS)
            && !settings.contains(name)
            && !NO_SETTINGS.contains(name)
            && !is_of_service(name, sources)
    };
    let mut unread: Vec<&str> = sources.variables().filter(is_unknown).collect();
    if unread.is_empty() {
        return Vec::new();
    }
    let texts = texts(sources);
    let is_named = |name: &str| {
        let name = name.strip_suffix("_FILE").unwrap_or(name);
        texts.iter().any(|text| text.contains(name))
    };
    unread.retain(|name| !is_named(name));
    let known: Vec<&str> = settings
        .iter()
        .filter_map(|name| name.strip_prefix(PREFIX))
        .collect();
    unread.iter().map(|name| sentence(name, &known)).collect()
}

fn sentence(name: &str, known: &[&str]) -> String {
    let rest = name.strip_prefix(PREFIX).unwrap_or(name);
    let begins = known.iter().filter(|known| rest.starts_with(**known));
    let near = nearest(rest, known).or_else(|| begins.max_by_key(|known| known.len()).copied());
    let hint = match near {
        Some(near) => format!("did you mean {PREFIX}{near}?"),
        None => "only some settings have a variable; set it in config.yaml".to_owned(),
    };
    format!(
        "the environment variable {name} is set, and AgentMine reads no variable of this name. hint: {hint}"
    )
}

/// The files that may name variables (`${NAME}`).
fn texts(sources: &Sources) -> Vec<String> {
    let config = load_despite_faults(sources).map_or_else(|faulty| faulty.rest.map(|it| *it), Some);
    let mcp = config.and_then(|it| it.mcp.config_file);
    let mcp = mcp.and_then(|file| text_of(&file));
    sources.file_text().into_iter().chain(mcp).collect()
}

/// The text of a file, if it is one and not a device or a pipe, up to a limit.
fn text_of(file: &Path) -> Option<String> {
    file.is_file().then_some(())?;
    let mut text = String::new();
    let file = std::fs::File::open(file).ok()?;
    file.take(MAX_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Kubernetes gives each pod variables about the services of its namespace, such as one that is called `agentmine-producer`.
fn is_of_service(name: &str, sources: &Sources) -> bool {
    let services = sources
        .variables()
        .filter_map(|it| it.strip_suffix("_SERVICE_HOST"));
    let mut rests = services.filter_map(|service| name.strip_prefix(service));
    rests.any(|rest| rest.starts_with("_SERVICE_") || rest.starts_with("_PORT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unread(text: &str, names: &[&str]) -> Vec<String> {
        let env = names.iter().map(|name| (*name, "hunter2"));
        unread_variables(&Sources::from_text("config.yaml", text).with_env(env))
    }

    #[test]
    fn a_mistyped_variable_is_reported_with_the_nearest_name_and_without_its_value() {
        for (name, near) in [
            ("AGENTMINE_MODEL_BASEURL", "AGENTMINE_MODEL_BASE_URL"),
            ("AGENTMINE_STOR_URL", "AGENTMINE_STORE_URL"),
            ("AGENTMINE_QUEUE_URL_FIL", "AGENTMINE_QUEUE_URL_FILE"),
            ("AGENTMINE_LOG_LEVEL", "AGENTMINE_LOG"),
        ] {
            let found = unread("", &[name]);
            assert_eq!(found.len(), 1, "{found:?}");
            let hint = format!(" {name} is set");
            assert!(found[0].contains(&hint), "{found:?}");
            let hint = format!("hint: did you mean {near}?");
            assert!(found[0].ends_with(&hint), "{found:?}");
            assert!(!found[0].contains("hunter2"), "{found:?}");
        }
        let found = unread("", &["AGENTMINE_WEATHER"]);
        assert!(found[0].contains("config.yaml"), "{found:?}");
    }

    #[test]
    fn what_something_reads_or_sets_is_not_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mcp.json");
        std::fs::write(
            &file,
            "{\"mcpServers\": {}, \"//\": \"${AGENTMINE_NOTES}\"}",
        )
        .unwrap();
        let text = format!(
            "mcp: {{config_file: '{}'}}\nmodel: {{headers: {{x: '${{AGENTMINE_GATEWAY}}'}}}}\n",
            file.display()
        );
        let names = [
            "AGENTMINE_MODEL_NAME",
            "AGENTMINE_FAILPOINTS",
            "AGENTMINE_TEST_IMAGE",
            "AGENTMINE_GATEWAY",
            "AGENTMINE_NOTES",
            "AGENTMINE_PRODUCER_SERVICE_HOST",
            "AGENTMINE_PRODUCER_SERVICE_PORT_HTTP",
            "AGENTMINE_PRODUCER_PORT_9464_TCP",
            "MODEL_BASEURL",
        ];
        assert_eq!(unread(&text, &names), Vec::<String>::new());
        let faulty = format!("{text}store: {{url: 'mysql://h/x'}}\n");
        assert_eq!(unread(&faulty, &names), Vec::<String>::new());
        let found = unread("", &["AGENTMINE_HTTP_PORT"]);
        assert_eq!(found.len(), 1, "no service has this name: {found:?}");
    }
}
