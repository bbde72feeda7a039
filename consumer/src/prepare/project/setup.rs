//! The commands that install a project's dependencies, chosen by its files (spec 001 §5.3).
//!
//! A lock file decides which package manager is used. Members of a workspace are installed by its root.

use super::layout::{Layout, inside};
use super::node::NodeManager;
use super::{other, python};

/// More projects than this in one repository are not installed.
const MAX_INSTALLERS: usize = 16;

/// A command that installs dependencies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Installer {
    /// The program that it needs.
    pub(super) program: &'static str,
    /// The shell command, to be run in the project's folder.
    pub(super) line: String,
}

/// All installers of a repository.
pub(super) fn installers(layout: &Layout) -> Vec<Installer> {
    let found = layout.folders().flat_map(|folder| {
        let commands = in_folder(layout, folder).into_iter();
        commands.map(move |(program, command)| Installer {
            program,
            line: inside(folder, &command),
        })
    });
    found.take(MAX_INSTALLERS).collect()
}

fn in_folder(layout: &Layout, folder: &str) -> Vec<(&'static str, String)> {
    let has = |name: &str| layout.has(folder, name);
    let above = |name: &str| layout.above(folder, |above| layout.has(above, name));
    let mut found: Vec<(&'static str, String)> = Vec::new();
    if let Some((manager, locked)) = NodeManager::of(layout, folder) {
        found.push((manager.program(), manager.install(locked).into()));
    }
    found.extend(python::installers(layout, folder));
    if has("go.work") || (has("go.mod") && !above("go.work")) {
        found.push(("go", "go mod download".into()));
    }
    // Without a lock file `cargo test` resolves and fetches by itself.
    if has("Cargo.lock") {
        found.push(("cargo", "cargo fetch --locked".into()));
    }
    if let Some(maven) = maven(layout, folder) {
        let program = if maven == "mvn" { "mvn" } else { "java" };
        // Resolves plugins as well, and works with modules that depend on each other.
        found.push((program, format!("{maven} -q -B -DskipTests test-compile")));
    } else if let Some(gradle) = gradle(layout, folder) {
        let program = if gradle == "gradle" { "gradle" } else { "java" };
        found.push((program, format!("{gradle} -q --no-daemon testClasses")));
    }
    if has("Gemfile") {
        found.push(("bundle", "bundle install --quiet".into()));
    }
    if has("composer.json") && (has("composer.lock") || !above("composer.json")) {
        let install = "composer install --quiet --no-interaction --no-progress";
        found.push(("composer", install.into()));
    }
    if other::is_mix_project(layout, folder) {
        let install = "mix local.hex --force --if-missing && mix deps.get";
        found.push(("mix", install.into()));
    }
    found
}

/// The command of a Maven project that no folder above contains; its own wrapper if it has one.
pub(super) fn maven(layout: &Layout, folder: &str) -> Option<&'static str> {
    let is_own = layout.has(folder, "pom.xml")
        && !layout.above(folder, |above| layout.has(above, "pom.xml"));
    is_own.then(|| {
        if layout.has(folder, "mvnw") {
            "sh ./mvnw"
        } else {
            "mvn"
        }
    })
}

/// The command of a Gradle build that no folder above contains; its own wrapper if it has one.
pub(super) fn gradle(layout: &Layout, folder: &str) -> Option<&'static str> {
    let builds = |folder: &str| {
        [
            "settings.gradle",
            "settings.gradle.kts",
            "build.gradle",
            "build.gradle.kts",
        ]
        .iter()
        .any(|name| layout.has(folder, name))
    };
    (builds(folder) && !layout.above(folder, builds)).then(|| {
        if layout.has(folder, "gradlew") {
            "sh ./gradlew"
        } else {
            "gradle"
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(listing: &str, texts: &[(&str, &str)]) -> Vec<String> {
        let mut layout = Layout::parse(listing);
        for (path, text) in texts {
            layout.add_text((*path).into(), (*text).into());
        }
        installers(&layout).into_iter().map(|i| i.line).collect()
    }

    #[test]
    fn the_lock_file_chooses_the_package_manager() {
        for (files, expected) in [
            (
                "package.json\npnpm-lock.yaml",
                "pnpm install --frozen-lockfile",
            ),
            (
                "package.json\nyarn.lock",
                "yarn install --frozen-lockfile --non-interactive",
            ),
            (
                "package.json\nyarn.lock\n.yarnrc.yml",
                "yarn install --immutable",
            ),
            (
                "package.json\npackage-lock.json",
                "npm ci --no-audit --no-fund",
            ),
            ("pyproject.toml\nuv.lock", "uv sync --frozen"),
            (
                "pyproject.toml\npoetry.lock",
                "poetry install --no-interaction",
            ),
            ("go.mod", "go mod download"),
            ("Cargo.toml\nCargo.lock", "cargo fetch --locked"),
            ("pom.xml", "mvn -q -B -DskipTests test-compile"),
            ("pom.xml\nmvnw", "sh ./mvnw -q -B -DskipTests test-compile"),
            ("build.gradle.kts", "gradle -q --no-daemon testClasses"),
            (
                "build.gradle\ngradlew",
                "sh ./gradlew -q --no-daemon testClasses",
            ),
            ("Gemfile", "bundle install --quiet"),
            (
                "composer.json",
                "composer install --quiet --no-interaction --no-progress",
            ),
            (
                "mix.exs\napps/a/mix.exs",
                "mix local.hex --force --if-missing && mix deps.get",
            ),
        ] {
            assert_eq!(lines(files, &[]), [expected], "{files}");
        }
        assert!(lines("README.md\nCargo.toml", &[]).is_empty());
    }

    #[test]
    fn without_a_lock_file_package_json_names_the_manager() {
        let declared = [("package.json", r#"{"packageManager":"pnpm@10.1.0"}"#)];
        assert_eq!(
            lines("package.json", &declared),
            ["pnpm install --lockfile=false"]
        );
        assert_eq!(
            lines("package.json", &[]),
            ["npm install --no-package-lock --no-audit --no-fund"]
        );
    }

    #[test]
    fn the_root_of_a_workspace_installs_its_members() {
        let files = "package.json\npackage-lock.json\npackages/a/package.json\napi/go.mod\ngo.work\ntools/go.mod\npom.xml\nmodule/pom.xml";
        let texts = [("package.json", r#"{"workspaces":["packages/*"]}"#)];
        assert_eq!(
            lines(files, &texts),
            [
                "npm ci --no-audit --no-fund",
                "go mod download",
                "mvn -q -B -DskipTests test-compile"
            ]
        );
    }

    #[test]
    fn independent_projects_of_a_monorepo_are_installed_in_their_folders() {
        assert_eq!(
            lines(
                "api/go.mod\nweb/package.json\nweb/yarn.lock\njobs/requirements.txt",
                &[]
            ),
            [
                "cd api && go mod download",
                "cd jobs && python3 -m pip install -q -r requirements.txt",
                "cd web && yarn install --frozen-lockfile --non-interactive"
            ]
        );
    }
}
