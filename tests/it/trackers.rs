//! One contract for all trackers: GitHub and GitLab, against the fake forge, and the local folder. Below it, the
//! faults that only a server can cause. What is peculiar to GitLab is in `gitlab.rs`.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use agentmine_domain::{ItemKind, ItemRef};
use agentmine_runtime::config::{self, Secret};
use agentmine_runtime::permit::{BootInstant, Permit};
use agentmine_tests::forge::{BOT, Fault, Forge, HUMAN};
use agentmine_trackers::{
    GitHubTracker, GitLabTracker, GitSource, LocalTracker, NewPullRequest, Tracker, TrackerError,
};
use tempfile::TempDir;

pub(crate) const LABEL: &str = "coding agent";
pub(crate) const DONE: &str = "coding agent done";
const REPO: &str = "octo/demo";

/// A permit that lasts for the whole test.
pub(crate) fn permit() -> Permit {
    Permit::of(BootInstant::now(), Duration::from_secs(600))
}

pub(crate) fn seed(dir: &Path) {
    std::fs::create_dir_all(dir.join("src")).unwrap();
    std::fs::write(dir.join("README.md"), "# demo\n").unwrap();
    std::fs::write(dir.join("src/a.txt"), "größe\n".repeat(40)).unwrap();
}

/// A tracker and its server or folder, with the actions of a person.
pub(crate) trait World {
    fn tracker(&self) -> &dyn Tracker;
    fn add_issue(&self, title: &str, labels: &[&str]) -> u64;
    fn add_label(&self, number: u64, label: &str);
    fn add_comment(&self, number: u64, body: &str);
    fn close(&self, number: u64);
    fn close_pull(&self, number: u64);
    fn branch(&self, name: &str);
}

struct OnForge {
    forge: Forge,
    tracker: GitHubTracker,
}

impl OnForge {
    async fn new() -> Self {
        agentmine_runtime::tls::install_default_provider();
        let forge = Forge::start().await;
        forge.add_repo(REPO, seed);
        let tracker = GitHubTracker::new(&forge.config(&[REPO])).unwrap();
        Self { forge, tracker }
    }

    async fn issue(&self) -> ItemRef {
        self.add_issue("title", &[LABEL]);
        self.tracker.candidates(LABEL).await.unwrap().remove(0).item
    }
}

impl World for OnForge {
    fn tracker(&self) -> &dyn Tracker {
        &self.tracker
    }

    fn add_issue(&self, title: &str, labels: &[&str]) -> u64 {
        self.forge.add_issue(REPO, title, "text", labels)
    }

    fn add_label(&self, number: u64, label: &str) {
        self.forge.add_label(REPO, number, label);
    }

    fn add_comment(&self, number: u64, body: &str) {
        self.forge.add_comment(REPO, number, HUMAN, body);
    }

    fn close(&self, number: u64) {
        self.forge.close(REPO, number);
    }

    fn close_pull(&self, number: u64) {
        self.forge.close(REPO, number);
    }

    fn branch(&self, name: &str) {
        self.forge.commit(REPO, name, "main", |dir| {
            std::fs::write(dir.join("new.txt"), "new\n").unwrap();
        });
    }
}

/// The same forge by GitLab's API, over TLS, with a project in a subgroup.
pub(crate) struct OnGitLab {
    pub(crate) forge: Forge,
    pub(crate) tracker: GitLabTracker,
}

/// The project of [`OnGitLab`].
pub(crate) const PROJECT: &str = "octo/tools/demo";

impl OnGitLab {
    pub(crate) async fn new() -> Self {
        let forge = Forge::start_tls().await;
        forge.add_repo(PROJECT, seed);
        let tracker = GitLabTracker::new(&forge.gitlab_config(&[PROJECT])).unwrap();
        Self { forge, tracker }
    }

