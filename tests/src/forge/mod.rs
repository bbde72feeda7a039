//! A stateful server that speaks the REST APIs of GitHub and GitLab, with a real git backend behind both.
//!
//! It records every write, faults can be injected, and a person can look at it with a browser. It
//! implements the part of each that the trackers use, with their own error messages, and answers
//! everything else with 404. Only the git repositories outlive the process.
#![expect(
    clippy::expect_used,
    reason = "a harness: a fault of its own has to end the test at once"
)]

mod apps;
mod checks;
mod fault;
mod faults_of_people;
mod gh;
mod gh_create;
mod git;
mod gitlab;
mod graphql;
mod hooks;
mod issues;
mod listen;
mod markdown;
mod organizations;
mod page;
mod people;
mod protection;
mod pulls;
mod reactions;
mod rest;
mod search;
mod seed;
mod selection;
mod server;
mod shapes;
mod state;
mod threads;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_runtime::config::{GitHub, GitLab, Secret};
use chrono::Utc;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use url::Url;

pub use apps::{App, Installation};
pub use fault::Fault;
pub use graphql::AskedGraphql;
pub use hooks::{Delivery, Hook, Order, Sending, Sent};
pub use issues::IssueView;
pub use reactions::Reaction;
pub use seed::{DEMO, DEMO_BODY, DEMO_TITLE, write_demo};
pub use state::{Account, CommentView, Keyset, LabelEvent, Partition, PullView, Push, Seen, Write};

use hooks::Locked;
use listen::{Listening, TlsListener};
use state::{Issue, Pull, Repo, ReviewOf, State};

/// The login of [`Forge::token`].
pub const BOT: &str = "agentmine-bot";
/// The login of [`Forge::human_token`].
pub const HUMAN: &str = "mona";

/// Shared by the request handlers.
struct Inner {
    state: Mutex<State>,
    changed: Notify,
    /// A partition ended.
    healed: Notify,
    git_root: PathBuf,
    api_url: Url,
    /// The host of logs, without a slash at its end.
    logs: String,
}

impl Inner {
    /// The state, whose changes are noted for the webhooks when it is released.
    fn lock(&self) -> Locked<'_> {
        let state = self.state.lock();
        Locked::new(self, state.unwrap_or_else(PoisonError::into_inner))
    }

    fn html(&self, rest: &str) -> String {
        let mut url = self.api_url.clone();
        url.set_path(rest);
        url.to_string()
    }

    fn api(&self, rest: &str) -> String {
        format!("{}{rest}", self.api_url)
    }
}

/// A running forge. It stops when this is dropped.
pub struct Forge {
    inner: Arc<Inner>,
    token: String,
    human_token: String,
    reader_token: String,
    server: AbortHandle,
    folder: Option<TempDir>,
    /// The certificate of its authority, if it speaks TLS alone.
    authority: Option<PathBuf>,
}

impl Drop for Forge {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Forge {
    /// Starts a forge on a free port, with its repositories in a temporary folder.
    ///
    /// # Panics
    /// If it cannot listen or write.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let unique = uuid::Uuid::new_v4().simple();
        let token = format!("ghp_canary{unique}");
        let mut forge = Self::serve(listener, folder.path(), &token);
        forge.folder = Some(folder);
        forge
    }

