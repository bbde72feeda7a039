//! A kind of resources: how its URIs begin, which there are, and what is in one.

use std::sync::Arc;

use futures::future::BoxFuture;
use rmcp::model::{Resource, ResourceTemplate};

use super::context::Context;
use crate::ControlError;

/// A part of the resources of a kind: the first one, or what follows a cursor of an earlier one.
pub(super) type List =
    fn(Arc<Context>, Option<String>) -> BoxFuture<'static, Result<Part, ControlError>>;
/// The text of one, by what follows the prefix in its URI.
pub(super) type Read = fn(Arc<Context>, String) -> BoxFuture<'static, Result<String, ControlError>>;

/// A part of a list.
pub(super) struct Part {
    pub(super) resources: Vec<Resource>,
    /// Where the next part begins; `None`: this is the last one.
    pub(super) next: Option<String>,
}

impl Part {
    /// All that there are.
    pub(super) fn whole(resources: Vec<Resource>) -> Self {
        Self {
            resources,
            next: None,
        }
    }
}

/// A part of the resources of all kinds, one kind after the other. A cursor is the prefix of the kind in which the part
/// begins, and that kind's own cursor.
///
/// # Errors
/// [`ControlError::Validation`] for a cursor that no part ended with, and those of the kinds.
pub(super) async fn list(
    kinds: &[ResourceKind],
    context: &Arc<Context>,
    cursor: Option<&str>,
) -> Result<Part, ControlError> {
    let (kinds, mut own) = match cursor {
        None => (kinds, None),
        Some(cursor) => {
            let of_kind = |kind: &ResourceKind| cursor.starts_with(kind.prefix);
            let first = kinds
                .iter()
                .position(of_kind)
                .ok_or_else(|| unknown_cursor(cursor))?;
            let own = &cursor[kinds[first].prefix.len()..];
            (&kinds[first..], Some(own.to_owned()))
        }
    };
    let mut all = Vec::new();
    for kind in kinds {
        let part = (kind.list)(Arc::clone(context), own.take()).await?;
        all.extend(part.resources);
        if let Some(next) = part.next {
            return Ok(Part {
                resources: all,
                next: Some(format!("{}{next}", kind.prefix)),
            });
        }
    }
    Ok(Part::whole(all))
}

/// No part ended with it.
pub(super) fn unknown_cursor(cursor: &str) -> ControlError {
    let cursor = crate::input::shown(cursor);
    ControlError::Validation(format!(
        "unknown cursor {cursor:?}, expected the nextCursor of an earlier answer"
    ))
}

/// A kind of resources.
pub(super) struct ResourceKind {
    /// With this its URIs begin; the whole URI where there is only one.
    pub(super) prefix: &'static str,
    /// The URI with a variable, and what it is; `None`: there is only one.
    pub(super) template: Option<(&'static str, &'static str, &'static str)>,
    pub(super) mime: &'static str,
    pub(super) list: List,
    pub(super) read: Read,
}

impl ResourceKind {
    pub(super) fn prefix(&self) -> &'static str {
        self.prefix
    }

    pub(super) fn mime(&self) -> &'static str {
        self.mime
    }

    pub(super) fn template(&self) -> Option<ResourceTemplate> {
        let (uri, name, description) = self.template?;
        let template = ResourceTemplate::new(uri, name).with_description(description);
        Some(template.with_mime_type(self.mime))
    }

    pub(super) fn read(
        &self,
        context: Arc<Context>,
        rest: String,
    ) -> BoxFuture<'static, Result<String, ControlError>> {
        (self.read)(context, rest)
    }
}
