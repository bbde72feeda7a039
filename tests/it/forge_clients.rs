//! Clients of forges that nobody here wrote, as `tests/services/forge.sh` installed them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use agentmine_domain::ItemKind;
use agentmine_tests::forge::{DEMO, Fault, Forge, HUMAN, write_demo};
use agentmine_trackers::{GitHubTracker, Tracker as _};
use tokio::process::Command;
use url::Url;

use crate::rig::{PATIENCE, REQUEST};
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

/// Lets a client walk a new forge; then, for each of these answers, one whose answer lacks the field, and one where it
/// has another name: the client has to notice.
async fn walks(
    world: impl AsyncFn() -> Forge,
    walk: impl AsyncFn(&Forge) -> Result<(), String>,
    fields: &[(&str, &str, &str)],
) {
    walk(&world().await).await.unwrap();
    for broken @ (method, pattern, field) in fields {
        for how in [Fault::without, Fault::renamed] {
            let forge = world().await;
            forge.inject(how(Fault::on(method, pattern).times(1000), field));
            assert!(walk(&forge).await.is_err(), "{broken:?}");
        }
    }
}

/// Walks with a script of `it/clients`.
async fn with_node(script: &str, forge: &Forge, address: Url, repo: &str) -> Result<(), String> {
    let address = address.as_str().trim_end_matches('/');
    let args = [address, forge.human_token(), repo];
    match node(script, &args, forge.authority().unwrap()).await? {
        said if said == "walked" => Ok(()),
        said => Err(said),
    }
}

/// A forge with a project of GitLab, and something to merge.
async fn gitlab() -> Forge {
    let forge = Forge::start_tls().await;
    forge.add_repo(PROJECT, seed);
    add_work(&forge, PROJECT);
    forge
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
        forge
    };
    let walk = async |forge: &Forge| with_node("octokit.mjs", forge, forge.api_url(), DEMO).await;
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
        ("POST", "/graphql", "isResolved"),
        ("GET", "/contents/", "content"),
    ];
    walks(world, walk, &fields).await;
}

#[tokio::test]
async fn gitbeaker_walks_the_fake_gitlab_and_notices_what_is_missing() {
    let walk =
        async |forge: &Forge| with_node("gitbeaker.mjs", forge, forge.html_url(), PROJECT).await;
    let fields = [
        ("GET", "/user", "username"),
        ("GET", "/projects/*demo", "path_with_namespace"),
        ("GET", "/resource_label_events", "label"),
        ("POST", "/notes", "id"),
        ("GET", "/award_emoji", "name"),
        ("POST", "/merge_requests", "draft"),
        ("POST", "/discussions", "id"),
        ("GET", "/merge_requests/", "state"),
        ("PUT", "/discussions/", "notes"),
    ];
    walks(gitlab_with_thread, walk, &fields).await;
}

/// The same with a thread on a line of merge request 1.
async fn gitlab_with_thread() -> Forge {
    let forge = gitlab().await;
    forge.commit(PROJECT, "reviewed", "main", |dir| {
        std::fs::write(dir.join("other.txt"), "other\n").unwrap();
    });
    let number = forge.add_pull(PROJECT, "reviewed", "main", "A reviewed one", &[]);
    forge.add_line_comment(PROJECT, number, ("other.txt", 1), "Here.");
    forge
}

