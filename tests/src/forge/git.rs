//! The forge's repositories: real git over HTTP, by git's services or by `git http-backend` as CGI.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use axum::body::Body;
use axum::response::Response;
use bytes::{Buf, Bytes, BytesMut};
use futures::StreamExt;
use http::{HeaderMap, Method, Request, StatusCode, header};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::io::ReaderStream;

use super::state::Account;

/// Appends each accepted update to two files, for [`super::Forge::pushes`] and [`super::Forge::pushes_by_client`].
const HOOK: &str = "#!/bin/sh\nwhile read -r old new ref; do\n  \
    printf '%s %s %s %s\\n' \"$REMOTE_USER\" \"$old\" \"$new\" \"$ref\" >> pushes\n  \
    printf '%s %s %s %s %s\\n' \"$(date +%s%N)\" \"$FORGE_CLIENT\" \"$old\" \"$new\" \"$ref\" >> pushes.clients\n\
    done\n";

/// The settings of each repository, beside those of git.
const CONFIG: &str = "[http]\n\treceivepack = true\n[receive]\n\tautogc = false\n[gc]\n\tauto = 0\n\
    [uploadpack]\n\tallowFilter = true\n\tallowReachableSHA1InWant = true\n[core]\n\tlogAllRefUpdates = true\n";

/// The program of `git http-backend`: started by itself it is one process less for each request.
static HTTP_BACKEND: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Command::new("git").arg("--exec-path").output();
    let folder = folder.expect("git runs").stdout;
    PathBuf::from(String::from_utf8_lossy(&folder).trim()).join("git-http-backend")
});

/// Git without the machine's own configuration and environment.
fn command() -> Command {
    of_git(Path::new("git"))
}

fn of_git(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GIT_") {
            command.env_remove(name);
        }
    }
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        // No sample hooks in each repository.
        .env("GIT_TEMPLATE_DIR", "");
    for who in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{who}_NAME"), "Octo Cat")
            .env(format!("GIT_{who}_EMAIL"), "octo@example.invalid");
    }
    command
}

fn run(dir: &Path, args: &[&str]) -> Output {
    command()
        .arg("-C")
        .arg(dir)
        .args(args)
        .output()
        .expect("git runs")
}

