//! The allowed dependencies between crates (ARCHITECTURE.md).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use regex::Regex;

/// Which of our packages each of our packages may depend on.
fn allowed() -> BTreeMap<&'static str, &'static [&'static str]> {
    const ADAPTER: &[&str] = &["agentmine-domain", "agentmine-runtime"];
    BTreeMap::from([
        ("agentmine-domain", &[][..]),
        ("agentmine-runtime", &[]),
        // No async code, and no dependency but libc, since the guest uses it.
        ("agentmine-process", &[]),
        // The only one that starts git on the worker.
        ("agentmine-git", &[]),
        ("agentmine-guest", &["agentmine-process"]),
        // No I/O: shared by everything that runs shell lines.
        ("agentmine-shell-policy", &[]),
        (
            "agentmine-tools",
            &["agentmine-process", "agentmine-shell-policy"],
        ),
        (
            "agentmine-trackers",
            &["agentmine-domain", "agentmine-runtime", "agentmine-git"],
        ),
        ("agentmine-queue", ADAPTER),
        ("agentmine-store", ADAPTER),
        (
            "agentmine-gateway",
            &["agentmine-domain", "agentmine-runtime", "agentmine-git"],
        ),
        ("agentmine-llm", ADAPTER),
        (
            "agentmine-mcp",
            &["agentmine-domain", "agentmine-runtime", "agentmine-process"],
        ),
        // The guest's protocol, which both ends of the tunnel use.
        (
            "agentmine-sandbox",
            &[
                "agentmine-domain",
                "agentmine-runtime",
                "agentmine-guest",
                "agentmine-process",
            ],
        ),
        ("agentmine-agent", &["agentmine-domain", "agentmine-llm"]),
        (
            "agentmine-effects",
            &[
                "agentmine-domain",
                "agentmine-runtime",
                "agentmine-trackers",
                "agentmine-queue",
                "agentmine-store",
            ],
        ),
        (
            "agentmine-control",
            &[
                // What an agent is given of a project's memory is decided there.
                "agentmine-agent",
                "agentmine-domain",
                "agentmine-runtime",
                "agentmine-queue",
                "agentmine-store",
                "agentmine-git",
                // Why an item has no task, only its tracker knows.
                "agentmine-trackers",
            ],
        ),
        (
            "agentmine-producer",
            &[
                "agentmine-domain",
                "agentmine-runtime",
                "agentmine-trackers",
                "agentmine-queue",
                "agentmine-store",
                "agentmine-effects",
                "agentmine-sandbox",
            ],
        ),
        (
            "agentmine-consumer",
            &[
                "agentmine-domain",
                "agentmine-runtime",
                "agentmine-trackers",
                "agentmine-queue",
                "agentmine-store",
                "agentmine-effects",
                "agentmine-sandbox",
                "agentmine-gateway",
                "agentmine-git",
                "agentmine-mcp",
                "agentmine-agent",
                "agentmine-llm",
                "agentmine-process",
                "agentmine-shell-policy",
            ],
        ),
    ])
}

/// Third-party crates that only these of our packages may use.
const FENCED: [(&str, &[&str]); 7] = [
    ("lapin", &["agentmine-queue"]),
    ("sqlx", &["agentmine-store"]),
    ("bollard", &["agentmine-sandbox"]),
    (
        "rmcp",
        &["agentmine-mcp", "agentmine-tools", "agentmine-control"],
    ),
    ("jsonschema", &["agentmine-mcp"]),
    ("rable", &["agentmine-shell-policy"]),
    (
        "reqwest",
        &[
            "agentmine-trackers",
            "agentmine-llm",
            "agentmine-gateway",
            "agentmine-mcp",
        ],
    ),
];

#[test]
fn dependencies_follow_the_architecture() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(manifest)
        .no_deps()
        .other_options(vec!["--offline".into()])
        .exec()
        .unwrap();
    let ours: BTreeSet<String> = metadata
        .packages
        .iter()
        .map(|p| p.name.to_string())
        .collect();
    let allowed = allowed();
    let mut faults = Vec::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        for dependency in package
            .dependencies
            .iter()
            .filter(|d| d.kind == cargo_metadata::DependencyKind::Normal)
        {
            if ours.contains(&dependency.name)
                && allowed
                    .get(name)
                    .is_some_and(|list| !list.contains(&dependency.name.as_str()))
            {
                faults.push(format!("{name} -> {}", dependency.name));
            }
            for (fenced, users) in FENCED {
                if dependency.name == fenced && !users.contains(&name) && name != "agentmine-tests"
                {
                    faults.push(format!("{name} -> {fenced}"));
                }
            }
        }
        if !allowed.contains_key(name) && !["agentmine", "agentmine-tests"].contains(&name) {
            faults.push(format!("{name} has no rule"));
        }
    }
    assert_eq!(faults, Vec::<String>::new());
}

/// Sources outside of tests, and not below or in one of these, whose code does something.
fn sources_that(does: impl Fn(&str) -> bool, apart_from: &[&str]) -> BTreeSet<String> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders = ["crates", "consumer", "producer"]
        .map(|it| root.join(it))
        .to_vec();
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
            if is_test || apart_from.iter().any(|it| path.ends_with(it)) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap();
                if does(code) {
                    found.insert(path.display().to_string());
                }
            }
        }
    }
    found
}

