//! The registries that the package managers in a sandbox use, for presets such as `preset:npm`.
//!
//! No registry is named here: each package manager is asked for its own configuration, so that a mirror that
//! is configured in the image is allowed and nothing else. This runs before anything of the repository is in
//! the sandbox. The operator's `presets` take precedence.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agentmine_runtime::config::{Network, PRESETS};

use crate::error::SandboxError;
use crate::sandbox::{Command, Sandbox};

/// Time limit for asking all package managers.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// Maximum size in bytes of their answers.
const MAX_ANSWERS: usize = 64 * 1024;
/// Prints lines of a preset's name and its URLs or hosts.
const SCRIPT: &str = include_str!("registries.sh");

/// Fills in the presets that `allowed_domains` names and the operator did not define.
///
/// # Errors
/// If the sandbox fails. A preset without any host is only a warning: requests to it will be refused.
pub async fn with_presets(
    sandbox: &dyn Sandbox,
    mut network: Network,
) -> Result<Network, SandboxError> {
    let wanted: Vec<&str> = network
        .allowed_domains
        .iter()
        .filter_map(|form| form.trim().strip_prefix("preset:"))
        .filter(|name| PRESETS.contains(name) && !network.presets.contains_key(*name))
        .collect();
    if !network.whitelist_mode || wanted.is_empty() {
        return Ok(network);
    }
    let answered = sandbox
        .run(Command {
            argv: vec!["/bin/sh".into(), "-s".into(), "--".into()]
                .into_iter()
                .chain(wanted.iter().map(|name| (*name).to_owned()))
                .collect(),
            cwd: "/".into(),
            env: BTreeMap::new(),
            stdin: SCRIPT.as_bytes().to_vec(),
            timeout: TIME_LIMIT,
            max_output: MAX_ANSWERS,
        })
        .await?;
    let mut found = hosts(&String::from_utf8_lossy(&answered.stdout));
    for name in wanted.into_iter().map(str::to_owned).collect::<Vec<_>>() {
        let hosts: Vec<String> = found
            .remove(&name)
            .unwrap_or_default()
            .into_iter()
            .collect();
        if hosts.is_empty() {
            tracing::warn!(
                preset = name,
                "no package manager in the sandbox names a registry for this preset. hint: list its hosts in command_executor.docker.network.presets"
            );
        }
        network.presets.insert(name, hosts);
    }
    Ok(network)
}

/// The hosts of each preset in the script's output.
fn hosts(output: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in output.lines() {
        let Some((preset, answer)) = line.split_once(' ') else {
            continue;
        };
        for word in answer.split([' ', ',', '|', '"', '\'']) {
            let Some(host) = host_of(word) else { continue };
            let known = found.entry(preset.to_owned()).or_default();
            // An index refers to hosts beside it, e.g. for downloads.
            if let Some(domain) = host.strip_prefix("index.")
                && domain.contains('.')
            {
                known.insert(format!("*.{domain}"));
                known.insert(domain.to_owned());
            }
            if preset == "rubygems" {
                // Bundler reads the index there if it exists.
                known.insert(format!("index.{host}"));
            }
            known.insert(host);
        }
    }
    found
}

/// The host of a URL, or the word itself if it looks like one.
fn host_of(word: &str) -> Option<String> {
    let rest = word.split_once("://").map_or(word, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?.split(':').next()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    let is_name = host.contains('.')
        && !host.starts_with('.')
        && !host.ends_with('.')
        && host.chars().all(plain);
    is_name.then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_of_yarn_names_its_registry() {
        for known in [
            "registry) ;; *) echo undefined; return ;;",
            "npmRegistryServer) ;; *) echo 'Usage Error: no such setting'; return 1 ;;",
        ] {
            let yarn = format!("case $3 in {known} esac; echo https://yarn.example.com/");
            let script = format!("npm() {{ false; }}\nyarn() {{ {yarn}; }}\n{SCRIPT}");
            let printed = std::process::Command::new("/bin/sh")
                .args(["-c", &script, "registries", "npm"])
                .output()
                .unwrap();
            let found = hosts(&String::from_utf8(printed.stdout).unwrap());
            assert!(found["npm"].contains("yarn.example.com"), "{found:?}");
        }
    }

    #[test]
    fn hosts_are_read_from_what_package_managers_print() {
        let found = hosts(
            "crates https://index.test/\nnpm https://npm.example.com/\nnpm undefined\ngo https://user:pw@go.example.com:8443/x,direct sum.example.com\n\
             crates sparse+https://index.example.org/\nodd\n",
        );
        let of = |name: &str| found[name].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(of("npm"), ["npm.example.com"]);
        assert_eq!(of("go"), ["go.example.com", "sum.example.com"]);
        assert_eq!(
            of("crates"),
            [
                "*.example.org",
                "example.org",
                "index.example.org",
                "index.test"
            ]
        );
    }
}
