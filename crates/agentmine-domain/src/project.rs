//! The name of a project, under which its memory is kept: the same for the fleet, a clone and its work trees.
//!
//! A repository of a forge is `HOST/OWNER/NAME` in lower case, since forges compare it so. A local repository without a
//! remote is the absolute path of its folder. After a rename on the forge the name is another one.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The longest name, in bytes.
const MAX: usize = 500;

/// The name of a project.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProjectName(String);

impl ProjectName {
    /// Of a repository on a forge.
    #[must_use]
    pub fn of_forge(host: &str, path: &str) -> Self {
        Self(format!("{host}/{}", path.trim_matches('/')).to_lowercase())
    }

    /// Of a repository on this machine: that of its remote, if it has one on a forge.
    #[must_use]
    pub fn of_folder(folder: &Path, remote: Option<&str>) -> Self {
        remote
            .and_then(Self::of_remote)
            .unwrap_or_else(|| Self(folder.to_string_lossy().into_owned()))
    }

    /// Of a remote's URL, as git accepts it; `None` for a path or a URL without a repository.
    #[must_use]
    pub fn of_remote(url: &str) -> Option<Self> {
        let url = url.trim();
        let (host, path) = match url.split_once("://") {
            Some(("https" | "http", rest)) => (host(rest)?, rest.split_once('/')?.1),
            // The port is that of the SSH server, not of the forge.
            Some(("ssh" | "git+ssh" | "git", rest)) => {
                let host = host(rest)?;
                let host = host.split_once(':').map_or(host, |(host, _)| host);
                (host, rest.split_once('/')?.1)
            }
            Some(_) => return None,
            // user@host:path
            None => {
                let (host, path) = url.split_once(':')?;
                let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
                (!host.contains('/')).then_some((host, path))?
            }
        };
        let path = path.trim_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path);
        Self::of_forge(host, path).checked()
    }

    /// A name as a person writes it: `HOST/OWNER/NAME` or an absolute path.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.starts_with('/') {
            true => Self(text.to_owned()).checked(),
            false => Self(text.to_lowercase()).checked(),
        }
    }

    fn checked(self) -> Option<Self> {
        let text = &self.0;
        let parts = text.split('/').filter(|part| !part.is_empty()).count();
        let is_plain = !text.chars().any(|c| c.is_control() || c.is_whitespace())
            && !text.split('/').any(|part| part == "..");
        let fits = match text.starts_with('/') {
            true => !text.chars().any(char::is_control),
            false => is_plain && parts >= 3,
        };
        (fits && text.len() <= MAX).then_some(self)
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `user:password@host:port/…`: without the user.
fn host(rest: &str) -> Option<&str> {
    let authority = rest.split('/').next()?;
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_remote_names_one_project_and_no_credentials() {
        for url in [
            "https://github.com/Acme/shop.git",
            "https://user:hunter2@github.com/acme/shop",
            "git@github.com:acme/shop.git",
            "ssh://git@github.com:2222/acme/shop.git/",
            "github.com:acme/shop",
        ] {
            let name = ProjectName::of_remote(url).unwrap();
            assert_eq!(name.as_str(), "github.com/acme/shop", "{url}");
        }
        for url in [
            "/srv/git/shop.git",
            "../shop",
            "file:///srv/shop",
            "shop",
            "https://github.com/",
            "c:x",
        ] {
            assert_eq!(ProjectName::of_remote(url), None, "{url}");
        }
        let port = ProjectName::of_remote("http://127.0.0.1:8080/octo/demo.git").unwrap();
        assert_eq!(port, ProjectName::of_forge("127.0.0.1:8080", "octo/demo"));
    }

    #[test]
    fn a_folder_without_a_remote_is_named_by_its_path() {
        let folder = Path::new("/home/mona/shop");
        let alone = ProjectName::of_folder(folder, None);
        assert_eq!(alone.as_str(), "/home/mona/shop");
        assert_eq!(ProjectName::of_folder(folder, Some("../shop.git")), alone);
        let cloned = ProjectName::of_folder(folder, Some("git@github.com:acme/shop"));
        assert_eq!(cloned.as_str(), "github.com/acme/shop");
    }

    #[test]
    fn a_written_name_has_a_host_and_a_repository() {
        assert!(ProjectName::parse("github.com/acme/shop").is_some());
        assert!(ProjectName::parse("/srv/my shop").is_some());
        for text in ["shop", "acme/shop", "github.com/acme/../x", "a/b/c d", ""] {
            assert_eq!(ProjectName::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_project_is_displayed_by_its_name() {
        let name = ProjectName::of_remote("https://github.com/acme/shop").unwrap();
        assert_eq!(name.to_string(), "github.com/acme/shop");
    }
}
