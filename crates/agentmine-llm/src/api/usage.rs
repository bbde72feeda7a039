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
    /// Sent, and written to the provider's cache, which some charge more for. At most `input` without `cached`.
    pub(crate) written: u64,
    /// Received.
    pub(crate) output: u64,
}

/// US dollars for a million tokens, which is also millionths of a dollar for one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prices {
    input: f64,
    cached: f64,
    written: f64,
    output: f64,
}

/// What writing to the cache costs by default, as a multiple of the price of input: what Anthropic charges for a
/// cache of five minutes.
const CACHE_WRITE: f64 = 1.25;

impl Prices {
    pub(crate) fn of(config: &ModelConfig) -> Self {
        Self {
            input: config.input_price,
            cached: config.cached_input_price.unwrap_or(config.input_price),
            written: config
                .cache_write_price
                .unwrap_or(config.input_price * CACHE_WRITE),
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
            written,
            output,
        } = tokens;
        let plain = input.saturating_sub(cached).saturating_sub(written);
        let cost = plain as f64 * self.input
            + cached as f64 * self.cached
            + written as f64 * self.written
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
