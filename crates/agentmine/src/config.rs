//! `agentmine config`.

use std::path::PathBuf;

use agentmine_mcp::ConfigFault;
use agentmine_mcp::config::Loaded;
use agentmine_runtime::config::{
    self, Config, ConfigErrors, FaultyConfig, SettingFault, SettingValue, Sources, Trackers,
};
use agentmine_runtime::exit::{self, Exit, Failure};
use anyhow::Result;
use clap::Subcommand;
use serde_json::Value;

use crate::print::{Json, cell, line, table, trimmed};

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration and report every fault
    Check,
    /// Show every key with its value; secrets are shown as set or unset
    Show {
        /// Also show where each value came from: default, file and line, variable or flag
        #[arg(long)]
        origin: bool,
        #[command(flatten)]
        json: Json,
    },
    /// Print the JSON Schema of config.yaml
    Schema,
}

/// Runs one of the commands.
pub(crate) fn run(file: Option<PathBuf>, command: &ConfigCommand) -> Result<Exit> {
    match command {
        ConfigCommand::Check => check(file),
        ConfigCommand::Show { origin, json } => show(file, *origin, *json),
        ConfigCommand::Schema => {
            line(serde_json::to_string_pretty(&config::json_schema())?);
            Ok(Exit::Done)
        }
    }
}

/// Also reports what a producer or consumer would find only at its start: it opens all that their sections
/// name, with the place of the section. It connects to nothing. Where values have faults, only what may follow from these is
/// not reported.
fn check(file: Option<PathBuf>) -> Result<Exit> {
    let sources = Sources::from_process(file);
    let (config, errors) = match config::load_despite_faults(&sources) {
        Ok(config) => (config, None),
        Err(FaultyConfig { errors, rest: None }) => return Err(errors.into()),
        Err(FaultyConfig {
            errors,
            rest: Some(rest),
        }) => (*rest, Some(errors)),
    };
    let known = errors.as_ref().map(ConfigErrors::faults);
    let known = known.unwrap_or_default();
    let further = further_faults(&sources, &config, known);
    match (errors, further.is_empty()) {
        (None, true) => {
            line("the configuration is valid");
            Ok(Exit::Done)
        }
        (None, false) => Err(Failure::new(Exit::Config, further.join("\n")).into()),
        (Some(errors), true) => Err(errors.into()),
        (Some(errors), false) => {
            let further = further.join("\n");
            let text =
                format!("{errors}\nfurther faults, found when the sections are used:\n{further}");
            Err(Failure::new(Exit::Config, text).into())
        }
    }
}

/// What a process would find beside the faults that are known already.
fn further_faults(sources: &Sources, config: &Config, known: &[SettingFault]) -> Vec<String> {
    let mut faults: Vec<String> = Vec::new();
    let follows = |section: &str| known.iter().any(|it| it.may_cause_faults_of(section));
    // A section whose name is mistyped is missing too.
    let has_unknown_section = known.iter().any(|fault| fault.key.is_empty());
    if !has_unknown_section && !follows("trackers") {
        faults.extend(config.trackers.require_one().err().map(with_hint));
    }
    if !has_unknown_section && !follows("command_executor") && !follows("text_editor_mcp") {
        faults.extend(config.require_a_tool().err().map(with_hint));
    }
    let mut opened = |key: &str, fault: Option<String>| {
        let at = config::place_of(sources, key);
        let fault = fault.filter(|_| !follows(key));
        faults.extend(fault.map(|fault| format!("{at}: {key}: {fault}")));
    };
    for (key, section) in one_by_one(&config.trackers) {
        let fault = agentmine_trackers::from_config(&section).err();
        opened(&key, fault.map(|error| error.to_string()));
    }
    let fault = agentmine_llm::from_config(&config.model).err();
    opened("model", fault.map(|error| format!("{error:#}")));
    let fault = agentmine_store::check(&config.store).err();
    opened("store.url", fault.map(|error| error.to_string()));
    let fault = agentmine_queue::connect(&config.queue).err();
    opened("queue", fault.map(|error| error.to_string()));
    if !follows("mcp") {
        faults.extend(mcp_faults(config));
    }
    faults
}

/// A failure as one line among others.
fn with_hint(failure: Failure) -> String {
    let text = exit::render(&failure.into());
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    text.replace("\nhint: ", ". hint: ")
}

