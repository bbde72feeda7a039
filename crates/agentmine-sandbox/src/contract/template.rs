//! Workspaces that begin as a copy of another one's project. Only root can make file systems for them.

use super::*;
use crate::volume::is_root;

contract![
    a_workspace_begins_as_the_project_that_was_saved_and_as_nothing_else,
    a_project_into_which_something_writes_is_not_saved,
];

impl Bench {
    /// The disk has room for those of several tests.
    async fn with_small_workspaces(self) -> Self {
        let state = tempfile::tempdir_in(scratch()).unwrap();
        Self {
            backend: disk::limited(self.kind, 512 << 20, state.path()).await,
            kind: self.kind,
            _state: Some(state),
        }
    }

    async fn start_as(&self, template: &crate::WorkspaceTemplate) -> Running {
        let template = Some(template.clone());
        let spec = SandboxSpec {
            template,
            ..spec(TaskId::new())
        };
        Running(self.backend.start(&spec).await.unwrap())
    }
}

async fn a_workspace_begins_as_the_project_that_was_saved_and_as_nothing_else(bench: Bench) {
    if !is_root() {
        return;
    }
    let bench = bench.with_small_workspaces().await;
    let first = bench.start().await;
    assert!(first.has_own_volume() && first.template().is_none());
    first
        .output("mkdir -p a/b; echo saved > a/b/file; ln -s a/b link; chmod 700 a; echo x > \"$HOME/own\"; mkdir ../more; git init -q .; git add .")
        .await;
    let template = first
        .save_workspace(u64::MAX)
        .await
        .unwrap()
        .expect("nothing writes");
    assert!(template.bytes() > 0 && !template.is_unusable());
    let too_large = first.save_workspace(template.bytes() / 100).await;
    assert!(too_large.unwrap().is_none());
    // It can be written again, and what is written later is its own.
    first
        .output("echo later > a/b/file; echo later > new")
        .await;
    let look = "cat link/file; stat -c %a:%u a; ls -A . ..; test ! -e \"$HOME/own\" && git status --porcelain; id -u";
    let second = bench.start_as(&template).await;
    assert!(second.template().is_some_and(|it| it.is(&template)));
    let expected = first.output("id -u").await;
    let expected = format!(
        "saved\n700:{expected}\n.:\n.git\na\nlink\n\n..:\nproject\ntmp\nA  a/b/file\nA  link\n{expected}"
    );
    assert_eq!(second.output(look).await, expected);
    second
        .output("rm -rf a link .git; echo gone > only-here")
        .await;
    first.remove().await.unwrap();
    let spare = bench
        .backend
        .start_spare(Some(template.clone()))
        .await
        .unwrap();
    let third = Running(spare.into_sandbox());
    assert_eq!(third.output(look).await, expected);
    // The space of the whole workspace, not only that of the files.
    third.output("head -c 300M /dev/zero > large").await;
    for sandbox in [second, third] {
        sandbox.remove().await.unwrap();
    }
}

async fn a_project_into_which_something_writes_is_not_saved(bench: Bench) {
    if !is_root() {
        return;
    }
    let bench = bench.with_small_workspaces().await;
    let sandbox = bench.start().await;
    sandbox
        .output("(setsid sh -c 'exec 3> open; touch begun; sleep 60' < /dev/null > /dev/null 2>&1 &); until [ -e begun ]; do sleep 0.02; done")
        .await;
    assert!(sandbox.save_workspace(u64::MAX).await.unwrap().is_none());
    sandbox.output("echo fine > file").await;
    sandbox.end_saving();
    assert!(!sandbox.has_own_volume());
    assert!(sandbox.save_workspace(u64::MAX).await.unwrap().is_none());
    sandbox.remove().await.unwrap();
}
