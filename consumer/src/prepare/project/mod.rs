//! The repository's settings: its image, its checks, and how its dependencies are installed.
//!
//! They are read before the agent begins and are untrusted: apart from the image, which the operator
//! has to allow, they only contain shell commands that run in the sandbox. Of an existing pull request, what is declared is read from
//! its target branch, and what is guessed from its own files: those of the target need not fit them, and what a guessed check runs
//! is the pull request's own in any case.

mod absent;
mod changed;
mod checks;
mod declared;
mod go;
mod layout;
mod node;
mod python;
mod setup;

use std::time::Duration;

use agentmine_agent::Project;
use agentmine_mcp::config::PROJECT_FILE as SERVERS_FILE;
use agentmine_runtime::config::{BackendKind, CommandExecutor, PROJECT_FILE, ProjectFile};
use agentmine_sandbox::SandboxError;

use super::agent::REPOSITORY_FOLDER;
use super::workspace::{FileAt, PROJECT, Workspace};
use crate::error::WorkspaceError;
use checks::{OPTIONAL, needs_one_of};
use layout::Layout;
use setup::{COREPACK, Installer};

/// Maximum size in bytes of a file that describes the project.
const MAX_FILE: usize = 256 * 1024;
/// Maximum size in bytes of the list of files; of a longer one, the start and the end are used.
const MAX_LISTING: usize = 8 * 1024 * 1024;
/// How many files that describe a project are read at most.
const MAX_READ: usize = 60;
/// Files whose text matters.
const READ: [&str; 9] = [
    "package.json",
    "pyproject.toml",
    "Makefile",
    "test.sh",
    "go.work",
    "composer.json",
    "deno.json",
    "justfile",
    "Justfile",
];
/// The same of files with no other of their name in the folders above them, of so many of a name at most.
const READ_OUTERMOST: [&str; 2] = ["Cargo.toml", "CMakeLists.txt"];
const MAX_OUTERMOST: usize = 8;
/// Files whose presence decides which checks are guessed.
const BUILD_FILES: [&str; 14] = [
    "go.mod",
    "Gemfile",
    "Rakefile",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "mix.exs",
    "*.sln",
    "*.csproj",
    "tox.ini",
    "noxfile.py",
    "pytest.ini",
    "setup.py",
    "setup.cfg",
];

/// What decides on a project's settings, besides its own files.
pub(super) struct Operator<'a> {
    pub(super) executor: &'a CommandExecutor,
    /// The checks of the configuration. They take precedence.
    pub(super) checks: &'a [String],
    /// The image that was chosen; `None` for the configured one.
    pub(super) image: Option<&'a str>,
    /// The commit whose settings file counts, and not the clone's own: of a pull request's target branch.
    pub(super) rules: Option<&'a str>,
}

/// Inspects the clone in `workspace`.
pub(super) async fn inspect(
    workspace: &Workspace,
    operator: &Operator<'_>,
) -> Result<Project, WorkspaceError> {
    let mut project = Project::default();
    let mut own = ProjectFile::default();
    let settings = settings_file(workspace, operator.rules).await?;
    let parsed = settings.and_then(|text| match text {
        Some(text) => ProjectFile::parse(&text),
        None => Ok(ProjectFile::default()),
    });
    match parsed {
        Ok(file) => own = file,
        Err(warning) => project.warning = Some(warning),
    }
    project.notes.extend(refused_image(operator, &own));
    let layout = layout(workspace).await?;
    project.absent = absent::absent(workspace, &layout).await?;
    if operator.executor.clone.auto_install_deps {
        project.setup = match own.setup {
            Some(lines) => lines,
            None => {
                let found = setup::installers(&layout);
                let mut probes: Vec<String> = found.iter().map(|i| i.probe.clone()).collect();
                if !probes.is_empty() {
                    probes.push(setup::probe(COREPACK, ""));
                }
                let missing = missing_programs(workspace, &probes).await?;
                // What Corepack provides, it downloads.
                let found = match operator.executor.docker.network.external_access {
                    true => setup::with_corepack(found, &missing),
                    false => found,
                };
                let (skipped, runnable): (Vec<_>, Vec<_>) = found
                    .into_iter()
                    .partition(|i| missing.contains(&i.program.to_owned()));
                project
                    .notes
                    .extend(skipped.iter().map(|i| skipped_note(operator.executor, i)));
                runnable.into_iter().map(|i| i.line).collect()
            }
        };
    }
    (project.checks, project.checks_from) = if !operator.checks.is_empty() {
        (operator.checks.to_vec(), "from the configuration".into())
    } else if !own.checks.is_empty() {
        let of = match operator.rules {
            Some(_) => " of the target branch",
            None => "",
        };
        (own.checks, format!("from `{PROJECT_FILE}`{of}"))
    } else {
        project.guessed = true;
        let mut guessed = checks::guess(&layout, &[]);
        if guessed.iter().any(|it| needs_one_of(&OPTIONAL, it)) {
            let probes = OPTIONAL.map(|program| setup::probe(program, ""));
            let missing = missing_programs(workspace, &probes).await?;
            let others = checks::guess(&layout, &missing);
            // Otherwise the result names the check that did not run, and why.
            if !others.is_empty() {
                guessed = others;
            }
        }
        (guessed, "guessed from its files".into())
    };
    if let Some(target) = operator.rules {
        let declared = [PROJECT_FILE, SERVERS_FILE, REPOSITORY_FOLDER];
        let guessed_from: Vec<&str> = match project.guessed {
            true => {
                let read = READ.iter().chain(&READ_OUTERMOST);
                read.chain(&BUILD_FILES).copied().collect()
            }
            false => Vec::new(),
        };
        let changed = changed::notes(workspace, target, &declared, &guessed_from).await?;
        project.notes.extend(changed);
    }
    Ok(project)
}

