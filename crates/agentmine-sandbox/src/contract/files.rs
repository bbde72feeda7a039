//! Files and snapshots.

use super::*;

contract![
    files_are_read_under_the_workspace_only,
    a_snapshot_restores_files_and_commits_elsewhere,
    a_snapshot_starts_few_processes,
    a_file_of_any_size_does_not_delay_a_snapshot,
    a_change_is_in_the_next_snapshot_however_it_was_made,
    a_process_that_outlives_its_command_changes_files,
    each_small_change_is_restored_elsewhere,
    a_hundred_thousand_files_appear,
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
    assert!(tiny.to_string().contains("more than 10 bytes"), "{tiny}");
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
        let count = "cat ~/trace 2>/dev/null | grep -c '\"event\":\"start\"' || true";
        let count: u32 = sandbox.output(count).await.parse().unwrap();
        (taken, count)
    };
    // What the guest knows was learned with other settings.
    let mut last = u32::MAX;
    for _ in 0..5 {
        let (same, count) = started(&first.commit).await;
        assert_eq!((&same.commit, same.bundle), (&first.commit, None));
        assert!(count <= 3, "{count} though nothing has changed");
        last = count;
    }
    assert_eq!(last, 0, "nothing has changed");
    sandbox
        .output("echo three > kept && truncate -s 8G huge")
        .await;
    let (changed, count) = started(&first.commit).await;
    assert_ne!(changed.commit, first.commit);
    assert_eq!(count, 0, "for a file that has changed");
    let (same, count) = started(&changed.commit).await;
    assert_eq!(
        (&same.commit, same.left_out),
        (&changed.commit, vec!["huge".to_owned()])
    );
    assert_eq!(count, 0, "only the file that is omitted differs");
    // A commit of its own changes HEAD and no file.
    sandbox.output("git commit -qam mine").await;
    let (moved, count) = started(&changed.commit).await;
    assert!(count <= 10, "{count} for a commit");
    assert_ne!(moved.commit, changed.commit);
    // A result that was lost is requested again, with the snapshot before it.
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

/// What git alone makes of the files, and what the snapshot has.
async fn assert_complete(sandbox: &Running, commit: &str, what: &str) {
    let alone = "rm -f ~/index; cp -p .git/index ~/index; export GIT_INDEX_FILE=$HOME/index; git add -A . && git write-tree";
    let tree = format!("git rev-parse {commit}^{{tree}}");
    let (alone, tree) = (sandbox.output(alone).await, sandbox.output(&tree).await);
    let files = format!("git ls-tree -r {alone}; echo; git ls-tree -r {tree}");
    let files = sandbox.output(&files).await;
    assert_eq!(alone, tree, "{what}:\n{files}");
}

async fn a_change_is_in_the_next_snapshot_however_it_was_made(bench: Bench) {
    let sandbox = bench.start().await;
    sandbox.output(REPOSITORY).await;
    let mut last = sandbox.snapshot(None, 1 << 20).await.unwrap().commit;
    for (what, change) in [
        ("nothing, so that all is known", "true"),
        ("a new file", "printf a > same"),
        ("same size, within a tick", "printf b > same"),
        ("same size, within a tick, again", "printf c > same"),
        ("time of modification set back", "touch -d 2001-01-01 same"),
        (
            "the same, with another content",
            "printf d > same; touch -d 2001-01-01 same",
        ),
        (
            "another file renamed over it",
            "printf e > ~/e; touch -d 2001-01-01 ~/e; mv ~/e same",
        ),
        ("another name outside", "ln same ~/outside"),
        (
            "a change through it",
            "printf f > ~/outside; touch -d 2001-01-01 ~/outside",
        ),
        (
            "a change through it that is gone",
            "printf g > ~/outside; touch -d 2001-01-01 ~/outside; rm ~/outside",
        ),
        (
            "a folder moved in",
            "mkdir -p ~/in/deep; echo 1 > ~/in/deep/file; mv ~/in moved",
        ),
        ("a folder moved away", "mv moved ~/away"),
        ("a file deleted", "rm removed"),
        ("a mode", "chmod +x kept"),
        ("a link", "ln -s kept link"),
        ("a link to elsewhere", "ln -sfn same link"),
        ("a file in place of a folder", "rm -r d; echo d > d"),
        (
            "ignored files",
            "echo ignored > x.log; mkdir deep; echo ignored > deep/y.log",
        ),
        (
            "ignored files that are not any more",
            "echo '*.tmp' > .gitignore",
        ),
        (
            "a lock on the index",
            "touch .git/index.lock; echo locked > kept; sleep 0.05; rm .git/index.lock",
        ),
        (
            "a pipe in place of the index",
            "cp -p .git/index ~/saved; rm .git/index; mkfifo .git/index; echo fifo > kept",
        ),
        (
            "the index as it was",
            // A younger index would fool git alone: it compares whole seconds, and .gitignore has kept its size.
            "rm .git/index; cp -p ~/saved .git/index",
        ),
        ("all refs packed", "echo packed > kept; git pack-refs --all"),
        ("objects packed", "echo again > kept; git gc -q --prune=now"),
        ("a commit", "git add -A; git commit -qm mine"),
        (
            "another repository",
            "rm -rf .git; git init -q -b other .; git add .; git -c user.name=a -c user.email=b commit -qm new",
        ),
    ] {
        sandbox.output(change).await;
        let taken = sandbox.snapshot(Some(&last), 1 << 20).await;
        last = taken
            .unwrap_or_else(|error| panic!("{what}: {error}"))
            .commit;
        // Git alone would wait for the pipe.
        if !what.starts_with("a pipe") {
            assert_complete(&sandbox, &last, what).await;
        }
    }
    sandbox.remove().await.unwrap();
}

