//! Changed files that control more than the program, found by asking git for their paths, so that neither the
//! size of a change nor a rename hides them. A reviewer sees them first.

use agentmine_gateway::facts::{BareRepo, Changed, FactsError};
use serde_json::Value;

use super::attributes::new_drivers;

/// Paths by what they control, as patterns of git. A pattern without a slash applies in every folder; upper and
/// lower case are the same, as on the file systems of many developers.
const PATHS: [(&str, &[&str]); 9] = [
    (
        "CI",
        &[
            ".github/workflows/**",
            ".github/actions/**",
            "action.yml",
            "action.yaml",
            ".github/dependabot.*",
            ".gitlab-ci*.yml",
            ".gitlab/**",
            "Jenkinsfile*",
            ".circleci/**",
            ".travis.yml",
            "azure-pipelines*",
            ".azure-pipelines/**",
            "bitbucket-pipelines.yml",
            ".buildkite/**",
            ".drone*",
            ".woodpecker*",
            ".woodpecker/**",
            ".forgejo/**",
            ".gitea/**",
            ".teamcity/**",
            "appveyor.yml",
            ".appveyor.yml",
            "cloudbuild.y*ml",
            ".semaphore/**",
            ".tekton/**",
            ".cirrus.*",
            "renovate.json*",
            ".renovaterc*",
        ],
    ),
    (
        "git hooks",
        &[
            ".husky/**",
            ".pre-commit-config.y*ml",
            ".pre-commit-hooks.y*ml",
            "lefthook*.y*ml",
            ".lefthook*",
            ".lefthook/**",
            ".githooks/**",
            ".git-hooks/**",
            "githooks/**",
            ".overcommit.yml",
            ".simple-git-hooks.*",
        ],
    ),
    (
        "coding agents and editors",
        &[
            "AGENTS*.md",
            "AGENT.md",
            ".agents/**",
            "CLAUDE*.md",
            "GEMINI.md",
            "QWEN.md",
            "CONVENTIONS.md",
            ".goosehints",
            ".rules",
            ".cursorrules",
            ".cursor/**",
            ".windsurfrules",
            ".windsurf/**",
            ".clinerules*",
            ".clinerules/**",
            ".roo*",
            ".roo/**",
            ".aider*",
            ".claude/**",
            ".codex/**",
            ".gemini/**",
            ".qwen/**",
            ".kiro/**",
            ".junie/**",
            ".continue*",
            ".continue/**",
            ".amazonq/**",
            ".augment*",
            ".augment/**",
            ".trae/**",
            ".zed/**",
            ".vscode/**",
            ".idea/**",
            ".fleet/**",
            "*.code-workspace",
            "mcp.json",
            ".mcp.json",
            "*mcp_config*.json",
            "opencode.json*",
            ".opencode/**",
            ".crush.json",
            "crush.json",
            ".github/copilot-instructions.md",
            ".github/instructions/**",
            ".github/prompts/**",
            ".github/chatmodes/**",
            ".github/agents/**",
            ".devin/**",
            ".openhands/**",
        ],
    ),
    ("code ownership", &["CODEOWNERS"]),
    (
        "merging and the repository's settings",
        &[
            ".github/settings.yml",
            ".mergify.yml",
            ".mergify/**",
            ".github/mergify.yml",
            ".kodiak.toml",
            "bors.toml",
            ".pullapprove.yml",
            ".asf.yaml",
        ],
    ),
    (
        "development containers",
        &[
            ".devcontainer/**",
            ".devcontainer*.json",
            "devcontainer.json",
            ".gitpod*",
            ".envrc",
        ],
    ),
    (
        PACKAGES,
        &[
            ".npmrc",
            ".yarnrc*",
            ".yarn/**",
            ".pnpmfile.*",
            "bunfig.toml",
            "binding.gyp",
            "setup.py",
            "pip.conf",
            ".pypirc",
            "build.rs",
            ".cargo/**",
            "gradle/wrapper/**",
            ".mvn/**",
            ".bundle/**",
            "extconf.rb",
            "NuGet.config",
            "Directory.Build.*",
            ".sbtopts",
            ".jvmopts",
            "sitecustomize.py",
        ],
    ),
    (
        "how git treats files",
        &[".gitattributes", ".gitmodules", ".gitconfig", ".lfsconfig"],
    ),
    ("AgentMine", &[".agentmine/**", ".agentmine*"]),
];

