//! The dashboard issue of a repository: who writes it, when, and what ends it.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{ItemKind, ItemRef, RepositoryRef, TaskNumber};
use agentmine_store::Dashboard;
use agentmine_trackers::{Item, Tracker, TrackerError};

use super::forge::{OURS, not_found, refused, unauthorized, unavailable};
use super::world::{MINUTE, NONE, World, requested_by};
use crate::{
    BoxAction, BoxSubject, DashboardBox, DashboardIssue, DashboardRewrite, DashboardState,
    DashboardView, EffectError, dashboard_text, is_dashboard,
};

fn repository() -> RepositoryRef {
    let ItemRef {
        tracker,
        host,
        repo_id,
        repo_path,
        ..
    } = requested_by("").item;
    RepositoryRef {
        tracker,
        host,
        repo_id,
        repo_path,
    }
}

async fn claim_for(world: &World, time: Duration) -> Option<DashboardIssue> {
    let (store, tracker) = (Arc::clone(&world.store), Arc::clone(&world.tracker));
    let claim = DashboardIssue::claim(store, tracker, &repository(), time).await;
    claim.unwrap()
}

async fn claim(world: &World) -> DashboardIssue {
    claim_for(world, MINUTE).await.expect("nobody has it")
}

async fn record(world: &World) -> Dashboard {
    let mut all = world.store.dashboards().await.unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// A dashboard that shows a text.
async fn shown(world: &World, text: &str) -> DashboardIssue {
    let mut issue = claim(world).await;
    let begun = issue.begin(text, DashboardRewrite::IfChanged).await;
    let revision = begun.unwrap().expect("it is to be written");
    issue.show(revision, text).await.unwrap();
    world.requests();
    issue
}

async fn open(issue: &DashboardIssue) -> Item {
    match issue.read().await.unwrap() {
        DashboardState::Open(item) => *item,
        state @ (DashboardState::Absent | DashboardState::Withdrawn) => panic!("{state:?}"),
    }
}

fn ours(world: &World) -> String {
    world.tracker.forge().ours.clone().unwrap_or_default()
}

#[tokio::test]
async fn one_process_at_a_time_has_the_dashboard() {
    let world = World::new().await;
    let first = claim(&world).await;
    assert!(claim_for(&world, MINUTE).await.is_none());
    first.release().await.unwrap();
    let mut second = claim(&world).await;
    assert_eq!(second.notice(), "");
    second.note("Stopped task 3.").await.unwrap();
    assert_eq!(second.notice(), "Stopped task 3.");
    second.release().await.unwrap();
    assert_eq!(claim(&world).await.notice(), "Stopped task 3.");
}

#[tokio::test]
async fn a_dashboard_is_opened_once_and_edited_after_that() {
    let world = World::new().await;
    let mut issue = claim(&world).await;
    assert_eq!(issue.item().number, 0);
    assert_eq!(issue.read().await.unwrap(), DashboardState::Absent);
    assert_eq!(issue.shown_at(), None);
    let begun = issue.begin("Text.\n", DashboardRewrite::IfChanged).await;
    assert_eq!(begun.unwrap(), Some(1));
    issue.show(1, "Text.\n").await.unwrap();
    assert_eq!(world.requests(), ["issue_of_ours AgentMine dashboard"]);
    assert_eq!(ours(&world), "<!-- agentmine:dashboard 1 -->\nText.\n");
    let opened_at = issue.shown_at();
    assert!(opened_at.is_some());
    let expected = ItemRef {
        number: OURS,
        kind: ItemKind::Issue,
        ..requested_by("").item
    };
    assert_eq!(issue.item(), expected);
    let Dashboard {
        number,
        shown_at,
        body,
        notice,
        ..
    } = record(&world).await;
    assert_eq!((number, shown_at), (Some(OURS), opened_at));
    assert_eq!((body.as_str(), notice.as_str()), ("Text.\n", ""));

    issue.note("Stopped task 3.").await.unwrap();
    issue.show(2, "Other.\n").await.unwrap();
    assert_eq!(world.requests(), ["edit_issue issue 31"]);
    assert_eq!(ours(&world), "<!-- agentmine:dashboard 2 -->\nOther.\n");
    assert!(issue.shown_at() > opened_at);
    let Dashboard {
        shown_at,
        body,
        notice,
        ..
    } = record(&world).await;
    assert_eq!(shown_at, issue.shown_at());
    assert_eq!(
        (body.as_str(), notice.as_str()),
        ("Other.\n", "Stopped task 3.")
    );
}

/// What it shows already is not written again, unless boxes are ticked there.
#[tokio::test]
async fn a_text_is_written_if_it_says_something_else_or_boxes_are_ticked() {
    use DashboardRewrite::{Always, IfChanged};
    let world = World::new().await;
    let issue = shown(&world, "Text.\n").await;
    // It was written just now.
    let early = issue.begin("Other.\n", IfChanged).await;
    assert_eq!(early.unwrap(), None);

    // No text was begun lately.
    let world = World::new().await;
    let mut issue = claim(&world).await;
    issue.show(7, "Text.\n").await.unwrap();
    let same = issue.begin("Text.\n", IfChanged).await;
    assert_eq!(same.unwrap(), None);
    let ticked = issue.begin("Text.\n", Always).await;
    assert_eq!(ticked.unwrap(), Some(1));

    let world = World::new().await;
    let mut issue = claim(&world).await;
    issue.show(7, "Text.\n").await.unwrap();
    let changed = issue.begin("Other.\n", IfChanged).await;
    assert_eq!(changed.unwrap(), Some(1));
}

/// The answer to the first request was lost, or another producer opened it.
#[tokio::test]
async fn a_dashboard_that_was_opened_before_is_found_and_edited() {
    let world = World::new().await;
    let mut issue = claim(&world).await;
    world.tracker.forge().lost.push("issue_of_ours");
    issue.show(1, "Text.\n").await.unwrap_err();
    assert_eq!(record(&world).await.number, None);
    issue.show(2, "Other.\n").await.unwrap();
    assert_eq!(
        world.requests(),
        ["issue_of_ours AgentMine dashboard", "edit_issue issue 31"]
    );
    assert_eq!(ours(&world), "<!-- agentmine:dashboard 2 -->\nOther.\n");
    assert_eq!(record(&world).await.number, Some(OURS));
    assert!(issue.shown_at().is_some());
}

/// A person closed the issue that is found: no other one is opened, and it is not written.
#[tokio::test]
async fn a_dashboard_that_is_found_closed_stays_off() {
    let world = World::new().await;
    let mut issue = claim(&world).await;
    world.tracker.forge().ours = Some("<!-- agentmine:dashboard 1 -->\nOld.\n".into());
    world.tracker.forge().is_ours_closed = true;
    issue.show(2, "Text.\n").await.unwrap();
    assert_eq!(world.requests(), NONE);
    let Dashboard {
        number, shown_at, ..
    } = record(&world).await;
    assert_eq!((number, shown_at), (Some(OURS), None));
    assert_eq!(issue.read().await.unwrap(), DashboardState::Withdrawn);
    assert_eq!(issue.shown_at(), None);
}

#[tokio::test]
async fn a_dashboard_that_a_person_closed_or_deleted_is_off() {
    let world = World::new().await;
    let issue = shown(&world, "Text.\n").await;
    assert_eq!(open(&issue).await.item.number, OURS);
    let confidential = TrackerError::Confidential {
        tracker: world.tracker.kind(),
        what: "octo/demo#31".into(),
    };
    for gone in [not_found(), refused(), confidential] {
        world.tracker.forge().faults.push(("item", gone));
        assert_eq!(issue.read().await.unwrap(), DashboardState::Withdrawn);
    }
    for error in [unavailable(), unauthorized()] {
        world.tracker.forge().faults.push(("item", error));
        issue.read().await.unwrap_err();
    }
    world.tracker.forge().is_ours_closed = true;
    assert_eq!(issue.read().await.unwrap(), DashboardState::Withdrawn);
}

/// As long as it is the holder.
#[tokio::test]
async fn a_dashboard_is_written_under_the_permit_of_its_claim() {
    let world = World::new().await;
    let issue = claim_for(&world, Duration::ZERO).await;
    let mut issue = issue.expect("nobody has it");
    let shown = issue.show(1, "Text.\n").await.unwrap_err();
    assert!(matches!(
        shown,
        EffectError::Tracker(TrackerError::NotPermitted { .. })
    ));
    assert_eq!(world.requests(), NONE);
}

#[tokio::test]
async fn ticked_boxes_are_read_with_the_number_of_their_text() {
    let world = World::new().await;
    let issue = shown(&world, "Text.\n").await;
    let mut item = open(&issue).await;
    assert_eq!(issue.ticked(&item), (1, vec![]));
    let stop = DashboardBox {
        action: BoxAction::Stop,
        subject: BoxSubject::Task(TaskNumber(3)),
    };
    item.body =
        "<!-- agentmine:dashboard 12 -->\n  - [x] Stop it <!-- agentmine:box stop task 3 -->\n"
            .into();
    assert_eq!(issue.ticked(&item), (12, vec![stop]));
    // A person removed the number.
    item.body = "  - [X] Stop it <!-- agentmine:box stop task 3 -->\n".into();
    assert_eq!(issue.ticked(&item), (0, vec![stop]));
    item.body = "<!-- agentmine:dashboard x -->".into();
    assert_eq!(issue.ticked(&item), (0, vec![]));
}

/// It is no request for work. While its number is not known, the issue itself says what it is.
#[tokio::test]
async fn a_dashboard_is_distinguished_from_other_items() {
    let world = World::new().await;
    let tracker: &dyn Tracker = world.tracker.as_ref();
    let item = |kind, number| ItemRef {
        kind,
        number,
        ..requested_by("").item
    };
    let issue = item(ItemKind::Issue, OURS);
    let is_it = async |item: &ItemRef| {
        let records = world.store.dashboards().await.unwrap();
        is_dashboard(&records, tracker, item).await.unwrap()
    };
    world.tracker.forge().text = "<!-- agentmine:dashboard 1 -->\n".into();
    world.tracker.forge().author = Some("Bot".into());
    // Its repository has none.
    assert!(!is_it(&issue).await);
    let dashboard = claim(&world).await;
    let elsewhere = ItemRef {
        repo_id: "2".into(),
        ..issue.clone()
    };
    assert!(!is_it(&elsewhere).await);
    assert!(!is_it(&item(ItemKind::PullRequest, OURS)).await);
    assert!(is_it(&issue).await, "it was opened a moment ago");
    world.tracker.forge().author = Some("eve".into());
    assert!(!is_it(&issue).await, "a copy of somebody else");
    world.tracker.forge().author = Some("bot".into());
    world.tracker.forge().text = "Greet.".into();
    assert!(!is_it(&issue).await);
    world.tracker.forge().faults.push(("item", unavailable()));
    let records = world.store.dashboards().await.unwrap();
    let unknown = is_dashboard(&records, tracker, &issue).await;
    unknown.unwrap_err();
    dashboard.release().await.unwrap();

    // Its number is known: nobody is asked.
    shown(&world, "Text.\n").await;
    world.tracker.forge().faults.push(("item", unavailable()));
    assert!(is_it(&issue).await);
    assert!(!is_it(&item(ItemKind::Issue, 8)).await);
    assert!(!is_it(&item(ItemKind::PullRequest, OURS)).await);
}

/// A text of the program is read back without a tick.
#[tokio::test]
async fn a_text_that_was_just_written_has_no_ticks() {
    let world = World::new().await;
    let text = dashboard_text(&DashboardView::default(), "");
    let issue = shown(&world, &text).await;
    assert_eq!(issue.ticked(&open(&issue).await), (1, vec![]));
}
