//! A repository on the worker's disk whose configuration names programs, as one that a user has cloned may.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use agentmine_git::View;
use tempfile::TempDir;

use super::world::{Held, World};
use crate::facts::BareRepo;
use crate::{GitAccess, Upstream};

/// A key that starts a program, and what makes git with that repository's configuration start it.
struct Key {
    /// Also the name of the program, which leaves a file of that name.
    name: &'static str,
    /// Configuration; `@` is the program.
    config: &'static [(&'static str, &'static str)],
    /// A shell script in a copy of the repository.
    trigger: &'static str,
}

const fn key(
    name: &'static str,
    config: &'static [(&'static str, &'static str)],
    trigger: &'static str,
) -> Key {
    Key {
        name,
        config,
        trigger,
    }
}

const PUSH: &str = "git push -q . HEAD:refs/heads/pushed";

/// All keys of git 2.47 that start a program and that a repository's own configuration can set, apart from
/// those of `git gui`, `git send-email`, `git imap-send`, `git instaweb`, `git cvsserver` and `git p4`.
const KEYS: [Key; 46] = [
    key(
        "core.alternateRefsCommand",
        &[("core.alternateRefsCommand", "@")],
        PUSH,
    ),
    key("core.hooksPath", &[("core.hooksPath", "@.d")], PUSH),
    key(
        "receive.procReceiveRefs",
        &[
            ("receive.procReceiveRefs", "refs/heads"),
            ("core.hooksPath", "@.d"),
        ],
        PUSH,
    ),
    key("core.fsmonitor", &[("core.fsmonitor", "@")], "git status"),
    key(
        "include.path",
        &[("include.path", "@.config")],
        "git status",
    ),
    key(
        "includeIf",
        &[("includeIf.gitdir:/**.path", "@.config")],
        "git status",
    ),
    key(
        "core.sshCommand",
        &[("core.sshCommand", "@")],
        "git ls-remote ssh://h.invalid/x",
    ),
    key(
        "core.gitProxy",
        &[("core.gitProxy", "@")],
        "git ls-remote git://h.invalid/x",
    ),
    key(
        "core.askPass",
        &[("core.askPass", "@")],
        "echo url=https://h.invalid | git credential fill",
    ),
    key(
        "credential.helper",
        &[("credential.helper", "@")],
        "echo url=https://h.invalid | git credential fill",
    ),
    key(
        "credential.url.helper",
        &[("credential.https://h.invalid.helper", "@")],
        "echo url=https://h.invalid | git credential fill",
    ),
    key(
        "core.editor",
        &[("core.editor", "@")],
        "git commit --allow-empty",
    ),
    key(
        "sequence.editor",
        &[("sequence.editor", "@")],
        "git rebase -i HEAD~1",
    ),
    key(
        "core.pager",
        &[("core.pager", "@")],
        "script -qec 'git -p log -1' /dev/null",
    ),
    key(
        "pager.cmd",
        &[("pager.log", "@")],
        "script -qec 'git log -1' /dev/null",
    ),
    key(
        "gpg.program",
        &[("gpg.program", "@")],
        "git commit -S --allow-empty -m x",
    ),
    key(
        "gpg.format.program",
        &[("gpg.format", "x509"), ("gpg.x509.program", "@")],
        "git commit -S --allow-empty -m x",
    ),
    key(
        "gpg.ssh.defaultKeyCommand",
        &[("gpg.format", "ssh"), ("gpg.ssh.defaultKeyCommand", "@")],
        "git commit -S --allow-empty -m x",
    ),
    key(
        "diff.external",
        &[("diff.external", "@")],
        "git diff HEAD~1",
    ),
    key(
        "diff.driver.command",
        &[("diff.d.command", "@")],
        "git diff HEAD~1",
    ),
    key(
        "diff.driver.textconv",
        &[("diff.d.textconv", "@")],
        "git diff HEAD~1",
    ),
    key(
        "filter.driver.clean",
        &[("filter.f.clean", "@")],
        "echo 9 > file.txt; git add .",
    ),
    key(
        "filter.driver.smudge",
        &[("filter.f.smudge", "@")],
        "rm file.txt; git checkout file.txt",
    ),
    key(
        "filter.driver.process",
        &[("filter.f.process", "@")],
        "echo 9 > file.txt; git add .",
    ),
    key(
        "merge.driver.driver",
        &[("merge.m.driver", "@")],
        "git merge -q other",
    ),
    key(
        "remote.uploadpack",
        &[("remote.r.url", "."), ("remote.r.uploadpack", "@")],
        "git fetch r",
    ),
    key(
        "remote.receivepack",
        &[("remote.r.url", "."), ("remote.r.receivepack", "@")],
        "git push r HEAD:x",
    ),
    key(
        "remote.vcs",
        &[("remote.r.url", "x"), ("remote.r.vcs", "agentmine")],
        "git fetch r",
    ),
    key(
        "url.insteadOf",
        &[
            ("url.ext::@ .insteadOf", "x:"),
            ("protocol.ext.allow", "always"),
        ],
        "git ls-remote x:y",
    ),
    key(
        "url.pushInsteadOf",
        &[
            ("url.ext::@ .pushInsteadOf", "x:"),
            ("protocol.ext.allow", "always"),
        ],
        "git push x:y HEAD:x",
    ),
    key(
        "extensions.partialClone",
        &[
            ("core.repositoryformatversion", "1"),
            ("extensions.partialClone", "lazy"),
            ("remote.lazy.promisor", "true"),
            ("remote.lazy.url", "."),
            ("remote.lazy.uploadpack", "@"),
        ],
        "git cat-file -p 1111111111111111111111111111111111111111",
    ),
    key("alias", &[("alias.x", "!@")], "git x"),
    key(
        "gc.recentObjectsHook",
        &[("gc.recentObjectsHook", "@")],
        "echo 9 | git hash-object -w --stdin; find .git/objects -type f -exec touch -d 2020-01-01 {} + \
         ; git prune --expire=1.day.ago",
    ),
    key(
        "interactive.diffFilter",
        &[("interactive.diffFilter", "@"), ("color.ui", "always")],
        "echo 9 > file.txt; git add -p </dev/null",
    ),
    key(
        "trailer.command",
        &[("trailer.t.command", "@")],
        "git interpret-trailers --trailer t=1 </dev/null",
    ),
    key(
        "trailer.cmd",
        &[("trailer.t.cmd", "@")],
        "git interpret-trailers --trailer t=1 </dev/null",
    ),
    key(
        "tar.format.command",
        &[("tar.x.command", "@")],
        "git archive --format=x HEAD",
    ),
    key(
        "difftool.cmd",
        &[("difftool.t.cmd", "@"), ("diff.tool", "t")],
        "git difftool -y HEAD~1",
    ),
    key(
        "difftool.path",
        &[("difftool.vimdiff.path", "@")],
        "git difftool -y -t vimdiff HEAD~1",
    ),
    key(
        "mergetool.cmd",
        &[("mergetool.t.cmd", "@"), ("merge.tool", "t")],
        "git merge -q other; git mergetool -y",
    ),
    key(
        "mergetool.path",
        &[("mergetool.vimdiff.path", "@")],
        "git merge -q other; git mergetool -y -t vimdiff",
    ),
    key(
        "man.cmd",
        &[("man.viewer", "t"), ("man.t.cmd", "@")],
        "git help -m log",
    ),
    key(
        "man.path",
        &[("man.viewer", "man"), ("man.man.path", "@")],
        "git help -m log",
    ),
    key(
        "browser.path",
        &[("browser.firefox.path", "@")],
        "git web--browse -t firefox https://h.invalid",
    ),
    key(
        "browser.cmd",
        &[("browser.t.cmd", "@")],
        "git web--browse -t t https://h.invalid",
    ),
    key(
        "submodule.update",
        &[
            ("submodule.s.url", "."),
            ("submodule.s.update", "!@"),
            ("submodule.s.active", "true"),
        ],
        "git clone -q . s && git -C s checkout -q HEAD~1 && git add s \
         && printf '[submodule \"s\"]\\n path = s\\n url = .\\n' > .gitmodules \
         && git -C s checkout -q main && git submodule update s",
    ),
];

