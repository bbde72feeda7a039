//! What people wrote about the item, for the model.

use agentmine_agent::{Discussion, Remark, RemarkOrder};
use agentmine_domain::ItemKind;
use agentmine_effects::is_final;
use agentmine_trackers::{Comment, CommentKind};

use crate::error::SessionError;
use crate::session::context::SessionContext;

/// Reads the discussion on the item, without the fleet's own comments. If the tracker refuses it for good, the
/// work goes on without it, with a note.
pub(crate) async fn discussion(ctx: &SessionContext) -> Result<Discussion, SessionError> {
    let comments = match ctx.effects.tracker().comments(&ctx.task.item).await {
        Ok(comments) => comments,
        Err(error) if is_final(&error) => {
            let note = format!(
                "the comments on the item cannot be read, the work goes on without them: {error}"
            );
            ctx.note(&note).await?;
            return Ok(Discussion::none());
        }
        Err(error) => return Err(error.into()),
    };
    let of_people = comments
        .into_iter()
        .filter(|comment| !comment.is_of_the_fleet());
    Ok(Discussion {
        remarks: of_people.map(remark).collect(),
        order: match ctx.task.item.kind {
            ItemKind::Issue => RemarkOrder::OldestFirst,
            ItemKind::PullRequest => RemarkOrder::NewestFirst,
        },
    })
}

fn remark(comment: Comment) -> Remark {
    let about = match comment.kind {
        CommentKind::Plain => None,
        CommentKind::Review { verdict } => Some(format!("review, {verdict}")),
        CommentKind::OnLine { path, line } => Some(match line {
            Some(line) => format!("on {path}:{line}"),
            None => format!("on {path}, on a line that is no longer in the diff"),
        }),
    };
    Remark {
        author: comment.author,
        at: comment.created_at,
        about,
        text: comment.body,
    }
}
