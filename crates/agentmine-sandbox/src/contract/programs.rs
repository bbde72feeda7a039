//! The volume with the programs, which all containers of an engine share.

use super::*;

/// A family of volumes for one test, removed at its end.
struct Family(String);

impl Family {
    fn new() -> Self {
        Self(format!("agentmine-programs-{}-", TaskId::new()))
    }

    async fn backend(&self) -> DockerBackend {
        let backend = DockerBackend::connect(&docker_config()).await;
        let backend = backend.unwrap_or_else(|err| panic!("{err}\nrun tests/run"));
        backend.with_programs(&self.0)
    }

    fn volumes(&self) -> Vec<String> {
        let filter = format!("name={}", self.0);
        let (ok, out) = docker_cli(&["volume", "ls", "-q", "--filter", &filter]);
        assert!(ok);
        out.lines().map(str::to_owned).collect()
    }

    /// Makes a volume as another process with access to the engine may do. The script finds those of `source`, if any.
    fn make(&self, name: &str, source: &str, script: &str) {
        assert!(docker_cli(&["volume", "create", name]).0);
        let (from, to) = (format!("{source}:/source:ro"), format!("{name}:/made"));
        let image = docker_config().docker.base_image;
        let mut args = vec![
            "run",
            "--rm",
            "--network=none",
            "--user=0",
            "--entrypoint=/bin/sh",
        ];
        args.extend(["-w", "/made", "-v", &to]);
        if !source.is_empty() {
            args.extend(["-v", &from]);
        }
        args.extend([&image, "-c", script]);
        let (ok, out) = docker_cli(&args);
        assert!(ok, "{name}: {out}");
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        for volume in self.volumes() {
            docker_cli(&["volume", "rm", &volume]);
        }
    }
}

/// The volume of programs that a sandbox has.
fn programs_of(sandbox: &Running) -> String {
    let format =
        "{{range .Mounts}}{{if eq .Destination \"/opt/agentmine\"}}{{.Name}}{{end}}{{end}}";
    let (ok, out) = docker_cli(&["inspect", "-f", format, sandbox.name()]);
    assert!(ok);
    out.trim().to_owned()
}

async fn start(backend: &DockerBackend) -> Running {
    Running(backend.start(&spec(TaskId::new())).await.unwrap())
}

#[tokio::test]
async fn workers_that_begin_at_once_get_whole_programs_and_later_ones_share_them() {
    let family = Family::new();
    let (a, b, c) = tokio::join!(family.backend(), family.backend(), family.backend());
    let (a, b, c) = tokio::join!(start(&a), start(&b), start(&c));
    let made = family.volumes();
    assert!((1..=3).contains(&made.len()), "{made:?}");
    let (d, e) = tokio::join!(family.backend(), family.backend());
    let (d, e) = tokio::join!(start(&d), start(&e));
    assert_eq!(family.volumes(), made, "filled once");
    assert_eq!(programs_of(&d), programs_of(&e));
    for sandbox in [a, b, c, d, e] {
        assert_eq!(sandbox.output("echo whole").await, "whole");
        sandbox.remove().await.unwrap();
    }
    assert_eq!(family.volumes(), made, "they outlive their containers");
}

#[tokio::test]
async fn a_task_cannot_change_the_programs() {
    let family = Family::new();
    let sandbox = start(&family.backend().await).await;
    for line in [
        "touch /opt/agentmine/bin/new",
        "echo x >> /opt/agentmine/bin/agentmine-guest",
        "rm /opt/agentmine/bin/mcp-server-text-editor",
        "mount -o remount,rw /opt/agentmine",
    ] {
        let tried = sandbox.shell(line).await;
        assert_ne!(tried.exit_code, 0, "{line}");
    }
    let written = sandbox.shell("touch /opt/agentmine/bin/new").await;
    assert!(
        text(&written.stderr).contains("Read-only"),
        "{}",
        text(&written.stderr)
    );
    sandbox.remove().await.unwrap();
}

