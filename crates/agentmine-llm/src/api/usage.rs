//! Tokens of a request, and what they cost.

use agentmine_domain::Usage;
use agentmine_runtime::config::ModelConfig;

/// Tokens of one request, as the server counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// Sent, cached ones included.
    pub(crate) input: u64,
    /// Sent, and found in the provider's cache. At most `input`.
    pub(crate) cached: u64,
    /// Received.
    pub(crate) output: u64,
}

/// US dollars for a million tokens, which is also millionths of a dollar for one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prices {
    input: f64,
    cached: f64,
    output: f64,
}

impl Prices {
    pub(crate) fn of(config: &ModelConfig) -> Self {
        Self {
            input: config.input_price,
            cached: config.cached_input_price.unwrap_or(config.input_price),
            output: config.output_price,
        }
    }

    /// The usage of one call of the model.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cost from a wrong price saturates, as intended"
    )]
    pub(crate) fn usage(self, tokens: Tokens) -> Usage {
        let Tokens {
            input,
            cached,
            output,
        } = tokens;
        let cost = input.saturating_sub(cached) as f64 * self.input
            + cached as f64 * self.cached
            + output as f64 * self.output;
        Usage {
            model_calls: 1,
            tool_calls: 0,
            input_tokens: input,
            cached_tokens: cached,
            output_tokens: output,
            cost_micros: cost.round() as u64,
        }
    }
}
