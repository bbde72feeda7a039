//! Tasks that people make, what holds a task up, and sessions of clients outside of the fleet.

use super::*;

facts! {
    a_task_of_a_person_is_tracked_and_never_claimed,
    a_task_for_a_person_is_not_claimed_until_it_is_given_to_the_fleet,
    a_task_waits_until_what_it_depends_on_is_done,
    a_circle_of_dependencies_is_refused_and_changes_nothing,
    tasks_that_change_the_same_files_do_not_run_at_once,
    a_change_of_an_outdated_version_is_refused,
    two_changes_at_once_lose_nothing,
    lists_are_filtered_by_assignee_and_continued,
    a_task_has_one_running_session_of_a_client,
    the_end_of_a_session_decides_the_status_of_its_task,
    a_session_ends_once_and_only_that_of_a_client,
    a_cancelled_task_ends_its_session,
    a_session_whose_client_never_started_opens_its_task_again,
    a_task_has_the_agent_that_people_name,
    a_task_of_a_person_is_claimed_where_the_person_asks_for_it,
    a_worker_and_a_client_do_not_share_a_task_of_a_person,
    a_task_for_a_repository_is_worked_on_by_the_fleet,
    a_task_for_a_repository_has_one_further_attempt,
}

pub(super) fn wanted(title: &str) -> NewPersonTask {
    NewPersonTask {
        title: title.into(),
        description: "Do it.".into(),
        priority: Priority::High,
        kind: TaskType::Bug,
        assignee: Some("maya".into()),
        assignee_type: AssigneeType::Ai,
        agent: None,
        depends_on: Vec::new(),
        write_scope: WriteScope::default(),
        repository: None,
        retries: None,
    }
}

fn client() -> NewExternal {
    NewExternal {
        client: "codex".into(),
        agent: "default".into(),
        worktree: None,
    }
}

fn ended(exit_code: i64, dod_result: DodResult) -> ExternalEnd {
    ExternalEnd {
        exit_code,
        signal: None,
        dod_result,
        artifacts: vec![json!("report.md")],
        error: None,
    }
}

fn scope(pattern: &str) -> WriteScope {
    WriteScope::new(vec![pattern.into()]).unwrap()
}

impl World {
    pub(super) async fn made(&self, new: &NewPersonTask) -> Task {
        match self.store.create_task(new).await.unwrap() {
            Edited::Done(task) => *task,
            refused => panic!("{refused:?}"),
        }
    }

    pub(super) async fn edited(&self, task: TaskId, edit: TaskEdit) -> Task {
        match self.store.edit_task(task, &edit).await.unwrap() {
            Edited::Done(task) => *task,
            refused => panic!("{refused:?}"),
        }
    }

    async fn begun(&self, task: TaskId) -> Session {
        match self.store.begin_external(task, &client()).await.unwrap() {
            Begun::Done(session) => *session,
            refused => panic!("{refused:?}"),
        }
    }
}

async fn a_task_of_a_person_is_tracked_and_never_claimed(world: World) {
    let fleet = world.new_task(1).await;
    let task = world.made(&wanted("Fix the login")).await;
    assert_eq!(task.number, TaskNumber(fleet.number.0 + 1));
    assert_eq!(task.state.public(), PublicStatus::Open);
    let card = &task.card;
    assert_eq!(
        (card.origin, card.kind),
        (TaskOrigin::Person, TaskType::Bug)
    );
    assert_eq!((card.description.as_str(), card.version), ("Do it.", 1));
    assert_eq!(task.item.number, u64::try_from(task.number.0).unwrap());
    assert!(
        task.branch().starts_with("agentmine/task-2-"),
        "{}",
        task.branch()
    );

    assert_eq!(world.claimable(NONE, 9).await, [fleet.id]);
    assert!(world.claim(task.id, MINUTE).await.is_none());
    world.relay().await;
    // A broker that lost all messages.
    assert_eq!(world.sweep(NONE).await.rewoken, 1);
    assert_eq!(world.relay().await, [fleet.id]);
    assert_eq!(world.claimable(NONE, 9).await, [fleet.id]);
    assert_eq!(world.task(task.id).await.state, TaskState::Queued);
    // The task of a person is no work for a worker.
    world.relay().await;
    let figures = world.store.figures().await.unwrap();
    assert_eq!(figures.slots, 1);
    let counted: u64 = figures.tasks.iter().map(|it| it.backlog.count).sum();
    assert_eq!(counted, 1, "{figures:?}");

    let done = TaskEdit {
        status: Some((PublicStatus::Done, None)),
        ..TaskEdit::default()
    };
    let task = world.edited(task.id, done).await;
    assert_eq!(task.state, TaskState::Ended(EndState::Done));
    // Nobody reports it to a tracker.
    assert_eq!(world.unreported().await, []);
    assert_eq!(world.store.figures().await.unwrap().slots, 1);
}