async fn a_process_that_outlives_its_command_changes_files(bench: Bench) {
    let sandbox = bench.start().await;
    sandbox.output(REPOSITORY).await;
    sandbox
        .output(
            "mkfifo ~/go ~/done; (read line < ~/go; echo late > kept; mkdir late; echo 1 > late/file; echo > ~/done) \
             > /dev/null 2>&1 &",
        )
        .await;
    let mut last = sandbox.snapshot(None, 1 << 20).await.unwrap().commit;
    last = sandbox.snapshot(Some(&last), 1 << 20).await.unwrap().commit;
    sandbox.output("echo > ~/go; read line < ~/done").await;
    let taken = sandbox.snapshot(Some(&last), 1 << 20).await.unwrap();
    assert!(taken.bundle.is_some());
    assert_complete(&sandbox, &taken.commit, "after the end of its command").await;
    sandbox.remove().await.unwrap();
}

async fn each_small_change_is_restored_elsewhere(bench: Bench) {
    // Enough files for a tree of which only the difference is sent.
    const MANY: &str = "mkdir -p d/many; for n in $(seq 300); do echo $n > d/many/$n; done; \
         GIT_COMMITTER_DATE=@1700000000+0000 GIT_AUTHOR_DATE=@1700000000+0000 sh -c 'git add . && git commit -q -m many' \
         && git update-ref refs/remotes/origin/main HEAD";
    let first = bench.start().await;
    first.output(REPOSITORY).await;
    first.output(MANY).await;
    let mut last = first.snapshot(None, 1 << 20).await.unwrap();
    let mut bundles: Vec<Vec<u8>> = last.bundle.take().into_iter().collect();
    for change in [
        "echo changed > d/many/77",
        "echo new > d/many/new; rm d/many/5",
        "true",
        "mkdir -p e/f; mv d/many/1 e/f; chmod +x e/f/1; ln -s f e/link",
        "rm -r d/many; echo changed > kept",
    ] {
        first.output(change).await;
        last = first.snapshot(Some(&last.commit), 1 << 20).await.unwrap();
        bundles.extend(last.bundle.take());
    }
    assert_eq!(bundles.len(), 5);
    let state = "git rev-parse HEAD; git status --porcelain; \
         find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum; readlink e/link; stat -c %a e/f/1";
    let wanted = first.output(state).await;
    first.remove().await.unwrap();

    let second = bench.start().await;
    second.output(REPOSITORY).await;
    second.output(MANY).await;
    second.restore(bundles, &last.commit).await.unwrap();
    assert_eq!(second.output(state).await, wanted);
    second.output("git fsck --strict --no-dangling").await;
    let again = second.snapshot(Some(&last.commit), 1 << 20).await.unwrap();
    assert_eq!((again.commit, again.bundle), (last.commit, None));
    second.remove().await.unwrap();
}

async fn a_hundred_thousand_files_appear(bench: Bench) {
    let sandbox = bench.start().await;
    sandbox.output(REPOSITORY).await;
    let mut last = sandbox.snapshot(None, 64 << 20).await.unwrap().commit;
    let many = "mkdir many && cd many && seq 100000 | split -a 4 -l 1";
    for (change, files) in [
        ("true", 4),
        (many, 100_004),
        ("echo one > many/new; rm many/xaaab", 100_004),
        ("rm -r many", 4),
    ] {
        let mut command = shell(change);
        command.timeout = Duration::from_secs(200);
        assert_eq!(sandbox.run(command).await.unwrap().exit_code, 0);
        let taken = sandbox.snapshot(Some(&last), 64 << 20).await.unwrap();
        assert_eq!(taken.bundle.is_some(), change != "true", "{change}");
        last = taken.commit;
        let count = format!("git ls-tree -r --name-only {last} | wc -l");
        assert_eq!(sandbox.output(&count).await, files.to_string(), "{change}");
    }
    sandbox.remove().await.unwrap();
}
