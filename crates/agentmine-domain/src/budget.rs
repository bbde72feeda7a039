//! The budget of a task, and its usage.

use std::ops::AddAssign;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The limits of one task. `None` means unlimited.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// Model calls.
    pub steps: u32,
    /// Input and output tokens together.
    pub tokens: Option<u64>,
    /// Money, in millionths of a US dollar.
    pub cost_micros: Option<u64>,
    /// Wall time.
    pub wall_time: Duration,
}

impl Budget {
    /// Describes the limit that `used` has reached; `None` if one more model call is allowed.
    #[must_use]
    pub fn exceeded(&self, used: &Usage, elapsed: Duration) -> Option<String> {
        if used.model_calls >= self.steps {
            return Some(format!("limit of {} model calls reached", self.steps));
        }
        self.spent(used, |used, limit| used >= limit)
            .or_else(|| self.out_of_time(elapsed))
    }

    /// Describes the first limit of which at most a tenth is left; `None` if none is that near.
    #[must_use]
    pub fn nearly_exceeded(&self, used: &Usage, elapsed: Duration) -> Option<String> {
        let is_near = |used: u128, limit: u128| used * 10 >= limit * 9;
        if is_near(used.model_calls.into(), self.steps.into()) {
            return Some(format!(
                "{} of {} model calls used",
                used.model_calls, self.steps
            ));
        }
        self.spent(used, is_near).or_else(|| {
            is_near(elapsed.as_millis(), self.wall_time.as_millis()).then(|| {
                format!(
                    "{} of {} s of wall time have passed",
                    elapsed.as_secs(),
                    self.wall_time.as_secs()
                )
            })
        })
    }

    /// Describes the tokens or the money used, if `is_spent` of use and limit.
    fn spent(&self, used: &Usage, is_spent: impl Fn(u128, u128) -> bool) -> Option<String> {
        let seen = used.total_tokens();
        if let Some(limit) = self.tokens
            && is_spent(seen.into(), limit.into())
        {
            return Some(format!("{seen} tokens used of {limit}"));
        }
        let limit = self.cost_micros?;
        is_spent(used.cost_micros.into(), limit.into()).then(|| {
            format!(
                "${:.2} spent of ${:.2}",
                used.cost_micros as f64 / 1e6,
                limit as f64 / 1e6
            )
        })
    }

    /// Describes the time limit if it is reached.
    #[must_use]
    pub fn out_of_time(&self, elapsed: Duration) -> Option<String> {
        (elapsed >= self.wall_time).then(|| {
            format!(
                "limit of {} s of wall time reached",
                self.wall_time.as_secs()
            )
        })
    }
}

/// Resources used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Model calls that returned a reply.
    pub model_calls: u32,
    /// Tool calls.
    pub tool_calls: u32,
    /// Tokens sent, including cached ones.
    pub input_tokens: u64,
    /// Tokens sent that the provider had cached.
    pub cached_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// Money, in millionths of a US dollar.
    pub cost_micros: u64,
}

impl Usage {
    /// Input and output tokens together.
    #[must_use]
    pub fn total_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// What was paid, to the nearest cent: `$0.13`, `less than $0.01`; `None` if the model has no prices.
    #[must_use]
    pub fn cost(&self) -> Option<String> {
        let cents = (self.cost_micros + 5_000) / 10_000;
        match (self.cost_micros, cents) {
            (0, _) => None,
            (1..10_000, _) => Some("less than $0.01".to_owned()),
            (_, cents) => Some(format!("${}.{:02}", cents / 100, cents % 100)),
        }
    }

