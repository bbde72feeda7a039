//! What a fleet must not leave behind: sandboxes, processes, files.

use std::path::Path;

use agentmine_domain::Task;
use anyhow::Context as _;

use super::{Broken, Finding};
use crate::chaos::fleet::{Fleet, SandboxKind};

/// How the names of sandboxes begin that were started for no task.
const SPARE: &str = "coding-agent-exec-spare-";

/// Which sandboxes are looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// Those that a sweep removes: of tasks, and those that were started ahead by a process that ended.
    TheEnded,
    /// Those too that a process started ahead, and no task has taken.
    All,
}

/// Names of the sandboxes that are there although nobody works in them, or will.
pub(super) async fn to_be_swept(fleet: &Fleet, tasks: &[Task]) -> anyhow::Result<Vec<String>> {
    sandboxes(fleet, tasks, Of::TheEnded).await
}

async fn sandboxes(fleet: &Fleet, tasks: &[Task], of: Of) -> anyhow::Result<Vec<String>> {
    match fleet.setup.sandbox {
        SandboxKind::Local => {
            let jails = fleet.state.join("agentmine/sandboxes");
            let entries = std::fs::read_dir(jails).into_iter().flatten().flatten();
            Ok(entries
                .filter(|entry| of == Of::All || !is_kept(&entry.path()))
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .filter(|name| name.starts_with("coding-agent-exec-"))
                .collect())
        }
        SandboxKind::Docker => {
            let engine = fleet.engine.as_ref().context("a fleet without an engine")?;
            let format = "{{.Names}} {{.State}}";
            let listed = engine.docker(&["ps", "-a", "--format", format]).await?;
            // Those of an engine that others use too may be theirs.
            let counts = |line: &str| {
                let has_ended = ["exited", "dead"].iter().any(|it| line.ends_with(it));
                engine.is_own() && line.starts_with(SPARE) && (of == Of::All || has_ended)
            };
            let is_ours = |line: &&str| {
                tasks.iter().any(|task| line.contains(&task.id.to_string())) || counts(line)
            };
            Ok(listed.lines().filter(is_ours).map(str::to_owned).collect())
        }
    }
}

/// Whether the jail in this folder belongs to no task, and to a process that lives: it holds a lock.
fn is_kept(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let record = std::fs::read_to_string(folder.join("sandbox.json")).unwrap_or_default();
    let is_spare = name.starts_with(SPARE) && !record.contains("\"name\":");
    let held = std::fs::File::open(folder.join("held"));
    is_spare && held.is_ok_and(|lock| lock.try_lock_shared().is_err())
}

/// Volumes that belong to no container, if the engine is the suite's own, except those that the programs of all
/// sandboxes are in. They are removed, so that they are
/// not held against the next seed too.
async fn volumes(fleet: &Fleet) -> anyhow::Result<Vec<String>> {
    let Some(engine) = fleet.engine.as_ref().filter(|it| it.is_own()) else {
        return Ok(Vec::new());
    };
    let args = ["volume", "ls", "-q", "--filter", "dangling=true"];
    let unused = engine.docker(&args).await?;
    let left = |volume: &&str| !volume.starts_with("agentmine-programs-");
    let left: Vec<_> = unused.lines().filter(left).map(str::to_owned).collect();
    for volume in &left {
        engine.docker(&["volume", "rm", volume]).await?;
    }
    Ok(left)
}

/// Everything that is left once the programs have ended.
pub(super) async fn find(fleet: &Fleet, tasks: &[Task]) -> anyhow::Result<Vec<Finding>> {
    let mut found = Vec::new();
    for name in sandboxes(fleet, tasks, Of::All).await? {
        found.push(format!("the sandbox {name}"));
    }
    for name in volumes(fleet).await? {
        found.push(format!("the volume {name}"));
    }
    for entry in std::fs::read_dir(fleet.folder.join("tmp"))?.flatten() {
        let path = entry.path();
        let within = std::fs::read_dir(&path).into_iter().flatten().flatten();
        let within: Vec<_> = within.map(|entry| entry.file_name()).collect();
        // Its process was killed before it had the lock: such a folder is removed after ten minutes.
        let is_in_the_making = path.is_dir() && within.iter().all(|name| name == "part");
        if !is_in_the_making {
            found.push(format!("the file {} with {within:?}", path.display()));
        }
    }
    found.extend(processes(fleet));
    let finding = |what| Finding::new(Broken::Left, format!("{what} is left"));
    Ok(found.into_iter().map(finding).collect())
}

/// Processes whose environment or command line names one of the fleet's folders.
fn processes(fleet: &Fleet) -> Vec<String> {
    let folders = [&fleet.folder, &fleet.state].map(|it| it.display().to_string());
    let is_named = |text: &str| folders.iter().any(|folder| text.contains(folder.as_str()));
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid == own || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let text = |name: &str| {
            let bytes = std::fs::read(entry.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let (line, environment) = (text("cmdline"), text("environ"));
        if is_named(&line) || is_named(&environment) {
            found.push(format!("the process {pid} ({})", line.trim()));
        }
    }
    found
}
