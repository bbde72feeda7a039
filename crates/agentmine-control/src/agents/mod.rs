//! The agents of a project: the operator's, narrowed by the project's own, and the built-in one.

mod yaml;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agentmine_runtime::config::{
    AgentClient, AgentDefinition, BUILT_IN, EffectiveAgent, is_agent_name, read_agent,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ControlError;
use crate::folder::{Entry, Folder, Kind};
pub use yaml::yaml;

/// The folder of a project's own agents, below its top.
pub const AGENTS_FOLDER: &str = ".agentmine/agents";

const PATH: [&str; 2] = [".agentmine", "agents"];
const YAML: Kind = Kind {
    endings: &[".yaml", ".yml"],
    max_bytes: 64 * 1024,
};

/// Where agents are defined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSources<'a> {
    /// The operator's folder of agents, if there is a configuration folder.
    pub operator: Option<&'a Path>,
    /// The top of the project.
    pub project: &'a Path,
    /// Images that a project's own file may choose.
    pub allowed_images: &'a [String],
}

/// Who defines an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentOrigin {
    /// It exists without a file.
    BuiltIn,
    /// A file of the operator.
    Operator,
    /// A file of the project, which narrows the operator's agent of that name, or the built-in one.
    Project,
}

impl AgentOrigin {
    /// The name in JSON and tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BuiltIn => "built_in",
            Self::Operator => "operator",
            Self::Project => "project",
        }
    }
}

/// One agent in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentSummary {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The program that runs it.
    pub client: AgentClient,
    /// The model's name; `None` for that of the configuration.
    pub model: Option<String>,
    /// Who defines it.
    pub origins: Vec<AgentOrigin>,
}

/// Which agents to list.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentQuery {
    /// Only agents that this client runs
    #[schemars(extend("enum" = ["agentmine", "claude-code", "codex", "gemini-cli"]))]
    pub client: Option<String>,
    /// How many agents at most, by name
    #[schemars(extend("default" = 20, "minimum" = 1, "maximum" = 500))]
    pub limit: Option<u32>,
    /// Only agents with a name after this one: the nextCursor of the previous answer
    pub cursor: Option<String>,
}

/// A part of the agents of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentList {
    /// The agents, by name.
    pub agents: Vec<AgentSummary>,
    /// The cursor of the next part; `None`: there are no more.
    pub next_cursor: Option<String>,
    /// Files that are omitted because of faults: `agent validate` shows these.
    pub faulty: Vec<String>,
}

/// One agent as it runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentDetail {
    /// What applies.
    #[serde(flatten)]
    pub agent: EffectiveAgent,
    /// Who defines it.
    pub origins: Vec<AgentOrigin>,
    /// Its files.
    pub files: Vec<String>,
}

/// The check of all files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCheck {
    /// Every file.
    pub files: Vec<AgentFileCheck>,
}

/// The check of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentFileCheck {
    /// The file.
    pub file: String,
    /// Who wrote it.
    pub origin: AgentOrigin,
    /// Every fault, with line, column and key.
    pub faults: Vec<String>,
    /// What of it does not apply, since the operator does not allow it.
    pub notes: Vec<String>,
}

/// The agents, by name.
///
/// # Errors
/// [`ControlError::Config`] if a folder cannot be read or is a link.
pub fn list(sources: &AgentSources<'_>, query: &AgentQuery) -> Result<AgentList, ControlError> {
    let files = files(sources)?;
    let (good, bad): (Vec<_>, Vec<_>) = files.iter().partition(|file| file.definition.is_ok());
    let mut names: Vec<&str> = good.iter().map(|file| file.name.as_str()).collect();
    names.push(BUILT_IN);
    names.sort_unstable();
    names.dedup();
    let summary = |name: &str| {
        let AgentDetail { agent, origins, .. } = effective(name, &files, sources.allowed_images);
        AgentSummary {
            name: agent.name,
            description: agent.description,
            client: agent.client,
            model: agent.model,
            origins,
        }
    };
    let limit = crate::tasks::limit_of(query.limit)? as usize;
    let client = match &query.client {
        None => None,
        Some(name) => Some(client_of(name)?),
    };
    let mut agents: Vec<AgentSummary> = names.into_iter().map(summary).collect();
    agents.retain(|agent| {
        let follows = |cursor: &String| agent.name > *cursor;
        query.cursor.as_ref().is_none_or(follows)
            && client.is_none_or(|client| agent.client == client)
    });
    let more = agents.len() > limit;
    agents.truncate(limit);
    Ok(AgentList {
        next_cursor: agents
            .last()
            .filter(|_| more)
            .map(|agent| agent.name.clone()),
        agents,
        faulty: bad.iter().map(|file| file.shown.clone()).collect(),
    })
}

