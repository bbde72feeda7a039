//! Rounds: further work on a pull request that the fleet opened.

use serde::{Deserialize, Serialize};

use crate::ids::TaskId;
use crate::item::ItemRef;

/// With this begins the trigger of a task that is a round.
const TRIGGER: &str = "round-";

/// One round. It is worked on as a separate task, whose item is the pull request and whose trigger is the number: a
/// trigger makes a task once for good, so a round is begun once, no matter who finds that it is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// The pull request.
    pub pull: ItemRef,
    /// From 1.
    pub number: u32,
    /// The task that opened the pull request.
    pub origin: TaskId,
    /// The commit that the source branch was at.
    pub head: String,
    /// What asks for it.
    pub cause: RoundCause,
    /// What came of it, once its work is about to be reported.
    pub result: Option<RoundResult>,
}

impl Round {
    /// The trigger of its task.
    #[must_use]
    pub fn trigger(&self) -> String {
        format!("{TRIGGER}{}", self.number)
    }

    /// The number in a trigger of a round's task.
    #[must_use]
    pub fn number_of(trigger: &str) -> Option<u32> {
        trigger.strip_prefix(TRIGGER)?.parse().ok()
    }
}

/// What asks for a round.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundCause {
    /// Reviews and comments, by their ids among all remarks on the pull request.
    #[serde(default)]
    pub requests: Vec<String>,
    /// Failed checks of the head.
    #[serde(default)]
    pub checks: Vec<RedCheck>,
    /// Whether the target branch has moved and conflicts with the head.
    #[serde(default)]
    pub conflict: bool,
    /// The commit of the target branch that conflicts, where the tracker says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl RoundCause {
    /// Whether nothing asks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.checks.is_empty() && !self.conflict
    }

    /// Whether an answer may be enough: nothing but people's words asks for it.
    #[must_use]
    pub fn may_only_answer(&self) -> bool {
        self.checks.is_empty() && !self.conflict
    }
}

/// A failed check of a commit: a check run, a commit status, a job of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedCheck {
    /// Its name.
    pub name: String,
    /// The tracker's name of where its log is; `None` if it has no log.
    pub log: Option<String>,
    /// What it says of itself.
    pub summary: String,
    /// A digest of the failure, without what differs each time.
    #[serde(default)]
    pub failure: String,
}

/// What came of a round.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundResult {
    /// The remarks that the model was given, by their ids: none of them asks for another round.
    #[serde(default)]
    pub heard: Vec<String>,
    /// What is replied to threads.
    #[serde(default)]
    pub answers: Vec<ThreadAnswer>,
    /// Whether the threads are resolved after that.
    #[serde(default)]
    pub resolve: bool,
    /// The agent's last message, for the rounds after it.
    #[serde(default)]
    pub message: String,
}

/// A reply to one thread of a review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadAnswer {
    /// The tracker's id of the thread.
    pub thread: String,
    /// The text.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trigger_names_the_round() {
        assert_eq!(Round::number_of("round-2"), Some(2));
        for other in ["round-", "round-x", "12", "around-1"] {
            assert_eq!(Round::number_of(other), None, "{other}");
        }
    }

    #[test]
    fn cause_and_result_are_read_as_they_were_stored() {
        let cause = r#"{"requests":["review-7"],"checks":[{"name":"ci","log":"9","summary":"failed","failure":"ab"}],"conflict":true}"#;
        let read: RoundCause = serde_json::from_str(cause).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), cause);
        assert!(!read.may_only_answer() && !read.is_empty());
        let result = r#"{"heard":["7"],"answers":[{"thread":"3","text":"Done."}],"resolve":false,"message":"m"}"#;
        let read: RoundResult = serde_json::from_str(result).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), result);
        let empty: RoundCause = serde_json::from_str("{}").unwrap();
        assert!(empty.is_empty() && empty.may_only_answer());
    }

    #[test]
    fn a_trigger_is_read_as_it_was_written() {
        let round = Round {
            pull: ItemRef {
                tracker: crate::TrackerKind::GitHub,
                host: "github.com".into(),
                repo_id: "42".into(),
                repo_path: "octo/demo".into(),
                kind: crate::ItemKind::PullRequest,
                number: 7,
            },
            number: 3,
            origin: TaskId::new(),
            head: "a".into(),
            cause: RoundCause::default(),
            result: None,
        };
        assert_eq!(round.trigger(), "round-3");
        assert_eq!(Round::number_of(&round.trigger()), Some(3));
    }

    #[test]
    fn each_cause_alone_asks_and_only_words_may_be_answered_alone() {
        let check = RedCheck {
            name: "ci".into(),
            log: None,
            summary: String::new(),
            failure: String::new(),
        };
        let words = RoundCause {
            requests: vec!["7".into()],
            ..RoundCause::default()
        };
        let checks = RoundCause {
            checks: vec![check],
            ..RoundCause::default()
        };
        let conflict = RoundCause {
            conflict: true,
            ..RoundCause::default()
        };
        for (cause, answer) in [(words, true), (checks, false), (conflict, false)] {
            assert!(!cause.is_empty(), "{cause:?}");
            assert_eq!(cause.may_only_answer(), answer, "{cause:?}");
        }
    }
}