const PACKAGES: &str = "what package managers run or download";
const SUBMODULES: &str = "submodules";
const CHECKS: &str = "what checks run";

/// Scripts that npm and its relatives run when a package is installed or published.
const LIFECYCLE: [&str; 12] = [
    "dependencies",
    "pnpm:devPreinstall",
    "preinstall",
    "install",
    "postinstall",
    "prepare",
    "preprepare",
    "postprepare",
    "prepublish",
    "prepublishOnly",
    "prepack",
    "postpack",
];
/// Scripts that `npm test` and its relatives run.
const TESTS: [&str; 3] = ["pretest", "test", "posttest"];
/// Files that name commands among other things: what the commands control, the file, and how they are read from it.
const MANIFESTS: [(&str, &str, Scripts); 7] = [
    (PACKAGES, "package.json", npm_scripts),
    (PACKAGES, "Cargo.toml", cargo_scripts),
    (CHECKS, "package.json", npm_tests),
    (CHECKS, "composer.json", npm_tests),
    (CHECKS, "deno.json", deno_tests),
    (CHECKS, "Makefile", recipes),
    (CHECKS, "justfile", recipes),
];
/// How many manifests of a name are compared; of more, each counts as changed.
const MAX_MANIFESTS: usize = 50;
/// Largest manifest that is read, in bytes.
const MAX_MANIFEST: usize = 1024 * 1024;

/// With more changed files, git looks at their paths.
const MAX_LOOKED_AT: usize = 1000;

/// Changed files that control more than the program.
#[derive(Debug, Default)]
pub(super) struct Sensitive {
    /// As `WHAT: PATH`.
    pub(super) files: Vec<String>,
    /// Whether there were too many to list.
    pub(super) cut: bool,
}

/// Finds them between two commits that were fetched.
///
/// # Errors
/// Errors of git.
pub(super) async fn sensitive(
    repo: &BareRepo,
    base: &str,
    head: &str,
) -> Result<Sensitive, FactsError> {
    let all = repo.changed(base, head, &[]).await?;
    let mut found = Sensitive {
        cut: all.cut,
        ..Sensitive::default()
    };
    // Most changes touch none, and then git is not asked, or at least not for each kind apart.
    if may_touch(&all) && touches_any(repo, base, head).await? {
        found.add_paths(repo, base, head).await?;
    }
    let submodules = all.files.into_iter().filter(|file| file.submodule);
    found.add(SUBMODULES, submodules.map(|file| file.path));
    Ok(found)
}

/// Whether a path that is looked for may have changed: some name in a changed path has all the letters of the first name
/// of a pattern. Only git knows the rest of the pattern.
fn may_touch(all: &Changed) -> bool {
    if all.cut || all.files.len() > MAX_LOOKED_AT {
        return true;
    }
    let patterns = PATHS.iter().flat_map(|(_, patterns)| patterns.iter());
    let patterns = patterns.chain(MANIFESTS.iter().map(|(_, name, _)| name));
    let first = patterns.filter_map(|pattern| pattern.split('/').next());
    let first: Vec<String> = first.map(str::to_ascii_lowercase).collect();
    let matches = |name: &str| {
        let mut letters = first.iter().map(|pattern| pattern.split('*'));
        letters.any(|mut letters| letters.all(|letters| name.contains(letters)))
    };
    let mut paths = all.files.iter().map(|file| file.path.to_ascii_lowercase());
    paths.any(|path| path.split('/').any(matches))
}

