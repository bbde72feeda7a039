//! A kind of resources: how its URIs begin, which there are, and what is in one.

use std::sync::Arc;

use futures::future::BoxFuture;
use rmcp::model::{Resource, ResourceTemplate};

use super::Context;
use crate::ControlError;

/// Which resources of a kind there are.
pub(super) type List = fn(Arc<Context>) -> BoxFuture<'static, Result<Vec<Resource>, ControlError>>;
/// The text of one, by what follows the prefix in its URI.
pub(super) type Read = fn(Arc<Context>, String) -> BoxFuture<'static, Result<String, ControlError>>;

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

    pub(super) fn list(
        &self,
        context: Arc<Context>,
    ) -> BoxFuture<'static, Result<Vec<Resource>, ControlError>> {
        (self.list)(context)
    }

    pub(super) fn read(
        &self,
        context: Arc<Context>,
        rest: String,
    ) -> BoxFuture<'static, Result<String, ControlError>> {
        (self.read)(context, rest)
    }
}