    pub(crate) async fn issue(&self) -> ItemRef {
        self.add_issue("title", &[LABEL]);
        self.tracker.candidates(LABEL).await.unwrap().remove(0).item
    }
}

impl World for OnGitLab {
    fn tracker(&self) -> &dyn Tracker {
        &self.tracker
    }

    fn add_issue(&self, title: &str, labels: &[&str]) -> u64 {
        self.forge.add_issue(PROJECT, title, "text", labels)
    }

    fn add_label(&self, number: u64, label: &str) {
        self.forge.add_label(PROJECT, number, label);
    }

    fn add_comment(&self, number: u64, body: &str) {
        self.forge.add_comment(PROJECT, number, HUMAN, body);
    }

    fn close(&self, number: u64) {
        self.forge.close(PROJECT, number);
    }

    fn close_pull(&self, number: u64) {
        let pull = self.forge.merge_request(PROJECT, number);
        self.forge.close(PROJECT, pull);
    }

    fn branch(&self, name: &str) {
        self.forge.commit(PROJECT, name, "main", |dir| {
            std::fs::write(dir.join("new.txt"), "new\n").unwrap();
        });
    }
}

struct InFolder {
    dir: TempDir,
    tracker: LocalTracker,
}

impl InFolder {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        seed(dir.path());
        git(dir.path(), &["init", "-q", "-b", "main"]);
        git(dir.path(), &["add", "."]);
        git(dir.path(), &["commit", "-q", "-m", "Start"]);
        let tracker = LocalTracker::new(&config::LocalTrackerConfig {
            repository: dir.path().to_path_buf(),
            issues: None,
        });
        Self {
            tracker: tracker.unwrap(),
            dir,
        }
    }

    fn issues(&self) -> PathBuf {
        let folder = self.dir.path().join(".agentmine/issues");
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn edit(&self, path: &Path, change: impl FnOnce(String) -> String) {
        let text = std::fs::read_to_string(path).unwrap();
        std::fs::write(path, change(text)).unwrap();
    }
}

impl World for InFolder {
    fn tracker(&self) -> &dyn Tracker {
        &self.tracker
    }

    fn add_issue(&self, title: &str, labels: &[&str]) -> u64 {
        let number = (1..)
            .find(|n| !self.issues().join(format!("{n}.md")).exists())
            .unwrap();
        let labels = labels.join(", ");
        let text = format!("---\nlabels: [{labels}]\nstate: open\n---\n# {title}\ntext\n");
        std::fs::write(self.issues().join(format!("{number}.md")), text).unwrap();
        number
    }

    fn add_label(&self, number: u64, label: &str) {
        let path = self.issues().join(format!("{number}.md"));
        self.edit(&path, |text| {
            text.replacen("labels: [", &format!("labels: [{label}, "), 1)
        });
    }

