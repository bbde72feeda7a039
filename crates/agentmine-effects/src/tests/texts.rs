//! What people read, word for word. A change of a text is made here too, on purpose.

use agentmine_domain::{
    Epoch, ItemKind, ItemRef, Phase, Priority, Session, SessionId, Task, TaskCard, TaskId,
    TaskNumber, TaskState, TrackerKind, Usage, WorkerId, pause_label_reason,
};
use agentmine_runtime::config::Labels;
use agentmine_trackers::{Comment, PullRequest};
use chrono::{DateTime, TimeDelta, Utc};

use super::forge::comment;
use super::world::requested_by;
use crate::text::{
    draft_end_comment, draft_resumed_comment, failure_comment, is_of_work, moved_comment,
    orphan_comment, paused_comment, refused_comment, result_comment, rounds_comment,
    stopped_comment,
};
use crate::{
    held_comment, progress_comment, transferred_comments, used, work_comment, working_comment,
};

/// A zero-width space, which parts what a forge would take for a mention or a reference.
const PARTING: char = '\u{200b}';

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::seconds(seconds)
}

/// Task 3 on item 7 of this kind.
pub(super) fn task(tracker: TrackerKind, kind: ItemKind) -> Task {
    let new = requested_by("event-1");
    let url = match tracker {
        TrackerKind::GitLab => "https://forge.example/octo/demo/-/issues/7",
        TrackerKind::GitHub | TrackerKind::Local => "https://forge.example/octo/demo/issues/7",
    };
    Task {
        id: "0190a1b2-0000-7000-8000-0000deadbeef"
            .parse::<TaskId>()
            .unwrap(),
        number: TaskNumber(3),
        item: ItemRef {
            tracker,
            kind,
            ..new.item
        },
        trigger: new.trigger,
        answered_trigger: None,
        title: new.title,
        url: url.into(),
        priority: Priority::Medium,
        state: TaskState::Queued,
        epoch: Epoch(0),
        attempt: 0,
        owner: None,
        lease_until: None,
        reason: None,
        pull_request_url: None,
        created_at: at(0),
        updated_at: at(0),
        named_branch: None,
        card: TaskCard::default(),
    }
}

fn pull(tracker: TrackerKind) -> PullRequest {
    let url = match tracker {
        TrackerKind::GitLab => "https://forge.example/octo/demo/-/merge_requests/21",
        TrackerKind::GitHub | TrackerKind::Local => "https://forge.example/octo/demo/pull/21",
    };
    PullRequest {
        number: 21,
        url: url.into(),
        open: true,
        merged: false,
        head_sha: String::new(),
    }
}

fn session(from: i64, to: Option<i64>, usage: Usage) -> Session {
    Session {
        id: SessionId(1),
        task: TaskId::new(),
        task_number: TaskNumber(3),
        epoch: Epoch(1),
        worker: WorkerId("w".into()),
        model: None,
        started_at: at(from),
        ended_at: to.map(at),
        end: None,
        reason: None,
        usage,
        external: None,
    }
}

const fn calls(model_calls: u32, tool_calls: u32, cost_micros: u64) -> Usage {
    Usage {
        model_calls,
        tool_calls,
        cost_micros,
        input_tokens: 0,
        cached_tokens: 0,
        output_tokens: 0,
    }
}

#[test]
fn a_comment_of_progress_ends_with_its_session() {
    assert_eq!(
        progress_comment("Text.", "4"),
        "Text.\n\n<sub>AgentMine, session 4</sub>"
    );
}

#[test]
fn a_session_that_begins_says_which_attempt_it_is() {
    for (attempt, text) in [
        (0, "AgentMine is working on this."),
        (1, "AgentMine is working on this."),
        (2, "AgentMine is working on this (attempt 2)."),
    ] {
        let comment = work_comment(attempt, "4");
        assert_eq!(
            comment,
            format!("{text}\n\n<sub>AgentMine, session 4</sub>")
        );
        assert!(is_of_work(&comment));
    }
    assert!(!is_of_work("AgentMine stopped: enough."));
}

