//! What happened since the last look at the state.

use std::collections::{HashMap, HashSet};

use super::super::checks::{CheckView, InvalidPipeline};
use super::super::state::{CommentView, Issue, LabelEvent, Repo, ReviewView};

/// What one event of an item is about.
#[derive(Debug)]
pub(super) enum What {
    /// With the repository and number that it was moved from.
    Opened(Option<(String, u64)>),
    Labeled(LabelEvent),
    Closed,
    Reopened,
    /// The texts before, of those that changed.
    Edited {
        title: Option<String>,
        body: Option<String>,
    },
    Assigned(String),
    Unassigned(String),
    Locked(bool),
    Confidential,
    Draft(bool),
    Deleted,
    /// To this repository and number.
    Moved(String, u64),
    Commented(CommentView),
    /// With the text before.
    CommentEdited(CommentView, String),
    CommentDeleted(CommentView),
    Reviewed(ReviewView),
    /// With the text before.
    ReviewEdited(ReviewView, String),
    ReviewDeleted(ReviewView),
    /// From one commit to another.
    Pushed(String, String),
}

/// Something that somebody did.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) by: String,
    pub(super) what: What,
}

/// What happened to an item.
#[derive(Debug)]
pub(super) struct ItemNews {
    pub(super) repo: String,
    pub(super) number: u64,
    /// As it was before; `None` for a new one.
    pub(super) before: Option<Issue>,
    pub(super) events: Vec<Event>,
}

#[derive(Debug)]
pub(super) enum Checked {
    Check(CheckView),
    Invalid(InvalidPipeline),
}

#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) items: Vec<ItemNews>,
    /// By repository.
    pub(super) checks: Vec<(String, Checked)>,
}

#[derive(Debug)]
struct Item {
    issue: Issue,
    /// The commit of an open pull request.
    head: Option<String>,
}

/// The state at the last look.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// By the id of the repository, and the number.
    items: HashMap<(u64, u64), Item>,
    /// Ids of checks and of pipelines.
    checks: HashSet<u64>,
}

impl Snapshot {
    pub(super) fn of(repos: &[Repo]) -> Self {
        let mut now = Self::default();
        for repo in repos {
            for issue in &repo.issues {
                let pull = issue.pull.as_ref().filter(|_| issue.open);
                let head = pull.and_then(|pull| repo.sha(&pull.head));
                let item = Item {
                    issue: issue.clone(),
                    head,
                };
                now.items.insert((repo.id, issue.number), item);
            }
            now.checks.extend(repo.checks.iter().map(|it| it.id));
            now.checks.extend(repo.invalid.iter().map(|it| it.id));
        }
        now
    }

    /// What happened since then by the hand of `login`, and the state now.
    pub(super) fn news(&self, repos: &[Repo], login: &str) -> (News, Self) {
        let now = Self::of(repos);
        let mut news = News::default();
        for repo in repos {
            for issue in &repo.issues {
                let key = (repo.id, issue.number);
                let events = match (self.items.get(&key), now.items.get(&key)) {
                    (Some(before), Some(item)) => changed(before, item, login),
                    _ => opened(repos, repo, issue),
                };
                if !events.is_empty() {
                    news.items.push(ItemNews {
                        repo: repo.full_name.clone(),
                        number: issue.number,
                        before: self.items.get(&key).map(|it| it.issue.clone()),
                        events,
                    });
                }
            }
            let is_new = |id: u64| !self.checks.contains(&id);
            let checks = repo.checks.iter().filter(|it| is_new(it.id));
            let checks = checks.map(|it| Checked::Check(it.clone()));
            let invalid = repo.invalid.iter().filter(|it| is_new(it.id));
            let invalid = invalid.map(|it| Checked::Invalid(it.clone()));
            let all = checks.chain(invalid);
            news.checks
                .extend(all.map(|it| (repo.full_name.clone(), it)));
        }
        (news, now)
    }
}

/// The comments of a new item came with it, so it was moved, and they are no events.
fn opened(repos: &[Repo], repo: &Repo, issue: &Issue) -> Vec<Event> {
    let here = Some((repo.full_name.clone(), issue.number));
    let from = repos.iter().find_map(|other| {
        let mut issues = other.issues.iter();
        let old = issues.find(|it| it.moved == here)?;
        Some((other.full_name.clone(), old.number))
    });
    let opened = Event {
        by: issue.author.clone(),
        what: What::Opened(from),
    };
    let labels = issue.events.iter().map(|label| Event {
        by: label.actor.clone(),
        what: What::Labeled(label.clone()),
    });
    [opened].into_iter().chain(labels).collect()
}