async fn a_task_for_a_person_is_not_claimed_until_it_is_given_to_the_fleet(world: World) {
    let task = world.new_task(1).await;
    world.relay().await;
    let to = |assignee_type| TaskEdit {
        assignee_type: Some(assignee_type),
        ..TaskEdit::default()
    };
    world.edited(task.id, to(AssigneeType::Human)).await;
    assert!(world.claim(task.id, MINUTE).await.is_none());
    assert_eq!(world.claimable(NONE, 9).await, []);
    assert_eq!(world.sweep(NONE).await.rewoken, 0);
    world.relay().await;
    world.edited(task.id, to(AssigneeType::Ai)).await;
    assert_eq!(world.relay().await, [task.id]);
    let lease = world.claim(task.id, MINUTE).await.unwrap().lease;
    let to_a_person = to(AssigneeType::Human);
    let refused = world.store.edit_task(lease.task, &to_a_person).await;
    assert_eq!(refused.unwrap(), Edited::Leased);
}

async fn a_task_waits_until_what_it_depends_on_is_done(world: World) {
    let (first, second) = (world.new_task(1).await, world.new_task(2).await);
    let person = world.made(&wanted("Decide")).await;
    let edit = TaskEdit {
        depends_on: Some(vec![first.number, person.number]),
        ..TaskEdit::default()
    };
    world.edited(second.id, edit).await;
    world.relay().await;
    let before = world.store.dependencies(second.id).await.unwrap();
    let numbers: Vec<TaskNumber> = before.iter().map(|on| on.number).collect();
    assert_eq!(numbers, [first.number, person.number]);
    assert!(world.claim(second.id, MINUTE).await.is_none());
    assert_eq!(world.claimable(NONE, 9).await, [first.id]);
    let lease = world.claim(first.id, MINUTE).await.unwrap().lease;
    world.store.end_lease(&lease, &done()).await.unwrap();
    // Woken, to find the other one.
    assert_eq!(world.relay().await, [second.id]);
    assert!(world.claim(second.id, MINUTE).await.is_none());
    let status = TaskEdit {
        status: Some((PublicStatus::Done, None)),
        ..TaskEdit::default()
    };
    world.edited(person.id, status).await;
    assert_eq!(world.relay().await, [second.id]);
    assert!(world.claim(second.id, MINUTE).await.is_some());
}

async fn a_circle_of_dependencies_is_refused_and_changes_nothing(world: World) {
    let mut tasks = Vec::new();
    for title in ["a", "b", "c"] {
        tasks.push(world.made(&wanted(title)).await);
    }
    let on = |task: &Task| TaskEdit {
        title: Some("changed".into()),
        depends_on: Some(vec![task.number]),
        ..TaskEdit::default()
    };
    world.edited(tasks[0].id, on(&tasks[1])).await;
    world.edited(tasks[1].id, on(&tasks[2])).await;
    for (task, cycle) in [(&tasks[2], &tasks[0]), (&tasks[2], &tasks[2])] {
        let refused = world.store.edit_task(task.id, &on(cycle)).await.unwrap();
        assert_eq!(refused, Edited::Cycle(cycle.number));
        assert_eq!(world.task(task.id).await, *task);
    }
    let mut nobody = on(&tasks[0]);
    nobody.depends_on = Some(vec![TaskNumber(99)]);
    let refused = world.store.edit_task(tasks[2].id, &nobody).await.unwrap();
    assert_eq!(refused, Edited::NoDependency(TaskNumber(99)));
    let mut new = wanted("d");
    new.depends_on = vec![TaskNumber(99)];
    let refused = world.store.create_task(&new).await.unwrap();
    assert_eq!(refused, Edited::NoDependency(TaskNumber(99)));
    assert_eq!(
        world
            .store
            .tasks(&TaskFilter::default())
            .await
            .unwrap()
            .len(),
        3
    );
}

