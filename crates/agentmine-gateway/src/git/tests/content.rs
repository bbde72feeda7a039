//! What a push may contain.

use agentmine_runtime::config::{AllowedSecret, PushPolicy};
use rstest::rstest;

use super::world::{Kind, World};
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

/// Few objects that are a tree of more files than any disk holds.
#[tokio::test(flavor = "multi_thread")]
async fn folders_that_expand_without_end_are_refused_at_once() {
    use std::io::Write as _;
    let world = World::new(Kind::Http).await;
    let repo = world.clone_into("repo", &[]).await;
    let make = |input: String, args: &[&str]| {
        let mut git = std::process::Command::new("git")
            .args(args)
            .current_dir(&repo)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        git.stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        let made = git.wait_with_output().unwrap();
        assert!(made.status.success());
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let blob = make("x".into(), &["hash-object", "-w", "--stdin"]);
    for (levels, width, reason) in [
        (10, 10, "more than 3000000 files"),
        (1100, 1, "nested more than"),
    ] {
        let entries = |mode: &str, kind: &str, id: &str| -> String {
            (0..width)
                .map(|n| format!("{mode} {kind} {id}\tf{n}\n"))
                .collect()
        };
        let mut tree = make(entries("100644", "blob", &blob), &["mktree"]);
        for _ in 0..levels {
            tree = make(entries("040000", "tree", &tree), &["mktree"]);
        }
        let base = world.git(&repo, "rev-parse origin/main").await.ok();
        let commit = format!("commit-tree -p {base} -m x {tree}");
        let commit = world.git(&repo, &commit).await.ok();
        let push = format!("push origin {commit}:refs/heads/work");
        let shown = world.git(&repo, &push).await.err();
        assert!(shown.contains(reason), "{shown}");
        assert_eq!(world.upstream_head("work").await, "");
    }
}