#[test]
fn a_session_at_work_shows_its_steps() {
    let mut task = task(TrackerKind::GitHub, ItemKind::Issue);
    task.attempt = 1;
    let shown = |task: &Task, phase| working_comment(task, phase, &[], ("4", at(0)));
    assert_eq!(
        shown(&task, Phase::Preparing),
        "AgentMine is working on this.\n\n\
         - [ ] **Prepare the sandbox and the project**\n\
         - [ ] Work on the request\n\
         - [ ] Check the pushed commit\n\
         - [ ] Open the pull request\n\n\
         <sub>AgentMine, session 4</sub>"
    );
    task.item.tracker = TrackerKind::GitLab;
    task.attempt = 2;
    task.pull_request_url = Some("https://forge.example/21".into());
    let sessions = [session(0, Some(120), calls(1, 2, 0))];
    assert_eq!(
        working_comment(&task, Phase::Verifying, &sessions, ("4", at(0))),
        "AgentMine is working on this (attempt 2).\n\n\
         - [x] Prepare the sandbox and the project\n\
         - [x] Work on the request\n\
         - [ ] **Check the pushed commit**\n\
         - [ ] Open the merge request\n\n\
         So far: 2 min, 1 model call, 2 tool calls.\n\n\
         The merge request: https://forge.example/21\n\n\
         <sub>AgentMine, session 4</sub>"
    );
    task.item.kind = ItemKind::PullRequest;
    task.pull_request_url = None;
    task.attempt = 0;
    assert_eq!(
        shown(&task, Phase::Reporting),
        "AgentMine is working on this.\n\n\
         - [x] Prepare the sandbox and the project\n\
         - [x] Work on the request\n\
         - [x] Check the pushed commit\n\
         - [ ] **Report the result**\n\n\
         <sub>AgentMine, session 4</sub>"
    );
}

#[test]
fn what_sessions_have_used_is_their_sum() {
    assert_eq!(used(&[], at(0)), None);
    for (sessions, now, shown) in [
        (
            vec![session(0, None, calls(0, 0, 0))],
            59,
            "less than a minute, 0 model calls, 0 tool calls",
        ),
        (
            vec![session(0, None, calls(1, 1, 0))],
            60,
            "1 min, 1 model call, 1 tool call",
        ),
        (
            vec![
                session(0, Some(150), calls(2, 3, 120_000)),
                session(1_000, None, calls(4, 5, 10_000)),
            ],
            1_040,
            "3 min, 6 model calls, 8 tool calls, $0.13",
        ),
    ] {
        assert_eq!(used(&sessions, at(now)).as_deref(), Some(shown));
    }
}

#[test]
fn a_pause_is_explained() {
    assert_eq!(
        paused_comment("lunch", "robot", "4"),
        "AgentMine is paused: lunch. The comment `/agentmine resume` or the label `robot` continues it.\n\n\
         <sub>AgentMine, session 4</sub>"
    );
    let label = pause_label_reason(&format!("a\nb{}", "c".repeat(200)));
    assert_eq!(
        paused_comment(&label, "robot", "4"),
        format!(
            "AgentMine is paused while this has the label `a b{}…`.\n\n<sub>AgentMine, session 4</sub>",
            "c".repeat(97)
        )
    );
    assert!(
        paused_comment("no\n```\ndisk", "robot", "4")
            .starts_with("AgentMine is paused: no ``` disk. ")
    );
    assert_eq!(
        held_comment(" the text was changed by @ann. ", "robot", "4"),
        format!(
            "AgentMine paused before it began: the text was changed by @{PARTING}ann. If the text is what you want, add the \
             label `robot` to confirm it.\n\n<sub>AgentMine, session 4</sub>"
        )
    );
    assert_eq!(
        refused_comment("a ``` b", "4"),
        "AgentMine is paused here because a service refused its account or credentials. It continues on its own once they are accepted:\n\n\
         ````text\na ``` b\n````\n\n<sub>AgentMine, session 4</sub>"
    );
}