    fn add_comment(&self, number: u64, body: &str) {
        let folder = self.issues().join(format!("{number}.comments"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("0001.md"), body).unwrap();
    }

    fn close(&self, number: u64) {
        let path = self.issues().join(format!("{number}.md"));
        self.edit(&path, |text| text.replace("state: open", "state: closed"));
    }

    fn close_pull(&self, number: u64) {
        let path = self
            .dir
            .path()
            .join(format!(".agentmine/pulls/{number}.md"));
        self.edit(&path, |text| text.replace("state: open", "state: closed"));
    }

    fn branch(&self, name: &str) {
        git(self.dir.path(), &["branch", name]);
    }
}

pub(crate) fn git_output(dir: &Path, args: &[&str]) -> Output {
    Command::new("git")
        .arg("-C")
        .arg(dir)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.invalid"])
        .args(["-c", "credential.helper="])
        .args(args)
        .env("GIT_TERMINAL_PROMPT", "0")
        // It would override `http.sslCAInfo`.
        .env_remove("GIT_SSL_CAINFO")
        .output()
        .unwrap()
}

pub(crate) fn git(dir: &Path, args: &[&str]) {
    let done = git_output(dir, args);
    assert!(
        done.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

pub(crate) fn new_pull(head: &str) -> NewPullRequest {
    NewPullRequest {
        head: head.to_owned(),
        base: "main".to_owned(),
        title: "Fix \"it\": now".to_owned(),
        body: "Text\n---\nmore".to_owned(),
        draft: false,
    }
}

async fn only_open_labelled_issues_request_work(world: &dyn World) {
    let asked = world.add_issue("Asked", &["bug", LABEL]);
    world.add_issue("Not asked", &["bug"]);
    let closed = world.add_issue("Closed", &[LABEL]);
    world.close(closed);
    let found = world.tracker().candidates(LABEL).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].item.number, found[0].title.as_str()),
        (asked, "Asked")
    );
    assert_eq!(found[0].item.tracker, world.tracker().kind());
    assert_eq!(found[0].item.host, world.tracker().host());
    let item = world.tracker().item(&found[0].item).await.unwrap();
    assert_eq!((item.title.as_str(), item.open), ("Asked", true));
    assert!(item.body.contains("text"));
    assert_eq!(item.labels, ["bug", LABEL]);
    assert_eq!(item.branches, None);
}

async fn a_trigger_is_valid_until_the_label_is_set_again(world: &dyn World) {
    let number = world.add_issue("Asked", &[LABEL]);
    let tracker = world.tracker();
    let first = tracker.candidates(LABEL).await.unwrap().remove(0);
    assert_eq!(first, tracker.candidates(LABEL).await.unwrap()[0]);
    tracker
        .set_labels(&first.item, &[DONE.into()], &[LABEL.into()], &permit())
        .await
        .unwrap();
    assert_eq!(tracker.candidates(LABEL).await.unwrap(), []);
    world.add_label(number, LABEL);
    let second = tracker.candidates(LABEL).await.unwrap().remove(0);
    assert_eq!(second.item, first.item);
    assert_ne!(second.trigger, first.trigger);
}

async fn labels_change_and_others_stay(world: &dyn World) {
    world.add_issue("Asked", &["bug", LABEL]);
    let tracker = world.tracker();
    let item = tracker.candidates(LABEL).await.unwrap().remove(0).item;
    let (add, remove) = ([DONE.to_owned()], [LABEL.to_owned(), "absent".to_owned()]);
    for _ in 0..2 {
        tracker
            .set_labels(&item, &add, &remove, &permit())
            .await
            .unwrap();
        let mut labels = tracker.item(&item).await.unwrap().labels;
        labels.sort();
        assert_eq!(labels, ["bug", DONE]);
    }
}

async fn a_marked_comment_is_written_once_and_edited(world: &dyn World) {
    let number = world.add_issue("Asked", &[LABEL]);
    let tracker = world.tracker();
    let item = tracker.candidates(LABEL).await.unwrap().remove(0).item;
    // A person's comment is not ours, whatever its text.
    world.add_comment(number, "I quote <!-- task 1 progress -->");
    let first = tracker
        .upsert_comment(&item, "task 1 progress", "half way", &permit())
        .await
        .unwrap();
    let second = tracker
        .upsert_comment(&item, "task 1 progress", "there", &permit())
        .await
        .unwrap();
    let other = tracker
        .upsert_comment(&item, "task 1", "another", &permit())
        .await
        .unwrap();
    assert_eq!(first, second);
    assert_ne!(first, other);
    let comments = tracker.comments(&item).await.unwrap();
    let ours: Vec<bool> = comments.iter().map(|comment| comment.ours).collect();
    assert_eq!(ours, [false, true, true]);
    assert!(comments[1].body.starts_with("there"));
    assert!(comments[1].body.contains("<!-- task 1 progress -->"));
    assert_eq!(comments[1].author.login, tracker.login().await.unwrap());
}