/// The guest is not on the worker.
#[test]
fn only_one_crate_starts_git_on_the_worker() {
    let starts_git = |code: &str| code.contains("Command::new(\"git\")");
    let found = sources_that(starts_git, &["agentmine-git", "agentmine-guest"]);
    assert!(found.is_empty(), "they start git themselves: {found:?}");
}

/// A terminal sends Ctrl-C to the whole process group of the worker, which decides itself what becomes of what it has started.
/// The guest is not on the worker, and what the command line starts for a person belongs to the terminal.
#[test]
fn processes_of_the_worker_are_not_in_its_process_group() {
    let starts_in_its_group =
        |code: &str| code.contains("Command::new(") && !code.contains("process_group(0)");
    let apart_from = [
        "agentmine",
        "agentmine-guest",
        "agentmine-tools",
        // Tests.
        "contract",
        "consumer/src/testing.rs",
        "web/attacks",
        // They lead a session of their own: process/spawn.rs.
        "agentmine-mcp/src/process.rs",
        // They build what local/process.rs starts.
        "local/bwrap.rs",
        "local/cgroup.rs",
        "local/scope.rs",
        "local/setup.rs",
        "build.rs",
    ];
    let found = sources_that(starts_in_its_group, &apart_from);
    assert!(found.is_empty(), "Ctrl-C ends what they start: {found:?}");
}

/// `same_label` of the configuration decides when two names are one label. A link in Markdown and a name of a host have
/// labels too.
#[test]
fn names_of_labels_are_compared_in_one_place() {
    let compares = |line: &str| {
        let line = line.to_lowercase();
        let folds = ["to_lowercase()", "eq_ignore_ascii_case"];
        line.contains("label") && folds.iter().any(|it| line.contains(it))
    };
    let does = |code: &str| code.lines().any(compares);
    let found = sources_that(
        does,
        &["config/labels.rs", "src/incoming.rs", "web/attacks"],
    );
    assert!(
        found.is_empty(),
        "they compare names of labels themselves: {found:?}"
    );
}

/// What removes the label of one state is what adds that of another.
#[test]
fn labels_are_changed_on_a_tracker_in_one_place() {
    let changes = |code: &str| code.contains(".set_labels(");
    let apart_from = ["agentmine-trackers", "src/item_labels.rs"];
    let found = sources_that(changes, &apart_from);
    assert!(found.is_empty(), "they change labels themselves: {found:?}");
}

/// The types that a file of a crate exports: its own, those that it re-exports, and those of its public modules.
fn exported_types(file: &Path) -> BTreeSet<String> {
    let code = std::fs::read_to_string(file).unwrap();
    let captures = |pattern: &str| -> Vec<String> {
        let found = Regex::new(pattern).unwrap();
        let found = found.captures_iter(&code);
        found.map(|it| it[1].to_owned()).collect()
    };
    let is_type =
        |name: &&str| name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
    let mut types: BTreeSet<String> =
        BTreeSet::from_iter(captures(r"(?m)^pub (?:struct|enum|trait|type|union) (\w+)"));
    // A type of another crate is the same type, whoever exports it.
    let of_this_crate = |path: &String| !path.starts_with("agentmine_");
    for path in captures(r"(?m)^pub use ([^;]*);")
        .into_iter()
        .filter(of_this_crate)
    {
        let names = path.split(['{', '}', ',']).map(str::trim);
        let names = names.filter_map(|path| path.rsplit([':', ' ']).next());
        types.extend(names.filter(is_type).map(ToOwned::to_owned));
    }
    let folder = match file.file_name().and_then(|name| name.to_str()) {
        Some("lib.rs" | "mod.rs") => file.parent().unwrap().to_owned(),
        _ => file.with_extension(""),
    };
    for module in captures(r"(?m)^pub (?:mod|use) (\w+)(?:::\*)?;") {
        let places = [format!("{module}.rs"), format!("{module}/mod.rs")];
        let places = places.iter().map(|place| folder.join(place));
        types.extend(
            places
                .filter(|it| it.exists())
                .flat_map(|it| exported_types(&it)),
        );
    }
    types
}

/// Whoever reads a name knows which type it is, without a look at the imports.
#[test]
fn no_two_crates_export_types_of_the_same_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut crates = vec![root.join("consumer"), root.join("producer")];
    let folder = std::fs::read_dir(root.join("crates")).unwrap();
    crates.extend(folder.map(|it| it.unwrap().path()));
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for krate in crates {
        let library = krate.join("src/lib.rs");
        if library.exists() {
            let name = krate.file_name().unwrap().to_string_lossy().into_owned();
            for exported in exported_types(&library) {
                owners.entry(exported).or_default().push(name.clone());
            }
        }
    }
    assert!(owners.len() > 500, "only {} types are found", owners.len());
    owners.retain(|_, owners| owners.len() > 1);
    assert!(owners.is_empty(), "more than one crate exports {owners:#?}");
}
