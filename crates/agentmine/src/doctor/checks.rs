//! The checks of this machine: configuration, files, git.

use agentmine_runtime::config::{Config, ConfigErrors, SettingFault, Sources, unread_variables};

use super::finding::{Finding, Report};
use crate::paths::state_dir;
use crate::print::one_line;

/// With a configuration that cannot be read, nothing else can be checked.
pub(super) fn broken_configuration(errors: &ConfigErrors, sources: &Sources) -> Vec<Report> {
    let faults = errors.faults().iter().map(fault);
    let unread = unread_variables(sources).into_iter().map(Finding::warning);
    let faults = faults.chain(unread).collect();
    let rest = [
        "state folder",
        "git",
        "mcp file",
        "trackers",
        "database",
        "broker",
        "sandbox",
        "model",
        "clock",
    ];
    let skipped = |name| Report::new(name, vec![Finding::skipped("the configuration has faults")]);
    let configuration = Report::new("configuration", faults);
    std::iter::once(configuration)
        .chain(rest.map(skipped))
        .collect()
}

fn fault(fault: &SettingFault) -> Finding {
    let mut shown = fault.clone();
    let hint = shown.hint.take();
    let finding = Finding::failed(shown.to_string());
    match hint {
        Some(hint) => finding.fix(hint),
        None => finding.fix(format!("write {} there", fault.expected)),
    }
}

/// The file, and what it exposes.
pub(super) fn configuration(config: &Config, sources: &Sources) -> Vec<Finding> {
    let file = match sources.used_file() {
        Some(file) => file.display().to_string(),
        None => "no file; every key has its default".to_owned(),
    };
    let tool = config.require_a_tool().err();
    let tool = tool.map(|error| Finding::failed(error_text(&error.into())));
    let warnings = unread_variables(sources).into_iter();
    let warnings = warnings.chain(config.exposures(sources));
    std::iter::once(Finding::good(file))
        .chain(tool)
        .chain(warnings.map(Finding::warning))
        .chain(paused(config))
        .collect()
}

/// The file that keeps workers from taking tasks.
fn paused(config: &Config) -> Option<Finding> {
    let file = config.consumer.paused_by()?.display();
    let text =
        format!("{file} (consumer.pause_file) exists: workers on this machine take no tasks");
    Some(Finding::warning(text).fix("remove the file to let them continue"))
}

/// The folder of databases, jails and work trees. `error`: why the default database has no place in it.
pub(super) fn state_folder(error: Option<anyhow::Error>) -> Vec<Finding> {
    let made = match error {
        Some(error) => Err(error),
        None => state_dir(),
    };
    vec![match made {
        Ok(folder) => Finding::good(folder.display().to_string()),
        Err(error) => Finding::failed(error_text(&error))
            .fix("make it writable for this user, or name another one with XDG_STATE_HOME"),
    }]
}

/// Git on this machine: clones are checked with it, and work trees are made.
pub(super) async fn git() -> Vec<Finding> {
    let asked = crate::git::version().await;
    vec![match asked {
        Ok(output) if output.status.success() => {
            let version = String::from_utf8_lossy(&output.stdout);
            match crate::git::too_old(&version) {
                Some(what) => Finding::failed(what).fix(crate::git::NEWER),
                None => Finding::good(one_line(version.trim_start_matches("git version "), 60)),
            }
        }
        Ok(output) => Finding::failed(one_line(&String::from_utf8_lossy(&output.stderr), 200))
            .fix("install git"),
        Err(error) => {
            let failed = Finding::failed(format!("git cannot be started: {error}"));
            match error.kind() {
                std::io::ErrorKind::NotFound => failed.fix("install the package git"),
                _ => failed,
            }
        }
    }]
}

/// The operator's MCP file.
pub(super) fn mcp_file(config: &Config) -> Vec<Finding> {
    if !config.mcp.enabled {
        return vec![Finding::skipped("mcp.enabled is false")];
    }
    let loaded = crate::config::mcp_file(config);
    if !loaded.faults.is_empty() {
        let fault = |fault: &agentmine_mcp::ConfigFault| {
            Finding::failed(fault.to_string())
                .fix("correct the file; `agentmine mcp doctor` checks its servers")
        };
        return loaded.faults.iter().map(fault).collect();
    }
    let file = config
        .mcp
        .config_file
        .as_ref()
        .map(|file| file.display().to_string());
    let file = file.unwrap_or_else(|| "the file of the home folder".into());
    vec![match (loaded.files.is_empty(), loaded.servers.len()) {
        (true, _) => Finding::good(format!("none ({file} does not exist)")),
        (false, 1) => Finding::good(format!(
            "{file}: 1 server; `agentmine mcp doctor` starts it"
        )),
        (false, n) => Finding::good(format!(
            "{file}: {n} servers; `agentmine mcp doctor` starts them"
        )),
    }]
}

/// An error with its causes and its hint, on one line.
pub(super) fn error_text(error: &anyhow::Error) -> String {
    let text = agentmine_runtime::exit::render(error);
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    one_line(text, 1000)
}
