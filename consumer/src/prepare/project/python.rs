//! How a Python project is installed and tested.

use super::layout::Layout;

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
const GROUPS: [&str; 4] = ["test", "tests", "testing", "dev"];

/// The program and the command that install the project in `folder`.
pub(super) fn installer(layout: &Layout, folder: &str) -> Option<(&'static str, String)> {
    let has = |name: &str| layout.has(folder, name);
    let locked_above =
        |name: &str| layout.above(folder, |above| layout.has(above, name)) && has("pyproject.toml");
    if has("uv.lock") {
        return Some(("uv", "uv sync --frozen".into()));
    }
    if has("poetry.lock") {
        return Some(("poetry", "poetry install --no-interaction".into()));
    }
    if locked_above("uv.lock") {
        return None;
    }
    let mut arguments = String::new();
    for file in REQUIREMENTS.iter().filter(|file| has(file)) {
        arguments.push_str(" -r ");
        arguments.push_str(file);
    }
    let text = layout.text(folder, "pyproject.toml").unwrap_or_default();
    if has("setup.py") || tables(text).any(|t| t == "project" || t == "build-system") {
        arguments.push_str(&format!(" -e '.[{EXTRAS}]'"));
    }
    let groups = groups(text);
    if arguments.is_empty() && groups.is_empty() {
        return None;
    }
    let plain = format!("python3 -m pip install -q{arguments}");
    if groups.is_empty() {
        return Some(("pip", plain));
    }
    // pip knows dependency groups (PEP 735) since version 25.1.
    Some(("pip", format!("{plain}{groups} || {plain}")))
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
    let has_tests = configured || (described && has("tests/"));
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

    fn installed(listing: &str, pyproject: &str) -> Option<String> {
        let mut layout = Layout::parse(listing);
        layout.add_text("pyproject.toml".into(), pyproject.into());
        installer(&layout, "").map(|(_, line)| line)
    }

    #[test]
    fn requirements_and_the_project_itself_are_installed_together() {
        assert_eq!(
            installed("requirements.txt\nrequirements-dev.txt\npyproject.toml", "[project]\nname='x'"),
            Some("python3 -m pip install -q -r requirements.txt -r requirements-dev.txt -e '.[test,tests,testing,dev]'".into())
        );
    }

    #[test]
    fn dependency_groups_for_tests_are_installed() {
        let text = "[build-system]\n[dependency-groups]\ndev = ['pytest']\nlint = ['ruff']\n[tool.x]\ntest = ['a']\n";
        let line = installed("pyproject.toml", text).unwrap();
        assert!(
            line.contains("--group dev ||")
                && !line.contains("--group lint")
                && !line.contains("--group test"),
            "{line}"
        );
    }

    #[test]
    fn a_pyproject_that_only_configures_tools_installs_nothing() {
        assert_eq!(
            installed("pyproject.toml", "[tool.ruff]\nline-length = 100\n"),
            None
        );
    }
}
