//! The checks of a repository that does not name any, guessed from its files.

use super::layout::{Layout, inside};
use super::setup::{gradle, maven};
use super::{declared, go, node, python};

/// More checks than this are not guessed.
const MAX_GUESSED: usize = 8;
/// A `test.sh` in one of these folders is a step of something else, such as a CI job, whose variables it needs.
const HELPERS: [&str; 9] = [
    ".ci",
    ".circleci",
    ".gitlab",
    "build",
    "ci",
    "hack",
    "script",
    "scripts",
    "tools",
];

/// Programs that few images have. Without one, the check that needs it displaces no other one.
pub(super) const OPTIONAL: [&str; 7] =
    ["cmake", "composer", "deno", "dotnet", "just", "mix", "php"];

/// The checks of the project at the root, or else those of the projects in its folders. `missing` are optional programs that
/// the sandbox does not have.
pub(super) fn guess(layout: &Layout, missing: &[String]) -> Vec<String> {
    let root = in_folder(layout, "", missing);
    if !root.is_empty() {
        return root;
    }
    let folders = layout.folders().flat_map(|folder| {
        let checks = in_folder(layout, folder, missing).into_iter();
        checks.map(move |check| inside(folder, &check))
    });
    folders.take(MAX_GUESSED).collect()
}

/// Whether a check needs one of these programs.
pub(super) fn needs_one_of<P: AsRef<str>>(programs: &[P], check: &str) -> bool {
    check
        .split_whitespace()
        .any(|word| programs.iter().any(|program| program.as_ref() == word))
}

fn in_folder(layout: &Layout, folder: &str, missing: &[String]) -> Vec<String> {
    let has = |name: &str| layout.has(folder, name);
    let can_start = |check: &String| !needs_one_of(missing, check);
    let mut checks = Vec::new();
    checks.extend(node::test(layout, folder));
    checks.extend(node::test_of_members(layout, folder));
    checks.extend(node::test_of_member(layout, folder));
    if has("Cargo.toml") && !is_cargo_member(layout, folder) {
        checks.push(cargo_test(layout, folder).into());
    }
    checks.extend(go::test(layout, folder));
    if let Some(maven) = maven(layout, folder) {
        checks.push(format!("{maven} -q -B test"));
    } else if let Some(gradle) = gradle(layout, folder) {
        checks.push(format!("{gradle} -q --no-daemon test"));
    }
    if has("Gemfile") && has("spec/") {
        checks.push("bundle exec rspec".into());
    } else if has("Rakefile") {
        let bundle = if has("Gemfile") { "bundle exec " } else { "" };
        checks.push(format!("{bundle}rake test"));
    }
    if has("test.sh") && !folder.split('/').any(|name| HELPERS.contains(&name)) {
        let text = layout.text(folder, "test.sh").unwrap_or_default();
        checks.push(format!("{} ./test.sh", interpreter(text)));
    }
    checks.extend(python::test(layout, folder).map(str::to_owned));
    checks.extend(declared::composer(layout, folder).map(str::to_owned));
    checks.extend(declared::dotnet(layout, folder));
    if declared::is_mix_project(layout, folder) && has("test/") {
        checks.push("mix test".into());
    }
    checks.retain(can_start);
    if checks.is_empty() {
        checks.extend(of_build_tools(layout, folder).find(can_start));
    }
    checks
}

/// The interpreter that the first line of a script names, with its options, which may matter: with `-e` a script fails
/// where it otherwise passes. `sh` if it names none, or something other than plain words.
fn interpreter(script: &str) -> String {
    let plain = |word: &&str| {
        let known = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
        word.chars().all(known)
    };
    let line = script.lines().next().unwrap_or_default();
    let mut words = line
        .strip_prefix("#!")
        .unwrap_or_default()
        .split_whitespace();
    // By its name, since its path may be another one in the sandbox.
    let name = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let mut program = words.next().map(name).unwrap_or_default();
    if program == "env" {
        program = words
            .find(|word| *word != "-S")
            .map(name)
            .unwrap_or_default();
    }
    let words: Vec<&str> = std::iter::once(program.as_str()).chain(words).collect();
    if program.is_empty() || program.starts_with('-') || !words.iter().all(plain) {
        return "sh".to_owned();
    }
    words.join(" ")
}