fn changed(before: &Item, now: &Item, login: &str) -> Vec<Event> {
    let mut all = Vec::new();
    of_texts(&before.issue, &now.issue, login, &mut all);
    of_labels(&before.issue, &now.issue, &mut all);
    of_states(&before.issue, &now.issue, login, &mut all);
    of_comments(&before.issue, &now.issue, login, &mut all);
    of_reviews(&before.issue, &now.issue, login, &mut all);
    if let (Some(old), Some(new)) = (&before.head, &now.head)
        && old != new
    {
        let what = What::Pushed(old.clone(), new.clone());
        push(&mut all, login, what);
    }
    all
}

fn push(all: &mut Vec<Event>, by: &str, what: What) {
    let by = by.to_owned();
    all.push(Event { by, what });
}

fn of_texts(before: &Issue, now: &Issue, login: &str, all: &mut Vec<Event>) {
    let old = |before: &String, now: &String| (before != now).then(|| before.clone());
    let (title, body) = (old(&before.title, &now.title), old(&before.body, &now.body));
    if title.is_some() || body.is_some() {
        let edit = now.edits.get(before.edits.len()..);
        let edit = edit.and_then(|edits| edits.last());
        let by = edit.map_or(login, |edit| &edit.by);
        push(all, by, What::Edited { title, body });
    }
}

fn of_labels(before: &Issue, now: &Issue, all: &mut Vec<Event>) {
    let newest = before.events.last().map_or(0, |event| event.id);
    let events = now.events.iter().filter(|event| event.id > newest);
    events.for_each(|event| push(all, &event.actor, What::Labeled(event.clone())));
}

fn of_states(before: &Issue, now: &Issue, login: &str, all: &mut Vec<Event>) {
    let mut by_login = |what| push(all, login, what);
    for who in &now.assignees {
        if !before.assignees.contains(who) {
            by_login(What::Assigned(who.clone()));
        }
    }
    for who in &before.assignees {
        if !now.assignees.contains(who) {
            by_login(What::Unassigned(who.clone()));
        }
    }
    if before.locked != now.locked {
        by_login(What::Locked(now.locked));
    }
    if before.confidential != now.confidential {
        by_login(What::Confidential);
    }
    if let (Some(old), Some(new)) = (&before.pull, &now.pull)
        && old.draft != new.draft
    {
        by_login(What::Draft(new.draft));
    }
    if let Some((to, number)) = &now.moved
        && before.moved.is_none()
    {
        by_login(What::Moved(to.clone(), *number));
    }
    match (before.open, now.open) {
        (true, false) => by_login(What::Closed),
        (false, true) => by_login(What::Reopened),
        (true, true) | (false, false) => {}
    }
    if now.deleted && !before.deleted {
        by_login(What::Deleted);
    }
}

fn of_comments(before: &Issue, now: &Issue, login: &str, all: &mut Vec<Event>) {
    let old = |id: u64| before.comments.iter().find(|it| it.id == id);
    for comment in &now.comments {
        match old(comment.id) {
            None => push(all, &comment.author, What::Commented(comment.clone())),
            Some(old) if old.body != comment.body => {
                let what = What::CommentEdited(comment.clone(), old.body.clone());
                push(all, login, what);
            }
            Some(_) => {}
        }
    }
    let is_gone = |it: &&CommentView| !now.comments.iter().any(|new| new.id == it.id);
    for comment in before.comments.iter().filter(is_gone) {
        push(all, login, What::CommentDeleted(comment.clone()));
    }
}

fn of_reviews(before: &Issue, now: &Issue, login: &str, all: &mut Vec<Event>) {
    let reviews = |issue: &Issue| -> Vec<ReviewView> {
        let pull = issue.pull.as_ref();
        pull.map(|pull| pull.reviews.clone()).unwrap_or_default()
    };
    let (before, now) = (reviews(before), reviews(now));
    for review in &now {
        match before.iter().find(|it| it.id == review.id) {
            None => push(all, &review.author, What::Reviewed(review.clone())),
            Some(old) if old.body != review.body => {
                let what = What::ReviewEdited(review.clone(), old.body.clone());
                push(all, login, what);
            }
            Some(_) => {}
        }
    }
    for review in before {
        if !now.iter().any(|new| new.id == review.id) {
            push(all, login, What::ReviewDeleted(review));
        }
    }
}
