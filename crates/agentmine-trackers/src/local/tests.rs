//! What only files can do. The contract suite covers what every tracker does.

use std::path::Path;
use std::process::Command;

use agentmine_runtime::config;
use agentmine_runtime::permit::{BootInstant, Permit};
use rstest::rstest;
use tempfile::TempDir;

use super::LocalTracker;
use super::front_matter::{parse, title, with_labels};
use crate::{Tracker, TrackerError};

const LABEL: &str = "coding agent";

/// A permit that lasts for the whole test.
fn permit() -> Permit {
    Permit::of(BootInstant::now(), std::time::Duration::from_secs(600))
}

fn git(dir: &Path, args: &[&str]) {
    let done = Command::new("git")
        .arg("-C")
        .arg(dir)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.invalid"])
        .args(args)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

fn repository() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    git(dir.path(), &["init", "-q", "-b", "trunk"]);
    std::fs::write(dir.path().join("a.txt"), "a").unwrap();
    git(dir.path(), &["add", "."]);
    git(dir.path(), &["commit", "-q", "-m", "Start"]);
    dir
}

fn issue(dir: &Path, name: &str, text: &str) {
    let folder = dir.join(".agentmine/issues");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name), text).unwrap();
}

fn tracker(dir: &Path) -> LocalTracker {
    LocalTracker::new(&config::LocalTrackerConfig {
        repository: dir.to_path_buf(),
        issues: None,
    })
    .unwrap()
}

fn labelled(body: &str) -> String {
    format!("---\nlabels: [{LABEL}]\n---\n{body}")
}

#[rstest]
#[case::none("# T\nbody\n", "---\nlabels: [\"x\", \"y: z\"]\n---\n# T\nbody\n")]
#[case::no_labels(
    "---\ntitle: T # keep\n---\nbody",
    "---\ntitle: T # keep\nlabels: [\"x\", \"y: z\"]\n---\nbody"
)]
#[case::flow(
    "---\nown: {a: 1}\nlabels: [a, b]\nstate: open\n---\n\nbody\n",
    "---\nown: {a: 1}\nlabels: [\"x\", \"y: z\"]\nstate: open\n---\n\nbody\n"
)]
#[case::block(
    "---\nlabels:\n- a\n- b\n# a comment\nstate: open\n---\nbody",
    "---\nlabels: [\"x\", \"y: z\"]\n# a comment\nstate: open\n---\nbody"
)]
#[case::indented(
    "---\nlabels:\n  - a\n  - b\n\ntitle: T\n---\nlabels: [no]\n",
    "---\nlabels: [\"x\", \"y: z\"]\n\ntitle: T\n---\nlabels: [no]\n"
)]
#[case::several_lines(
    "---\nlabels: [\n  a,\n  b\n]\ntitle: T\n---\n",
    "---\nlabels: [\"x\", \"y: z\"]\ntitle: T\n---\n"
)]
#[case::dos(
    "---\r\nlabels: a\r\n---\r\nbody\r\n",
    "---\r\nlabels: [\"x\", \"y: z\"]\r\n---\r\nbody\r\n"
)]
#[case::byte_order_mark(
    "\u{feff}---\nlabels: a\n---\nb",
    "\u{feff}---\nlabels: [\"x\", \"y: z\"]\n---\nb"
)]
fn labels_are_edited_and_the_rest_stays(#[case] before: &str, #[case] after: &str) {
    let labels = ["x".to_owned(), "y: z".to_owned()];
    assert_eq!(with_labels("f.md", before, &labels).unwrap(), after);
}

#[test]
fn what_cannot_be_edited_is_refused() {
    let text = "---\n\"labels\": [a]\n---\nbody";
    let error = with_labels("f.md", text, &["x".into()]).unwrap_err();
    assert!(error.to_string().contains("f.md"), "{error}");
}

#[rstest]
#[case("---\ntitle: T\nlabels: [a\n---\n", "f.md:")]
#[case("---\ntitle: T\nstate: maybe\n---\n", "f.md:3:")]
#[case("---\nnumber: x\n---\n", "f.md:2:")]
#[case("---\ntitle: T\n", "f.md:1:")]
fn a_malformed_front_matter_is_reported_with_its_line(#[case] text: &str, #[case] place: &str) {
    let error = parse("f.md", text).unwrap_err().to_string();
    assert!(error.contains(place), "{error}");
}

#[rstest]
#[case("---\ntitle: Own\n---\n# Heading\n", "Own")]
#[case("text\n# Heading #\n", "Heading")]
#[case("text", "stem")]
fn a_title_is_found(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(title(&parse("f.md", text).unwrap(), "stem"), expected);
}

