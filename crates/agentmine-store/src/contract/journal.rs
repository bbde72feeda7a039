//! Steps, usage and checkpoints.

use super::*;

facts! {
    a_reply_is_shown_to_those_who_follow_until_it_is_recorded,
    a_step_appended_again_is_recorded_once,
    appends_of_one_step_at_once_record_it_once,
    the_journal_has_no_gaps_over_sessions,
    checkpoints_come_back_in_order,
    phases_and_usage_are_recorded,
}

async fn the_journal_has_no_gaps_over_sessions(world: World) {
    let store = &world.store;
    let task = world.new_task(1).await.id;
    let first = world.claim(task, NONE).await.unwrap().lease;
    let together: Vec<NewStep> = (0..12).map(|_| note("together")).collect();
    let appended =
        futures::future::join_all(together.iter().map(|step| store.append_step(&first, step)))
            .await;
    let mut seqs: Vec<i64> = appended.into_iter().map(|s| s.unwrap().0).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=12).collect::<Vec<_>>());
    let second = world.claim(task, MINUTE).await.unwrap().lease;
    assert!(is_fenced(store.append_step(&first, &note("late")).await));
    let payload = payload(json!({"out": "nul \u{0} and \u{1f980}", "n": 1.5}));
    let wild = NewStep::new(StepKind::ToolResult, payload, 12);
    assert_eq!(store.append_step(&second, &wild).await.unwrap(), Seq(13));
    let steps = store.steps(task).await.unwrap();
    let seqs: Vec<i64> = steps.iter().map(|s| s.seq.0).collect();
    assert_eq!(seqs, (1..=13).collect::<Vec<_>>());
    let last = steps.last().unwrap();
    assert_eq!((last.epoch, last.kind), (second.epoch, wild.kind));
    assert_eq!(last.payload, wild.payload, "a NUL survives");
    assert_eq!(last.duration_ms, 12);
    assert_eq!(store.steps(TaskId::new()).await.unwrap(), []);
}

async fn checkpoints_come_back_in_order(world: World) {
    let store = &world.store;
    let lease = world.leased(1).await;
    let checkpoint = |seq, byte| Checkpoint {
        seq: Seq(seq),
        commit: format!("commit-{byte}"),
        bundle: vec![byte; 70_000],
    };
    for c in [checkpoint(5, 5), checkpoint(2, 2), checkpoint(5, 6)] {
        store.save_checkpoint(&lease, &c).await.unwrap();
    }
    let found = store.checkpoints(lease.task).await.unwrap();
    assert_eq!(found, [checkpoint(2, 2), checkpoint(5, 6)]);
}

async fn phases_and_usage_are_recorded(world: World) {
    let store = &world.store;
    let lease = world.leased(1).await;
    store.set_phase(&lease, Phase::Verifying).await.unwrap();
    let state = world.task(lease.task).await.state;
    assert_eq!(state, TaskState::Leased(Phase::Verifying));
    let usage = Usage {
        model_calls: 1,
        tool_calls: 2,
        input_tokens: 3,
        cached_tokens: 4,
        output_tokens: 5,
        cost_micros: 6,
    };
    store.record_usage(&lease, "gpt", &usage).await.unwrap();
    let session = store.session(lease.session).await.unwrap().unwrap();
    assert_eq!(
        (session.usage, session.model.as_deref()),
        (usage, Some("gpt"))
    );
    assert_eq!(session.task_number, TaskNumber(1));
    // With a step, and once with that step: what is repeated after a lost answer is as it was.
    let more = Usage {
        model_calls: 2,
        ..usage
    };
    let step = note("a reply");
    for model in ["other", "repeated"] {
        let appended = store.append_step_with_usage(&lease, &step, model, &more);
        assert_eq!(appended.await.unwrap(), Seq(1));
        let session = store.session(lease.session).await.unwrap().unwrap();
        assert_eq!(session.usage, more);
    }
    assert_eq!(store.steps(lease.task).await.unwrap().len(), 1);
}

async fn a_step_appended_again_is_recorded_once(world: World) {
    let store = &world.store;
    let task = world.new_task(1).await.id;
    let lease = world.claim(task, NONE).await.unwrap().lease;
    let step = note("once");
    assert_eq!(store.append_step(&lease, &step).await.unwrap(), Seq(1));
    assert_eq!(store.append_step(&lease, &note("x")).await.unwrap(), Seq(2));
    assert_eq!(store.append_step(&lease, &step).await.unwrap(), Seq(1));
    // The lease may be lost between the append and its repetition: what is recorded is recorded.
    world.claim(task, MINUTE).await.unwrap();
    assert_eq!(store.append_step(&lease, &step).await.unwrap(), Seq(1));
    assert!(is_fenced(store.append_step(&lease, &note("late")).await));
    assert_eq!(store.steps(task).await.unwrap().len(), 2);
}

/// A caller may repeat an append while the server still executes the attempt that it gave up.
async fn appends_of_one_step_at_once_record_it_once(world: World) {
    let store = &world.store;
    let lease = world.leased(1).await;
    for n in 1..=5 {
        let step = note("together");
        let appends = (0..4).map(|_| store.append_step(&lease, &step));
        for seq in futures::future::join_all(appends).await {
            assert_eq!(seq.unwrap(), Seq(n));
        }
    }
    let steps = store.steps(lease.task).await.unwrap();
    let seqs: Vec<i64> = steps.iter().map(|step| step.seq.0).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5]);
}

async fn a_reply_is_shown_to_those_who_follow_until_it_is_recorded(world: World) {
    let lease = world.leased(1).await;
    let store = &world.store;
    let session = store.session(lease.session).await.unwrap().unwrap();
    let follow = async |session| store.follow_reply(session).await.unwrap();
    let show = async |lease, after, text| store.show_reply(lease, Seq(after), text).await.unwrap();
    assert!(!show(&lease, 0, "unseen").await, "nobody follows");
    assert_eq!(follow(&session).await, None);
    assert!(show(&lease, 0, "I look").await);
    assert!(show(&lease, 0, "I look at \0 it").await);
    let shown = follow(&session).await;
    assert_eq!(shown.as_deref(), Some("I look at \u{fffd} it"));
    let seq = store.append_step(&lease, &note("x")).await.unwrap();
    assert_eq!(follow(&session).await, None);
    assert!(show(&lease, 0, "I look at it all").await, "a late write");
    assert_eq!(follow(&session).await, None);
    assert!(show(&lease, seq.0, "Then").await);
    assert_eq!(follow(&session).await.as_deref(), Some("Then"));
    assert!(show(&lease, seq.0, "").await);
    assert_eq!(follow(&session).await, None, "it began again");
    assert!(show(&lease, seq.0, "Then").await);
    let end = release(Attempt::Charged, NONE);
    store.end_lease(&lease, &end).await.unwrap();
    assert_eq!(follow(&session).await, None);
    assert!(!show(&lease, seq.0, "late").await);
    let next = world.claim(lease.task, MINUTE).await.unwrap().lease;
    assert_eq!(follow(&session).await, None, "it is over");
    assert!(!show(&next, seq.0, "unseen").await, "nobody follows it");
    let session = store.session(next.session).await.unwrap().unwrap();
    assert_eq!(follow(&session).await, None);
    assert!(!show(&lease, seq.0, "of a worker without a lease").await);
    assert!(show(&next, seq.0, "again").await);
    assert_eq!(follow(&session).await.as_deref(), Some("again"));
}
