//! Toolchains in the user's home folder that a jail may read. Never the whole home folder, and never a
//! folder that holds credentials.

use std::path::{Path, PathBuf};

/// The toolchains of the user.
#[derive(Debug, Default)]
pub(crate) struct Toolchains {
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) env: Vec<(String, String)>,
    bins: Vec<PathBuf>,
}

const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(crate) fn find() -> Toolchains {
    let mut found = Toolchains::default();
    let Some(home) = std::env::var_os("HOME")
        .map(PathBuf::from)
        .filter(|home| home.is_absolute())
    else {
        return found;
    };
    let folder = |variable: &str, default: &str| {
        let named = std::env::var_os(variable)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute());
        named.unwrap_or_else(|| home.join(default))
    };
    found.add(folder("CARGO_HOME", ".cargo").join("bin"), Some(""), None);
    found.add(folder("RUSTUP_HOME", ".rustup"), None, Some("RUSTUP_HOME"));
    let pyenv = folder("PYENV_ROOT", ".pyenv");
    // Before the shims: after each `pip install` a shim writes into pyenv's folder, and fails.
    found.bins.extend(global_python(&pyenv));
    found
        .bins
        .extend(Some(pyenv.join("shims")).filter(|shims| shims.is_dir()));
    found.add(pyenv, Some("bin"), Some("PYENV_ROOT"));
    let nvm = folder("NVM_DIR", ".nvm");
    if let Some(node) = newest(&nvm.join("versions/node")) {
        found.add(node, Some("bin"), None);
    }
    found.add(home.join("go/bin"), Some(""), None);
    found.add(PathBuf::from("/usr/local/go"), Some("bin"), None);
    found
}

impl Toolchains {
    /// `bin`: the folder in it that goes on the search path.
    fn add(&mut self, folder: PathBuf, bin: Option<&str>, variable: Option<&str>) {
        if !folder.is_dir() {
            return;
        }
        if let Some(variable) = variable {
            self.env
                .push((variable.to_owned(), folder.display().to_string()));
        }
        if let Some(bin) = bin {
            self.bins.push(folder.join(bin));
        }
        self.folders.push(folder);
    }

    /// The search path: toolchains, then configured folders, then the system.
    pub(crate) fn path(&self, read_only: &[PathBuf]) -> String {
        let named = read_only
            .iter()
            .flat_map(|folder| [folder.join("bin"), folder.clone()]);
        let named = named.filter(|folder| folder.is_dir());
        let all = self.bins.iter().cloned().chain(named);
        let text = |path: PathBuf| {
            path.to_str()
                .filter(|p| !p.contains(':'))
                .map(str::to_owned)
        };
        let mut parts: Vec<String> = all.filter_map(text).collect();
        parts.push(SYSTEM_PATH.to_owned());
        parts.join(":")
    }
}

/// The programs of pyenv's global version.
fn global_python(pyenv: &Path) -> Option<PathBuf> {
    let version = std::fs::read_to_string(pyenv.join("version")).ok()?;
    let bin = pyenv
        .join("versions")
        .join(version.lines().next()?.trim())
        .join("bin");
    bin.is_dir().then_some(bin)
}

fn newest(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    entries.max_by_key(|path| {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        name.trim_start_matches('v')
            .split('.')
            .map(|part| part.parse::<u32>().unwrap_or(0))
            .collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_found_by_number() {
        let folder = tempfile::tempdir().unwrap();
        for version in ["v9.1.0", "v20.2.0", "v20.11.1"] {
            std::fs::create_dir(folder.path().join(version)).unwrap();
        }
        assert!(newest(folder.path()).unwrap().ends_with("v20.11.1"));
    }
}
