//! Refuses methods that our servers do not have. By default the protocol library returns empty lists, from which
//! a client could conclude that there are prompts, resources and completions to come.

/// Methods for an `impl ServerHandler` of a server that only has tools.
macro_rules! tools_alone {
    () => {
        $crate::undeclared::tools_alone! {
            list_prompts(Option<rmcp::model::PaginatedRequestParams>)
                -> rmcp::model::ListPromptsResult, rmcp::model::ListPromptsRequestMethod;
            list_resources(Option<rmcp::model::PaginatedRequestParams>)
                -> rmcp::model::ListResourcesResult, rmcp::model::ListResourcesRequestMethod;
            list_resource_templates(Option<rmcp::model::PaginatedRequestParams>)
                -> rmcp::model::ListResourceTemplatesResult,
                   rmcp::model::ListResourceTemplatesRequestMethod;
            complete(rmcp::model::CompleteRequestParams)
                -> rmcp::model::CompleteResult, rmcp::model::CompleteRequestMethod;
        }
    };
    ($($method:ident($request:ty) -> $result:ty, $name:ty;)*) => {
        $(async fn $method(
            &self,
            _request: $request,
            _context: rmcp::service::RequestContext<rmcp::service::RoleServer>,
        ) -> Result<$result, rmcp::ErrorData> {
            Err(rmcp::ErrorData::method_not_found::<$name>())
        })*
    };
}
pub(crate) use tools_alone;