/// python-gitlab's walk.
async fn python(forge: &Forge) -> Result<(), String> {
    let packages = std::env::var("AGENTMINE_TEST_FORGE_CLIENTS").expect("run tests/run");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/it/clients/walk.py");
    let mut command = Command::new("/usr/bin/python3");
    command
        .args(["-B", "-W", "error::UserWarning", script])
        .arg(forge.html_url().as_str().trim_end_matches('/'))
        .arg(forge.human_token())
        .arg(forge.authority().unwrap())
        .arg(PROJECT)
        .env("PYTHONPATH", packages)
        .kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output.expect("it ends").unwrap();
    match output.status.success() && output.stdout == b"walked\n" {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

#[tokio::test]
async fn python_gitlab_walks_the_fake_gitlab_and_notices_what_is_missing() {
    let forge = gitlab_with_thread().await;
    python(&forge).await.unwrap();
    let actions = forge.quick_actions();
    assert_eq!(actions, [format!("{HUMAN} /close")]);
    let reviewed = forge.merge_request(PROJECT, 1);
    let resolved = forge.line_threads(PROJECT, reviewed)[0].1;
    assert!(resolved, "the walk resolves the thread");
    let fields = [
        ("GET", "/user", "username"),
        ("GET", "/projects/*demo", "default_branch"),
        ("GET", "/issues/1", "labels"),
        ("GET", "/resource_label_events", "action"),
        ("GET", "/issues/1/notes", "system"),
        ("GET", "/discussions/", "notes"),
        ("POST", "/merge_requests", "draft"),
        ("GET", "/merge_requests/", "references"),
        ("GET", "/repository/files/", "content"),
    ];
    walks(gitlab_with_thread, python, &fields).await;
}

/// Runs `glab` or `gh` with nobody's configuration; the forge's authority is trusted.
async fn command_line(
    forge: &Forge,
    program: &str,
    home: &Path,
    args: &[&str],
) -> Result<String, String> {
    let host = forge.html_url();
    let host = format!("{}:{}", host.host_str().unwrap(), host.port().unwrap());
    run_client(forge, program, home, &host, args).await
}

/// The same, for the server that the program knows by the name `host`.
async fn run_client(
    forge: &Forge,
    program: &str,
    home: &Path,
    host: &str,
    args: &[&str],
) -> Result<String, String> {
    let programs = std::env::var_os("AGENTMINE_TEST_FORGE_CLI").expect("run tests/run");
    let mut command = Command::new(Path::new(&programs).join(program));
    command
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home)
        .env("NO_COLOR", "1")
        .env("SSL_CERT_FILE", forge.authority().unwrap())
        .env("GITLAB_HOST", host)
        .env("GITLAB_TOKEN", forge.human_token())
        .env("GLAB_CHECK_UPDATE", "false")
        .env("GH_HOST", host)
        .env("GH_ENTERPRISE_TOKEN", forge.human_token())
        .current_dir(home)
        .kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output.expect("it ends").unwrap();
    let [out, err] =
        [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    match output.status.success() {
        true => Ok(out),
        false => Err(format!("{program} {args:?}: {out}{err}")),
    }
}

/// A merge request by `glab mr create`, which reads the remote of a clone and takes no port from it: its configuration
/// says where the host is.
async fn create(forge: &Forge, clone: &Path) -> Result<String, String> {
    let url = forge.html_url();
    let host = url.host_str().unwrap();
    let mut from = url.join(&format!("{PROJECT}.git")).unwrap();
    from.set_username("oauth2").unwrap();
    from.set_password(Some(forge.human_token())).unwrap();
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", from.as_str()])
        .arg(clone)
        .env("GIT_SSL_CAINFO", forge.authority().unwrap());
    assert!(git.status().await.unwrap().success());
    let settings = clone.join(".config/glab-cli");
    std::fs::create_dir_all(&settings).unwrap();
    let file = settings.join("config.yml");
    let port = url.port().unwrap();
    let text = format!("hosts:\n  {host}:\n    api_host: {host}:{port}\n    api_protocol: https\n");
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let args = "mr create --source-branch work --target-branch main --title Work --draft --yes";
    let mut args: Vec<&str> = args.split(' ').collect();
    args.extend(["--description", "Closes #1"]);
    run_client(forge, "glab", clone, host, &args).await
}

/// A label, a note, a merge request, a thread on it and its merge, by `glab`.
async fn glab(forge: &Forge) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let run = async |line: &str| {
        let args: Vec<&str> = line.split(' ').chain(["--repo", PROJECT]).collect();
        command_line(forge, "glab", folder.path(), &args).await
    };
    let said = |text: &str, part: &str| match text.contains(part) {
        true => Ok(()),
        false => Err(format!("{part:?} is missing: {text}")),
    };
    run("issue create --title Walk --description text --label bug --yes").await?;
    run("issue update 1 --label wanted --unlabel bug").await?;
    run("issue note 1 --message hello").await?;
    let issues = run("issue list --label wanted").await?;
    said(&issues, "Walk")?;
    let issue = run("issue view 1 --comments").await?;
    for part in ["Walk", "wanted", "hello", "open"] {
        said(&issue, part)?;
    }
    let made = create(forge, &folder.path().join("project")).await?;
    said(&made, "/merge_requests/1")?;
    let requests = run("mr list --draft").await?;
    said(&requests, "Draft: Work")?;
    run("mr note 1 --message good").await?;
    resolve(forge, folder.path(), &said).await?;
    run("mr update 1 --ready").await?;
    run("mr merge 1 --yes").await?;
    let request = run("mr view 1 --output json").await?;
    said(&request, "\"merged\"")?;
    let issue = run("issue view 1").await?;
    said(&issue, "closed")
}

/// Resolves the thread on merge request 1, for which `glab` has no command of its own.
async fn resolve(
    forge: &Forge,
    home: &Path,
    said: &impl Fn(&str, &str) -> Result<(), String>,
) -> Result<(), String> {
    let request = forge.merge_request(PROJECT, 1);
    forge.add_line_comment(PROJECT, request, ("new.txt", 1), "Here.");
    let project = PROJECT.replace('/', "%2F");
    let threads = format!("projects/{project}/merge_requests/1/discussions");
    let listed = command_line(forge, "glab", home, &["api", &threads]).await?;
    let listed: Vec<serde_json::Value> =
        serde_json::from_str(&listed).map_err(|error| format!("{error}: {listed}"))?;
    let is_open = |thread: &&serde_json::Value| thread["notes"][0]["resolvable"] == true;
    let thread = listed.iter().find(is_open).ok_or("no thread is open")?;
    let id = thread["id"].as_str().ok_or("a thread has no id")?;
    let thread = format!("{threads}/{id}?resolved=true");
    let resolved = command_line(forge, "glab", home, &["api", "--method", "PUT", &thread]).await?;
    said(&resolved, "\"resolved\":true")
}

#[tokio::test]
async fn glab_walks_the_fake_gitlab_and_notices_what_is_missing() {
    let fields = [
        ("GET", "/issues?", "title"),
        ("GET", "/issues/1", "labels"),
        ("GET", "/issues/1/notes", "body"),
        ("POST", "/merge_requests", "web_url"),
        ("GET", "/discussions", "notes"),
        ("GET", "/merge_requests/1", "state"),
    ];
    walks(gitlab, glab, &fields).await;
}

/// Labels, comments and pages, by `gh api`.
async fn gh_api(forge: &Forge) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let run = async |args: &[&str]| {
        let args: Vec<&str> = ["api"].into_iter().chain(args.iter().copied()).collect();
        command_line(forge, "gh", folder.path(), &args).await
    };
    let expect = |seen: String, expected: &str| match seen == expected {
        true => Ok(()),
        false => Err(format!("{seen:?}, expected {expected:?}")),
    };
    let issues = format!("repos/{DEMO}/issues");
    for n in 1..=3 {
        let title = format!("title=Page {n}");
        let made = run(&[
            &issues,
            "-f",
            &title,
            "-f",
            "labels[]=bug",
            "--jq",
            ".number",
        ])
        .await?;
        expect(made, &format!("{n}\n"))?;
    }
    let pages = format!("{issues}?per_page=1&labels=bug");
    let numbers = run(&[&pages, "--paginate", "--jq", ".[].number"]).await?;
    expect(numbers, "3\n2\n1\n")?;
    let comments = format!("{issues}/1/comments");
    run(&[&comments, "-f", "body=hello"]).await?;
    let comments = run(&[&comments, "--jq", ".[] | .user.login + \": \" + .body"]).await?;
    expect(comments, &format!("{HUMAN}: hello\n"))?;
    run(&["-X", "PATCH", &format!("{issues}/1"), "-f", "state=closed"]).await?;
    let state = run(&[&format!("{issues}/1"), "--jq", ".state"]).await?;
    expect(state, "closed\n")
}

