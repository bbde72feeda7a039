//! A whole task on repositories that nobody here wrote, named by the environment (tests/README.md).

#![expect(
    clippy::print_stderr,
    reason = "a person reads what became of each repository"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use agentmine_tests::model::{Scenario, commit_and_push, edit_replace, say, shell};

use crate::rig::{REQUEST, Rig, assert_done};

/// Git repositories (work trees or bare ones), separated by colons as in `PATH`.
const REPOSITORIES: &str = "AGENTMINE_TEST_REPOSITORIES";
const NAME: &str = "acme/foreign";

/// Time limit for a task: a large repository is cloned several times.
const LIMIT: Duration = Duration::from_secs(1800);

/// A regular file of the repository, as git stores it.
struct File {
    path: String,
    content: Vec<u8>,
}

/// What the agent does to a repository: before its commit, and after it.
struct Plan {
    committed: String,
    edited: Vec<(String, String, String)>,
    left: String,
}

fn git(folder: &Path, args: &[&str]) -> Vec<u8> {
    let mut git = Command::new("git");
    git.env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    for who in ["AUTHOR", "COMMITTER"] {
        git.env(format!("GIT_{who}_NAME"), "Octo Cat");
        git.env(format!("GIT_{who}_EMAIL"), "octo@example.com");
    }
    let done = git.arg("-C").arg(folder).args(args).output().unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "git {args:?}: {error}");
    done.stdout
}

fn text_of(folder: &Path, args: &[&str]) -> String {
    String::from_utf8_lossy(&git(folder, args))
        .trim()
        .to_owned()
}

fn quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', r"'\''"))
}

/// Paths of regular files that are not executable, in git's order.
fn paths(folder: &Path) -> Vec<String> {
    let tree = git(folder, &["ls-tree", "-r", "-z", "HEAD"]);
    let entries = tree.split(|byte| *byte == 0);
    let texts = entries.filter_map(|entry| std::str::from_utf8(entry).ok());
    let files = texts.filter_map(|entry| entry.strip_prefix("100644 blob "));
    let paths = files.filter_map(|entry| entry.split_once('\t'));
    // What a step of CI or an attribute does is not changed by accident.
    let ordinary = paths.filter(|(_, path)| !path.split('/').any(|part| part.starts_with(".git")));
    ordinary.map(|(_, path)| path.to_owned()).collect()
}

/// A line of the file that occurs once, and that an editor can be asked for.
fn line(file: &File) -> Option<String> {
    let text = std::str::from_utf8(&file.content).ok()?;
    let is_plain =
        |line: &&str| line.len() > 12 && line.bytes().all(|it| (b' '..=b'~').contains(&it));
    let mut lines = text.lines().map(str::trim).filter(is_plain);
    lines
        .find(|line| text.matches(line).count() == 1 && !line.contains(['{', '}']))
        .map(str::to_owned)
}

impl Plan {
    fn of(folder: &Path) -> Self {
        let paths = paths(folder);
        assert!(paths.len() > 8, "{} files", paths.len());
        let at = |part: usize| paths[paths.len() * part / 8].clone();
        let read = |path: &String| File {
            path: path.clone(),
            content: git(folder, &["cat-file", "blob", &format!("HEAD:{path}")]),
        };
        let mut edited: Vec<(String, String, String)> = Vec::new();
        let taken = [at(1), at(2), at(3), at(5), at(6)];
        let mut candidates = paths
            .iter()
            .filter(|it| !taken.contains(it))
            .step_by(paths.len() / 400 + 1)
            .map(read);
        let mut edit = |is_it: &dyn Fn(&File) -> bool| {
            let found = candidates
                .by_ref()
                .filter(|it| is_it(it))
                .find_map(|it| Some((line(&it)?, it.path)));
            if let Some((line, path)) = found {
                let new = format!("{line} (changed)");
                edited.push((path, line, new));
            }
        };
        edit(&|file| !file.content.contains(&b'\r'));
        edit(&|file| file.content.windows(2).any(|it| it == b"\r\n"));
        let committed = [
            format!("printf 'added by the agent\\n' >> {}", quoted(&at(1))),
            format!("git rm -q {}", quoted(&at(2))),
            format!(
                "git mv {} {}",
                quoted(&at(3)),
                quoted(&format!("{} moved é", at(3)))
            ),
        ];
        let left = [
            "mkdir -p 'new folder'".to_owned(),
            "printf 'one\\r\\ntwo\\n' > 'new folder/ünï cödé.txt'".to_owned(),
            "ln -s ../nowhere 'new folder/link'".to_owned(),
            format!("chmod 755 {}", quoted(&at(5))),
            format!("printf 'more\\n' >> {}", quoted(&at(6))),
        ];
        Self {
            committed: committed.join(" && "),
            edited,
            left: left.join(" && "),
        }
    }

