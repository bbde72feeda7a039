//! How projects of PHP, .NET, Elixir, Deno and CMake, and those with a justfile, are tested: only where one of their files
//! says that there are tests.

use serde_json::Value;

use super::layout::{Layout, is_plain};

/// The script `test` of composer.json, or else PHPUnit where it is required and configured.
pub(super) fn composer(layout: &Layout, folder: &str) -> Option<&'static str> {
    let manifest: Value = serde_json::from_str(layout.text(folder, "composer.json")?).ok()?;
    if !manifest["scripts"]["test"].is_null() {
        // Composer ends a script after five minutes otherwise.
        return Some("COMPOSER_PROCESS_TIMEOUT=0 composer run-script test");
    }
    let is_configured = ["phpunit.xml", "phpunit.xml.dist"]
        .iter()
        .any(|name| layout.has(folder, name));
    let is_required = !manifest["require-dev"]["phpunit/phpunit"].is_null();
    (is_configured && is_required).then_some("php vendor/bin/phpunit")
}

/// The one solution of a folder, or the one project of tests in it that belongs to no solution above. Of several, nothing
/// says which one counts.
pub(super) fn dotnet(layout: &Layout, folder: &str) -> Option<String> {
    let is_solution = |name: &&str| name.ends_with(".sln") || name.ends_with(".slnx");
    let has_solution = |folder: &str| layout.entries(folder).any(|name| is_solution(&name));
    let is_project = |name: &&str| name.ends_with(".csproj") || name.ends_with(".fsproj");
    if layout.above(folder, has_solution) {
        return None;
    }
    let found: Vec<&str> = match has_solution(folder) {
        true => layout.entries(folder).filter(is_solution).collect(),
        false => layout.entries(folder).filter(is_project).collect(),
    };
    let [one] = found[..] else {
        return None;
    };
    let name = one.rsplit_once('.').map_or(one, |(name, _)| name);
    let has_tests = is_solution(&one) || name.ends_with("Tests") || name.ends_with("Test");
    (has_tests && is_plain(one)).then(|| format!("dotnet test {one}"))
}

/// Whether the folder has a project of Elixir that no folder above contains.
pub(super) fn is_mix_project(layout: &Layout, folder: &str) -> bool {
    let has = |folder: &str| layout.has(folder, "mix.exs");
    has(folder) && !layout.above(folder, has)
}

/// The recipe `test` of a justfile, unless it needs arguments.
pub(super) fn just(layout: &Layout, folder: &str) -> Option<&'static str> {
    let mut texts = ["justfile", "Justfile"]
        .iter()
        .filter_map(|name| layout.text(folder, name));
    let is_test = |line: &str| {
        let rest = line.strip_prefix('@').unwrap_or(line).strip_prefix("test");
        let Some((parameters, after)) = rest.and_then(|rest| rest.split_once(':')) else {
            return false;
        };
        let is_name = parameters.is_empty() || parameters.starts_with(' ');
        let mut parameters = parameters.split_whitespace();
        let is_optional = |it: &str| it.starts_with('*') || it.contains('=');
        is_name && !after.starts_with('=') && parameters.all(is_optional)
    };
    let has_recipe = texts.any(|text| text.lines().any(is_test));
    has_recipe.then_some("just test")
}

/// The task `test` of deno.json, unless it watches the files.
pub(super) fn deno(layout: &Layout, folder: &str) -> Option<&'static str> {
    let config: Value = serde_json::from_str(layout.text(folder, "deno.json")?).ok()?;
    let task = &config["tasks"]["test"];
    let command = task.as_str().or_else(|| task["command"].as_str())?;
    (!command.contains("--watch")).then_some("deno task test")
}