async fn tasks_that_change_the_same_files_do_not_run_at_once(world: World) {
    let tasks = [
        world.new_task(1).await,
        world.new_task(2).await,
        world.new_task(3).await,
    ];
    for (task, pattern) in tasks.iter().zip(["src", "src/lib.rs", "docs"]) {
        let edit = TaskEdit {
            write_scope: Some(scope(pattern)),
            ..TaskEdit::default()
        };
        world.edited(task.id, edit).await;
    }
    world.relay().await;
    // Two workers at once.
    let (one, other) = tokio::join!(
        world.claim(tasks[0].id, MINUTE),
        world.claim(tasks[1].id, MINUTE)
    );
    assert!(one.is_some() != other.is_some());
    let (held, waits) = match &one {
        Some(claim) => (claim, &tasks[1]),
        None => (other.as_ref().unwrap(), &tasks[0]),
    };
    let row = world.task(waits.id).await;
    assert_eq!((row.state, row.attempt), (TaskState::Queued, 0));
    let found = world.store.scope_conflict(&row).await.unwrap().unwrap();
    assert_eq!(found.number, held.task.number);
    assert!(world.claim(tasks[2].id, MINUTE).await.is_some());
    world.store.end_lease(&held.lease, &done()).await.unwrap();
    assert_eq!(world.relay().await, [waits.id]);
    assert!(world.claim(waits.id, MINUTE).await.is_some());
}

async fn a_change_of_an_outdated_version_is_refused(world: World) {
    let task = world.made(&wanted("Fix")).await;
    let edit = TaskEdit {
        version: Some(1),
        title: Some("Fix the login".into()),
        ..TaskEdit::default()
    };
    let changed = world.edited(task.id, edit.clone()).await;
    assert_eq!(
        (changed.title.as_str(), changed.card.version),
        ("Fix the login", 2)
    );
    let refused = world.store.edit_task(task.id, &edit).await.unwrap();
    assert_eq!(refused, Edited::Outdated(2));
    let nobody = world.store.edit_task(TaskId::new(), &edit).await.unwrap();
    assert_eq!(nobody, Edited::Missing);
}

async fn two_changes_at_once_lose_nothing(world: World) {
    let task = world.made(&wanted("Fix")).await;
    let edit = |title: &str| TaskEdit {
        version: Some(1),
        title: Some(title.into()),
        ..TaskEdit::default()
    };
    let (one, other) = (edit("one"), edit("other"));
    let (one, other) = tokio::join!(
        world.store.edit_task(task.id, &one),
        world.store.edit_task(task.id, &other)
    );
    let outcomes = [one.unwrap(), other.unwrap()];
    let refused = outcomes.iter().filter(|it| **it == Edited::Outdated(2));
    assert_eq!(refused.count(), 1, "{outcomes:?}");
}

async fn lists_are_filtered_by_assignee_and_continued(world: World) {
    for number in 1..=4 {
        let mut new = wanted("Fix");
        new.assignee = (number % 2 == 0).then(|| "maya".to_owned());
        world.made(&new).await;
    }
    let numbers = async |filter: TaskFilter| -> Vec<i64> {
        let found = world.store.tasks(&filter).await.unwrap();
        found.iter().map(|task| task.number.0).collect()
    };
    let of_maya = TaskFilter {
        assignee: Some("maya".into()),
        ..TaskFilter::default()
    };
    assert_eq!(numbers(of_maya).await, [4, 2]);
    let next = TaskFilter {
        before: Some(TaskNumber(3)),
        limit: 1,
        ..TaskFilter::default()
    };
    assert_eq!(numbers(next).await, [2]);
}

async fn a_task_has_one_running_session_of_a_client(world: World) {
    let store = &world.store;
    let task = world.made(&wanted("Fix")).await;
    let new = client();
    let (one, other) = tokio::join!(
        store.begin_external(task.id, &new),
        store.begin_external(task.id, &new)
    );
    let outcomes = [one.unwrap(), other.unwrap()];
    let sessions = store.sessions(None, 0).await.unwrap();
    assert_eq!(sessions.len(), 1);
    assert!(
        outcomes.contains(&Begun::Running(sessions[0].id)),
        "{outcomes:?}"
    );
    assert!(
        outcomes.contains(&Begun::Done(Box::new(sessions[0].clone()))),
        "{outcomes:?}"
    );
    let external = sessions[0].external.as_ref().unwrap();
    assert_eq!(
        (external.client.as_str(), external.exit_code),
        ("codex", None)
    );
    let row = world.task(task.id).await;
    assert_eq!(row.state.public(), PublicStatus::InProgress);
    // Nor can its status be changed meanwhile.
    let edit = TaskEdit {
        status: Some((PublicStatus::Done, None)),
        ..TaskEdit::default()
    };
    let refused = store.edit_task(task.id, &edit).await.unwrap();
    assert_eq!(refused, Edited::Running(sessions[0].id));

    let begin = async |task| store.begin_external(task, &new).await.unwrap();
    let fleet = world.new_task(7).await;
    assert_eq!(begin(fleet.id).await, Begun::OfTheFleet);
    assert_eq!(begin(TaskId::new()).await, Begun::Missing);
    let mut human = wanted("Decide");
    human.assignee_type = AssigneeType::Human;
    assert_eq!(begin(world.made(&human).await.id).await, Begun::Human);
    let mut later = wanted("Later");
    later.depends_on = vec![task.number];
    let waits = begin(world.made(&later).await.id).await;
    assert!(
        matches!(&waits, Begun::Waits(on) if on[0].number == task.number),
        "{waits:?}"
    );
}

