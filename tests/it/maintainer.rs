//! A maintainer's hour on the page of both forges: what people read there, from the label to the merge.
//!
//! With `AGENTMINE_TEST_PICTURES=FOLDER` each moment is left in that folder, as a page and, where Chromium is installed, as
//! a picture.

use std::path::{Path, PathBuf};

use agentmine_domain::{EndState, Task, TaskState};
use agentmine_tests::forge::{BOT, DEMO, Forge, HUMAN};
use agentmine_tests::model::{Scenario, Script, commit_and_push, edit_replace, say, shell};
use regex::Regex;

use crate::rig::{PATIENCE, REQUEST, Rig};

const TITLE: &str = "greet.sh ignores its argument";
const TEXT: &str = "Running `greet.sh` with a name greets nobody:\n\n```\n$ sh greet.sh Ada\nHello, !\n```\n\nWhat I expect:\n\n\
    - [ ] `sh greet.sh Ada` prints `Hello, Ada!`\n- [ ] without an argument it greets the world\n\nlena found it.";
const OTHER: &str = "greet.sh has no option for its version";
const DONE: &str = "coding agent done";

/// Solves the issue, then does what the review and the red check ask for.
fn script() -> Script {
    let round = |n: u8| Scenario::new("a round").when(&format!("this is round {n} on it"));
    Script::new()
        .scenario(round(1).find("thread", r"thread (T\w+), on greet.sh").replies([
            shell("sed -i '2i # Without an argument, greet the world.' greet.sh"),
            commit_and_push("Say what happens without an argument"),
            say("The script now says why it has a default.\n\n- **{thread}**: Added a comment above the line."),
        ]))
        .scenario(round(2).replies([
            shell("sed -i 's/# Without/# Given no name, or without/' greet.sh && sh test.sh"),
            commit_and_push("Word the comment as the linter wants it"),
            say("The linter wants the comment to name its condition first. It does now."),
        ]))
        .scenario(
            Scenario::new("the other issue")
                .when(OTHER)
                .replies([shell("cat greet.sh"), say("Done.")]),
        )
        .scenario(Scenario::new("the issue").replies([
            shell("ls && sh test.sh"),
            edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
            shell("sh test.sh"),
            commit_and_push("Greet the person named"),
            say("`greet.sh` now greets its argument, and the world without one:\n\n- `sh greet.sh Ada` prints `Hello, Ada!`\n- `sh greet.sh` prints `Hello, world!`\n\n`sh test.sh` passes."),
        ]))
}

/// The rig, and where the pages of its forge are.
struct Hour {
    rig: Rig,
    /// `github` or `gitlab`.
    forge: &'static str,
}

impl Hour {
    fn page(&self, number: u64) -> String {
        let is_pull = self
            .rig
            .forge
            .pulls(DEMO)
            .iter()
            .any(|it| it.number == number);
        let place = match (self.forge, is_pull) {
            ("github", _) => DEMO.to_owned(),
            (_, false) => format!("{DEMO}/-/issues"),
            (_, true) => format!("{DEMO}/-/merge_requests"),
        };
        let shown = self.rig.shown(number);
        self.rig.forge.page(&format!("{place}/{shown}"))
    }

    /// What a person sees at a moment. No Markdown may be left in it, and nothing hidden may be shown.
    fn look(&self, moment: &str, number: u64) -> String {
        let html = self.page(number);
        let code = Regex::new("(?s)<pre.*?</pre>|<code.*?</code>").unwrap();
        let text = code.replace_all(&html, "");
        for raw in [
            "&lt;!--",
            "|---",
            "[ ]",
            "[x]",
            "**",
            "`",
            "&lt;details",
            "&lt;sub",
            "](",
            "[!",
        ] {
            assert!(!text.contains(raw), "{moment}: {raw} is shown in {text}");
        }
        if let Some(folder) = std::env::var_os("AGENTMINE_TEST_PICTURES") {
            keep(
                &PathBuf::from(folder).join(format!("{}-{moment}", self.forge)),
                &html,
            );
        }
        html
    }

    /// The texts of the bot on an item.
    fn ours(&self, number: u64) -> Vec<String> {
        let comments = self.rig.forge.comments(DEMO, number).into_iter();
        let ours = comments.filter(|it| it.author == BOT);
        ours.map(|it| it.body).collect()
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Forge) -> bool) {
        self.rig.forge.wait_until(what, PATIENCE, is_so).await;
    }

    /// Waits until this many tasks are done, and the labels of the last one's item say so.
    async fn done(&self, count: usize, number: u64) {
        let is_done = |task: &&Task| task.state == TaskState::Ended(EndState::Done);
        let enough = |tasks: &[Task]| tasks.iter().filter(is_done).count() == count;
        self.rig.wait("a task to be done", enough).await;
        let is_reported = |forge: &Forge| forge.labels(DEMO, number).contains(&DONE.to_owned());
        self.until("its label says so", is_reported).await;
    }
}

/// Writes a page, and a picture of it.
fn keep(place: &Path, html: &str) {
    let folder = place.parent().unwrap();
    std::fs::create_dir_all(folder).unwrap();
    let page = place.with_extension("html");
    std::fs::write(&page, html).unwrap();
    let picture = format!("--screenshot={}", place.with_extension("png").display());
    let mut browser = std::process::Command::new("chromium");
    browser
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ])
        .args(["--window-size=1000,2600", &picture])
        .arg(format!("file://{}", page.canonicalize().unwrap().display()));
    match browser.output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(missing) => assert_eq!(missing.kind(), std::io::ErrorKind::NotFound),
    }
}

