//! Files and snapshots.

use super::*;

contract![
    files_are_read_under_the_workspace_only,
    a_snapshot_restores_files_and_commits_elsewhere,
    a_snapshot_starts_few_processes,
    a_file_of_any_size_does_not_delay_a_snapshot,
];

async fn files_are_read_under_the_workspace_only(bench: Bench) {
    let sandbox = bench.start().await;
    let content: Vec<u8> = (0..=255).cycle().take(1_000_000).collect();
    let path = "/workspace/project/a/b.sh";
    let mut write = shell("mkdir a; cat > a/b.sh");
    write.stdin = content.clone();
    assert_eq!(sandbox.run(write).await.unwrap().exit_code, 0);
    assert_eq!(
        sandbox.get_file(path, 1_000_000).await.unwrap().unwrap(),
        content
    );
    assert!(matches!(
        sandbox.get_file(path, 999).await,
        Err(SandboxError::Failed(_))
    ));
    assert_eq!(
        sandbox
            .get_file("/workspace/project/none", 10)
            .await
            .unwrap(),
        None
    );
    sandbox
        .output("ln -s /etc etc; ln -s /etc/passwd passwd; mkfifo pipe")
        .await;
    for path in [
        "/etc/passwd",
        "/workspace/../etc/passwd",
        "/workspace/project/etc/passwd",
        "/workspace/project/passwd",
        "/workspace/project/pipe",
    ] {
        let err = sandbox.get_file(path, 10_000).await.unwrap_err();
        assert!(matches!(err, SandboxError::Failed(_)), "{path}: {err}");
    }
    sandbox.remove().await.unwrap();
}

const REPOSITORY: &str = "git init -q -b main . && git config user.name a && git config user.email a@b \
     && echo '*.log' > .gitignore && echo one > kept && echo two > removed && mkdir d && echo x > d/f \
     && GIT_COMMITTER_DATE=@1700000000+0000 GIT_AUTHOR_DATE=@1700000000+0000 sh -c 'git add . && git commit -q -m base' \
     && git update-ref refs/remotes/origin/main HEAD";

async fn a_snapshot_restores_files_and_commits_elsewhere(bench: Bench) {
    let first = bench.start().await;
    first.output(REPOSITORY).await;
    let none = first.snapshot(None, 1 << 20).await.unwrap();
    first
        .output(
            "git checkout -q -b work && echo new > added && git add added && git commit -qm mine",
        )
        .await;
    first
        .output("rm removed && echo changed > kept && echo u > 'un tracked' && echo l > x.log")
        .await;
    first
        .output("printf '\\0\\377' > binary && chmod +x d/f && ln -s kept link")
        .await;
    let status = first
        .output("git status --porcelain; cat .git/index | sha256sum")
        .await;
    let one = first.snapshot(Some(&none.commit), 1 << 20).await.unwrap();
    assert_eq!(
        first
            .output("git status --porcelain; cat .git/index | sha256sum")
            .await,
        status
    );
    let same = first.snapshot(Some(&one.commit), 1 << 20).await.unwrap();
    assert_eq!(
        (same.commit.as_str(), same.bundle),
        (one.commit.as_str(), None)
    );
    first
        .output("echo more >> 'un tracked'; git commit -qam second")
        .await;
    let tiny = first.snapshot(Some(&one.commit), 10).await.unwrap_err();
    assert!(tiny.to_string().contains("limit is 10"), "{tiny}");
    let two = first.snapshot(Some(&one.commit), 1 << 20).await.unwrap();
    let state = "git symbolic-ref HEAD; git rev-parse HEAD; git status --porcelain; \
         find . -path ./.git -prune -o -type f ! -name '*.log' -print0 | sort -z | xargs -0 sha256sum; \
         stat -c %a d/f; readlink link";
    let wanted = first.output(state).await;
    first.remove().await.unwrap();

    let second = bench.start().await;
    second.output(REPOSITORY).await;
    second.output("echo leftover > leftover").await;
    let bundles: Vec<Vec<u8>> = [none.bundle, one.bundle, two.bundle]
        .into_iter()
        .flatten()
        .collect();
    second.restore(bundles.clone(), &two.commit).await.unwrap();
    assert_eq!(second.output(state).await, wanted);
    let again = second.snapshot(Some(&two.commit), 1 << 20).await.unwrap();
    assert_eq!((again.commit, again.bundle), (two.commit.clone(), None));
    let wrong = second.restore(bundles, &"0".repeat(40)).await.unwrap_err();
    assert!(matches!(wrong, SandboxError::Failed(_)), "{wrong}");
    let garbage = second
        .restore(vec![b"garbage".to_vec()], &two.commit)
        .await
        .unwrap_err();
    assert!(matches!(garbage, SandboxError::Failed(_)), "{garbage}");
    second.remove().await.unwrap();
}

