//! Which package manager a Node project uses.

use serde_json::Value;

use super::layout::Layout;

/// A package manager of Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeManager {
    Npm,
    Pnpm,
    YarnClassic,
    YarnBerry,
    Bun,
}

/// A Yarn that is not the 1.22 of the official images of Node, which refuses the projects of newer ones unless they bring their own
/// (`yarnPath`).
pub(super) const NEWER_YARN: &str = "yarn 2 or newer";

/// Its lock file decides, then `packageManager` of package.json.
const LOCK_FILES: [(&str, NodeManager); 6] = [
    ("pnpm-lock.yaml", NodeManager::Pnpm),
    ("yarn.lock", NodeManager::YarnClassic),
    ("bun.lock", NodeManager::Bun),
    ("bun.lockb", NodeManager::Bun),
    ("package-lock.json", NodeManager::Npm),
    ("npm-shrinkwrap.json", NodeManager::Npm),
];

impl NodeManager {
    /// The manager of the project in `folder`, and whether it has a lock file. `None` if the folder has
    /// no package.json, or belongs to the workspace of a folder above it and has no lock file.
    pub(super) fn of(layout: &Layout, folder: &str) -> Option<(Self, bool)> {
        let locked = LOCK_FILES.iter().find(|(name, _)| layout.has(folder, name));
        let is_member =
            locked.is_none() && layout.above(folder, |above| is_workspace(layout, above));
        if !layout.has(folder, "package.json") || is_member {
            return None;
        }
        let manager = match locked {
            Some((_, manager)) => *manager,
            None => declared(layout, folder).unwrap_or(Self::Npm),
        };
        let manager = match manager {
            Self::YarnClassic
                if layout.has(folder, ".yarnrc.yml")
                    || declared(layout, folder) == Some(Self::YarnBerry) =>
            {
                Self::YarnBerry
            }
            manager => manager,
        };
        Some((manager, locked.is_some()))
    }

    /// What has to be there to install its projects.
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pnpm => "pnpm",
            Self::YarnClassic => "yarn",
            Self::YarnBerry => NEWER_YARN,
            Self::Bun => "bun",
        }
    }

    /// Installs what the lock file lists, or what package.json lists, without changing either.
    pub(super) fn install(self, locked: bool) -> &'static str {
        match (self, locked) {
            (Self::Npm, true) => "npm ci --no-audit --no-fund",
            (Self::Npm, false) => "npm install --no-package-lock --no-audit --no-fund",
            (Self::Pnpm, true) => "pnpm install --frozen-lockfile",
            (Self::Pnpm, false) => "pnpm install --lockfile=false",
            (Self::YarnClassic, true) => "yarn install --frozen-lockfile --non-interactive",
            (Self::YarnClassic, false) => "yarn install --no-lockfile --non-interactive",
            (Self::YarnBerry, true) => "yarn install --immutable",
            (Self::YarnBerry, false) => "yarn install",
            (Self::Bun, true) => "bun install --frozen-lockfile",
            (Self::Bun, false) => "bun install --no-save",
        }
    }

    /// Runs the script `test`, so that it ends: `script` may watch the files for as long as a developer works.
    fn test(self, script: &str) -> String {
        let test = self.plain_test();
        let last = script.rsplit("&&").next().unwrap_or(script);
        let has = |word: &str| last.split_whitespace().any(|it| it == word);
        let is_angular = last.trim_start().starts_with("ng test") || last.contains(" ng test");
        let option = if last.contains("jest") && has("--watchAll") {
            "--watchAll=false"
        } else if last.contains("jest") && has("--watch") || is_angular && !last.contains("watch") {
            "--watch=false"
        } else {
            return format!("{}{test}", ci(script));
        };
        // Of two values, the last one counts. npm takes an option before `--` for its own.
        let separator = if self == Self::Npm { " --" } else { "" };
        format!("{test}{separator} {option}")
    }

    fn plain_test(self) -> &'static str {
        match self {
            Self::Npm => "npm test --silent",
            Self::Pnpm => "pnpm test",
            Self::YarnClassic | Self::YarnBerry => "yarn test",
            Self::Bun => "bun run test",
        }
    }
}

/// The scripts of Create React App, and those that use them, watch unless a CI service runs them.
const WATCH_UNLESS_CI: [&str; 3] = ["react-scripts test", "react-app-rewired test", "craco test"];

fn ci(script: &str) -> &'static str {
    let is_watching = WATCH_UNLESS_CI.iter().any(|it| script.contains(it));
    match is_watching && !script.contains("CI=") && !script.contains("--watch") {
        true => "CI=true ",
        false => "",
    }
}