async fn a_pull_request_is_opened_once_for_a_branch(world: &dyn World) {
    world.add_issue("Asked", &[LABEL]);
    world.branch("agentmine/issue-1");
    let tracker = world.tracker();
    let item = tracker.candidates(LABEL).await.unwrap().remove(0).item;
    let head = "agentmine/issue-1";
    assert_eq!(tracker.find_pull_request(&item, head).await.unwrap(), None);
    let first = tracker
        .create_pull_request(&item, &new_pull(head), &permit())
        .await
        .unwrap();
    assert!(first.open);
    let second = tracker
        .create_pull_request(&item, &new_pull(head), &permit())
        .await
        .unwrap();
    assert_eq!(second, first);
    assert_eq!(
        tracker.find_pull_request(&item, head).await.unwrap(),
        Some(first.clone())
    );
    assert_eq!(
        tracker
            .find_pull_request(&item, "agentmine/issue")
            .await
            .unwrap(),
        None
    );
    world.close_pull(first.number);
    let closed = tracker
        .find_pull_request(&item, head)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((closed.number, closed.open), (first.number, false));
    let third = tracker
        .create_pull_request(&item, &new_pull(head), &permit())
        .await
        .unwrap();
    assert!(third.number > first.number);
    assert_eq!(
        tracker.find_pull_request(&item, head).await.unwrap(),
        Some(third)
    );
}

async fn files_are_read_from_a_branch(world: &dyn World) {
    world.add_issue("Asked", &[LABEL]);
    let tracker = world.tracker();
    let item = tracker.candidates(LABEL).await.unwrap().remove(0).item;
    assert_eq!(
        tracker.repository(&item).await.unwrap().default_branch,
        "main"
    );
    let text = tracker.file(&item, "main", "src/a.txt").await.unwrap();
    assert_eq!(text.as_deref(), Some("größe\n".repeat(40).as_str()));
    for (branch, path) in [("main", "none.txt"), ("main", "src"), ("none", "README.md")] {
        assert_eq!(
            tracker.file(&item, branch, path).await.unwrap(),
            None,
            "{branch} {path}"
        );
    }
    for path in ["../secret", "/etc/passwd", "src/../../x", ""] {
        assert!(tracker.file(&item, "main", path).await.is_err(), "{path}");
    }
}

async fn an_unknown_item_is_not_found(world: &dyn World) {
    world.add_issue("Asked", &[LABEL]);
    let tracker = world.tracker();
    let item = tracker.candidates(LABEL).await.unwrap().remove(0).item;
    let wrong = [
        ItemRef {
            number: 999,
            ..item.clone()
        },
        ItemRef {
            repo_id: "1".into(),
            ..item.clone()
        },
    ];
    for item in wrong {
        let error = tracker.item(&item).await.unwrap_err();
        assert!(matches!(error, TrackerError::NotFound { .. }), "{error}");
    }
}

async fn a_marker_that_could_break_out_is_refused(world: &dyn World) {
    world.add_issue("Asked", &[LABEL]);
    let tracker = world.tracker();
    let item = tracker.candidates(LABEL).await.unwrap().remove(0).item;
    for marker in ["", "a --> <b>", "two\nlines"] {
        let error = tracker
            .upsert_comment(&item, marker, "text", &permit())
            .await
            .unwrap_err();
        assert!(matches!(error, TrackerError::Invalid { .. }), "{error}");
    }
}

/// Each fact, for each tracker.
macro_rules! contract {
    ($($fact:ident),* $(,)?) => {
        mod github {
            $(#[tokio::test]
            async fn $fact() {
                super::$fact(&super::OnForge::new().await).await;
            })*
        }
        mod gitlab {
            $(#[tokio::test]
            async fn $fact() {
                super::$fact(&super::OnGitLab::new().await).await;
            })*
        }
        mod local {
            $(#[tokio::test]
            async fn $fact() {
                super::$fact(&super::InFolder::new().await).await;
            })*
        }
    };
}