/// Each process costs a call some milliseconds.
async fn a_snapshot_starts_few_processes(bench: Bench) {
    let sandbox = bench.start().await;
    sandbox.output(REPOSITORY).await;
    let first = sandbox.snapshot(None, 1 << 20).await.unwrap();
    // Git's own trace: a line for each process that starts.
    sandbox
        .output("git config --global trace2.eventTarget \"$HOME/trace\"")
        .await;
    let started = async |since: &str| {
        sandbox.output("rm -f ~/trace").await;
        let taken = sandbox.snapshot(Some(since), 1 << 20).await.unwrap();
        let count = "grep -c '\"event\":\"start\"' ~/trace";
        let count: u32 = sandbox.output(count).await.parse().unwrap();
        (taken, count)
    };
    let (same, count) = started(&first.commit).await;
    assert_eq!((&same.commit, same.bundle), (&first.commit, None));
    assert_eq!(count, 2, "nothing has changed");
    sandbox
        .output("echo three > kept && truncate -s 8G huge")
        .await;
    let (changed, count) = started(&first.commit).await;
    assert_ne!(changed.commit, first.commit);
    assert!(count <= 9, "{count} for a file that has changed");
    let (same, count) = started(&changed.commit).await;
    assert_eq!(
        (&same.commit, same.left_out),
        (&changed.commit, vec!["huge".to_owned()])
    );
    assert_eq!(count, 2, "only the file that is left out differs");
    // A commit of its own changes HEAD and no file.
    sandbox.output("git commit -qam mine").await;
    let (moved, _) = started(&changed.commit).await;
    assert_ne!(moved.commit, changed.commit);
    // A result that was lost is asked for again, with the snapshot before it.
    let (again, _) = started(&changed.commit).await;
    assert!(again.bundle.is_some());
    // The repository is replaced: nothing of the old one is known.
    sandbox
        .output("rm -rf .git huge && git init -q -b other . && git add . && git -c user.name=a -c user.email=b commit -qm new")
        .await;
    let (replaced, _) = started(&again.commit).await;
    let parents = format!("git log -1 --format=%P {}", replaced.commit);
    assert_eq!(
        sandbox.output(&parents).await,
        sandbox.output("git rev-parse HEAD").await
    );
    sandbox.remove().await.unwrap();
}

/// A snapshot that read it would take minutes.
async fn a_file_of_any_size_does_not_delay_a_snapshot(bench: Bench) {
    let sandbox = bench.start().await;
    sandbox.output(REPOSITORY).await;
    sandbox
        .output("truncate -s 8G huge ':(top)huge' && echo small > small && truncate -s 8G kept")
        .await;
    let began = Instant::now();
    let snapshot = sandbox.snapshot(None, 1 << 20).await.unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(snapshot.left_out, [":(top)huge", "huge", "kept"]);
    let files = format!("git ls-tree -r --name-only {}", snapshot.commit);
    let files = sandbox.output(&files).await;
    assert!(
        files.contains("small") && !files.contains("huge"),
        "{files}"
    );
    let size = format!("git cat-file -s {}:kept", snapshot.commit);
    assert!(sandbox.output(&size).await.parse::<u32>().unwrap() < 100);
    let again = sandbox
        .snapshot(Some(&snapshot.commit), 1 << 20)
        .await
        .unwrap();
    assert_eq!(again.bundle, None);
    sandbox.remove().await.unwrap();
}