#[tokio::test]
async fn gh_api_walks_the_fake_github_and_notices_what_is_missing() {
    let world = async || {
        let forge = Forge::start_tls().await;
        forge.add_repo(DEMO, write_demo);
        forge
    };
    let fields = [
        ("GET", "/issues?", "number"),
        ("GET", "/issues/1/comments", "body"),
        ("GET", "/issues/1", "state"),
    ];
    walks(world, gh_api, &fields).await;
}

/// Issues and a pull request by the commands of `gh`, which ask GraphQL alone.
async fn gh(forge: &Forge) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let run = async |line: &str| {
        let args: Vec<&str> = line.split(' ').chain(["--repo", DEMO]).collect();
        command_line(forge, "gh", folder.path(), &args).await
    };
    let said = |text: &str, parts: &[&str]| {
        let missing: Vec<_> = parts.iter().filter(|part| !text.contains(**part)).collect();
        match missing.as_slice() {
            [] => Ok(()),
            missing => Err(format!("{missing:?} are missing: {text}")),
        }
    };
    said(
        &run("issue list").await?,
        &["1\tOPEN\tWalk\tbug", "2\tOPEN\tOther"],
    )?;
    let labelled = run("issue list --label bug").await?;
    said(&labelled, &["Walk"])?;
    if labelled.contains("Other") {
        return Err(format!("it has no such label: {labelled}"));
    }
    run("issue comment 1 --body hello").await?;
    let issue = run("issue view 1 --comments").await?;
    said(&issue, &[&format!("author:\t{HUMAN}"), "hello"])?;
    let issue = run("issue view 1").await?;
    said(
        &issue,
        &[
            "title:\tWalk",
            "state:\tOPEN",
            "labels:\tbug",
            "It should walk.",
        ],
    )?;
    run("issue close 2").await?;
    said(&run("issue list --state closed").await?, &["Other"])?;
    said(&run("pr list").await?, &["3\tWork\twork\tOPEN"])?;
    let pull = run("pr view 3").await?;
    said(
        &pull,
        &[
            "title:\tWork",
            "state:\tOPEN",
            "labels:\tready",
            "reviewers:\tlena (Approved)",
        ],
    )?;
    run("pr merge 3 --merge").await?;
    let state = run("pr view 3 --json state,headRefName --jq .state+.headRefName").await?;
    match state.trim() {
        "MERGEDwork" => Ok(()),
        other => Err(format!("it is {other}")),
    }
}

