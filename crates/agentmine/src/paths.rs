//! Where the command line keeps its state.

use std::path::PathBuf;

use agentmine_runtime::exit::{Exit, Failure};
use agentmine_runtime::own_folder;
use anyhow::{Context as _, Result};

/// `$XDG_STATE_HOME/agentmine`, else `~/.local/state/agentmine`. Nothing is created: the home folder may be read-only.
pub(crate) fn state_path() -> Result<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .ok_or_else(|| {
            Failure::new(
                Exit::Config,
                "neither XDG_STATE_HOME nor HOME is an absolute path",
            )
            .hint("set HOME")
        })?;
    Ok(state.join("agentmine"))
}

/// The same, created if it does not exist.
pub(crate) fn state_dir() -> Result<PathBuf> {
    let dir = state_path()?;
    // The database holds what the model saw of the repositories.
    own_folder::create(&dir).with_context(|| format!("{} cannot be created", dir.display()))?;
    Ok(dir)
}

/// The embedded mode's database.
pub(crate) fn database_url() -> Result<String> {
    let path = state_dir()?.join("agentmine.db");
    Ok(format!("sqlite:{}", in_url(&path.display().to_string())))
}

/// A path without what has a meaning in a URL.
fn in_url(path: &str) -> String {
    path.replace('%', "%25").replace('?', "%3F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_folder_may_have_characters_of_urls() {
        assert_eq!(in_url("/ci/a%2Fb?c#d"), "/ci/a%252Fb%3Fc#d");
    }
}