fn client_of(name: &str) -> Result<AgentClient, ControlError> {
    let all = [
        AgentClient::Agentmine,
        AgentClient::ClaudeCode,
        AgentClient::Codex,
        AgentClient::GeminiCli,
    ];
    let found = all.into_iter().find(|client| client.as_str() == name);
    found.ok_or_else(|| {
        ControlError::Validation(format!(
            "client is {:?}, expected agentmine, claude-code, codex or gemini-cli",
            crate::input::shown(name)
        ))
    })
}

/// One agent as it runs.
///
/// # Errors
/// [`ControlError::AgentNotFound`]; [`ControlError::Config`] with the faults of its files, or if a folder cannot be read.
pub fn get(sources: &AgentSources<'_>, name: &str) -> Result<AgentDetail, ControlError> {
    let files = files(sources)?;
    let own = || files.iter().filter(|file| file.name == name);
    let faults: Vec<&str> = own()
        .filter_map(|file| file.definition.as_ref().err())
        .flatten()
        .map(String::as_str)
        .collect();
    if !faults.is_empty() {
        return Err(ControlError::Config(faults.join("\n")));
    }
    if name != BUILT_IN && own().next().is_none() {
        return Err(ControlError::AgentNotFound(name.chars().take(80).collect()));
    }
    Ok(effective(name, &files, sources.allowed_images))
}

/// The operator's definition of an agent; `None`: there is none of this name.
///
/// # Errors
/// [`ControlError::Config`] with the faults of its file, or if the folder cannot be read.
pub(crate) fn of_operator(
    operator: Option<&Path>,
    name: &str,
) -> Result<Option<AgentDefinition>, ControlError> {
    let mut files = Vec::new();
    if let Some(folder) = operator {
        let opened = Folder::open(folder, &[]);
        read(&mut files, opened, AgentOrigin::Operator, folder)?;
    }
    let named = files.into_iter().find(|file| file.name == name);
    let definition = named.map(|file| file.definition).transpose();
    definition.map_err(|faults| ControlError::Config(faults.join("\n")))
}

/// Checks every file.
///
/// # Errors
/// [`ControlError::Config`] if a folder cannot be read or is a link.
pub fn validate(sources: &AgentSources<'_>) -> Result<AgentCheck, ControlError> {
    let files = files(sources)?;
    let check = |file: &AgentFile| {
        let notes = match (file.origin, &file.definition) {
            (AgentOrigin::Project, Ok(_)) => {
                effective(&file.name, &files, sources.allowed_images)
                    .agent
                    .notes
            }
            (AgentOrigin::Project | AgentOrigin::Operator | AgentOrigin::BuiltIn, _) => Vec::new(),
        };
        AgentFileCheck {
            file: file.shown.clone(),
            origin: file.origin,
            faults: file.definition.as_ref().err().cloned().unwrap_or_default(),
            notes,
        }
    };
    Ok(AgentCheck {
        files: files.iter().map(check).collect(),
    })
}

/// A file, read.
struct AgentFile {
    name: String,
    origin: AgentOrigin,
    shown: String,
    definition: Result<AgentDefinition, Vec<String>>,
}