#[tokio::test]
async fn a_volume_that_is_not_whole_is_never_used() {
    let family = Family::new();
    let first = start(&family.backend().await).await;
    let whole = programs_of(&first);
    first.remove().await.unwrap();
    let faults = [
        ("empty", "true"),
        (
            "other",
            "mkdir bin && printf '#!/bin/sh\\n' > bin/agentmine-guest && chmod 755 bin/*",
        ),
        ("half", "mkdir bin && cp -a /source/bin/agentmine-guest bin"),
        ("more", "cp -a /source/bin . && touch bin/more"),
        (
            "changed",
            "cp -a /source/bin . && printf x | dd of=bin/agentmine-guest bs=1 seek=99999 conv=notrunc",
        ),
        (
            "cut",
            "cp -a /source/bin . && truncate -s -1 bin/mcp-server-text-editor",
        ),
        (
            "link",
            "cp -a /source/bin . && ln -sf /bin/sh bin/agentmine-guest",
        ),
        (
            "mode",
            "cp -a /source/bin . && chmod 4755 bin/agentmine-guest",
        ),
    ];
    for (fault, script) in faults {
        // It is the only one, so it is checked.
        let alone = Family::new();
        let name = whole.replace(&family.0, &alone.0);
        alone.make(&name, &whole, script);
        let sandbox = start(&alone.backend().await).await;
        assert_ne!(programs_of(&sandbox), name, "{fault}");
        sandbox.remove().await.unwrap();
    }
    let copy = Family::new();
    let name = whole.replace(&family.0, &copy.0);
    copy.make(&name, &whole, "cp -a /source/bin .");
    let sandbox = start(&copy.backend().await).await;
    assert_eq!(programs_of(&sandbox), name, "a whole one is");
    sandbox.remove().await.unwrap();
}

#[tokio::test]
async fn programs_that_were_removed_are_made_again() {
    let family = Family::new();
    let backend = family.backend().await;
    let first = start(&backend).await;
    let gone = programs_of(&first);
    first.remove().await.unwrap();
    assert!(docker_cli(&["volume", "rm", &gone]).0);
    let second = start(&backend).await;
    assert_ne!(programs_of(&second), gone);
    assert_eq!(second.output("echo again").await, "again");
    second.remove().await.unwrap();
}

#[tokio::test]
async fn the_sweep_removes_what_nothing_uses() {
    let family = Family::new();
    let (old, used) = (format!("{}old-1", family.0), format!("{}old-2", family.0));
    family.make(&old, "", "true");
    family.make(&used, "", "true");
    let mount = format!("{used}:/opt/agentmine:ro");
    let image = docker_config().docker.base_image;
    let (ok, user) = docker_cli(&["create", "-v", &mount, &image]);
    assert!(ok);
    let backend = family.backend().await;
    let sandbox = start(&backend).await;
    let own = programs_of(&sandbox);
    sandbox.remove().await.unwrap();
    backend
        .remove_unused(Duration::from_secs(3600))
        .await
        .unwrap();
    assert_eq!(family.volumes().len(), 3, "they are young");
    // A process without sandboxes leaves those of its own release alone.
    family
        .backend()
        .await
        .remove_unused(Duration::ZERO)
        .await
        .unwrap();
    let mut left = family.volumes();
    left.sort();
    let mut expected = vec![used.clone(), own.clone()];
    expected.sort();
    assert_eq!(left, expected);
    backend.remove_unused(Duration::ZERO).await.unwrap();
    assert_eq!(family.volumes().len(), 2);
    docker_cli(&["rm", user.trim()]);
    let other = family.backend().await;
    let sandbox = start(&other).await;
    assert_eq!(programs_of(&sandbox), own);
    backend.remove_unused(Duration::ZERO).await.unwrap();
    assert_eq!(family.volumes(), [own]);
    sandbox.remove().await.unwrap();
}
