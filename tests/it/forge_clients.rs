//! Clients of forges that nobody here wrote, as `tests/services/forge.sh` installed them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentmine_tests::forge::{DEMO, Fault, Forge, write_demo};
use tokio::process::Command;

use crate::rig::PATIENCE;
use crate::trackers::{PROJECT, seed};

/// The folder of what came from npm.
fn packages() -> PathBuf {
    std::env::var_os("AGENTMINE_TEST_FORGE_NPM")
        .expect("run tests/run")
        .into()
}

/// Runs a script of `it/clients` with the packages at hand; `authority` is trusted. Returns what it printed.
pub(crate) async fn node(script: &str, args: &[&str], authority: &Path) -> Result<String, String> {
    let packages = packages();
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("it/clients")
        .join(script);
    // Packages are looked for from where a module is.
    let place = packages.join(script);
    let part = packages.join(format!("{script}.{}", std::process::id()));
    std::fs::copy(&source, &part).unwrap();
    std::fs::rename(&part, &place).unwrap();
    let mut command = Command::new("node");
    command
        .arg(&place)
        .args(args)
        .env("NODE_EXTRA_CA_CERTS", authority)
        .kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output.expect("it ends").unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Adds the branch `work`.
fn add_work(forge: &Forge, repo: &str) {
    forge.commit(repo, "work", "main", |dir| {
        std::fs::write(dir.join("new.txt"), "new\n").unwrap();
    });
}

/// Lets a client walk the forge of `world`; then, for each of these answers, a forge whose answer lacks the field:
/// the client has to notice.
async fn walks<W: AsRef<Forge>>(
    script: &str,
    address: impl Fn(&Forge) -> String,
    repo: &str,
    world: impl AsyncFn() -> W,
    fields: &[(&str, &str, &str)],
) {
    let walk = async |broken: Option<&(&str, &str, &str)>| {
        let world = world().await;
        let forge = world.as_ref();
        if let Some((method, pattern, field)) = broken {
            forge.inject(Fault::on(method, pattern).times(1000).without(field));
        }
        let address = address(forge);
        let args = [address.as_str(), forge.human_token(), repo];
        node(script, &args, forge.authority().unwrap()).await
    };
    assert_eq!(walk(None).await.unwrap(), "walked");
    for broken in fields {
        let noticed = walk(Some(broken)).await;
        assert!(noticed.is_err(), "{broken:?}: {noticed:?}");
    }
}

#[tokio::test]
async fn octokit_walks_the_fake_github_and_notices_what_is_missing() {
    let world = async || {
        let forge = Forge::start_tls().await;
        forge.add_repo(DEMO, write_demo);
        forge.commit(DEMO, "reviewed", "main", |dir| {
            std::fs::write(dir.join("other.txt"), "other\n").unwrap();
        });
        let number = forge.add_pull(DEMO, "reviewed", "main", "A reviewed one", &[]);
        assert_eq!(number, 1);
        forge.add_review(DEMO, 1, "CHANGES_REQUESTED", "Please change it.");
        forge.add_line_comment(DEMO, 1, ("greet.sh", 2), "Here.");
        let head = forge.pulls(DEMO)[0].head_sha.clone();
        forge.add_job(DEMO, &head, "tests", "failure", "it failed");
        forge.add_status(DEMO, &head, "lint", "success");
        add_work(&forge, DEMO);
        Arc::new(forge)
    };
    let address = |forge: &Forge| forge.api_url().as_str().trim_end_matches('/').to_owned();
    let fields = [
        ("GET", "/issues/2", "labels"),
        ("GET", "/issues/2/events", "actor"),
        ("POST", "/comments", "id"),
        ("GET", "/reactions", "content"),
        ("GET", "/pulls/1", "mergeable"),
        ("GET", "/pulls/1/reviews", "state"),
        ("GET", "/pulls/1/comments", "line"),
        ("GET", "/check-runs", "check_runs"),
        ("PUT", "/merge", "merged"),
        ("GET", "/contents/", "content"),
    ];
    walks("octokit.mjs", address, DEMO, world, &fields).await;
}

#[tokio::test]
async fn gitbeaker_walks_the_fake_gitlab_and_notices_what_is_missing() {
    let world = async || {
        let forge = Forge::start_tls().await;
        forge.add_repo(PROJECT, seed);
        add_work(&forge, PROJECT);
        Arc::new(forge)
    };
    let address = |forge: &Forge| forge.html_url().as_str().trim_end_matches('/').to_owned();
    let fields = [
        ("GET", "/user", "username"),
        ("GET", "/projects/*demo", "path_with_namespace"),
        ("GET", "/resource_label_events", "label"),
        ("POST", "/notes", "id"),
        ("GET", "/award_emoji", "name"),
        ("POST", "/merge_requests", "draft"),
        ("POST", "/discussions", "id"),
        ("GET", "/merge_requests/", "state"),
    ];
    walks("gitbeaker.mjs", address, PROJECT, world, &fields).await;
}
