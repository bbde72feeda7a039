//! Items as people name them.

use agentmine_domain::ItemKind;
use url::Url;

/// An item by its path and number (`owner/name#7`, `group/project!7`), or by its web address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ItemName {
    /// `host` or `host:port`; `None`: the name does not say.
    pub(crate) host: Option<String>,
    /// The path of the repository.
    pub(crate) path: String,
    /// Whether it is an issue or a pull request; `None`: the name does not say.
    pub(crate) kind: Option<ItemKind>,
    /// The number.
    pub(crate) number: u64,
}

impl ItemName {
    /// The item that a person names, on a forge whose pages are below `root` (see [`web_root`]).
    pub(crate) fn parse(name: &str, root: &str) -> Option<Self> {
        let name = name.trim();
        match name.starts_with("https://") || name.starts_with("http://") {
            true => Self::of_address(&Url::parse(name).ok()?, root),
            false => Self::of_path(name),
        }
    }

    fn of_path(name: &str) -> Option<Self> {
        let (path, number) = name.rsplit_once(['#', '!'])?;
        let kind = name[path.len()..].starts_with('!');
        Some(Self {
            host: None,
            path: path.to_owned(),
            kind: kind.then_some(ItemKind::PullRequest),
            number: number.parse().ok()?,
        })
    }

    fn of_address(url: &Url, root: &str) -> Option<Self> {
        let path = url.path().strip_prefix(root).unwrap_or(url.path());
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let list = parts.iter().rposition(|part| kind_of(part).is_some())?;
        let before = parts[..list].strip_suffix(&["-"]).unwrap_or(&parts[..list]);
        Some(Self {
            host: Some(host_of(url)?),
            path: before.join("/"),
            kind: kind_of(parts[list]),
            number: parts.get(list + 1)?.parse().ok()?,
        })
    }

    /// Whether it may be of the forge at this host.
    pub(crate) fn is_of(&self, host: &str) -> bool {
        let own = self.host.as_deref();
        own.is_none_or(|own| own.eq_ignore_ascii_case(host))
    }
}

/// The path of the repository that a person names on the forge at this host, by its path or its address; `None`: it is
/// on another host.
pub(crate) fn repository_path(name: &str, host: &str, root: &str) -> Option<String> {
    let name = name.trim();
    if !name.starts_with("https://") && !name.starts_with("http://") {
        return Some(name.to_owned());
    }
    let url = Url::parse(name).ok()?;
    let is_here = host_of(&url)?.eq_ignore_ascii_case(host);
    let path = url.path().strip_prefix(root).unwrap_or(url.path());
    let path = path.trim_matches('/').trim_end_matches(".git");
    is_here.then(|| path.to_owned())
}

fn host_of(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    Some(match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

/// The kind of the items that an address has in a list of this name.
fn kind_of(list: &str) -> Option<ItemKind> {
    match list {
        "issues" | "work_items" => Some(ItemKind::Issue),
        "pull" | "pulls" | "merge_requests" => Some(ItemKind::PullRequest),
        _ => None,
    }
}

/// The path below which a forge has its pages, from the base of its API: empty, unless it shares its host.
pub(crate) fn web_root(api: &Url) -> String {
    let path = api.path().trim_end_matches('/');
    let root = path
        .strip_suffix("/api/v3")
        .or_else(|| path.strip_suffix("/api/v4"));
    root.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, root: &str) -> Option<(String, String, &'static str, u64)> {
        let found = ItemName::parse(name, root)?;
        let kind = found.kind.map_or("either", ItemKind::as_str);
        let host = found.host.unwrap_or_default();
        Some((host, found.path, kind, found.number))
    }

    #[test]
    fn an_item_is_named_by_path_and_number_or_by_its_address() {
        for (name, root, host, path, kind, number) in [
            ("acme/shop#7", "", "", "acme/shop", "either", 7),
            ("a/b/c!12", "", "", "a/b/c", "pull_request", 12),
            (
                "https://github.com/acme/shop/issues/7",
                "",
                "github.com",
                "acme/shop",
                "issue",
                7,
            ),
            (
                "https://github.com/acme/shop/pull/8/files#diff",
                "",
                "github.com",
                "acme/shop",
                "pull_request",
                8,
            ),
            (
                "http://127.0.0.1:81/acme/issues/issues/9?a=b",
                "",
                "127.0.0.1:81",
                "acme/issues",
                "issue",
                9,
            ),
            (
                "https://git.example/gitlab/a/b/c/-/merge_requests/3/diffs",
                "/gitlab",
                "git.example",
                "a/b/c",
                "pull_request",
                3,
            ),
            (
                "https://git.example/a/b/-/work_items/4",
                "",
                "git.example",
                "a/b",
                "issue",
                4,
            ),
        ] {
            let expected = (host.to_owned(), path.to_owned(), kind, number);
            assert_eq!(named(name, root), Some(expected), "{name}");
        }
        for name in [
            "acme/shop",
            "acme/shop#x",
            "https://github.com/acme/shop",
            "https://github.com/acme/shop/issues",
            "https://github.com/acme/shop/issues/new",
        ] {
            assert_eq!(named(name, ""), None, "{name}");
        }
    }

    #[test]
    fn a_repository_is_named_by_its_path_or_its_address() {
        let path = |name: &str| repository_path(name, "git.example", "/gitlab");
        assert_eq!(path("a/b/c").as_deref(), Some("a/b/c"));
        let address = "https://git.example/gitlab/a/b.git/";
        assert_eq!(path(address).as_deref(), Some("a/b"));
        assert_eq!(path("https://elsewhere.example/a/b"), None);
    }

    #[test]
    fn the_pages_of_a_forge_are_beside_its_api() {
        for (api, root) in [
            ("https://api.github.com/", ""),
            ("https://git.example/api/v3/", ""),
            ("https://git.example/gitlab/api/v4/", "/gitlab"),
        ] {
            assert_eq!(web_root(&Url::parse(api).unwrap()), root, "{api}");
        }
    }
}