/// The agent of this name, of the files without faults.
fn effective(name: &str, files: &[AgentFile], allowed_images: &[String]) -> AgentDetail {
    let of = |origin: AgentOrigin| {
        let mut own = files
            .iter()
            .filter(|file| file.name == name && file.origin == origin);
        own.find_map(|file| Some((file, file.definition.as_ref().ok()?)))
    };
    let (mut origins, mut shown) = (Vec::new(), Vec::new());
    let mut agent = match of(AgentOrigin::Operator) {
        Some((file, definition)) => {
            origins.push(AgentOrigin::Operator);
            shown.push(file.shown.clone());
            EffectiveAgent::of_operator(name, definition)
        }
        None => {
            origins.push(AgentOrigin::BuiltIn);
            EffectiveAgent::built_in(name)
        }
    };
    if let Some((file, definition)) = of(AgentOrigin::Project) {
        agent = agent.narrowed_by(definition, allowed_images);
        // What the operator has no words for is described by the project.
        if origins == [AgentOrigin::BuiltIn] && name != BUILT_IN {
            agent.description.clone_from(&definition.description);
        }
        origins.push(AgentOrigin::Project);
        shown.push(file.shown.clone());
    }
    AgentDetail {
        agent,
        origins,
        files: shown,
    }
}

/// The operator's files, then the project's.
fn files(sources: &AgentSources<'_>) -> Result<Vec<AgentFile>, ControlError> {
    let mut files = Vec::new();
    if let Some(operator) = sources.operator {
        let folder = Folder::open(operator, &[]);
        read(&mut files, folder, AgentOrigin::Operator, operator)?;
    }
    let folder = Folder::open(sources.project, &PATH);
    read(
        &mut files,
        folder,
        AgentOrigin::Project,
        Path::new(AGENTS_FOLDER),
    )?;
    Ok(files)
}