    /// The same, over TLS under its own authority.
    ///
    /// # Panics
    /// If it cannot listen or write.
    pub async fn start_tls() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let (acceptor, authority) = listen::certified().expect("certificates can be made");
        let file = folder.path().join("authority.pem");
        std::fs::write(&file, authority).expect("the forge's folder can be written");
        let unique = uuid::Uuid::new_v4().simple();
        let token = format!("glpat-canary{unique}");
        let listener = Listening::Tls(TlsListener {
            tcp: listener,
            acceptor,
        });
        let mut forge = Self::serve_on(listener, folder.path(), &token);
        forge.folder = Some(folder);
        forge.authority = Some(file);
        forge
    }

    /// Serves on a listener, with the repositories in `folder` and `token` for the bot.
    ///
    /// # Panics
    /// If the listener has no address.
    pub fn serve(listener: TcpListener, folder: &Path, token: &str) -> Self {
        Self::serve_on(Listening::Plain(listener), folder, token)
    }

    fn serve_on(listener: Listening, folder: &Path, token: &str) -> Self {
        let address: SocketAddr = listener.address().expect("a bound listener");
        let base = format!("{}://{address}/api/v3/", listener.scheme());
        let logs = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        logs.set_nonblocking(true).expect("a socket");
        let logs_at = logs.local_addr().expect("a bound listener");
        let inner = Arc::new(Inner {
            state: Mutex::default(),
            changed: Notify::new(),
            healed: Notify::new(),
            git_root: folder.to_path_buf(),
            api_url: Url::parse(&base).expect("an address is a URL"),
            logs: format!("http://{logs_at}"),
        });
        checks::serve_logs(&inner, logs);
        let handler = inner.clone();
        let app = axum::Router::new()
            .fallback(move |request| server::handle(handler.clone(), request))
            .layer(axum::extract::DefaultBodyLimit::disable());
        let task = tokio::spawn(async move {
            match listener {
                Listening::Plain(listener) => axum::serve(listener, app).await,
                Listening::Tls(listener) => axum::serve(listener, app).await,
            }
        });
        let other = |kind: &str| format!("ghp_{kind}{}", uuid::Uuid::new_v4().simple());
        let forge = Self {
            inner,
            token: token.to_owned(),
            human_token: other("human"),
            reader_token: other("reader"),
            server: task.abort_handle(),
            folder: None,
            authority: None,
        };
        forge.add_account(token, BOT, true);
        forge.add_account(&forge.human_token, HUMAN, true);
        forge.add_account(&forge.reader_token, "reader", false);
        forge
    }

    /// The token that AgentMine gets: [`BOT`]'s, which may write.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// A person's token: [`HUMAN`]'s, which may write.
    pub fn human_token(&self) -> &str {
        &self.human_token
    }

    /// A token that may only read.
    pub fn reader_token(&self) -> &str {
        &self.reader_token
    }

    /// Makes an issue depend on another one, as a person does on its page.
    pub fn block(&self, repo: &str, number: u64, by: u64) {
        self.block_by(repo, number, (repo, by));
    }

    /// The same, where the other issue may be one of another repository.
    pub fn block_by(&self, repo: &str, number: u64, (other, by): (&str, u64)) {
        let mut state = self.inner.lock();
        let key = (repo.to_owned(), number);
        let blocked = state.blocked.entry(key).or_default();
        blocked.push((other.to_owned(), by));
    }

    /// Lets everybody read a repository, or its members alone.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn publish(&self, repo: &str, public: bool) {
        self.with_repo_mut(repo, |repo| repo.public = public);
    }

    /// Adds an App, installed for the owner of each of these repositories' names.
    pub fn add_app(&self, app: App) {
        self.inner.lock().apps.push(app);
    }

    /// Changes the Apps.
    pub fn change_apps(&self, change: impl FnOnce(&mut Vec<App>)) {
        change(&mut self.inner.lock().apps);
    }

    /// The tokens that installations got, each with what was requested.
    pub fn minted(&self) -> Vec<(String, serde_json::Value)> {
        self.inner.lock().minted.clone()
    }

    /// The tokens that were revoked.
    pub fn revoked(&self) -> Vec<String> {
        self.inner.lock().revoked.clone()
    }

    /// Adds a valid token.
    pub fn add_account(&self, token: &str, login: &str, may_write: bool) {
        let account = Account {
            login: login.to_owned(),
            may_write,
            is_app: login.ends_with("[bot]"),
            client: String::new(),
            grant: None,
        };
        self.inner.lock().accounts.insert(token.to_owned(), account);
    }

    /// A token of [`BOT`] for one program, whose name is then in the records of its writes.
    pub fn add_client(&self, client: &str) -> String {
        let token = format!("ghp_client{}", uuid::Uuid::new_v4().simple());
        let account = Account {
            login: BOT.to_owned(),
            may_write: true,
            is_app: false,
            client: client.to_owned(),
            grant: None,
        };
        self.inner.lock().accounts.insert(token.clone(), account);
        token
    }

    /// Breaks the network between a client and the forge, or repairs it.
    pub fn partition(&self, client: &str, partition: Option<Partition>) {
        let mut state = self.inner.lock();
        match partition {
            Some(partition) => state.partitions.insert(client.to_owned(), partition),
            None => state.partitions.remove(client),
        };
        drop(state);
        self.inner.healed.notify_waiters();
    }

    /// Revokes a token.
    pub fn revoke(&self, token: &str) {
        self.inner.lock().accounts.remove(token);
    }

    /// Base of the REST API, for `trackers.github.api_url`.
    pub fn api_url(&self) -> Url {
        self.inner.api_url.clone()
    }

    /// The value of `trackers.github` for these repositories.
    pub fn config(&self, repositories: &[&str]) -> GitHub {
        GitHub {
            api_url: self.api_url(),
            token: Some(Secret::new(self.token.clone())),
            repositories: repositories.iter().map(|&name| name.to_owned()).collect(),
            ca_file: self.authority.clone(),
            ..GitHub::default()
        }
    }

    /// Base of GitLab's REST API, for `trackers.gitlab.api_url`.
    pub fn gitlab_url(&self) -> Url {
        let mut url = self.api_url();
        url.set_path("/api/v4/");
        url
    }

    /// The value of `trackers.gitlab` for these projects.
    pub fn gitlab_config(&self, projects: &[&str]) -> GitLab {
        GitLab {
            api_url: self.gitlab_url(),
            token: Some(Secret::new(self.token.clone())),
            ca_file: self.authority.clone(),
            projects: projects.iter().map(|&name| name.to_owned()).collect(),
            ..GitLab::default()
        }
    }

    /// The certificate of its authority, PEM, if it speaks TLS alone.
    pub fn authority(&self) -> Option<&Path> {
        self.authority.as_deref()
    }

    /// GitLab's quick actions that ran, as `LOGIN /close`. Those of [`BOT`] are leaks.
    pub fn quick_actions(&self) -> Vec<String> {
        self.inner.lock().quick_actions.clone()
    }

    /// What becomes of GitLab's `pagination=keyset` from now on.
    pub fn serve_keyset(&self, keyset: Keyset) {
        self.inner.lock().keyset = keyset;
    }

    /// Makes a namespace that of a user, which GitLab does not list as a group.
    pub fn make_user_namespace(&self, name: &str) {
        self.inner.lock().users.insert(name.to_owned());
    }

    /// Adds a repository that is not served over git.
    pub fn add_repo_without_git(&self, full_name: &str) {
        let root = self.inner.git_root.clone();
        self.inner.lock().add_repo(full_name, &root, "main");
    }

    /// The id of a repository, or of a project.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn repo_id(&self, full_name: &str) -> u64 {
        self.with_repo(full_name, |repo| repo.id)
    }

    /// Lets everything that happened to items have happened earlier.
    pub fn age(&self, by: chrono::TimeDelta) {
        let mut state = self.inner.lock();
        for issue in state.repos.iter_mut().flat_map(|repo| &mut repo.issues) {
            issue.created_at -= by;
            issue.updated_at -= by;
            issue.events.iter_mut().for_each(|event| event.at -= by);
        }
    }

    /// A person makes an issue confidential.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn make_confidential(&self, repo: &str, number: u64) {
        self.with_repo_mut(repo, |repo| {
            if let Some(issue) = repo.issue_mut(number) {
                issue.confidential = true;
                issue.updated_at = Utc::now();
            }
        });
    }

    /// A person writes an internal note.
    ///
    /// # Panics
    /// If there is no such issue.
    pub fn add_internal_note(&self, repo: &str, number: u64, body: &str) {
        self.add_comment(repo, number, HUMAN, body);
        self.with_repo_mut(repo, |repo| {
            let issue = repo.issue_mut(number).expect("the issue exists");
            let note = issue.comments.last_mut().expect("it was added");
            note.internal = true;
        });
    }

    /// The address of the web page; git is served below it as `OWNER/NAME.git`.
    pub fn html_url(&self) -> Url {
        let mut url = self.api_url();
        url.set_path("/");
        url
    }

    /// The address to clone a repository from, without credentials.
    ///
    /// # Panics
    /// If `repo` cannot be part of a URL.
    pub fn git_url(&self, repo: &str) -> Url {
        let url = self.inner.html(&format!("{repo}.git"));
        Url::parse(&url).expect("a repository's name is a path")
    }

    /// Adds a repository whose branch `main` contains the files that `seed` writes into a folder.
    ///
    /// # Panics
    /// If git fails.
    pub fn add_repo(&self, full_name: &str, seed: impl FnOnce(&Path)) {
        let git_dir = self
            .inner
            .lock()
            .add_repo(full_name, &self.inner.git_root, "main");
        git::create(&git_dir, "main", seed);
    }

    /// Renames a repository; the old name then redirects, as on GitHub.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn rename_repo(&self, from: &str, to: &str) {
        self.with_repo_mut(from, |repo| {
            let old = std::mem::replace(&mut repo.full_name, to.to_owned());
            repo.former_names.push(old);
        });
    }

    /// Makes a repository refuse drafts, as private repositories on free plans do.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn refuse_drafts(&self, repo: &str) {
        self.with_repo_mut(repo, |repo| repo.allows_drafts = false);
    }

    /// A person opens an issue with labels; returns its number.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn add_issue(&self, repo: &str, title: &str, body: &str, labels: &[&str]) -> u64 {
        let labels: Vec<String> = labels.iter().map(|&label| label.to_owned()).collect();
        let number = self
            .inner
            .lock()
            .add_issue(repo, HUMAN, (title, body), &labels, None);
        self.inner.changed.notify_waiters();
        number.expect("the repository exists")
    }

    /// A person opens a pull request from an existing branch; returns its number.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn add_pull(
        &self,
        repo: &str,
        head: &str,
        base: &str,
        title: &str,
        labels: &[&str],
    ) -> u64 {
        self.add_pull_as(HUMAN, repo, (head, base), title, labels)
    }

    /// The same by somebody else.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn add_pull_as(
        &self,
        author: &str,
        repo: &str,
        (head, base): (&str, &str),
        title: &str,
        labels: &[&str],
    ) -> u64 {
        let labels: Vec<String> = labels.iter().map(|&label| label.to_owned()).collect();
        let pull = Pull::new(head, base, false);
        let mut state = self.inner.lock();
        let number = state.add_issue(repo, author, (title, ""), &labels, Some(pull));
        number.expect("the repository exists")
    }

    /// A person adds a label.
    pub fn add_label(&self, repo: &str, number: u64, label: &str) {
        self.inner.lock().label(repo, number, label, HUMAN, true);
        self.inner.changed.notify_waiters();
    }

    /// A person removes a label.
    pub fn remove_label(&self, repo: &str, number: u64, label: &str) {
        self.inner.lock().label(repo, number, label, HUMAN, false);
        self.inner.changed.notify_waiters();
    }

    /// A person, or the given `author`, comments.
    pub fn add_comment(&self, repo: &str, number: u64, author: &str, body: &str) {
        self.inner.lock().comment(repo, number, author, body);
        self.inner.changed.notify_waiters();
    }

    /// A person reviews a pull request, with `CHANGES_REQUESTED` or another verdict.
    ///
    /// # Panics
    /// If there is no such pull request.
    pub fn add_review(&self, repo: &str, number: u64, verdict: &str, body: &str) {
        let of = ReviewOf::Verdict(verdict.to_owned());
        self.review(repo, number, (HUMAN, body), of);
    }

    /// A person comments on a line of a pull request's diff.
    ///
    /// # Panics
    /// If there is no such pull request.
    pub fn add_line_comment(&self, repo: &str, number: u64, place: (&str, u64), body: &str) {
        let place = ReviewOf::Line(place.0.to_owned(), place.1);
        self.review(repo, number, (HUMAN, body), place);
    }

    /// Moves all comments, reviews and edits of an issue back by a second: times are shown in whole seconds, so what is
    /// said next would look as if it were said at the same time.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn let_a_second_pass(&self, repo: &str, number: u64) {
        let second = chrono::TimeDelta::seconds(1);
        self.with_repo_mut(repo, |repo| {
            let Some(issue) = repo.issue_mut(number) else {
                return;
            };
            issue.edits.iter_mut().for_each(|edit| edit.at -= second);
            for comment in &mut issue.comments {
                comment.created_at -= second;
                comment.updated_at -= second;
            }
            let reviews = issue.pull.iter_mut().flat_map(|pull| &mut pull.reviews);
            reviews.for_each(|review| review.at -= second);
        });
    }

    /// A person assigns an issue.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn assign(&self, repo: &str, number: u64, login: &str) {
        self.with_repo_mut(repo, |repo| {
            if let Some(issue) = repo.issue_mut(number) {
                issue.assignees.push(login.to_owned());
            }
        });
    }

    /// Who is assigned to an issue.
    ///
    /// # Panics
    /// If there is no such issue.
    pub fn assignees(&self, repo: &str, number: u64) -> Vec<String> {
        self.with_issue(repo, number, |issue| issue.assignees.clone())
    }

    /// A person unassigns an issue.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn unassign(&self, repo: &str, number: u64, login: &str) {
        self.with_repo_mut(repo, |repo| {
            if let Some(issue) = repo.issue_mut(number) {
                issue.assignees.retain(|assignee| assignee != login);
            }
        });
    }

    /// A person closes an issue or pull request.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn close(&self, repo: &str, number: u64) {
        self.with_repo_mut(repo, |repo| {
            if let Some(issue) = repo.issue_mut(number) {
                issue.open = false;
                issue.updated_at = Utc::now();
            }
        });
    }

    /// A person commits to a branch, which is created from `from` if it is new.
    ///
    /// # Panics
    /// If git fails or there is no such repository.
    pub fn commit(&self, repo: &str, branch: &str, from: &str, change: impl FnOnce(&Path)) {
        git::commit(&self.git_dir(repo), branch, from, change);
        self.inner.note_git();
    }

    /// A person removes a branch. What becomes of its pull request differs between forges.
    ///
    /// # Panics
    /// If there is no such repository or branch.
    pub fn remove_branch(&self, repo: &str, branch: &str) {
        let removed = git::remove_branch(&self.git_dir(repo), branch);
        assert!(removed, "the branch exists");
    }

    /// The bare repository on disk.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn git_dir(&self, repo: &str) -> PathBuf {
        self.with_repo(repo, |repo| repo.git_dir.clone())
    }

    /// The commit a branch is at.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn branch_sha(&self, repo: &str, branch: &str) -> Option<String> {
        git::branch_sha(&self.git_dir(repo), branch)
    }

    /// Names of all branches, sorted.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn branches(&self, repo: &str) -> Vec<String> {
        let format = "--format=%(refname:short)";
        let text = git::must(&self.git_dir(repo), &["for-each-ref", format, "refs/heads"]);
        text.lines().map(str::to_owned).collect()
    }

    /// A file's text at a branch.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn file_at(&self, repo: &str, branch: &str, path: &str) -> Option<String> {
        let place = format!("refs/heads/{branch}:{path}");
        git::try_out(&self.git_dir(repo), &["cat-file", "blob", &place])
    }

    /// The refs that pushes over HTTP changed, in order: `LOGIN OLD NEW REF`.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn pushes(&self, repo: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.git_dir(repo).join("pushes"));
        text.unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// The same with time and client, oldest first.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn pushes_by_client(&self, repo: &str) -> Vec<Push> {
        let text = std::fs::read_to_string(self.git_dir(repo).join("pushes.clients"));
        let push = |line: &str| {
            let [at, client, old, new, name] =
                <[&str; 5]>::try_from(line.split(' ').collect::<Vec<_>>()).ok()?;
            Some(Push {
                at: chrono::DateTime::from_timestamp_nanos(at.parse().ok()?),
                client: client.to_owned(),
                branch: name.strip_prefix("refs/heads/")?.to_owned(),
                old: old.to_owned(),
                new: new.to_owned(),
            })
        };
        text.unwrap_or_default().lines().filter_map(push).collect()
    }

    /// Whether an issue or pull request is open.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn is_open(&self, repo: &str, number: u64) -> bool {
        self.with_issue(repo, number, |issue| issue.open)
    }

    /// All pull requests, oldest first.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn pulls(&self, repo: &str) -> Vec<PullView> {
        self.with_repo(repo, |repo| {
            let pulls = repo
                .issues
                .iter()
                .filter_map(|issue| self.pull_view(repo, issue));
            pulls.collect()
        })
    }

    fn pull_view(&self, repo: &Repo, issue: &Issue) -> Option<PullView> {
        let pull = issue.pull.as_ref()?;
        Some(PullView {
            number: issue.number,
            iid: issue.iid,
            head: pull.head.clone(),
            head_sha: repo.sha(&pull.head).unwrap_or_default(),
            base: pull.base.clone(),
            title: issue.title.clone(),
            body: issue.body.clone(),
            open: issue.open,
            draft: pull.draft,
            author: issue.author.clone(),
            url: self
                .inner
                .html(&format!("{}/{}", repo.full_name, issue.number)),
        })
    }

    /// Labels of an issue or pull request.
    ///
    /// # Panics
    /// If there is no such item.
    pub fn labels(&self, repo: &str, number: u64) -> Vec<String> {
        self.with_issue(repo, number, |issue| issue.labels.clone())
    }

    /// Labels added and removed, in order.
    ///
    /// # Panics
    /// If there is no such issue.
    pub fn label_events(&self, repo: &str, number: u64) -> Vec<LabelEvent> {
        self.with_issue(repo, number, |issue| issue.events.clone())
    }

    /// Comments, oldest first.
    ///
    /// # Panics
    /// If there is no such issue.
    pub fn comments(&self, repo: &str, number: u64) -> Vec<CommentView> {
        self.with_issue(repo, number, |issue| issue.comments.clone())
    }

    /// Every write that arrived over REST, in order.
    pub fn writes(&self) -> Vec<Write> {
        self.inner.lock().writes.clone()
    }

    /// Every request that arrived, git included, in the order in which they finished.
    pub fn requests(&self) -> Vec<Seen> {
        self.inner.lock().seen.clone()
    }

    /// Requests with a token in their address. Must be empty.
    pub fn leaks(&self) -> Vec<String> {
        self.inner.lock().leaks.clone()
    }

    /// Injects a fault into later requests.
    pub fn inject(&self, fault: Fault) {
        self.inner.lock().faults.push(fault);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.inner.lock().faults.clear();
    }

    /// How many injected faults have not happened yet.
    pub fn faults_left(&self) -> usize {
        self.inner.lock().faults.len()
    }

    /// Allows `requests` more before the rate limit applies, which is reset after `reset_in`.
    pub fn limit_rate(&self, requests: u64, reset_in: Duration) {
        self.inner.lock().rate = Some((requests, Utc::now() + reset_in));
    }

    /// The same for the tokens of one installation of an App.
    pub fn limit_installation(&self, id: u64, requests: u64, reset_in: Duration) {
        let rate = (requests, Utc::now() + reset_in);
        self.inner.lock().rates.insert(id, rate);
    }

    /// Waits until `is_so` holds, checking after each request; panics with `what` after the time limit.
    ///
    /// # Panics
    /// If it does not hold in time.
    pub async fn wait_until(&self, what: &str, within: Duration, is_so: impl Fn(&Self) -> bool) {
        let waiting = async {
            loop {
                let changed = self.inner.changed.notified();
                if is_so(self) {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(within, waiting).await.is_err() {
            assert!(
                is_so(self),
                "after {within:?} it is still not so that {what}"
            );
        }
    }

    fn with_repo<T>(&self, name: &str, read: impl FnOnce(&Repo) -> T) -> T {
        let state = self.inner.lock();
        read(state.repo(name).expect("the repository exists"))
    }

    fn with_repo_mut<T>(&self, name: &str, write: impl FnOnce(&mut Repo) -> T) -> T {
        let mut state = self.inner.lock();
        let done = write(state.repo_mut(name).expect("the repository exists"));
        self.inner.changed.notify_waiters();
        done
    }

    fn with_issue<T>(&self, repo: &str, number: u64, read: impl FnOnce(&Issue) -> T) -> T {
        self.with_repo(repo, |repo| {
            read(repo.issue(number).expect("the issue exists"))
        })
    }
}