async fn an_hour(mut rig: Rig, forge: &'static str) {
    rig.config["rounds"]["settle_seconds"] = 0.into();
    rig.config["consumer"]["progress_seconds"] = 1.into();
    let hour = Hour { rig, forge };
    let (rig, forge) = (&hour.rig, &hour.rig.forge);
    let (producer, consumer) = (rig.spawn("producer", &[]), rig.spawn("consumer", &[]));

    // A label, and one comment that shows how it goes.
    rig.model.hold_at(2);
    let issue = forge.add_issue(DEMO, TITLE, TEXT, &["bug"]);
    forge.add_label(DEMO, issue, REQUEST);
    rig.model.wait_for_held(1).await;
    hour.until("the comment shows the work", |_| {
        hour.ours(issue)
            .iter()
            .any(|it| it.contains("**Work on the request**"))
    })
    .await;
    let html = hour.look("1-at-work", issue);
    assert!(
        html.contains("checked=\"\" disabled=\"\" /> Prepare the sandbox"),
        "{html}"
    );

    // A remark is heard, a command answered in the same comment.
    forge.add_comment(
        DEMO,
        issue,
        HUMAN,
        "Please keep it POSIX, some of us have no bash.",
    );
    let status = forge.say(DEMO, issue, HUMAN, "/agentmine status");
    hour.until("the status is given", |forge| {
        let given = hour.ours(issue).iter().any(|it| it.contains("is at work"));
        given && forge.reactions().iter().any(|it| it.comment == status)
    })
    .await;
    let html = hour.look("2-status", issue);
    assert!(html.contains("class=reaction"), "{html}");
    assert!(html.contains("So far: less than a minute, "), "{html}");
    rig.model.release();

    // The pull request.
    hour.done(1, issue).await;
    let heard = rig.model.requests();
    let heard = heard
        .iter()
        .any(|it| it.body.to_string().contains("keep it POSIX"));
    assert!(heard, "the remark reached the model");
    assert_eq!(hour.ours(issue).len(), 1, "{:#?}", hour.ours(issue));
    hour.look("3-issue-done", issue);
    let pull = forge.pulls(DEMO).remove(0);
    let html = hour.look("4-opened", pull.number);
    let parts = [
        "<td>0</td>",
        "<code>sh test.sh</code>",
        "No web requests",
        "<blockquote>\n<p>Running <code>greet.sh</code> with a name",
        "<li>☐ without an argument",
    ];
    for part in parts {
        assert!(html.contains(part), "{part}: {html}");
    }

    // A review.
    let line = "Why is there a default? Please say so here.";
    forge.add_line_comment(DEMO, pull.number, ("greet.sh", 2), line);
    forge.add_review(
        DEMO,
        pull.number,
        "CHANGES_REQUESTED",
        "Nearly. One thing below.",
    );
    hour.done(2, pull.number).await;
    let html = hour.look("5-review-answered", pull.number);
    // The thread has its answer, and the summary does not repeat it under a name that nobody knows.
    assert_eq!(
        html.matches("Added a comment above the line.").count(),
        1,
        "{html}"
    );
    assert!(
        html.contains("branch. Round 1 was for a review or comment."),
        "{html}"
    );
    assert_eq!(forge.line_threads(DEMO, pull.number)[0].0.len(), 2);

    // A red check.
    let head = || forge.branch_sha(DEMO, &pull.head).unwrap();
    let log = "checking greet.sh\ngreet.sh:2: a comment has to name its condition first\n1 error";
    forge.add_job(DEMO, &head(), "lint", "failure", log);
    hour.done(3, pull.number).await;
    forge.add_job(DEMO, &head(), "lint", "success", "checking greet.sh\nfine");
    let html = hour.look("6-check-fixed", pull.number);
    assert!(html.contains("✔ lint: success"), "{html}");

    // Another issue, whose label is removed.
    rig.model.hold_when(OTHER, 1);
    let other = forge.add_issue(DEMO, OTHER, "It should print `1.0`.", &[]);
    forge.add_label(DEMO, other, REQUEST);
    rig.model.wait_for_held(1).await;
    hour.until("its label is moved", |forge| {
        forge.labels(DEMO, other) == ["coding agent processing"]
    })
    .await;
    forge.remove_label(DEMO, other, "coding agent processing");
    hour.until("the end to be reported", |_| {
        hour.ours(other).iter().any(|it| it.contains("stopped"))
    })
    .await;
    rig.model.release();
    hour.look("7-label-removed", other);
    assert_eq!(hour.ours(other).len(), 1, "{:#?}", hour.ours(other));

    // The merge.
    forge.merge(DEMO, pull.number);
    hour.until("the branch is gone", |forge| {
        forge.branch_sha(DEMO, &pull.head).is_none()
    })
    .await;
    let html = hour.look("8-merged", pull.number);
    assert!(html.contains("The branch was removed."), "{html}");
    assert_eq!(forge.pulls(DEMO).len(), 1);
    assert!(forge.leaks().is_empty(), "{:?}", forge.leaks());
    for process in [producer, consumer] {
        process.terminate();
        assert!(process.end().await.0.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintainers_hour_reads_well_on_github() {
    an_hour(Rig::local(script()).await, "github").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintainers_hour_reads_well_on_gitlab() {
    an_hour(Rig::local_gitlab(script()).await, "gitlab").await;
}
