//! The commands that install a project's dependencies, chosen by its files (spec 001 §5.3).
//!
//! A lock file decides which package manager is used. Members of a workspace are installed by its root.

use std::collections::{BTreeMap, BTreeSet};

use super::layout::{Layout, inside};
use super::node::{NEWER_YARN, NodeManager};
use super::{declared, python};

/// More projects than this in one repository are not installed.
const MAX_INSTALLERS: usize = 16;
/// The program that provides other package managers of Node.
pub(super) const COREPACK: &str = "corepack";
/// What it provides, and the program's name.
const PROVIDED: [(&str, &str); 3] = [("pnpm", "pnpm"), ("yarn", "yarn"), (NEWER_YARN, "yarn")];

/// A command that installs dependencies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Installer {
    /// The program that it needs.
    pub(super) program: &'static str,
    /// The shell command that prints the program's name if it is missing.
    pub(super) probe: String,
    /// The shell command, to be run in the project's folder.
    pub(super) line: String,
}

/// All installers of a repository.
pub(super) fn installers(layout: &Layout) -> Vec<Installer> {
    let found = layout.folders().flat_map(|folder| {
        let commands = in_folder(layout, folder).into_iter();
        commands.map(move |(program, command)| Installer {
            program,
            probe: probe(program, folder),
            line: inside(folder, &command),
        })
    });
    found.take(MAX_INSTALLERS).collect()
}

/// The shell command that prints `program` if the sandbox lacks it for the project in `folder`.
pub(super) fn probe(program: &str, folder: &str) -> String {
    match program {
        "pip" => "python3 -m pip --version >/dev/null 2>&1 || echo pip".into(),
        // Which one answers depends on the folder. The link of Corepack would download it.
        NEWER_YARN => {
            let version = inside(folder, "COREPACK_ENABLE_NETWORK=0 yarn --version");
            format!("case $({version} 2>/dev/null) in ''|0.*|1.*) echo '{NEWER_YARN}';; esac")
        }
        _ => format!("command -v {program} >/dev/null || echo {program}"),
    }
}

/// Adds a command by which Corepack provides, in the home folder, the package managers that are missing: Node's own images have
/// it, and leave pnpm to it. `missing` are the programs that the sandbox does not have.
pub(super) fn with_corepack(found: Vec<Installer>, missing: &[String]) -> Vec<Installer> {
    let is_missing = |program: &str| missing.iter().any(|it| it == program);
    let is_wanted = |program: &str| found.iter().any(|installer| installer.program == program);
    let provided = PROVIDED.iter().copied();
    let provided: BTreeMap<&str, &str> = provided
        .filter(|(program, _)| is_wanted(program) && is_missing(program))
        .collect();
    if provided.is_empty() || is_missing(COREPACK) {
        return found;
    }
    let names = Vec::from_iter(provided.values().copied().collect::<BTreeSet<_>>()).join(" ");
    let enable = Installer {
        program: COREPACK,
        probe: probe(COREPACK, ""),
        line: format!(
            "bin=\"$HOME/.local/bin\"; mkdir -p \"$bin\" && corepack enable --install-directory \"$bin\" {names} && \
             for name in {names}; do COREPACK_ENABLE_STRICT=0 \"$bin/$name\" --version >/dev/null || {{ rm -f \"$bin/$name\"; exit 1; }}; done"
        ),
    };
    let others =
        found
            .into_iter()
            .map(|installer| match provided.contains_key(installer.program) {
                true => Installer {
                    program: COREPACK,
                    ..installer
                },
                false => installer,
            });
    std::iter::once(enable).chain(others).collect()
}