#[test]
fn a_result_is_named_as_the_forge_names_it() {
    use TrackerKind::{GitHub, GitLab};
    let text = |tracker, kind, missing| {
        let task = task(tracker, kind);
        result_comment(&task.item, "https://forge.example/21", missing, "4")
    };
    let end = "\n\n<sub>AgentMine, session 4</sub>";
    for (tracker, kind, shown) in [
        (
            GitHub,
            ItemKind::Issue,
            "AgentMine opened a pull request with the measured results: https://forge.example/21",
        ),
        (
            GitLab,
            ItemKind::Task,
            "AgentMine opened a merge request with the measured results: https://forge.example/21",
        ),
        (
            GitLab,
            ItemKind::PullRequest,
            "AgentMine pushed its work to this merge request's branch, with the measured results.",
        ),
    ] {
        assert_eq!(text(tracker, kind, None), format!("{shown}{end}"));
    }
    assert_eq!(
        text(GitLab, ItemKind::Issue, Some(" - the check `make`\n")),
        format!(
            "AgentMine opened a merge request with **a partial result**: https://forge.example/21\n\nNot done:\n\n\
             ```text\n- the check `make`\n```{end}"
        )
    );
}

#[test]
fn a_failure_says_why_and_where_its_draft_is() {
    let task = task(TrackerKind::GitLab, ItemKind::Issue);
    let draft = pull(TrackerKind::GitLab);
    assert_eq!(
        failure_comment(&task, " no disk\n", "4", None),
        "AgentMine could not finish this task:\n\n```text\nno disk\n```\n\n<sub>AgentMine, session 4</sub>"
    );
    assert_eq!(
        failure_comment(&task, "no disk", "4", Some(&draft)),
        "AgentMine could not finish this task:\n\n```text\nno disk\n```\n\n\
         Its merge request stays open: https://forge.example/octo/demo/-/merge_requests/21.\n\n\
         <sub>AgentMine, session 4</sub>"
    );
}

#[test]
fn a_stop_says_why_where_the_work_is_and_how_to_continue() {
    let end = "\n\n<sub>AgentMine, session 4</sub>";
    let draft = pull(TrackerKind::GitLab);
    for (kind, open, shown) in [
        (
            ItemKind::Issue,
            None,
            "AgentMine stopped: by @~ann. Anything that was pushed is on the branch `agentmine/issue-7-deadbeef`. \
             Add the label `robot` to queue it again.",
        ),
        (
            ItemKind::Issue,
            Some(&draft),
            "AgentMine stopped: by @~ann. Its merge request stays open: \
             https://forge.example/octo/demo/-/merge_requests/21. Add the label `robot` to queue it again.",
        ),
        (
            ItemKind::Task,
            None,
            "AgentMine stopped: by @~ann. Anything that was pushed is on the branch `agentmine/task-7-deadbeef`. \
             `agentmine task retry 3` starts it again.",
        ),
        (
            ItemKind::PullRequest,
            None,
            "AgentMine stopped: by @~ann. Add the label `robot` to queue it again.",
        ),
    ] {
        let task = task(TrackerKind::GitLab, kind);
        let text = stopped_comment(&task, "robot", " by @ann. ", "4", open);
        let shown = shown.replace('~', &PARTING.to_string());
        assert_eq!(text, format!("{shown}{end}"));
    }
    let task = task(TrackerKind::GitLab, ItemKind::Issue);
    assert_eq!(
        moved_comment(&task, "it was moved", "4", None),
        format!(
            "AgentMine stopped: it was moved. Anything that was pushed is on the branch `agentmine/issue-7-deadbeef` of the \
             repository that this was moved from.{end}"
        )
    );
    assert_eq!(
        moved_comment(&task, "it was moved", "4", Some(&draft)),
        format!(
            "AgentMine stopped: it was moved. Its merge request stays open in the repository that this was moved from.{end}"
        )
    );
}