    fn scenario(&self) -> Scenario {
        let touch = "find . -path ./.git -prune -o -type f -exec touch {} + ; git status --porcelain | head -20";
        let mut answers = vec![shell(touch), shell(&self.committed)];
        answers.extend(
            self.edited
                .iter()
                .map(|(path, old, new)| edit_replace(path, old, new)),
        );
        answers.extend([
            commit_and_push("Change some files"),
            shell(&self.left),
            say("Some files are changed."),
        ]);
        Scenario::new("changes a foreign repository").replies(answers)
    }

    /// The tree that git alone makes of the same changes.
    fn tree(&self, repository: &Path) -> String {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path();
        git(
            place,
            &[
                "clone",
                "-q",
                "--branch",
                "main",
                repository.to_str().unwrap(),
                ".",
            ],
        );
        let run = |script: &str| {
            let done = Command::new("sh")
                .arg("-c")
                .arg(script)
                .current_dir(place)
                .status();
            assert!(done.unwrap().success(), "{script}");
        };
        run(&self.committed);
        for (path, old, new) in &self.edited {
            let path = place.join(path);
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, text.replacen(old, new, 1)).unwrap();
        }
        git(place, &["add", "-A"]);
        git(place, &["commit", "-q", "-m", "Change some files"]);
        run(&self.left);
        git(place, &["add", "-A"]);
        text_of(place, &["write-tree"])
    }
}

/// Puts the repository on the rig's forge.
fn host(source: &Path, rig: &mut Rig) {
    rig.config["command_executor"]["docker"]["resources"]["memory_limit"] = "2g".into();
    rig.config["command_executor"]["docker"]["resources"]["disk_limit"] = "10g".into();
    rig.config["trackers"]["github"]["repositories"] = serde_json::json!([NAME]);
    rig.forge.add_repo(NAME, |_| {});
    let hosted = rig.forge.git_dir(NAME);
    git(
        &hosted,
        &[
            "fetch",
            "-q",
            "--update-head-ok",
            source.to_str().unwrap(),
            "+HEAD:refs/heads/main",
            "+refs/tags/*:refs/tags/*",
        ],
    );
}

/// Each repository in turn, in a new fleet: a label becomes a pull request with the tree that git alone makes of the same changes.
async fn each(start: impl AsyncFn(Scenario) -> Rig) {
    let sources = std::env::var(REPOSITORIES).unwrap_or_default();
    let sources: Vec<PathBuf> = std::env::split_paths(&sources).collect();
    let are_there = !sources.is_empty() && sources.iter().all(|it| it.is_dir());
    assert!(
        are_there,
        "{REPOSITORIES} must name folders (tests/README.md): {sources:?}"
    );
    for source in sources {
        let plan = Plan::of(&source);
        let mut rig = start(plan.scenario()).await;
        host(&source, &mut rig);
        rig.forge
            .add_issue(NAME, "Change some files", "As the title says.", &[REQUEST]);
        rig.produce().await;
        let begun = Instant::now();
        let (status, log) = rig.spawn("consumer", &["--once"]).end_within(LIMIT).await;
        let took = begun.elapsed();
        assert!(status.success(), "{log}");
        let task = rig.task().await;
        let pulls = rig.forge.pulls(NAME);
        let shown = pulls.first().map_or("no pull request", |it| &it.body);
        eprintln!("{}: {took:.1?}\n{shown}\n", source.display());
        if std::env::var_os("AGENTMINE_TEST_TRANSCRIPT").is_some() {
            eprintln!("{}\n{log}", rig.transcript(&task).await);
        }
        assert_done(&task);
        let (hosted, head) = (rig.forge.git_dir(NAME), &pulls[0].head_sha);
        let tree = format!("{head}^{{tree}}");
        let made = text_of(&hosted, &["rev-parse", &tree]);
        let expected = plan.tree(&hosted);
        if made != expected {
            let changes = text_of(&hosted, &["diff", "--stat", "main", head]);
            panic!(
                "{}: {made} in place of {expected}\n{changes}",
                source.display()
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs repositories (tests/README.md)"]
async fn foreign_repositories_are_changed_as_by_git_in_the_jail() {
    each(async |scenario| Rig::local(scenario).await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs repositories (tests/README.md)"]
async fn foreign_repositories_are_changed_as_by_git_in_docker() {
    each(async |scenario| Rig::new(scenario).await).await;
}
