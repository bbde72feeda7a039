//! What a dashboard says, word for word.

use agentmine_domain::{
    EndState, ItemKind, ItemRef, Phase, Task, TaskState, TrackerKind, WaitsFor,
};
use agentmine_store::why::TaskReason;
use agentmine_store::{Held, HeldRequest};
use chrono::DateTime;

use super::texts::task;
use super::world::requested_by;
use crate::{DashboardEntry, DashboardView, dashboard_text};

const HEAD: &str = "What AgentMine works on in this repository, what waits, and why. People who may start work tick a box to start, \
                    retry or stop a task. AgentMine edits this issue itself; close it to turn the dashboard off.\n";

fn entry(task: Task, reasons: &[(&str, &str)]) -> DashboardEntry {
    let reason = |(code, message): &(&str, &str)| TaskReason {
        code: (*code).into(),
        message: (*message).into(),
    };
    DashboardEntry {
        task,
        reasons: reasons.iter().map(reason).collect(),
    }
}

fn held(kind: ItemKind, tracker: TrackerKind) -> Held {
    Held {
        request: HeldRequest {
            item: ItemRef {
                kind,
                tracker,
                number: 8,
                ..requested_by("").item
            },
            trigger: "event-1".into(),
            title: "Fix `x`".into(),
            url: "https://forge.example/8".into(),
            code: "not_admitted".into(),
            message: "ann may not start work".into(),
        },
        since: DateTime::UNIX_EPOCH,
    }
}

/// A task of GitHub in this state.
fn in_state(state: TaskState) -> Task {
    Task {
        state,
        ..task(TrackerKind::GitHub, ItemKind::Issue)
    }
}

/// The text with these tasks at work.
fn at_work(entries: Vec<DashboardEntry>) -> String {
    let view = DashboardView {
        working: entries,
        ..DashboardView::default()
    };
    dashboard_text(&view, "")
}

/// What is shown of one task that is at work.
fn line(task: Task) -> String {
    let text = at_work(vec![entry(task, &[])]);
    let (_, shown) = text.split_once("### At work (1)\n\n").unwrap();
    shown.to_owned()
}

#[test]
fn a_dashboard_without_tasks_says_that_there_are_none() {
    let view = DashboardView::default();
    let text = format!("{HEAD}\n### At work\n\nNothing.\n");
    assert_eq!(dashboard_text(&view, ""), text);
    let text = format!("{HEAD}\n> Stopped task 3.\n\n### At work\n\nNothing.\n");
    assert_eq!(dashboard_text(&view, "Stopped task 3."), text);
}

