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
const PIP: &str = "python3 -m pip install -q";
/// The tables of pyproject.toml that configure pytest.
const PYTEST: [&str; 2] = ["tool.pytest.ini_options", "tool.pytest"];
/// The usual names of extras and dependency groups for tests. pip only warns about an extra that a
/// project does not have, but refuses a missing group; uv and poetry refuse both.
const NAMES: [&str; 4] = ["test", "tests", "testing", "dev"];

/// The programs and the commands that install the project in `folder`. What its requirements files list and
/// the project itself are installed separately, so that one does not depend on the other.
pub(super) fn installers(layout: &Layout, folder: &str) -> Vec<(&'static str, String)> {
    let has = |name: &str| layout.has(folder, name);
    if has("uv.lock") {
        let text = layout.text(folder, "pyproject.toml").unwrap_or_default();
        let more = match tables(text).any(|table| table == "tool.uv.workspace") {
            true => " --all-packages".to_owned(),
            false => options("--extra", &extras(text)),
        };
        let groups = options("--group", &groups(text));
        return vec![("uv", format!("uv sync --frozen{more}{groups}"))];
    }
    if has("poetry.lock") {
        let text = layout.text(folder, "pyproject.toml").unwrap_or_default();
        let extras = options("--extras", &extras(text));
        return vec![("poetry", format!("poetry install --no-interaction{extras}"))];
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
    let groups = options("--group", &groups(text));
    let is_package = has("setup.py") || tables(text).any(|t| t == "project" || t == "build-system");
    let package = format!("{PIP} -e '.[{}]'", NAMES.join(","));
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

/// The dependency groups for tests that pyproject.toml has.
fn groups(text: &str) -> Vec<&str> {
    lists(text, "dependency-groups")
}

/// The extras for tests that pyproject.toml has.
fn extras(text: &str) -> Vec<&str> {
    let mut extras = lists(text, "project.optional-dependencies");
    extras.extend(lists(text, "tool.poetry.extras"));
    extras.dedup();
    extras
}

/// The keys of a table whose names are in [`NAMES`] and whose values are lists.
fn lists<'t>(text: &'t str, table: &str) -> Vec<&'t str> {
    let header = format!("[{table}]");
    let lines = text
        .lines()
        .skip_while(|line| line.trim() != header)
        .skip(1)
        .take_while(|line| !line.starts_with('['));
    let named = lines.filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        let key = key.trim().trim_matches('"');
        (NAMES.contains(&key) && value.trim_start().starts_with('[')).then_some(key)
    });
    named.collect()
}

/// The option with each of these values.
fn options(option: &str, values: &[&str]) -> String {
    let each = values.iter().map(|value| format!(" {option} {value}"));
    each.collect()
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
    fn a_lock_file_installs_the_extras_and_groups_for_tests_too() {
        let text = "[project]\n[project.optional-dependencies]\ntest = [\n 'pytest',\n]\ndocs = ['sphinx']\n\
                    [dependency-groups]\ntesting = ['pytest']\n";
        assert_eq!(
            installed("pyproject.toml\nuv.lock", text),
            ["uv sync --frozen --extra test --group testing"]
        );
        assert_eq!(
            installed("pyproject.toml\npoetry.lock", text),
            ["poetry install --no-interaction --extras test"]
        );
        assert_eq!(
            installed(
                "pyproject.toml\nuv.lock",
                "[tool.uv.workspace]\nmembers = ['a']\n"
            ),
            ["uv sync --frozen --all-packages"]
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
