//! Snapshots with and without git, compared with git alone.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use std::sync::Arc;

use super::*;
use crate::args::Options;
use crate::disk::Disk;
use crate::environment;
use crate::process::OwnChildren;
use crate::restore;

const ROOM: u64 = 1 << 20;

struct Bench {
    state: State,
    /// The commit of the last snapshot.
    last: Option<String>,
    /// How many snapshots took git.
    with_git: u32,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("tmp/home")).unwrap();
        std::fs::create_dir(root.join("project")).unwrap();
        let options = Options {
            root: root.clone(),
            ..Options::default()
        };
        let mut env = environment::base(&options, 1);
        env.insert("PATH".into(), std::env::var("PATH").unwrap());
        let bench = Self {
            state: State {
                disk: Disk::new(root.clone(), 0),
                root: root.clone(),
                env,
                own: OwnChildren::default(),
                programs: Arc::default(),
                evidence: crate::evidence::Evidence::default(),
                snapshots: tokio::sync::Mutex::default(),
            },
            last: None,
            with_git: 0,
            _folder: folder,
        };
        bench.shell(
            "git init -q -b main . && git config user.name a && git config user.email a@b \
             && printf '*.log\\n/build/\\n' > .gitignore && echo one > kept && echo two > removed \
             && mkdir -p d/e && echo x > d/f && echo y > d/e/g && git add . && git commit -qm base \
             && git init -q --bare ../other && git push -q ../other main",
        );
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.state.project().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).unwrap();
    }

    #[track_caller]
    fn shell(&self, line: &str) -> String {
        let output = Command::new("/bin/sh")
            .args(["-c", line])
            .current_dir(self.state.project())
            .env_clear()
            .envs(&self.state.env)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {stderr}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Takes a snapshot.
    async fn take(&mut self) -> Taken {
        let mut memory = self.state.snapshots.lock().await;
        let (taken, lesson) =
            take_in_time(self.last.clone(), ROOM, &self.state, &mut memory, LIMIT)
                .await
                .unwrap();
        if let Some(lesson) = lesson {
            self.with_git += 1;
            learn(lesson, ROOM, &self.state, &mut memory).await;
        }
        taken
    }

    /// Takes a snapshot, and compares it with what git alone makes of the files.
    async fn snapshot(&mut self) -> Taken {
        let taken = self.take().await;
        if let Some(bundle) = &taken.bundle {
            std::fs::write(self.state.root.join("bundle"), bundle).unwrap();
            self.shell(&format!(
                "git -C ../other -c transfer.fsckObjects=true fetch -q ../bundle +{SNAPSHOT_REF}:{SNAPSHOT_REF}"
            ));
        }
        self.last = Some(taken.commit.clone());
        let exclude: String = taken
            .left_out
            .iter()
            .map(|path| format!(" ':(top,exclude,literal){path}'"))
            .collect();
        // In a repository that gets each bundle, as the next sandbox does.
        let alone = format!(
            "rm -f ../index; cp -p .git/index ../index; export GIT_INDEX_FILE=../index; \
             git add -A .{exclude} && git write-tree"
        );
        let of = format!("git -C ../other rev-parse {}^{{tree}}", taken.commit);
        if self.shell(&alone) != self.shell(&of) {
            let difference = format!("git diff --raw {} $({alone})", taken.commit);
            panic!("not what git makes of it: {}", self.shell(&difference));
        }
        taken
    }

    /// The same, which must do without git.
    #[track_caller]
    fn quick(&mut self) -> impl Future<Output = Taken> {
        let place = std::panic::Location::caller();
        async move {
            let before = self.with_git;
            let taken = self.snapshot().await;
            assert_eq!(self.with_git, before, "git was needed at {place}");
            taken
        }
    }

    /// A repository whose settings and rules are not new, and its first snapshot.
    async fn learned() -> Self {
        let mut bench = Self::new();
        bench.settle();
        bench.snapshot().await;
        assert_eq!(bench.with_git, 1);
        bench
    }

    /// A snapshot, and what was run of git meanwhile.
    async fn traced(&mut self) -> (Taken, String) {
        let trace = self.state.root.join("trace");
        let _ = std::fs::remove_file(&trace);
        let value = trace.to_string_lossy().into_owned();
        self.state.env.insert("GIT_TRACE".into(), value);
        let taken = self.snapshot().await;
        self.state.env.remove("GIT_TRACE");
        (taken, std::fs::read_to_string(trace).unwrap())
    }

    /// Waits until the clock has moved on from the last changes: there is no event for that.
    fn settle(&self) {
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
}

#[tokio::test]
async fn what_has_not_changed_takes_no_process_and_no_bundle() {
    let mut bench = Bench::learned().await;
    for _ in 0..3 {
        assert!(bench.quick().await.bundle.is_none());
    }
    bench.shell("git status; git log; touch build; rm build; echo x > x.log; mkdir build && echo y > build/y");
    assert!(bench.quick().await.bundle.is_none());
}

#[tokio::test]
async fn ordinary_changes_take_no_process() {
    let mut bench = Bench::learned().await;
    let changes: [&str; 18] = [
        "echo changed > kept",
        "echo new > 'un tracked'",
        "rm removed",
        "chmod +x d/f",
        "ln -s kept link",
        "ln -sfn d/f link",
        "mkdir -p n/m && echo 1 > n/m/a && echo 2 > n/b",
        "mv n d/n",
        "mv d/n/m/a d/n/m/z && rm -r d/e",
        "rm kept && mkdir kept && echo in > kept/in",
        "rm -r kept && echo file > kept",
        "printf 'a\\000b' > binary; seq 100000 > much",
        "echo 1 > a; ln a b; echo 2 > b",
        "mkdir empty build; echo 1 > build/1; mkfifo pipe; echo 3 > a",
        "git add -A; git status; echo 4 > a",
        "for n in $(seq 200); do echo $n > f$n; done",
        "echo more >> f77",
        "touch .git/index.lock && echo locked > kept",
    ];
    for change in changes {
        bench.shell(change);
        assert!(bench.quick().await.bundle.is_some(), "{change}");
        assert!(bench.quick().await.bundle.is_none(), "{change}");
    }
}

#[tokio::test]
async fn a_change_that_leaves_size_and_times_as_they_were_is_found() {
    let mut bench = Bench::learned().await;
    bench.write("kept", "1");
    bench.quick().await;
    for n in 2..60 {
        // Within one tick of the clock.
        bench.write("kept", &(n % 10).to_string());
        let before = bench.last.clone();
        assert_ne!(Some(bench.quick().await.commit), before, "{n}");
    }
    bench.shell("touch -d 2001-01-01 kept");
    bench.quick().await;
    bench.settle();
    // From now on only a look decides.
    assert!(bench.quick().await.bundle.is_none());
    bench.shell("printf x > kept; touch -d 2001-01-01 kept");
    assert!(bench.quick().await.bundle.is_some());
    bench.shell("printf y > ../y && touch -d 2001-01-01 ../y && mv ../y kept");
    assert!(bench.quick().await.bundle.is_some());
    bench.shell("ln kept ../outside");
    bench.quick().await;
    bench.settle();
    assert!(bench.quick().await.bundle.is_none());
    bench.shell("printf z > ../outside; touch -d 2001-01-01 ../outside; rm ../outside");
    assert!(bench.quick().await.bundle.is_some());
    bench.shell("mkdir -p ../moved/in && echo 1 > ../moved/in/a && mv ../moved .");
    assert!(bench.quick().await.bundle.is_some());
}

#[tokio::test]
async fn what_only_git_knows_is_left_to_git() {
    let mut bench = Bench::learned().await;
    bench.shell("echo 1 > x.log; git config core.autocrlf false");
    bench.snapshot().await;
    let mut count = bench.with_git;
    let changes: [(&str, &str); 11] = [
        ("other rules", "echo '*.tmp' > .gitignore"),
        ("attributes", "echo '*.txt text' > .gitattributes"),
        ("ends of lines", "printf 'a\\r\\nb\\r\\n' > a.txt"),
        (
            "a filter",
            "git config filter.up.clean 'tr a-z A-Z'; echo '*.up filter=up' >> .gitattributes",
        ),
        ("a filtered file", "echo abc > a.up"),
        (
            "an ignored file that is staged",
            "echo 1 > y.tmp; git add -f y.tmp",
        ),
        (
            "one that is not staged any more",
            "git rm -q --cached y.tmp",
        ),
        ("a commit", "git add -A && git commit -qm mine"),
        ("another branch", "git checkout -qb other"),
        (
            "a repository in it",
            "git init -q sub && git -C sub -c user.name=a -c user.email=b commit -q --allow-empty -m x",
        ),
        (
            "many files",
            "rm -rf sub; mkdir many; for n in $(seq 1500); do echo $n > many/$n; done",
        ),
    ];
    for (what, change) in changes {
        bench.settle();
        bench.shell(change);
        bench.snapshot().await;
        assert!(bench.with_git > count, "{what} was not left to git");
        bench.settle();
        bench.snapshot().await;
        count = bench.with_git;
    }
    let attributes = bench.shell("git check-attr filter a.up; git show HEAD:a.up");
    assert!(
        attributes.contains("filter: up") && attributes.contains("ABC"),
        "{attributes}"
    );
    bench.write("kept", "again without git");
    bench.quick().await;
}

/// 400 KB with one line of its own.
fn large(own: usize) -> String {
    let line = |n| match n == own {
        true => format!("line {n} is another one\n"),
        false => format!("line {n} of a large file\n"),
    };
    (0..15_000).map(line).collect()
}

#[tokio::test]
async fn a_change_of_a_large_file_is_sent_as_a_difference() {
    let mut bench = Bench::learned().await;
    bench.write("large", &large(0));
    bench.quick().await;
    for n in [1, 7000, 14_999] {
        bench.settle();
        bench.write("large", &large(n));
        let bundle = bench.quick().await.bundle.unwrap();
        assert!(bundle.len() < 2_000, "{n}: {}", bundle.len());
    }
    // It begins or ends elsewhere.
    let text = large(14_999);
    for part in [&text[100..], &text[100..350_000]] {
        bench.settle();
        bench.write("large", part);
        bench.quick().await;
    }
    let objects = bench.shell("git count-objects | cut -d, -f2 | tr -dc 0-9");
    assert!(objects.parse::<u32>().unwrap() < 1_000, "{objects} KB");
}

#[tokio::test]
async fn a_change_of_a_large_file_is_left_to_git_where_the_old_one_is_not_at_hand() {
    let mut bench = Bench::learned().await;
    let blob = ".git/objects/$(git hash-object large | sed 's|..|&/|')";
    let spoils = [
        "git repack -adq && git prune-packed".to_owned(),
        format!("rm -f {blob}; echo no object > {blob}"),
        format!("rm -f {blob}"),
    ];
    for (n, spoil) in spoils.iter().enumerate() {
        bench.write("large", &large(10 * n));
        bench.snapshot().await;
        bench.settle();
        bench.write("large", &large(10 * n + 1));
        bench.snapshot().await;
        bench.settle();
        bench.shell(spoil);
        let count = bench.with_git;
        bench.write("large", &large(10 * n + 2));
        bench.snapshot().await;
        assert!(bench.with_git > count, "not left to git: {spoil}");
        bench.settle();
    }
    // Another one in its place, of which the difference would be small. What git makes of it is not ours.
    bench.shell(&format!(
        "sed '9s/.*/another/' large > ../almost; other=$(git hash-object -w ../almost | sed 's|..|&/|') \
         && rm -f {blob} && cp .git/objects/$other {blob}"
    ));
    let count = bench.with_git;
    bench.write("large", &large(3));
    bench.take().await;
    assert!(bench.with_git > count);
}

#[tokio::test]
async fn another_repository_is_noticed() {
    let mut bench = Bench::learned().await;
    bench.write("kept", "changed");
    let known = bench.quick().await.commit;
    bench.shell("rm -rf .git && git init -q -b other . && git add . && git -c user.name=a -c user.email=b commit -qm new");
    let mut memory = bench.state.snapshots.lock().await;
    let (taken, lesson) = take(Some(known), ROOM, &bench.state, &mut memory)
        .await
        .unwrap();
    assert!(lesson.is_some() && taken.bundle.is_some());
    drop(memory);
    let parents = bench.shell(&format!("git log -1 --format=%P {}", taken.commit));
    assert_eq!(parents, bench.shell("git rev-parse HEAD"));
}

#[tokio::test]
async fn a_lost_answer_is_given_again() {
    let mut bench = Bench::learned().await;
    let before = bench.last.clone();
    bench.write("kept", "changed");
    let lost = bench.quick().await;
    bench.last = before;
    let again = bench.snapshot().await;
    assert!(again.bundle.is_some());
    let tree = |commit: &str| bench.shell(&format!("git rev-parse {commit}^{{tree}}"));
    assert_eq!(tree(&again.commit), tree(&lost.commit));
}

#[tokio::test]
async fn a_large_file_is_skipped_and_named_each_time() {
    let mut bench = Bench::learned().await;
    bench.shell("truncate -s 8G huge && echo small > small");
    let taken = bench.quick().await;
    assert_eq!(taken.left_out, ["huge"]);
    let again = bench.quick().await;
    assert!(again.bundle.is_none());
    assert_eq!(again.left_out, ["huge"]);
    bench.shell("echo short > huge");
    let fits = bench.quick().await;
    assert!(fits.left_out.is_empty() && fits.bundle.is_some());
}

#[tokio::test]
async fn a_repository_in_the_project_is_skipped_and_named_each_time() {
    let mut bench = Bench::new();
    bench.shell(
        "git init -q app && echo 1 > app/a && git init -q lib/with && cd lib/with && echo 1 > a && git add a \
         && git -c user.name=a -c user.email=b commit -qm x && cd ../.. && echo small > small",
    );
    for _ in 0..2 {
        let taken = bench.snapshot().await;
        assert_eq!(taken.left_out, ["app/", "lib/with/"]);
        let files = bench.shell(&format!("git ls-tree -r --name-only {}", taken.commit));
        assert!(
            files.contains("small") && !files.contains("with"),
            "{files}"
        );
    }
}

#[tokio::test]
async fn what_is_installed_is_omitted_if_it_does_not_fit() {
    let mut bench = Bench::learned().await;
    // Their author lists what is not ignored, which goes before other lists.
    bench.write(".gitignore", "*\n!*/\n!*.js\n");
    bench.shell(
        "mkdir -p 'web [1]/node_modules/a' .venv && head -c 600000 /dev/urandom > 'web [1]/node_modules/a/a.js' \
         && head -c 600000 /dev/urandom > .venv/b.js && echo work > work.js",
    );
    bench.settle();
    let taken = bench.snapshot().await;
    assert_eq!(taken.left_out, [".venv/", "web [1]/node_modules/"]);
    let files = |commit: &str| bench.shell(&format!("git ls-tree -r --name-only {commit}"));
    assert!(files(&taken.commit).contains("work.js"));
    bench.settle();
    bench.shell("echo more > .venv/c.js && echo more > more.js");
    let again = bench.quick().await;
    assert_eq!(again.left_out, taken.left_out);
    bench.shell("touch .git/index && git add work.js");
    let with_git = bench.snapshot().await;
    assert_eq!(with_git.left_out, taken.left_out);
    // What does not fit, whatever it is, is packed once.
    bench.shell("for n in 1 2 3; do head -c 600000 /dev/urandom > $n.js; done");
    for packs in [1, 0] {
        let trace = bench.state.root.join("trace");
        let _ = std::fs::remove_file(&trace);
        let value = trace.to_string_lossy().into_owned();
        bench.state.env.insert("GIT_TRACE".into(), value);
        let mut memory = bench.state.snapshots.lock().await;
        let refused = take(bench.last.clone(), ROOM, &bench.state, &mut memory).await;
        drop(memory);
        assert!(refused.err().unwrap().is::<TooLarge>());
        let trace = std::fs::read_to_string(trace).unwrap();
        assert_eq!(trace.matches("git bundle create").count(), packs, "{trace}");
    }
    bench.state.env.remove("GIT_TRACE");
    bench.shell("rm 2.js 3.js");
    assert!(bench.snapshot().await.bundle.is_some());
}

#[tokio::test]
async fn a_file_that_is_too_large_is_skipped_and_named_if_its_name_is_not_utf8() {
    let mut bench = Bench::new();
    bench.shell("truncate -s 8G \"$(printf 'huge\\377é')\" && echo small > small");
    for content in ["one", "two"] {
        bench.write("small", content);
        let taken = bench.take().await;
        assert_eq!(taken.left_out, ["huge\\xffé"]);
        let files = bench.shell(&format!("git ls-tree --name-only {}", taken.commit));
        assert!(
            files.contains("small") && !files.contains("huge"),
            "{files}"
        );
        bench.last = Some(taken.commit);
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_skipped_and_named() {
    let mut bench = Bench::new();
    bench.shell("echo 1 > closed && chmod 0 closed && echo 1 > open");
    let closed: &[&str] = match std::fs::read(bench.path("closed")) {
        // A superuser can.
        Ok(_) => &[],
        Err(_) => &["closed"],
    };
    let taken = bench.snapshot().await;
    assert_eq!(taken.left_out, closed);
    assert!(taken.bundle.is_some());
}

/// A pseudo-random number below `n`.
fn below(state: &mut u64, n: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % n
}

fn any_change(bench: &Bench, random: &mut u64) {
    let folders = ["", "d/", "d/e/", "n/", "n/m/", "build/", "d.x/"];
    let names = [
        "a", "b", "kept", "x.log", "d", "n", "link", "a.txt", "a-b", "é",
    ];
    let path = |random: &mut u64| {
        let folder = folders[below(random, folders.len() as u64) as usize];
        bench.path(&format!(
            "{folder}{}",
            names[below(random, names.len() as u64) as usize]
        ))
    };
    let (one, other) = (path(random), path(random));
    // Most of them fail at one time or another.
    let _ = match below(random, 9) {
        0..3 => one
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(&one, below(random, 100).to_string())),
        3 => std::fs::remove_file(&one),
        4 => std::fs::remove_dir_all(&one),
        5 => std::fs::rename(&one, &other),
        6 => symlink("kept", &one),
        7 => std::fs::hard_link(&one, &other),
        _ => std::fs::set_permissions(&one, std::fs::Permissions::from_mode(0o755)),
    };
}

async fn random_changes(large: bool) {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bench = Bench::learned().await;
    for round in 0..150 {
        if large && let Some(known) = &mut bench.state.snapshots.lock().await.known {
            known.pretend_to_be_large();
        }
        for _ in 0..=below(&mut random, 6) {
            any_change(&bench, &mut random);
        }
        bench.snapshot().await;
        if round % 50 == 49 {
            bench.settle();
        }
    }
    assert!(bench.with_git < 20, "{} of 150 with git", bench.with_git);
}

#[tokio::test]
async fn random_changes_are_stored_as_git_stores_them() {
    random_changes(false).await;
}

#[tokio::test]
async fn random_changes_in_a_large_tree_are_stored_as_git_stores_them() {
    random_changes(true).await;
}

#[tokio::test]
async fn more_events_than_the_kernel_keeps_are_no_loss() {
    let mut bench = Bench::learned().await;
    if let Some(known) = &mut bench.state.snapshots.lock().await.known {
        known.pretend_to_be_large();
    }
    bench.shell(
        "for n in $(seq 12000); do : > kept; : > d/f; done; echo 1 > d/e/last; echo 2 > kept",
    );
    assert!(bench.quick().await.bundle.is_some());
}

#[tokio::test]
async fn a_file_that_a_process_has_mapped_is_looked_at() {
    let mut bench = Bench::learned().await;
    bench.shell("head -c 5000 /dev/zero > mapped");
    bench.snapshot().await;
    bench.settle();
    bench.snapshot().await;
    let script = "import mmap,sys,time\nf=open('mapped','r+b');m=mmap.mmap(f.fileno(),0);f.close()\n\
                  print(1,flush=True);sys.stdin.readline()\nm[0:3]=b'new'\nprint(2,flush=True);sys.stdin.readline()";
    let mut writer = Command::new("python3")
        .args(["-c", script])
        .current_dir(bench.state.project())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(writer.stdout.take().unwrap()));
    lines.next().unwrap().unwrap();
    bench.quick().await;
    if let Some(known) = &mut bench.state.snapshots.lock().await.known {
        known.pretend_to_be_large();
    }
    bench.settle();
    std::io::Write::write_all(writer.stdin.as_mut().unwrap(), b"\n").unwrap();
    lines.next().unwrap().unwrap();
    let taken = bench.quick().await;
    drop(writer.stdin.take());
    writer.wait().unwrap();
    assert!(taken.bundle.is_some());
}

/// Only git makes a commit or a bundle of what the remote may not have.
fn made_by_git(trace: &str) -> bool {
    let makes = ["commit-tree", "bundle create", "update-ref refs/agentmine"];
    makes.iter().any(|command| trace.contains(command))
}

#[tokio::test]
async fn only_the_commit_of_a_snapshot_is_stored_where_the_remote_has_the_rest() {
    let mut bench = Bench::new();
    bench.shell("git pack-refs --all && git update-ref refs/remotes/origin/main HEAD && git pack-refs --all");
    bench.settle();
    let (first, trace) = bench.traced().await;
    assert!(first.bundle.is_some() && !made_by_git(&trace), "{trace}");
    let parents = format!("git rev-parse {}^@", first.commit);
    assert_eq!(bench.shell(&parents), bench.shell("git rev-parse HEAD"));
    bench.write("new", "n");
    bench.quick().await;
    bench.shell("git checkout -qb work && git add . && git commit -qm work");
    let (_, trace) = bench.traced().await;
    assert!(made_by_git(&trace), "nobody else has the commit: {trace}");
    bench.write("new", "m");
    bench.settle();
    let before = bench.snapshot().await;
    bench.shell(
        "git add . && git commit -qm more && git push -q ../other work && git update-ref refs/remotes/origin/work HEAD",
    );
    let (pushed, trace) = bench.traced().await;
    assert!(pushed.bundle.is_some() && !made_by_git(&trace), "{trace}");
    assert!(!trace.contains("git log"), "it is remembered: {trace}");
    let parents = format!("git rev-parse {}^@", pushed.commit);
    let head = bench.shell("git rev-parse HEAD");
    assert_eq!(bench.shell(&parents), format!("{}\n{head}", before.commit));
    assert_eq!(
        bench.shell("git rev-parse refs/agentmine/snapshot"),
        pushed.commit
    );
}

#[tokio::test]
async fn a_ref_of_the_remote_that_has_moved_on_does_not_count() {
    let mut bench = Bench::new();
    bench.shell("git update-ref refs/remotes/origin/other HEAD && git pack-refs --all");
    bench
        .shell("git commit -q --allow-empty -m x && git update-ref refs/remotes/origin/other HEAD");
    bench.shell("git checkout -qb old HEAD^");
    bench.settle();
    let (_, trace) = bench.traced().await;
    assert!(made_by_git(&trace), "{trace}");
}

#[tokio::test]
async fn a_snapshot_that_is_gone_is_not_remembered() {
    let mut bench = Bench::learned().await;
    bench.write("new", "n");
    let last = bench.quick().await.commit;
    let (folder, name) = last.split_at(2);
    bench.shell(&format!(
        "rm -f .git/objects/{folder}/{name} && git update-ref -d refs/agentmine/snapshot; git commit -q --allow-empty -m x"
    ));
    let taken = bench.snapshot().await;
    let parents = format!("git rev-parse {}^@", taken.commit);
    assert_eq!(bench.shell(&parents), bench.shell("git rev-parse HEAD"));
}

/// A filter of the repository's is a program of anybody's: it may wait for ever.
#[tokio::test]
async fn a_filter_that_never_ends_costs_a_snapshot_and_no_more() {
    let mut bench = Bench::learned().await;
    bench.write(".gitattributes", "*.txt filter=slow\n");
    bench.shell("git config filter.slow.clean 'echo $$ > ../filter; exec sleep 1000'");
    bench.write("a.txt", "x\n");
    let limits = |first, again| Limits {
        first: Duration::from_millis(first),
        again: Duration::from_millis(again),
    };
    let refused = async |limits, limit: &str| {
        let mut memory = bench.state.snapshots.lock().await;
        let since = bench.last.clone();
        let taken = take_in_time(since, ROOM, &bench.state, &mut memory, limits).await;
        let reason = taken.err().unwrap().to_string();
        assert!(reason.contains(&format!("within {limit} s")), "{reason}");
        let filter = std::fs::read_to_string(bench.state.root.join("filter")).unwrap();
        let filter: i32 = filter.trim().parse().unwrap();
        until_gone(filter).await;
    };
    refused(limits(2000, 60_000), "2").await;
    refused(limits(60_000, 1500), "1.5").await;
    // What the killed git had locked is free again.
    bench.shell("touch .git/agentmine-index.lock && git config filter.slow.clean cat");
    let taken = bench.snapshot().await;
    assert_eq!(
        bench.shell(&format!("git show {}:a.txt", taken.commit)),
        "x"
    );
    assert!(!bench.state.snapshots.lock().await.was_too_slow);
}

/// Killed, that is, if nobody has reaped it yet.
async fn until_gone(pid: i32) {
    let is_there = || {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        state.is_ok_and(|line| !line.contains(") Z "))
    };
    while is_there() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Bench {
    /// With a branch of three commits, of which the first conflicts with `main`.
    fn conflicting() -> Self {
        let bench = Self::new();
        bench.shell(
            "git remote add origin ../other && git checkout -qb work \
             && echo ours > kept && git commit -qam one && echo b > b && git add b && git commit -qm two \
             && echo c > c && git add c && git commit -qm three && git push -q origin work \
             && git checkout -q main && echo theirs > kept && echo new > theirs && git add . && git commit -qm main2 \
             && git push -q origin main && git fetch -q origin && git checkout -q work",
        );
        bench
    }

    /// The next sandbox, after these snapshots of this one.
    async fn next(&self, bundles: &[Vec<u8>], commit: &str) -> Self {
        let bench = Self::new();
        let remote = self.state.root.join("other");
        bench.shell(&format!(
            "rm -rf ../project/* ../project/.git* && git clone -q -b work {} . \
             && git config user.name a && git config user.email a@b",
            remote.display()
        ));
        let git = Git::open(&bench.state.git_place()).await.unwrap();
        for bundle in bundles {
            restore::apply(&git, bundle).await.unwrap();
        }
        restore::restore(&git, commit).await.unwrap();
        bench
    }

    /// Takes a snapshot now, and another one after a change of a file, and continues in the next sandbox.
    async fn taken_over(&mut self) -> Self {
        let first = self.take().await;
        self.last = Some(first.commit);
        self.write("note", "a note");
        let second = self.take().await;
        let bundles = [first.bundle, second.bundle].map(Option::unwrap);
        self.last = Some(second.commit.clone());
        let again = self.take().await;
        assert!(again.bundle.is_none(), "nothing has changed");
        let next = self.next(&bundles, &second.commit).await;
        assert_eq!(next.shell("cat note"), "a note");
        next
    }
}

#[tokio::test]
async fn a_rebase_is_continued_in_the_next_sandbox() {
    let mut bench = Bench::conflicting();
    bench.shell("git rebase -q origin/main 2>/dev/null || true");
    let next = bench.taken_over().await;
    assert_eq!(next.shell("git diff --name-only --diff-filter=U"), "kept");
    next.shell("echo both > kept && git add kept && GIT_EDITOR=true git rebase --continue");
    let log = next.shell("git log --format=%s --reverse");
    assert_eq!(log, "base\nmain2\none\ntwo\nthree");
    assert_eq!(next.shell("cat kept b c theirs"), "both\nb\nc\nnew");
    assert_eq!(next.shell("git symbolic-ref HEAD"), "refs/heads/work");
}

#[tokio::test]
async fn a_merge_has_both_parents_in_the_next_sandbox() {
    let mut bench = Bench::conflicting();
    bench.shell("git merge -q origin/main 2>/dev/null || true");
    let next = bench.taken_over().await;
    assert_eq!(next.shell("git diff --name-only --diff-filter=U"), "kept");
    next.shell("echo both > kept && git add kept && git commit -q --no-edit");
    let parents = "git rev-parse HEAD^1 HEAD^2 origin/work origin/main";
    let parents = next.shell(parents);
    let parents: Vec<&str> = parents.lines().collect();
    assert_eq!(parents[..2], parents[2..]);
    // The file of the other side is in the commit, and the scratch file is not.
    assert_eq!(next.shell("git show HEAD:theirs"), "new");
    assert_eq!(next.shell("git status --short"), "?? note");
}

impl Bench {
    /// With a merge of `main` that is not finished: it changes, adds and removes submodules that are not checked out,
    /// and conflicts in a file. `ours` is the number of the commit of `sub` on our side, which was 1.
    fn merging_submodules(ours: u32) -> Self {
        let bench = Self::new();
        bench.shell(&format!(
            "link() {{ printf '160000 %040d 0\\t%s\\n' $1 $2 | git update-index --index-info && mkdir -p $2; }} \
             && git remote add origin ../other && link 1 sub && link 1 gone && git commit -qm links \
             && git checkout -qb work && echo ours > kept && git add kept && link {ours} sub && git commit -qm ours \
             && git push -q origin work && git checkout -q main && echo theirs > kept && git add kept && link 2 sub \
             && link 3 new && git rm -q --cached gone && git commit -qm theirs && git push -q origin main \
             && git fetch -q origin && git checkout -q work"
        ));
        bench.shell("git merge -q origin/main 2>/dev/null || true");
        bench
    }
}

#[tokio::test]
async fn a_merge_has_its_submodules_in_the_next_sandbox() {
    let mut bench = Bench::merging_submodules(1);
    let next = bench.taken_over().await;
    assert_eq!(next.shell("git diff --name-only --diff-filter=U"), "kept");
    next.shell(
        "echo both > kept && git add kept && git commit -q --no-edit && git rev-parse HEAD^2",
    );
    let links = next.shell("git ls-tree HEAD gone new sub");
    assert_eq!(
        links,
        format!("160000 commit {:040}\tnew\n160000 commit {:040}\tsub", 3, 2)
    );
}

#[tokio::test]
async fn a_submodule_in_conflict_stops_no_snapshot_and_stays_in_conflict() {
    let mut bench = Bench::merging_submodules(4);
    let unmerged = bench.shell("git ls-files --unmerged");
    let next = bench.taken_over().await;
    assert_eq!(
        next.shell("git diff --name-only --diff-filter=U"),
        "kept\nsub"
    );
    assert_eq!(next.shell("git ls-files --unmerged"), unmerged);
    assert!(next.path(".git/MERGE_HEAD").exists());
}

/// Without its conflicts, a merge would be committed with their markers. The state is one of an earlier version.
#[tokio::test]
async fn a_merge_whose_index_cannot_be_restored_is_not_continued() {
    let bench = Bench::conflicting();
    let git = Git::open(&bench.state.git_place()).await.unwrap();
    let tree = bench.shell("git hash-object -w -t tree /dev/null");
    let head = bench.shell("git rev-parse HEAD");
    let who = "a <a@b> 0 +0000";
    for (staged, is_restored) in [("d", false), ("kept", true)] {
        let state = format!(
            r#"{{"files":{{"MERGE_HEAD":"{head}\n"}},"refs":{{}},"staged":["{staged}"],"unmerged":[]}}"#
        );
        let commit = format!("tree {tree}\nauthor {who}\ncommitter {who}\n\n{state}\n");
        let args = ["hash-object", "-w", "-t", "commit", "--stdin"];
        let commit = git.fed(args, commit.as_bytes()).await.unwrap();
        let restored = crate::git_state::restore(&git, &commit).await;
        assert_eq!(restored.is_ok(), is_restored);
        assert_eq!(bench.path(".git/MERGE_HEAD").exists(), is_restored);
    }
}

#[tokio::test]
async fn a_conflict_that_is_solved_in_part_stays_so() {
    let mut bench = Bench::conflicting();
    bench.shell("git cherry-pick origin/main 2>/dev/null || true");
    let first = bench.take().await;
    bench.last = Some(first.commit);
    bench.shell("echo both > kept && git add kept");
    let bundles = [first.bundle.unwrap()];
    let unsolved = bench.next(&bundles, bench.last.as_deref().unwrap()).await;
    assert_eq!(
        unsolved.shell("git diff --name-only --diff-filter=U"),
        "kept"
    );
    let second = bench.take().await;
    let [first] = bundles;
    let bundles = [first, second.bundle.unwrap()];
    let solved = bench.next(&bundles, &second.commit).await;
    assert_eq!(solved.shell("git diff --name-only --diff-filter=U"), "");
    solved.shell(
        "git cherry-pick --continue --no-edit || GIT_EDITOR=true git cherry-pick --continue",
    );
    assert_eq!(
        solved.shell("git log -1 --format=%s && cat kept"),
        "main2\nboth"
    );
}

#[tokio::test]
async fn stashes_and_branches_that_are_not_pushed_are_there_in_the_next_sandbox() {
    let mut bench = Bench::conflicting();
    bench.shell(
        "echo first > first && git stash -qu && echo second > second && echo changed > b && git stash -qu \
         && git checkout -qb own && echo own > own && git add own && git commit -qm own && git checkout -q work",
    );
    let next = bench.taken_over().await;
    next.shell("git stash pop -q && git stash pop -q");
    assert_eq!(next.shell("cat first second b"), "first\nsecond\nchanged");
    assert_eq!(next.shell("git show own:own"), "own");
    assert_eq!(
        next.shell("git branch --format='%(refname:short)'"),
        "own\nwork"
    );
    // Without any of it, a snapshot has no state.
    bench.shell("git stash clear && git branch -q -D own");
    let taken = bench.take().await;
    let message = bench.shell(&format!("git log -1 --format=%B {}", taken.commit));
    assert!(!message.contains("state "), "{message}");
}

/// As agents do whose disk is full.
#[tokio::test]
async fn stashes_and_branches_are_there_after_a_collection_of_garbage() {
    let mut bench = Bench::conflicting();
    bench.shell(
        "echo first > first && git stash -qu && git checkout -qb own && echo own > own && git add own \
         && git commit -qm own && git checkout -q work",
    );
    bench.snapshot().await;
    bench.shell("git gc -q && test ! -e .git/refs/stash && echo more > more");
    let next = bench.taken_over().await;
    next.shell("git stash pop -q");
    assert_eq!(next.shell("cat first more"), "first\nmore");
    assert_eq!(next.shell("git show own:own"), "own");
}

/// A file of another encoding than its attributes name ends git before it has added any file.
#[tokio::test]
async fn a_file_that_git_cannot_convert_keeps_no_other_from_being_saved() {
    let mut bench = Bench::new();
    bench.write(".gitattributes", "*.rc text working-tree-encoding=UTF-16\n");
    bench.snapshot().await;
    bench.write("one.rc", "no mark of a byte order");
    bench.write("two.rc", "none either");
    bench.write("kept", "changed");
    bench.write("new", "new");
    let taken = bench.take().await;
    let mut left_out = taken.left_out.clone();
    left_out.sort();
    assert_eq!(left_out, ["one.rc", "two.rc"]);
    let show = |path: &str| bench.shell(&format!("git show {}:{path}", taken.commit));
    assert_eq!(
        (show("kept"), show("new")),
        ("changed".into(), "new".into())
    );
}

/// What git cannot store at all is no snapshot without changes.
#[tokio::test]
async fn a_snapshot_that_git_cannot_store_fails() {
    let mut bench = Bench::new();
    bench.snapshot().await;
    bench.shell("git config filter.broken.clean false && git config filter.broken.required true");
    bench.write(".gitattributes", "* filter=broken\n");
    bench.write("kept", "changed");
    bench.shell("for n in 1 2 3 4 5 6 7 8 9; do echo $n > new-$n; done");
    let mut memory = bench.state.snapshots.lock().await;
    let taken = take_in_time(bench.last.clone(), ROOM, &bench.state, &mut memory, LIMIT).await;
    assert!(taken.is_err(), "it has saved nothing");
}

/// A sandbox writes what it likes into a snapshot.
#[tokio::test]
async fn the_state_of_a_snapshot_writes_nowhere_else() {
    let bench = Bench::conflicting();
    let git = Git::open(&bench.state.git_place()).await.unwrap();
    let tree = bench.shell("git hash-object -w -t tree /dev/null");
    let head = bench.shell("git rev-parse HEAD");
    let state = format!(
        r#"{{"files":{{"../escaped":"x","rebase-merge/../config":"x","hooks/pre-commit":"x","config":"x","/tmp/x":"x"}},"refs":{{"refs/remotes/origin/x":"{head}","refs/heads/../x":"{head}","HEAD":"{head}"}},"staged":[],"unmerged":[]}}"#
    );
    let who = "a <a@b> 0 +0000";
    let commit = format!("tree {tree}\nauthor {who}\ncommitter {who}\n\n{state}\n");
    let args = ["hash-object", "-w", "-t", "commit", "--stdin"];
    let commit = git.fed(args, commit.as_bytes()).await.unwrap();
    let before = bench.shell("cat .git/config && git for-each-ref && cat .git/HEAD");
    crate::git_state::restore(&git, &commit).await.unwrap();
    assert_eq!(
        bench.shell("cat .git/config && git for-each-ref && cat .git/HEAD"),
        before
    );
    assert!(!bench.path("escaped").exists() && !bench.path(".git/hooks/pre-commit").exists());
}
