//! The spans of a session: the session itself, its phases, its model calls and its tool calls.
//!
//! Names and attributes are those of OpenTelemetry's conventions for generative AI, in the version that
//! `agentmine_runtime::trace::CONVENTIONS` names. No text of the conversation is in them.

use std::sync::Arc;

use agentmine_domain::{Lease, Phase, Usage};
use agentmine_llm::{Delta, LlmError, Model, ModelReply, ModelRequest, Probe};
use agentmine_runtime::config::Provider;
use agentmine_runtime::trace::{Span, SpanContext, SpanKind};
use agentmine_store::Claim;
use async_trait::async_trait;
use tokio::sync::mpsc::UnboundedSender;

/// A repository may name its servers and their tools.
const LONGEST_NAME: usize = 64;

/// The span of the session that holds this lease.
pub(crate) fn of_session(lease: &Lease) -> SpanContext {
    SpanContext::of_session(lease.task.0.as_u128(), lease.epoch.0)
}

/// Begins the span of a session. An attempt after the first continues the same trace.
pub(crate) fn session(claim: &Claim, provider: Provider) -> Span {
    let Claim { task, lease } = claim;
    let mut span = Span::of_session(of_session(lease), "invoke_agent");
    span.set("gen_ai.operation.name", "invoke_agent");
    span.set("gen_ai.provider.name", provider_name(provider));
    span.set("gen_ai.conversation.id", task.id.to_string());
    span.set("agentmine.task.number", task.number.0);
    span.set("agentmine.task.attempt", i64::from(task.attempt));
    span.set("agentmine.session.id", lease.session.0);
    span.set("agentmine.session.epoch", lease.epoch.0);
    span.set("agentmine.session.takes_over", lease.epoch.0 > 1);
    span
}

/// Begins the span of a phase.
pub(crate) fn phase(session: SpanContext, phase: Phase) -> Span {
    Span::below(session, phase.as_str(), SpanKind::Internal)
}

/// Begins the span of a tool call.
pub(crate) fn tool(lease: &Lease, name: &str) -> Span {
    let name: String = name.chars().take(LONGEST_NAME).collect();
    let title = format!("execute_tool {name}");
    let mut span = Span::below(of_session(lease), &title, SpanKind::Internal);
    span.set("gen_ai.operation.name", "execute_tool");
    span.set("gen_ai.tool.type", "function");
    span.set("gen_ai.tool.name", name);
    span
}

fn provider_name(provider: Provider) -> &'static str {
    match provider {
        Provider::OpenAi => "openai",
        Provider::Anthropic => "anthropic",
        Provider::Replay => "agentmine.replay",
    }
}

/// A model whose calls are spans of a session.
pub(crate) struct TracedModel {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) provider: Provider,
    pub(crate) session: SpanContext,
}

#[async_trait]
impl Model for TracedModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn estimate(&self, request: &ModelRequest<'_>) -> Usage {
        self.model.estimate(request)
    }

    async fn reply(
        &self,
        request: ModelRequest<'_>,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        let name = format!("chat {}", self.name());
        let mut span = Span::below(self.session, &name, SpanKind::Client);
        span.set("gen_ai.operation.name", "chat");
        span.set("gen_ai.provider.name", provider_name(self.provider));
        span.set("gen_ai.request.model", self.name());
        let replied = self.model.reply(request, watch).await;
        match &replied {
            Ok((_, usage)) => {
                span.set("gen_ai.usage.input_tokens", usage.input_tokens);
                span.set("gen_ai.usage.output_tokens", usage.output_tokens);
            }
            Err(error) => span.fail(kind(error)),
        }
        replied
    }

    async fn probe(&self) -> Result<Probe, LlmError> {
        self.model.probe().await
    }
}

/// The kind of an error, without its text.
fn kind(error: &LlmError) -> &'static str {
    match error {
        LlmError::Refused { .. } => "refused",
        LlmError::Unauthorized { .. } => "unauthorized",
        LlmError::OutOfQuota { .. } => "out_of_quota",
        LlmError::NotFound { .. } => "not_found",
        LlmError::NotAnApi(_) => "not_an_api",
        LlmError::NoTls { .. } => "no_tls",
        LlmError::ContextTooLong(_) => "context_too_long",
        LlmError::Unavailable { .. } => "unavailable",
        LlmError::Protocol(_) => "protocol",
        LlmError::Replay(_) => "replay",
    }
}
