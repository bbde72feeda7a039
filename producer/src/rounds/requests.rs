//! Reviews that ask for changes, and mentions of the bot, by people who may start work.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use agentmine_domain::markdown::neutralized;
use agentmine_domain::{Addressed, ItemRef, Round, Task};
use agentmine_trackers::{Admission, Comment, CommentKind, Tracker, TrackerError};
use chrono::{DateTime, Utc};

/// The words of a review's verdict that ask for a round.
const ASKS: &str = "changes requested";
/// The verdicts after which an earlier one of the same person does not ask any more.
const WITHDRAWS: [&str; 2] = ["approved", "dismissed"];

/// What asks for a round and was not answered by one.
#[derive(Debug, Default)]
pub(super) struct Requests(Vec<Request>);

#[derive(Debug)]
struct Request {
    id: String,
    author: String,
    is_review: bool,
    at: DateTime<Utc>,
}

/// What the newest task on a pull request was given to read, unless that is a round: rounds record what they heard themselves.
#[derive(Debug)]
pub(super) enum Given {
    Nothing,
    /// The remarks with these ids.
    Remarks(BTreeSet<String>),
    /// Perhaps what was written before this time: the task left no record.
    Before(DateTime<Utc>),
}

impl Given {
    /// Of the newest task, with what its result records.
    pub(super) fn to(newest: Option<&Task>, heard: Option<BTreeSet<String>>) -> Self {
        match (newest.filter(|task| task.round().is_none()), heard) {
            (None, _) => Self::Nothing,
            (Some(_), Some(heard)) => Self::Remarks(heard),
            (Some(task), None) => Self::Before(task.created_at),
        }
    }

    /// Whether a remark is among it.
    fn includes(&self, id: &str, written_at: DateTime<Utc>) -> bool {
        match self {
            Self::Nothing => false,
            Self::Remarks(ids) => ids.contains(id),
            Self::Before(at) => written_at < *at,
        }
    }
}

impl Requests {
    /// Reads them, without those that were given to a task that is no round.
    pub(super) async fn read(
        tracker: &dyn Tracker,
        pull: &ItemRef,
        rounds: &[Round],
        given: &Given,
    ) -> Result<Self, TrackerError> {
        let login = tracker.own_login().await?;
        let answered: HashSet<&String> = rounds
            .iter()
            .flat_map(|round| {
                let heard = round.result.iter().flat_map(|result| &result.heard);
                round.cause.requests.iter().chain(heard)
            })
            .collect();
        let comments = tracker.comments(pull).await?;
        let withdrawn = withdrawn(&comments);
        let mut found = Vec::new();
        for comment in comments {
            let id = comment.remark_id();
            let asks = asks(&comment, &login)
                && !comment.is_of_the_fleet()
                && !withdrawn.contains(&comment.id)
                && !given.includes(&id, comment.created_at);
            if !asks || answered.contains(&id) {
                continue;
            }
            match tracker.may_start(pull, &comment.author).await? {
                Admission::Granted => found.push(Request {
                    id,
                    author: comment.author.login,
                    is_review: matches!(comment.kind, CommentKind::Review { .. }),
                    at: comment.created_at,
                }),
                Admission::Refused(why) => {
                    tracing::debug!(comment.id = id, why, "a request for a round is ignored");
                }
            }
        }
        Ok(Self(found))
    }

    /// When the first one was made.
    pub(super) fn first(&self) -> Option<DateTime<Utc>> {
        self.0.iter().map(|request| request.at).min()
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.0.iter().map(|request| request.id.clone()).collect()
    }

    /// Each of them in a few words.
    pub(super) fn words(&self) -> Vec<String> {
        let words = self.0.iter().map(|request| {
            let what = match request.is_review {
                true => "a review of",
                false => "a comment of",
            };
            format!("{what} {}", neutralized(&request.author))
        });
        words.collect()
    }
}

/// The ids of reviews that their authors replaced by an approval.
fn withdrawn(comments: &[Comment]) -> HashSet<String> {
    let mut open: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut withdrawn = HashSet::new();
    for comment in comments {
        let CommentKind::Review { verdict } = &comment.kind else {
            continue;
        };
        let own = open.entry(&comment.author.login).or_default();
        if verdict == ASKS {
            own.push(&comment.id);
        } else if WITHDRAWS.contains(&verdict.as_str()) {
            withdrawn.extend(own.drain(..).map(str::to_owned));
        }
    }
    withdrawn
}