/// Git's output; it must succeed.
pub(super) fn must(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Git's output, if it succeeds.
pub(super) fn try_out(dir: &Path, args: &[&str]) -> Option<String> {
    let output = run(dir, args);
    let text = || String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(text)
}

/// Creates a bare repository whose branch contains the files that `seed` wrote into a folder.
pub(super) fn create(git_dir: &Path, branch: &str, seed: impl FnOnce(&Path)) {
    let tree = tempfile::tempdir().expect("a temporary folder");
    seed(tree.path());
    std::fs::create_dir_all(git_dir).expect("the forge's folder can be written");
    must(git_dir, &["init", "-q", "--bare", "-b", branch]);
    let config = git_dir.join("config");
    let before = std::fs::read_to_string(&config).expect("git's configuration");
    std::fs::write(&config, before + CONFIG).expect("the configuration can be written");
    // The bare repository has a work tree for these two: no second one is needed, and no push.
    let place = format!("--git-dir={}", git_dir.display());
    let place = [place.as_str(), "--work-tree=."];
    for args in [
        &["add", "-A", "-f"][..],
        &["commit", "-q", "--allow-empty", "-m", "Start"],
    ] {
        must(tree.path(), &[&place[..], args].concat());
    }
    // Without files there is none.
    let _ = std::fs::remove_file(git_dir.join("index"));
    let hook = git_dir.join("hooks/post-receive");
    std::fs::create_dir_all(git_dir.join("hooks")).expect("hooks folder");
    std::fs::write(&hook, HOOK).expect("the hook can be written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&hook, mode).expect("the hook can be made executable");
}

/// Commits the changes that `change` makes to a branch's files, as if a person had pushed them.
pub(super) fn commit(git_dir: &Path, branch: &str, from: &str, change: impl FnOnce(&Path)) {
    let tree = tempfile::tempdir().expect("a temporary folder");
    let source = git_dir.to_string_lossy();
    must(
        tree.path(),
        &["clone", "-q", "--branch", from, source.as_ref(), "."],
    );
    change(tree.path());
    must(tree.path(), &["add", "-A", "-f"]);
    must(
        tree.path(),
        &["commit", "-q", "--allow-empty", "-m", "A person's change"],
    );
    let spec = format!("HEAD:refs/heads/{branch}");
    must(tree.path(), &["push", "-q", "origin", &spec]);
}

/// Merges a branch into another one, as the forge's button does; `false` if they conflict.
pub(super) fn merge(git_dir: &Path, head: &str, base: &str) -> bool {
    let tree = tempfile::tempdir().expect("a temporary folder");
    let source = git_dir.to_string_lossy();
    must(
        tree.path(),
        &["clone", "-q", "--branch", base, source.as_ref(), "."],
    );
    let from = format!("origin/{head}");
    let message = format!("Merge branch '{head}'");
    let merged = ["merge", "-q", "--no-ff", "-m", &message, &from];
    if try_out(tree.path(), &merged).is_none() {
        return false;
    }
    let spec = format!("HEAD:refs/heads/{base}");
    must(tree.path(), &["push", "-q", "origin", &spec]);
    true
}

/// Whether the branches merge without a conflict.
pub(super) fn can_merge(git_dir: &Path, head: &str, base: &str) -> bool {
    let [head, base] = [head, base].map(|name| format!("refs/heads/{name}"));
    try_out(git_dir, &["merge-tree", "--write-tree", &base, &head]).is_some()
}

/// Whether there was one.
pub(super) fn remove_branch(git_dir: &Path, branch: &str) -> bool {
    let name = format!("refs/heads/{branch}");
    let known = try_out(git_dir, &["rev-parse", "--verify", "--quiet", &name]).is_some();
    if known {
        // A forge keeps the last commit of a pull request.
        must(
            git_dir,
            &["update-ref", &format!("refs/removed/{branch}"), &name],
        );
        must(git_dir, &["update-ref", "-d", &name]);
    }
    known
}

/// The commit that a removed branch was at.
pub(super) fn removed_sha(git_dir: &Path, branch: &str) -> Option<String> {
    let name = format!("refs/removed/{branch}");
    let text = try_out(git_dir, &["rev-parse", "--verify", "-q", &name])?;
    Some(text.trim().to_owned())
}

pub(super) fn branch_sha(git_dir: &Path, branch: &str) -> Option<String> {
    if branch.contains("..") {
        return None;
    }
    // Nothing packs these refs, so reading the file nearly always works, and is cheap.
    if let Ok(text) = std::fs::read_to_string(git_dir.join("refs/heads").join(branch)) {
        return Some(text.trim().to_owned());
    }
    if !git_dir.join("packed-refs").exists() {
        return None;
    }
    let name = format!("refs/heads/{branch}");
    let text = try_out(git_dir, &["rev-parse", "--verify", "-q", &name])?;
    Some(text.trim().to_owned())
}

/// A request of smart HTTP (gitprotocol-http(5)) that git's own services answer.
struct Service {
    name: &'static str,
    /// Whether it asks for the refs.
    lists: bool,
    /// Whether the answer begins with the name of the service, which version 2 omits.
    named: bool,
}

impl Service {
    /// `None` if it takes `git http-backend`: it unpacks requests, knows older forms, and words errors.
    fn of(git_dir: &Path, rest: &str, request: &http::request::Parts) -> Option<Self> {
        let text = |name: &str| request.headers.get(name)?.to_str().ok();
        let asked = (
            &request.method,
            rest,
            request.uri.query().unwrap_or_default(),
        );
        let (name, lists) = match asked {
            (&Method::GET, "info/refs", "service=git-upload-pack") => ("upload-pack", true),
            (&Method::GET, "info/refs", "service=git-receive-pack") => ("receive-pack", true),
            (&Method::POST, "git-upload-pack", "") => ("upload-pack", false),
            (&Method::POST, "git-receive-pack", "") => ("receive-pack", false),
            _ => return None,
        };
        let is_plain = text("content-encoding").is_none();
        let has_type =
            lists || text("content-type") == Some(&format!("application/x-git-{name}-request"));
        let version = text("git-protocol").unwrap_or_default();
        let named = lists && !version.split(':').any(|it| it == "version=2");
        let there = git_dir.join("HEAD").is_file();
        (is_plain && has_type && there).then_some(Self { name, lists, named })
    }

    fn command(&self, git_dir: &Path) -> Command {
        let mut command = command();
        command.args([self.name, "--stateless-rpc"]);
        if self.lists {
            command.arg("--http-backend-info-refs");
        }
        command.arg(".").current_dir(git_dir);
        command
    }

    /// What a web server and `git http-backend` say before the service does.
    fn head(&self) -> (HeaderMap, Bytes) {
        let Self { name, lists, named } = self;
        let kind = if *lists { "advertisement" } else { "result" };
        let kind = format!("application/x-git-{name}-{kind}");
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, kind.parse().expect("a plain value"));
        let stale = "no-cache, max-age=0, must-revalidate";
        headers.insert(
            header::CACHE_CONTROL,
            header::HeaderValue::from_static(stale),
        );
        let line = format!("# service=git-{name}\n");
        let first = match named {
            true => format!("{:04x}{line}0000", line.len() + 4),
            false => String::new(),
        };
        (headers, first.into())
    }
}

/// Runs a service of git's, or `git http-backend`, for one request and streams both ways.
pub(super) async fn serve(
    git_dir: &Path,
    rest: &str,
    account: &Account,
    request: Request<Body>,
) -> std::io::Result<Response> {
    let (parts, body) = request.into_parts();
    let text = |name: &str| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let root = git_dir.parent().unwrap_or(git_dir);
    let name = git_dir.file_name().unwrap_or_default().to_string_lossy();
    let service = Service::of(git_dir, rest, &parts);
    let command = match &service {
        Some(service) => service.command(git_dir),
        None => of_git(&HTTP_BACKEND),
    };
    let mut command = tokio::process::Command::from(command);
    command
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", format!("/{name}/{rest}"))
        .env("QUERY_STRING", parts.uri.query().unwrap_or_default())
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("REMOTE_USER", &account.login)
        .env("FORGE_CLIENT", &account.client)
        .env("REMOTE_ADDR", "127.0.0.1")
        .env("SERVER_PROTOCOL", "HTTP/1.1");
    for (variable, header) in [
        ("CONTENT_TYPE", "content-type"),
        ("CONTENT_LENGTH", "content-length"),
        ("HTTP_CONTENT_ENCODING", "content-encoding"),
        ("GIT_PROTOCOL", "git-protocol"),
    ] {
        if let Some(value) = text(header) {
            command.env(variable, value);
        }
    }
    command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    tokio::spawn(async move {
        let mut body = body.into_data_stream();
        if let Some(mut stdin) = stdin {
            while let Some(Ok(chunk)) = body.next().await {
                if stdin.write_all(&chunk).await.is_err() {
                    break;
                }
            }
        }
    });
    let Some(mut stdout) = child.stdout.take() else {
        return Err(std::io::Error::other("no stdout"));
    };
    let (status, headers, first) = match service {
        Some(service) => {
            let (headers, first) = service.head();
            (StatusCode::OK, headers, first)
        }
        None => cgi_head(&mut stdout).await?,
    };
    let first = futures::stream::iter([Ok(first)]);
    let rest = ReaderStream::new(stdout);
    // The child lives as long as the body does.
    let all = first.chain(rest).map(move |chunk| {
        let _alive = &child;
        chunk
    });
    let mut response = Response::new(Body::from_stream(all));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// The head of a CGI program's answer, and what was read after it.
async fn cgi_head(
    stdout: &mut tokio::process::ChildStdout,
) -> std::io::Result<(StatusCode, HeaderMap, Bytes)> {
    let mut head = BytesMut::new();
    let end = loop {
        if let Some(at) = head.windows(4).position(|part| part == b"\r\n\r\n") {
            break at;
        }
        if stdout.read_buf(&mut head).await? == 0 || head.len() > 64 << 10 {
            return Err(std::io::Error::other("http-backend ended without headers"));
        }
    };
    let (status, headers) = cgi_headers(&head[..end]);
    head.advance(end + 4);
    Ok((status, headers, head.freeze()))
}

fn cgi_headers(head: &[u8]) -> (StatusCode, HeaderMap) {
    let mut status = StatusCode::OK;
    let mut headers = HeaderMap::new();
    for line in String::from_utf8_lossy(head).lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        if name.eq_ignore_ascii_case("status") {
            let code = value.split(' ').next().and_then(|code| code.parse().ok());
            status = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        } else if let (Ok(name), Ok(value)) = (
            name.parse::<header::HeaderName>(),
            value.parse::<header::HeaderValue>(),
        ) {
            headers.insert(name, value);
        }
    }
    (status, headers)
}