contract!(
    only_open_labelled_issues_request_work,
    a_trigger_is_valid_until_the_label_is_set_again,
    labels_change_and_others_stay,
    a_marked_comment_is_written_once_and_edited,
    a_pull_request_is_opened_once_for_a_branch,
    files_are_read_from_a_branch,
    an_unknown_item_is_not_found,
    a_marker_that_could_break_out_is_refused,
);

#[tokio::test]
async fn a_comment_whose_response_was_lost_is_posted_once() {
    let world = OnForge::new().await;
    let item = world.issue().await;
    world
        .forge
        .inject(Fault::on("POST", "/comments").answer_lost());
    world
        .forge
        .inject(Fault::on("POST", "/comments").done_but_status(502));
    world
        .tracker
        .upsert_comment(&item, "m", "text", &permit())
        .await
        .unwrap();
    world
        .tracker
        .upsert_comment(&item, "n", "text", &permit())
        .await
        .unwrap();
    assert_eq!(world.forge.comments(REPO, item.number).len(), 2);
    assert_eq!(world.forge.faults_left(), 0);
}

#[tokio::test]
async fn a_pull_request_whose_response_was_lost_is_opened_once() {
    let world = OnForge::new().await;
    let item = world.issue().await;
    world.branch("x");
    world
        .forge
        .inject(Fault::on("POST", "/pulls").answer_lost());
    let pull = world
        .tracker
        .create_pull_request(&item, &new_pull("x"), &permit())
        .await
        .unwrap();
    let pulls = world.forge.pulls(REPO);
    assert_eq!(pulls.len(), 1);
    assert_eq!(
        (pulls[0].number, pulls[0].author.as_str()),
        (pull.number, BOT)
    );
    assert_eq!(
        Some(pulls[0].head_sha.clone()),
        world.forge.branch_sha(REPO, "x")
    );
    let writes = world.forge.writes();
    let posts = writes.iter().filter(|write| write.path.ends_with("/pulls"));
    assert_eq!(posts.count(), 1);
}

#[tokio::test]
async fn a_dropped_connection_is_retried() {
    let world = OnForge::new().await;
    let item = world.issue().await;
    world.forge.inject(Fault::on("GET", "/issues/1?*").times(2));
    world.forge.inject(Fault::on("DELETE", "/labels/").times(1));
    let remove = [LABEL.to_owned()];
    world
        .tracker
        .set_labels(&item, &[DONE.into()], &remove, &permit())
        .await
        .unwrap();
    assert_eq!(world.forge.labels(REPO, 1), [DONE]);
}

#[tokio::test]
async fn drafts_fall_back_where_they_are_refused() {
    let world = OnForge::new().await;
    let item = world.issue().await;
    world.forge.refuse_drafts(REPO);
    world.branch("x");
    let draft = NewPullRequest {
        draft: true,
        ..new_pull("x")
    };
    world
        .tracker
        .create_pull_request(&item, &draft, &permit())
        .await
        .unwrap();
    assert!(!world.forge.pulls(REPO)[0].draft);
}

#[tokio::test]
async fn an_empty_branch_is_refused_with_the_forges_message() {
    let world = OnForge::new().await;
    let item = world.issue().await;
    let error = world
        .tracker
        .create_pull_request(&item, &new_pull("main"), &permit())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("No commits between"), "{error}");
}

