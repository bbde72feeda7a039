//! What may be in the new commits of a push: no secrets, no submodules that run programs, none of the paths that the
//! operator refuses, and no words that close an issue.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agentmine_runtime::config::PushPolicy;

use super::fresh::{Content, Fresh, NewFile};
use super::identities::identities;
use super::objects::Objects;
use super::{message, paths, pattern, secrets};
use crate::facts::{BareRepo, FactsError};
use crate::git_process;
use crate::printable::printable;
use crate::wire::advertisement::Advertisement;

/// Time limit for all of it.
const TIME_LIMIT: Duration = Duration::from_secs(300);
/// Of a larger file, so many bytes are searched for secrets.
const MAX_SEARCHED: u64 = 32 * 1024 * 1024;
/// Findings that are listed.
const MAX_LISTED: usize = 20;
/// Lists of submodules that are checked; more are refused. Git itself reads one, at the top.
const MAX_LISTS: usize = 1000;
/// Findings after which the search ends.
const MAX_FOUND: usize = 100;
/// Where a finding in a commit's message is, for the operator's patterns too.
const MESSAGE: &str = "(commit message)";
/// Schemes of a submodule's URL for which git starts no program that the URL names.
const SCHEMES: [&str; 9] = [
    "http", "https", "ssh", "git", "git+ssh", "ssh+git", "file", "ftp", "ftps",
];

/// Why a push is refused.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) reason: String,
    /// More for the user of git, one line each.
    pub(super) details: Vec<String>,
}

impl From<String> for Held {
    fn from(reason: String) -> Self {
        Self {
            reason,
            details: Vec::new(),
        }
    }
}

impl From<&str> for Held {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}

/// Checks a push of `new`, and returns the authors and committers of its new commits; `None` if it has none. `parents` are
/// those of the commits in the pack, `refs` what upstream has.
pub(super) async fn check(
    repo: &BareRepo,
    parents: &HashMap<String, Vec<String>>,
    new: &str,
    refs: &Advertisement,
    policy: &PushPolicy,
) -> Result<Option<BTreeSet<String>>, Held> {
    let check = async {
        let tips: HashSet<String> = refs.ids().map(str::to_owned).collect();
        let fresh = match Fresh::known(parents, new, &tips) {
            Some(fresh) => fresh,
            None => Fresh::listed(repo, parents, new).await?,
        };
        if fresh.commits.is_empty() {
            return Ok(None);
        }
        let mut objects = Objects::of(repo).map_err(unchecked)?;
        let content = fresh.content(&mut objects).await?;
        submodules(repo, &mut objects, &fresh, &content).await?;
        paths::check(repo, parents, &fresh, new, policy).await?;
        if let Some(reason) = message::found(&content.messages) {
            return Err(reason.into());
        }
        let identities = identities(&content.messages);
        no_secrets(&mut objects, content, policy).await?;
        Ok(Some(identities))
    };
    let seconds = TIME_LIMIT.as_secs();
    let late =
        || format!("the push could not be checked within {seconds} seconds; push it in parts");
    tokio::time::timeout(TIME_LIMIT, check)
        .await
        .unwrap_or_else(|_| Err(late().into()))
}

fn unchecked(error: std::io::Error) -> Held {
    format!("the push could not be checked: {error}").into()
}

/// Holds back what looks like a secret, in every new commit: what a later commit removes stays in the history.
async fn no_secrets(
    objects: &mut Objects,
    content: Content,
    policy: &PushPolicy,
) -> Result<(), Held> {
    let mut places = Vec::new();
    for message in content.messages {
        if places.len() >= MAX_FOUND {
            break;
        }
        let start = message.text.windows(2).position(|two| two == b"\n\n");
        let text = message.text[start.map_or(0, |at| at + 2)..].to_vec();
        search(
            &message.commit,
            MESSAGE.to_owned(),
            text,
            policy,
            &mut places,
        )
        .await?;
    }
    for NewFile { id, path, commit } in content.files {
        if places.len() >= MAX_FOUND {
            break;
        }
        let read = objects.read(&id, MAX_SEARCHED).await.map_err(unchecked)?;
        if let Some(file) = read.filter(|found| found.kind == "blob") {
            search(&commit, path, file.bytes, policy, &mut places).await?;
        }
    }
    let Some(first) = places.first() else {
        return Ok(());
    };
    let more = match places.len() {
        1 => String::new(),
        MAX_FOUND.. => format!(" and at least {} more", MAX_FOUND - 1),
        count => format!(" and {} more", count - 1),
    };
    let reason = format!("held back: this looks like a secret: {first}{more}");
    let mut details: Vec<String> = places.iter().skip(1).take(MAX_LISTED).cloned().collect();
    details.push(
        "remove it from every new commit, since an older one keeps what a newer one removes; if it is no \
         secret, say so in your result: the operator can allow it by rule and path"
            .into(),
    );
    Err(Held { reason, details })
}

