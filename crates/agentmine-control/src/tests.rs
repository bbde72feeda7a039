//! The operations on a real store.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{
    AssigneeType, ItemKind, ItemRef, NewTask, Priority, RepositoryRef, TaskId, TaskType,
    TrackerKind, WorkerId, WriteScope,
};
use agentmine_runtime::config::{Config, Secret, StoreConfig};
use agentmine_runtime::exit::Exit;
use agentmine_store::{Attempt, Claim, Edited, Enqueued, LeaseEnd, NewPersonTask, Store};
use serde_json::json;
use tempfile::TempDir;

use crate::ControlError;
use crate::fleet::Fleet;
use crate::sessions::{self, SessionEndArgs, SessionList, SessionLogs, SessionStart};
use crate::tasks::{self, Reason, TaskCreate, TaskList, TaskRequest, TaskUpdate, TaskWhy, Why};
use crate::view::TaskDetails;
use crate::worker::{self, Place, WorkerList, WorkerRemove, WorkerStart};

const MINUTE: Duration = Duration::from_secs(60);

struct World {
    folder: TempDir,
    store: Arc<dyn Store>,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fleet.db");
        let config = StoreConfig {
            url: Secret::new(format!("sqlite:{}", file.display())),
            ..StoreConfig::default()
        };
        let store = agentmine_store::connect(&config).await.unwrap();
        Self { folder, store }
    }

    fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    async fn add(&self, title: &str) -> TaskDetails {
        let args = TaskCreate {
            title: title.into(),
            ..TaskCreate::default()
        };
        tasks::create(self.store(), &fleet(), &Place::default(), args)
            .await
            .unwrap()
    }

    /// A task of the fleet; its number.
    async fn issue(&self, number: u64) -> (TaskId, i64) {
        let new = NewTask {
            item: ItemRef {
                tracker: TrackerKind::GitHub,
                host: "github.com".into(),
                repo_id: "42".into(),
                repo_path: "acme/shop".into(),
                kind: ItemKind::Issue,
                number,
            },
            trigger: "e1".into(),
            title: "Issue".into(),
            url: "https://github.com/acme/shop/issues/1".into(),
            priority: Priority::Medium,
        };
        match self.store.enqueue(&new).await.unwrap() {
            Enqueued::Created(task) | Enqueued::Known(task) => (task.id, task.number.0),
        }
    }

    /// A task that `agentmine run` made of a file; its number.
    async fn of_run(&self) -> (TaskId, i64) {
        let new = NewTask {
            item: ItemRef {
                tracker: TrackerKind::Local,
                host: "localhost".into(),
                repo_id: "1".into(),
                repo_path: "/home/mona/shop".into(),
                kind: ItemKind::Issue,
                number: 1,
            },
            trigger: "r1".into(),
            title: "Issue".into(),
            url: "file:///home/mona/issue.md".into(),
            priority: Priority::Medium,
        };
        match self.store.enqueue(&new).await.unwrap() {
            Enqueued::Created(task) | Enqueued::Known(task) => (task.id, task.number.0),
        }
    }

    /// A task that a person created for a repository; its number.
    async fn in_repository(&self, title: &str) -> i64 {
        let new = NewPersonTask {
            title: title.into(),
            description: String::new(),
            priority: Priority::Medium,
            kind: TaskType::Task,
            assignee: None,
            assignee_type: AssigneeType::Ai,
            agent: None,
            depends_on: Vec::new(),
            write_scope: WriteScope::default(),
            repository: Some(RepositoryRef {
                tracker: TrackerKind::GitHub,
                host: "github.com".into(),
                repo_id: "42".into(),
                repo_path: "acme/shop".into(),
            }),
            retries: None,
        };
        match self.store.create_task(&new).await.unwrap() {
            Edited::Done(task) => task.number.0,
            refused => panic!("{refused:?}"),
        }
    }

    async fn claim(&self, task: TaskId) -> Claim {
        let worker = WorkerId("host/1/0".into());
        let nonce = TaskId::new().0;
        let claim = self.store.claim(task, &worker, nonce, MINUTE, 3).await;
        claim.unwrap().unwrap()
    }

    async fn why(&self, task: i64) -> Result<Why, ControlError> {
        let args = TaskWhy {
            task_id: Some(task),
            ..TaskWhy::default()
        };
        tasks::why(self.store(), &fleet(), &Place::default(), &args).await
    }

    async fn codes(&self, task: i64) -> Vec<String> {
        let why = self.why(task).await.unwrap();
        why.reasons.into_iter().map(|reason| reason.code).collect()
    }

    /// A git repository, and where its work trees are made.
    fn place(&self) -> Place {
        let project = self.folder.path().join("my project");
        std::fs::create_dir(&project).unwrap();
        git(&project, &["init", "--quiet", "-b", "main"]);
        std::fs::write(project.join("a.txt"), "one\n").unwrap();
        git(&project, &["add", "."]);
        git(&project, &["commit", "--quiet", "-m", "x"]);
        Place {
            project,
            worktrees: self.folder.path().join("trees"),
            ..Place::default()
        }
    }
}

