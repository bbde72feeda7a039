//! How far a call of a model has come, which decides what it may have cost if nobody waits for its reply any longer.
//!
//! Guaranteed: a call is free of charge only if its model says so. One of which nothing is known counts as a request in flight.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentmine_domain::Usage;

/// What a request without a whole reply may have cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestCost {
    /// Nothing: it was refused, or never sent.
    Nothing,
    /// As much as one with a reply: the server took it, and its reply did not come whole.
    Reply,
    /// Nobody knows: it may have been sent, and there was no answer. It counts while the call may still be abandoned, and not
    /// once the call has failed: a server that is away for hours must not use a task's budget.
    Unknown,
}

/// The state of one call, shared by the clones of its request: the client of the API sets it, and whoever gives the call up
/// reads what it may have cost.
#[derive(Debug, Clone, Default)]
pub struct CallState(Arc<Mutex<Requests>>);

/// The requests of a call.
#[derive(Debug, Clone, Copy, Default)]
struct Requests {
    newest: Newest,
    /// What the newest one costs, if its server has counted that before the end of the reply.
    counted: Option<Usage>,
    /// Earlier ones whose replies did not come whole, and whose server had not counted them.
    lost: u32,
    /// What the others of these cost.
    lost_counted: Usage,
    /// Whether the server has not counted the tokens of the reply.
    is_estimated: bool,
}

/// How far the newest request of a call has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Newest {
    /// Nobody knows.
    #[default]
    Unknown,
    /// Its reply is not there yet.
    InFlight,
    /// A part of its reply is there.
    Begun,
    /// There is none, or none that is still to be counted: the call waits for its next try.
    Waiting,
    /// Its reply came whole.
    Answered,
}

impl CallState {
    /// A request is being sent.
    pub fn sent(&self) {
        let mut requests = self.requests();
        (requests.newest, requests.counted) = (Newest::InFlight, None);
    }

    /// A part of the reply to the newest request came: it is paid for, however the request ends.
    pub fn begun(&self) {
        self.requests().newest = Newest::Begun;
    }

    /// The server has counted what the newest request costs as far as its reply has come.
    pub fn counted(&self, usage: Usage) {
        self.requests().counted = Some(usage);
    }

    /// The newest request ended without a whole reply.
    pub fn failed(&self, cost: RequestCost) {
        let mut requests = self.requests();
        let cost = match requests.newest {
            Newest::Begun => RequestCost::Reply,
            Newest::Unknown | Newest::InFlight | Newest::Waiting | Newest::Answered => cost,
        };
        requests.newest = match cost {
            RequestCost::Nothing => Newest::Waiting,
            RequestCost::Reply => {
                match requests.counted.take() {
                    Some(usage) => requests.lost_counted += usage,
                    None => requests.lost = requests.lost.saturating_add(1),
                }
                Newest::Waiting
            }
            RequestCost::Unknown => Newest::Unknown,
        };
    }

    /// The reply to the newest request came whole.
    pub fn answered(&self) {
        self.requests().newest = Newest::Answered;
    }

    /// The tokens of the reply are an estimate, since its server has not counted them.
    pub fn estimated(&self) {
        self.requests().is_estimated = true;
    }

    /// Whether the tokens of the reply are an estimate.
    #[must_use]
    pub fn is_estimated(&self) -> bool {
        self.requests().is_estimated
    }

    /// What the call may have cost if its reply is no longer waited for, where one request costs `each`.
    #[must_use]
    pub fn abandoned(&self, each: Usage) -> Usage {
        let requests = *self.requests();
        match requests.newest {
            Newest::Waiting => requests.cost(each),
            // A reply that nobody received is paid for too.
            Newest::Unknown | Newest::InFlight | Newest::Begun | Newest::Answered => {
                requests.cost_with_newest(each)
            }
        }
    }

    /// What the requests of a call that is over may have cost beside that of its reply, where one costs `each`.
    #[must_use]
    pub fn lost(&self, each: Usage) -> Usage {
        let requests = *self.requests();
        match requests.newest {
            // The time of the whole call was over.
            Newest::InFlight | Newest::Begun => requests.cost_with_newest(each),
            Newest::Unknown | Newest::Waiting | Newest::Answered => requests.cost(each),
        }
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Requests {
    /// What the earlier requests cost, `each` where nobody counted it.
    fn cost(&self, each: Usage) -> Usage {
        let mut sum = self.lost_counted;
        for _ in 0..self.lost {
            sum += each;
        }
        sum
    }

    fn cost_with_newest(&self, each: Usage) -> Usage {
        let mut sum = self.cost(each);
        sum += self.counted.unwrap_or(each);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: Usage = Usage {
        model_calls: 1,
        tool_calls: 0,
        input_tokens: 100,
        cached_tokens: 0,
        output_tokens: 0,
        cost_micros: 10,
    };

    /// The requests that count if the call is given up, and if it is over.
    fn counted(state: &CallState) -> (u32, u32) {
        let calls = |usage: Usage| usage.model_calls;
        (calls(state.abandoned(EACH)), calls(state.lost(EACH)))
    }

    #[test]
    fn a_call_costs_nothing_only_where_nothing_is_in_flight() {
        let state = CallState::default();
        assert_eq!(counted(&state), (1, 0), "the model reports nothing");
        state.sent();
        assert_eq!(counted(&state), (1, 1));
        state.failed(RequestCost::Nothing);
        assert_eq!(counted(&state), (0, 0));
        state.sent();
        state.failed(RequestCost::Unknown);
        assert_eq!(counted(&state), (1, 0));
        state.sent();
        state.answered();
        assert_eq!(counted(&state), (1, 0));
    }

    #[test]
    fn replies_that_were_lost_count_whatever_comes_after_them() {
        let state = CallState::default();
        for _ in 0..2 {
            state.sent();
            state.failed(RequestCost::Reply);
        }
        assert_eq!(counted(&state.clone()), (2, 2));
        state.sent();
        assert_eq!(counted(&state), (3, 3));
        state.failed(RequestCost::Nothing);
        assert_eq!(counted(&state), (2, 2));
        assert_eq!(state.abandoned(EACH).cost_micros, 20);
    }

    #[test]
    fn what_the_server_has_counted_is_no_estimate() {
        let cached = Usage {
            cost_micros: 3,
            ..EACH
        };
        let cost = |state: &CallState| {
            let abandoned = state.abandoned(EACH).cost_micros;
            (abandoned, state.lost(EACH).cost_micros)
        };
        let state = CallState::default();
        state.sent();
        state.counted(cached);
        state.begun();
        assert_eq!(cost(&state), (3, 3));
        state.failed(RequestCost::Nothing);
        assert_eq!(cost(&state), (3, 3));
        state.sent();
        assert_eq!(cost(&state), (13, 13), "the next one is not counted yet");
        state.failed(RequestCost::Reply);
        assert_eq!(cost(&state), (13, 13));
        assert_eq!(counted(&state), (2, 2));
    }

    #[test]
    fn a_reply_that_has_begun_counts_whatever_ends_it() {
        let state = CallState::default();
        state.sent();
        state.begun();
        assert_eq!(counted(&state), (1, 1));
        state.failed(RequestCost::Nothing);
        assert_eq!(counted(&state), (1, 1));
        state.sent();
        state.failed(RequestCost::Nothing);
        assert_eq!(counted(&state), (1, 1));
    }
}