/// Whether a path that is looked for changed, of any kind.
async fn touches_any(repo: &BareRepo, base: &str, head: &str) -> Result<bool, FactsError> {
    let paths = PATHS.iter().flat_map(|(_, patterns)| pathspecs(patterns));
    let manifests = MANIFESTS.iter().map(|(_, name, _)| pathspec(name));
    let specs: Vec<String> = paths.chain(manifests).collect();
    let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
    let changed = repo.changed(base, head, &specs).await?;
    Ok(changed.cut || !changed.files.is_empty())
}

impl Sensitive {
    /// Asks for each kind apart, so that each path is named with what it controls.
    async fn add_paths(
        &mut self,
        repo: &BareRepo,
        base: &str,
        head: &str,
    ) -> Result<(), FactsError> {
        for (controls, patterns) in PATHS {
            let specs = pathspecs(patterns);
            let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
            let changed = repo.changed(base, head, &specs).await?;
            self.cut |= changed.cut;
            self.add(controls, changed.files.into_iter().map(|file| file.path));
        }
        for (controls, name, scripts) in MANIFESTS {
            let changed = changed_scripts(repo, base, head, (name, scripts)).await?;
            self.add(controls, changed.into_iter());
        }
        for (drivers, path) in new_drivers(repo, base, head).await? {
            let controls = format!("programs that git starts ({drivers})");
            self.add(&controls, std::iter::once(path));
        }
        Ok(())
    }

    fn add(&mut self, controls: &str, paths: impl Iterator<Item = String>) {
        self.files
            .extend(paths.map(|path| format!("{controls}: {path}")));
    }
}

/// In every folder of the repository. A folder's name also stands for a link of that name.
fn pathspecs(patterns: &[&str]) -> Vec<String> {
    let links = patterns
        .iter()
        .filter_map(|pattern| pattern.strip_suffix("/**"));
    let all = patterns.iter().copied().chain(links);
    all.map(pathspec).collect()
}

fn pathspec(pattern: &str) -> String {
    format!(":(top,icase,glob)**/{pattern}")
}

/// The manifests of `name` in which the commands changed.
async fn changed_scripts(
    repo: &BareRepo,
    base: &str,
    head: &str,
    (name, scripts): (&str, Scripts),
) -> Result<Vec<String>, FactsError> {
    let spec = pathspec(name);
    let manifests = repo.changed(base, head, &[&spec]).await?;
    let mut changed = Vec::new();
    for (index, manifest) in manifests.files.into_iter().enumerate() {
        let is_changed = index >= MAX_MANIFESTS || {
            let (old, new) = tokio::try_join!(
                repo.file(base, &manifest.path, MAX_MANIFEST),
                repo.file(head, &manifest.path, MAX_MANIFEST)
            )?;
            match (old, new) {
                // One of them exists, under a path that is not UTF-8.
                (None, None) => true,
                (old, new) => {
                    let [old, new] = [old, new].map(|file| file.map_or(Some(Vec::new()), scripts));
                    old.is_none() || new.is_none() || old != new
                }
            }
        };
        if is_changed {
            changed.push(manifest.path);
        }
    }
    Ok(changed)
}

/// What a manifest runs; `None` if it cannot be read.
type Scripts = fn(Vec<u8>) -> Option<Vec<String>>;

/// The installation scripts of a `package.json`.
fn npm_scripts(manifest: Vec<u8>) -> Option<Vec<String>> {
    entries(&manifest, "scripts", &LIFECYCLE)
}

/// The test scripts of a `package.json` or `composer.json`.
fn npm_tests(manifest: Vec<u8>) -> Option<Vec<String>> {
    entries(&manifest, "scripts", &TESTS)
}

/// The task `test` of a `deno.json`.
fn deno_tests(manifest: Vec<u8>) -> Option<Vec<String>> {
    entries(&manifest, "tasks", &["test"])
}