#[tokio::test]
async fn a_broken_issue_does_not_stop_the_others() {
    let dir = repository();
    issue(dir.path(), "1-broken.md", "---\nlabels: [\n---\n");
    issue(dir.path(), "2-fine.md", &labelled("# Fine\n"));
    std::fs::write(
        dir.path().join(".agentmine/issues/3-binary.md"),
        [0xff, 0xfe, 0],
    )
    .unwrap();
    let found = tracker(dir.path()).candidates(LABEL).await.unwrap();
    let titles: Vec<&str> = found.iter().map(|one| one.title.as_str()).collect();
    assert_eq!(titles, ["Fine"]);
}

#[tokio::test]
async fn numbers_come_from_name_or_head_and_are_else_given_once() {
    let dir = repository();
    issue(dir.path(), "007-spy.md", &labelled("spy"));
    issue(
        dir.path(),
        "b.md",
        "---\nnumber: 12\nlabels: coding agent\n---\n",
    );
    issue(dir.path(), "c.md", &labelled("c"));
    issue(dir.path(), "7-twin.md", &labelled("twin"));
    let numbers = async || {
        let found = tracker(dir.path()).candidates(LABEL).await.unwrap();
        found
            .iter()
            .map(|one| (one.item.number, one.title.clone()))
            .collect::<Vec<_>>()
    };
    let first = numbers().await;
    let expected = [
        (7, "007-spy".to_owned()),
        (12, "b".to_owned()),
        (13, "c".to_owned()),
    ];
    assert_eq!(first, expected);
    issue(dir.path(), "a.md", &labelled("a"));
    assert_eq!(numbers().await[..3], expected);
}

#[tokio::test]
async fn two_trackers_lose_no_label_of_each_other() {
    let dir = repository();
    issue(dir.path(), "1.md", &labelled("text"));
    let (a, b) = (tracker(dir.path()), tracker(dir.path()));
    let item = a.candidates(LABEL).await.unwrap().remove(0).item;
    let each = |tracker: LocalTracker, name: &'static str| {
        let item = item.clone();
        tokio::spawn(async move {
            for n in 0..10 {
                tracker
                    .set_labels(&item, &[format!("{name}{n}")], &[], &permit())
                    .await
                    .unwrap();
            }
        })
    };
    let (first, second) = (each(a.clone(), "a"), each(b, "b"));
    first.await.unwrap();
    second.await.unwrap();
    assert_eq!(a.item(&item).await.unwrap().labels.len(), 21);
}

#[tokio::test]
async fn a_single_file_is_labelled_and_never_written() {
    let dir = repository();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("request.md");
    std::fs::write(&file, "# A request\nplease\n").unwrap();
    let tracker = LocalTracker::single(dir.path(), &file).unwrap();
    let found = tracker.candidates(LABEL).await.unwrap().remove(0);
    assert_eq!((found.title.as_str(), found.item.number), ("A request", 1));
    tracker
        .set_labels(&found.item, &["busy".into()], &[LABEL.into()], &permit())
        .await
        .unwrap();
    tracker
        .upsert_comment(&found.item, "m", "hello", &permit())
        .await
        .unwrap();
    assert_eq!(tracker.item(&found.item).await.unwrap().labels, ["busy"]);
    assert_eq!(tracker.candidates(LABEL).await.unwrap(), []);
    assert_eq!(tracker.comments(&found.item).await.unwrap().len(), 1);
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "# A request\nplease\n"
    );
    assert_eq!(elsewhere.path().read_dir().unwrap().count(), 1);

    let again = LocalTracker::single(dir.path(), &file).unwrap();
    let second = again.candidates(LABEL).await.unwrap().remove(0);
    assert_eq!(second.item, found.item);
    assert_ne!(second.trigger, found.trigger);
}

#[tokio::test]
async fn what_the_tracker_keeps_is_not_seen_by_git() {
    let dir = repository();
    let file = dir.path().join("request.md");
    std::fs::write(&file, "request").unwrap();
    git(dir.path(), &["add", "."]);
    git(dir.path(), &["commit", "-q", "-m", "Request"]);
    let tracker = LocalTracker::single(dir.path(), &file).unwrap();
    let item = tracker.candidates(LABEL).await.unwrap().remove(0).item;
    tracker
        .upsert_comment(&item, "m", "hello", &permit())
        .await
        .unwrap();
    let status = Command::new("git")
        .arg("-C")
        .arg(dir.path())
        .args(["status", "-s"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&status.stdout), "");
}

#[test]
fn a_folder_that_is_no_repository_is_refused_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path| {
        let config = config::LocalTrackerConfig {
            repository: path.to_path_buf(),
            issues: None,
        };
        LocalTracker::new(&config).unwrap_err().to_string()
    };
    assert!(open(&dir.path().join("none")).contains("hint:"));
    assert!(open(dir.path()).contains("git init"));
    git(dir.path(), &["init", "-q"]);
    assert!(open(dir.path()).contains("has no commit"));
}

