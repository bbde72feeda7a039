//! What a push may contain.

use agentmine_runtime::config::{AllowedSecret, PushPolicy};
use rstest::rstest;

use super::world::{Kind, World};
use crate::BranchBefore;
use crate::wire::pktline;

/// Looks like a token, and is none. In two parts, so that it is not found in this file.
const TOKEN: &str = concat!("ghp", "_Zk3xQ9vB7mT2wR8yL5nH1cJ6dF4gS0pEa1Xu");

fn write(repo: &std::path::Path, file: &str, text: &str) {
    let path = repo.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_a_later_commit_removes_is_held_back(#[case] kind: Kind) {
    let world = World::new(kind).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    write(
        &repo,
        "src/deep/settings.py",
        &format!("a = 1\nkey = '{TOKEN}'\n"),
    );
    let bad = world.commit(&repo, "one.txt").await;
    std::fs::remove_file(repo.join("src/deep/settings.py")).unwrap();
    world.commit(&repo, "two.txt").await;
    let shown = world.git(&repo, "push origin work").await.err();
    let place = format!(
        "github-token in src/deep/settings.py line 2 (commit {})",
        &bad[..12]
    );
    assert!(shown.contains(&place), "{shown}");
    assert!(shown.contains("remove it from every new commit"), "{shown}");
    assert_eq!(world.upstream_head("work").await, "");
    let recorded = world.refusals().pop().unwrap();
    assert!(recorded.contains(&place), "{recorded}");
    assert!(!shown.contains(TOKEN) && !recorded.contains(TOKEN));
    // Without the commit, the same files may be pushed.
    world.git(&repo, "reset -q --soft origin/main").await.ok();
    let head = world.commit(&repo, "three.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, head);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_a_commits_message_is_held_back() {
    let world = World::new(Kind::Http).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    world.commit(&repo, "one.txt").await;
    world
        .git(&repo, &format!("commit -q --allow-empty -m {TOKEN}"))
        .await
        .ok();
    let shown = world.git(&repo, "push origin work").await.err();
    assert!(
        shown.contains("github-token in (commit message) line 1"),
        "{shown}"
    );
    assert!(!shown.contains(TOKEN));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_message_closes_an_issue_is_pushed_once_it_is_reworded() {
    let world = World::new(Kind::Http).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    world.commit(&repo, "one.txt").await;
    write(
        &repo,
        ".git/said",
        "Greet everybody\n\nFixes #9, closes #10\n",
    );
    world
        .git(&repo, "commit -q --amend -F .git/said")
        .await
        .ok();
    let shown = world.git(&repo, "push origin work").await.err();
    assert!(shown.contains("contains `Fixes #9`"), "{shown}");
    assert_eq!(world.upstream_head("work").await, "");
    write(&repo, ".git/said", "Greet everybody\n\nFor #9\n");
    world
        .git(&repo, "commit -q --amend -F .git/said")
        .await
        .ok();
    world.git(&repo, "push -q origin work").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_skips_the_checks_of_the_forge_is_not_pushed() {
    let world = World::new(Kind::Http).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    world.commit(&repo, "one.txt").await;
    write(&repo, ".git/said", "Greet everybody\n\n[skip ci]\n");
    world
        .git(&repo, "commit -q --amend -F .git/said")
        .await
        .ok();
    let shown = world.git(&repo, "push origin work").await.err();
    assert!(shown.contains("contains `[skip ci]`"), "{shown}");
    assert_eq!(world.upstream_head("work").await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_allows_a_secret_by_rule_and_path() {
    let allow = |rule: &str, path: &str| PushPolicy {
        allow_secrets: vec![AllowedSecret {
            rule: rule.into(),
            paths: vec![path.into()],
        }],
        ..PushPolicy::default()
    };
    for (policy, allowed) in [
        (allow("github-token", "fixtures/**"), true),
        (allow("*", "*.txt"), true),
        (allow("jwt", "fixtures/**"), false),
        (allow("github-token", "src/**"), false),
    ] {
        let shown = format!("{policy:?}");
        let world = World::with(Kind::Path, |rights| rights.policy = policy).await;
        let repo = world.clone_into("repo", &[]).await;
        world.git(&repo, "switch -qc work").await.ok();
        write(&repo, "fixtures/a/key.txt", TOKEN);
        world.commit(&repo, "one.txt").await;
        let pushed = world.git(&repo, "push origin work").await;
        match allowed {
            true => drop(pushed.ok()),
            false => assert!(pushed.err().contains("github-token"), "{shown}"),
        }
    }
}

/// When a branch has moved upstream, git sends the history before it again.
#[rstest]
#[case(&[])]
#[case(&["--depth=1"])]
#[tokio::test(flavor = "multi_thread")]
async fn what_upstream_has_already_is_not_held_back(#[case] options: &[&str]) {
    let world = World::new(Kind::Http).await;
    let human = world.home.path().join("human");
    write(&human, "old.txt", TOKEN);
    world.human_commit("main", "leak.txt").await;
    let repo = world.clone_into("repo", options).await;
    world.git(&repo, "switch -qc work").await.ok();
    world.human_commit("main", "moved.txt").await;
    let head = world.commit(&repo, "one.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, head);
    // What is new is found all the same.
    write(&repo, "new.txt", &format!("x\n{TOKEN}x"));
    write(&repo, "own.txt", &format!("x\n{TOKEN}\n"));
    world.human_commit("main", "again.txt").await;
    world.commit(&repo, "two.txt").await;
    let shown = world.git(&repo, "push origin work").await.err();
    assert!(shown.contains("github-token in own.txt line 2"), "{shown}");
}

/// A first push of `new` to the branch, with the objects that git finds for `revisions`, one a line.
fn push_of(repo: &std::path::Path, new: &str, revisions: &str) -> Vec<u8> {
    let list = repo.join(".git/revisions");
    std::fs::write(&list, revisions).unwrap();
    let pack = std::process::Command::new("git")
        .args(["pack-objects", "--stdout", "--revs", "-q"])
        .current_dir(repo)
        .stdin(std::fs::File::open(list).unwrap())
        .output()
        .unwrap();
    assert!(pack.status.success(), "{pack:?}");
    let mut body = Vec::new();
    let line = format!("{} {new} refs/heads/work\0report-status", "0".repeat(40));
    pktline::data(&mut body, line.as_bytes());
    pktline::flush(&mut body);
    body.extend_from_slice(&pack.stdout);
    body
}

/// Anybody can put commits into upstream under the ref of a pull request.
#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_only_a_forks_pull_request_has_is_not_taken_for_upstreams(
    #[case] kind: Kind,
) {
    let world = World::new(kind).await;
    let human = world.home.path().join("human");
    write(&human, "key.txt", TOKEN);
    let theirs = world.commit(&human, "theirs.txt").await;
    world
        .git(&human, "push -q origin HEAD:refs/pull/1/head")
        .await
        .ok();
    let repo = world.clone_into("repo", &[]).await;
    world
        .git(&repo, "fetch -q origin refs/pull/1/head")
        .await
        .ok();
    let merge = "commit-tree -p origin/main -p FETCH_HEAD -m merge origin/main^{tree}";
    let merge = world.git(&repo, merge).await.ok();
    for (new, revisions) in [
        (&theirs, format!("^{theirs}\n")),
        (&merge, format!("{merge}\n^{theirs}\n")),
    ] {
        let answer = world.raw_push(push_of(&repo, new, &revisions)).await;
        let reason = "neither in it nor on a branch or tag";
        assert!(answer.contains(reason), "{answer}");
        assert_eq!(world.upstream_head("work").await, "");
    }
    // Git sends the commit, since it was not offered, and what it holds is searched.
    let push = format!("push origin {merge}:refs/heads/work");
    let shown = world.git(&repo, &push).await.err();
    assert!(shown.contains("github-token in key.txt"), "{shown}");
    assert_eq!(world.upstream_head("work").await, "");
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn the_branch_may_start_at_any_commit_of_a_branch_or_a_tag(#[case] kind: Kind) {
    let world = World::new(kind).await;
    let human = world.home.path().join("human");
    let main = world.upstream_head("main").await;
    let repo = world.clone_into("repo", &[]).await;
    world
        .git(&repo, "push -q origin origin/main~1:refs/heads/work")
        .await
        .ok();
    world
        .git(&human, "checkout -q --detach origin/main")
        .await
        .ok();
    let tagged = world.commit(&human, "release.txt").await;
    world.git(&human, "tag -a -m release v1").await.ok();
    world.git(&human, "push -q origin v1").await.ok();
    world.git(&repo, "fetch -q --tags origin").await.ok();
    // The tag's commit is on no branch.
    world
        .git(&repo, "push -q origin v1^{commit}:refs/heads/work")
        .await
        .ok();
    assert_eq!(world.upstream_head("work").await, tagged);
    world
        .git(&repo, &format!("switch -q --detach {main}"))
        .await
        .ok();
    world.commit(&repo, "one.txt").await;
    world.git(&repo, "merge -q --no-edit v1").await.ok();
    world
        .git(&repo, "push -q origin HEAD:refs/heads/work")
        .await
        .ok();
    assert_eq!(world.refusals(), Vec::<String>::new());
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn the_branch_contains_the_commit_that_the_task_started_from(#[case] kind: Kind) {
    let world = World::new(kind).await;
    let start = world.human_commit("main", "fix.txt").await;
    world.human_commit("main", "later.txt").await;
    world.gateway.require_start(&start).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work origin/main~2").await.ok();
    let own = world.commit(&repo, "one.txt").await;
    for old in ["origin/main~2", "work"] {
        let push = format!("push origin {old}:refs/heads/work");
        let shown = world.git(&repo, &push).await.err();
        assert!(shown.contains("which the task started from"), "{shown}");
        assert_eq!(world.upstream_head("work").await, "");
    }
    world
        .git(&repo, "merge -q --no-edit origin/main")
        .await
        .ok();
    world.git(&repo, "push -q origin work").await.ok();
    let head = world.upstream_head("work").await;
    assert_eq!(world.git(&repo, "rev-parse work").await.ok(), head);
    let contains = format!("merge-base --is-ancestor {own} {head}");
    world.git(&repo, &contains).await.ok();
}

/// A depth-1 clone whose branch has moved on upstream: no ref is at its only commit.
async fn begun_from_a_commit_that_no_ref_is_at(kind: Kind) -> (World, std::path::PathBuf) {
    let world = World::with(kind, |rights| rights.max_push_bytes = 50_000).await;
    let human = world.home.path().join("human");
    let large: String = (0..30_000)
        .map(|n: u32| n.wrapping_mul(2_654_435_761).to_string())
        .collect();
    std::fs::write(human.join("large.txt"), large).unwrap();
    let start = world.human_commit("main", "fix.txt").await;
    let repo = world.clone_into("repo", &["--depth=1"]).await;
    world.gateway.require_start(&start).await;
    world.gateway.branch_was(BranchBefore::Absent).await;
    world.human_commit("main", "later.txt").await;
    world.git(&repo, "switch -qc work").await.ok();
    (world, repo)
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn a_shallow_clone_of_a_branch_that_moved_sends_only_what_is_new(#[case] kind: Kind) {
    let (world, repo) = begun_from_a_commit_that_no_ref_is_at(kind).await;
    let own = world.commit(&repo, "one.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, own);
    let next = world.commit(&repo, "two.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, next);
    assert!(!world.gateway.others_pushed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_upstream_has_no_longer_is_pushed_from_a_whole_clone() {
    let world = World::new(Kind::Http).await;
    let start = world.human_commit("main", "fix.txt").await;
    let repo = world.clone_into("repo", &["--depth=1"]).await;
    world.gateway.require_start(&start).await;
    let human = world.home.path().join("human");
    world.git(&human, "commit -q --amend -m other").await.ok();
    world.git(&human, "push -q -f origin main").await.ok();
    world.git(&repo, "switch -qc work").await.ok();
    let own = world.commit(&repo, "one.txt").await;
    let shown = world.git(&repo, "push origin work").await.err();
    assert!(
        shown.contains("run `git fetch --unshallow`; then push again"),
        "{shown}"
    );
    world.git(&repo, "fetch -q --unshallow").await.ok();
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, own);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authors_of_pushed_commits_are_recorded_and_not_those_of_upstreams() {
    let world = World::new(Kind::Http).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    assert_eq!(world.gateway.identities(), Vec::<String>::new());
    for (file, author) in [("one.txt", "Mona <mona@x>"), ("two.txt", "Theo <theo@x>")] {
        world.commit(&repo, file).await;
        let amend = ["commit", "-q", "--amend", "--no-edit", "--author", author];
        let amended = std::process::Command::new("git")
            .args(["-c", "user.name=Bot", "-c", "user.email=bot@x"])
            .args(amend)
            .current_dir(&repo)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_COMMITTER_NAME", "Bot")
            .env("GIT_COMMITTER_EMAIL", "bot@x")
            .status();
        assert!(amended.unwrap().success());
        world.git(&repo, "push -q origin work").await.ok();
    }
    let expected = ["Bot <bot@x>", "Mona <mona@x>", "Theo <theo@x>"];
    assert_eq!(world.gateway.identities(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_at_the_tip_of_another_one_costs_no_look_at_its_history() {
    let world = World::new(Kind::Http).await;
    let repo = world.clone_into("repo", &[]).await;
    let before = world.forge_fetches();
    world
        .git(&repo, "push -q origin origin/main:refs/heads/work")
        .await
        .ok();
    assert_eq!(world.forge_fetches(), before);
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn paths_that_the_operator_refuses_are_not_changed(#[case] kind: Kind) {
    let world = World::with(kind, |rights| {
        rights.policy.refuse_paths = vec![".github/workflows/**".into(), "*.lock".into()];
    })
    .await;
    let human = world.home.path().join("human");
    write(&human, ".github/workflows/ci.yml", "on: push\n");
    write(&human, "Cargo.lock", "1\n");
    world.human_commit("main", "setup.txt").await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    write(&repo, ".github/other.yml", "fine\n");
    world.commit(&repo, "one.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    for change in [
        "mv file1.txt .github/workflows/moved.yml",
        "rm -q .github/workflows/ci.yml",
        "mv Cargo.lock x.txt",
        "mv -f file1.txt .github/Workflows",
    ] {
        world.git(&repo, change).await.ok();
        world.commit(&repo, "two.txt").await;
        let shown = world.git(&repo, "push origin work").await.err();
        assert!(
            shown.contains("may not be changed here"),
            "{change}: {shown}"
        );
        world.git(&repo, "reset -q --hard origin/work").await.ok();
    }
    // What a person changed may be merged.
    write(&human, ".github/workflows/ci.yml", "on: pull_request\n");
    world.human_commit("main", "later.txt").await;
    world
        .git(&repo, "pull -q --no-rebase --no-edit origin main")
        .await
        .ok();
    let head = world.commit(&repo, "three.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, head);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submodule_that_runs_a_program_is_refused() {
    let world = World::new(Kind::Http).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    for (url, allowed) in [
        ("ext::sh -c x", false),
        ("foo://h/x", false),
        ("https://h/x", true),
    ] {
        let text = format!("[submodule \"s\"]\n\tpath = s\n\turl = \"{url}\"\n");
        write(&repo, ".gitmodules", &text);
        world.commit(&repo, "one.txt").await;
        let pushed = world.git(&repo, "push origin work").await;
        match allowed {
            true => drop(pushed.ok()),
            false => {
                assert!(pushed.err().contains("names a submodule"), "{url}");
                world.git(&repo, "reset -q --hard origin/main").await.ok();
            }
        }
    }
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_submodules_is_checked_whatever_its_file_was_before(#[case] kind: Kind) {
    let world = World::new(kind).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    let text = "[submodule \"s\"]\n\tpath = s\n\turl = \"ext::sh -c x\"\n";
    write(&repo, "notes.txt", text);
    world.commit(&repo, "one.txt").await;
    world.git(&repo, "mv notes.txt .gitmodules").await.ok();
    world.commit(&repo, "two.txt").await;
    let shown = world.git(&repo, "push origin work").await.err();
    assert!(shown.contains("names a submodule"), "{shown}");
    // Upstream has the file already, so that the second push does not bring it.
    world
        .git(&repo, "push -q origin work~1:refs/heads/work")
        .await
        .ok();
    let shown = world.git(&repo, "push origin work").await.err();
    assert!(shown.contains("names a submodule"), "{shown}");
}

/// A host that filters, and has bitmaps of what its commits reach, omits what is in a commit that the client claims to have.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_submodules_is_checked_that_upstream_has_under_another_name() {
    let world = World::new(Kind::Http).await;
    let human = world.home.path().join("human");
    let text = "[submodule \"s\"]\n\tpath = s\n\turl = \"ext::sh -c x\"\n";
    write(&human, "notes.txt", text);
    world.human_commit("main", "setup.txt").await;
    let repo = world.clone_into("repo", &[]).await;
    world.human_commit("main", "later.txt").await;
    for prepare in ["config uploadpack.allowFilter true", "repack -adbq"] {
        world.git(&world.upstream, prepare).await.ok();
    }
    world.git(&repo, "switch -qc work").await.ok();
    world.git(&repo, "mv notes.txt .gitmodules").await.ok();
    world.commit(&repo, "one.txt").await;
    let shown = world.git(&repo, "push origin work").await.err();
    assert!(shown.contains("names a submodule"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_submodules_that_upstream_has_is_left_alone() {
    let world = World::new(Kind::Http).await;
    let human = world.home.path().join("human");
    let text = "[submodule \"s\"]\n\tpath = s\n\turl = \"codecommit::eu-west-1://s\"\n";
    write(&human, ".gitmodules", text);
    world.human_commit("main", "setup.txt").await;
    let repo = world.clone_into("repo", &["--depth=1"]).await;
    world.git(&repo, "switch -qc work").await.ok();
    let head = world.commit(&repo, "one.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, head);
}

/// The id of an object that git makes of its input.
fn made(repo: &std::path::Path, input: &[u8], args: &[&str]) -> String {
    use std::io::Write as _;
    let mut git = std::process::Command::new("git")
        .args(args)
        .current_dir(repo)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    git.stdin.take().unwrap().write_all(input).unwrap();
    let made = git.wait_with_output().unwrap();
    assert!(made.status.success());
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

/// A folder with one entry in this mode, which git itself need not write.
fn folder(repo: &std::path::Path, (mode, name): (&str, &str), id: &str) -> String {
    let mut entry = format!("{mode} {name}\0").into_bytes();
    let id = (0..id.len()).step_by(2).map(|at| &id[at..at + 2]);
    entry.extend(id.map(|hex| u8::from_str_radix(hex, 16).unwrap()));
    let args = ["hash-object", "-t", "tree", "-w", "--stdin", "--literally"];
    made(repo, &entry, &args)
}

/// Git reads each of these modes as that of a folder.
#[rstest]
#[case("0040000", "github-token in inner/key.txt")]
#[case("00040000", "github-token in inner/key.txt")]
#[case("40755", "github-token in inner/key.txt")]
#[case("240000", "an entry that cannot be read")]
#[case("40000040000", "an entry that cannot be read")]
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_in_an_unusual_mode_is_searched_like_any_other(
    #[case] mode: &str,
    #[case] reason: &str,
) {
    let world = World::new(Kind::Path).await;
    let repo = world.clone_into("repo", &[]).await;
    let key = made(&repo, TOKEN.as_bytes(), &["hash-object", "-w", "--stdin"]);
    let inner = folder(&repo, ("100644", "key.txt"), &key);
    let tree = folder(&repo, (mode, "inner"), &inner);
    let commit = format!("commit-tree -p origin/main -m x {tree}");
    let commit = world.git(&repo, &commit).await.ok();
    let push = format!("push origin {commit}:refs/heads/work");
    let shown = world.git(&repo, &push).await.err();
    assert!(shown.contains(reason), "{shown}");
    assert_eq!(world.upstream_head("work").await, "");
}

/// Few objects that are a tree of more files than any disk holds.
#[tokio::test(flavor = "multi_thread")]
async fn folders_that_expand_without_end_are_refused_at_once() {
    let world = World::new(Kind::Http).await;
    let repo = world.clone_into("repo", &[]).await;
    let blob = made(&repo, b"x", &["hash-object", "-w", "--stdin"]);
    let empty = made(&repo, b"", &["mktree"]);
    let long = "x".repeat(250);
    // How often each folder has the one below it, under which name, and what is at the bottom.
    for (levels, width, name, bottom, reason) in [
        (
            10,
            10,
            "f",
            ("100644", "blob", blob.as_str()),
            "more than 3000000 files and folders",
        ),
        (
            2,
            20_000,
            "f",
            ("040000", "tree", empty.as_str()),
            "more than 3000000 files and folders",
        ),
        (
            1100,
            1,
            "f",
            ("100644", "blob", blob.as_str()),
            "nested more than",
        ),
        (
            20,
            1,
            long.as_str(),
            ("100644", "blob", blob.as_str()),
            "longer than 4096 bytes",
        ),
    ] {
        let entries = |mode: &str, kind: &str, id: &str| -> String {
            (0..width)
                .map(|n| format!("{mode} {kind} {id}\t{name}{n}\n"))
                .collect()
        };
        let (mode, kind, id) = bottom;
        let mut tree = made(&repo, entries(mode, kind, id).as_bytes(), &["mktree"]);
        for _ in 1..levels {
            let above = entries("040000", "tree", &tree);
            tree = made(&repo, above.as_bytes(), &["mktree"]);
        }
        let commit = format!("commit-tree -p origin/main -m x {tree}");
        let commit = world.git(&repo, &commit).await.ok();
        let push = format!("push origin {commit}:refs/heads/work");
        let shown = world.git(&repo, &push).await.err();
        assert!(shown.contains(reason), "{shown}");
        assert_eq!(world.upstream_head("work").await, "");
    }
}

/// A world in which `.github/workflows` is protected, and `main` has changed a file there in its last commit.
async fn with_protected_workflow(kind: Kind) -> World {
    let world = World::with(kind, |rights| {
        rights.policy.refuse_paths = vec![".github/workflows/**".into()];
    })
    .await;
    let human = world.home.path().join("human");
    for (text, file) in [
        ("on: pull_request_target\n", "a.txt"),
        ("on: push\n", "b.txt"),
    ] {
        write(&human, ".github/workflows/ci.yml", text);
        world.human_commit("main", file).await;
    }
    world
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_of_an_old_commit_does_not_undo_a_change_of_a_protected_path(#[case] kind: Kind) {
    let world = with_protected_workflow(kind).await;
    let repo = world.clone_into("repo", &[]).await;
    let merge = "commit-tree -p origin/main -p origin/main~1 -m merge origin/main~1^{tree}";
    let merge = world.git(&repo, merge).await.ok();
    let push = format!("push origin {merge}:refs/heads/work");
    let shown = world.git(&repo, &push).await.err();
    let reason = ".github/workflows/ci.yml may not be changed here";
    assert!(shown.contains(reason), "{shown}");
    assert_eq!(world.upstream_head("work").await, "");
}

/// The folders of commits whose history was fetched before have to be fetched all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_of_what_others_changed_is_accepted_after_their_branch_has_moved() {
    let world = with_protected_workflow(Kind::Http).await;
    let upstream = world.upstream.clone();
    world
        .git(&upstream, "config uploadpack.allowFilter true")
        .await
        .ok();
    world.git(&upstream, "branch other main").await.ok();
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work origin/main~1").await.ok();
    world.commit(&repo, "one.txt").await;
    world
        .git(&repo, "merge -q --no-edit origin/main")
        .await
        .ok();
    let head = world.git(&repo, "rev-parse HEAD").await.ok();
    world.human_commit("main", "moved.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, head);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_protected_path_in_an_unrelated_history_is_refused_beside_the_same_file() {
    let world = with_protected_workflow(Kind::Http).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -q --orphan work").await.ok();
    write(&repo, "!same.yml", "on: [push]\n");
    write(&repo, ".github/workflows/new.yml", "on: [push]\n");
    world.commit(&repo, "one.txt").await;
    let shown = world.git(&repo, "push origin work").await.err();
    let reason = ".github/workflows/new.yml may not be changed here";
    assert!(shown.contains(reason), "{shown}");
    assert_eq!(world.upstream_head("work").await, "");
}

/// A push could choose commits that have the file as it wants it, so that the newest is not among those that are compared.
#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_of_many_old_commits_does_not_undo_a_change_of_a_protected_path(
    #[case] kind: Kind,
) {
    let world = with_protected_workflow(kind).await;
    let human = world.home.path().join("human");
    world
        .git(&human, "checkout -q -B old origin/main~1")
        .await
        .ok();
    let mut parents = String::from("-p origin/main");
    for n in 1..=8 {
        let old = world.commit(&human, &format!("old{n}.txt")).await;
        parents += &format!(" -p {old}");
    }
    world.git(&human, "push -q origin old").await.ok();
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work origin/old").await.ok();
    let own = world.commit(&repo, "one.txt").await;
    let merge = format!("commit-tree {parents} -m merge {own}^{{tree}}");
    let merge = world.git(&repo, &merge).await.ok();
    let push = format!("push origin {merge}:refs/heads/work");
    let shown = world.git(&repo, &push).await.err();
    assert!(shown.contains("merges too many commits"), "{shown}");
    assert_eq!(world.upstream_head("work").await, "");
}

/// The branch of another task could begin at the older commit.
#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn a_protected_path_is_not_changed_by_a_commit_below_one_that_restores_it(
    #[case] kind: Kind,
) {
    let world = with_protected_workflow(kind).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    write(&repo, ".github/workflows/ci.yml", "on: [push]\n");
    let changed = world.commit(&repo, "one.txt").await;
    write(&repo, ".github/workflows/ci.yml", "on: push\n");
    let restored = world.commit(&repo, "two.txt").await;
    // A merge of an old commit, and one that restores what that undid.
    let old = "commit-tree -p origin/main -p origin/main~1 -m old origin/main~1^{tree}";
    let old = world.git(&repo, old).await.ok();
    let new = format!("commit-tree -p {old} -p origin/main -m new origin/main^{{tree}}");
    let new = world.git(&repo, &new).await.ok();
    for (head, below) in [(restored, changed), (new, old)] {
        let push = format!("push origin {head}:refs/heads/work");
        let shown = world.git(&repo, &push).await.err();
        let reason = format!("Take the change out of commit {}", &below[..12]);
        assert!(shown.contains(&reason), "{shown}");
        assert_eq!(world.upstream_head("work").await, "");
    }
}