/// Entries of an object in a file of JSON.
fn entries(manifest: &[u8], of: &str, names: &[&str]) -> Option<Vec<String>> {
    let manifest: Value = serde_json::from_slice(manifest).ok()?;
    let entry = |name: &&str| Some(format!("{name}: {}", manifest.get(of)?.get(name)?));
    Some(names.iter().filter_map(entry).collect())
}

/// The rules `check` and `test` of a `Makefile` or `justfile`.
fn recipes(manifest: Vec<u8>) -> Option<Vec<String>> {
    if manifest.len() >= MAX_MANIFEST {
        return None;
    }
    let text = String::from_utf8(manifest).ok()?;
    let is_test = |line: &str| {
        let (names, _) = line.split_once(':').unwrap_or_default();
        let mut names = names.trim_start_matches('@').split_whitespace();
        names.any(|name| name == "check" || name == "test")
    };
    let (mut found, mut is_inside) = (Vec::new(), false);
    for line in text.lines().map(str::trim_end) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if !line.starts_with([' ', '\t']) {
            is_inside = is_test(line);
        }
        if is_inside {
            found.push(line.to_owned());
        }
    }
    Some(found)
}

/// The build script that a `Cargo.toml` names.
fn cargo_scripts(manifest: Vec<u8>) -> Option<Vec<String>> {
    if manifest.len() >= MAX_MANIFEST {
        return None;
    }
    let text = String::from_utf8(manifest).ok()?;
    let names_one = |line: &&str| {
        let rest = line.strip_prefix("build").map(str::trim_start);
        rest.is_some_and(|rest| rest.starts_with('='))
    };
    let lines = text.lines().map(str::trim).filter(names_one);
    Some(lines.map(ToOwned::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use agentmine_gateway::facts::ChangedPath;

    use super::*;

    fn changed(path: &str) -> Changed {
        let file = ChangedPath {
            path: path.to_owned(),
            submodule: false,
        };
        Changed {
            files: vec![file],
            cut: false,
        }
    }

    #[test]
    fn what_a_test_runs_is_read_without_the_rest_of_its_file() {
        let make = "x: y\n\tcc x\n\ntest: x # all\n\t./x\n\n# more\n\t./y\nz:\n\trm x\n";
        let rules = ["test: x # all", "\t./x", "\t./y"].map(str::to_owned);
        assert_eq!(recipes(make.into()).unwrap(), rules);
        assert_eq!(recipes("@test *ARGS:\n  ./x".into()).unwrap().len(), 2);
        let others = recipes(".PHONY: test\nlatest:\n\t./x".into());
        assert!(others.unwrap().is_empty());
        let package =
            r#"{"scripts": {"test": "true", "start": "x"}, "tasks": {"test": "deno test"}}"#;
        assert_eq!(npm_tests(package.into()).unwrap(), [r#"test: "true""#]);
        let task = r#"test: "deno test""#;
        assert_eq!(deno_tests(package.into()).unwrap(), [task]);
        assert!(npm_scripts(package.into()).unwrap().is_empty());
    }

    #[test]
    fn whatever_a_pattern_matches_is_left_to_git() {
        let patterns = PATHS.iter().flat_map(|(_, patterns)| patterns.iter());
        for pattern in patterns.chain(MANIFESTS.iter().map(|(_, name, _)| name)) {
            assert!(!pattern.contains(['?', '[', '\\']), "{pattern}");
            for any in ["", "x.y"] {
                let path = pattern.replace("/**", "/f").replace('*', any);
                for path in [path.clone(), format!("a/B/{}", path.to_uppercase())] {
                    assert!(may_touch(&changed(&path)), "{path}");
                }
            }
        }
        assert!(!may_touch(&changed("src/hello/new_0.txt")));
        let cut = Changed {
            cut: true,
            ..changed("x")
        };
        assert!(may_touch(&cut));
    }
}
