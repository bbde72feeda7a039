//! The checks of a repository that does not name any, guessed from its files.

use super::layout::{Layout, inside};
use super::node::{self, NodeManager};
use super::python;
use super::setup::{gradle, maven};

/// More checks than this are not guessed.
const MAX_GUESSED: usize = 8;

/// The checks of the project at the root, or else those of the projects in its folders.
pub(super) fn guess(layout: &Layout) -> Vec<String> {
    let root = in_folder(layout, "");
    if !root.is_empty() {
        return root;
    }
    let folders = layout.folders().flat_map(|folder| {
        let checks = in_folder(layout, folder).into_iter();
        checks.map(move |check| inside(folder, &check))
    });
    folders.take(MAX_GUESSED).collect()
}

fn in_folder(layout: &Layout, folder: &str) -> Vec<String> {
    let has = |name: &str| layout.has(folder, name);
    let mut checks = Vec::new();
    if let Some((manager, _)) = NodeManager::of(layout, folder)
        && node::has_test(layout, folder)
    {
        checks.push(manager.test().to_owned());
    }
    checks.extend(node::test_of_members(layout, folder).map(str::to_owned));
    if has("Cargo.toml") {
        checks.push("cargo test".into());
    }
    if has("go.mod") {
        checks.push("go test ./...".into());
    }
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
    if has("test.sh") {
        checks.push("sh ./test.sh".into());
    }
    checks.extend(python::test(layout, folder).map(str::to_owned));
    if checks.is_empty() {
        checks.extend(make_target(layout, folder).map(|target| format!("make {target}")));
    }
    checks
}

fn make_target(layout: &Layout, folder: &str) -> Option<&'static str> {
    let text = layout.text(folder, "Makefile")?;
    ["check", "test"]
        .into_iter()
        .find(|target| text.lines().any(|l| l.starts_with(&format!("{target}:"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guessed(listing: &str, texts: &[(&str, &str)]) -> Vec<String> {
        let mut layout = Layout::parse(listing);
        for (path, text) in texts {
            layout.add_text((*path).into(), (*text).into());
        }
        guess(&layout)
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
    fn a_makefile_counts_only_if_nothing_else_is_known() {
        let make = [("Makefile", "all:\n\tcc x.c\ncheck: all\n\t./x\n")];
        assert_eq!(guessed("Makefile\nx.c", &make), ["make check"]);
        assert_eq!(guessed("Makefile\ngo.mod", &make), ["go test ./..."]);
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