#[test]
fn a_dashboard_shows_each_task_with_its_reasons_and_boxes() {
    let mut working = in_state(TaskState::Leased(Phase::Running));
    working.attempt = 1;
    let waiting = in_state(TaskState::Queued);
    let mut ended = in_state(TaskState::Ended(EndState::Done));
    ended.pull_request_url = Some("https://forge.example/octo/demo/pull/21".into());
    let view = DashboardView {
        working: vec![entry(working, &[("working", "a/1/0 is running, see #3")])],
        waiting: vec![entry(
            waiting,
            &[("queued", "no worker is free"), ("requested", "ann did")],
        )],
        more_waiting: 0,
        held: vec![held(ItemKind::Issue, TrackerKind::GitHub)],
        ended: vec![entry(ended, &[("done", "It ended")])],
        confidential: 0,
    };
    let text = format!(
        "{HEAD}
### At work (1)

- [#7](https://forge.example/octo/demo/issues/7) `Greet`, task 3, \
[branch `agentmine/issue-7-deadbeef`](https://forge.example/octo/demo/tree/agentmine/issue-7-deadbeef)
  - `working`: a/1/0 is running, see #\u{200b}3
  - [ ] Stop it <!-- agentmine:box stop task 3 -->

### Waiting (1)

- [#7](https://forge.example/octo/demo/issues/7) `Greet`, task 3
  - `queued`: no worker is free
  - `requested`: ann did
  - [ ] Stop it <!-- agentmine:box stop task 3 -->

### Held requests (1)

- [#8](https://forge.example/8) `Fix 'x'`
  - `not_admitted`: ann may not start work (held since 1970-01-01T00:00:00.000Z)
  - [ ] Start it now <!-- agentmine:box start issue 8 -->

### Failed, stopped or partial (1)

- [#7](https://forge.example/octo/demo/issues/7) `Greet`, task 3, [pull request](https://forge.example/octo/demo/pull/21)
  - `done`: It ended
  - [ ] Retry it <!-- agentmine:box retry task 3 -->
"
    );
    assert_eq!(dashboard_text(&view, ""), text);
}

#[test]
fn confidential_tasks_are_counted_alone() {
    let text = |confidential| {
        let view = DashboardView {
            confidential,
            ..DashboardView::default()
        };
        let text = dashboard_text(&view, "");
        let (_, rest) = text.split_once("Nothing.\n").unwrap();
        rest.to_owned()
    };
    assert_eq!(text(0), "");
    let one = "\n1 task on a confidential issue is not shown.\n";
    assert_eq!(text(1), one);
    let two = "\n2 tasks on confidential issues are not shown.\n";
    assert_eq!(text(2), two);
}

/// Which boxes a task has: what a tick would change.
#[test]
fn a_task_has_the_boxes_that_change_something() {
    let stop = "  - [ ] Stop it <!-- agentmine:box stop task 3 -->\n";
    let start = "  - [ ] Start it now <!-- agentmine:box start task 3 -->\n";
    let retry = "  - [ ] Retry it <!-- agentmine:box retry task 3 -->\n";
    let both = format!("{start}{stop}");
    let waits = |mut task: Task| {
        task.card.waits_for = Some(WaitsFor::Turn);
        task
    };
    let of_person = Task {
        item: ItemRef {
            kind: ItemKind::Task,
            ..requested_by("").item
        },
        ..in_state(TaskState::Ended(EndState::Failed))
    };
    let queued = || in_state(TaskState::Queued);
    for (task, code, boxes) in [
        (in_state(TaskState::Leased(Phase::Running)), "working", stop),
        (queued(), "queued", stop),
        // Its delay may be skipped.
        (queued(), "back_off", both.as_str()),
        (waits(queued()), "turn", both.as_str()),
        (in_state(TaskState::Paused), "paused", both.as_str()),
        (
            in_state(TaskState::Ended(EndState::Failed)),
            "failed",
            retry,
        ),
        (of_person, "failed", ""),
    ] {
        let text = at_work(vec![entry(task, &[(code, "why")])]);
        let reason = format!("  - `{code}`: why\n");
        let (_, shown) = text.split_once(&reason).unwrap();
        assert_eq!(shown, boxes, "{code}");
    }
}

#[test]
fn a_held_request_is_started_by_its_item() {
    for (kind, tracker, mark, subject) in [
        (ItemKind::Issue, TrackerKind::GitHub, '#', "issue 8"),
        (
            ItemKind::PullRequest,
            TrackerKind::GitHub,
            '#',
            "pull_request 8",
        ),
        (ItemKind::Issue, TrackerKind::GitLab, '#', "issue 8"),
        (
            ItemKind::PullRequest,
            TrackerKind::GitLab,
            '!',
            "pull_request 8",
        ),
    ] {
        let view = DashboardView {
            held: vec![held(kind, tracker)],
            ..DashboardView::default()
        };
        let text = dashboard_text(&view, "");
        let begin = format!("\n- [{mark}8](https://forge.example/8) `Fix 'x'`\n");
        assert!(text.contains(&begin), "{text}");
        let start = format!("  - [ ] Start it now <!-- agentmine:box start {subject} -->\n");
        assert!(text.ends_with(&start), "{text}");
    }
}

/// A link to it where its address is certain.
#[test]
fn a_task_that_was_begun_shows_its_branch_or_its_pull_request() {
    use TrackerKind::{GitHub, GitLab, Local};
    let begun = |tracker, kind| Task {
        attempt: 1,
        state: TaskState::Leased(Phase::Running),
        ..task(tracker, kind)
    };
    let stop = "  - [ ] Stop it <!-- agentmine:box stop task 3 -->\n";
    let home = "https://forge.example/octo/demo";
    let branch = "agentmine/issue-7-deadbeef";
    let github = format!("- [#7]({home}/issues/7) `Greet`, task 3");
    let linked = format!("{github}, [branch `{branch}`]({home}/tree/{branch})\n{stop}");
    assert_eq!(line(begun(GitHub, ItemKind::Issue)), linked);

    let gitlab = format!("- [#7]({home}/-/issues/7) `Greet`, task 3");
    let linked = format!("{gitlab}, [branch `{branch}`]({home}/-/tree/{branch})\n{stop}");
    assert_eq!(line(begun(GitLab, ItemKind::Issue)), linked);

    let plain = format!("{github}, branch `{branch}`\n{stop}");
    assert_eq!(line(begun(Local, ItemKind::Issue)), plain);

    let mut odd = begun(GitHub, ItemKind::Issue);
    odd.named_branch = Some("fix/7`ü".into());
    assert_eq!(line(odd), format!("{github}, branch `fix/7'ü`\n{stop}"));

    let mut of_pull = begun(GitLab, ItemKind::PullRequest);
    of_pull.url = format!("{home}/-/merge_requests/7");
    let plain = format!(
        "- [!7]({home}/-/merge_requests/7) `Greet`, task 3, branch `agentmine/pr-7-deadbeef`\n{stop}"
    );
    assert_eq!(line(of_pull), plain);

    let mut of_person = begun(GitHub, ItemKind::Task);
    of_person.attempt = 0;
    assert_eq!(line(of_person), format!("- `Greet`, task 3\n{stop}"));

    let mut opened = begun(GitLab, ItemKind::Issue);
    opened.pull_request_url = Some("https://forge.example/21".into());
    let shown = format!("{gitlab}, [merge request](https://forge.example/21)\n{stop}");
    assert_eq!(line(opened), shown);
}

/// A text of others stays what it is: a line, of a bounded length.
#[test]
fn titles_and_reasons_are_bounded_and_of_one_line() {
    let mut long = in_state(TaskState::Leased(Phase::Running));
    long.title = format!("a\n`b|` {}", "c".repeat(200));
    let text = at_work(vec![entry(long, &[("working", &"d ".repeat(500))])]);
    let (_, shown) = text.split_once("issues/7) ").unwrap();
    let title = format!("`a 'b|' {}…`, task 3\n", "c".repeat(113));
    let reason = format!("  - `working`: {}…\n", "d ".repeat(250));
    assert!(shown.starts_with(&format!("{title}{reason}")), "{shown}");
}

/// Entries of a part that are not shown, and those that were not even listed, are counted.
#[test]
fn a_part_shows_forty_entries_and_counts_the_others() {
    let text = |listed: usize, more_waiting| {
        let one = || entry(in_state(TaskState::Queued), &[]);
        let view = DashboardView {
            waiting: (0..listed).map(|_| one()).collect(),
            more_waiting,
            ..DashboardView::default()
        };
        dashboard_text(&view, "")
    };
    for (listed, more, head, shown, end) in [
        (40, 0, "### Waiting (40)\n", 40, None),
        (41, 0, "### Waiting (41)\n", 40, Some("- and 1 more\n")),
        (2, 5, "### Waiting (7)\n", 2, Some("- and 5 more\n")),
        (41, 5, "### Waiting (46)\n", 40, Some("- and 6 more\n")),
    ] {
        let text = text(listed, more);
        assert!(text.contains(head), "{text}");
        assert_eq!(text.matches("\n- [#7](").count(), shown);
        let stop = "<!-- agentmine:box stop task 3 -->\n";
        let (_, rest) = text.rsplit_once(stop).unwrap();
        assert_eq!(rest, end.unwrap_or_default());
    }
}