/// In a workspace whose root is a package too, cargo tests that package alone, unless the workspace names other members.
fn cargo_test(layout: &Layout, folder: &str) -> &'static str {
    let text = layout.text(folder, "Cargo.toml").unwrap_or_default();
    let has = |start: &str| {
        text.lines()
            .any(|line| line.trim_start().starts_with(start))
    };
    match has("[package]") && has("[workspace]") && !has("default-members") {
        true => "cargo test --workspace",
        false => "cargo test",
    }
}

/// Whether the folder is in a workspace, whose check tests it too. What is excluded from one has its own lock file.
fn is_cargo_member(layout: &Layout, folder: &str) -> bool {
    let is_workspace = |above: &str| {
        let text = layout.text(above, "Cargo.toml").unwrap_or_default();
        let has = |start: &str| {
            text.lines()
                .any(|line| line.trim_start().starts_with(start))
        };
        has("[workspace") && !has("exclude")
    };
    !layout.has(folder, "Cargo.lock") && layout.above(folder, is_workspace)
}

/// The checks of tools that may be wrappers around others: one is enough.
fn of_build_tools(layout: &Layout, folder: &str) -> impl Iterator<Item = String> {
    let checks = [
        make_targets(layout, folder),
        declared::just(layout, folder).map(str::to_owned),
        declared::deno(layout, folder).map(str::to_owned),
        declared::cmake(layout, folder),
    ];
    checks.into_iter().flatten()
}