fn in_folder(layout: &Layout, folder: &str) -> Vec<(&'static str, String)> {
    let has = |name: &str| layout.has(folder, name);
    let above = |name: &str| layout.above(folder, |above| layout.has(above, name));
    let mut found: Vec<(&'static str, String)> = Vec::new();
    if let Some((manager, locked)) = NodeManager::of(layout, folder) {
        found.push((manager.program(), manager.install(locked).into()));
    }
    found.extend(python::installers(layout, folder));
    // Go reads committed dependencies where they are. Their hosts are often private, which is why they were committed.
    if !has("vendor/") && (has("go.work") || (has("go.mod") && !above("go.work"))) {
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
    if declared::is_mix_project(layout, folder) {
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
    use crate::testing::sh;

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
        let committed = "go.mod\nvendor/modules.txt\nvendor/example.com/a/b/c.go";
        assert!(lines(committed, &[]).is_empty());
    }

    #[test]
    fn corepack_provides_a_missing_package_manager() {
        let layout = Layout::parse("a/package.json\na/pnpm-lock.yaml\nb/go.mod");
        let of = |missing: &[&str]| {
            let missing: Vec<String> = missing.iter().map(|it| (*it).to_owned()).collect();
            let found = with_corepack(installers(&layout), &missing);
            let is_runnable = |it: &Installer| !missing.iter().any(|name| name == it.program);
            let runnable = found.into_iter().filter(is_runnable);
            runnable.map(|it| it.line).collect::<Vec<_>>()
        };
        let install = "cd a && pnpm install --frozen-lockfile";
        assert_eq!(of(&[]), [install, "cd b && go mod download"]);
        assert_eq!(of(&["pnpm", "corepack"]), ["cd b && go mod download"]);
        let [enable, then] = &of(&["pnpm", "go"])[..] else {
            panic!("there are other lines");
        };
        assert_eq!(then, install);
        // What cannot be downloaded is as if it was never provided.
        for (downloads, expected) in [("true", "done\npnpm\n"), ("false", "failed\n")] {
            let folder = tempfile::tempdir().unwrap();
            let corepack = format!(
                "#!/bin/sh\nprintf '#!/bin/sh\\n{downloads}\\n' > \"$3/$4\"\nchmod +x \"$3/$4\"\n"
            );
            std::fs::write(folder.path().join("corepack"), corepack).unwrap();
            let shown = sh(
                folder.path(),
                &format!(
                    "chmod +x corepack; HOME=$PWD PATH=$PWD:$PATH; ({enable}) && echo done || echo failed; ls .local/bin"
                ),
            );
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn corepack_provides_a_newer_yarn_than_that_of_the_image() {
        let layout = Layout::parse("a/package.json\na/yarn.lock\na/.yarnrc.yml");
        let [installer] = &installers(&layout)[..] else {
            panic!("there is one project");
        };
        let folder = tempfile::tempdir().unwrap();
        let script = |yarn: &str| {
            format!(
                "mkdir -p a; printf '%s\\n' '#!/bin/sh' '{yarn}' > yarn; chmod +x yarn; PATH=$PWD:$PATH; {}",
                installer.probe
            )
        };
        for (yarn, missing) in [
            ("echo 1.22.22", true),
            ("echo the project wants another version >&2; exit 1", true),
            ("[ $COREPACK_ENABLE_NETWORK = 0 ] && exit 1", true),
            (
                "case $PWD in */a) echo 4.5.0;; *) echo 1.22.22;; esac",
                false,
            ),
        ] {
            let expected = if missing { "yarn 2 or newer\n" } else { "" };
            assert_eq!(sh(folder.path(), &script(yarn)), expected, "{yarn}");
        }
        let missing = [NEWER_YARN.to_owned()];
        let [enable, install] = &with_corepack(vec![installer.clone()], &missing)[..] else {
            panic!("there are other lines");
        };
        assert!(enable.line.contains("corepack enable"), "{}", enable.line);
        assert!(enable.line.contains(" yarn && for name in yarn;"));
        let of = (install.program, &*install.line);
        assert_eq!(of, (COREPACK, "cd a && yarn install --immutable"));
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