    /// The calls in words: `1 model call, 2 tool calls`.
    #[must_use]
    pub fn calls(&self) -> String {
        let counted = |count: u32, what: &str| match count {
            1 => format!("1 {what} call"),
            count => format!("{count} {what} calls"),
        };
        let (model, tool) = (self.model_calls, self.tool_calls);
        format!("{}, {}", counted(model, "model"), counted(tool, "tool"))
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let Self {
            model_calls,
            tool_calls,
            input_tokens,
            cached_tokens,
            output_tokens,
            cost_micros,
        } = other;
        self.model_calls += model_calls;
        self.tool_calls += tool_calls;
        self.input_tokens += input_tokens;
        self.cached_tokens += cached_tokens;
        self.output_tokens += output_tokens;
        self.cost_micros += cost_micros;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget {
        steps: 3,
        tokens: Some(100),
        cost_micros: Some(2_000_000),
        wall_time: Duration::from_secs(60),
    };

    #[test]
    fn a_cost_is_rounded_to_the_nearest_cent() {
        let cost = |cost_micros| {
            let usage = Usage {
                cost_micros,
                ..Usage::default()
            };
            usage.cost()
        };
        assert_eq!(cost(0), None);
        for (micros, shown) in [
            (1, "less than $0.01"),
            (9_999, "less than $0.01"),
            (10_000, "$0.01"),
            (14_999, "$0.01"),
            (15_000, "$0.02"),
            (999_995_000, "$1000.00"),
        ] {
            assert_eq!(cost(micros).as_deref(), Some(shown), "{micros}");
        }
    }

    #[test]
    fn calls_are_counted_in_words() {
        let usage = Usage {
            model_calls: 1,
            tool_calls: 2,
            ..Usage::default()
        };
        assert_eq!(usage.calls(), "1 model call, 2 tool calls");
    }

    #[test]
    fn the_first_limit_reached_is_reported() {
        let fresh = Usage::default();
        assert_eq!(BUDGET.exceeded(&fresh, Duration::ZERO), None);
        let calls = Usage {
            model_calls: 3,
            ..fresh
        };
        assert!(
            BUDGET
                .exceeded(&calls, Duration::ZERO)
                .unwrap()
                .contains("model calls")
        );
        let tokens = Usage {
            input_tokens: 99,
            output_tokens: 1,
            ..fresh
        };
        assert!(
            BUDGET
                .exceeded(&tokens, Duration::ZERO)
                .unwrap()
                .contains("100 tokens")
        );
        let cost = Usage {
            cost_micros: 2_000_000,
            ..fresh
        };
        assert!(
            BUDGET
                .exceeded(&cost, Duration::ZERO)
                .unwrap()
                .contains("$2.00")
        );
        assert!(
            BUDGET
                .exceeded(&fresh, Duration::from_secs(60))
                .unwrap()
                .contains("wall time")
        );
    }

    #[test]
    fn usage_just_below_every_limit_is_allowed() {
        let below = Usage {
            model_calls: 2,
            input_tokens: 50,
            output_tokens: 49,
            cost_micros: 1_999_999,
            ..Usage::default()
        };
        assert_eq!(BUDGET.exceeded(&below, Duration::from_secs(59)), None);
    }

    #[test]
    fn a_limit_is_near_once_a_tenth_of_it_is_left() {
        let budget = Budget {
            steps: 100,
            ..BUDGET
        };
        let fresh = Usage::default();
        let near = |used: Usage, seconds| {
            let near = budget.nearly_exceeded(&used, Duration::from_secs(seconds));
            near.unwrap_or_default()
        };
        let calls = |model_calls| Usage {
            model_calls,
            ..fresh
        };
        let tokens = |input_tokens| Usage {
            input_tokens,
            ..fresh
        };
        let cost = |cost_micros| Usage {
            cost_micros,
            ..fresh
        };
        assert_eq!(near(calls(89), 53), "");
        assert_eq!(near(calls(90), 0), "90 of 100 model calls used");
        assert_eq!(near(tokens(89), 0), "");
        assert_eq!(near(tokens(90), 0), "90 tokens used of 100");
        assert_eq!(near(cost(1_799_999), 0), "");
        assert_eq!(near(cost(1_800_000), 0), "$1.80 spent of $2.00");
        assert_eq!(near(fresh, 54), "54 of 60 s of wall time have passed");
        // Of so few calls the last one is more than a tenth.
        assert_eq!(BUDGET.nearly_exceeded(&calls(2), Duration::ZERO), None);
    }

    #[test]
    fn usage_is_added_field_by_field() {
        let mut sum = Usage {
            model_calls: 1,
            tool_calls: 2,
            input_tokens: 3,
            cached_tokens: 4,
            output_tokens: 5,
            cost_micros: 6,
        };
        sum += Usage {
            model_calls: 10,
            tool_calls: 20,
            input_tokens: 30,
            cached_tokens: 40,
            output_tokens: 50,
            cost_micros: 60,
        };
        let expected = Usage {
            model_calls: 11,
            tool_calls: 22,
            input_tokens: 33,
            cached_tokens: 44,
            output_tokens: 55,
            cost_micros: 66,
        };
        assert_eq!(sum, expected);
        assert_eq!(sum.total_tokens(), 88);
    }
}