#[tokio::test]
async fn commands_of_gh_walk_the_fake_github_and_notice_what_is_missing() {
    let world = async || {
        let forge = Forge::start_tls().await;
        forge.add_repo(DEMO, write_demo);
        add_work(&forge, DEMO);
        forge.add_issue(DEMO, "Walk", "It should walk.", &["bug"]);
        forge.add_issue(DEMO, "Other", "Another one.", &[]);
        forge.add_pull(DEMO, "work", "main", "Work", &["ready"]);
        forge.add_review_as(DEMO, 3, "lena", "APPROVED", "Good.");
        forge
    };
    gh(&world().await).await.unwrap();
    let fields = [
        "number",
        "title",
        "state",
        "labels",
        "login",
        "body",
        "headRefName",
        "reviews",
    ];
    let fields = fields.map(|field| ("POST", "/graphql", field));
    walks(world, gh, &fields).await;
}

/// An issue and a pull request by `gh`, with the label that requests work: the fleet finds both.
async fn gh_creates(forge: &Forge) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let create = async |kind: &str, more: &[&str]| {
        let fixed = [
            kind, "create", "--repo", DEMO, "--title", "Made", "--label", REQUEST,
        ];
        let args: Vec<&str> = fixed.iter().chain(more).copied().collect();
        let url = command_line(forge, "gh", folder.path(), &args).await?;
        let number = url.trim().rsplit('/').next().map(str::parse);
        number
            .and_then(Result::<u64, _>::ok)
            .ok_or(format!("no address: {url:?}"))
    };
    let issue = create("issue", &["--body", "It should greet."]).await?;
    let more = ["--body", "It greets.", "--head", "work", "--base", "main"];
    let pull = create("pr", &more).await?;
    let tracker = GitHubTracker::new(&forge.config(&[DEMO])).unwrap();
    let found = tracker.candidates(REQUEST).await.unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|it| (it.item.kind, it.item.number, it.title.as_str()))
        .collect();
    let expected = [
        (ItemKind::Issue, issue, "Made"),
        (ItemKind::PullRequest, pull, "Made"),
    ];
    match found == expected {
        true => Ok(()),
        false => Err(format!("the fleet finds {found:?}")),
    }
}

#[tokio::test]
async fn what_gh_creates_is_found_by_the_fleet_and_gh_notices_what_is_missing() {
    let world = async || {
        let forge = Forge::start_tls().await;
        forge.add_repo(DEMO, write_demo);
        add_work(&forge, DEMO);
        forge
    };
    let fields = [
        "id",
        "hasIssuesEnabled",
        "issue",
        "createPullRequest",
        "url",
    ];
    let fields = fields.map(|field| ("POST", "/graphql", field));
    walks(world, gh_creates, &fields).await;
}