/// The command that runs the script `test` of a folder that is no member of a workspace.
pub(super) fn test(layout: &Layout, folder: &str) -> Option<String> {
    let (manager, _) = NodeManager::of(layout, folder)?;
    Some(manager.test(script(layout, folder)?))
}

/// The command that runs the script `test` of a workspace's members, if the root has none of its own.
pub(super) fn test_of_members(layout: &Layout, folder: &str) -> Option<String> {
    let (manager, _) = NodeManager::of(layout, folder)?;
    if script(layout, folder).is_some() || !is_workspace(layout, folder) {
        return None;
    }
    let prefix = match folder {
        "" => String::new(),
        folder => format!("{folder}/"),
    };
    let members = layout
        .folders()
        .filter(|member| *member != folder && member.starts_with(&prefix));
    let scripts = members.filter_map(|member| script(layout, member));
    // If it is needed for one of them, all get it.
    let ci = scripts.map(ci).max()?;
    match manager {
        NodeManager::Npm => Some(format!("{ci}npm test --silent --workspaces --if-present")),
        NodeManager::Pnpm => Some(format!("{ci}pnpm --recursive test")),
        // Theirs fail if one member has no tests.
        NodeManager::YarnClassic | NodeManager::YarnBerry | NodeManager::Bun => None,
    }
}

/// The command that runs the script `test` of a member of a workspace, if nothing else does: its root has none, and its
/// manager cannot run those of all members.
pub(super) fn test_of_member(layout: &Layout, folder: &str) -> Option<String> {
    let script_of_member = script(layout, folder)?;
    let mut root = folder;
    while root == folder || !is_workspace(layout, root) {
        if root.is_empty() {
            return None;
        }
        root = root.rsplit_once('/').map_or("", |(above, _)| above);
    }
    let (manager, _) = NodeManager::of(layout, root)?;
    let is_apart = NodeManager::of(layout, folder).is_some();
    if is_apart || script(layout, root).is_some() || !has_member(layout, root, folder) {
        return None;
    }
    match manager {
        NodeManager::Npm | NodeManager::Pnpm => None,
        NodeManager::YarnClassic | NodeManager::YarnBerry | NodeManager::Bun => {
            Some(manager.test(script_of_member))
        }
    }
}

/// Whether package.json of `root` names the folder as a member: `["packages/*"]` or `{"packages": ["packages/*"]}`.
fn has_member(layout: &Layout, root: &str, folder: &str) -> bool {
    let path = folder.strip_prefix(root).unwrap_or(folder);
    let path = path.trim_start_matches('/');
    let named = layout.package(root).map(|package| &package["workspaces"]);
    let named = named.and_then(|named| named.as_array().or_else(|| named["packages"].as_array()));
    let mut patterns = named.into_iter().flatten().filter_map(Value::as_str);
    patterns.any(|pattern| matches(pattern, path))
}

/// Whether a pattern of whole names, `*` and `**` matches a path.
fn matches(pattern: &str, path: &str) -> bool {
    let pattern = pattern.trim_start_matches("./").trim_end_matches('/');
    let mut names = path.split('/');
    for part in pattern.split('/') {
        match names.next() {
            Some(_) if part == "**" => return true,
            Some(name) if part == "*" || part == name => {}
            Some(_) | None => return false,
        }
    }
    names.next().is_none()
}

fn declared(layout: &Layout, folder: &str) -> Option<NodeManager> {
    let named = layout.package(folder)?["packageManager"].as_str()?;
    let (name, version) = named.split_once('@').unwrap_or((named, ""));
    match name {
        "npm" => Some(NodeManager::Npm),
        "pnpm" => Some(NodeManager::Pnpm),
        "yarn" if version.starts_with("1.") => Some(NodeManager::YarnClassic),
        "yarn" => Some(NodeManager::YarnBerry),
        "bun" => Some(NodeManager::Bun),
        _ => None,
    }
}

fn is_workspace(layout: &Layout, folder: &str) -> bool {
    let declares = |package: &Value| !package["workspaces"].is_null();
    layout.has(folder, "pnpm-workspace.yaml") || layout.package(folder).is_some_and(declares)
}

/// The script `test` of package.json, unless it is the one that `npm init` writes.
fn script<'a>(layout: &'a Layout, folder: &str) -> Option<&'a str> {
    let script = layout
        .package(folder)
        .and_then(|package| package["scripts"]["test"].as_str());
    script.filter(|script| !script.contains("no test specified"))
}
