//! A real git client over real TCP, through the gateway, to both kinds of upstream.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rstest::rstest;
use world::{Kind, World};

use crate::facts::{BareRepo, FactsError};
use crate::wire::pktline;
use crate::{BranchBefore, Gateway, GatewayConfig, GitAccess, PushFence, TrafficEvent, Upstream};

mod configuration;
mod content;
mod forge;
mod histories;
mod hostile;
mod mirrors;
mod rewrites;
mod sealed;
mod world;

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn clone_shallow_clone_and_fetch_pass_through(#[case] kind: Kind) {
    let world = World::new(kind).await;
    let full = world.clone_into("full", &[]).await;
    assert_eq!(world.git(&full, "rev-list --count HEAD").await.ok(), "3");
    let shallow = world.clone_into("shallow", &["--depth=1"]).await;
    assert_eq!(world.git(&shallow, "rev-list --count HEAD").await.ok(), "1");
    let human = world.human_commit("main", "later.txt").await;
    world.git(&full, "fetch -q origin").await.ok();
    assert_eq!(world.git(&full, "rev-parse origin/main").await.ok(), human);
    world.git(&shallow, "fetch -q --unshallow").await.ok();
    for version in ["0", "1", "2"] {
        let refs = world
            .git(
                &full,
                &format!("-c protocol.version={version} ls-remote origin"),
            )
            .await
            .ok();
        assert!(refs.contains(&human), "version {version}: {refs}");
    }
    assert_eq!(world.gateway.events(), []);
}