fn refused(path: &Path) -> String {
    let config = config::LocalTrackerConfig {
        repository: path.to_path_buf(),
        issues: None,
    };
    let error = LocalTracker::new(&config).unwrap_err();
    assert!(matches!(error, TrackerError::Invalid { .. }), "{error}");
    error.to_string()
}

#[test]
fn a_repository_without_its_objects_is_not_taken_for_an_empty_one() {
    let dir = repository();
    let objects = dir.path().join(".git/objects");
    std::fs::remove_dir_all(&objects).unwrap();
    std::fs::create_dir(&objects).unwrap();
    let error = refused(dir.path());
    assert!(error.contains("missing or damaged"), "{error}");
    assert!(error.contains("git fsck"), "{error}");
    assert!(!error.contains("has no commit"), "{error}");
}

#[test]
fn the_inside_of_a_repository_is_refused_and_a_bare_one_is_not() {
    let dir = repository();
    let top = dir.path().canonicalize().unwrap();
    let hint = format!("hint: name {}", top.display());
    for inside in [".git", ".git/refs/heads"] {
        let error = refused(&top.join(inside));
        assert!(error.ends_with(&hint), "{error}");
    }
    let bare = top.join("bare.git");
    let args = ["clone", "-q", "--bare", ".", "bare.git"];
    git(&top, &args);
    tracker(&bare);
}

/// Only root can give a file to another user.
#[test]
fn root_does_not_write_to_the_repository_of_another_user() {
    let dir = repository();
    let git_dir = dir.path().join(".git");
    if std::os::unix::fs::chown(&git_dir, Some(65534), None).is_err() {
        return;
    }
    let error = refused(dir.path());
    assert!(error.contains("belongs to user 65534"), "{error}");
    assert!(error.contains("hint: run this as that user"), "{error}");
    assert!(error.contains("safe.directory"), "{error}");
    assert!(!dir.path().join(".agentmine").exists());
    std::os::unix::fs::chown(&git_dir, Some(0), None).unwrap();
    tracker(dir.path());
}

#[tokio::test]
async fn a_detached_head_is_refused_with_a_hint() {
    let dir = repository();
    issue(dir.path(), "1.md", &labelled("text"));
    git(dir.path(), &["tag", "trunk"]);
    let tracker = tracker(dir.path());
    let item = tracker.candidates(LABEL).await.unwrap().remove(0).item;
    assert_eq!(
        tracker.repository(&item).await.unwrap().default_branch,
        "trunk"
    );
    tracker.require_branch().unwrap();
    git(dir.path(), &["checkout", "-q", "--detach"]);
    let error = tracker.require_branch().unwrap_err();
    assert!(matches!(error, TrackerError::Invalid { .. }));
    assert!(error.to_string().contains("git switch"), "{error}");
    let error = tracker.repository(&item).await.unwrap_err();
    assert!(matches!(error, TrackerError::Refused { .. }));
    assert!(error.to_string().contains("git switch"), "{error}");
}

#[tokio::test]
async fn a_link_that_leads_out_of_the_repository_is_neither_read_nor_written() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret.md");
    std::fs::write(&secret, labelled("A secret of the machine.")).unwrap();
    for (link, target) in [
        (".agentmine/issues/1-a.md", secret.as_path()),
        (".agentmine/issues/2-a.comments", outside.path()),
        (".agentmine/local", outside.path()),
        (".agentmine/local/ledger.json", secret.as_path()),
        (".agentmine/pulls", outside.path()),
        (".agentmine/local/lock", Path::new("/nowhere/at/all")),
    ] {
        let dir = repository();
        issue(dir.path(), "2-a.md", &labelled("Do it."));
        let link = dir.path().join(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, &link).unwrap();
        let error = tracker(dir.path()).candidates(LABEL).await.unwrap_err();
        assert!(error.to_string().contains("leads out"), "{error}");
        assert_eq!(outside.path().read_dir().unwrap().count(), 1, "{link:?}");
    }
    // One that stays in it is followed.
    let dir = repository();
    std::fs::write(dir.path().join("a.md"), labelled("Do it.")).unwrap();
    std::fs::create_dir_all(dir.path().join(".agentmine/issues")).unwrap();
    let link = dir.path().join(".agentmine/issues/1-a.md");
    std::os::unix::fs::symlink(dir.path().join("a.md"), link).unwrap();
    assert_eq!(
        tracker(dir.path()).candidates(LABEL).await.unwrap().len(),
        1
    );
}