fn git(folder: &Path, args: &[&str]) -> String {
    let done = Command::new("git")
        .args(["-c", "user.name=x", "-c", "user.email=x@localhost", "-C"])
        .arg(folder)
        .args(args)
        .output()
        .unwrap();
    assert!(done.status.success(), "{args:?}: {done:?}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

fn fleet() -> Fleet {
    Fleet::new(Config::default())
}

fn request(task_id: i64) -> TaskRequest {
    TaskRequest {
        task_id,
        reason: None,
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, ControlError>, name: &str, words: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.name(), name, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[tokio::test]
async fn a_task_whose_worker_died_is_not_said_to_be_worked_on() {
    let world = World::new().await;
    let (task, number) = world.issue(7).await;
    world.claim(task).await;
    let why = world.why(number).await.unwrap();
    assert!(why.is_worked_on, "{why:?}");
    assert_eq!(why.reasons[0].code, "working");

    let (task, number) = world.issue(8).await;
    let worker = WorkerId("host/1/0".into());
    let claim = world
        .store
        .claim(task, &worker, TaskId::new().0, Duration::ZERO, 3)
        .await;
    assert!(claim.unwrap().is_some());
    let why = world.why(number).await.unwrap();
    assert!(!why.is_worked_on, "{why:?}");
    let Reason { code, message } = &why.reasons[0];
    assert_eq!(code, "lost_worker");
    assert!(
        message.contains("host/1/0 has not renewed its lease"),
        "{message}"
    );
}

#[tokio::test]
async fn a_task_is_made_listed_and_changed() {
    let world = World::new().await;
    let store = world.store();
    let args = TaskCreate {
        title: "  Fix\n the login ".into(),
        description: Some("It fails.".into()),
        priority: Some("high".into()),
        kind: Some("bug".into()),
        assignee: Some("maya".into()),
        write_scope: Some(vec!["src/login".into()]),
        ..TaskCreate::default()
    };
    let made = tasks::create(store, &fleet(), &Place::default(), args)
        .await
        .unwrap();
    let task = &made.task;
    assert_eq!((task.id, task.title.as_str()), (1, "Fix the login"));
    let shown = json!({
        "status": task.status, "priority": task.priority, "type": task.kind,
        "assignee": task.assignee, "assigneeType": task.assignee_type, "item": task.item,
    });
    let expected = json!({
        "status": "open", "priority": "high", "type": "bug",
        "assignee": "maya", "assigneeType": "ai", "item": null,
    });
    assert_eq!(shown, expected);
    for title in ["b", "c"] {
        world.add(title).await;
    }
    let list = async |args: TaskList| tasks::list(store, &args).await.unwrap();
    let page = list(TaskList {
        limit: Some(2),
        ..TaskList::default()
    })
    .await;
    assert_eq!(
        page.tasks.iter().map(|task| task.id).collect::<Vec<_>>(),
        [3, 2]
    );
    let next = TaskList {
        cursor: page.next_cursor,
        limit: Some(2),
        ..TaskList::default()
    };
    let page = list(next).await;
    assert_eq!((page.tasks[0].id, page.next_cursor), (1, None));
    let of_maya = TaskList {
        assignee: Some("maya".into()),
        ..TaskList::default()
    };
    assert_eq!(list(of_maya).await.tasks.len(), 1);

    let update = TaskUpdate {
        task_id: 1,
        version: Some(1),
        status: Some("done".into()),
        assignee: Some(String::new()),
        ..TaskUpdate::default()
    };
    let after = tasks::update(store, &Place::default(), &update)
        .await
        .unwrap();
    assert_eq!(
        (after.task.status.as_str(), after.task.version),
        ("done", 2)
    );
    assert_eq!(after.task.assignee, None);
    let outdated = tasks::update(store, &Place::default(), &update).await;
    refused(outdated, "InvalidStatus", "has version 2, expected 1");
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_what_was_expected() {
    let world = World::new().await;
    let store = world.store();
    let status = TaskList {
        status: Some("closed".into()),
        ..TaskList::default()
    };
    refused(
        tasks::list(store, &status).await,
        "ValidationError",
        "expected open, in_progress",
    );
    let limit = TaskList {
        limit: Some(0),
        ..TaskList::default()
    };
    refused(
        tasks::list(store, &limit).await,
        "ValidationError",
        "expected 1 to 500",
    );
    refused(tasks::get(store, 7).await, "TaskNotFound", "7");
    refused(world.why(7).await, "TaskNotFound", "7");
    refused(sessions::get(store, 7).await, "SessionNotFound", "7");
    let empty = TaskCreate {
        title: " ".into(),
        ..TaskCreate::default()
    };
    refused(
        tasks::create(store, &fleet(), &Place::default(), empty).await,
        "ValidationError",
        "expected 1 to 300",
    );
    let priority = TaskCreate {
        title: "x".into(),
        priority: Some("urgent".into()),
        ..TaskCreate::default()
    };
    refused(
        tasks::create(store, &fleet(), &Place::default(), priority).await,
        "ValidationError",
        "low, medium, high or critical",
    );
    world.add("a").await;
    let nothing = TaskUpdate {
        task_id: 1,
        ..TaskUpdate::default()
    };
    refused(
        tasks::update(store, &Place::default(), &nothing).await,
        "ValidationError",
        "nothing to change",
    );
    let circle = TaskUpdate {
        task_id: 1,
        depends_on: Some(vec![1]),
        ..TaskUpdate::default()
    };
    refused(
        tasks::update(store, &Place::default(), &circle).await,
        "ValidationError",
        "itself waits for task 1",
    );
    let (_, issue) = world.issue(1).await;
    let title = TaskUpdate {
        task_id: issue,
        title: Some("x".into()),
        ..TaskUpdate::default()
    };
    refused(
        tasks::update(store, &Place::default(), &title).await,
        "InvalidStatus",
        "on its tracker",
    );
    for outcome in [
        tasks::pause(store, &request(1)).await,
        tasks::resume(store, &request(1)).await,
        tasks::resume(store, &request(issue)).await,
        tasks::retry(store, &request(issue)).await,
    ] {
        let error = outcome.unwrap_err();
        assert_eq!(error.exit(), Exit::WrongState, "{error}");
        assert!(error.next_action().is_some(), "{error}");
    }
}

#[tokio::test]
async fn why_says_how_an_unfinished_run_continues() {
    let world = World::new().await;
    let (id, task) = world.of_run().await;
    let claim = world.claim(id).await;
    assert_eq!(world.codes(task).await, ["working", "requested"]);
    let end = LeaseEnd::Release {
        reason: "503.".into(),
        delay: MINUTE,
        attempt: Attempt::Refunded,
    };
    world.store().end_lease(&claim.lease, &end).await.unwrap();
    let why = world.why(task).await.unwrap();
    assert_eq!(world.codes(task).await, ["needs_run", "requested"]);
    let said = &why.reasons[0].message;
    assert!(said.contains("nobody works on it. No worker"), "{said}");
    assert!(
        said.contains("`agentmine run --repo /home/mona/shop`"),
        "{said}"
    );
    tasks::pause(world.store(), &request(task)).await.unwrap();
    let why = world.why(task).await.unwrap();
    assert_eq!(world.codes(task).await, ["paused", "requested"]);
    let said = &why.reasons[0].message;
    assert!(
        said.contains(&format!("`agentmine task resume {task}`, and then")),
        "{said}"
    );
}

#[tokio::test]
async fn why_names_every_reason() {
    let world = World::new().await;
    let store = world.store();
    let (id, issue) = world.issue(1).await;
    assert_eq!(world.codes(issue).await, ["no_free_worker", "requested"]);
    tasks::pause(store, &request(issue)).await.unwrap();
    assert_eq!(world.codes(issue).await, ["paused", "requested"]);
    tasks::resume(store, &request(issue)).await.unwrap();
    let first = world.add("Decide").await.task.id;
    assert_eq!(world.codes(first).await, ["needs_client"]);
    let change = TaskUpdate {
        task_id: issue,
        assignee_type: Some("human".into()),
        depends_on: Some(vec![first]),
        ..TaskUpdate::default()
    };
    tasks::update(store, &Place::default(), &change)
        .await
        .unwrap();
    assert_eq!(
        world.codes(issue).await,
        ["human_task", "dependency", "requested"]
    );
    let change = TaskUpdate {
        task_id: issue,
        assignee_type: Some("ai".into()),
        depends_on: Some(Vec::new()),
        write_scope: Some(vec!["src".into()]),
        ..TaskUpdate::default()
    };
    tasks::update(store, &Place::default(), &change)
        .await
        .unwrap();
    let claim = world.claim(id).await;
    assert_eq!(world.codes(issue).await, ["working", "requested"]);
    let (_, other) = world.issue(2).await;
    let change = TaskUpdate {
        task_id: other,
        write_scope: Some(vec!["src/a.rs".into()]),
        ..TaskUpdate::default()
    };
    tasks::update(store, &Place::default(), &change)
        .await
        .unwrap();
    assert_eq!(world.codes(other).await, ["conflict", "requested"]);
    let later = LeaseEnd::Release {
        reason: "outage".into(),
        delay: MINUTE,
        attempt: Attempt::Refunded,
    };
    store.end_lease(&claim.lease, &later).await.unwrap();
    assert_eq!(world.codes(issue).await, ["back_off", "requested"]);
    // Due now.
    tasks::retry(store, &request(issue)).await.unwrap();
    assert_eq!(world.codes(issue).await, ["no_free_worker", "requested"]);
    tasks::cancel(store, &request(issue)).await.unwrap();
    assert_eq!(world.codes(issue).await, ["cancelled", "requested"]);
    refused(
        tasks::cancel(store, &request(issue)).await,
        "InvalidStatus",
        "is cancelled",
    );
}

#[tokio::test]
async fn a_task_that_is_over_is_begun_once_more() {
    let world = World::new().await;
    let store = world.store();
    let (_, issue) = world.issue(1).await;
    tasks::cancel(store, &request(issue)).await.unwrap();
    let next = tasks::retry(store, &request(issue)).await.unwrap();
    assert_eq!(
        (next.task.id, next.task.status.as_str()),
        (issue + 1, "open")
    );
    assert_eq!(next.task.item.as_deref(), Some("acme/shop#1"));
    let twice = tasks::retry(store, &request(issue)).await;
    refused(twice, "InvalidStatus", "has task 2 already, which is open");

    let own = world.add("Mine").await.task.id;
    tasks::cancel(store, &request(own)).await.unwrap();
    let again = tasks::retry(store, &request(own)).await.unwrap();
    assert_eq!((again.task.id, again.task.status.as_str()), (own, "open"));

    let in_repository = world.in_repository("Theirs").await;
    tasks::cancel(store, &request(in_repository)).await.unwrap();
    let next = tasks::retry(store, &request(in_repository)).await.unwrap();
    assert_eq!(next.task.id, in_repository + 1);
    for _ in 0..2 {
        let twice = tasks::retry(store, &request(in_repository)).await;
        refused(
            twice,
            "InvalidStatus",
            "task 4 was retried as task 5, which is open",
        );
    }
}

#[tokio::test]
async fn a_clients_session_has_the_codes_of_the_specification() {
    let world = World::new().await;
    let store = world.store();
    let place = world.place();
    let task = world.add("Fix").await.task.id;
    let start = |task_id| SessionStart {
        task_id,
        ..SessionStart::default()
    };
    let session = sessions::start(store, &place, &start(task)).await.unwrap();
    assert_eq!(
        (session.client.as_str(), session.status.as_str()),
        ("external", "running")
    );
    assert_eq!(world.codes(task).await, ["external_session"]);
    let twice = sessions::start(store, &place, &start(task)).await;
    refused(
        twice,
        "SessionAlreadyRunning",
        &format!("session, {}", session.id),
    );
    refused(
        sessions::start(store, &place, &start(99)).await,
        "TaskNotFound",
        "99",
    );
    let status = TaskUpdate {
        task_id: task,
        status: Some("open".into()),
        ..TaskUpdate::default()
    };
    refused(
        tasks::update(store, &Place::default(), &status).await,
        "SessionAlreadyRunning",
        "running",
    );

    let end = |session_id| SessionEndArgs {
        session_id,
        exit_code: 1,
        dod_result: Some("error".into()),
        artifacts: Some(vec![json!("log.txt")]),
        error: json!({"message": "tests fail"}).as_object().cloned(),
        ..SessionEndArgs::default()
    };
    let unknown = SessionEndArgs {
        dod_result: Some("fine".into()),
        ..end(session.id)
    };
    refused(
        sessions::end(store, unknown).await,
        "ValidationError",
        "pending, merged",
    );
    let ended = sessions::end(store, end(session.id)).await.unwrap();
    assert_eq!(ended.task.status, "failed");
    assert_eq!(
        ended.task.reason.as_deref(),
        Some("a check failed; the client ended with exit code 1")
    );
    assert_eq!(ended.session.error, Some(json!({"message": "tests fail"})));
    refused(
        sessions::end(store, end(session.id)).await,
        "InvalidStatus",
        "ended already",
    );
    refused(sessions::end(store, end(99)).await, "SessionNotFound", "99");
    refused(
        sessions::start(store, &place, &start(task)).await,
        "InvalidStatus",
        "is failed",
    );

    let (id, issue) = world.issue(1).await;
    refused(
        sessions::start(store, &place, &start(issue)).await,
        "InvalidStatus",
        "acme/shop#1",
    );
    let lease = world.claim(id).await.lease;
    refused(
        sessions::end(store, end(lease.session.0)).await,
        "InvalidStatus",
        "a worker of the fleet",
    );
    let all = sessions::list(store, &SessionList::default())
        .await
        .unwrap();
    let clients: Vec<_> = all.sessions.iter().map(|it| it.client.as_str()).collect();
    assert_eq!(clients, ["agentmine", "external"]);
    let listed = async |status: Option<&str>, cursor: Option<i64>| {
        let args = SessionList {
            status: status.map(Into::into),
            limit: Some(1),
            cursor,
            ..SessionList::default()
        };
        let page = sessions::list(store, &args).await?;
        let ids: Vec<i64> = page.sessions.iter().map(|it| it.id).collect();
        Ok::<_, ControlError>((ids, page.next_cursor))
    };
    let (newest, oldest) = (all.sessions[0].id, all.sessions[1].id);
    assert_eq!(
        listed(None, None).await.unwrap(),
        (vec![newest], Some(newest))
    );
    assert_eq!(
        listed(None, Some(newest)).await.unwrap(),
        (vec![oldest], None)
    );
    assert_eq!(
        listed(Some("running"), None).await.unwrap(),
        (vec![newest], None)
    );
    assert_eq!(
        listed(Some("ended"), None).await.unwrap(),
        (vec![oldest], None)
    );
    refused(
        listed(Some("over"), None).await,
        "ValidationError",
        "expected running or ended",
    );
    let logs = SessionLogs {
        session_id: lease.session.0,
        ..SessionLogs::default()
    };
    let page = sessions::logs(store, &logs).await.unwrap();
    assert!(page.running && page.steps.is_empty());
}

#[tokio::test]
async fn a_client_gets_a_work_tree_and_a_session() {
    let world = World::new().await;
    let store = world.store();
    let place = world.place();
    let task = world.add("It's $(touch ran) `here`; --").await.task;
    let start = |client: &str| WorkerStart {
        task_id: task.id,
        client: Some(client.into()),
        auto: Some(true),
        ..WorkerStart::default()
    };
    let started = worker::start(store, &place, &start("codex")).await.unwrap();
    let tree = PathBuf::from(started.worktree.as_ref().unwrap());
    assert_eq!(git(&tree, &["branch", "--show-current"]), task.branch);
    assert_eq!(
        (started.client.as_str(), started.agent.as_str()),
        ("codex", "default")
    );
    assert_eq!(
        (started.task.id, &started.task.branch),
        (task.id, &task.branch)
    );
    assert!(
        started
            .command
            .contains("codex exec --sandbox workspace-write"),
        "{}",
        started.command
    );
    let session = started.session_id.unwrap();
    let shown = sessions::get(store, session).await.unwrap();
    assert_eq!(shown.worktree, started.worktree);
    let nobody = WorkerStart {
        agent: Some("nobody".into()),
        ..start("codex")
    };
    let nobody = worker::start(store, &place, &nobody).await;
    refused(nobody, "AgentNotFound", "nobody");
    let twice = worker::start(store, &place, &start("claude-code")).await;
    refused(twice, "SessionAlreadyRunning", "running session");
    let remove = |force| WorkerRemove {
        task_id: task.id,
        force: Some(force),
    };
    refused(
        worker::remove(store, &place, &remove(true)).await,
        "SessionAlreadyRunning",
        "1",
    );

    std::fs::write(tree.join("b.txt"), "two\n").unwrap();
    let end = SessionEndArgs {
        session_id: session,
        ..SessionEndArgs::default()
    };
    let ended = sessions::end(store, end).await.unwrap();
    assert_eq!(ended.task.status, "in_progress");
    refused(
        worker::remove(store, &place, &remove(false)).await,
        "InvalidStatus",
        "b.txt",
    );
    let workers = worker::list(store, &place, &WorkerList::default())
        .await
        .unwrap()
        .workers;
    assert_eq!((workers.len(), workers[0].running), (1, false));
    let listed = async |client: Option<&str>, status: Option<&str>| {
        let args = WorkerList {
            client: client.map(Into::into),
            status: status.map(Into::into),
            limit: Some(1),
        };
        worker::list(store, &place, &args)
            .await
            .unwrap()
            .workers
            .len()
    };
    let client = workers[0].client.as_str();
    assert_eq!(listed(Some(client), Some("ended")).await, 1);
    assert_eq!(listed(Some("agentmine"), None).await, 0);
    assert_eq!(listed(None, Some("running")).await, 0);
    // The next client continues in the same tree.
    let again = worker::start(store, &place, &start("gemini-cli"))
        .await
        .unwrap();
    assert_eq!(again.worktree, started.worktree);
    assert!(tree.join("b.txt").exists());
    let session = again.session_id.unwrap();
    let end = SessionEndArgs {
        session_id: session,
        ..SessionEndArgs::default()
    };
    sessions::end(store, end).await.unwrap();
    worker::remove(store, &place, &remove(true)).await.unwrap();
    assert!(!tree.exists());
    refused(
        worker::remove(store, &place, &remove(true)).await,
        "GitError",
        "no work tree",
    );
}

#[tokio::test]
async fn no_session_is_left_where_no_work_tree_can_be_made() {
    let world = World::new().await;
    let store = world.store();
    let place = world.place();
    let task = world.add("Fix").await.task;
    let start = WorkerStart {
        task_id: task.id,
        ..WorkerStart::default()
    };
    let nowhere = Place {
        project: world.folder.path().to_owned(),
        ..place.clone()
    };
    refused(
        worker::start(store, &nowhere, &start).await,
        "GitError",
        "not a git repository",
    );
    git(&place.project, &["checkout", "--quiet", "-b", &task.branch]);
    refused(
        worker::start(store, &place, &start).await,
        "GitError",
        "is checked out in",
    );
    let after = tasks::get(store, task.id).await.unwrap();
    assert_eq!(after.task.status, "open");
    assert!(
        after
            .sessions
            .iter()
            .all(|session| session.status == "ended")
    );
    git(&place.project, &["checkout", "--quiet", "main"]);
    let started = worker::start(store, &place, &start).await.unwrap();
    // The default of a task that a person made.
    assert_eq!(started.client, "claude-code");
}

#[tokio::test]
async fn the_fleets_own_client_makes_a_task_due() {
    let world = World::new().await;
    let store = world.store();
    let place = world.place();
    let (id, issue) = world.issue(1).await;
    let start = |task_id, client: Option<&str>| WorkerStart {
        task_id,
        client: client.map(ToOwned::to_owned),
        ..WorkerStart::default()
    };
    tasks::pause(store, &request(issue)).await.unwrap();
    let queued = worker::start(store, &place, &start(issue, None))
        .await
        .unwrap();
    assert_eq!(
        (queued.client.as_str(), queued.session_id),
        ("agentmine", None)
    );
    let lease = world.claim(id).await.lease;
    let running = worker::start(store, &place, &start(issue, Some("agentmine"))).await;
    refused(running, "SessionAlreadyRunning", &lease.session.to_string());
    refused(
        worker::start(store, &place, &start(issue, Some("codex"))).await,
        "InvalidStatus",
        "fleet's workers",
    );
    let own = world.add("Mine").await.task.id;
    let mine = start(own, Some("agentmine"));
    let here = worker::start(store, &place, &mine).await.unwrap();
    let line = format!("agentmine worker run {own} --local");
    assert!(here.command.ends_with(&line), "{}", here.command);
    refused(
        worker::start(store, &place, &start(own, Some("cursor"))).await,
        "ValidationError",
        "expected agentmine, claude-code",
    );
}

#[test]
fn every_tool_is_described_whole() {
    for tool in crate::mcp::tools() {
        let definition = serde_json::to_value(tool.definition()).unwrap();
        let name = tool.name();
        assert!(
            definition["description"]
                .as_str()
                .is_some_and(|it| it.len() > 20),
            "{name}"
        );
        assert!(
            definition["title"].is_string() && definition["annotations"].is_object(),
            "{name}"
        );
        assert_eq!(definition["inputSchema"]["type"], "object", "{name}");
        assert_eq!(
            definition["inputSchema"]["additionalProperties"], false,
            "{name}"
        );
        assert_eq!(definition["outputSchema"]["type"], "object", "{name}");
        let parameters = definition["inputSchema"]["properties"].as_object().unwrap();
        for (parameter, schema) in parameters {
            assert!(schema["description"].is_string(), "{name}: {parameter}");
            assert!(schema["type"].is_string(), "{name}: {parameter}: {schema}");
        }
        let results = definition["outputSchema"]["properties"]
            .as_object()
            .unwrap();
        for (field, schema) in results {
            assert!(schema["description"].is_string(), "{name}: {field}");
        }
    }
}

/// The parameters, defaults and enumerations of spec 003.
#[test]
fn the_tools_have_the_parameters_of_the_specification() {
    let tools = crate::mcp::tools();
    let input = |name: &str| {
        let tool = tools.iter().find(|tool| tool.name() == name).unwrap();
        serde_json::to_value(tool.definition()).unwrap()["inputSchema"].clone()
    };
    let list = input("task_list");
    let statuses = json!(["open", "in_progress", "done", "failed", "cancelled"]);
    assert_eq!(list["properties"]["status"]["enum"], statuses);
    assert_eq!(list["properties"]["limit"]["default"], 20);
    assert!(list["properties"]["assignee"].is_object());
    let create = input("task_create");
    assert_eq!(create["required"], json!(["title"]));
    for (parameter, values) in [
        ("priority", json!(["low", "medium", "high", "critical"])),
        ("type", json!(["task", "feature", "bug", "refactor"])),
        ("assigneeType", json!(["ai", "human"])),
    ] {
        assert_eq!(
            create["properties"][parameter]["enum"], values,
            "{parameter}"
        );
    }
    assert!(create["properties"]["description"].is_object());
    let worker = input("worker_command");
    assert_eq!(worker["required"], json!(["taskId"]));
    assert_eq!(worker["properties"]["auto"]["type"], "boolean");
    let clients = worker["properties"]["client"]["enum"].as_array().unwrap();
    for client in ["claude-code", "codex", "gemini-cli"] {
        assert!(clients.contains(&json!(client)), "{client}");
    }
    assert!(worker["properties"]["agent"].is_object());
    let end = input("session_end");
    assert_eq!(end["required"], json!(["sessionId", "exitCode"]));
    let results = json!(["pending", "merged", "timeout", "error"]);
    assert_eq!(end["properties"]["dodResult"]["enum"], results);
    assert_eq!(end["properties"]["artifacts"]["type"], "array");
    assert_eq!(end["properties"]["error"]["type"], "object");
    assert_eq!(end["properties"]["signal"]["type"], "string");
}

#[tokio::test]
async fn a_task_names_only_agents_that_are_defined() {
    let world = World::new().await;
    let (store, place) = (world.store(), world.place());
    let create = |agent: &str| TaskCreate {
        title: "x".into(),
        agent: Some(agent.into()),
        ..TaskCreate::default()
    };
    let made = tasks::create(store, &fleet(), &place, create("nobody")).await;
    refused(made, "AgentNotFound", "nobody");
    assert!(
        tasks::list(store, &TaskList::default())
            .await
            .unwrap()
            .tasks
            .is_empty()
    );
    let folder = place.project.join(".agentmine/agents");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("fix.yaml"), "description: Fixes\n").unwrap();
    std::fs::write(folder.join("wrong.yaml"), "descriptio: Fixes\n").unwrap();
    let made = tasks::create(store, &fleet(), &place, create("fix"))
        .await
        .unwrap();
    assert_eq!(made.task.agent.as_deref(), Some("fix"));
    let update = |agent: &str| TaskUpdate {
        task_id: made.task.id,
        agent: Some(agent.into()),
        ..TaskUpdate::default()
    };
    refused(
        tasks::update(store, &place, &update("nobody")).await,
        "AgentNotFound",
        "nobody",
    );
    refused(
        tasks::update(store, &place, &update("wrong")).await,
        "ConfigError",
        "descriptio",
    );
    let now = tasks::get(store, made.task.id).await.unwrap().task;
    assert_eq!((now.agent.as_deref(), now.version), (Some("fix"), 1));
    // The built-in one needs no file.
    for none in ["", "default"] {
        let after = tasks::update(store, &place, &update(none)).await.unwrap();
        assert_eq!(after.task.agent, None);
    }
}
