//! Comments and pull requests: numbered Markdown files with front matter, one for each.

use std::path::{Path, PathBuf};

use chrono::{DateTime, SecondsFormat, Utc};
use url::Url;

use super::error::io;
use super::files::{self, Locked};
use super::front_matter::{self, Document, State, quote};
use crate::error::TrackerError;
use crate::item::{Comment, CommentKind, NewPullRequest, PullRequest};
use crate::marker::Marker;
use crate::people::Person;

/// The author of our own comments.
pub(super) const LOGIN: &str = "agentmine";

/// A folder's comments in the order of their names. Malformed ones are logged and left out.
pub(super) fn comments(folder: &Path) -> Result<Vec<Comment>, TrackerError> {
    let read = |path: PathBuf| {
        let document = match read(&path) {
            Ok(document) => document?,
            Err(error) => {
                tracing::warn!(%error, "a comment is skipped");
                return None;
            }
        };
        let author = document.head.author.unwrap_or_else(|| "user".to_owned());
        let written = document.head.created_at.as_deref().and_then(parse_time);
        let changed = || path.metadata().ok()?.modified().ok().map(DateTime::from);
        Some(Comment {
            id: files::file_name(&path),
            ours: author == LOGIN,
            author: Person {
                login: author,
                id: None,
                is_bot: false,
            },
            kind: CommentKind::Plain,
            body: document.body.trim_start_matches(['\n', '\r']).to_owned(),
            created_at: written.or_else(changed).unwrap_or_default(),
        })
    };
    Ok(files::markdown(folder)?
        .into_iter()
        .filter_map(read)
        .collect())
}

/// Writes AgentMine's one comment with this marker.
pub(super) fn upsert(
    _locked: &Locked<'_>,
    folder: &Path,
    marker: &Marker,
    body: &str,
) -> Result<String, TrackerError> {
    let text = marker.append(body);
    let known = comments(folder)?;
    let mine = known
        .into_iter()
        .find(|comment| comment.ours && marker.is_in(&comment.body));
    if let Some(newer) = mine.as_ref().filter(|it| marker.yields_to(&it.body)) {
        return Ok(newer.id.clone());
    }
    let (id, created_at) = match mine {
        Some(comment) => (comment.id, comment.created_at),
        None => {
            std::fs::create_dir_all(folder).map_err(|error| io(folder, &error))?;
            (format!("{:04}.md", next_number(folder)?), Utc::now())
        }
    };
    let written = time(created_at);
    let content = format!(
        "---\nauthor: {LOGIN}\ncreated_at: {}\n---\n\n{text}\n",
        quote(&written)
    );
    files::write(&folder.join(&id), &content)?;
    Ok(id)
}

/// The newest pull request from a branch, open ones first.
pub(super) fn find_pull(folder: &Path, head: &str) -> Result<Option<PullRequest>, TrackerError> {
    let mut found: Option<PullRequest> = None;
    for path in files::markdown(folder)? {
        let (Some(number), Some(document)) = (number(&path), read(&path)?) else {
            continue;
        };
        if document.head.head.as_deref() != Some(head) {
            continue;
        }
        let pull = PullRequest {
            number,
            url: address(&path),
            open: document.head.state == State::Open,
            merged: document.head.state == State::Merged,
            head_sha: String::new(),
        };
        let better = |known: &PullRequest| (pull.open, number) > (known.open, known.number);
        if found.as_ref().is_none_or(better) {
            found = Some(pull);
        }
    }
    Ok(found)
}

/// Changes the text of a pull request, and keeps its title.
pub(super) fn update_pull(
    folder: &Path,
    number: u64,
    mut new: NewPullRequest,
) -> Result<(), TrackerError> {
    let known = read(&folder.join(format!("{number}.md")))?;
    if let Some(title) = known.and_then(|known| known.head.title) {
        new.title = title;
    }
    write_pull(folder, number, &new).map(drop)
}

/// Writes the file of a new or a changed pull request.
fn write_pull(folder: &Path, number: u64, new: &NewPullRequest) -> Result<PathBuf, TrackerError> {
    let path = folder.join(format!("{number}.md"));
    let content = format!(
        "---\ntitle: {}\nhead: {}\nbase: {}\nstate: open\ndraft: {}\nauthor: {LOGIN}\ncreated_at: {}\n---\n\n{}\n",
        quote(&new.title),
        quote(&new.head),
        quote(&new.base),
        new.draft,
        quote(&time(Utc::now())),
        new.body.trim_end()
    );
    files::write(&path, &content)?;
    Ok(path)
}

/// Opens a pull request, or returns the open one of its branch.
pub(super) fn create_pull(
    locked: &Locked<'_>,
    folder: &Path,
    new: &NewPullRequest,
) -> Result<PullRequest, TrackerError> {
    if let Some(pull) = find_pull(folder, &new.head)?
        && pull.open
    {
        return Ok(pull);
    }
    files::make_private(folder)?;
    let mut ledger = locked.ledger()?;
    let number = next_number(folder)?.max(ledger.next_pull);
    ledger.next_pull = number + 1;
    locked.put_ledger(&ledger)?;
    let path = write_pull(folder, number, new)?;
    Ok(PullRequest {
        number,
        url: address(&path),
        open: true,
        merged: false,
        head_sha: String::new(),
    })
}

fn read(path: &Path) -> Result<Option<Document>, TrackerError> {
    let text = files::read(path)?;
    text.map(|text| front_matter::parse(&path.display().to_string(), &text))
        .transpose()
}

fn number(path: &Path) -> Option<u64> {
    files::stem(path).parse().ok()
}

/// One more than the highest number in a folder.
fn next_number(folder: &Path) -> Result<u64, TrackerError> {
    let all = files::markdown(folder)?;
    let highest = all.iter().filter_map(|path| number(path)).max();
    Ok(highest.unwrap_or(0).saturating_add(1))
}

/// The `file:` URL of a path.
pub(super) fn address(path: &Path) -> String {
    let url = Url::from_file_path(path);
    url.map_or_else(|()| path.display().to_string(), String::from)
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn parse_time(text: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc3339(text).ok().map(DateTime::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_request_is_in_the_state_that_its_file_names() {
        let folder = tempfile::tempdir().unwrap();
        let states = [
            ("open", true, false),
            ("closed", false, false),
            ("merged", false, true),
        ];
        for (state, open, merged) in states {
            let text = format!("---\nhead: work\nstate: {state}\n---\n");
            std::fs::write(folder.path().join("1.md"), text).unwrap();
            let pull = find_pull(folder.path(), "work").unwrap().unwrap();
            assert_eq!((pull.open, pull.merged), (open, merged), "{state}");
        }
    }
}