fn read(
    files: &mut Vec<AgentFile>,
    folder: std::io::Result<Option<Folder>>,
    origin: AgentOrigin,
    path: &Path,
) -> Result<(), ControlError> {
    let failed =
        |error: std::io::Error| ControlError::Config(format!("{}: {error}", path.display()));
    let Some(folder) = folder.map_err(failed)? else {
        return Ok(());
    };
    let mut stems: BTreeMap<String, String> = BTreeMap::new();
    for Entry { name, text } in folder.files(YAML).map_err(failed)? {
        let shown: PathBuf = path.join(&name);
        let shown = shown.display().to_string();
        let stem = name
            .rsplit_once('.')
            .map_or(name.as_str(), |(stem, _)| stem);
        let definition = match (text, stems.get(stem)) {
            (_, Some(first)) => Err(vec![format!(
                "{shown}: a second file of the agent {stem}, expected {first} alone"
            )]),
            (_, None) if !is_agent_name(stem) => Err(vec![format!(
                "{shown}: not a valid name for an agent, expected 1 to 64 of a-z, 0-9 and -, then .yaml"
            )]),
            (Err(why), None) => Err(vec![format!("{shown}: {why}")]),
            (Ok(text), None) => read_agent(&shown, &text).map_err(|errors| {
                let faults = errors.faults().iter().map(ToString::to_string);
                faults.collect::<Vec<_>>()
            }),
        };
        stems.entry(stem.to_owned()).or_insert_with(|| name.clone());
        files.push(AgentFile {
            name: stem.to_owned(),
            origin,
            shown,
            definition,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        home: tempfile::TempDir,
    }

    impl World {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            for folder in ["operator", "project/.agentmine/agents"] {
                std::fs::create_dir_all(home.path().join(folder)).unwrap();
            }
            Self { home }
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.home.path().join(name), text).unwrap();
        }

        fn list(&self, query: &AgentQuery) -> AgentList {
            self.with(|sources| list(sources, query)).unwrap()
        }

        fn with<T>(&self, call: impl FnOnce(&AgentSources<'_>) -> T) -> T {
            call(&AgentSources {
                operator: Some(&self.home.path().join("operator")),
                project: &self.home.path().join("project"),
                allowed_images: &[],
            })
        }
    }

    #[test]
    fn agents_are_listed_by_client_and_in_parts() {
        let world = World::new();
        for name in ["a", "b", "c"] {
            let client = if name == "b" { "codex" } else { "agentmine" };
            world.write(
                &format!("operator/{name}.yaml"),
                &format!("description: x\nclient: {client}\n"),
            );
        }
        let names = |query: &AgentQuery| {
            let list = world.list(query);
            let names: Vec<String> = list.agents.into_iter().map(|it| it.name).collect();
            (names.join(" "), list.next_cursor)
        };
        let mut query = AgentQuery {
            limit: Some(3),
            ..AgentQuery::default()
        };
        assert_eq!(names(&query), ("a b c".into(), Some("c".into())));
        query.cursor = Some("c".into());
        assert_eq!(names(&query), ("default".into(), None));
        let of_codex = AgentQuery {
            client: Some("codex".into()),
            ..AgentQuery::default()
        };
        assert_eq!(names(&of_codex), ("b".into(), None));
        let unknown = AgentQuery {
            client: Some("vim".into()),
            ..AgentQuery::default()
        };
        let error = world.with(|it| list(it, &unknown)).unwrap_err();
        assert_eq!(error.name(), "ValidationError");
    }

    #[test]
    fn a_project_without_files_has_the_built_in_agent() {
        let world = World::new();
        let list = world.list(&AgentQuery::default());
        assert_eq!(list.agents.len(), 1);
        assert_eq!(list.agents[0].name, "default");
        assert_eq!(list.agents[0].origins, [AgentOrigin::BuiltIn]);
        assert!(
            world
                .with(|it| get(it, "default"))
                .unwrap()
                .files
                .is_empty()
        );
        let missing = world.with(|it| get(it, "fix")).unwrap_err();
        assert!(matches!(missing, ControlError::AgentNotFound(name) if name == "fix"));
    }

    #[test]
    fn a_projects_file_narrows_the_operators_agent() {
        let world = World::new();
        world.write(
            "operator/fix.yaml",
            "description: Fixes\nlimits: {max_steps: 10}\n",
        );
        let own = "description: Ours\nmodel: dear\nlimits: {max_steps: 99, max_rounds: 1}\n";
        world.write("project/.agentmine/agents/fix.yml", own);
        let detail = world.with(|it| get(it, "fix")).unwrap();
        assert_eq!(
            detail.origins,
            [AgentOrigin::Operator, AgentOrigin::Project]
        );
        assert_eq!(detail.agent.description, "Fixes");
        assert_eq!(detail.agent.limits.max_steps, Some(10));
        assert_eq!(detail.agent.limits.max_rounds, Some(1));
        assert_eq!(detail.agent.model, None);
        let check = world.with(validate).unwrap();
        assert_eq!(check.files[1].notes, detail.agent.notes);
        assert_eq!(check.files[1].notes.len(), 1, "{check:?}");
    }

    #[test]
    fn every_fault_of_every_file_is_reported_and_the_others_still_work() {
        let world = World::new();
        let folder = "project/.agentmine/agents";
        world.write(&format!("{folder}/Bad Name.yaml"), "description: x\n");
        world.write(&format!("{folder}/typo.yaml"), "descriptoin: x\n");
        world.write(&format!("{folder}/twice.yaml"), "description: x\n");
        world.write(&format!("{folder}/twice.yml"), "description: x\n");
        let link = world.home.path().join(folder).join("link.yaml");
        std::os::unix::fs::symlink("/etc/hostname", link).unwrap();
        let check = world.with(validate).unwrap();
        let faults: Vec<&String> = check.files.iter().flat_map(|file| &file.faults).collect();
        assert_eq!(faults.len(), 5, "{faults:?}");
        let text = format!("{faults:?}");
        for part in [
            "not a valid name for an agent",
            "link.yaml: it is a link",
            "typo.yaml:1:1: unknown key `descriptoin`",
            "did you mean `description`?",
            "twice.yml: a second file of the agent twice",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let list = world.list(&AgentQuery::default());
        let names: Vec<&str> = list
            .agents
            .iter()
            .map(|agent| agent.name.as_str())
            .collect();
        assert_eq!(names, ["default", "twice"]);
        assert_eq!(list.faulty.len(), 4);
        let error = world.with(|it| get(it, "typo")).unwrap_err();
        assert!(matches!(error, ControlError::Config(text) if text.contains("typo.yaml:1:1")));
    }
}
