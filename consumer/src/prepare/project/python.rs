//! How a Python project is installed and tested.

use super::layout::{Layout, join};

/// Requirement files of one folder, in the order in which they are passed to pip.
const REQUIREMENTS: [&str; 7] = [
    "requirements.txt",
    "requirements-dev.txt",
    "requirements_dev.txt",
    "dev-requirements.txt",
    "requirements-test.txt",
    "requirements_test.txt",
    "test-requirements.txt",
];
/// The usual names of extras and dependency groups for tests. pip only warns about an extra that a
/// project does not have, but refuses a missing group.
const EXTRAS: &str = "test,tests,testing,dev";
const PIP: &str = "python3 -m pip install -q";
/// The tables of pyproject.toml that configure pytest.
const PYTEST: [&str; 2] = ["tool.pytest.ini_options", "tool.pytest"];
const GROUPS: [&str; 4] = ["test", "tests", "testing", "dev"];

/// The programs and the commands that install the project in `folder`. What its requirements files list and
/// the project itself are installed separately, so that one does not depend on the other.
pub(super) fn installers(layout: &Layout, folder: &str) -> Vec<(&'static str, String)> {
    let has = |name: &str| layout.has(folder, name);
    if has("uv.lock") {
        let text = layout.text(folder, "pyproject.toml").unwrap_or_default();
        let members = match tables(text).any(|table| table == "tool.uv.workspace") {
            true => " --all-packages",
            false => "",
        };
        return vec![("uv", format!("uv sync --frozen{members}"))];
    }
    if has("poetry.lock") {
        return vec![("poetry", "poetry install --no-interaction".into())];
    }
    // A member of a workspace of uv.
    if has("pyproject.toml") && layout.above(folder, |above| layout.has(above, "uv.lock")) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let files = REQUIREMENTS.iter().filter(|file| has(file));
    let files: String = files.map(|file| format!(" -r {file}")).collect();
    if !files.is_empty() {
        found.push(("pip", format!("{PIP}{files}")));
    }
    let text = layout.text(folder, "pyproject.toml").unwrap_or_default();
    let groups = groups(text);
    let is_package = has("setup.py") || tables(text).any(|t| t == "project" || t == "build-system");
    let package = format!("{PIP} -e '.[{EXTRAS}]'");
    match (is_package, groups.is_empty()) {
        (false, true) => {}
        (true, true) => found.push(("pip", package)),
        (false, false) => found.push(("pip", format!("{PIP}{groups}"))),
        // pip knows dependency groups (PEP 735) since version 25.1.
        (true, false) => found.push(("pip", format!("{package}{groups} || {package}"))),
    }
    found
}

/// The command that tests the project in `folder`, if it has tests for pytest.
pub(super) fn test(layout: &Layout, folder: &str) -> Option<&'static str> {
    let has = |name: &str| layout.has(folder, name);
    let configured = ["pytest.ini", "tox.ini", "conftest.py"]
        .iter()
        .any(|name| has(name));
    let described = REQUIREMENTS
        .iter()
        .chain(&["pyproject.toml", "setup.py", "setup.cfg"])
        .any(|name| has(name));
    let text = layout.text(folder, "pyproject.toml").unwrap_or_default();
    let configured = configured || tables(text).any(|table| PYTEST.contains(&table));
    // Other languages have their tests in a folder of this name, too.
    let is_test = |name: &str| {
        name.ends_with("_test.py") || (name.starts_with("test_") && name.ends_with(".py"))
    };
    let has_folder = has("tests/") || layout.entries(&join(folder, "test")).any(is_test);
    let has_tests = configured || (described && has_folder);
    has_tests.then(|| {
        if has("uv.lock") {
            "uv run --frozen python -m pytest -q"
        } else if has("poetry.lock") {
            "poetry run python -m pytest -q"
        } else {
            "python3 -m pytest -q"
        }
    })
}

/// The names of the tables of a TOML text.
fn tables(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let name = line.trim().strip_prefix('[')?.split(']').next()?;
        Some(name.trim())
    })
}

/// `--group` arguments for the groups that pyproject.toml has.
fn groups(text: &str) -> String {
    let table = text
        .lines()
        .skip_while(|line| line.trim() != "[dependency-groups]")
        .skip(1)
        .take_while(|line| !line.starts_with('['));
    table
        .filter_map(|line| {
            let (key, value) = line.split_once('=')?;
            let key = key.trim().trim_matches('"');
            (GROUPS.contains(&key) && value.trim_start().starts_with('['))
                .then(|| format!(" --group {key}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed(listing: &str, pyproject: &str) -> Vec<String> {
        let mut layout = Layout::parse(listing);
        layout.add_text("pyproject.toml".into(), pyproject.into());
        installers(&layout, "")
            .into_iter()
            .map(|(_, line)| line)
            .collect()
    }

    #[test]
    fn requirements_and_the_project_itself_are_installed_separately() {
        assert_eq!(
            installed(
                "requirements.txt\nrequirements-dev.txt\npyproject.toml",
                "[project]\nname='x'"
            ),
            [
                "python3 -m pip install -q -r requirements.txt -r requirements-dev.txt",
                "python3 -m pip install -q -e '.[test,tests,testing,dev]'"
            ]
        );
    }

    #[test]
    fn dependency_groups_for_tests_are_installed() {
        let text = "[build-system]\n[dependency-groups]\ndev = ['pytest']\nlint = ['ruff']\n[tool.x]\ntest = ['a']\n";
        let line = installed("pyproject.toml", text).remove(0);
        assert!(
            line.contains("--group dev ||")
                && !line.contains("--group lint")
                && !line.contains("--group test"),
            "{line}"
        );
    }

    #[test]
    fn tests_are_found_where_pyproject_configures_pytest_and_in_a_folder_called_test() {
        for (listing, pyproject, is_tested) in [
            ("src/x/tests/a.py", "[tool.pytest.ini_options]\n", true),
            ("src/x/tests/a.py", "[tool.ruff]\n", false),
            ("test/test_a.py", "[tool.ruff]\n", true),
            ("test/a.js", "[tool.ruff]\n", false),
        ] {
            let mut layout = Layout::parse(&format!("pyproject.toml\n{listing}"));
            layout.add_text("pyproject.toml".into(), pyproject.into());
            assert_eq!(
                test(&layout, "").is_some(),
                is_tested,
                "{listing}: {pyproject}"
            );
        }
    }

    #[test]
    fn a_pyproject_that_only_configures_tools_installs_nothing() {
        assert!(installed("pyproject.toml", "[tool.ruff]\nline-length = 100\n").is_empty());
    }
}