async fn the_end_of_a_session_decides_the_status_of_its_task(world: World) {
    let task = world.made(&wanted("Fix")).await;
    for (exit_code, result, status, end) in [
        (
            0,
            DodResult::Pending,
            PublicStatus::InProgress,
            SessionEnd::Done,
        ),
        (
            1,
            DodResult::Pending,
            PublicStatus::Failed,
            SessionEnd::Failed,
        ),
        (
            0,
            DodResult::Error,
            PublicStatus::Failed,
            SessionEnd::Failed,
        ),
        (
            0,
            DodResult::Timeout,
            PublicStatus::Failed,
            SessionEnd::Failed,
        ),
        (0, DodResult::Merged, PublicStatus::Done, SessionEnd::Done),
    ] {
        let open = TaskEdit {
            status: Some((PublicStatus::Open, None)),
            ..TaskEdit::default()
        };
        world.edited(task.id, open).await;
        let session = world.begun(task.id).await;
        let finished = world
            .store
            .end_external(session.id, &ended(exit_code, result))
            .await;
        let ExternalFinish::Done(session, row) = finished.unwrap() else {
            panic!("not ended");
        };
        assert_eq!(
            (row.state.public(), session.end),
            (status, Some(end)),
            "{result}"
        );
        assert_eq!(row.reason.is_some(), status == PublicStatus::Failed);
        let external = session.external.unwrap();
        assert_eq!(external.dod_result, Some(result));
        assert_eq!(external.artifacts, [json!("report.md")]);
    }
}

async fn a_session_ends_once_and_only_that_of_a_client(world: World) {
    let store = &world.store;
    let task = world.made(&wanted("Fix")).await;
    let session = world.begun(task.id).await;
    let end = ended(0, DodResult::Merged);
    store.end_external(session.id, &end).await.unwrap();
    let before = (
        world.task(task.id).await,
        store.session(session.id).await.unwrap(),
    );
    let again = store
        .end_external(session.id, &ended(1, DodResult::Error))
        .await
        .unwrap();
    assert!(matches!(again, ExternalFinish::Over(_)), "{again:?}");
    let after = (
        world.task(task.id).await,
        store.session(session.id).await.unwrap(),
    );
    assert_eq!(before, after);
    let over = store.begin_external(task.id, &client()).await.unwrap();
    assert_eq!(over, Begun::Over(TaskState::Ended(EndState::Done)));

    let lease = world.leased(9).await;
    let of_a_worker = store.end_external(lease.session, &end).await.unwrap();
    assert_eq!(of_a_worker, ExternalFinish::OfTheFleet);
    let nobody = store.end_external(SessionId(99), &end).await.unwrap();
    assert_eq!(nobody, ExternalFinish::Missing);
}

async fn a_cancelled_task_ends_its_session(world: World) {
    let task = world.made(&wanted("Fix")).await;
    let session = world.begun(task.id).await;
    let cancel = TaskEdit {
        status: Some((PublicStatus::Cancelled, Some("not needed".into()))),
        ..TaskEdit::default()
    };
    world.edited(task.id, cancel).await;
    let session = world.store.session(session.id).await.unwrap().unwrap();
    assert_eq!(session.end, Some(SessionEnd::Stopped));
    assert_eq!(session.reason.as_deref(), Some("not needed"));
}

async fn a_session_whose_client_never_started_opens_its_task_again(world: World) {
    let task = world.made(&wanted("Fix")).await;
    let session = world.begun(task.id).await;
    let store = &world.store;
    store.set_worktree(session.id, "/tmp/w").await.unwrap();
    store.discard_external(session.id).await.unwrap();
    let session = store.session(session.id).await.unwrap().unwrap();
    assert_eq!(session.end, Some(SessionEnd::Released));
    assert_eq!(
        session.external.unwrap().worktree.as_deref(),
        Some("/tmp/w")
    );
    assert_eq!(world.task(task.id).await.state, TaskState::Queued);
}