/// Keys whose name looks as if they started a program.
const HARMLESS: &str = "commit.cleanup commitGraph.maxNewFilters help.browser web.browser \
    mergetool.<tool>.hideResolved mergetool.<tool>.trustExitCode \
    advice.ignoredHook advice.sequencerInUse advice.waitingForEditor \
    advice.skippedCherryPicks clean.requireForce color.interactive.<slot> color.pager column.clean \
    commit.template completion.commands core.alternateRefsPrefixes core.fsmonitorHookVersion \
    diff.<driver>.binary diff.<driver>.cachetextconv diff.<driver>.trustExitCode \
    diff.<driver>.wordRegex diff.<driver>.xfuncname diff.guitool diff.tool difftool.guiDefault \
    difftool.prompt difftool.trustExitCode fsmonitor.allowRemote fsmonitor.socketDir gc.repackFilter \
    gc.repackFilterTo http.proxy http.proxyAuthMethod http.proxySSLCAInfo http.proxySSLCert \
    http.proxySSLCertPasswordProtected http.proxySSLKey merge.<driver>.name merge.<driver>.recursive \
    merge.guitool merge.tool mergetool.guiDefault mergetool.hideResolved mergetool.keepBackup \
    mergetool.keepTemporaries mergetool.meld.hasOutput mergetool.meld.useAutoMerge mergetool.prompt \
    mergetool.writeToTemp notes.rewrite.<command> promisor.quiet push.useForceIfIncludes \
    rebase.abbreviateCommands remote.<name>.partialclonefilter remote.<name>.promisor \
    remote.<name>.proxy remote.<name>.proxyAuthMethod sendpack.sideband stash.showIncludeUntracked \
    uploadpackfilter.<filter>.allow uploadpackfilter.allow uploadpackfilter.tree.maxDepth";