/// Both, where there are both: `check` may run only a linter. If it runs `test`, make does not repeat that.
fn make_targets(layout: &Layout, folder: &str) -> Option<String> {
    let text = layout.text(folder, "Makefile")?;
    let has = |target: &&str| text.lines().any(|l| l.starts_with(&format!("{target}:")));
    let targets: Vec<&str> = ["check", "test"].into_iter().filter(has).collect();
    (!targets.is_empty()).then(|| format!("make {}", targets.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guessed(listing: &str, texts: &[(&str, &str)]) -> Vec<String> {
        let mut layout = Layout::parse(listing);
        for (path, text) in texts {
            layout.add_text((*path).into(), (*text).into());
        }
        guess(&layout, &[])
    }

    #[test]
    fn the_test_script_from_npm_init_is_not_a_check() {
        let init = r#"{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}"#;
        assert!(guessed("package.json", &[("package.json", init)]).is_empty());
        let jest = r#"{"scripts":{"test":"jest"}}"#;
        assert_eq!(
            guessed("package.json", &[("package.json", jest)]),
            ["npm test --silent"]
        );
        assert_eq!(
            guessed("package.json\npnpm-lock.yaml", &[("package.json", jest)]),
            ["pnpm test"]
        );
    }

    #[test]
    fn the_members_of_a_node_workspace_are_checked_if_its_root_has_no_check() {
        let root = ("package.json", r#"{"workspaces":["packages/*"]}"#);
        let member = ("packages/a/package.json", r#"{"scripts":{"test":"jest"}}"#);
        let files = "package.json\npackages/a/package.json";
        assert_eq!(
            guessed(files, &[root, member]),
            ["npm test --silent --workspaces --if-present"]
        );
        assert!(guessed(files, &[root]).is_empty());
        let tested = r#"{"workspaces":["packages/*"],"scripts":{"test":"jest"}}"#;
        assert_eq!(
            guessed(files, &[("package.json", tested), member]),
            ["npm test --silent"]
        );
    }

    #[test]
    fn the_members_of_a_yarn_or_bun_workspace_are_checked_one_by_one() {
        let member = r#"{"scripts":{"test":"jest"}}"#;
        let files = "package.json\nLOCK\npackages/a/package.json\npackages/b/package.json\nother/package.json";
        let texts = |root| {
            [
                ("package.json", root),
                ("packages/a/package.json", member),
                ("packages/b/package.json", "{}"),
                ("other/package.json", member),
            ]
        };
        let listed = r#"{"workspaces":["./packages/*"]}"#;
        let nested = r#"{"workspaces":{"packages":["packages/**"]}}"#;
        for (lock, check) in [("yarn.lock", "yarn test"), ("bun.lock", "bun run test")] {
            for root in [listed, nested] {
                let files = files.replace("LOCK", lock);
                let check = format!("cd packages/a && {check}");
                assert_eq!(guessed(&files, &texts(root)), [check], "{root}");
            }
        }
        let tested = r#"{"workspaces":["packages/*"],"scripts":{"test":"turbo test"}}"#;
        let files = files.replace("LOCK", "yarn.lock");
        assert_eq!(guessed(&files, &texts(tested)), ["yarn test"]);
    }

    #[test]
    fn a_test_script_that_watches_the_files_is_run_once() {
        for (script, npm, yarn) in [
            (
                "react-scripts test",
                "CI=true npm test --silent",
                "CI=true yarn test",
            ),
            (
                "react-scripts test --watchAll=false",
                "npm test --silent",
                "yarn test",
            ),
            (
                "jest --watchAll",
                "npm test --silent -- --watchAll=false",
                "yarn test --watchAll=false",
            ),
            (
                "tsc && jest --watch",
                "npm test --silent -- --watch=false",
                "yarn test --watch=false",
            ),
            (
                "ng test",
                "npm test --silent -- --watch=false",
                "yarn test --watch=false",
            ),
            ("ng test --no-watch", "npm test --silent", "yarn test"),
            ("ng test && eslint .", "npm test --silent", "yarn test"),
        ] {
            let package = serde_json::json!({"scripts": {"test": script}}).to_string();
            let texts = [("package.json", package.as_str())];
            assert_eq!(guessed("package.json", &texts), [npm], "{script}");
            let files = "package.json\nyarn.lock";
            assert_eq!(guessed(files, &texts), [yarn], "{script}");
        }
        let root = ("package.json", r#"{"workspaces":["web"]}"#);
        let member = r#"{"scripts":{"test":"react-scripts test"}}"#;
        let texts = [root, ("web/package.json", member)];
        assert_eq!(
            guessed("package.json\nweb/package.json", &texts),
            ["CI=true npm test --silent --workspaces --if-present"]
        );
    }

    #[test]
    fn all_members_of_a_cargo_workspace_are_tested() {
        for (manifest, check) in [
            (
                "[package]\nname = \"a\"\n\n[workspace]\nmembers = [\"b\"]\n",
                "cargo test --workspace",
            ),
            ("[workspace]\nmembers = [\"b\"]\n", "cargo test"),
            ("[package]\nname = \"a\"\n", "cargo test"),
            (
                "[workspace]\ndefault-members = [\"b\"]\n[package]\nname = \"a\"\n",
                "cargo test",
            ),
        ] {
            let texts = [("Cargo.toml", manifest)];
            assert_eq!(guessed("Cargo.toml\nb/Cargo.toml", &texts), [check]);
        }
    }

    #[test]
    fn a_cargo_workspace_in_a_folder_is_tested_once_and_displaces_no_other_check() {
        let members: String = (0..MAX_GUESSED)
            .map(|member| format!("api/crates/m{member}/Cargo.toml\n"))
            .collect();
        let files = format!(
            "{members}api/Cargo.toml\nweb/package.json\napi/fuzz/Cargo.toml\napi/fuzz/Cargo.lock"
        );
        let texts = [
            ("api/Cargo.toml", "[workspace]\n[package]\nname = \"api\"\n"),
            ("web/package.json", r#"{"scripts":{"test":"jest"}}"#),
        ];
        assert_eq!(
            guessed(&files, &texts),
            [
                "cd api && cargo test --workspace",
                "cd api/fuzz && cargo test",
                "cd web && npm test --silent"
            ]
        );
    }

    #[test]
    fn a_makefile_counts_only_if_nothing_else_is_known() {
        let make = [("Makefile", "all:\n\tcc x.c\ncheck: all\n\t./x\n")];
        assert_eq!(guessed("Makefile\nx.c", &make), ["make check"]);
        assert_eq!(guessed("Makefile\ngo.mod", &make), ["go test ./..."]);
        let both = [("Makefile", "check: lint\ntest:\n\t./x\n")];
        assert_eq!(guessed("Makefile", &both), ["make check test"]);
        let just = [("justfile", "test:\n\t./x\n")];
        assert_eq!(guessed("justfile", &just), ["just test"]);
        assert_eq!(
            guessed("justfile\nMakefile", &[just[0], make[0]]),
            ["make check"]
        );
    }

    #[test]
    fn a_check_whose_program_is_missing_displaces_no_other() {
        let mut layout = Layout::parse("App.sln\njustfile\nMakefile\nweb/go.mod");
        layout.add_text("justfile".into(), "test:\n".into());
        assert_eq!(guess(&layout, &[]), ["dotnet test App.sln"]);
        assert_eq!(guess(&layout, &["dotnet".to_owned()]), ["just test"]);
        let missing = ["dotnet", "just"].map(str::to_owned);
        assert_eq!(guess(&layout, &missing), ["cd web && go test ./..."]);
        assert!(needs_one_of(&OPTIONAL, "cd a && mix test"));
        assert!(!needs_one_of(&OPTIONAL, "cd a && npm test"));
    }

    #[test]
    fn a_workspace_of_go_and_an_umbrella_of_elixir_are_checked_once() {
        let work = [("go.work", "use (\n\t./a\n\t./b\n)\n")];
        assert_eq!(
            guessed("go.work\na/go.mod\nb/go.mod", &work),
            ["go test ./a/... ./b/..."]
        );
        let umbrella =
            "web/mix.exs\nweb/test/a_test.exs\nweb/apps/b/mix.exs\nweb/apps/b/test/b_test.exs";
        assert_eq!(guessed(umbrella, &[]), ["cd web && mix test"]);
    }

    #[test]
    fn a_script_is_run_by_the_interpreter_and_the_options_that_it_names() {
        for (first, check) in [
            ("#!/usr/bin/env bash", "bash ./test.sh"),
            ("#!/bin/sh -eu", "sh -eu ./test.sh"),
            ("#! /usr/local/bin/bash -e\r", "bash -e ./test.sh"),
            (
                "#!/usr/bin/env -S bash -euo pipefail",
                "bash -euo pipefail ./test.sh",
            ),
            ("#!/usr/bin/env python3", "python3 ./test.sh"),
            ("set -e", "sh ./test.sh"),
            ("#!", "sh ./test.sh"),
            ("#!/bin/", "sh ./test.sh"),
            ("#!/usr/bin/env -i bash", "sh ./test.sh"),
            ("#!/bin/sh;reboot", "sh ./test.sh"),
            ("#!/bin/sh $(reboot)", "sh ./test.sh"),
        ] {
            let text = format!("{first}\nexit 0\n");
            assert_eq!(
                guessed("test.sh", &[("test.sh", &text)]),
                [check],
                "{first}"
            );
        }
    }

    #[test]
    fn a_step_of_a_ci_job_is_not_a_check() {
        assert!(guessed("CMakeLists.txt\nci/test.sh\nscripts/linux/test.sh", &[]).is_empty());
        assert_eq!(guessed("api/test.sh", &[]), ["cd api && sh ./test.sh"]);
    }

    #[test]
    fn the_folders_of_a_monorepo_are_checked_if_the_root_has_no_check() {
        assert_eq!(
            guessed(
                "api/go.mod\njobs/requirements.txt\njobs/tests/test_a.py",
                &[]
            ),
            ["cd api && go test ./...", "cd jobs && python3 -m pytest -q"]
        );
    }
}