async fn a_task_has_the_agent_that_people_name(world: World) {
    let new = NewPersonTask {
        agent: Some("fix".into()),
        ..wanted("With an agent")
    };
    let made = world.made(&new).await;
    let queued = world.new_task(7).await;
    let names = async || {
        let (made, queued) = (world.task(made.id).await, world.task(queued.id).await);
        (made.card.agent, queued.card.agent)
    };
    assert_eq!(names().await, (Some("fix".into()), None));
    let to = |agent: Option<&str>| TaskEdit {
        agent: Some(agent.map(ToOwned::to_owned)),
        ..TaskEdit::default()
    };
    world
        .store
        .edit_task(queued.id, &to(Some("review")))
        .await
        .unwrap();
    world.store.edit_task(made.id, &to(None)).await.unwrap();
    assert_eq!(names().await, (None, Some("review".into())));
    let claim = world.claim(queued.id, MINUTE).await.unwrap();
    assert_eq!(claim.task.card.agent.as_deref(), Some("review"));
}

pub(super) async fn claim_here(world: &World, task: TaskId, nonce: Uuid) -> Option<Claim> {
    let worker = WorkerId("host/1/0".into());
    let claim = world
        .store
        .claim_of_person(task, &worker, nonce, MINUTE)
        .await;
    claim.unwrap()
}

async fn a_task_of_a_person_is_claimed_where_the_person_asks_for_it(world: World) {
    let fleet = world.new_task(1).await;
    world.relay().await;
    assert!(claim_here(&world, fleet.id, Uuid::new_v4()).await.is_none());
    let first = world.made(&wanted("first")).await;
    let second = NewPersonTask {
        depends_on: vec![first.number],
        write_scope: scope("src"),
        ..wanted("second")
    };
    let second = world.made(&second).await;
    let human = NewPersonTask {
        assignee_type: AssigneeType::Human,
        ..wanted("human")
    };
    let human = world.made(&human).await;
    for id in [second.id, human.id] {
        assert!(claim_here(&world, id, Uuid::new_v4()).await.is_none());
    }
    let nonce = Uuid::new_v4();
    let claim = claim_here(&world, first.id, nonce).await.unwrap();
    // A lost answer.
    let again = claim_here(&world, first.id, nonce).await.unwrap();
    assert_eq!(again.lease.session, claim.lease.session);
    assert!(claim_here(&world, first.id, Uuid::new_v4()).await.is_none());
    let step = world.store.append_step(&claim.lease, &note("x")).await;
    assert_eq!(step.unwrap(), Seq(1));
    // What is given back wakes nobody up.
    let back = release(Attempt::Charged, NONE);
    world.store.end_lease(&claim.lease, &back).await.unwrap();
    assert_eq!(world.task(first.id).await.state, TaskState::Queued);
    assert!(world.relay().await.is_empty());
    // No attempt is the last.
    for _ in 0..5 {
        let claim = claim_here(&world, first.id, Uuid::new_v4()).await.unwrap();
        world.store.end_lease(&claim.lease, &back).await.unwrap();
    }
    let claim = claim_here(&world, first.id, Uuid::new_v4()).await.unwrap();
    world.store.end_lease(&claim.lease, &done()).await.unwrap();
    assert_eq!(
        world.task(first.id).await.state,
        TaskState::Ended(EndState::Done)
    );
    assert!(world.unreported().await.is_empty());
    assert!(
        claim_here(&world, second.id, Uuid::new_v4())
            .await
            .is_some()
    );
}

async fn a_worker_and_a_client_do_not_share_a_task_of_a_person(world: World) {
    let task = world.made(&wanted("x")).await;
    let session = world.begun(task.id).await;
    assert!(claim_here(&world, task.id, Uuid::new_v4()).await.is_none());
    let ending = ended(0, DodResult::Pending);
    world.store.end_external(session.id, &ending).await.unwrap();
    let open = TaskEdit {
        status: Some((PublicStatus::Open, None)),
        ..TaskEdit::default()
    };
    world.edited(task.id, open).await;
    let claim = claim_here(&world, task.id, Uuid::new_v4()).await.unwrap();
    let running = claim.lease.session;
    let begun = world
        .store
        .begin_external(task.id, &client())
        .await
        .unwrap();
    assert_eq!(begun, Begun::Running(running));
    for status in [PublicStatus::Done, PublicStatus::Cancelled] {
        let edit = TaskEdit {
            status: Some((status, None)),
            ..TaskEdit::default()
        };
        let refused = world.store.edit_task(task.id, &edit).await.unwrap();
        assert_eq!(refused, Edited::Running(running));
    }
    assert!(world.store.request_stop(task.id, "enough").await.unwrap());
    let asked = world.store.heartbeat(&claim.lease, MINUTE).await.unwrap();
    assert_eq!(asked, LeaseRequest::Stop);
}

