//! The repository's settings: its image, its checks, and how its dependencies are installed.
//!
//! They are read before the agent begins and are untrusted: apart from the image, which the operator
//! has to allow, they only contain shell commands that run in the sandbox.

use std::time::Duration;

use agentmine_agent::Project;
use agentmine_sandbox::SandboxError;
use serde::Deserialize;

use super::workspace::{PROJECT, Workspace};
use crate::error::WorkspaceError;

/// The repository's settings file, `.agentmine/config.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProjectFile {
    /// The image to run in, if the operator allows it.
    pub(crate) image: Option<String>,
    /// Shell commands that must succeed.
    pub(crate) checks: Vec<String>,
    /// Shell commands that prepare a fresh clone, instead of those derived from the project's files.
    pub(crate) setup: Option<Vec<String>>,
}

pub(crate) const PROJECT_FILE: &str = ".agentmine/config.yaml";
const MAX_FILE: usize = 64 * 1024;
const MAX_LINES: usize = 20;
const MAX_LINE: usize = 2_000;

impl ProjectFile {
    /// Parses the text of the file.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let file: Self =
            serde_saphyr::from_str(text).map_err(|e| format!("{PROJECT_FILE}: {e}"))?;
        for (key, lines) in [
            ("checks", &file.checks),
            ("setup", file.setup.as_ref().unwrap_or(&Vec::new())),
        ] {
            if lines.len() > MAX_LINES || lines.iter().any(|line| line.len() > MAX_LINE) {
                return Err(format!(
                    "{PROJECT_FILE}: `{key}` is too long; expected at most {MAX_LINES} lines of at most {MAX_LINE} bytes"
                ));
            }
        }
        Ok(file)
    }
}

/// Inspects the clone in `workspace`. `configured` checks take precedence.
pub(crate) async fn inspect(
    workspace: &Workspace,
    configured: &[String],
    install: bool,
) -> Result<Project, WorkspaceError> {
    let mut project = Project::default();
    let mut own = ProjectFile::default();
    if let Some(bytes) = read(workspace, PROJECT_FILE).await? {
        match ProjectFile::parse(&String::from_utf8_lossy(&bytes)) {
            Ok(file) => own = file,
            Err(warning) => project.warning = Some(warning),
        }
    }
    let listing = workspace
        .shell("ls -1ap | head -n 2000", Duration::from_secs(30), MAX_FILE)
        .await?;
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    let names: Vec<&str> = listing.lines().collect();
    if install {
        project.setup = own.setup.unwrap_or_else(|| setup_for(&names));
    }
    (project.checks, project.checks_from) = if !configured.is_empty() {
        (configured.to_vec(), "from the configuration".into())
    } else if !own.checks.is_empty() {
        (own.checks, format!("from `{PROJECT_FILE}`"))
    } else {
        project.guessed = true;
        (
            guess_checks(workspace, &names).await?,
            "guessed from its files".into(),
        )
    };
    Ok(project)
}

/// The commands that install a project's dependencies, chosen by its files (spec 001 §5.3).
fn setup_for(names: &[&str]) -> Vec<String> {
    let has = |name: &str| names.contains(&name);
    let mut lines = Vec::new();
    if has("package.json") {
        lines.push(
            if has("package-lock.json") {
                "npm ci --no-audit --no-fund || npm install --no-audit --no-fund"
            } else if has("yarn.lock") {
                "yarn install --frozen-lockfile"
            } else {
                "npm install --no-audit --no-fund"
            }
            .to_owned(),
        );
    }
    for (file, line) in [
        (
            "requirements.txt",
            "pip install --user --break-system-packages -r requirements.txt",
        ),
        ("go.mod", "go mod download"),
        ("pom.xml", "mvn -q -B dependency:resolve"),
        ("Gemfile", "bundle install"),
    ] {
        if has(file) {
            lines.push(line.to_owned());
        }
    }
    lines
}

async fn guess_checks(
    workspace: &Workspace,
    names: &[&str],
) -> Result<Vec<String>, WorkspaceError> {
    let has = |name: &str| names.contains(&name);
    let mut checks = Vec::new();
    if has("package.json")
        && let Some(bytes) = read(workspace, "package.json").await?
    {
        checks.extend(npm_test(&bytes));
    }
    for (file, line) in [
        ("Cargo.toml", "cargo test"),
        ("go.mod", "go test ./..."),
        ("pom.xml", "mvn -q -B test"),
        ("Rakefile", "bundle exec rake test"),
        ("test.sh", "sh ./test.sh"),
    ] {
        if has(file) {
            checks.push(line.to_owned());
        }
    }
    if ["pytest.ini", "tox.ini", "conftest.py"]
        .iter()
        .any(|f| has(f))
        || (has("pyproject.toml") && has("tests/"))
    {
        checks.push("python3 -m pytest -q".into());
    }
    if checks.is_empty()
        && has("Makefile")
        && let Some(bytes) = read(workspace, "Makefile").await?
    {
        let text = String::from_utf8_lossy(&bytes);
        if let Some(target) = ["check", "test"]
            .iter()
            .find(|t| text.lines().any(|l| l.starts_with(&format!("{t}:"))))
        {
            checks.push(format!("make {target}"));
        }
    }
    Ok(checks)
}

/// `npm test`, unless the script is the one that `npm init` writes.
fn npm_test(package_json: &[u8]) -> Option<String> {
    let package: serde_json::Value = serde_json::from_slice(package_json).ok()?;
    let script = package["scripts"]["test"].as_str()?;
    (!script.contains("no test specified")).then(|| "npm test --silent".to_owned())
}

async fn read(workspace: &Workspace, path: &str) -> Result<Option<Vec<u8>>, WorkspaceError> {
    match workspace
        .sandbox
        .get_file(&format!("{PROJECT}/{path}"), MAX_FILE)
        .await
    {
        Ok(bytes) => Ok(bytes),
        // Too large, a folder, or a link out of the project: treated as missing.
        Err(SandboxError::Failed(reason)) => {
            tracing::debug!(reason, "a project file could not be read");
            Ok(None)
        }
        Err(error) => Err(WorkspaceError::Command(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_project_is_set_up_with_its_tool() {
        assert_eq!(
            setup_for(&["package.json", "yarn.lock"]),
            ["yarn install --frozen-lockfile"]
        );
        assert!(setup_for(&["package.json", "package-lock.json"])[0].starts_with("npm ci"));
        assert_eq!(setup_for(&["requirements.txt", "go.mod"]).len(), 2);
        assert!(setup_for(&["README.md"]).is_empty());
    }

    #[test]
    fn the_test_script_from_npm_init_is_not_a_check() {
        assert_eq!(
            npm_test(br#"{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}"#),
            None
        );
        assert_eq!(
            npm_test(br#"{"scripts":{"test":"jest"}}"#),
            Some("npm test --silent".into())
        );
    }

    #[test]
    fn a_faulty_project_file_is_reported_with_its_name() {
        let error = ProjectFile::parse("cheks: [make test]").unwrap_err();
        assert!(error.starts_with(PROJECT_FILE), "{error}");
        assert!(error.contains("cheks"), "{error}");
    }
}
