//! What people wrote about the item, for the model.

use std::collections::BTreeSet;

use agentmine_agent::{Discussion, Remark, RemarkOrder};
use agentmine_domain::markdown::fenced;
use agentmine_domain::{Addressed, ItemKind};
use agentmine_effects::is_final;
use agentmine_trackers::{Admission, Comment, CommentKind, LinePlace, TrackerError};

use crate::error::SessionError;
use crate::session::context::SessionContext;

/// Lines of a diff that are shown with a comment, and bytes of each.
const HUNK_LINES: usize = 10;
const MAX_LINE: usize = 300;

/// Reads the discussion on the item: what people wrote who may start work, without the fleet's own comments. If the
/// tracker refuses it for good, the work continues without it, with a note.
pub(crate) async fn discussion(ctx: &SessionContext) -> Result<Discussion, SessionError> {
    let remarks = match remarks(ctx, &BTreeSet::new()).await {
        Ok(Remarks { heard, .. }) => heard,
        Err(error) if is_final(&error) => {
            let note = format!(
                "the comments on the item cannot be read; the work continues without them: {error}"
            );
            ctx.note(&note).await?;
            return Ok(Discussion::none());
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Discussion {
        remarks,
        order: match ctx.task.item.kind {
            ItemKind::Issue | ItemKind::Task => RemarkOrder::OldestFirst,
            ItemKind::PullRequest => RemarkOrder::NewestFirst,
        },
    })
}

/// What people wrote on the item.
#[derive(Debug, Default)]
pub(crate) struct Remarks {
    /// By people who may start work.
    pub(crate) heard: Vec<Remark>,
    /// The ids of those of others.
    pub(crate) of_others: Vec<String>,
}

/// Reads what people wrote on the item, but for what is `known`.
pub(crate) async fn remarks(
    ctx: &SessionContext,
    known: &BTreeSet<String>,
) -> Result<Remarks, TrackerError> {
    let (tracker, item) = (ctx.effects.tracker(), &ctx.task.item);
    let mut remarks = Remarks::default();
    for comment in tracker.comments(item).await? {
        let id = comment.remark_id();
        // Commands are for the fleet, and not for the model.
        let is_command = Addressed::by(&comment.body).is_some();
        if comment.is_of_the_fleet() || is_command || known.contains(&id) {
            continue;
        }
        match tracker.may_start(item, &comment.author).await? {
            Admission::Granted => remarks.heard.push(remark(id, comment)),
            Admission::Refused(why) => {
                tracing::debug!(
                    comment.id = id,
                    why,
                    "a comment is ignored: its author may not start work"
                );
                remarks.of_others.push(id);
            }
        }
    }
    Ok(remarks)
}

fn remark(id: String, comment: Comment) -> Remark {
    let (about, hunk) = match comment.kind {
        CommentKind::Plain => (None, String::new()),
        CommentKind::Review { verdict } => (Some(format!("review, {verdict}")), String::new()),
        CommentKind::OnLine { path, place } => {
            let (about, hunk) = where_in(&path, place);
            (Some(about), hunk)
        }
    };
    let text = match hunk.trim() {
        "" => comment.body,
        hunk => format!(
            "About the last of these lines:\n\n{}\n\n{}",
            fenced(&end_of(hunk)),
            comment.body
        ),
    };
    Remark {
        id,
        author: comment.author.login,
        at: comment.created_at,
        about,
        text,
    }
}

/// Where a comment on a diff is, and the part of the diff that shows it, where no number of the file does.
fn where_in(path: &str, place: LinePlace) -> (String, String) {
    match place {
        LinePlace::File => (format!("on {path}"), String::new()),
        LinePlace::Lines { first, last } if first == last => {
            (format!("on {path}:{last}"), String::new())
        }
        LinePlace::Lines { first, last } => (format!("on {path}:{first}-{last}"), String::new()),
        LinePlace::Removed { line, hunk } => (
            format!("on {path}, on a removed line, which was line {line}"),
            hunk,
        ),
        LinePlace::Outdated { hunk } => (
            format!("on {path}, on a line that is no longer in the diff"),
            hunk,
        ),
    }
}

/// The last lines of a part of a diff.
fn end_of(hunk: &str) -> String {
    let lines: Vec<&str> = hunk.lines().collect();
    let end = &lines[lines.len().saturating_sub(HUNK_LINES)..];
    let end = end
        .iter()
        .map(|line| &line[..line.floor_char_boundary(MAX_LINE)]);
    end.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use agentmine_trackers::Person;
    use chrono::DateTime;

    use super::*;

    /// What the model reads of a comment `Why?` there.
    fn read(place: LinePlace) -> (String, String) {
        let comment = Comment {
            id: "7".into(),
            ours: false,
            author: Person {
                login: "mona".into(),
                id: None,
                is_bot: false,
            },
            kind: CommentKind::OnLine {
                path: "a.rs".into(),
                place,
            },
            body: "Why?".into(),
            created_at: DateTime::UNIX_EPOCH,
        };
        let remark = remark("line-7".into(), comment);
        (remark.about.unwrap(), remark.text)
    }

    #[test]
    fn the_model_learns_which_lines_a_comment_is_on() {
        let why = "Why?".to_owned();
        let lines = |first, last| LinePlace::Lines { first, last };
        assert_eq!(read(lines(3, 3)), ("on a.rs:3".into(), why.clone()));
        assert_eq!(read(lines(3, 5)), ("on a.rs:3-5".into(), why.clone()));
        assert_eq!(read(LinePlace::File), ("on a.rs".into(), why));
        let diff: String = (1..=20).map(|n| format!("-old {n}\n")).collect();
        let (about, text) = read(LinePlace::Removed {
            line: 4,
            hunk: diff.clone(),
        });
        assert_eq!(about, "on a.rs, on a removed line, which was line 4");
        assert!(
            text.contains("\n-old 11\n") && !text.contains("-old 10\n"),
            "{text}"
        );
        assert!(text.ends_with("-old 20\n```\n\nWhy?"), "{text}");
        let (about, text) = read(LinePlace::Outdated { hunk: diff });
        assert!(about.ends_with("no longer in the diff"), "{about}");
        assert!(text.contains("-old 20"), "{text}");
    }

    #[test]
    fn a_comment_without_its_part_of_the_diff_has_its_text_alone() {
        let (_, text) = read(LinePlace::Outdated {
            hunk: String::new(),
        });
        assert_eq!(text, "Why?");
        let long = format!("+{}", "é".repeat(1000));
        let (_, text) = read(LinePlace::Outdated { hunk: long });
        assert!(text.len() < MAX_LINE + 100, "{}", text.len());
    }
}