/// Sets its flag when nobody waits any more: a blocking thread outlives the time limit.
#[derive(Default)]
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Adds the places in `text` that look like a secret, and that the operator did not allow, until there are [`MAX_FOUND`].
async fn search(
    commit: &str,
    path: String,
    text: Vec<u8>,
    policy: &PushPolicy,
    places: &mut Vec<String>,
) -> Result<(), Held> {
    let fits = policy.allow_secrets.iter().filter(|allowed| {
        let mut paths = allowed.paths.iter();
        paths.any(|it| pattern::matches(it, &path))
    });
    let allowed: Vec<String> = fits.map(|allowed| allowed.rule.clone()).collect();
    let room = MAX_FOUND.saturating_sub(places.len());
    let waiting = Waiting::default();
    let is_abandoned = waiting.0.clone();
    let searched = tokio::task::spawn_blocking(move || {
        let is_sought = |rule: &str| !allowed.iter().any(|it| it == "*" || it == rule);
        let is_over = |found: usize| found >= room || is_abandoned.load(Ordering::Relaxed);
        let found = secrets::search(&path, &text, is_sought, is_over);
        (path, found)
    });
    let (path, found) = searched
        .await
        .map_err(|error| unchecked(std::io::Error::other(error)))?;
    let commit = commit.get(..12).unwrap_or(commit);
    places.extend(found.into_iter().map(|secrets::Finding { line, rule }| {
        let path = printable(&path);
        format!("{rule} in {path} line {line} (commit {commit})")
    }));
    Ok(())
}

/// Refuses submodules whose URL names a program to run, such as `ext::sh -c …`. A list whose content upstream has may be
/// new all the same: it was another file there. To see that costs a fetch in each push to a repository with such a list.
async fn submodules(
    repo: &BareRepo,
    objects: &mut Objects,
    fresh: &Fresh,
    content: &Content,
) -> Result<(), Held> {
    if content.submodules.len() > MAX_LISTS {
        return Err(format!("the push has more than {MAX_LISTS} lists of submodules").into());
    }
    let mut absent = Vec::new();
    for file in &content.submodules {
        if objects
            .read(&file.id, 0)
            .await
            .map_err(unchecked)?
            .is_none()
        {
            absent.push(file.id.as_str());
        }
    }
    if !absent.is_empty() {
        match repo.fetch_files(&absent).await {
            // Upstream does not have one of them and will refuse the push, or it does not serve single files.
            Ok(()) | Err(FactsError::NotFound(_) | FactsError::Git(_)) => {}
            Err(error) => return Err(unread(&error)),
        }
    }
    for file in &content.submodules {
        let mut git = repo.git();
        git.args([
            "config",
            "--no-includes",
            "--list",
            "-z",
            "--blob",
            &file.id,
        ]);
        let listed = git_process::run(git, TIME_LIMIT, 1024 * 1024).await;
        let listed = listed.map_err(unchecked)?;
        // Of a file that is no configuration git reads no submodule either.
        let text = String::from_utf8_lossy(&listed.stdout);
        for entry in text.split('\0') {
            let (key, value) = entry.split_once('\n').unwrap_or((entry, ""));
            if key.ends_with(".url") && !is_plain_url(value) {
                if absent.contains(&file.id.as_str()) && is_upstreams(repo, fresh, file).await? {
                    break;
                }
                let (path, url) = (printable(&file.path), printable(value));
                return Err(format!(
                    "{path} names a submodule whose URL is not one of an ordinary transport: {url}"
                )
                .into());
            }
        }
    }
    Ok(())
}

fn unread(error: &FactsError) -> Held {
    format!("the submodules of the push could not be read from upstream: {error}").into()
}

/// Whether a commit that the push is based on has the same file at the same path.
async fn is_upstreams(repo: &BareRepo, fresh: &Fresh, file: &NewFile) -> Result<bool, Held> {
    let bases = fresh.bases();
    if bases.is_empty() {
        return Ok(false);
    }
    let fetched = repo.fetch_trees(&bases).await;
    fetched.map_err(|error| unread(&error))?;
    for base in bases {
        let there = repo.object_at(base, &file.path).await;
        if there.map_err(|error| unread(&error))?.as_ref() == Some(&file.id) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_plain_url(url: &str) -> bool {
    let word = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
    };
    if url.starts_with('-') {
        return false;
    }
    if let Some((helper, _)) = url.split_once("::")
        && word(helper)
    {
        return false;
    }
    match url.split_once("://") {
        Some((scheme, _)) if word(scheme) => {
            SCHEMES.contains(&scheme.to_ascii_lowercase().as_str())
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_for_secrets_ends_when_nobody_waits_for_it() {
        let waiting = Waiting::default();
        let is_abandoned = waiting.0.clone();
        assert!(!is_abandoned.load(Ordering::Relaxed));
        drop(waiting);
        assert!(is_abandoned.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn a_file_full_of_secrets_has_a_limited_number_of_findings() {
        let token = concat!("ghp", "_Zk3xQ9vB7mT2wR8yL5nH1cJ6dF4gS0pEa1Xu\n");
        let policy = PushPolicy::default();
        let mut places = vec![String::new(); 30];
        let text = token.repeat(MAX_FOUND).into_bytes();
        search("c", "a.txt".into(), text, &policy, &mut places)
            .await
            .unwrap();
        assert_eq!(places.len(), MAX_FOUND);
    }

    #[test]
    fn a_submodules_url_names_no_program() {
        for url in [
            "https://h/x.git",
            "ssh://git@h/x",
            "git@h:x/y.git",
            "../other.git",
            "./x",
            "file:///x",
            "/srv/a::b",
        ] {
            assert!(is_plain_url(url), "{url}");
        }
        for url in [
            "ext::sh -c x",
            "EXT::x",
            "fd::3",
            "foo://h/x",
            "--upload-pack=x",
            "a+b::c",
        ] {
            assert!(!is_plain_url(url), "{url}");
        }
    }
}