#[test]
fn a_pull_request_says_how_its_work_ended() {
    let mut task = task(TrackerKind::GitLab, ItemKind::Issue);
    assert_eq!(
        draft_end_comment(&task, "robot", "AgentMine stopped: enough."),
        "AgentMine stopped: enough.\n\nThis merge request has no result and stays as it is. Its branch \
         `agentmine/issue-7-deadbeef` is kept, with anything that was pushed to it. To start again, add the label `robot` to \
         #7.\n\n<sub>AgentMine, session ended</sub>"
    );
    assert_eq!(
        draft_resumed_comment(&task),
        "AgentMine continued the work. The result is in the description of this merge request.\n\n\
         <sub>AgentMine, session ended</sub>"
    );
    task.item.kind = ItemKind::PullRequest;
    assert_eq!(
        rounds_comment(&task.item, " it has made 5 rounds. ", "robot"),
        "AgentMine does no further work on this merge request on its own: it has made 5 rounds. To continue, add the label \
         `robot` to this merge request.\n\n<sub>AgentMine, session ended</sub>"
    );
}

#[test]
fn an_orphan_is_described_by_the_configured_labels() {
    let labels = Labels {
        request: "robot".into(),
        processing: "robot busy".into(),
        ..Labels::default()
    };
    assert_eq!(
        orphan_comment(&labels),
        "AgentMine is not working on this: it has the label `robot busy`, but there is no task for it any more. To queue it, \
         add the label `robot`."
    );
}

fn by(login: &str, body: &str, seconds: i64) -> Comment {
    let mut comment = comment(false, body, at(seconds));
    comment.author.login = login.into();
    comment
}

#[test]
fn comments_are_quoted_with_who_wrote_them_and_when() {
    assert_eq!(transferred_comments(7, &[], "4"), None);
    assert_eq!(transferred_comments(7, &[by("ann", " \n", 0)], "4"), None);
    let comments = [
        by("ann", " It fails.\n\nSee #3. ", 0),
        by("bob", "", 30),
        by("@eve", "@ann?", 60),
    ];
    let quoted = transferred_comments(7, &comments, "4").unwrap();
    assert_eq!(
        quoted.replace(PARTING, "~"),
        "Comments on #7 when the work began:\n\n\
         **ann**, 2024-10-04 00:00 UTC:\n\n\
         > It fails.\n>\n> See #~3.\n\n\
         **@~eve**, 2024-10-04 00:01 UTC:\n\n\
         > @~ann?\n\n\
         <sub>AgentMine, session 4</sub>"
    );
}

/// Every forge has a limit.
#[test]
fn long_comments_are_cut_and_many_are_left_out() {
    let long = "x".repeat(4_001);
    let block = |who: &str| {
        format!(
            "\n\n**{who}**, 2024-10-04 00:00 UTC:\n\n> {}…",
            "x".repeat(4_000)
        )
    };
    let one = transferred_comments(7, &[by("ann", &long, 0)], "4").unwrap();
    let begin = "Comments on #7 when the work began:";
    let end = "\n\n<sub>AgentMine, session 4</sub>";
    assert!(one == format!("{begin}{}{end}", block("ann")), "{one}");

    let many: Vec<Comment> = (0..14).map(|_| by("ann", &long, 0)).collect();
    let text = transferred_comments(7, &many, "4").unwrap();
    // The thirteenth would exceed 50,000 characters.
    let shown = block("ann").repeat(12);
    let left_out = "\n\n2 more are on #7.";
    assert!(text == format!("{begin}{shown}{left_out}{end}"), "{text}");
}
