//! Hosts of the language registries, for `allowed_domains`.

/// The name and hosts of each preset.
const PRESETS: &[(&str, &[&str])] = &[
    (
        "npm",
        &[
            "registry.npmjs.org",
            "registry.yarnpkg.com",
            "repo.yarnpkg.com",
        ],
    ),
    ("pypi", &["pypi.org", "files.pythonhosted.org"]),
    (
        "crates",
        &["index.crates.io", "static.crates.io", "crates.io"],
    ),
    ("go", &["proxy.golang.org", "sum.golang.org"]),
    (
        "maven",
        &[
            "repo.maven.apache.org",
            "repo1.maven.org",
            "plugins.gradle.org",
        ],
    ),
    ("rubygems", &["rubygems.org", "index.rubygems.org"]),
    ("debian", &["deb.debian.org", "security.debian.org"]),
];

/// The hosts of a preset.
pub(super) fn hosts(name: &str) -> Option<&'static [&'static str]> {
    let found = PRESETS.iter().find(|(preset, _)| *preset == name);
    found.map(|(_, hosts)| *hosts)
}

/// The names of all presets, for an error message.
pub(super) fn names() -> String {
    let names: Vec<String> = PRESETS
        .iter()
        .map(|(name, _)| format!("preset:{name}"))
        .collect();
    names.join(", ")
}