fn asks(comment: &Comment, login: &str) -> bool {
    if Addressed::by(&comment.body).is_some() {
        return false;
    }
    match &comment.kind {
        CommentKind::Review { verdict } if verdict == ASKS => true,
        CommentKind::Review { .. } | CommentKind::Plain | CommentKind::OnLine { .. } => {
            mentions(&comment.body, login)
        }
    }
}

/// Whether a text names somebody with an `@`, as forges read it: outside of quotations, blocks of code and addresses.
fn mentions(text: &str, login: &str) -> bool {
    // The bot of an App is mentioned without what its name ends with.
    let login = login.strip_suffix("[bot]").unwrap_or(login).to_lowercase();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    // The fence of the block of code that a line is in.
    let mut open = "";
    let lines = text.lines().filter(|line| {
        let line = line.trim();
        let run = |c: char| &line[..line.len() - line.trim_start_matches(c).len()];
        let fence = [run('`'), run('~')].into_iter().find(|it| it.len() >= 3);
        match fence {
            // With another backtick it is code in a line of text.
            Some(fence) if open.is_empty() && !line[fence.len()..].contains('`') => open = fence,
            Some(fence) if !open.is_empty() && fence == line && fence.starts_with(open) => {
                open = "";
            }
            Some(_) | None => return open.is_empty() && !line.starts_with('>'),
        }
        false
    });
    lines.map(str::to_lowercase).any(|line| {
        line.match_indices('@').any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let Some(after) = line[at + 1..].strip_prefix(&login) else {
                return false;
            };
            let word = line[..at].rsplit(char::is_whitespace).next();
            let is_address = word.is_some_and(|word| word.contains("://"));
            let is_free = before.is_none_or(|c| !is_name(c) && c != '`');
            let mut rest = after.chars();
            let ends = match rest.next() {
                // `@name/team` is a team of an organization, and GitLab's names have dots.
                Some('/' | '.') => !rest.next().is_some_and(is_name),
                end => !end.is_some_and(is_name),
            };
            is_free && !is_address && ends
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A review may be written between the scan that finds the label and the claim of the task.
    #[test]
    fn what_a_task_was_given_counts_and_not_when_it_was_recorded() {
        let at = |seconds| DateTime::UNIX_EPOCH + chrono::TimeDelta::seconds(seconds);
        let read = Given::Remarks(BTreeSet::from(["review-7".to_owned()]));
        assert!(read.includes("review-7", at(9)));
        assert!(!read.includes("review-8", at(1)));
        let unknown = Given::Before(at(5));
        assert!(unknown.includes("review-8", at(4)));
        assert!(!unknown.includes("review-7", at(5)));
        assert!(!Given::Nothing.includes("review-7", at(1)));
    }

    #[test]
    fn a_mention_is_the_whole_name_outside_of_quotations_code_and_addresses() {
        for text in [
            "@agentmine-bot please",
            "hi\n@AgentMine-Bot: rename it",
            "(@agentmine-bot)",
            "ok, @agentmine-bot.",
            "@alice/@agentmine-bot...",
            "```sh\nmake\n```\n@agentmine-bot why?",
            "```\n    main()\n    ~~~~^^\n```\n@agentmine-bot fix it",
            "```make``` fails\n@agentmine-bot fix it",
        ] {
            assert!(mentions(text, "agentmine-bot"), "{text}");
            assert!(mentions(text, "agentmine-bot[bot]"), "{text}");
        }
        for text in [
            "> @agentmine-bot please\n\nWhy?",
            "@agentmine-bot2",
            "@agentmine-bot-two",
            "mail@agentmine-bot",
            "`@agentmine-bot`",
            "```\n* @agentmine-bot\n```",
            "````md\n```\n@agentmine-bot\n```\n````",
            "@agentmine-bot/reviewers please",
            "@agentmine-bot.staging please",
            "https://forge.example/@agentmine-bot",
            "agentmine-bot",
            "@",
        ] {
            assert!(!mentions(text, "agentmine-bot"), "{text}");
        }
    }
}