#[rstest]
#[case(Kind::Path, "--depth=1")]
#[case(Kind::Http, "--depth=1")]
#[case(Kind::Path, "--no-single-branch")]
#[case(Kind::Http, "--no-single-branch")]
#[tokio::test(flavor = "multi_thread")]
async fn the_branch_is_pushed_and_pushed_again(#[case] kind: Kind, #[case] how: &str) {
    let world = World::new(kind).await;
    let repo = world.clone_into("repo", &[how]).await;
    world.git(&repo, "switch -qc work").await.ok();
    let first = world.commit(&repo, "one.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, first);
    let second = world.commit(&repo, "two.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, second);
    assert_eq!(world.gateway.pushed_head(), Some(second.clone()));
    let pushes: Vec<_> = world
        .gateway
        .events()
        .into_iter()
        .map(|event| match event {
            TrafficEvent::Pushed {
                old, new, branch, ..
            } => (branch, old, new),
            other => panic!("{other:?}"),
        })
        .collect();
    let zero = "0".repeat(40);
    let work = String::from("work");
    assert_eq!(
        pushes,
        [(work.clone(), zero, first.clone()), (work, first, second)]
    );
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn a_push_larger_than_gits_buffer_arrives(#[case] kind: Kind) {
    let world = World::new(kind).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    std::fs::write(repo.join("big"), world::noise(3_000_000)).unwrap();
    let head = world.commit(&repo, "one.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, head);
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_is_in_the_way_is_named(#[case] kind: Kind) {
    let world = World::new(kind).await;
    world.human_commit("work/deeper", "human.txt").await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    world.commit(&repo, "one.txt").await;
    let shown = world.git(&repo, "push origin work").await.err();
    let reason = "the branch `work/deeper` is in the way of `work`";
    assert!(shown.contains(reason), "{shown}");
    assert!(world.refusals()[0].starts_with(reason));
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn everything_but_the_one_update_is_refused(#[case] kind: Kind) {
    let world = World::new(kind).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    let head = world.commit(&repo, "one.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    world.commit(&repo, "two.txt").await;
    world.git(&repo, "tag v1").await.ok();
    let before = world.upstream_refs().await;
    for (push, reason) in [
        (
            "push origin work:main",
            "only refs/heads/work may be pushed to",
        ),
        (
            "push origin work:other",
            "only refs/heads/work may be pushed to",
        ),
        (
            "push origin work:refs/heads/work/deeper",
            "only refs/heads/work",
        ),
        (
            "push origin v1",
            "only refs/heads/work may be pushed to, not refs/tags/v1",
        ),
        ("push origin :work", "may not be deleted"),
        ("push origin :main", "only refs/heads/work"),
        ("push origin work work:other", "this one updates 2 refs"),
        ("push --mirror origin", "refs"),
    ] {
        let shown = world.git(&repo, push).await.err();
        assert!(shown.contains(reason), "{push}: {shown}");
        assert_eq!(world.upstream_refs().await, before, "{push}");
    }
    assert_eq!(world.gateway.pushed_head(), Some(head));
    let refused = world.refusals();
    assert_eq!(refused.len(), 8, "{refused:?}");
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn a_forced_rewind_is_refused(#[case] kind: Kind) {
    let world = World::new(kind).await;
    let repo = world.clone_into("repo", &["--depth=1"]).await;
    world.git(&repo, "switch -qc work").await.ok();
    world.commit(&repo, "one.txt").await;
    let head = world.commit(&repo, "two.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    for change in [
        "commit -q --amend -m other",
        "reset -q --hard HEAD~1",
        "reset -q --hard origin/main",
        "checkout -q --orphan alone",
    ] {
        world.git(&repo, change).await.ok();
        if change.contains("orphan") {
            world.git(&repo, "commit -qm alone").await.ok();
        }
        let shown = world.git(&repo, "push -f origin HEAD:work").await.err();
        assert!(shown.contains("not a fast-forward"), "{change}: {shown}");
        assert_eq!(world.upstream_head("work").await, head, "{change}");
        world
            .git(&repo, &format!("checkout -qf -B work {head}"))
            .await
            .ok();
    }
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn commits_that_upstream_has_already_may_be_built_on(#[case] kind: Kind) {
    let world = World::new(kind).await;
    let repo = world
        .clone_into("repo", &["--depth=1", "--no-single-branch"])
        .await;
    world.git(&repo, "switch -qc work").await.ok();
    world.commit(&repo, "one.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    // The main branch moves, and is merged.
    world.human_commit("main", "elsewhere.txt").await;
    world.git(&repo, "fetch -q origin").await.ok();
    world
        .git(&repo, "merge -q --no-edit origin/main")
        .await
        .ok();
    world.git(&repo, "push -q origin work").await.ok();
    // Somebody merges the branch; it is then moved on to the merge, so the pack is empty.
    world.human_merge("work", "main").await;
    world.git(&repo, "fetch -q origin").await.ok();
    world
        .git(&repo, "merge -q --ff-only origin/main")
        .await
        .ok();
    let head = world.git(&repo, "rev-parse HEAD").await.ok();
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, head);
    assert_eq!(world.refusals(), Vec::<String>::new());
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn a_humans_push_in_between_is_not_overwritten(#[case] kind: Kind) {
    let world = World::new(kind).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    world.commit(&repo, "one.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    world.commit(&repo, "again.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert!(!world.gateway.others_pushed(), "its own pushes");
    let human = world.human_commit("work", "human.txt").await;
    world.commit(&repo, "two.txt").await;
    let shown = world.git(&repo, "push -f origin work").await.err();
    assert!(shown.contains("rejected"), "{shown}");
    assert_eq!(world.upstream_head("work").await, human);
    // On top of it, it is welcome (spec 000 §6.2: pull, then push again).
    world.git(&repo, "fetch -q origin work").await.ok();
    world.git(&repo, "merge -q --no-edit FETCH_HEAD").await.ok();
    world.git(&repo, "push -q origin work").await.ok();
    let contained = world
        .git(&repo, &format!("merge-base --is-ancestor {human} HEAD"))
        .await;
    contained.ok();
    assert!(world.gateway.others_pushed());
    // With what a person pushed left out, it is a rewind.
    world.git(&repo, "reset -q --hard HEAD^1").await.ok();
    let shown = world.git(&repo, "push -f origin work").await.err();
    assert!(shown.contains("not a fast-forward"), "{shown}");
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn a_branch_of_an_earlier_session_is_continued_but_not_rewound(#[case] kind: Kind) {
    let world = World::new(kind).await;
    let earlier = world.human_commit("work", "earlier.txt").await;
    world
        .gateway
        .branch_was(BranchBefore::At(earlier.clone()))
        .await;
    let repo = world.clone_into("repo", &["--depth=1"]).await;
    world.git(&repo, "switch -qc work").await.ok();
    world.commit(&repo, "one.txt").await;
    let shown = world.git(&repo, "push -f origin work").await.err();
    assert!(shown.contains("not a fast-forward"), "{shown}");
    assert_eq!(world.upstream_head("work").await, earlier);
    world
        .git(&repo, "fetch -q --depth=1 origin work")
        .await
        .ok();
    world.git(&repo, "reset -q --hard FETCH_HEAD").await.ok();
    let next = world.commit(&repo, "two.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, next);
    assert!(!world.gateway.others_pushed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sha256_repository_works_alike() {
    let world = World::new(Kind::Sha256).await;
    let repo = world.clone_into("repo", &["--depth=1"]).await;
    let base = world.git(&repo, "rev-parse HEAD").await.ok();
    world.git(&repo, "switch -qc work").await.ok();
    world.commit(&repo, "one.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    let head = world.commit(&repo, "two.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.gateway.pushed_head(), Some(head.clone()));
    let facts = BareRepo::new(world.target.clone()).unwrap();
    assert_eq!(facts.resolve("work").await.unwrap(), Some(head.clone()));
    facts.fetch(&[&base, &head]).await.unwrap();
    assert_eq!(facts.diff(&base, &head).await.unwrap().files.len(), 2);
    world.git(&repo, "reset -q --hard HEAD~1").await.ok();
    let shown = world.git(&repo, "push -f origin work").await.err();
    assert!(shown.contains("not a fast-forward"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_over_the_limit_is_refused_with_its_reason() {
    let world = World::with(Kind::Path, |rights| rights.max_push_bytes = 100_000).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    for size in [200_000, 3_000_000] {
        std::fs::write(repo.join("big"), world::noise(size)).unwrap();
        world.commit(&repo, "one.txt").await;
        let shown = world.git(&repo, "push origin work").await.err();
        assert!(
            shown.contains("larger than the limit of 100000 bytes"),
            "{shown}"
        );
    }
    assert_eq!(world.upstream_head("work").await, "");
}

#[rstest]
#[case(Kind::Path, Arc::new(world::Lost), "the lease is lost")]
#[case(Kind::Http, Arc::new(world::Lost), "the lease is lost")]
#[case(Kind::Path, Arc::new(world::StoodStill), "the permit to write lapsed")]
#[case(Kind::Http, Arc::new(world::StoodStill), "the permit to write lapsed")]
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_stops_the_push(
    #[case] kind: Kind,
    #[case] fence: Arc<dyn PushFence>,
    #[case] reason: &str,
) {
    let world = World::with(kind, |rights| rights.fence = fence).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    world.commit(&repo, "one.txt").await;
    let shown = world.git(&repo, "push origin work").await.err();
    assert!(shown.contains(reason), "{shown}");
    assert_eq!(world.upstream_head("work").await, "");
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_session_fetches_and_pushes_nothing(#[case] kind: Kind) {
    let world = World::with_access(kind, GitAccess::ReadOnly).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    world.commit(&repo, "one.txt").await;
    let shown = world.git(&repo, "push origin work").await.err();
    assert!(shown.contains("this session may not push"), "{shown}");
    let answer = world.raw_push(b"0000".to_vec()).await;
    assert!(answer.starts_with("403"), "{answer}");
    assert_eq!(world.upstream_head("work").await, "");
    assert_eq!(world.refusals().len(), 2);
    world.git(&repo, "fetch -q origin").await.ok();
}

#[tokio::test]
async fn without_a_repository_a_connection_for_git_is_closed() {
    use tokio::io::AsyncReadExt as _;
    let gateway = Gateway::new(GatewayConfig {
        git: GitAccess::None,
        network: agentmine_runtime::config::Network::default(),
    })
    .unwrap();
    assert_eq!(gateway.remote_path(), None);
    let (mut client, stream) = tokio::io::duplex(64);
    gateway.serve_git(stream).await;
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_credentials_are_recorded_and_shown() {
    let world = World::new(Kind::WrongToken).await;
    let shown = world
        .git(world.home.path(), &format!("clone -q {} x", world.url))
        .await
        .err();
    assert!(
        shown.contains("refused the worker's credentials (HTTP 401)"),
        "{shown}"
    );
    assert!(!shown.contains("Password"), "{shown}");
    assert_eq!(world.gateway.auth_refused(), Some(401));
    assert_eq!(
        world.gateway.events(),
        [TrafficEvent::AuthRefused { status: 401 }]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_never_seen_by_the_client() {
    let world = World::new(Kind::Http).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    world.commit(&repo, "one.txt").await;
    let mut seen = String::new();
    for command in ["fetch origin", "push origin work:main", "push origin work"] {
        seen.push_str(&world.git_traced(&repo, command).await);
    }
    assert!(
        seen.contains("git-receive-pack"),
        "the trace shows requests"
    );
    let encoded = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        format!("bot:{}", world::TOKEN),
    );
    for secret in [world::TOKEN, &encoded] {
        assert!(!seen.contains(secret));
        assert!(!format!("{:?}", world.gateway).contains(secret));
    }
    assert!(!seen.to_ascii_lowercase().contains("authorization:"));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_requests_are_not_answered() {
    let world = World::new(Kind::Http).await;
    let client = reqwest::Client::new();
    let nonce = world.url.rsplit('/').nth(1).unwrap().to_owned();
    let origin = world.url.split(&nonce).next().unwrap().to_owned();
    for (path, status) in [
        ("repo.git/info/refs?service=git-upload-pack".to_owned(), 404),
        (
            format!("{nonce}/other.git/info/refs?service=git-upload-pack"),
            404,
        ),
        (format!("{nonce}/repo.git/info/refs"), 403),
        (
            format!("{nonce}/repo.git/info/refs?service=git-upload-archive"),
            403,
        ),
        (
            format!("{nonce}/repo.git/info/refs?service=git-upload-pack&x=1"),
            403,
        ),
        (format!("{nonce}/repo.git/../repo.git/HEAD"), 404),
        (format!("{nonce}/repo.git/HEAD"), 404),
        (format!("{nonce}/repo.git/git-upload-pack"), 404),
        (
            "0".repeat(32) + "/repo.git/info/refs?service=git-upload-pack",
            404,
        ),
    ] {
        let answer = client.get(format!("{origin}{path}")).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{path}");
    }
    assert_eq!(world.forge_requests(), 0);
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_fetch_request_is_understood(#[case] kind: Kind) {
    let world = World::new(kind).await;
    let mut body = Vec::new();
    pktline::data(&mut body, b"command=ls-refs\n");
    body.extend_from_slice(b"0001");
    pktline::data(&mut body, b"ref-prefix refs/heads/main\n");
    pktline::flush(&mut body);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &body).unwrap();
    let answer = reqwest::Client::new()
        .post(format!("{}/git-upload-pack", world.url))
        .header("content-type", "application/x-git-upload-pack-request")
        .header("content-encoding", "gzip")
        .header("git-protocol", "version=2")
        .body(packed.finish().unwrap())
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.text().await.unwrap().contains("refs/heads/main"));
}

#[rstest]
#[case(b"", "no pack")]
#[case(b"PACK\0\0\0\x02\0\0\0\x01garbage", "does not pass git's checks")]
#[case(b"PACK\0\0\0\x02\xff\xff\xff\xff", "does not pass git's checks")]
#[tokio::test(flavor = "multi_thread")]
async fn a_faulty_pack_goes_nowhere(#[case] pack: &[u8], #[case] reason: &str) {
    let world = World::new(Kind::Http).await;
    let zero = "0".repeat(40);
    let mut body = Vec::new();
    let line = format!("{zero} {} refs/heads/work\0report-status", "1".repeat(40));
    pktline::data(&mut body, line.as_bytes());
    pktline::flush(&mut body);
    body.extend_from_slice(pack);
    let answer = world.raw_push(body).await;
    assert!(answer.contains("ng refs/heads/work"), "{answer}");
    assert!(answer.contains(reason), "{answer}");
    assert_eq!(world.forge_pushes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_without_a_report_is_refused_by_status() {
    let world = World::new(Kind::Http).await;
    let mut body = Vec::new();
    let line = format!("{} {} refs/heads/main\0", "0".repeat(40), "1".repeat(40));
    pktline::data(&mut body, line.as_bytes());
    pktline::flush(&mut body);
    let answer = world.raw_push(body).await;
    assert!(answer.starts_with("403"), "{answer}");
    let answer = world.raw_push(b"nonsense".to_vec()).await;
    assert!(answer.starts_with("400"), "{answer}");
    assert_eq!(world.refusals().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_of_the_users_repository_do_not_run() {
    let world = World::new(Kind::Path).await;
    let mark = world.home.path().join("ran");
    for hook in [
        "pre-receive",
        "update",
        "post-receive",
        "reference-transaction",
    ] {
        let path = world.upstream.join("hooks").join(hook);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("#!/bin/sh\ntouch {}\n", mark.display())).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
    }
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    world.commit(&repo, "one.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert!(!mark.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_host_says_of_a_push_that_it_rejects_is_shown() {
    let world = World::new(Kind::Http).await;
    let hook = world.upstream.join("hooks/pre-receive");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let script = "#!/bin/sh\ncat > /dev/null\necho ======== >&2\n\
                  echo 'GitLab: Commit is not signed off' >&2\necho 'See the rules.' >&2\nexit 1\n";
    std::fs::write(&hook, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&hook, mode).unwrap();
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    world.commit(&repo, "one.txt").await;
    let shown = world.git(&repo, "push origin work").await.err();
    assert!(shown.contains("agentmine: See the rules."), "{shown}");
    assert!(!shown.contains("===="), "{shown}");
    let reason =
        "upstream rejected the push: pre-receive hook declined (GitLab: Commit is not signed off)";
    assert_eq!(world.refusals(), [reason]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_may_only_read_is_noticed_before_a_push() {
    let world = World::new(Kind::Http).await;
    world.gateway.try_credentials().await;
    assert_eq!(world.gateway.auth_refused(), None);
    // A host that is away says nothing of the token.
    world.forge_is_busy_for(9);
    world.gateway.try_credentials().await;
    assert_eq!(world.gateway.host_failure(), None);
    world.forge_is_busy_for(0);
    world.forge().read_only.store(true, Ordering::SeqCst);
    world.clone_into("repo", &[]).await;
    assert_eq!(world.gateway.auth_refused(), None);
    world.gateway.try_credentials().await;
    assert_eq!(world.gateway.auth_refused(), Some(403));
    assert_eq!(world.forge_pushes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_answer_was_lost_is_recognised_at_once() {
    let world = World::new(Kind::Http).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    let first = world.commit(&repo, "one.txt").await;
    world.forge().lose_answers.store(true, Ordering::SeqCst);
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, first);
    assert_eq!(world.gateway.pushed_head(), Some(first));
    assert_eq!(world.gateway.host_failure(), None);
    assert!(world.refusals().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_answer_was_lost_is_recognised_when_the_host_is_back() {
    let world = World::new(Kind::Http).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    let first = world.commit(&repo, "one.txt").await;
    world.forge().lose_answers.store(true, Ordering::SeqCst);
    world.forge().busy_after_push.store(3, Ordering::SeqCst);
    world.git(&repo, "push origin work").await.err();
    assert_eq!(world.gateway.pushed_head(), None);
    let reason = world.refusals().pop().unwrap();
    assert!(
        reason.contains("not known whether the branch has moved"),
        "{reason}"
    );
    // Before the result is measured.
    world.gateway.seal().await;
    assert_eq!(world.gateway.pushed_head(), Some(first));
}

#[rstest]
#[case("", Kind::Path)]
#[case("", Kind::Http)]
#[case("report-status side-band-64k=1", Kind::Path)]
#[case("report-status side-band-64k=1", Kind::Http)]
#[case(
    "report-status report-status=0 side-band-64k side-band-64k",
    Kind::Http
)]
#[case("quiet", Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_asks_for_does_not_change_what_is_recorded(
    #[case] capabilities: &str,
    #[case] kind: Kind,
) {
    let world = World::new(kind).await;
    let repo = world.clone_into("repo", &[]).await;
    let base = world.git(&repo, "rev-parse HEAD").await.ok();
    for accepted in [true, false] {
        let head = world.commit(&repo, &format!("{accepted}.txt")).await;
        let list = world.home.path().join("list");
        std::fs::write(&list, format!("{head}\n^{base}\n")).unwrap();
        let pack = std::process::Command::new("git")
            .args(["pack-objects", "--stdout", "--revs", "-q"])
            .current_dir(&repo)
            .stdin(std::fs::File::open(list).unwrap())
            .output()
            .unwrap();
        // Upstream refuses it the second time.
        let lock = world.upstream.join("refs/heads/work.lock");
        if !accepted {
            std::fs::write(lock, "").unwrap();
        }
        let old = match world.upstream_head("work").await {
            none if none.is_empty() => "0".repeat(40),
            head => head,
        };
        let mut body = Vec::new();
        let line = format!("{old} {head} refs/heads/work\0{capabilities}");
        pktline::data(&mut body, line.as_bytes());
        pktline::flush(&mut body);
        body.extend_from_slice(&pack.stdout);
        let answer = world.raw_push(body).await;
        assert_eq!(
            world.upstream_head("work").await == head,
            accepted,
            "{answer}"
        );
        assert_eq!(
            world.gateway.pushed_head() == Some(head),
            accepted,
            "{answer}"
        );
        assert_eq!(world.refusals().len(), usize::from(!accepted), "{answer}");
        if capabilities.contains("report-status") {
            let shown = if accepted { "ok refs" } else { "ng refs" };
            assert!(answer.contains(shown), "{answer}");
        } else {
            let status = if accepted { "200" } else { "403" };
            assert!(answer.starts_with(status), "{answer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_is_recorded() {
    let world = World::new(Kind::Http).await;
    let client = reqwest::Client::new();
    let push = |path: &str| client.post(format!("{}/git-receive-pack{path}", world.url));
    let kind = ("content-type", "application/x-git-receive-pack-request");
    for request in [
        push("").body("0000"),
        push("")
            .header(kind.0, kind.1)
            .header("content-encoding", "gzip")
            .body("0000"),
        push("").header(kind.0, kind.1).body("nonsense"),
        push("?x").header(kind.0, kind.1).body("0000"),
        client.put(format!("{}/git-receive-pack", world.url)),
    ] {
        let before = world.refusals().len();
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_client_error());
        assert_eq!(world.refusals().len(), before + 1, "{answer:?}");
    }
    assert_eq!(world.gateway.news().len(), 5);
    assert_eq!(world.forge_pushes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moved_repository_is_followed_within_its_host_only() {
    let world = World::new(Kind::Moved).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    let head = world.commit(&repo, "one.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, head);

    let other = World::new(Kind::MovedAway).await;
    let shown = other
        .git(other.home.path(), &format!("clone -q {} x", other.url))
        .await
        .err();
    assert!(shown.contains("redirects to another host"), "{shown}");
    // It is no outage to wait for.
    assert_eq!(other.gateway.host_failure(), None);
    let refusal = other.gateway.host_refusal().unwrap();
    assert!(refusal.contains("hint: if it was moved"), "{refusal}");
}

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn the_worker_sees_what_was_pushed(#[case] kind: Kind) {
    let world = World::new(kind).await;
    let repo = world.clone_into("repo", &["--depth=1"]).await;
    let base = world.git(&repo, "rev-parse HEAD").await.ok();
    world.git(&repo, "switch -qc work").await.ok();
    std::fs::write(repo.join("ünï \"x\".txt"), "a\n+++ b\n").unwrap();
    std::fs::write(repo.join("blob.bin"), [0u8, 1, 2, 0]).unwrap();
    std::fs::write(repo.join(".gitattributes"), "*.txt diff=evil filter=evil\n").unwrap();
    world.git(&repo, "mv file1.txt moved.txt").await.ok();
    let head = world.commit(&repo, "one.txt").await;
    world.git(&repo, "push -q origin work").await.ok();

    let facts = BareRepo::new(world.target.clone()).unwrap();
    assert_eq!(facts.resolve("work").await.unwrap(), Some(head.clone()));
    assert_eq!(facts.resolve("nothing").await.unwrap(), None);
    facts.fetch(&[&base, &head]).await.unwrap();
    let diff = facts.diff(&base, &head).await.unwrap();
    let mut paths: Vec<&str> = diff.files.iter().map(|file| file.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(
        paths,
        [
            ".gitattributes",
            "blob.bin",
            "moved.txt",
            "one.txt",
            "ünï \"x\".txt"
        ]
    );
    assert!(
        diff.files
            .iter()
            .any(|file| file.path == "blob.bin" && file.binary)
    );
    let moved = diff.files.iter().find(|file| file.path == "moved.txt");
    assert_eq!(moved.unwrap().old_path.as_deref(), Some("file1.txt"));
    assert!(diff.added_lines().any(|line| line.text == "+++ b"));
    assert!(!diff.patch_cut);
    assert_eq!(facts.diff(&base, &base).await.unwrap().files, []);

    let missing = facts.fetch(&["1".repeat(40).as_str()]).await.unwrap_err();
    assert!(matches!(missing, FactsError::NotFound(_)), "{missing:?}");
    let missing = facts.fetch(&["nothing"]).await.unwrap_err();
    assert!(matches!(missing, FactsError::NotFound(_)), "{missing:?}");
    let odd = facts.diff("--output=/x", &head).await.unwrap_err();
    assert!(matches!(odd, FactsError::NotFound(_)), "{odd:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_busy_for_a_moment_is_asked_again() {
    let world = World::new(Kind::Http).await;
    world.forge_is_busy_for(2);
    let repo = world.clone_into("repo", &[]).await;
    world.forge_is_busy_for(1);
    world.git(&repo, "fetch -q origin").await.ok();
    world.forge_is_busy_for(3);
    world.git(&repo, "fetch -q origin").await.err();
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_of_failure_are_distinguished() {
    let wrong = World::new(Kind::WrongToken).await;
    let error = BareRepo::new(wrong.target.clone()).unwrap();
    let error = error.resolve("main").await.unwrap_err();
    assert!(matches!(error, FactsError::Auth(401)), "{error:?}");

    let world = World::new(Kind::Http).await;
    let Upstream::Http {
        mut url,
        user,
        password,
        authority,
    } = world.target.clone()
    else {
        panic!("not HTTP")
    };
    url.set_path("/none.git");
    let target = Upstream::Http {
        url: url.clone(),
        user: user.clone(),
        password: password.clone(),
        authority: authority.clone(),
    };
    let error = BareRepo::new(target)
        .unwrap()
        .resolve("main")
        .await
        .unwrap_err();
    assert!(matches!(error, FactsError::NotFound(_)), "{error:?}");

    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    url.set_port(Some(gone.local_addr().unwrap().port()))
        .unwrap();
    drop(gone);
    let target = Upstream::Http {
        url,
        user,
        password,
        authority,
    };
    let error = BareRepo::new(target)
        .unwrap()
        .resolve("main")
        .await
        .unwrap_err();
    assert!(matches!(error, FactsError::Network(_)), "{error:?}");
}

#[tokio::test]
async fn a_faulty_configuration_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let config = |branch: &str, upstream| GatewayConfig {
        git: GitAccess::ReadWrite {
            upstream,
            branch: branch.into(),
            max_push_bytes: 1,
            fence: Arc::new(world::Held),
        },
        network: agentmine_runtime::config::Network::default(),
    };
    world::bare(folder.path(), "sha1");
    let path = Upstream::Path(folder.path().into());
    assert!(Gateway::new(config("work", path.clone())).is_ok());
    for branch in ["", "a b", "a..b", "../x", "-x", "a\nb", "a.lock"] {
        assert!(
            Gateway::new(config(branch, path.clone())).is_err(),
            "{branch:?}"
        );
    }
    let gone = Upstream::Path(folder.path().join("gone"));
    assert!(Gateway::new(config("work", gone)).is_err());
}
