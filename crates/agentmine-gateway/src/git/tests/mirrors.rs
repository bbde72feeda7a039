//! New clones from a mirror: several sessions, each with its own gateway, over one folder of mirrors.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agentmine_runtime::config::{Network, Secret};

use super::world::{Kind, TOKEN, World, serve};
use crate::{Gateway, GatewayConfig, GitAccess, Mirrors, Upstream};

const PATIENCE: Duration = Duration::from_secs(60);

/// The folder of mirrors of one machine.
struct Machine {
    folder: PathBuf,
    mirrors: Mirrors,
}

impl Machine {
    fn new(world: &World, max_bytes: u64) -> Self {
        let folder = world.home.path().join("state/mirrors");
        Self {
            mirrors: Mirrors::new(folder.clone(), max_bytes),
            folder,
        }
    }

    /// A session, whose gateway's URL is returned.
    async fn session(&self, upstream: Upstream) -> String {
        let config = GatewayConfig {
            git: GitAccess::ReadOnly(upstream),
            network: Network::default(),
        };
        let gateway = Gateway::with_mirrors(config, Some(&self.mirrors)).unwrap();
        serve(&gateway).await
    }

    /// Clones in its own session.
    async fn clone(&self, world: &World, name: &str, options: &str) -> PathBuf {
        let url = self.session(world.target.clone()).await;
        let command = format!("clone -q {options}{url} {name}");
        world.git(world.home.path(), &command).await.ok();
        world.home.path().join(name)
    }