/// Read only from the command line, the system and the operator: `git help config`.
const PROTECTED: &str = "uploadpack.packObjectsHook";

/// Commands that only a person runs.
const PEOPLES: [&str; 6] = [
    "gui",
    "guitool.",
    "sendemail.",
    "imap.",
    "instaweb.",
    "gitcvs.",
];

struct Hostile {
    folder: TempDir,
    repo: PathBuf,
}

impl Hostile {
    /// A repository with a work tree and an alternate object store; its programs are in `programs`.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let repo = folder.path().join("repo");
        let hostile = Self { folder, repo };
        let root = hostile.folder.path();
        std::fs::create_dir_all(hostile.programs().join("ran")).unwrap();
        let script = "git init -q -b main store && git init -q -b main repo && cd repo \
            && (cd ../store && git commit -q --allow-empty -m store) \
            && echo ../../../store/.git/objects > .git/objects/info/alternates \
            && echo '*.txt diff=d filter=f merge=m' > .gitattributes \
            && for n in 1 2 3; do echo $n > file.txt; git add .; git commit -q -m $n; done \
            && git checkout -q -b other HEAD~1 && echo 4 > file.txt && git commit -q -a -m 4 \
            && git checkout -q main && git branch -q free";
        assert!(hostile.shell(root, script).success(), "no repository");
        for Key { name, .. } in KEYS {
            hostile.program(name);
        }
        hostile
    }

    fn programs(&self) -> PathBuf {
        self.folder.path().join("programs")
    }

    /// A program, a folder of hooks and a file of configuration that all leave the file `ran/NAME`.
    fn program(&self, name: &str) {
        let (programs, path) = (self.programs(), self.programs().join(name));
        let ran = programs.join("ran").join(name);
        let text = format!("#!/bin/sh\ntouch {}\n", ran.display());
        let hooks = programs.join(format!("{name}.d"));
        std::fs::create_dir_all(&hooks).unwrap();
        let config = format!("[core]\nfsmonitor = {}\n", path.display());
        std::fs::write(programs.join(format!("{name}.config")), config).unwrap();
        let hook = match name {
            "receive.procReceiveRefs" => "proc-receive",
            _ => "pre-receive",
        };
        for file in [
            path,
            hooks.join(hook),
            programs.join("git-remote-agentmine"),
        ] {
            std::fs::write(&file, &text).unwrap();
            executable(&file);
        }
        if name != "remote.vcs" {
            return;
        }
        let vcs = programs.join("vcs");
        std::fs::create_dir_all(&vcs).unwrap();
        std::fs::write(vcs.join("git-remote-agentmine"), &text).unwrap();
        executable(&vcs.join("git-remote-agentmine"));
    }

    fn shell(&self, dir: &Path, script: &str) -> std::process::ExitStatus {
        let path = std::env::var("PATH").unwrap();
        let vcs = self.programs().join("vcs");
        Command::new("timeout")
            .args(["20", "sh", "-c", script])
            .current_dir(dir)
            .env_clear()
            .env("PATH", format!("{}:{path}", vcs.display()))
            .env("HOME", self.folder.path())
            .env("TERM", "dumb")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "A")
            .env("GIT_AUTHOR_EMAIL", "a@example.org")
            .env("GIT_COMMITTER_NAME", "A")
            .env("GIT_COMMITTER_EMAIL", "a@example.org")
            .output()
            .unwrap()
            .status
    }

    fn configure(&self, repo: &Path, key: &Key) {
        let program = self.programs().join(key.name);
        for (name, value) in key.config {
            let filled = |text: &str| text.replace('@', &program.display().to_string());
            let set = Command::new("git")
                .args(["config", "--add"])
                .args([filled(name), filled(value)])
                .current_dir(repo)
                .output()
                .unwrap();
            assert!(set.status.success(), "{name}: {set:?}");
        }
    }

    fn ran(&self) -> BTreeSet<String> {
        let ran = std::fs::read_dir(self.programs().join("ran")).unwrap();
        ran.map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

fn executable(file: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn each_key_starts_its_program_where_git_reads_the_repositorys_configuration() {
    let hostile = Hostile::new();
    let mut dead = Vec::new();
    for key in &KEYS {
        let name = format!("copy-{}", key.name);
        let root = hostile.folder.path();
        assert!(hostile.shell(root, &format!("cp -r repo {name}")).success());
        let copy = root.join(name);
        hostile.configure(&copy, key);
        hostile.shell(&copy, key.trigger);
        if !hostile.ran().contains(key.name) {
            dead.push(key.name);
        }
    }
    assert!(dead.is_empty(), "these triggers start nothing: {dead:?}");
}

#[test]
fn every_key_of_this_git_that_may_start_a_program_is_known() {
    const SIGNS: [&str; 32] = [
        "command",
        "cmd",
        "program",
        "helper",
        "editor",
        "pager",
        "hook",
        "driver",
        "textconv",
        "external",
        "filter",
        "clean",
        "smudge",
        "process",
        "proxy",
        "vcs",
        "uploadpack",
        "receivepack",
        "insteadof",
        "include",
        "askpass",
        "tool",
        "alias",
        "browser",
        "fsmonitor",
        "viewer",
        "tunnel",
        "httpd",
        "template",
        "promisor",
        "partialclone",
        "procreceive",
    ];
    let listed = Command::new("git").args(["help", "-c"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let covered: BTreeSet<String> = KEYS
        .iter()
        .flat_map(|key| key.config.iter().map(|(name, _)| shape(name)))
        .collect();
    let unknown: Vec<&str> = listed
        .lines()
        .filter(|name| {
            SIGNS
                .iter()
                .any(|it| name.to_ascii_lowercase().contains(it))
        })
        .filter(|name| {
            !HARMLESS
                .split_ascii_whitespace()
                .any(|known| known == *name)
        })
        .filter(|name| !PEOPLES.iter().any(|command| name.starts_with(command)))
        .filter(|name| !name.starts_with("mergetool.<vimdiff variant>."))
        .filter(|name| !is_of_upload_pack(name) && *name != PROTECTED)
        .filter(|name| !covered.contains(&shape(name)))
        .collect();
    assert!(unknown.is_empty(), "do these start programs? {unknown:?}");
}

/// Permissions of `git upload-pack`.
fn is_of_upload_pack(name: &str) -> bool {
    name.starts_with("uploadpack.") && name != PROTECTED
}

/// First and last part of a key.
fn shape(name: &str) -> String {
    let first = name.split('.').next().unwrap_or_default();
    let last = name.rsplit('.').next().unwrap_or_default();
    let last = if ["alias", "pager"].contains(&first) {
        "*"
    } else {
        last
    };
    format!("{first}.{last}").to_ascii_lowercase()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_git_of_the_worker_starts_a_program_that_a_local_repository_names() {
    let hostile = Hostile::new();
    for key in &KEYS {
        hostile.configure(&hostile.repo, key);
    }
    let upstream = Upstream::Path(hostile.repo.clone());
    let world = World::at(upstream.clone(), None, |upstream| GitAccess::ReadWrite {
        upstream,
        branch: "work".into(),
        max_push_bytes: 50_000_000,
        fence: std::sync::Arc::new(Held),
    })
    .await;
    let clone = world.clone_into("clone", &[]).await;
    world.git(&clone, "switch -qc work").await.ok();
    for file in ["one.txt", "two.txt"] {
        world.commit(&clone, file).await;
        world.git(&clone, "push -q origin work").await.ok();
        world.git(&clone, "fetch -q origin").await.ok();
    }
    let facts = BareRepo::new(upstream).unwrap();
    let head = facts.resolve("work").await.unwrap().unwrap();
    let base = facts.resolve("main").await.unwrap().unwrap();
    facts.fetch(&[&base, &head]).await.unwrap();
    facts.diff(&base, &head).await.unwrap();
    facts.changed(&base, &head, &[]).await.unwrap();

    let view = View::open(&hostile.repo).unwrap();
    std::fs::write(hostile.repo.join("file.txt"), "changed\n").unwrap();
    for command in [
        "ls-files --cached --others --exclude-standard",
        "status --porcelain=v1 -z --untracked-files=all --ignore-submodules=all --no-renames",
        "diff main other",
        "rev-parse --verify HEAD^{commit}",
        "symbolic-ref --short HEAD",
        "ls-tree -l --full-tree refs/heads/main -- file.txt",
        "cat-file blob refs/heads/main:file.txt",
    ] {
        let done = view
            .git()
            .unwrap()
            .args(command.split(' '))
            .output()
            .unwrap();
        assert!(done.status.success(), "{command}: {done:?}");
    }
    let missing = ["cat-file", "-p", "1111111111111111111111111111111111111111"];
    let done = view.git().unwrap().args(missing).output().unwrap();
    assert!(!done.status.success());
    assert_eq!(hostile.ran(), BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_is_checked_out_in_any_work_tree_is_not_pushed_to() {
    let hostile = Hostile::new();
    let linked = "git worktree add -q ../linked -b work free";
    assert!(hostile.shell(&hostile.repo, linked).success());
    let linked = hostile.folder.path().join("linked");
    // Both ways of naming the repository; `free` is checked out nowhere.
    for (repo, branch, allowed) in [
        (&hostile.repo, "main", false),
        (&hostile.repo, "work", false),
        (&linked, "main", false),
        (&linked, "work", false),
        (&linked, "free", true),
    ] {
        let world = World::at(Upstream::Path(repo.clone()), None, |upstream| {
            GitAccess::ReadWrite {
                upstream,
                branch: branch.into(),
                max_push_bytes: 50_000_000,
                fence: std::sync::Arc::new(Held),
            }
        })
        .await;
        let clone = world.clone_into("clone", &["--branch", branch]).await;
        world.commit(&clone, "one.txt").await;
        let pushed = world
            .git(&clone, &format!("push origin HEAD:{branch}"))
            .await;
        if allowed {
            pushed.ok();
        } else {
            let shown = pushed.err();
            assert!(shown.contains("checked out"), "{branch}: {shown}");
        }
    }
}