#[tokio::test]
async fn a_renamed_repository_is_followed() {
    let world = OnForge::new().await;
    let item = world.issue().await;
    world.branch("x");
    world.forge.rename_repo(REPO, "octo/new");
    // Another process, which has the old name from its row.
    let tracker = GitHubTracker::new(&world.forge.config(&[REPO])).unwrap();
    let found = tracker.candidates(LABEL).await.unwrap().remove(0);
    assert_eq!(found.item.key(), item.key());
    assert_eq!(found.item.repo_path, "octo/new");
    tracker
        .set_labels(&item, &[DONE.into()], &[LABEL.into()], &permit())
        .await
        .unwrap();
    assert_eq!(world.forge.labels("octo/new", 1), [DONE]);
    tracker
        .create_pull_request(&item, &new_pull("x"), &permit())
        .await
        .unwrap();
    assert!(
        tracker
            .find_pull_request(&item, "x")
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn an_unchanged_repository_is_scanned_for_free() {
    let world = OnForge::new().await;
    world.issue().await;
    let before = world.forge.requests().len();
    world.tracker.candidates(LABEL).await.unwrap();
    let requests = world.forge.requests();
    let statuses: Vec<u16> = requests[before..].iter().map(|seen| seen.status).collect();
    // The list, and the events of an item that has just changed.
    assert_eq!(statuses, [304, 304]);
}

#[tokio::test]
async fn a_look_for_commands_is_one_free_request_while_nobody_writes_any() {
    let world = OnForge::new().await;
    let item = world.issue().await;
    let recent = async || world.tracker.recent_comments(&item).await.unwrap();
    world.forge.say(REPO, item.number, "mona", "a word");
    assert_eq!(recent().await, []);
    let before = world.forge.requests().len();
    assert_eq!(recent().await, []);
    let statuses = |from: usize| {
        let requests = world.forge.requests();
        requests[from..]
            .iter()
            .map(|it| it.status)
            .collect::<Vec<_>>()
    };
    assert_eq!(statuses(before), [304]);
    world
        .forge
        .say(REPO, item.number, "mona", "/agentmine stop");
    for _ in 0..2 {
        let found = recent().await;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].comment.body, "/agentmine stop");
    }
    assert_eq!(statuses(before).last(), Some(&304));
}

#[tokio::test]
async fn a_look_for_commands_in_reviews_is_one_free_request_while_nobody_writes() {
    let world = OnForge::new().await;
    let issue = world.issue().await;
    world.branch("x");
    let number = world.forge.add_pull(REPO, "x", "main", "A change", &[]);
    world.forge.say_in_review(REPO, number, "mona", "a word");
    // What has just changed is read again, since times are shown in whole seconds.
    world.forge.age(chrono::TimeDelta::seconds(100));
    let pull = ItemRef {
        kind: ItemKind::PullRequest,
        number,
        ..issue
    };
    let pulls = [pull];
    let recent = async || world.tracker.recent_reviews(&pulls).await.unwrap();
    assert_eq!(recent().await, []);
    let before = world.forge.requests().len();
    assert_eq!(recent().await, []);
    let requests = world.forge.requests();
    let statuses: Vec<u16> = requests[before..].iter().map(|it| it.status).collect();
    assert_eq!(statuses, [304], "{:?}", &requests[before..]);
    let line = world
        .forge
        .say_on_line(REPO, number, "mona", "/agentmine stop");
    let review = world
        .forge
        .say_in_review(REPO, number, "mona", "/agentmine pause");
    for _ in 0..2 {
        let mut ids: Vec<String> = recent()
            .await
            .into_iter()
            .map(|it| it.comment.remark_id())
            .collect();
        ids.sort();
        assert_eq!(ids, [format!("line-{line}"), format!("review-{review}")]);
    }
}

#[tokio::test]
async fn every_page_is_read() {
    let world = OnForge::new().await;
    for n in 0..120 {
        world.add_issue(&format!("issue {n}"), &[LABEL]);
    }
    assert_eq!(world.tracker.candidates(LABEL).await.unwrap().len(), 120);
}

