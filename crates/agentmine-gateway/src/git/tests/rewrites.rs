//! A push that replaces the history of the branch, as a rebase does.

use std::path::PathBuf;

use rstest::rstest;

use super::world::{Kind, World};
use crate::Rewrite;

/// A clone on the branch `work`, which has two commits upstream, while `main` has moved. Returns the clone, the head of
/// the branch, and that of `main`.
async fn moved_on(world: &World) -> (PathBuf, String, String) {
    world.human_commit("work", "one.txt").await;
    let head = world.human_commit("work", "two.txt").await;
    let onto = world.human_commit("main", "theirs.txt").await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -q work").await.ok();
    (repo, head, onto)
}

fn rewrite(head: &str, onto: &str) -> Rewrite {
    Rewrite {
        head: head.to_owned(),
        onto: onto.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebase_is_let_through_once_it_is_allowed() {
    let world = World::new(Kind::Http).await;
    let (repo, head, onto) = moved_on(&world).await;
    world.git(&repo, "rebase -q origin/main").await.ok();
    let shown = world.git(&repo, "push -f origin work").await.err();
    assert!(shown.contains("not a fast-forward"), "{shown}");
    assert_eq!(world.upstream_head("work").await, head);
    world.gateway.allow_rewrite(rewrite(&head, &onto)).await;
    let rebased = world.git(&repo, "rev-parse HEAD").await.ok();
    world
        .git(&repo, "push -q --force-with-lease origin work")
        .await
        .ok();
    assert_eq!(world.upstream_head("work").await, rebased);
    assert_eq!(world.gateway.pushed_head(), Some(rebased.clone()));
    assert_eq!(world.gateway.rewritable().await, Some(rebased));
    // What was pushed from here may be replaced again.
    world.git(&repo, "commit -q --amend -m again").await.ok();
    let again = world.git(&repo, "rev-parse HEAD").await.ok();
    world.git(&repo, "push -qf origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, again);
    // And be taken back in part, but not as a whole.
    world.git(&repo, "reset -q --hard HEAD~1").await.ok();
    let part = world.git(&repo, "rev-parse HEAD").await.ok();
    world.git(&repo, "push -qf origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, part);
    world.git(&repo, "reset -q --hard origin/main").await.ok();
    let shown = world.git(&repo, "push -f origin work").await.err();
    assert!(shown.contains("not a rebase"), "{shown}");
    assert_eq!(world.upstream_head("work").await, part);
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn a_rewrite_of_another_commit_is_refused(#[case] kind: Kind) {
    let world = World::new(kind).await;
    let (repo, head, onto) = moved_on(&world).await;
    world.gateway.allow_rewrite(rewrite(&head, &onto)).await;
    let human = world.human_commit("work", "human.txt").await;
    world.git(&repo, "rebase -q origin/main").await.ok();
    // Neither by somebody who has not seen it, nor by somebody who has.
    let shown = world
        .git(&repo, "push --force-with-lease origin work")
        .await
        .err();
    assert!(shown.contains("stale info"), "{shown}");
    let shown = world.git(&repo, "push -f origin work").await.err();
    assert!(shown.contains("not a fast-forward"), "{shown}");
    assert_eq!(world.upstream_head("work").await, human);
    // Nor once a push from here has added to it.
    world.git(&repo, "fetch -q origin").await.ok();
    world.git(&repo, "reset -q --hard origin/work").await.ok();
    let added = world.commit(&repo, "added.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.gateway.rewritable().await, None);
    world.git(&repo, "rebase -q origin/main").await.ok();
    let shown = world.git(&repo, "push -f origin work").await.err();
    assert!(shown.contains("not a fast-forward"), "{shown}");
    assert_eq!(world.upstream_head("work").await, added);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rewrite_without_the_new_base_or_of_another_branch_is_refused() {
    let world = World::new(Kind::Path).await;
    let (repo, head, onto) = moved_on(&world).await;
    world.gateway.allow_rewrite(rewrite(&head, &onto)).await;
    // The target moves again, and the agent has fetched it.
    let main = world.human_commit("main", "more.txt").await;
    world.git(&repo, "fetch -q origin").await.ok();
    for change in [
        "commit -q --amend -m other",
        "reset -q --hard origin/main",
        "reset -q --hard origin/main~1",
        "reset -q --hard origin/work~2",
    ] {
        world.git(&repo, change).await.ok();
        let shown = world.git(&repo, "push -f origin work").await.err();
        assert!(shown.contains("not a rebase"), "{change}: {shown}");
        assert_eq!(world.upstream_head("work").await, head);
    }
    let shown = world.git(&repo, "push -f origin HEAD:main").await.err();
    assert!(shown.contains("only refs/heads/work"), "{shown}");
    assert_eq!(world.upstream_head("main").await, main);
}

/// A repository on the worker's own disk never lets a branch be rewritten: it has no pull requests, so no rounds.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_refuses_a_rewrite_is_asked_once() {
    let world = World::new(Kind::Path).await;
    let (repo, head, onto) = moved_on(&world).await;
    world.gateway.allow_rewrite(rewrite(&head, &onto)).await;
    world.git(&repo, "rebase -q origin/main").await.ok();
    let shown = world.git(&repo, "push -f origin work").await.err();
    assert!(shown.contains("merge instead"), "{shown}");
    assert_eq!(world.gateway.rewritable().await, None);
    let shown = world.git(&repo, "push -f origin work").await.err();
    assert!(shown.contains("not a fast-forward"), "{shown}");
    world.git(&repo, "reset -q --hard origin/work").await.ok();
    world
        .git(&repo, "merge -q --no-edit origin/main")
        .await
        .ok();
    world.git(&repo, "push -q origin work").await.ok();
}