/// CTest, where the outermost CMakeLists.txt enables it in any case. It is built outside of the project.
pub(super) fn cmake(layout: &Layout, folder: &str) -> Option<String> {
    const LISTS: &str = "CMakeLists.txt";
    let text = layout.text(folder, LISTS)?.to_ascii_lowercase();
    // What is indented may depend on an option.
    let enables = |line: &str| {
        let line: String = line.split_whitespace().collect();
        line.starts_with("enable_testing(") || line.starts_with("include(ctest)")
    };
    let mut lines = text.lines().filter(|line| !line.starts_with([' ', '\t']));
    if !lines.any(enables) || layout.above(folder, |above| layout.has(above, LISTS)) {
        return None;
    }
    let build = format!("\"$TMPDIR/cmake-{}\"", folder.replace('/', "-"));
    Some(format!(
        "cmake -S . -B {build} && cmake --build {build} && ctest --test-dir {build} --output-on-failure"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(listing: &str, texts: &[(&str, &str)]) -> Layout {
        let mut layout = Layout::parse(listing);
        for (path, text) in texts {
            layout.add_text((*path).into(), (*text).into());
        }
        layout
    }

    #[test]
    fn php_is_tested_by_its_script_or_by_phpunit_where_it_is_configured() {
        let required = r#"{"require-dev":{"phpunit/phpunit":"^11"}}"#;
        let scripted = r#"{"scripts":{"test":["@phpcs","phpunit"]}}"#;
        let script = "COMPOSER_PROCESS_TIMEOUT=0 composer run-script test";
        for (listing, text, check) in [
            ("composer.json", scripted, Some(script)),
            (
                "composer.json\nphpunit.xml.dist",
                required,
                Some("php vendor/bin/phpunit"),
            ),
            ("composer.json", required, None),
            ("composer.json\nphpunit.xml", "{}", None),
        ] {
            let layout = layout(listing, &[("composer.json", text)]);
            assert_eq!(composer(&layout, ""), check, "{listing}: {text}");
        }
    }

    #[test]
    fn dotnet_tests_the_one_solution_or_a_project_of_tests_that_is_in_none() {
        for (listing, folder, check) in [
            (
                "App.sln\nApp.csproj\nt/App.Tests.csproj",
                "",
                Some("dotnet test App.sln"),
            ),
            ("App.slnx\nt/App.Tests.csproj", "t", None),
            (
                "t/App.Tests.csproj",
                "t",
                Some("dotnet test App.Tests.csproj"),
            ),
            ("src/App.csproj", "src", None),
            ("App.sln\nOther.sln", "", None),
            ("My App.sln", "", None),
        ] {
            let layout = layout(listing, &[]);
            assert_eq!(dotnet(&layout, folder).as_deref(), check, "{listing}");
        }
    }

    #[test]
    fn a_recipe_that_needs_arguments_is_no_check() {
        for (recipe, is_check) in [
            ("test:", true),
            ("@test *ARGS: build", true),
            ("test suite='all':", true),
            ("test suite:", false),
            ("test := 'x'", false),
            ("tests:", false),
            ("    test:", false),
        ] {
            let layout = layout("justfile", &[("justfile", recipe)]);
            assert_eq!(just(&layout, "").is_some(), is_check, "{recipe}");
        }
    }

    #[test]
    fn deno_runs_the_task_unless_it_watches() {
        for (text, is_check) in [
            (r#"{"tasks":{"test":"deno test -A"}}"#, true),
            (r#"{"tasks":{"test":{"command":"deno test"}}}"#, true),
            (r#"{"tasks":{"test":"deno test --watch"}}"#, false),
            (r#"{"tasks":{"dev":"deno run a.ts"}}"#, false),
        ] {
            let layout = layout("deno.json", &[("deno.json", text)]);
            assert_eq!(deno(&layout, "").is_some(), is_check, "{text}");
        }
    }

    #[test]
    fn cmake_is_tested_only_where_tests_are_enabled_in_any_case() {
        let listing = "CMakeLists.txt\nsub/CMakeLists.txt";
        for (text, is_check) in [
            ("project(a)\nEnable_Testing ()\n", true),
            ("include(CTest)\n", true),
            ("if(A_TESTS)\n  enable_testing()\nendif()\n", false),
            ("# enable_testing()\n", false),
        ] {
            let texts = [("CMakeLists.txt", text), ("sub/CMakeLists.txt", text)];
            let layout = layout(listing, &texts);
            assert_eq!(cmake(&layout, "").is_some(), is_check, "{text}");
            assert_eq!(cmake(&layout, "sub"), None);
        }
    }
}
