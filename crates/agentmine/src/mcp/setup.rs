//! The configured servers, and those that a command uses.

use std::path::{Path, PathBuf};

use agentmine_mcp::config::{self, Loaded, PROJECT_FILE, ServerConfig};
use agentmine_mcp::{ConfigFault, WorkerLauncher};
use agentmine_runtime::config::{self as runtime, Sources};
use agentmine_runtime::exit::{Exit, Failure};
use anyhow::{Context as _, Result};

use crate::print::{note, one_line};

use super::args::With;

/// The configuration, and where servers start.
pub(super) struct Setup {
    pub(super) loaded: Loaded,
    /// The project, if there is one.
    pub(super) project: Option<PathBuf>,
    /// The root of servers: the project, else the current folder.
    pub(super) root: PathBuf,
    /// The folder in which servers on this machine start: that of the user's file, as in the fleet. Never a
    /// repository: `npx` would apply its `.npmrc`, with the user's permissions and tokens.
    pub(super) folder: PathBuf,
}

/// Reads the files.
pub(super) fn load(With { config, which }: &With) -> Result<Setup> {
    let here = std::env::current_dir().context("the current folder cannot be found")?;
    let project = match &which.project {
        Some(named) => Some(folder(named, "--project names a project's folder")?),
        None => here.join(PROJECT_FILE).exists().then(|| here.clone()),
    };
    let user = match &which.mcp_config {
        Some(file) if file.exists() => Some(file.clone()),
        Some(file) => {
            return Err(
                Failure::new(Exit::Config, format!("{} does not exist", file.display()))
                    .hint("--mcp-config names a file such as ~/.agentmine/mcp_config.json")
                    .into(),
            );
        }
        // A `config.yaml` in the current folder may belong to a repository.
        None => {
            let sources = Sources::from_process(config.clone()).without_working_folder();
            runtime::load(&sources)?.mcp.config_file
        }
    };
    // In the home folder, the project's file would be the user's own.
    let same = |file: &Path| {
        let project = project.as_ref().map(|it| it.join(PROJECT_FILE));
        let real = |file: &Path| std::fs::canonicalize(file).ok();
        real(file).is_some_and(|file| project.as_deref().and_then(real) == Some(file))
    };
    let (file, unreadable) = match &project {
        Some(folder) if !user.as_deref().is_some_and(same) => match config::project_file(folder) {
            Ok(file) => (file, None),
            Err(fault) => (None, Some(fault)),
        },
        _ => (None, None),
    };
    let variable = |name: &str| std::env::var(name).ok();
    let mut loaded = config::load(user.as_deref(), file.as_ref(), &variable);
    loaded.faults.extend(unreadable);
    let folder = user
        .and_then(|file| Some(std::path::absolute(file).ok()?.parent()?.to_owned()))
        .filter(|folder| folder.is_dir())
        // Without a file, no server starts on this machine.
        .unwrap_or_else(std::env::temp_dir);
    Ok(Setup {
        loaded,
        root: project.clone().unwrap_or(here),
        project,
        folder,
    })
}

/// A named folder, with links resolved.
pub(super) fn folder(named: &Path, hint: &'static str) -> Result<PathBuf> {
    match std::fs::canonicalize(named) {
        Ok(folder) if folder.is_dir() => Ok(folder),
        _ => {
            let message = format!("{} is not a folder", named.display());
            Err(Failure::new(Exit::NotFound, message).hint(hint).into())
        }
    }
}

impl Setup {
    /// Starts servers on this machine.
    pub(super) fn launcher(&self) -> WorkerLauncher {
        WorkerLauncher::new(self.folder.clone(), |name| std::env::var(name).ok())
    }

    /// The servers to start: all enabled ones, or the named one.
    pub(super) fn chosen(&self, named: Option<&str>) -> Result<Vec<ServerConfig>> {
        let Some(name) = named else {
            self.report_faults();
            let all = self.loaded.servers.values();
            return Ok(all.filter(|server| server.enabled).cloned().collect());
        };
        let server = self.named(name)?;
        if server.enabled {
            return Ok(vec![server.clone()]);
        }
        let origin = &server.origin;
        let message = format!(
            "MCP server '{name}' is disabled in {}:{}",
            origin.file.display(),
            origin.line
        );
        Err(Failure::new(Exit::WrongState, message)
            .hint("set \"enabled\": true in its entry")
            .into())
    }

    /// The server of this name.
    pub(super) fn named(&self, name: &str) -> Result<&ServerConfig> {
        if let Some(server) = self.loaded.servers.get(name) {
            return Ok(server);
        }
        let faults = self.faults_of(name).into_iter();
        let faults: Vec<String> = faults.map(|it| one_line(&it.to_string(), 400)).collect();
        if !faults.is_empty() {
            return Err(Failure::new(Exit::Config, faults.join("\n"))
                .hint("correct the entry; `agentmine mcp list` shows the other servers")
                .into());
        }
        let names: Vec<&str> = self.loaded.servers.keys().map(String::as_str).collect();
        let hint = if names.is_empty() && !self.loaded.faults.is_empty() {
            "none can be used: `agentmine mcp list` shows the faults".to_owned()
        } else if names.is_empty() {
            format!("none is configured: add one to {}", self.usual_file())
        } else {
            format!("configured are: {}", names.join(", "))
        };
        let message = format!("there is no MCP server '{}'", one_line(name, 60));
        Err(Failure::new(Exit::NotFound, message).hint(hint).into())
    }

    /// The faults because of which a server is skipped.
    pub(super) fn faults_of(&self, name: &str) -> Vec<&ConfigFault> {
        let faults = self.loaded.faults.iter();
        faults
            .filter(|fault| fault.server.as_deref() == Some(name))
            .collect()
    }

    /// The file to add a first server to.
    pub(super) fn usual_file(&self) -> String {
        match self.loaded.files.first() {
            Some(file) => file.display().to_string(),
            None => "~/.agentmine/mcp_config.json".to_owned(),
        }
    }

    /// Reports the faults of the files on stderr.
    pub(super) fn report_faults(&self) {
        for fault in &self.loaded.faults {
            note(format!("fault: {}", one_line(&fault.to_string(), 400)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::args::Which;

    #[test]
    fn servers_start_in_the_folder_of_the_users_file_and_get_the_project_as_root() {
        let folder = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(folder.path()).unwrap();
        let (home, project) = (real.join("home"), real.join("clone"));
        for it in [&home, &project] {
            std::fs::create_dir(it).unwrap();
        }
        let file = home.join("mcp_config.json");
        std::fs::write(&file, r#"{"mcpServers": {"own": {"command": "./own"}}}"#).unwrap();
        let with = With {
            config: None,
            which: Which {
                project: Some(project.clone()),
                mcp_config: Some(file),
                start_timeout: std::time::Duration::from_secs(1),
                json: false,
            },
        };
        let setup = load(&with).unwrap();
        assert_eq!((setup.folder, setup.root), (home, project));
        assert!(setup.loaded.servers.contains_key("own"));
    }
}