#[tokio::test]
async fn a_query_finds_issues_and_pull_requests_by_search() {
    let world = OnForge::new().await;
    world.forge.add_repo("octo/other", seed);
    world.branch("x");
    let issue = world.add_issue("Here", &[LABEL]);
    let pull = world
        .forge
        .add_pull(REPO, "x", "main", "A pull request", &[LABEL]);
    world.forge.add_issue("octo/other", "There", "", &[LABEL]);
    let config = config::GitHub {
        query: Some("org:octo".into()),
        ..world.forge.config(&[REPO])
    };
    let tracker = GitHubTracker::new(&config).unwrap();
    let mut found = tracker.candidates(LABEL).await.unwrap();
    found.sort_by_key(|one| (one.item.repo_path.clone(), one.item.number));
    let places: Vec<(String, ItemKind)> = found
        .iter()
        .map(|one| (one.item.to_string(), one.item.kind))
        .collect();
    let expected = [
        (format!("{REPO}#{issue}"), ItemKind::Issue),
        (format!("{REPO}#{pull}"), ItemKind::PullRequest),
        ("octo/other#1".to_owned(), ItemKind::Issue),
    ];
    assert_eq!(places, expected);
    let branches = tracker
        .item(&found[1].item)
        .await
        .unwrap()
        .branches
        .unwrap();
    assert_eq!(
        (branches.source.as_str(), branches.target.as_str()),
        ("x", "main")
    );
}