    fn repositories(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.extension().is_some_and(|it| it == "git"))
            .collect()
    }

    /// The mirror of the only repository, once it is whole.
    async fn filled(&self) -> PathBuf {
        let begun = Instant::now();
        loop {
            if let [only] = self.repositories().as_slice()
                && only.join("whole").exists()
            {
                return only.clone();
            }
            assert!(begun.elapsed() < PATIENCE, "the mirror is not filled");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// All that git shows of a clone: its refs and objects, its files, and where it is shallow.
async fn shown(world: &World, clone: &Path) -> String {
    let refs = world.git(clone, "for-each-ref").await.ok();
    let objects = "cat-file --batch-all-objects --batch-check=%(objectname)";
    let objects = world.git(clone, objects).await.ok();
    let files = world.git(clone, "ls-files -s").await.ok();
    let shallow = std::fs::read_to_string(clone.join(".git/shallow")).unwrap_or_default();
    format!("{refs}\n{objects}\n{files}\n{shallow}")
}

/// A repository with branches, tags of both kinds, and a tag on the newest commit.
async fn varied() -> World {
    let world = World::new(Kind::Http).await;
    world.human_commit("other", "other.txt").await;
    let human = world.home.path().join("human");
    for command in [
        "tag light main~1",
        "tag -a -m first annotated main~2",
        "tag -a -m newest newest main",
        "push -q origin --tags",
    ] {
        world.git(&human, command).await.ok();
    }
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_clone_takes_nothing_from_the_host_and_is_the_same() {
    let world = varied().await;
    let machine = Machine::new(&world, 1 << 30);
    machine.clone(&world, "first", "").await;
    machine.filled().await;
    for (at, options) in [
        "",
        "--depth 1 --single-branch --branch main ",
        "--depth 2 --single-branch --branch other ",
        "--depth 1 --no-single-branch ",
        "--single-branch --branch other ",
        "--no-tags ",
        "--branch annotated --depth 1 ",
    ]
    .into_iter()
    .enumerate()
    {
        let direct: Vec<&str> = options.split_whitespace().collect();
        let direct = world.clone_into(&format!("direct{at}"), &direct).await;
        let before = world.forge_fetches();
        let mirrored = machine
            .clone(&world, &format!("mirrored{at}"), options)
            .await;
        assert_eq!(world.forge_fetches(), before, "{options}");
        assert_eq!(
            shown(&world, &mirrored).await,
            shown(&world, &direct).await,
            "{options}"
        );
        world.git(&mirrored, "fsck --strict").await.ok();
        world.git(&mirrored, "fetch -q --unshallow").await;
        world.git(&mirrored, "pull -q").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_pushed_a_moment_ago_is_cloned() {
    let world = varied().await;
    let machine = Machine::new(&world, 1 << 30);
    machine.clone(&world, "first", "").await;
    machine.filled().await;
    for n in 0..3 {
        let head = world.human_commit("main", &format!("new{n}.txt")).await;
        let clone = machine
            .clone(&world, &format!("clone{n}"), "--depth 1 ")
            .await;
        assert_eq!(world.git(&clone, "rev-parse HEAD").await.ok(), head);
    }
    let human = world.home.path().join("human");
    world
        .git(&human, "push -q origin :refs/tags/light :other")
        .await
        .ok();
    let clone = machine.clone(&world, "last", "").await;
    let refs = world.git(&clone, "for-each-ref").await.ok();
    assert!(!refs.contains("light") && !refs.contains("other"), "{refs}");
}

/// A commit with a secret was pushed, mirrored, and then force-pushed away: the host has forgotten it.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_host_does_not_list_any_more_cannot_be_had() {
    let world = varied().await;
    let machine = Machine::new(&world, 1 << 30);
    let secret = world.human_commit("leak", "secret.txt").await;
    machine.clone(&world, "first", "").await;
    let mirror = machine.filled().await;
    let human = world.home.path().join("human");
    world.git(&human, "push -q origin :leak").await.ok();
    world
        .git(&world.upstream, "reflog expire --expire=now --all")
        .await
        .ok();
    world.git(&world.upstream, "gc -q --prune=now").await.ok();
    let url = machine.session(world.target.clone()).await;
    let has = format!("cat-file -e {secret}");
    let git = std::process::Command::new("git")
        .arg("--git-dir")
        .arg(&mirror)
        .args(has.split(' '))
        .status();
    assert!(git.unwrap().success(), "the mirror still has it");
    let repo = world.home.path().join("thief");
    world.git(world.home.path(), "init -q thief").await.ok();
    for command in [
        format!("fetch --no-tags {url} {secret}"),
        format!("fetch --no-tags --depth 1 {url} {secret}"),
        format!("-c protocol.version=0 fetch --no-tags {url} {secret}"),
        format!("fetch --no-tags {url} refs/heads/leak"),
    ] {
        world.git(&repo, &command).await.err();
    }
    let clone = machine.clone(&world, "clone", "").await;
    world
        .git(&clone, &format!("cat-file -e {secret}"))
        .await
        .err();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_the_host_refuses_gets_nothing_from_a_mirror() {
    let world = varied().await;
    let machine = Machine::new(&world, 1 << 30);
    machine.clone(&world, "first", "").await;
    let mirror = machine.filled().await;
    let Upstream::Http {
        url,
        user,
        authority,
        ..
    } = world.target.clone()
    else {
        panic!("it is on a host");
    };
    let upstream = |password: &str| Upstream::Http {
        url: url.clone(),
        user: user.clone(),
        password: Some(Secret::new(password).into()),
        authority: authority.clone(),
    };
    for password in ["wrong", ""] {
        let url = machine.session(upstream(password)).await;
        world
            .git(world.home.path(), &format!("clone -q {url} wrong"))
            .await
            .err();
    }
    // The right token, after the host has taken its right away.
    let url = machine.session(upstream(TOKEN)).await;
    std::fs::rename(&world.upstream, world.upstream.with_extension("gone")).unwrap();
    world
        .git(world.home.path(), &format!("clone -q {url} gone"))
        .await
        .err();
    let everything = std::process::Command::new("grep")
        .args(["-r", TOKEN])
        .arg(&machine.folder)
        .output()
        .unwrap();
    assert!(everything.stdout.is_empty(), "the token is on the disk");
    assert!(mirror.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_mirror_costs_no_clone() {
    let world = varied().await;
    let machine = Machine::new(&world, 1 << 30);
    let first = machine.clone(&world, "first", "").await;
    let mirror = machine.filled().await;
    let expected = shown(&world, &first).await;
    type Damage = fn(&Path);
    let faults: [(&str, Damage); 4] = [
        ("no-objects", |mirror| {
            std::fs::remove_dir_all(mirror.join("objects/pack")).unwrap();
        }),
        ("no-head", |mirror| {
            std::fs::remove_file(mirror.join("HEAD")).unwrap();
        }),
        ("half-filled", |mirror| {
            std::fs::remove_file(mirror.join("whole")).unwrap();
            std::fs::remove_dir_all(mirror.join("objects")).unwrap();
        }),
        ("no-refs", |mirror| {
            std::fs::remove_dir_all(mirror.join("refs/tags")).unwrap();
        }),
    ];
    for (name, fault) in faults {
        fault(&mirror);
        let clone = machine.clone(&world, name, "").await;
        assert_eq!(shown(&world, &clone).await, expected, "{name}");
        machine.filled().await;
        let before = world.forge_fetches();
        machine.clone(&world, &format!("{name}-again"), "").await;
        assert_eq!(
            world.forge_fetches(),
            before,
            "{name}: it was fetched again"
        );
    }
}

/// The lock of a git that was killed while it fetched.
#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_that_cannot_be_updated_is_filled_again() {
    let world = varied().await;
    let machine = Machine::new(&world, 1 << 30);
    machine.clone(&world, "first", "").await;
    let mirror = machine.filled().await;
    std::fs::write(mirror.join("refs/heads/main.lock"), "").unwrap();
    let head = world.human_commit("main", "later.txt").await;
    let clone = machine.clone(&world, "second", "").await;
    assert_eq!(world.git(&clone, "rev-parse HEAD").await.ok(), head);
    machine.filled().await;
    let before = world.forge_fetches();
    machine.clone(&world, "third", "").await;
    assert_eq!(world.forge_fetches(), before, "the host answered");
}

/// An update took longer than a clone waits, and its git was killed. The host answers, and the mirror fetches what it lacks.
#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_that_is_behind_is_brought_up_to_date_and_not_filled_again() {
    let world = varied().await;
    let machine = Machine::new(&world, 1 << 30);
    machine.clone(&world, "first", "").await;
    let mirror = machine.filled().await;
    let [behind, partial, kept] =
        ["behind", "objects/pack/tmp_pack_x", "kept"].map(|name| mirror.join(name));
    for file in [&behind, &partial, &kept] {
        std::fs::write(file, "").unwrap();
    }
    let head = world.human_commit("main", "later.txt").await;
    let clone = machine.clone(&world, "second", "").await;
    assert_eq!(world.git(&clone, "rev-parse HEAD").await.ok(), head);
    let begun = Instant::now();
    while behind.exists() {
        assert!(begun.elapsed() < PATIENCE, "it is not brought up to date");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(kept.exists(), "it was filled again");
    assert!(!partial.exists());
    let before = world.forge_fetches();
    let clone = machine.clone(&world, "third", "").await;
    assert_eq!(world.git(&clone, "rev-parse HEAD").await.ok(), head);
    assert_eq!(world.forge_fetches(), before, "the host answered");
}

/// Whatever was put into a mirror's configuration is gone before git reads it.
#[tokio::test(flavor = "multi_thread")]
async fn git_reads_no_configuration_that_was_put_into_a_mirror() {
    let world = varied().await;
    let machine = Machine::new(&world, 1 << 30);
    machine.clone(&world, "first", "").await;
    let mirror = machine.filled().await;
    let mark = world.home.path().join("ran");
    let program = world.home.path().join("program");
    std::fs::write(
        &program,
        format!("#!/bin/sh\ntouch {}\nexec \"$@\"\n", mark.display()),
    )
    .unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, executable).unwrap();
    let config = format!(
        "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tfsmonitor = {0}\n\tsshCommand = {0}\n\thooksPath = {1}\n\
         \talternateRefsCommand = {0}\n[uploadpack]\n\tpackObjectsHook = {0}\n[credential]\n\thelper = {0}\n\
         [include]\n\tpath = {2}\n",
        program.display(),
        world.home.path().display(),
        mirror.join("more").display()
    );
    for hook in ["reference-transaction", "post-update"] {
        let hooks = [mirror.join("hooks"), world.home.path().to_owned()];
        for folder in hooks {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::copy(&program, folder.join(hook)).unwrap();
        }
    }
    std::fs::write(mirror.join("config"), config).unwrap();
    std::fs::write(mirror.join("objects/info/alternates"), "/nowhere\n").unwrap();
    world.human_commit("main", "later.txt").await;
    machine.clone(&world, "clone", "").await;
    assert!(
        !mark.exists(),
        "a program of the mirror's configuration ran"
    );
    let config = std::fs::read_to_string(mirror.join("config")).unwrap();
    assert_eq!(
        config,
        "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
    );
    assert!(!mirror.join("objects/info/alternates").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sessions_at_once_share_a_mirror() {
    let world = varied().await;
    let machine = Machine::new(&world, 1 << 30);
    machine.clone(&world, "first", "").await;
    machine.filled().await;
    for round in 0..3 {
        let head = world
            .human_commit("main", &format!("round{round}.txt"))
            .await;
        let names: Vec<String> = (0..6).map(|n| format!("clone{round}-{n}")).collect();
        let clones = names
            .iter()
            .map(|name| machine.clone(&world, name, "--depth 1 "));
        for clone in futures::future::join_all(clones).await {
            assert_eq!(world.git(&clone, "rev-parse HEAD").await.ok(), head);
        }
    }
    machine.filled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_is_too_large_is_not_mirrored_and_is_cloned_all_the_same() {
    let world = varied().await;
    let machine = Machine::new(&world, 1000);
    for n in 0..2 {
        machine.clone(&world, &format!("clone{n}"), "").await;
        let begun = Instant::now();
        let is_marked = || {
            std::fs::read_dir(&machine.folder).unwrap().any(|entry| {
                entry
                    .unwrap()
                    .path()
                    .extension()
                    .is_some_and(|it| it == "large")
            })
        };
        while !is_marked() || !machine.repositories().is_empty() {
            assert!(begun.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