/// The repository's settings file at the commit `rules`, or else in the clone. The error says why it does not count.
async fn settings_file(
    workspace: &Workspace,
    rules: Option<&str>,
) -> Result<Result<Option<String>, String>, WorkspaceError> {
    let bytes = match rules {
        Some(commit) => match workspace.file_at(commit, PROJECT_FILE).await? {
            FileAt::Missing => None,
            FileAt::TooLarge => {
                return Ok(Err(format!(
                    "`{PROJECT_FILE}` of the target branch is ignored: it is too large"
                )));
            }
            FileAt::Content(bytes) => Some(bytes),
        },
        None => read(workspace, PROJECT_FILE).await?,
    };
    Ok(Ok(
        bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    ))
}

/// Why the image that the repository requests is not used.
fn refused_image(operator: &Operator<'_>, own: &ProjectFile) -> Option<String> {
    let image = own.image.as_deref()?;
    if operator.image == Some(image) {
        return None;
    }
    let why = match operator.executor.backend {
        BackendKind::Docker => {
            "is not in `command_executor.docker.allowed_images`, so the configured image was used"
        }
        BackendKind::Local => "cannot be used with the local jail",
    };
    Some(format!(
        "the image `{image:.100}` that `{PROJECT_FILE}` requests {why}"
    ))
}

fn skipped_note(executor: &CommandExecutor, installer: &Installer) -> String {
    let Installer { program, line, .. } = installer;
    match executor.backend {
        BackendKind::Docker => format!(
            "`{line}` was skipped: `{program}` is not in the image. Set `command_executor.docker.base_image` to an image that has it, or `image:` in `{PROJECT_FILE}` to one that the operator allows"
        ),
        BackendKind::Local => format!(
            "`{line}` was skipped: `{program}` is not on the worker's machine. Install it there, list its folder in `command_executor.local.read_only`, or use the Docker backend"
        ),
    }
}

async fn layout(workspace: &Workspace) -> Result<Layout, WorkspaceError> {
    let listed = workspace
        .git_listing(
            &["-c", "core.quotePath=off", "ls-files"],
            Duration::from_secs(120),
            MAX_LISTING,
        )
        .await?;
    let mut layout = Layout::parse(&String::from_utf8_lossy(&listed.stdout));
    if listed.stdout.is_cut() {
        layout.mark_incomplete();
    }
    for path in to_read(&layout) {
        if let Some(bytes) = read(workspace, &path).await? {
            layout.add_text(path, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    Ok(layout)
}

/// The files whose text matters, as paths.
fn to_read(layout: &Layout) -> Vec<String> {
    let outermost = READ_OUTERMOST.iter().flat_map(|name| {
        let is_outermost = move |path: &String| {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            !layout.above(folder, |above| layout.has(above, name))
        };
        let paths = layout.paths(name).into_iter();
        paths.filter(is_outermost).take(MAX_OUTERMOST)
    });
    // In a repository of many packages, those of its root first.
    let mut others: Vec<String> = READ.iter().flat_map(|name| layout.paths(name)).collect();
    others.sort_by_key(|path| path.matches('/').count());
    outermost.chain(others).take(MAX_READ).collect()
}

/// The programs that the sandbox does not have, as [`setup::probe`] prints them.
async fn missing_programs(
    workspace: &Workspace,
    probes: &[String],
) -> Result<Vec<String>, WorkspaceError> {
    if probes.is_empty() {
        return Ok(Vec::new());
    }
    let probed = workspace
        .shell(&probes.join("\n"), Duration::from_secs(120), MAX_FILE)
        .await?;
    let missing = String::from_utf8_lossy(&probed.stdout);
    Ok(missing.lines().map(str::to_owned).collect())
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
    fn of_nested_manifests_of_cargo_only_the_outermost_is_read() {
        let layout = Layout::parse(
            "app/Cargo.toml\napp/crates/a/Cargo.toml\napp/crates/a/Makefile\ntool/Cargo.toml\n",
        );
        assert_eq!(
            to_read(&layout),
            ["app/Cargo.toml", "tool/Cargo.toml", "app/crates/a/Makefile"]
        );
    }

    #[test]
    fn in_a_repository_of_many_packages_the_root_is_read_first() {
        let packages = (0..100).map(|n| format!("packages/p{n}/package.json\n"));
        let layout = Layout::parse(&format!("{}Makefile\n", packages.collect::<String>()));
        let read = to_read(&layout);
        assert_eq!((read.len(), &*read[0]), (MAX_READ, "Makefile"));
    }
}
