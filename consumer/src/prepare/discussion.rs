//! What people wrote about the item, for the model.

use std::collections::BTreeSet;

use agentmine_agent::{Discussion, Remark, RemarkOrder};
use agentmine_domain::{Addressed, ItemKind};
use agentmine_effects::is_final;
use agentmine_trackers::{Admission, Comment, CommentKind, TrackerError};

use crate::error::SessionError;
use crate::session::context::SessionContext;

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
    let about = match comment.kind {
        CommentKind::Plain => None,
        CommentKind::Review { verdict } => Some(format!("review, {verdict}")),
        CommentKind::OnLine { path, line } => Some(match line {
            Some(line) => format!("on {path}:{line}"),
            None => format!("on {path}, on a line that is no longer in the diff"),
        }),
    };
    Remark {
        id,
        author: comment.author.login,
        at: comment.created_at,
        about,
        text: comment.body,
    }
}