#[tokio::test]
async fn two_writers_of_one_comment_leave_one() {
    let world = OnForge::new().await;
    let item = world.issue().await;
    let slow = Fault::on("POST", "/comments").times(2);
    // Both have looked, and found nothing, before either has written.
    world.forge.inject(slow.delay(Duration::from_millis(500)));
    let other = GitHubTracker::new(&world.forge.config(&[REPO])).unwrap();
    let permit = permit();
    let (a, b) = tokio::join!(
        world.tracker.upsert_comment(&item, "m", "text", &permit),
        other.upsert_comment(&item, "m", "text", &permit),
    );
    assert_eq!(a.unwrap(), b.unwrap());
    let comments = world.forge.comments(REPO, item.number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
}

#[tokio::test]
async fn a_later_writer_removes_the_twin_of_a_comment() {
    let world = OnForge::new().await;
    let item = world.issue().await;
    let first = world
        .tracker
        .upsert_comment(&item, "m", "one", &permit())
        .await;
    let twin = world.forge.comments(REPO, item.number)[0].body.clone();
    let bot = world.tracker.login().await.unwrap();
    world.forge.add_comment(REPO, item.number, &bot, &twin);
    world.forge.add_comment(REPO, item.number, "ann", &twin);
    let kept = world
        .tracker
        .upsert_comment(&item, "m", "two", &permit())
        .await;
    assert_eq!(kept.unwrap(), first.unwrap());
    let comments = world.forge.comments(REPO, item.number);
    let authors: Vec<&str> = comments.iter().map(|it| it.author.as_str()).collect();
    assert_eq!(authors.len(), 2, "a person's copy stays: {comments:#?}");
    assert!(comments[0].body.starts_with("two"), "{comments:#?}");
}

#[tokio::test]
async fn a_revoked_token_is_reported_with_a_hint() {
    let world = OnForge::new().await;
    world.forge.revoke(world.forge.token());
    let error = world.tracker.login().await.unwrap_err().to_string();
    assert!(error.contains("GITHUB_PERSONAL_ACCESS_TOKEN"), "{error}");
    assert!(!error.contains(world.forge.token()), "{error}");
}

#[tokio::test]
async fn an_exhausted_rate_limit_is_reported() {
    let world = OnForge::new().await;
    world.forge.limit_rate(0, Duration::from_secs(3600));
    let error = world.tracker.candidates(LABEL).await.unwrap_err();
    assert!(matches!(error, TrackerError::RateLimited { .. }), "{error}");
}

#[tokio::test]
async fn an_app_token_recognizes_its_own_comments() {
    let world = OnForge::new().await;
    world.forge.add_account("ghs_app", "miner[bot]", true);
    let config = config::GitHub {
        token: Some(Secret::new("ghs_app")),
        ..world.forge.config(&[REPO])
    };
    let tracker = GitHubTracker::new(&config).unwrap();
    assert_eq!(tracker.login().await.unwrap(), "miner[bot]");
    let item = world.issue().await;
    let first = tracker
        .upsert_comment(&item, "m", "one", &permit())
        .await
        .unwrap();
    assert_eq!(
        tracker
            .upsert_comment(&item, "m", "two", &permit())
            .await
            .unwrap(),
        first
    );
}

/// `http.extraHeader` with basic authentication, as the gateway would add it.
fn authorization(token: &str) -> String {
    basic("x-access-token", token)
}

pub(crate) fn basic(user: &str, token: &str) -> String {
    use base64::Engine;
    let packed = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{token}"));
    format!("http.extraHeader=Authorization: Basic {packed}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_forge_serves_git_with_authorization_and_follows_pushes() {
    let world = OnForge::new().await;
    let item = world.issue().await;
    let GitSource::Http {
        url,
        user,
        password,
        authority: None,
    } = world.tracker.repository(&item).await.unwrap().source
    else {
        panic!("not over HTTP");
    };
    assert_eq!(user, "x-access-token");
    assert_eq!(url, world.forge.git_url(REPO));
    assert_eq!(password.unwrap().get().expose(), world.forge.token());

    let dir = tempfile::tempdir().unwrap();
    let auth = authorization(world.forge.token());
    let (here, place) = (dir.path(), url.as_str());
    assert!(
        !git_output(here, &["clone", "-q", place, "none"])
            .status
            .success()
    );
    git(
        here,
        &["-c", &auth, "clone", "-q", "--depth", "1", place, "demo"],
    );
    let demo = here.join("demo");
    git(&demo, &["switch", "-q", "-c", "x"]);
    // Large enough for git to send it compressed and in chunks.
    let noise: String = (0..400_000_u64)
        .map(|n| char::from((n * n % 89 + 33) as u8))
        .collect();
    std::fs::write(demo.join("big.txt"), noise).unwrap();
    git(&demo, &["add", "."]);
    git(&demo, &["commit", "-q", "-m", "Big"]);
    let reader = authorization(world.forge.reader_token());
    assert!(
        !git_output(&demo, &["-c", &reader, "push", "-q", "origin", "x"])
            .status
            .success()
    );
    git(
        &demo,
        &[
            "-c",
            &auth,
            "-c",
            "http.postBuffer=1000",
            "push",
            "-q",
            "origin",
            "x",
        ],
    );

    let head = String::from_utf8(git_output(&demo, &["rev-parse", "HEAD"]).stdout).unwrap();
    world
        .tracker
        .create_pull_request(&item, &new_pull("x"), &permit())
        .await
        .unwrap();
    assert_eq!(world.forge.pulls(REPO)[0].head_sha, head.trim());
    let pushes = world.forge.pushes(REPO);
    assert_eq!(pushes.len(), 1);
    assert!(
        pushes[0].starts_with(BOT) && pushes[0].ends_with("refs/heads/x"),
        "{pushes:?}"
    );
    assert_eq!(world.forge.leaks(), Vec::<String>::new());
    assert_eq!(world.forge.branches(REPO), ["main", "x"]);
}

#[tokio::test]
async fn the_forge_detects_a_token_in_a_url() {
    let world = OnForge::new().await;
    let url = format!(
        "{}user?access_token={}",
        world.forge.api_url(),
        world.forge.token()
    );
    let response = reqwest::get(url).await.unwrap();
    assert_eq!(response.status().as_u16(), 401);
    assert_eq!(world.forge.leaks().len(), 1);
}

#[tokio::test]
async fn the_forges_page_escapes_untrusted_markup() {
    let world = OnForge::new().await;
    world.add_issue("<script>alert(1)</script>", &[]);
    let page = reqwest::get(world.forge.html_url())
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        page.contains("&lt;script&gt;") && !page.contains("<script>"),
        "{page}"
    );
}
