//! Which package manager a Node project uses.

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

    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pnpm => "pnpm",
            Self::YarnClassic | Self::YarnBerry => "yarn",
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

    /// Runs the script `test`.
    pub(super) fn test(self) -> &'static str {
        match self {
            Self::Npm => "npm test --silent",
            Self::Pnpm => "pnpm test",
            Self::YarnClassic | Self::YarnBerry => "yarn test",
            Self::Bun => "bun run test",
        }
    }
}

/// The command that runs the script `test` of a workspace's members, if the root has none of its own.
pub(super) fn test_of_members(layout: &Layout, folder: &str) -> Option<&'static str> {
    let (manager, _) = NodeManager::of(layout, folder)?;
    let prefix = match folder {
        "" => String::new(),
        folder => format!("{folder}/"),
    };
    let is_member = |member: &str| member != folder && member.starts_with(&prefix);
    let has_tests = layout
        .folders()
        .any(|member| is_member(member) && has_test(layout, member));
    if has_test(layout, folder) || !is_workspace(layout, folder) || !has_tests {
        return None;
    }
    match manager {
        NodeManager::Npm => Some("npm test --silent --workspaces --if-present"),
        NodeManager::Pnpm => Some("pnpm --recursive test"),
        // Theirs fail if one member has no tests.
        NodeManager::YarnClassic | NodeManager::YarnBerry | NodeManager::Bun => None,
    }
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
    let declares = |package: &serde_json::Value| !package["workspaces"].is_null();
    layout.has(folder, "pnpm-workspace.yaml") || layout.package(folder).is_some_and(declares)
}

/// Whether package.json has a script `test` other than the one that `npm init` writes.
pub(super) fn has_test(layout: &Layout, folder: &str) -> bool {
    let script = layout
        .package(folder)
        .and_then(|package| package["scripts"]["test"].as_str());
    script.is_some_and(|script| !script.contains("no test specified"))
}