/// The sections of the trackers, each by itself, with its key.
pub(crate) fn one_by_one(trackers: &Trackers) -> Vec<(String, Trackers)> {
    let mut sections = Vec::new();
    for (name, github) in trackers.githubs() {
        let mut section = Trackers::default();
        match name {
            None => section.github = Some(github.clone()),
            Some(name) => drop(section.more.github.insert(name.to_owned(), github.clone())),
        }
        sections.push((Trackers::key("github", name), section));
    }
    for (name, gitlab) in trackers.gitlabs() {
        let mut section = Trackers::default();
        match name {
            None => section.gitlab = Some(gitlab.clone()),
            Some(name) => drop(section.more.gitlab.insert(name.to_owned(), gitlab.clone())),
        }
        sections.push((Trackers::key("gitlab", name), section));
    }
    if let Some(local) = &trackers.local {
        let section = Trackers {
            local: Some(local.clone()),
            ..Trackers::default()
        };
        sections.push(("trackers.local".to_owned(), section));
    }
    sections
}

/// The operator's MCP file. A missing file names no servers. A server with a reserved name, which every session would ignore,
/// is a fault.
pub(crate) fn mcp_file(config: &Config) -> Loaded {
    let env = |name: &str| std::env::var(name).ok();
    let mut loaded = agentmine_mcp::config::load(config.mcp.config_file.as_deref(), None, &env);
    let reserved = config.reserved_servers();
    let is_reserved = |name: &str| reserved.iter().any(|it| it.eq_ignore_ascii_case(name));
    let servers = std::mem::take(&mut loaded.servers);
    for (name, server) in servers {
        if !server.enabled || !is_reserved(&name) {
            loaded.servers.insert(name, server);
            continue;
        }
        loaded.faults.push(ConfigFault {
            file: server.origin.file,
            line: Some(server.origin.line),
            field: format!("mcpServers.{name}"),
            detail: "the name is reserved for a built-in server. hint: give it another one".into(),
            server: Some(name),
        });
    }
    loaded
}

/// The faults of the operator's MCP file, which name file and line.
fn mcp_faults(config: &Config) -> Vec<String> {
    if !config.mcp.enabled {
        return Vec::new();
    }
    let loaded = mcp_file(config);
    loaded.faults.iter().map(ToString::to_string).collect()
}

/// Every key with its value, and with where it came from.
fn show(file: Option<PathBuf>, origin: bool, json: Json) -> Result<Exit> {
    let settings = config::effective(&Sources::from_process(file))?;
    json.print(&settings, |settings| {
        let mut table = match origin {
            true => table(&["KEY", "VALUE", "ORIGIN"]),
            false => table(&["KEY", "VALUE"]),
        };
        for setting in settings {
            let mut row = vec![setting.key.clone(), cell(&value(&setting.value))];
            if origin {
                row.push(cell(&setting.origin.to_string()));
            }
            table.add_row(row);
        }
        line(trimmed(&table));
    })
}

fn value(value: &SettingValue) -> String {
    match value {
        SettingValue::Shown(Value::String(text)) if !text.is_empty() => text.clone(),
        SettingValue::Shown(value) => value.to_string(),
        SettingValue::Set => "(set)".to_owned(),
        SettingValue::Unset => "(unset)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_a_reserved_name_is_a_fault_unless_it_is_disabled() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mcp_config.json");
        let servers = r#"{"mcpServers":{
            "mine":{"command":["x"]},
            "Text-Editor":{"command":["x"]},
            "command-executor":{"command":["x"],"disabled":true}
        }}"#;
        std::fs::write(&file, servers).unwrap();
        let mut config = Config::default();
        config.mcp.config_file = Some(file.clone());
        config.text_editor_mcp.mcp_server.name = "text-editor".into();
        config.command_executor.mcp_server.name = "command-executor".into();
        let expected = format!(
            "{}:3: mcpServers.Text-Editor: the name is reserved for a built-in server. hint: give it another one",
            file.display()
        );
        assert_eq!(mcp_faults(&config), [expected]);
        assert!(mcp_file(&config).servers.contains_key("mine"));
    }

    #[test]
    fn a_missing_section_is_reported_with_what_to_add() {
        let missing = Trackers::default().require_one().unwrap_err();
        assert_eq!(
            with_hint(missing),
            "no tracker is configured; expected trackers.github, trackers.gitlab or trackers.local. hint: add \
             `trackers: {github: {repositories: [owner/name]}}` to config.yaml"
        );
    }
}