async fn a_task_for_a_repository_has_one_further_attempt(world: World) {
    let item = world.new_task(1).await.item;
    let new = NewPersonTask {
        repository: Some(RepositoryRef {
            tracker: item.tracker,
            host: item.host,
            repo_id: item.repo_id,
            repo_path: item.repo_path,
        }),
        ..wanted("In a repository")
    };
    let first = world.made(&new).await;
    let again = |task: &Task| NewPersonTask {
        retries: Some(task.id),
        ..new.clone()
    };
    let second = world.made(&again(&first)).await;
    let refused = world.store.create_task(&again(&first)).await.unwrap();
    assert!(
        matches!(&refused, Edited::Retried(known) if known.id == second.id),
        "{refused:?}"
    );
    // An attempt may be retried itself.
    assert_eq!(world.made(&again(&second)).await.number, TaskNumber(4));
}

async fn a_task_for_a_repository_is_worked_on_by_the_fleet(world: World) {
    let issue = world.new_task(2).await;
    let repository = RepositoryRef {
        tracker: issue.item.tracker,
        host: issue.item.host.clone(),
        repo_id: issue.item.repo_id.clone(),
        repo_path: issue.item.repo_path.clone(),
    };
    let new = NewPersonTask {
        repository: Some(repository),
        ..wanted("In a repository")
    };
    world.relay().await;
    // Its number is that of the issue, which is another item.
    let task = world.made(&new).await;
    assert_eq!((task.number, issue.item.number), (TaskNumber(2), 2));
    assert_eq!(
        (task.home(), task.item.kind),
        (TaskHome::Repository, ItemKind::Task)
    );
    assert_eq!(
        (task.item.number, &task.item.repo_path),
        (2, &issue.item.repo_path)
    );
    assert_ne!(task.item.key(), issue.item.key());
    let latest = world.store.latest_task(&task.item).await.unwrap();
    assert_eq!(latest.map(|task| task.id), Some(task.id));
    let later = world.made(&new).await;

    assert_eq!(world.relay().await, [task.id, later.id]);
    assert_eq!(world.store.figures().await.unwrap().slots, 3);
    assert_eq!(world.store.queued_and_leased().await.unwrap(), (3, 0));
    let claimable = world.claimable(NONE, 9).await;
    assert!(claimable.contains(&task.id), "{claimable:?}");
    assert!(claim_here(&world, task.id, Uuid::new_v4()).await.is_none());
    let begun = world
        .store
        .begin_external(task.id, &client())
        .await
        .unwrap();
    assert_eq!(begun, Begun::OfTheFleet);
    let done = TaskEdit {
        status: Some((PublicStatus::Done, None)),
        title: Some("Another title".into()),
        ..TaskEdit::default()
    };
    let edited = world.edited(task.id, done).await;
    assert_eq!(
        (edited.state, edited.title.as_str()),
        (TaskState::Queued, "Another title")
    );
    let claim = world.claim(task.id, MINUTE).await.unwrap();
    let back = release(Attempt::Charged, NONE);
    world.store.end_lease(&claim.lease, &back).await.unwrap();
    assert!(world.relay().await.contains(&task.id));
    assert!(world.store.request_pause(task.id, "wait").await.unwrap());
    assert!(world.store.resume(task.id).await.unwrap());
    assert!(world.relay().await.contains(&task.id));
    let claim = world.claim(task.id, MINUTE).await.unwrap();
    let failed = LeaseEnd::Finish {
        state: EndState::Failed,
        reason: Some("x".into()),
        pull_request_url: None,
    };
    world.store.end_lease(&claim.lease, &failed).await.unwrap();
    // Its end is looked after as any other: a pull request may be open.
    let ends = world
        .store
        .unreported(NONE, TaskNumber(0), 9)
        .await
        .unwrap();
    assert_eq!(ends.iter().map(|it| it.id).collect::<Vec<_>>(), [task.id]);
}
